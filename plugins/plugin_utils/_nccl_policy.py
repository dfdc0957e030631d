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

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal

PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
VARIABLE = "nccl_tuning_socket_interface"
SETTING = re.compile(r"[ \t]*[A-Z][A-Z0-9_]*[ \t]*=")


def natural(name: str) -> list[Any]:
    """Return a sort key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _up(nic: dict[str, Any]) -> bool:
    return nic.get("state") == "ACTIVE" and not nic.get("virtual_function") and not nic.get("nvlink_bridge")


def compute_hcas(observed: dict[str, Any]) -> list[str]:
    """Return the InfiniBand adapters that carry traffic between GPUs of different nodes.

    They are up, are no share of another host's card, do not manage NVSwitches, and are the nearest ones to some GPU: an adapter for storage or
    management that sits further away than others is none. Where distances are not known, all that are up count.
    """
    up = [str(nic["name"]) for nic in observed.get("nics") or [] if nic.get("link_layer") == "InfiniBand" and _up(nic)]
    paths = ((observed.get("topology") or {}).get("gpu_nic") or {}) if len(up) > 1 else {}
    near: set[str] = set()
    for seen in paths.values():
        rank = {name: PATHS.index(seen[name]["path"]) for name in up if (seen.get(name) or {}).get("path") in PATHS}
        near |= {name for name, steps in rank.items() if steps == min(rank.values())}
    return sorted(near or up, key=natural)


def variables(observed: dict[str, Any], asked: dict[str, Any], policy: dict[str, Any]) -> dict[str, str]:
    """Return what /etc/nccl.conf is to hold; empty where NCCL's own choice is right."""
    if not observed.get("gpus"):
        return {}
    found: dict[str, str] = {}
    hcas = compute_hcas(observed)
    if hcas:
        # "=" asks for these names; without it mlx5_1 would also mean mlx5_10.
        found["NCCL_IB_HCA"] = "=" + ",".join(hcas)
    interface = _asked_interface(observed, asked["socket_interface"]) if asked["socket_interface"] else _socket_interface(observed)
    if interface:
        found["NCCL_SOCKET_IFNAME"] = interface if interface[0] in "=^" else f"={interface}"
    # The fabric owner's numbers mean something to every RDMA adapter, InfiniBand or RoCE.
    if any(_up(nic) for nic in observed.get("nics") or []):
        for name, given in (("NCCL_IB_TC", asked["traffic_class"]), ("NCCL_IB_SL", asked["service_level"])):
            if given is not None:
                found[name] = str(given)
    return {**found, **_extra(asked["extra"], policy)}


def _extra(asked: dict[str, str], policy: dict[str, Any]) -> dict[str, str]:
    """Return further variables of the operator's; only facts of the site may stand in a file that every job reads."""
    for name in asked:
        if name not in policy["fabric"]:
            kind = next((word for word in ("unwritten", "never", "tune", "removed") if name in policy[word]), "unknown or better left unset")
            raise Refusal(
                "nccl.policy", f"{name} is not written into a file that every job reads ({kind})",
                seen=name, allowed=list(policy["fabric"]), variable="nccl_tuning_extra", source=policy["source"],
            )  # fmt: skip
    return asked


def _asked_interface(observed: dict[str, Any], asked: str) -> str:
    """Return the asked interfaces; raises Refusal when the host has none of them, which NCCL would say only when a job starts."""
    there = [str(entry["name"]) for entry in observed.get("interfaces") or []]
    names = asked.lstrip("=").split(",")
    if asked[0] != "^" and there and not set(names) & set(there):
        raise Refusal(
            "nccl.interface_unknown", f"{VARIABLE} is {asked!r}; the host has {', '.join(sorted(there, key=natural))}",
            seen=asked, allowed=sorted(there, key=natural), variable=VARIABLE, nearest=_socket_interface(observed),
        )  # fmt: skip
    return asked


def _socket_interface(observed: dict[str, Any]) -> str | None:
    """Return the interface that NCCL's bootstrap should use: a real one with an address, the default route's if there are several."""
    found = [entry for entry in observed.get("interfaces") or [] if entry["type"] in ("physical", "bond") and entry["up"] and entry["ipv4"]]
    found.sort(key=lambda entry: (not entry["default_route"], natural(entry["name"])))
    return str(found[0]["name"]) if found else None


def foreign(text: str | None, header: str) -> bool:
    """Tell whether settings stand in the file that are not ours."""
    return bool(text) and header not in str(text) and any(SETTING.match(line) for line in str(text).splitlines())


def leftovers(text: str | None, policy: dict[str, Any]) -> list[str]:
    """Return the variables in a file that must not be left in one that every job reads."""
    names = {line.partition("=")[0].strip() for line in (text or "").splitlines() if SETTING.match(line)}
    return sorted(names & {*policy["never"], *policy["unwritten"], *policy["removed"]})
