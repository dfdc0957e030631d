# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What a drawing of a node's topology shows: its devices by NUMA node and PCIe switch, its NVLinks, and what is wrong with them.

The facts name no PCIe switch; that two devices share one follows from the path between them (PIX one switch, PXB several).
What is null in the facts stays not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Facts: TypeAlias = Mapping[str, Any]

UNKNOWN = "not known"
SWITCHED = ("PIX", "PXB")


@dataclass(frozen=True)
class Line:
    """A line of text about a device, and whether what it says is `good`, `bad` or `unknown`."""

    text: str
    state: str = "good"


@dataclass(frozen=True)
class Device:
    """A GPU or a NIC; `key` is the name that the paths of the facts use for it."""

    kind: str
    key: str
    name: str
    node: int | None
    cpus: str | None
    lines: tuple[Line, ...]
    nvlink: str | None = None

    @property
    def state(self) -> str:
        """The worst of what is said about it."""
        states = {line.state for line in self.lines}
        return next((state for state in ("bad", "unknown") if state in states), "good")


@dataclass(frozen=True)
class Branch:
    """Devices that hang on the same PCIe switch, or one device."""

    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Group:
    """Branches that meet at PCIe switches; `path` is the longest one between its devices, None where they meet at the CPU only."""

    path: str | None
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Node:
    """A NUMA node, or the second part of one (`continued`); `number` is None for devices of which the firmware does not say where they are."""

    number: int | None
    cpus: str | None
    groups: tuple[Group, ...]
    continued: bool = False


@dataclass(frozen=True)
class Bond:
    """GPUs of which each two are joined by `links` NVLinks."""

    members: tuple[str, ...]
    links: int


@dataclass(frozen=True)
class Topology:
    """Everything that is drawn; `switches` is None where no NVSwitch joins the GPUs, empty where it has no PCI address."""

    title: str
    about: str
    nodes: tuple[Node, ...]
    switches: tuple[str, ...] | None
    bonds: tuple[Bond, ...]
    faults: tuple[str, ...]
    unknown: tuple[str, ...]


def _pcie(link: Facts | None) -> Line:
    """Lanes now; the generation is what the device can do, because a link at rest slows down."""
    link = link or {}
    width, most, generation = link.get("width"), link.get("max_width"), link.get("max_generation")
    if width is None:
        return Line(f"PCIe {UNKNOWN}", "unknown")
    narrow = most is not None and width < most
    lanes = f"x{width} of x{most}" if narrow else f"x{width}"
    return Line(f"PCIe {lanes}" + (f" · Gen{generation}" if generation is not None and not narrow else ""), "bad" if narrow else "good")


def _active(gpu: Facts) -> int:
    return sum(bool(link.get("active")) for link in gpu.get("nvlinks") or [])


def _nvlink(gpu: Facts, expected: bool) -> Line:
    """Links that are not active are a fault where links are in use: behind NVSwitches, or when another GPU has active ones."""
    links = gpu.get("nvlinks")
    if links is None:
        return Line(f"NVLink {UNKNOWN}", "unknown")
    fabric = gpu.get("fabric") or {}
    for told, wanted in ((fabric.get("state"), "Completed"), (fabric.get("status"), "Success")):
        if expected and told not in (None, wanted):
            return Line(f"fabric: {told}", "bad")
    if not links:
        return Line("no active NVLink", "bad" if expected else "good")
    return Line(f"NVLink {_active(gpu)} of {len(links)} up", "bad" if expected and _active(gpu) < len(links) else "good")


def _gpu(gpu: Facts, expected: bool) -> Device:
    model = gpu.get("model")
    nvlink = _nvlink(gpu, expected)
    lines = (
        Line(str(model).removeprefix("NVIDIA ").removeprefix("Tesla ")) if model else Line(f"model {UNKNOWN}", "unknown"),
        Line(str(gpu.get("address"))),
        _pcie(gpu.get("pcie")),
        nvlink,
    )
    return Device("gpu", str(gpu.get("address")), f"GPU {gpu.get('index')}", gpu.get("numa_node"), gpu.get("cpus"), lines, nvlink.state)


def _port(nic: Facts) -> Line:
    layer, rate, state = nic.get("link_layer"), nic.get("rate_gbps"), nic.get("state")
    if state not in (None, "ACTIVE"):
        physical = nic.get("physical_state")
        return Line(f"{state}, {physical}" if physical else f"port {state}", "bad")
    if state is None:
        return Line(f"port {UNKNOWN}", "unknown")
    name = layer if layer in ("InfiniBand", "Ethernet") else "port up"
    return Line(f"rate {UNKNOWN}", "unknown") if rate is None else Line(f"{name} {rate:g} Gb/s")


def _nic(nic: Facts) -> Device:
    name = str(nic.get("name"))
    lines = [_port(nic)]
    if nic.get("address") is None:
        lines.append(Line("no PCI device"))
    elif nic.get("virtual_function"):
        # The lanes of a virtual function are those of the card, which is asked itself.
        lines += [Line(str(nic["address"])), Line("virtual function")]
    else:
        lines += [Line(str(nic["address"])), _pcie(nic.get("pcie"))]
    return Device("nic", name, name, nic.get("numa_node"), nic.get("cpus"), tuple(lines))


def _paths(facts: Facts) -> dict[frozenset[str], str | None]:
    """The path between each two devices, where the facts have an entry for the two."""
    found: dict[frozenset[str], str | None] = {}
    topology = facts.get("topology") or {}
    for kind in ("gpu_gpu", "gpu_nic"):
        for one, row in (topology.get(kind) or {}).items():
            for two, entry in (row or {}).items():
                found.setdefault(frozenset((one, two)), (entry or {}).get("path"))
    return found


def _joined(devices: list[Device], pairs: Iterable[frozenset[str]]) -> list[list[Device]]:
    """Sets of devices that the pairs join, in the order of the devices."""
    home = {device.key: [device] for device in devices}
    for pair in pairs:
        one, two = (home[key] for key in sorted(pair)) if len(pair) == 2 and pair <= set(home) else (None, None)
        if one is not None and two is not None and one is not two:
            one += two
            home.update({device.key: one for device in two})
    place = {device.key: number for number, device in enumerate(devices)}
    sets = {id(members): sorted(members, key=lambda device: place[device.key]) for members in home.values()}
    return sorted(sets.values(), key=lambda members: place[members[0].key])


def _group(devices: list[Device], paths: Mapping[frozenset[str], str | None]) -> Group:
    if len(devices) == 1:
        return Group(None, (Branch(tuple(devices)),))
    keys = {device.key for device in devices}
    inside = {pair: path for pair, path in paths.items() if pair <= keys}
    branches = _joined(devices, [pair for pair, path in inside.items() if path == "PIX"])
    return Group("PXB" if "PXB" in inside.values() else "PIX", tuple(Branch(tuple(branch)) for branch in branches))


def _nodes(devices: list[Device], paths: Mapping[frozenset[str], str | None]) -> tuple[Node, ...]:
    near = [pair for pair, path in paths.items() if path in SWITCHED]
    groups: dict[int | None, list[list[Device]]] = {}
    for members in _joined(devices, near):
        numbers = sorted({device.node for device in members if device.node is not None})
        if len(numbers) < 2:
            # A switch is where those of its devices are that say so.
            groups.setdefault(numbers[0] if numbers else None, []).append(members)
            continue
        # Where the firmware puts devices of one switch into different nodes, what it says of each is drawn.
        for number in (*numbers, None):
            groups.setdefault(number, []).extend(_joined([device for device in members if device.node == number], near))
    found = []
    for number in sorted((one for one in groups if groups[one]), key=lambda one: (one is None, one or 0)):
        told = {device.cpus for members in groups[number] for device in members if device.node is not None} - {None}
        cpus = told.pop() if len(told) == 1 else None
        found.append(Node(number, cpus, tuple(_group(members, paths) for members in groups[number])))
    return tuple(found)


def _bonds(gpus: list[Device], facts: Facts) -> tuple[Bond, ...]:
    """Pairs with NVLinks between them; GPUs of which all pairs have the same number are one bond."""
    counts: dict[frozenset[str], int] = {}
    for one, row in ((facts.get("topology") or {}).get("gpu_gpu") or {}).items():
        for two, entry in (row or {}).items():
            if (entry or {}).get("nvlinks") and one != two:
                counts.setdefault(frozenset((one, two)), entry["nvlinks"])
    bonds = []
    for members in _joined(gpus, counts):
        keys = [device.key for device in members]
        inside = {pair: links for pair, links in counts.items() if pair <= set(keys)}
        if len(inside) == len(keys) * (len(keys) - 1) // 2 and len(set(inside.values())) == 1:
            bonds.append(Bond(tuple(keys), next(iter(inside.values()))))
        else:
            order = {key: number for number, key in enumerate(keys)}
            pairs = sorted((tuple(sorted(pair, key=order.__getitem__)), links) for pair, links in inside.items())
            bonds += [Bond(pair, links) for pair, links in sorted(pairs, key=lambda entry: [order[key] for key in entry[0]])]
    return tuple(bonds)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 'es' if word.endswith('ch') else 's'}"


def _about(facts: Facts) -> str:
    """One line about the node; what is not known is said further down."""
    gpus, nics, switches = facts.get("gpus"), facts.get("nics"), facts.get("nvswitches") or []
    parts = []
    if gpus is not None:
        models = [str(gpu.get("model")) for gpu in gpus if gpu.get("model")]
        whole = len(models) == len(gpus)
        parts += [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)] if whole and gpus else []
        parts += [] if whole and gpus else [_counted(len(gpus), "GPU") if gpus else "no GPU"]
    parts += [_counted(len(switches), "NVSwitch")] if switches else []
    parts += [] if nics is None else [_counted(len(nics), "NIC") if nics else "no NIC"]
    version = ((facts.get("driver") or {}).get("loaded") or {}).get("version")
    parts += [f"driver {version}"] if version else []
    return " · ".join(parts)


def _unknown(facts: Facts, paths: Mapping[frozenset[str], str | None], switched: bool, bonds: tuple[Bond, ...], active: bool) -> tuple[str, ...]:
    """What the drawing cannot show because nobody knows it."""
    gpus, nics = facts.get("gpus") or [], facts.get("nics") or []
    found = [f"{title} {UNKNOWN}" for name, title in (("gpus", "GPUs"), ("nics", "NICs"), ("nvswitches", "NVSwitches")) if facts.get(name) is None]
    pci = sum(nic.get("address") is not None for nic in nics)
    pairs = len(gpus) * (len(gpus) - 1) // 2 + len(gpus) * pci
    missing = sum(path is None for path in paths.values()) + max(0, pairs - len(paths))
    if pairs and missing >= pairs:
        found.append(f"PCIe paths {UNKNOWN}: devices are shown without the switches between them")
    elif missing:
        found.append(f"{missing} of {pairs} PCIe paths {UNKNOWN}")
    if active and not switched and not bonds:
        found.append(f"which GPUs the NVLinks join is {UNKNOWN}")
    return tuple(found)


def read(facts: Facts) -> Topology:
    """Return what is to be drawn of the facts that C(gpu_facts) returns."""
    gpus, nics = list(facts.get("gpus") or []), list(facts.get("nics") or [])
    active = any(_active(gpu) for gpu in gpus)
    fabric = any((gpu.get("fabric") or {}).get("state") == "Completed" for gpu in gpus)
    switched = bool(gpus) and (bool(facts.get("nvswitches")) or fabric)
    found = [_gpu(gpu, switched or active) for gpu in gpus]
    devices = found + [_nic(nic) for nic in nics]
    paths = _paths(facts)
    switches = tuple(str(switch.get("address")) for switch in facts.get("nvswitches") or [])
    bonds = () if switched else _bonds(found, facts)
    return Topology(
        title=str((facts.get("host") or {}).get("name") or f"host name {UNKNOWN}"),
        about=_about(facts),
        nodes=_nodes(devices, paths),
        switches=switches if switched or switches else None,
        bonds=bonds,
        faults=tuple(f"{device.name}: {line.text}" for device in devices for line in device.lines if line.state == "bad"),
        unknown=_unknown(facts, paths, switched, bonds, active),
    )
