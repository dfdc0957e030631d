# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""RDMA devices (InfiniBand, RoCE, EFA) from sysfs, in the kernel's own words."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _pci, _ports

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

FOLDER = "/sys/class/infiniband"


def natural(name: str) -> list[t.Any]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def scan(system: System) -> list[dict[str, t.Any]]:
    """All RDMA devices in the natural order of their names; a device's own state is that of its first port."""
    nics = []
    for name in sorted(system.names(FOLDER), key=natural):
        folder = "%s/%s" % (FOLDER, name)
        device = folder + "/device"
        bus = system.device(device).rsplit("/", 1)[-1]
        ports = _ports.scan(system, folder)
        first = ports[0] if ports else {}
        nics.append({
            "name": name,
            "address": bus if _pci.ADDRESS.match(bus) else None,
            "vendor_id": (system.read(device + "/vendor", 16, True) or "").replace("0x", "") or None,
            "device_id": (system.read(device + "/device", 16, True) or "").replace("0x", "") or None,
            **{key: first.get(key) for key in ("link_layer", "state", "physical_state", "rate_gbps")},
            "ports": ports,
            "netdevs": system.names(device + "/net"),
            "cpus": system.read(device + "/local_cpulist", 4096, True) or None,
            "virtual_function": system.exists(device + "/physfn"),
            **{key: system.read("%s/%s" % (folder, key), 64, True) or None for key in ("node_guid", "sys_image_guid", "hca_type", "board_id")},
            "firmware": system.read(folder + "/fw_ver", 64, True) or None,
            **_pci.function(system, device),
        })
    return nics


def join_bonds(nics: list[dict[str, t.Any]], interfaces: list[dict[str, t.Any]]) -> None:
    """Give each NIC C(bond) and C(bond_addresses): the bond of its interface, and where the members of that bond are.

    An RDMA device over a bond (mlx5_bond_0) has the address of one of its ports only; its GIDs belong to the bond.
    """
    by_name = {entry["name"]: entry for entry in interfaces}
    for nic in nics:
        names = [*nic["netdevs"], *(gid["netdev"] for port in nic["ports"] for gid in port["gids"] if gid["netdev"])]
        own = [name for name in names if name in by_name]
        bonds = [name for entry in own for name in (entry, by_name[entry]["master"]) if (by_name.get(name) or {}).get("bond")]
        nic["bond"] = bonds[0] if bonds else None
        members = by_name[bonds[0]]["bond"]["members"] if bonds else []
        nic["bond_addresses"] = sorted({by_name[name]["address"] for name in members if (by_name.get(name) or {}).get("address")})
