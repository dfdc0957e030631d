# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Network interfaces and their IPv4 addresses, from sysfs and one question to the kernel (no program is run)."""

from __future__ import annotations

import socket
import struct
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _pci

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

FOLDER = "/sys/class/net"
RTM_NEWADDR, RTM_GETADDR = 20, 22
NLM_REQUEST_DUMP = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2
NLMSG_ERROR, NLMSG_DONE = 2, 3
# What an interface shares with the RDMA device of its PCI function.
FUNCTION = ("kernel_driver", "numa_node", "pcie", "physical_function", "virtual_functions", "virtual_functions_possible")


def parse_addresses(data: bytes) -> tuple[dict[int, list[str]], bool]:
    """Addresses by interface index out of an answer to RTM_GETADDR, and whether the answer is complete."""
    found: dict[int, list[str]] = {}
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        if length < 16 or kind in (NLMSG_DONE, NLMSG_ERROR):
            return found, True
        if kind == RTM_NEWADDR and offset + length <= len(data):
            family, prefix, index = struct.unpack_from("=BB2xI", data, offset + 16)
            values: dict[int, bytes] = {}
            position, end = offset + 24, offset + length
            while position + 4 <= end:
                size, attribute = struct.unpack_from("=HH", data, position)
                if size < 4:
                    break
                values[attribute] = data[position + 4:position + size]
                position += (size + 3) & ~3
            # On a point-to-point link IFA_ADDRESS is the other end.
            raw = values.get(IFA_LOCAL) or values.get(IFA_ADDRESS)
            if family == socket.AF_INET and raw and len(raw) == 4:
                found.setdefault(index, []).append("%s/%d" % (socket.inet_ntoa(raw), prefix))
        offset += (length + 3) & ~3
    return found, False


def ask_addresses() -> dict[int, list[str]]:
    """IPv4 addresses of this host by interface index."""
    found: dict[int, list[str]] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
        channel.settimeout(1.0)
        message = struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)
        channel.send(struct.pack("=IHHII", 16 + len(message), RTM_GETADDR, NLM_REQUEST_DUMP, 1, 0) + message)
        done = False
        while not done:
            part, done = parse_addresses(channel.recv(1 << 16))
            for index, addresses in part.items():
                found.setdefault(index, []).extend(addresses)
    return found


def default_interfaces(table: str) -> set[str]:
    """Interfaces with a default route, from /proc/net/route."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {row[0] for row in rows if len(row) > 7 and row[1] == "00000000" and row[7] == "00000000"}


def bond(system: System, folder: str) -> dict[str, t.Any]:
    """C({mode, members, active}) of a bond, the mode in the kernel's word; C(active) is None where all members carry traffic."""
    words = (system.read(folder + "/bonding/mode", 64) or "").split()
    return {
        "mode": words[0] if words else None,
        "members": (system.read(folder + "/bonding/slaves", 4096) or "").split(),
        "active": system.read(folder + "/bonding/active_slave", 64, True) or None,
    }


def vlan_parent(system: System, folder: str, entries: set[str]) -> str | None:
    """The interface that a VLAN is on; None for what is no VLAN."""
    lower = sorted(name[6:] for name in entries if name.startswith("lower_"))
    if len(lower) != 1 or "bonding" in entries or "bridge" in entries:
        return None
    return lower[0] if "DEVTYPE=vlan" in (system.read(folder + "/uevent", 4096, True) or "").split() else None


def kind_of(system: System, folder: str, entries: set[str]) -> str:
    """What an interface is, by what is in its folder."""
    # ARPHRD_LOOPBACK
    if system.number(folder + "/type") == 772:
        return "loopback"
    return "bond" if "bonding" in entries else "bridge" if "bridge" in entries else "physical" if "device" in entries else "virtual"


def scan(system: System, addresses: dict[int, list[str]], nics: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """All interfaces by name. What is known of a PCI function from its RDMA device is not read again."""
    defaults = default_interfaces(system.read("/proc/net/route", quiet=True) or "")
    known = {nic["address"]: {key: nic[key] for key in FUNCTION} for nic in nics}
    interfaces = []
    for name in system.names(FOLDER):
        folder = "%s/%s" % (FOLDER, name)
        entries = set(system.names(folder))
        if "ifindex" not in entries:
            # /sys/class/net also holds plain files such as bonding_masters.
            continue
        device = system.device(folder + "/device").rsplit("/", 1)[-1] if "device" in entries else ""
        address = device if _pci.ADDRESS.match(device) else None
        function: dict[str, t.Any] = dict.fromkeys(FUNCTION)
        if address:
            function = known.get(address) or _pci.function(system, folder + "/device")
        elif device:
            function["kernel_driver"] = system.link(folder + "/device/driver")
        speed = system.number(folder + "/speed")
        carrier = system.number(folder + "/carrier")
        index = system.number(folder + "/ifindex")
        interfaces.append({
            "name": name,
            "type": kind_of(system, folder, entries),
            "address": address,
            "mac": system.read(folder + "/address", 128, True) or None,
            "ipv4": addresses.get(index if index is not None else -1, []),
            "up": bool((system.number(folder + "/flags") or 0) & 1),
            "default_route": name in defaults,
            # -1 and 4294967295 mean unknown.
            "speed_mbps": speed if speed and 0 < speed < 0xFFFFFFFF else None,
            # The kernel knows no carrier of an interface that is not up.
            "carrier": bool(carrier) if carrier in (0, 1) else None,
            "operstate": system.read(folder + "/operstate", 64, True) or None,
            "mtu": system.number(folder + "/mtu"),
            "master": system.link(folder + "/master") if "master" in entries else None,
            "bond": bond(system, folder) if "bonding" in entries else None,
            "vlan_parent": vlan_parent(system, folder, entries),
            **function,
        })
    return interfaces
