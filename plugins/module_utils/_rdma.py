# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""RDMA devices (InfiniBand, RoCE, EFA) from sysfs, in the kernel's own words."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _pci

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

FOLDER = "/sys/class/infiniband"


def rate(text: str | None) -> float | None:
    """C("400 Gb/sec (4X NDR)") is 400 Gb/s."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*(?:Gb/sec|Gb/s|$)", text or "")
    value = float(found.group(1)) if found else None
    return int(value) if value is not None and value.is_integer() else value


def word(text: str | None) -> str | None:
    """C("4: ACTIVE") is ACTIVE."""
    return text.rsplit(":", 1)[-1].strip() or None if text else None


def natural(name: str) -> list[t.Any]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def scan(system: System) -> list[dict[str, t.Any]]:
    """All RDMA devices in the natural order of their names; values of the first port."""
    nics = []
    for name in sorted(system.names(FOLDER), key=natural):
        folder = "%s/%s" % (FOLDER, name)
        device = folder + "/device"
        bus = system.real(device).rsplit("/", 1)[-1]
        on_pci = re.match(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", bus) is not None
        ports = system.names(folder + "/ports")
        port = "%s/ports/%s" % (folder, ports[0] if ports else "1")
        nics.append({
            "name": name,
            "address": bus if on_pci else None,
            "vendor_id": (system.read(device + "/vendor", 16, True) or "").replace("0x", "") or None,
            "device_id": (system.read(device + "/device", 16, True) or "").replace("0x", "") or None,
            "link_layer": system.read(port + "/link_layer", 64),
            "state": word(system.read(port + "/state", 64)),
            "physical_state": word(system.read(port + "/phys_state", 64)),
            "rate_gbps": rate(system.read(port + "/rate", 64)),
            "netdevs": system.names(device + "/net"),
            "numa_node": _pci.numa_node(system, device),
            "cpus": system.read(device + "/local_cpulist", 4096, True) or None,
            "virtual_function": system.exists(device + "/physfn"),
            "node_guid": system.read(folder + "/node_guid", 64, True) or None,
            "firmware": system.read(folder + "/fw_ver", 64, True) or None,
            "pcie": _pci.link(system, device),
        })
    return nics
