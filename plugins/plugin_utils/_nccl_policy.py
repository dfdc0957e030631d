# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""NCCL's settings, from what a host is; never from a table of machine names.

Left out on purpose: NCCL_IB_GID_INDEX, NCCL_TOPO_FILE and GDR levels (NCCL finds better ones by itself), NCCL_ALGO and NCCL_PROTO
(tuning that outlives its reason), and NCCL_IB_DISABLE (a plain Ethernet host has nothing to disable).
"""

from __future__ import annotations

import re
from typing import Any

NVIDIA = "10de"


def natural(name: str) -> list[Any]:
    """Return a sort key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def compute_hcas(observed: dict[str, Any]) -> list[str]:
    """Return the InfiniBand ports that carry traffic between nodes: up, and no share of another host's card."""
    found = [
        nic["name"]
        for nic in observed.get("nics") or []
        if nic["link_layer"] == "InfiniBand" and nic["state"] == "ACTIVE" and not nic["virtual_function"]
    ]
    return sorted(found, key=natural)


def variables(observed: dict[str, Any], asked: dict[str, Any]) -> dict[str, str]:
    """Return what /etc/nccl.conf is to hold; empty where NCCL's own choice is right."""
    found: dict[str, str] = {}
    hcas = compute_hcas(observed) if observed.get("gpus") else []
    if hcas:
        # "=" asks for these names; without it mlx5_1 would also mean mlx5_10.
        found["NCCL_IB_HCA"] = "=" + ",".join(hcas)
    interface = asked["socket_interface"] or _socket_interface(observed)
    if interface:
        found["NCCL_SOCKET_IFNAME"] = interface if interface[0] in "=^" else f"={interface}"
    if hcas and asked["traffic_class"] is not None:
        found["NCCL_IB_TC"] = str(asked["traffic_class"])
    if hcas and asked["service_level"] is not None:
        found["NCCL_IB_SL"] = str(asked["service_level"])
    return found


def _socket_interface(observed: dict[str, Any]) -> str | None:
    """Return the interface that NCCL's bootstrap should use on a GPU host: a real one with an address, the default route's if several."""
    if not observed.get("gpus"):
        return None
    found = [entry for entry in observed.get("interfaces") or [] if entry["type"] in ("physical", "bond") and entry["up"] and entry["ipv4"]]
    found.sort(key=lambda entry: (not entry["default_route"], natural(entry["name"])))
    return str(found[0]["name"]) if found else None
