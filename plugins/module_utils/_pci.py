# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The PCI devices that matter (GPUs, NVSwitches, other accelerators) and how far apart two of them are.

Everything comes from sysfs and needs no driver. Path types have the meaning NVIDIA gives them in C(topo -m):
PIX at most one switch, PXB several, PHB the host bridge, NODE another host bridge of the same NUMA node, SYS another node.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _numa
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0302", "0x0300")
SWITCH_CLASS = "0x0680"
# Vendors whose accelerators this collection reports but never touches: AMD, Intel, Habana.
OTHER_VENDORS = ("0x1002", "0x8086", "0x1da3")
OTHER_CLASSES = ("0x0302", "0x0380", "0x1200")
GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
# What the width of a link reads as when its device answers nothing but ones.
ALL_ONES = 63
ADDRESS = later(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
NEARNESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


def address_of(text: str) -> str:
    """One spelling for PCI addresses: C(00000000:17:00.0) and C(17:00.0) become C(0000:17:00.0)."""
    parts = text.strip().lower().split(":")
    domain = parts[-3] if len(parts) > 2 else "0"
    try:
        return "%04x:%s" % (int(domain or "0", 16), ":".join(parts[-2:]))
    except ValueError:
        return text.strip().lower()


def link(system: System, folder: str) -> dict[str, int | None]:
    """PCIe generation and width, now and at most. A GPU at rest drops its speed: compare the maxima."""

    def generation(name: str) -> int | None:
        words = (system.read(folder + "/" + name, 64, True) or "").split()
        return GENERATIONS.get(words[0]) if words else None

    def width(name: str) -> int | None:
        lanes = system.number(folder + "/" + name)
        # 0 and 255 mean that the kernel cannot tell.
        return lanes if lanes in WIDTHS else None

    return {
        "generation": generation("current_link_speed"),
        "width": width("current_link_width"),
        "max_generation": generation("max_link_speed"),
        "max_width": width("max_link_width"),
    }


def function(system: System, folder: str) -> dict[str, t.Any]:
    """What interfaces and RDMA devices have in common as PCI functions."""
    physical = system.link(folder + "/physfn")
    return {
        "kernel_driver": system.link(folder + "/driver"),
        "numa_node": numa_node(system, folder),
        "pcie": link(system, folder),
        "physical_function": physical if physical and ADDRESS.match(physical) else None,
        "virtual_functions": system.number(folder + "/sriov_numvfs"),
        "virtual_functions_possible": system.number(folder + "/sriov_totalvfs"),
    }


def numa_node(system: System, folder: str) -> int | None:
    """NUMA node of a device; None when the firmware does not say (-1)."""
    node = system.number(folder + "/numa_node")
    return None if node is None or node < 0 else node


def scan(system: System) -> dict[str, list[dict[str, t.Any]]]:
    """All PCI devices that count: C({gpus, nvswitches, accelerators_other}), each in the order of addresses."""
    gpus: list[dict[str, t.Any]] = []
    switches: list[dict[str, t.Any]] = []
    others: list[dict[str, t.Any]] = []
    for address in system.names(DEVICES):
        folder = "%s/%s" % (DEVICES, address)
        vendor = system.read(folder + "/vendor", 16)
        if vendor != NVIDIA and vendor not in OTHER_VENDORS:
            continue
        kind = (system.read(folder + "/class", 16) or "")[:6]
        device = (system.read(folder + "/device", 16) or "").replace("0x", "") or None
        if vendor != NVIDIA:
            if kind in OTHER_CLASSES:
                others.append({"address": address, "vendor_id": vendor[2:], "device_id": device})
        elif kind in GPU_CLASSES:
            if system.number(folder + "/current_link_width") == ALL_ONES:
                system.problem("%s does not answer on the PCI bus" % address)
            gpus.append({
                "index": len(gpus),
                "address": address,
                "vendor_id": "10de",
                "device_id": device,
                "kernel_driver": system.link(folder + "/driver"),
                "numa_node": numa_node(system, folder),
                "cpus": system.read(folder + "/local_cpulist", 4096, True) or None,
                "pcie": link(system, folder),
            })
        elif kind == SWITCH_CLASS:
            switches.append({"address": address, "device_id": device, "numa_node": numa_node(system, folder)})
    return {"gpus": gpus, "nvswitches": switches, "accelerators_other": others}


def chain(system: System, address: str) -> list[str]:
    """From the host bridge down to the device: C(["pci0000:15", "0000:15:01.0", ..., "0000:18:00.0"])."""
    parts = system.device("%s/%s" % (DEVICES, address)).split("/")
    for position, part in enumerate(parts):
        if part.startswith("pci") and ":" in part:
            return parts[position:]
    return []


def path_type(one: list[str], two: list[str], node_one: int | None, node_two: int | None) -> str | None:
    """How two devices reach each other, from their chains; None when the host does not say."""
    if len(one) < 2 or len(two) < 2:
        return None
    if one[0] == two[0]:
        shared = 0
        for left, right in zip(one[1:], two[1:]):
            if left != right:
                break
            shared += 1
        if shared == 0:
            # Functions of one card that sits on the host bridge itself are closer than two cards there.
            same_slot = len(one) == len(two) == 2 and one[1].rsplit(".", 1)[0] == two[1].rsplit(".", 1)[0]
            return "PIX" if same_slot else "PHB"
        # Between the nearest common bridge and each device there is one port for one switch, more for several.
        between = max(len(one), len(two)) - 2 - shared
        return "PIX" if between <= 1 else "PXB"
    if node_one is None or node_two is None:
        return None
    return "NODE" if node_one == node_two else "SYS"


def topology(
    system: System, gpus: list[dict[str, t.Any]], nics: list[dict[str, t.Any]], nodes: list[dict[str, t.Any]]
) -> dict[str, t.Any]:
    """Paths GPU-GPU and GPU-NIC by PCI address and NIC name, and the NICs nearest to each GPU."""
    only = _numa.only_node(nodes)

    def place(device: dict[str, t.Any]) -> tuple[list[str], int | None]:
        node = device["numa_node"]
        return chain(system, device["address"]), only if node is None else node

    gpu_places = [(gpu["address"], place(gpu)) for gpu in gpus]
    nic_places = [(nic["name"], place(nic)) for nic in nics if nic["address"]]
    unknown = 0
    gpu_gpu: dict[str, dict[str, t.Any]] = {}
    gpu_nic: dict[str, dict[str, t.Any]] = {}
    nearest: dict[str, list[str]] = {}
    for address, (line, node) in gpu_places:
        gpu_gpu[address] = {}
        for other, (other_line, other_node) in gpu_places:
            if other != address:
                path = path_type(line, other_line, node, other_node)
                unknown += path is None
                gpu_gpu[address][other] = {"path": path, "nvlinks": None, "source": "sysfs"}
        gpu_nic[address] = {}
        for name, (nic_line, nic_node) in nic_places:
            path = path_type(line, nic_line, node, nic_node)
            unknown += path is None
            gpu_nic[address][name] = {"path": path, "source": "sysfs"}
        known = [entry["path"] for entry in gpu_nic[address].values() if entry["path"]]
        best = min(known, key=NEARNESS.index) if known else None
        nearest[address] = [name for name, entry in gpu_nic[address].items() if best and entry["path"] == best]
    if unknown:
        system.problem("the host does not say where its PCI devices sit: %d paths are unknown" % unknown)
    return {"gpu_gpu": gpu_gpu, "gpu_nic": gpu_nic, "nearest_nics": nearest, "rails": None}
