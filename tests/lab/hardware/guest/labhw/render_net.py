# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the network interfaces that a machine's adapters have, beside the host's real cable."""

from __future__ import annotations

from .machine import Entry, Machine
from .tree import Link, Tree

# ARPHRD_ETHER and ARPHRD_INFINIBAND of the kernel.
TYPES = {"ethernet": "1", "infiniband": "32"}
# The kernel's numbers for how a bond uses its members.
MODES = {"balance-rr": 0, "active-backup": 1, "balance-xor": 2, "802.3ad": 4}
# Interface numbers far from those that the kernel gives.
FIRST_INDEX = 1000


def home_of(machine: Machine, interface: Entry) -> str:
    """Return the folder of an interface below /sys; one that is on other interfaces has no device."""
    above = f"devices/{machine.sysfs_path(interface['at'])}" if interface["at"] else "devices/virtual"
    return f"{above}/net/{interface['name']}"


def interfaces(machine: Machine) -> Tree:
    """Draw the interfaces. The cable's folder is made by the mount that shows the real one there."""
    tree: Tree = {}
    bonds = [interface["name"] for interface in machine.interfaces if interface["type"] == "bond"]
    if bonds:
        tree["class/net/bonding_masters"] = " ".join(bonds)
    for number, interface in enumerate(machine.interfaces):
        home = home_of(machine, interface)
        tree[f"class/net/{interface['name']}"] = Link(home)
        if not interface["cable"]:
            tree.update({f"{home}/{name}": content for name, content in _files(machine, interface, FIRST_INDEX + number).items()})
    return tree


def _files(machine: Machine, interface: Entry, index: int) -> Tree:
    infiniband, up, kind = interface["type"] == "infiniband", interface["up"], interface["type"]
    guid = next((device["guid"] for device in machine.rdma if device.get("interface") == interface["name"]), "0000:0000:0000:0000")
    octets = guid.replace(":", "")
    long = "00:00:10:49:fe:80:00:00:00:00:00:00:" + ":".join(octets[start : start + 2] for start in range(0, 16, 2))
    master = next((other for other in machine.interfaces if interface["name"] in other["members"]), None)
    # IFF_UP, IFF_BROADCAST and IFF_MULTICAST; IFF_MASTER of a bond, IFF_SLAVE of a member.
    flags = 0x1002 | (1 if up else 0) | (0x400 if kind == "bond" else 0) | (0x800 if master else 0)
    more = f"DEVTYPE={kind}\n" if kind in ("bond", "vlan") else ""
    tree: Tree = {
        "address": long if infiniband else interface["mac"],
        "addr_len": "20" if infiniband else "6",
        "type": TYPES.get(kind, TYPES["ethernet"]),
        "mtu": "2044" if infiniband else "1500",
        "operstate": "up" if up else "down",
        "flags": hex(flags),
        "ifindex": str(index),
        "iflink": str(index),
        "dev_id": "0x0",
        "dev_port": "0",
        "speed": str(interface["mbps"] or -1),
        "uevent": f"{more}INTERFACE={interface['name']}\nIFINDEX={index}",
        "subsystem": Link("class/net"),
    }
    if up:
        # The kernel refuses to read it of an interface that is not up.
        tree["carrier"] = "1"
    if interface["at"]:
        tree["device"] = Link(f"devices/{machine.sysfs_path(interface['at'])}")
    if master:
        tree["master"] = tree[f"upper_{master['name']}"] = Link(home_of(machine, master))
    tree.update(_stacked(machine, interface))
    return tree


def _stacked(machine: Machine, interface: Entry) -> Tree:
    """Draw what tells on which interfaces one is, and how a bond uses them."""
    homes = {other["name"]: home_of(machine, other) for other in machine.interfaces}
    below = [*interface["members"], *([interface["on"]] if "on" in interface else [])]
    tree: Tree = {f"lower_{name}": Link(homes[name]) for name in below}
    for other in machine.interfaces:
        if other.get("on") == interface["name"]:
            tree[f"upper_{other['name']}"] = Link(homes[other["name"]])
    if interface["type"] == "bond":
        # All members of a bond by 802.3ad carry traffic; where one does at a time it is the first.
        mode = interface.get("mode", "802.3ad")
        tree["bonding/mode"] = f"{mode} {MODES[mode]}"
        tree["bonding/slaves"] = " ".join(interface["members"])
        tree["bonding/active_slave"] = interface["members"][0] if mode == "active-backup" else ""
        tree["bonding/mii_status"] = "up" if interface["up"] else "down"
    return tree
