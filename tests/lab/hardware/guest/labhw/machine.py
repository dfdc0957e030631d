# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware as it is now: the description of the machine with the faults it has."""

from __future__ import annotations

import json
import os
from typing import Any

DESCRIPTION = "/etc/lab/hw.json"
FAULTS = "/var/lib/lab/faults.json"
# What the memory of the boards themselves keeps of their settings, by address.
KEPT = "/var/lib/lab/inforom.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
GENERATIONS = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}

# What the vital product data of a function says that manages NVSwitches.
SWITCH_MANAGEMENT = "SMDL=SW_MNG"

Entry = dict[str, Any]


def expand_cpus(text: str) -> list[int]:
    """Return the numbers of a CPU list such as 0-3,8."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def cpu_list(cpus: set[int]) -> str:
    """Return numbers as the kernel prints a list: ranges as long as can be."""
    starts = [cpu for cpu in sorted(cpus) if cpu - 1 not in cpus]
    stops = [cpu for cpu in sorted(cpus) if cpu + 1 not in cpus]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in zip(starts, stops, strict=True))


def boot_id() -> str:
    """Return the id of this boot."""
    with open(BOOT_ID) as file:
        return file.read().strip()


def load_faults() -> list[Entry]:
    """Return the faults of this host: {kind, target, more, boot}."""
    try:
        with open(FAULTS) as file:
            faults: list[Entry] = json.load(file)
            return faults
    except FileNotFoundError:
        return []


def save_faults(faults: list[Entry]) -> None:
    """Keep the faults over reboots."""
    os.makedirs(os.path.dirname(FAULTS), exist_ok=True)
    with open(FAULTS + ".part", "w") as file:
        json.dump(faults, file)
    os.replace(FAULTS + ".part", FAULTS)


def kept() -> dict[str, Entry]:
    """Return the settings that GPUs keep without power: {address: {mig, ecc}}."""
    try:
        with open(KEPT) as file:
            found: dict[str, Entry] = json.load(file)
            return found
    except FileNotFoundError:
        return {}


def keep(address: str, **values: Any) -> None:
    """Let a GPU keep settings."""
    found = kept()
    found.setdefault(address, {}).update(values)
    os.makedirs(os.path.dirname(KEPT), exist_ok=True)
    with open(KEPT + ".part", "w") as file:
        json.dump(found, file)
    os.replace(KEPT + ".part", KEPT)


class Machine:
    """A described machine with its faults applied. Every face is drawn from one of these."""

    def __init__(self, description: Entry, faults: list[Entry], boot: str) -> None:
        """Apply faults to a description; `boot` is the id of the present boot."""
        self.description = description
        self.faults = faults
        self.boot = boot
        self.system: Entry = description["system"]
        self.numa: list[Entry] = description["numa"]
        # A GPU that fell off the bus is still in the tree, dead; from the next boot on it is not found at all.
        fallen = {fault["target"]: fault["boot"] == boot for fault in faults if fault["kind"] == "gpu-off-bus"}
        self.dead = {address for address, now in fallen.items() if now}
        gone = set(fallen) - self.dead
        self.pci: list[Entry] = [function for function in description["pci"] if function["address"] not in gone]
        self.by_address: dict[str, Entry] = {function["address"]: function for function in self.pci}
        # What hangs directly on the downward port of a bridge. An upstream port's link is the one above it.
        self.below: dict[str, list[str]] = {}
        for function in self.pci:
            if function["parent"] and self.by_address[function["parent"]]["role"] in ("root_port", "downstream"):
                self.below.setdefault(function["parent"], []).append(function["address"])
        self.gpus: list[Entry] = []
        for gpu in description["gpus"]:
            if gpu["address"] not in gone:
                self.gpus.append({**gpu, "index": len(self.gpus), "spec": description["gpu_models"][gpu["model"]]})
        self.nvswitches: list[str] = [address for address in description["nvswitches"] if address in self.by_address]
        # NVSwitches of the fifth generation are no PCI devices: they are managed through functions that look like one more adapter.
        self.switch_managers: list[str] = [
            function["address"] for function in self.pci if any(SWITCH_MANAGEMENT in text for text in (function["vpd"] or {}).values())
        ]
        # Virtual functions of a card, by the address of the function that they are of: one in the same slot.
        cards = {function["address"].rsplit(".", 1)[0]: function["address"] for function in self.pci if function["sriov"] is not None}
        self.physical: dict[str, str] = {
            function["address"]: cards[function["address"].rsplit(".", 1)[0]] for function in self.pci if function["virtual"]
        }
        self.nvlink: Entry | None = description["nvlink"]
        self.rdma: list[Entry] = [self._port(entry) for entry in description["rdma"]]
        self.interfaces: list[Entry] = description["interfaces"]
        self.modules: list[Entry] = description["modules"]

    def has(self, kind: str, target: str | None = None) -> bool:
        """Tell whether a fault is present."""
        return any(fault["kind"] == kind and target in (None, fault["target"]) for fault in self.faults)

    def _port(self, entry: Entry) -> Entry:
        """Add the state of an RDMA device's first port: state, physical state, rate in Gbit/s. Its other ports never change."""
        unused = {"state": "1: DOWN", "physical": "3: Disabled", "gbps": 10}
        others = [{**port, "state": "4: ACTIVE", "physical": "5: LinkUp", **(unused if port.get("down") else {})} for port in entry["more_ports"]]
        entry = {**entry, "more_ports": others}
        down = next((fault for fault in self.faults if fault["kind"] == "ib-down" and fault["target"] == entry["name"]), None)
        half = self.has("nic-half-rate", entry["name"])
        gbps = entry["gbps"] // 2 if half else entry["gbps"]
        if down is None:
            return {**entry, "state": "4: ACTIVE", "physical": "5: LinkUp", "gbps": gbps}
        if down["more"] == "no-subnet-manager":
            return {**entry, "state": "2: INIT", "physical": "5: LinkUp", "gbps": gbps}
        return {**entry, "state": "1: DOWN", "physical": "3: Disabled" if down["more"] == "disabled" else "2: Polling", "gbps": 10}

    def width(self, function: Entry) -> int | None:
        """Return the lanes that a function's link has now; a link has them at both its ends, for each function of a card."""
        full: int | None = function["width"]
        port = function["address"] if function["role"] in ("root_port", "downstream") else function["parent"]
        ends = {port, *self.below[port]} if port in self.below else {function["address"]}
        return min(full, 8) if full and any(self.has("pcie-x8", end) for end in ends) else full

    def generation(self, function: Entry) -> int | None:
        """Return the PCIe generation of a function's link."""
        return GENERATIONS[function["speed"]] if function["speed"] else None

    def ancestors(self, address: str) -> list[str]:
        """Return the bridges above a function, nearest first."""
        found = []
        parent = self.by_address[address]["parent"]
        while parent:
            found.append(parent)
            parent = self.by_address[parent]["parent"]
        return found

    def sysfs_path(self, address: str) -> str:
        """Return where a function lives below /sys/devices."""
        chain = [address, *self.ancestors(address)]
        return "/".join(["pci" + self.by_address[address]["root"], *reversed(chain)])

    def cpus_of(self, node: int) -> str:
        """Return the CPU list of a NUMA node; of all nodes when a device has none."""
        lists = [entry["cpus"] for entry in self.numa if entry["id"] == node or node == -1]
        return cpu_list({cpu for text in lists for cpu in expand_cpus(text)})

    def links(self, address: str) -> list[tuple[str | None, bool]]:
        """Return a GPU's NVLinks: what is at the other end, and whether the link is up. One between two GPUs is down at both."""
        down = {(fault["target"], number) for fault in self.faults if fault["kind"] == "link-down" for number in fault["more"]}
        ends = self._ends(address)
        return [(end, not {(address, number), (end, self.far_number(address, number))} & down) for number, end in enumerate(ends)]

    def _ends(self, address: str) -> list[str | None]:
        return self.nvlink["links"].get(address, []) if self.nvlink else []

    def far_number(self, address: str, number: int) -> int:
        """Return the number that one of a GPU's links has for the GPU at its other end; links of a pair go in the same order."""
        ends = self._ends(address)
        peer = ends[number]
        there = [index for index, end in enumerate(self._ends(peer)) if end == address] if peer else []
        return there[ends[:number].count(peer)] if there else number

    def nvlinks_between(self, one: str, other: str) -> int:
        """Return how many links bind two GPUs: those that lead to each other, or what both have up into the switches, in the machine or not."""
        first, second = self.links(one), self.links(other)
        if any(end is None or end in self.nvswitches for end, _ in first):
            return min(sum(up for _, up in first), sum(up for _, up in second))
        return min(sum(up and end == other for end, up in first), sum(up and end == one for end, up in second))


def load() -> Machine:
    """Return this host's machine."""
    with open(DESCRIPTION) as file:
        return Machine(json.load(file), load_faults(), boot_id())
