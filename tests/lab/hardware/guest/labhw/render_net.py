# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the network interfaces that a machine's adapters have, beside the host's real cable."""

from __future__ import annotations

from .machine import Entry, Machine
from .tree import Link, Tree

# ARPHRD_ETHER and ARPHRD_INFINIBAND of the kernel.
TYPES = {"ethernet": "1", "infiniband": "32"}
# Interface numbers far from those that the kernel gives.
FIRST_INDEX = 1000


def home_of(machine: Machine, interface: Entry) -> str:
    """Return the folder of an interface below /sys."""
    return f"devices/{machine.sysfs_path(interface['at'])}/net/{interface['name']}"


def interfaces(machine: Machine) -> Tree:
    """Draw the interfaces. The cable's folder is made by the mount that shows the real one there."""
    tree: Tree = {}
    for number, interface in enumerate(machine.interfaces):
        home = home_of(machine, interface)
        tree[f"class/net/{interface['name']}"] = Link(home)
        if interface["cable"]:
            continue
        infiniband = interface["type"] == "infiniband"
        guid = next((device["guid"] for device in machine.rdma if device.get("interface") == interface["name"]), "0000:0000:0000:0000")
        octets = guid.replace(":", "")
        long = "00:00:10:49:fe:80:00:00:00:00:00:00:" + ":".join(octets[start : start + 2] for start in range(0, 16, 2))
        tree.update(
            {
                f"{home}/address": long if infiniband else interface["mac"],
                f"{home}/addr_len": "20" if infiniband else "6",
                f"{home}/type": TYPES[interface["type"]],
                f"{home}/mtu": "2044" if infiniband else "1500",
                f"{home}/operstate": "down",
                f"{home}/carrier": "0",
                f"{home}/flags": "0x1002",
                f"{home}/ifindex": str(FIRST_INDEX + number),
                f"{home}/iflink": str(FIRST_INDEX + number),
                f"{home}/dev_id": "0x0",
                f"{home}/dev_port": "0",
                f"{home}/speed": str(interface["mbps"] or -1),
                f"{home}/uevent": f"INTERFACE={interface['name']}\nIFINDEX={FIRST_INDEX + number}",
                f"{home}/device": Link(f"devices/{machine.sysfs_path(interface['at'])}"),
                f"{home}/subsystem": Link("class/net"),
            }
        )
    return tree
