# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What NVML says and nvidia-smi does not, where the module's Python happens to have C(pynvml).

NVML can hang in the driver for good, so that it runs in a program of its own and never here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of

# NVML's numbers for how near two GPUs are, and for what is at the other end of an NVLink.
LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
REMOTES = {0: "gpu", 1: "npu", 2: "switch"}
# Takes the folder of pynvml, prints one line of JSON. What a driver or a pynvml is too old for is null.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
try:
    import pynvml as nvml
    def ask(name, *words):
        try:
            return getattr(nvml, name)(*words)
        except (AttributeError, nvml.NVMLError):
            return None
    def address(info):
        text = getattr(info, "busId", None)
        return text.decode() if isinstance(text, bytes) else text
    nvml.nvmlInit()
    handles = [ask("nvmlDeviceGetHandleByIndex", number) for number in range(nvml.nvmlDeviceGetCount())]
    handles = [handle for handle in handles if handle is not None]
    gpus = []
    for handle in handles:
        links = []
        for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
            if ask("nvmlDeviceGetNvLinkState", handle, link):
                remote = ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
                links.append([link, ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link), address(remote)])
        words = ask("nvmlDeviceGetMemoryAffinity", handle, 16, getattr(nvml, "NVML_AFFINITY_SCOPE_NODE", 0)) or []
        nodes = [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]
        gpus.append([address(ask("nvmlDeviceGetPciInfo", handle)), ask("nvmlDeviceGetNumaNodeId", handle), nodes, links])
    levels = [[one, two, ask("nvmlDeviceGetTopologyCommonAncestor", handles[one], handles[two])]
              for two in range(len(handles)) for one in range(two)]
    print(json.dumps([gpus, levels]))
except Exception as error:
    sys.exit("%s: %s" % (type(error).__name__, error))
"""


class Gpu(t.NamedTuple):
    """C(links) has C({link: (type, address)}) of active links, C(paths) C({address: path}); what is not known is None or not there."""

    memory_numa_node: t.Optional[int]
    nodes: t.List[int]
    links: t.Dict[int, t.Tuple[t.Optional[str], t.Optional[str]]]
    paths: t.Dict[str, str]


def command() -> list[str] | None:
    """How to ask NVML, or None where this Python has no C(pynvml). Nothing of it is imported here."""
    try:
        spec = importlib.util.find_spec("pynvml")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or not sys.executable:
        return None
    folder = os.path.dirname(spec.origin)
    if spec.submodule_search_locations:
        folder = os.path.dirname(folder)
    return [sys.executable, "-I", "-c", PROGRAM, folder]


def read(text: str) -> dict[str, Gpu]:
    """Read the program's answer, C({address: Gpu}); anything else than its one line is a ValueError."""
    try:
        gpus, levels = json.loads(text)
        names = [address_of(address) if address else None for address, _numa, _nodes, _links in gpus]
        found = {
            name: Gpu(
                None if numa is None or not 0 <= numa < 1 << 16 else int(numa),
                [int(node) for node in nodes],
                {int(link): (REMOTES.get(kind), address_of(far) if far else None) for link, kind, far in links},
                {},
            )
            for name, (_address, numa, nodes, links) in zip(names, gpus) if name
        }
        for one, two, level in levels:
            for here, there in ((names[one], names[two]), (names[two], names[one])):
                if here and there and level in LEVELS:
                    found[here].paths[there] = LEVELS[level]
    except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise ValueError("the answer is not what was asked for: %s" % text.strip()[:80]) from error
    return found


def put(clashes: list[str], place: dict[str, t.Any], key: str, value: t.Any, what: str) -> bool:
    """Fill a null; whether it was one. A value that is there and is another is a clash."""
    if value is not None and place[key] is not None and place[key] != value:
        clashes.append("%s is %s for NVML and %s otherwise" % (what, value, place[key]))
    new = place[key] is None and value is not None
    if new:
        place[key] = value
    return new


def merge(gpus: dict[str, dict[str, t.Any]], paths: dict[str, dict[str, dict[str, t.Any]]], told: dict[str, Gpu]) -> list[str]:
    """Put into nulls what NVML knows; returns where it disagrees with what is known, which stays.

    C(gpus) are facts by address, C(paths) is C(topology.gpu_gpu). SYS is also what NVML says of GPUs whose place it does not know.
    """
    clashes: list[str] = []
    other_paths: list[str] = []

    for address, gpu in gpus.items():
        if address not in told:
            continue
        about = told[address]
        put(clashes, gpu, "numa_node", about.nodes[0] if len(about.nodes) == 1 else None, "NUMA node of %s" % address)
        put(clashes, gpu, "memory_numa_node", about.memory_numa_node, "NUMA node of the memory of %s" % address)
        for link in gpu["nvlinks"] or []:
            kind, far = about.links.get(link["link"], (None, None)) if link["active"] else (None, None)
            put(clashes, link, "peer_type", kind, "what link %d of %s leads to" % (link["link"], address))
            put(clashes, link, "peer", far, "the end of link %d of %s" % (link["link"], address))
        for other, entry in paths.get(address, {}).items():
            path = about.paths.get(other)
            known = path if entry["path"] is not None or path != "SYS" else None
            if put(other_paths, entry, "path", known, "the path from %s to %s" % (address, other)):
                entry["source"] = "sysfs, NVML"
    if other_paths:
        clashes.append(other_paths[0] + (", and %d more" % (len(other_paths) - 1) if other_paths[1:] else ""))
    return clashes
