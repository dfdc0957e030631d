# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts out of the XML in which NCCL takes and dumps a topology: its own dumps, files of clouds, and files written by hand."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi
from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import Element, closest, elements, unique
from ansible_collections.gpu.fleet.plugins.module_utils._pci import NVIDIA, address_of

GPU_CLASSES = ("0x0300", "0x0302")
NIC_CLASS = "0x02"
# The longest mask that a kernel of today writes is for 8192 CPUs.
LONGEST_MASK = 4096
# FlagCX calls the GPUs of its dumps apu.
GPU_ELEMENTS = ("gpu", "apu")


class Place(t.NamedTuple):
    """A device, the PCI bridges above it from the top down, and its CPU; all by their place among the elements."""

    name: str
    bridges: t.List[int]
    cpu: t.Optional[int]


def cpulist(mask: str) -> str | None:
    """C("000000ff,ffff0000") is C(16-39): 32 bits a group, the highest first; None for what is no mask."""
    try:
        groups = [int(group or "0", 16) for group in mask.split(",")]
    except ValueError:
        return None
    if not 0 < len(mask) <= LONGEST_MASK or any(not 0 <= group < 1 << 32 for group in groups[1:]):
        return None
    bits = 0
    for group in groups:
        bits = bits << 32 | group
    cpus = [number for number in range(bits.bit_length()) if bits >> number & 1]
    ranges: list[list[int]] = []
    for cpu in cpus:
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else "%d-%d" % (low, high) for low, high in ranges)


def place_of(found: list[Element], at: int, name: str) -> Place:
    """Where an element stands; its own PCI function is no bridge above it."""
    bridges: list[int] = []
    above = found[at].parent
    while above is not None:
        if found[above].name == "pci":
            bridges.append(above)
        elif found[above].name == "cpu":
            return Place(name, bridges[::-1], above)
        above = found[above].parent
    return Place(name, bridges[::-1], None)


def level(one: Place, two: Place) -> str:
    """How a GPU and a NIC reach each other. NCCL draws one bridge a switch and knows no host bridges, hence no NODE."""
    if one.bridges and two.bridges and one.bridges[0] == two.bridges[0]:
        return "PIX" if one.bridges == two.bridges else "PXB"
    return "PHB" if one.cpu is not None and one.cpu == two.cpu else "SYS"


def is_gpu(attributes: dict[str, str], owner: bool) -> bool:
    """A PCI function of a display class, NVIDIA's as far as the file says, or one without a class that has a GPU in it."""
    if "class" not in attributes:
        return owner
    return attributes["class"][:6] in GPU_CLASSES and attributes.get("vendor", NVIDIA).lower() == NVIDIA


def read(text: str) -> dict[str, t.Any]:
    """Read a topology; NICs are its C(net) elements, or where it has none its network functions on PCI."""
    found, damage = elements(text, "system")
    problems = [damage] if damage else []
    owners = {element.parent for element in found if element.name in GPU_ELEMENTS}
    gpu_places: list[Place] = []
    nets: list[tuple[Place, str]] = []
    functions: list[tuple[Place, str]] = []
    links: dict[int, list[int]] = {}
    for at, element in enumerate(found):
        attributes = element.attributes
        if element.name == "pci":
            bus = address_of(attributes.get("busid", ""))
            if is_gpu(attributes, at in owners):
                gpu_places.append(place_of(found, at, bus))
            elif at in owners:
                problems.append("%s has a GPU in it and is of another class" % bus)
            elif attributes.get("class", "").startswith(NIC_CLASS):
                functions.append((place_of(found, at, bus), ""))
        elif element.name == "net":
            place = place_of(found, at, attributes.get("name", ""))
            nets.append((place._replace(bridges=place.bridges[:-1]), attributes.get("speed", "")))
        elif element.name in GPU_ELEMENTS:
            links[at] = []
        elif element.name == "nvlink" and element.parent in links:
            links[element.parent].append(_nvidia_smi.whole(attributes.get("count")) or 0)
    buses = [place.name for place in gpu_places]
    problems += ["%s is there twice" % bus for bus in unique(bus for bus in buses if buses.count(bus) > 1)]
    nics = nets or functions
    near = {gpu.name: closest([(level(gpu, nic), nic.name) for nic, _speed in nics]) for gpu in gpu_places}
    nearest = {bus: best for bus, best in near.items() if best}
    cpus = [element.attributes for element in found if element.name == "cpu"]
    return {
        "gpus": len(gpu_places),
        "gpu_elements": len(links),
        "nets": len(nics),
        "unique_net_names": len({place.name for place, _speed in nets}),
        "cpu_nodes": len(cpus),
        "cpus": [{"numaid": cpu.get("numaid"), "cpulist": cpulist(cpu.get("affinity", ""))} for cpu in cpus],
        "gpu_bus": buses,
        "nvlinks_per_gpu": sorted({sum(counts) for counts in links.values()} or {0}),
        "nvlink_targets": sorted({len(counts) for counts in links.values()} or {0}),
        "net_names": [place.name for place, _speed in nics],
        "speeds": sorted({speed for _place, speed in nics}),
        "nearest": nearest,
        "problems": problems,
    }
