# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts of RDMA devices out of what ibstat, ibstatus, ibv_devinfo, ibv_devices, ibdev2netdev, rdma link and sysfs say of them."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import RDMA_NAME, lines, unique
from ansible_collections.gpu.fleet.plugins.module_utils._rdma import natural

# Each tool begins a device, and a port of it, in its own way; ibstatus and rdma link begin both in one line.
DEVICE = re.compile(
    r"\s*(?:CA '(?P<ibstat>[\w.+-]+)'|hca_id:\s*(?P<devinfo>[\w.+-]+)|Infiniband device '(?P<status>[\w.+-]+)' port (?P<status_port>\d+) status:)",
    re.ASCII,
)
PORT = re.compile(r"\s*port:?\s+(\d+):?\s*$", re.I)
FIELD = re.compile(r"\s*([A-Za-z][\w ]*?)\s*:\s*(.*?)\s*$")
FIELDS = {
    "state": "state",
    "physical state": "phys",
    "phys state": "phys",
    "phys_state": "phys",
    "rate": "rate",
    "link layer": "link_layer",
    "link_layer": "link_layer",
}
NETDEV = re.compile(r"(%s) (?:\([^)]*\) .*?)?port (\d+) (?:\((\w+)\s*\) )?==> (\S+)(?: \((\w+)\s*\))?" % RDMA_NAME)
RDMA_LINK = re.compile(r"\s*(?:\d+/\d+:|link)\s+(%s)/(\d+):?\s+(.*)" % RDMA_NAME)
LISTED = re.compile(r"\s+(%s)(?:\s+[0-9a-fA-F]{16})?\s*$" % RDMA_NAME)
LIST_BEGINS = re.compile(r"\s*(?:\d+ HCAs? found:|device\s+node GUID)")
SYSFS_DEVICE = r"\S*?/infiniband/(?P<name>[\w.+-]+)"
SYSFS_VALUE = r"(?:\t|:|\s+)\s*(?P<value>.*\S)?"
SYSFS_PORT = re.compile(SYSFS_DEVICE + r"/ports/(?P<port>\d+)/(?P<key>state|phys_state|rate|link_layer)" + SYSFS_VALUE, re.A)
SYSFS_TYPE = re.compile(SYSFS_DEVICE + r"/(?P<key>hca_type|board_id|node_guid|fw_ver)" + SYSFS_VALUE, re.A)
PORT_FACTS = ("state", "phys", "rate", "link_layer")


class Devices:
    """Devices as they come up in a text, with the facts of each port."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, t.Any]] = {}

    def device(self, name: str) -> dict[str, t.Any]:
        return self.found.setdefault(name, {"ca_type": None, "netdev": None, "netdev_state": None, "ports": []})

    def port(self, name: str, number: str) -> dict[str, t.Any]:
        ports = self.device(name)["ports"]
        for port in ports:
            if port["port"] == int(number):
                return t.cast("dict[str, t.Any]", port)
        ports.append({"port": int(number), **dict.fromkeys(PORT_FACTS)})
        return t.cast("dict[str, t.Any]", ports[-1])

    def facts(self) -> dict[str, dict[str, t.Any]]:
        """Devices by name in natural order; what the first port says is said of the device."""
        facts = {}
        for name in sorted(self.found, key=natural):
            device = self.found[name]
            first = device["ports"][0] if device["ports"] else {}
            facts[name] = {**{key: first.get(key) for key in PORT_FACTS}, **device}
        return facts


def read(text: str) -> dict[str, t.Any]:
    """Read the output of any of these tools, or of several after one another."""
    devices = Devices()
    problems: list[str] = []
    now: str | None = None
    port: dict[str, t.Any] | None = None
    listing = False
    for line in lines(text):
        begins = DEVICE.match(line)
        if begins:
            now = begins.group("ibstat") or begins.group("devinfo") or begins.group("status")
            devices.device(now)
            port = devices.port(now, begins.group("status_port")) if begins.group("status") else None
            listing = False
        elif LIST_BEGINS.match(line):
            listing, now, port = True, None, None
        elif netdev(line, devices) or rdma_link(line, devices):
            now, port = None, None
        elif listing and LISTED.match(line):
            devices.device(line.split()[0])
        elif now is not None:
            number = PORT.match(line)
            field = FIELD.match(line)
            if number:
                port = devices.port(now, number.group(1))
            elif field:
                note(devices.device(now), port, field.group(1).lower(), field.group(2))
    found = devices.facts()
    for name, device in found.items():
        if not device["ports"] and now is not None:
            problems.append("%s has no port in the text" % name)
        problems += ["port %d of %s ends early" % (item["port"], name) for item in device["ports"] if item["state"] is None]
    if not found:
        problems.append("no RDMA device in the text")
    return {"n": len(found), "devices": found, "problems": problems}


def note(device: dict[str, t.Any], port: dict[str, t.Any] | None, key: str, value: str) -> None:
    """Keep a field of a device or port in the tool's own words."""
    if key in ("ca type", "vendor_part_id") and value:
        device["ca_type"] = value if key == "ca type" else "MT" + value
    if port is not None and key in FIELDS and value and port[FIELDS[key]] is None:
        port[FIELDS[key]] = value


def netdev(line: str, devices: Devices) -> bool:
    """Take a line of ibdev2netdev, of its long form too; its state is that of the network interface, not of the port."""
    found = NETDEV.search(line)
    if not found:
        return False
    name, number, state, interface, up = found.groups()
    device = devices.device(name)
    device.update(netdev=interface, netdev_state=up)
    if state:
        devices.port(name, number)["state"] = state
    return True


def rdma_link(line: str, devices: Devices) -> bool:
    """Take a line of C(rdma link)."""
    found = RDMA_LINK.match(line)
    if not found:
        return False
    name, number, rest = found.groups()
    words = dict(re.findall(r"(state|physical_state|netdev) (\S+)", rest))
    port = devices.port(name, number)
    port.update(state=words.get("state"), phys=words.get("physical_state"))
    devices.device(name)["netdev"] = words.get("netdev")
    return True


def read_sysfs(text: str) -> dict[str, t.Any]:
    """Read files of /sys/class/infiniband, one a line with its path before it."""
    devices = Devices()
    for line in lines(text):
        of_port = SYSFS_PORT.match(line.strip())
        of_device = SYSFS_TYPE.match(line.strip())
        if of_port and of_port.group("value"):
            key = FIELDS[of_port.group("key")]
            devices.port(of_port.group("name"), of_port.group("port"))[key] = of_port.group("value")
        elif of_device:
            device = devices.device(of_device.group("name"))
            if of_device.group("key") == "hca_type":
                device["ca_type"] = of_device.group("value")
    found = devices.facts()
    problems = ["%s has no port in the text" % name for name, device in found.items() if not device["ports"]]
    return {
        "devices": len(found),
        "ib": [name for name, device in found.items() if device["link_layer"] == "InfiniBand"],
        "eth": [name for name, device in found.items() if device["link_layer"] == "Ethernet"],
        "rates": sorted(unique(port["rate"] for device in found.values() for port in device["ports"] if port["rate"])),
        "ports": found,
        "problems": problems or ([] if found else ["no RDMA device in the text"]),
    }
