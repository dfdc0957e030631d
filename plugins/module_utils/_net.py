# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Network interfaces and their IPv4 addresses, from sysfs and one question to the kernel (no program is run)."""

from __future__ import annotations

import re
import socket
import struct
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

FOLDER = "/sys/class/net"
RTM_NEWADDR, RTM_GETADDR = 20, 22
NLM_REQUEST_DUMP = 0x301
IFA_ADDRESS, IFA_LOCAL = 1, 2
NLMSG_ERROR, NLMSG_DONE = 2, 3


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


def scan(system: System, addresses: dict[int, list[str]]) -> list[dict[str, t.Any]]:
    """All interfaces by name."""
    defaults = default_interfaces(system.read("/proc/net/route", quiet=True) or "")
    interfaces = []
    for name in system.names(FOLDER):
        folder = "%s/%s" % (FOLDER, name)
        if not system.exists(folder + "/ifindex"):
            # /sys/class/net also holds plain files such as bonding_masters.
            continue
        device = system.real(folder + "/device").rsplit("/", 1)[-1] if system.exists(folder + "/device") else ""
        if system.number(folder + "/type") == 772:
            kind = "loopback"
        elif system.exists(folder + "/bonding"):
            kind = "bond"
        elif system.exists(folder + "/bridge"):
            kind = "bridge"
        else:
            kind = "physical" if device else "virtual"
        speed = system.number(folder + "/speed")
        index = system.number(folder + "/ifindex")
        interfaces.append({
            "name": name,
            "type": kind,
            "address": device if re.match(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", device) else None,
            "mac": system.read(folder + "/address", 128, True) or None,
            "ipv4": addresses.get(index if index is not None else -1, []),
            "up": bool((system.number(folder + "/flags") or 0) & 1),
            "default_route": name in defaults,
            # -1 and 4294967295 mean unknown.
            "speed_mbps": speed if speed and 0 < speed < 0xFFFFFFFF else None,
        })
    return interfaces
