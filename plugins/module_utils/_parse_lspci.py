# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""GPUs, NVSwitches and network functions out of what lspci prints: its lists (plain, -n, -nn, -v) and its tree (-t)."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import lines

LISTED = re.compile(
    r"\s*(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+"
    r"\"?(?:(?P<number>[0-9a-f]{4})(?=:)|(?P<kind>[A-Z0-9][^:\[\"]*?)(?: \[(?P<code>[0-9a-f]{4})\])?\"?)(?::| \")\s*(?P<what>.*)",
    re.I,
)
# A function in the tree stands behind the last branch of its line.
BRANCH = re.compile(r"^[\s|]*(?:[+\\-]-?.*?)?[-+\\ ](?P<function>[0-9a-f]{2}\.[0-7])  (?P<what>\S.*)$")
NVIDIA = re.compile(r"NVIDIA Corporation|\b10de:", re.I)
GPU_CLASSES = ("0300", "0302")
GPU_KINDS = ("vga compatible controller", "3d controller")
NIC_CLASSES = ("0200", "0207", "0280")
NIC_KINDS = ("ethernet controller", "infiniband controller", "network controller")
SWITCH_CLASS = "0680"
# 1ac0 to 1af1 are the switches of V100 and A100 but for some audio functions among them, 22a3 is that of H100.
SWITCH = re.compile(r"NVSwitch|(?:10de:|Device )(?:1a[cd][0-9a-f]|1ae[0-9a]|1af[01]|22a3)\b", re.I)
# A tree says nothing of classes: chips go by the names of their generations, or where the list of names is older than the chip by the
# numbers that only the display functions of GV100, GA100, GA102, GH100, AD102 and GB100 have.
GPU_CHIP = re.compile(
    r"NVIDIA Corporation (?:(?:G[FKMPVAHB]|TU|AD)\d{2,3}[A-Z0-9]*\b|Device (?:1d[89a-f]|20[89a-f]|2[23][0-7]|26[89a-f]|29[0-7])[0-9a-f]\b)", re.I
)
NOT_A_GPU = re.compile(r"Audio|USB|UCSI|NVSwitch|Bridge|C2C|PCIe Root|Serial", re.I)
NIC_NAME = re.compile(
    r"Ethernet|Infiniband|ConnectX|BlueField.*network|Omni-Path|Elastic (?:Fabric|Network) Adapter"
    r"|Network (?:Connection|Adapter|Controller)|NetXtreme|Virtio (?:1\.0 )?network|vmxnet",
    re.I,
)
NOT_A_NIC = re.compile(r"Management|Crypto|DMA Controller|SoC|PCIe Bridge|Switch", re.I)


def read(text: str) -> dict[str, t.Any]:
    """Read a list or a tree. A device is a GPU only where its class, or in a tree its chip's name, says so."""
    found: dict[str, list[str]] = {"gpu": [], "nvswitch": [], "nic": []}
    problems: list[str] = []
    functions = 0
    for line in lines(text):
        listed = LISTED.match(line)
        branch = None if listed else BRANCH.match(line)
        if listed:
            code = listed.group("number") or listed.group("code") or ""
            kind = of_class(code.lower(), (listed.group("kind") or "").lower(), listed.group("what"))
        elif branch:
            first = branch.group("function").endswith(".0")
            kind = of_name(branch.group("what"), first)
            if kind is None and first and re.match(r"NVIDIA Corporation Device [0-9a-f]{4}", branch.group("what")):
                problems.append("a tree does not say what this is: %s" % branch.group("what").strip())
        else:
            continue
        functions += 1
        if kind:
            found[kind].append(line.strip())
    if not functions:
        problems.append("no PCI function in the text")
    return {
        "gpus": len(found["gpu"]),
        "nvswitch": len(found["nvswitch"]),
        "nic_functions": len(found["nic"]),
        "gpu_lines": found["gpu"],
        "nic_lines": found["nic"],
        "functions": functions,
        "problems": problems,
    }


def of_class(code: str, kind: str, what: str) -> str | None:
    """What a function is by the number or the words of its class."""
    if NVIDIA.search(what):
        if code in GPU_CLASSES or (not code and kind in GPU_KINDS):
            return "gpu"
        if (code == SWITCH_CLASS or (not code and kind == "bridge")) and SWITCH.search(what):
            return "nvswitch"
    return "nic" if code in NIC_CLASSES or (not code and kind in NIC_KINDS) else None


def of_name(what: str, first: bool) -> str | None:
    """What a function is by its name alone; a GPU is the first function of its card, whatever is left of the others' names."""
    if NVIDIA.search(what):
        if SWITCH.search(what):
            return "nvswitch"
        if first and GPU_CHIP.search(what) and not NOT_A_GPU.search(what):
            return "gpu"
    return "nic" if NIC_NAME.search(what) and not NOT_A_NIC.search(what) else None
