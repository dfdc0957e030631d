# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""NUMA nodes. One without CPUs is memory alone, such as that of a GPU in a coherent system, and no place for a process."""

from __future__ import annotations

import re
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

FOLDER = "/sys/devices/system/node"
# Written by NVIDIA's driver where a GPU's memory is a node.
STATUS = "/proc/driver/nvidia/gpus/%s/numa_status"


def memory_mib(text: str | None) -> int | None:
    """C(MemTotal) of a node's meminfo."""
    found = re.search(r"\bMemTotal:\s*(\d{1,15}) kB", text or "")
    return int(found.group(1)) >> 10 if found else None


def distances(text: str | None) -> list[int] | None:
    """The row of a node, in the order of the nodes; None when it is damaged."""
    words = (text or "").split()
    return [int(word) for word in words] if words and all(word.isdecimal() and len(word) < 6 for word in words) else None


def scan(system: System) -> list[dict[str, t.Any]]:
    """All nodes by number: C({id, cpus, memory_mib, distances}); C(cpus) is empty for a node without any."""
    numbers = sorted(int(name[4:]) for name in system.names(FOLDER) if re.match(r"node\d+$", name))
    nodes = []
    for number in numbers:
        folder = "%s/node%d" % (FOLDER, number)
        nodes.append({
            "id": number,
            "cpus": system.read(folder + "/cpulist", 4096),
            "memory_mib": memory_mib(system.read(folder + "/meminfo", 1 << 16)),
            "distances": distances(system.read(folder + "/distance", 1 << 14)),
        })
    return nodes


def only_node(nodes: list[dict[str, t.Any]]) -> int | None:
    """The node that every CPU is in; None when there are several."""
    found = [node["id"] for node in nodes if node["cpus"] != ""]
    return found[0] if len(found) == 1 else None


def memory_node(system: System, address: str) -> int | None:
    """The node that a GPU's own memory is; None without a driver, and on GPUs whose memory is none."""
    found = re.match(r"Node:\s*(\d+)$", system.read(STATUS % address, 256, True) or "", re.MULTILINE)
    return int(found.group(1)) if found else None
