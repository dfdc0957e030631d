# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The reader for each kind of recorded output, and one form for all spellings of one value.

The tools say one thing in many words: a port is C(Active), C(4: ACTIVE) or C(PORT_ACTIVE), its rate C(200) or C(200 Gb/sec (4X HDR)).
Whoever compares what two of them say brings both to one form first.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _parse_ib,
    _parse_lspci,
    _parse_lstopo,
    _parse_nccl_log,
    _parse_nccl_xml,
    _parse_smi,
    _parse_topo,
)
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import said
from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of
from ansible_collections.gpu.fleet.plugins.module_utils._ports import rate
from ansible_collections.gpu.fleet.plugins.module_utils._rdma import natural

READERS: dict[str, t.Callable[[str], dict[str, t.Any]]] = {
    "ib": _parse_ib.read,
    "lspci": _parse_lspci.read,
    "lstopo": _parse_lstopo.read,
    "nccl-log": _parse_nccl_log.read,
    "nccl-xml": _parse_nccl_xml.read,
    "nvlink": _parse_smi.read_links,
    "smi-L": _parse_smi.read_list,
    "smi-csv": _parse_smi.read_csv,
    "smi-q": _parse_smi.read_query,
    "smi-xml": _parse_smi.read_xml,
    "sysfs": _parse_ib.read_sysfs,
    "topo-m": _parse_topo.read_matrix,
    "topo-p2p": _parse_topo.read_peers,
}
STATES = {"init": "initializing", "armed": "armed", "nop": "nop"}
SETS = (
    *("names", "clique", "cluster", "addressing", "pcie_gen_max", "ib", "eth", "rates", "speeds"),
    *("nccl", "network", "hcas", "oob", "bootstrap", "env", "warns"),
)
ADDRESSES = ("bus", "gpu_bus", "nvidia_display_pci")
PAIRS = ("pair_links", "nvlink_per_pair")
# Lines quoted from a listing are compared as far as the shorter of two quotations goes.
QUOTED = 70
# Devices of GPUs and the usual names of network devices; disks, DRM nodes and renamed interfaces are not everyone's to list.
OS_DEVICES = re.compile(r"(?:cuda|nvml|opencl|mlx|eth|en|ib)")


def word(text: str) -> str:
    """C("4: ACTIVE"), C("PORT_ACTIVE (4)") and C("Active") are C(active); C("LINK_UP") and C("5: LinkUp") are C(linkup)."""
    bare = re.sub(r"^\d+:\s*|^PORT_|\s*\(\d+\)$", "", text.strip()).lower()
    bare = re.sub(r"[\s_]+", "", bare)
    return STATES.get(bare, bare)


def plain_value(value: t.Any) -> t.Any:
    """A number for the text of a whole number, None for the many ways of saying nothing, all else as it is."""
    if not isinstance(value, str):
        return value
    text = said(value)
    if text is not None and re.match(r"-?\d+\.?$", text):
        return int(text.rstrip("."))
    return text


def one_form(field: str, value: t.Any) -> t.Any:
    """The one form of what a field says; a list and a mapping of devices both become a mapping."""
    if field in ("devices", "links") and isinstance(value, list):
        return {name: {} for name in value}
    if isinstance(value, dict):
        if field in PAIRS:
            return {"-".join(sorted(str(pair).split("-"), key=natural)): one_form("", item) for pair, item in value.items()}
        return {str(key): one_form(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list_form(field, value)
    if isinstance(value, str):
        if field in ("state", "phys", "netdev_state"):
            return word(value) or None
        if field in ("rate", "rates"):
            return rate(value.partition("(")[0].strip())
        if field in ADDRESSES:
            return address_of(value)
        if field == "osdev" and not OS_DEVICES.match(value):
            return None
        if field in ("gpu_lines", "nic_lines"):
            return value.strip()[:QUOTED].rstrip()
    return plain_value(value)


def list_form(field: str, value: t.Sequence[t.Any]) -> list[t.Any]:
    """Lists whose order says nothing become sorted and hold each value once; what says nothing is left out of them."""
    items = [[plain_value(part) for part in item] if isinstance(item, (list, tuple)) else one_form(field, item) for item in value]
    if field in SETS:
        return sorted((item for at, item in enumerate(items) if item is not None and item not in items[:at]), key=str)
    return [item for item in items if item is not None] if field == "osdev" else items


def answered(told: t.Any, asked: t.Any) -> t.Any:
    """The part of what was told that was asked for."""
    if isinstance(told, dict) and isinstance(asked, dict):
        return {key: answered(told.get(key), item) for key, item in asked.items()}
    if isinstance(told, list) and isinstance(asked, list) and len(told) == len(asked):
        return [answered(one, two) for one, two in zip(told, asked)]
    return told


def comparable(field: str, told: t.Any, asked: t.Any) -> tuple[t.Any, t.Any]:
    """Both sides in one form. Of a device, only what the answer speaks of is compared; which devices there are always is."""
    told, asked = one_form(field, told), one_form(field, asked)
    if field in ("devices", "links") and isinstance(told, dict) and isinstance(asked, dict):
        told = {name: answered(device, asked.get(name, {})) for name, device in told.items()}
    return told, asked
