# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi topo and nvidia-smi nvlink."""

from __future__ import annotations

from collections.abc import Container

from ..machine import Machine
from ..paths import between
from .readings import Driver, smi_address

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
"""
NVLINK_LEGEND = "  NV#  = Connection traversing a bonded set of # NVLinks\n"
UNDERLINE, PLAIN = "\x1b[4m", "\x1b[0m"
UNDERLINED_SINCE = 560
# nvidia-smi shows no more network adapters than these.
MOST_ADAPTERS = 56


def cell(machine: Machine, one: str, other: str, nvlink: bool) -> str:
    """Return a cell of the matrix for two functions."""
    path = between(machine, one, other)
    gpus = {gpu["address"] for gpu in machine.gpus}
    if nvlink and path != "X" and one in gpus and other in gpus:
        links = machine.nvlinks_between(one, other)
        if links:
            return f"NV{links}"
    return " X " if path == "X" else path


def matrix(machine: Machine, driver: Driver, nvlink: bool = True) -> str:
    """Return topo -m (with NVLinks) or topo -mp (without)."""
    adapters = machine.rdma[:MOST_ADAPTERS]
    rows = [(f"GPU{gpu['index']}", gpu["address"]) for gpu in machine.gpus]
    rows += [(f"NIC{number}", device["at"]) for number, device in enumerate(adapters)]
    titles = [label for label, _ in rows] + ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    underlined = driver.branch >= UNDERLINED_SINCE
    text = ""
    if len(machine.rdma) > MOST_ADAPTERS:
        text += f"{len(machine.rdma)} NICs found in the topology, only displaying {MOST_ADAPTERS} in the matrix.\n"
    joined = "\t".join(titles)
    text += f"\t{UNDERLINE}{joined}{PLAIN}\n" if underlined else f"\t{joined}\n"
    for label, address in rows:
        cells = [cell(machine, address, other, nvlink) for _, other in rows]
        text += "\t".join([label, *cells])
        if label.startswith("GPU"):
            node = machine.by_address[address]["numa"]
            gpu = machine.gpus[int(label.removeprefix("GPU"))]
            memory = "N/A" if gpu["memory_numa"] is None else str(gpu["memory_numa"])
            text += f"\t{machine.cpus_of(node)}\t{node if node >= 0 else 'N/A'}\t\t{memory}"
        elif underlined:
            text += "\t\t\t\t"
        text += "\n"
    text += LEGEND + (NVLINK_LEGEND if nvlink else "")
    if adapters:
        text += "\nNIC Legend:\n\n" + "".join(f"  NIC{number}: {device['name']}\n" for number, device in enumerate(adapters))
    return text + "\n"


def nvlink_status(machine: Machine, driver: Driver, chosen: list[int], divided: Container[str] = ()) -> str:
    """Return nvlink -s for GPUs by number; those in MIG mode do not say."""
    text = ""
    for gpu in machine.gpus:
        if gpu["index"] not in chosen:
            continue
        text += f"GPU {gpu['index']}: {gpu['spec']['name']} (UUID: {gpu['uuid']})\n"
        links = machine.links(gpu["address"])
        if gpu["address"] in divided:
            text += "Nvlink queries are not supported for Devices in MIG mode\n"
        elif not links:
            text += "Device does not have or support Nvlink\n" if driver.branch >= 595 else ""
        elif not any(up for _, up in links):
            text += "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        else:
            rate = machine.nvlink["rate"] if machine.nvlink else ""
            text += "".join(f"\t Link {number}: {rate + ' GB/s' if up else '<inactive>'}\n" for number, (_, up) in enumerate(links))
    return text


def nvlink_peers(machine: Machine, chosen: list[int]) -> str:
    """Return nvlink -R: what is at the other end of each link."""
    text = ""
    for gpu in machine.gpus:
        if gpu["index"] in chosen:
            text += f"GPU {gpu['index']}: {gpu['spec']['name']} (UUID: {gpu['uuid']})\n"
            for number, (end, up) in enumerate(machine.links(gpu["address"])):
                if up and end:
                    far = machine.far_number(gpu["address"], number)
                    text += f"\t Link {number}: Remote Device {smi_address(end)}: Link {far}\n"
    return text
