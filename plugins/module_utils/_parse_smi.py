# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts out of what nvidia-smi prints for people: C(-L), C(-q), C(--format=csv), C(nvlink -s), and the XML of C(-q -x)."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi
from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import PROMPT, lines, plain, unique

GPU_QUERIED = re.compile(r"(\s*)GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
QUERY_FIELD = re.compile(r"[a-z][A-Za-z0-9_.]*(?: \[[^\]]+\])?$")


def read_list(text: str) -> dict[str, t.Any]:
    """Read C(nvidia-smi -L); MIG devices are told by their profiles and are no GPUs."""
    gpus, problems = _nvidia_smi.read_list("\n".join(lines(text)))
    return {
        "gpus": len(gpus),
        "names": unique(gpu["name"] for gpu in gpus),
        "mig_profiles": [mig["profile"] for gpu in gpus for mig in gpu["mig"]],
        "devices": gpus,
        "problems": problems,
    }


def read_csv(text: str) -> dict[str, t.Any]:
    """Read C(nvidia-smi --query-... --format=csv) with or without its header; a row of another width is told, not read."""
    table = []
    for line in lines(text):
        if line.strip() and not PROMPT.match(line):
            # nvidia-smi quotes nothing.
            table.append([cell.strip() for cell in line.split(",")])
    widths = [len(row) for row in table]
    width = max(sorted(set(widths)), key=lambda value: (widths.count(value), value), default=0)
    named = (place for place, row in enumerate(table) if len(row) == width and all(QUERY_FIELD.match(cell) for cell in row))
    start = next(named, None)
    header = table[start] if start is not None else None
    if start is not None:
        table = table[start + 1:]
    rows = [row for row in table if len(row) == width]
    if not header and width == 1:
        # One column without a header is told from a message by nothing but its words.
        rows = [row for row in rows if not re.search(r"not a valid field|failed|ERROR|No devices", row[0])]
    problems = ["a row has %d cells for %d columns" % (len(row), width) for row in table if len(row) != width]
    if header and len(set(header)) != len(header):
        problems.append("the header names a column twice")
    return {
        "rows": len(rows),
        "header": header is not None,
        "columns": width if header or rows else 0,
        "table": [dict(zip(header, row)) for row in rows] if header else rows,
        "problems": problems,
    }


def read_query(text: str) -> dict[str, t.Any]:
    """Read C(nvidia-smi -q): the indent says which value belongs to which section of which GPU."""
    top: dict[str, str] = {}
    gpus: list[dict[str, str]] = []
    now = top
    path: list[tuple[int, str]] = []
    for line in lines(text):
        gpu = GPU_QUERIED.match(line)
        if gpu:
            now = {"id": gpu.group(2)}
            gpus.append(now)
            path = [(len(gpu.group(1)), "")]
            continue
        name, colon, value = line.partition(" : ")
        if not line.strip() or PROMPT.match(line):
            continue
        depth = len(line) - len(line.lstrip())
        path = [part for part in path if part[0] < depth] + [(depth, name.strip())]
        if colon:
            now.setdefault("/".join(part[1] for part in path if part[1]), value.strip())
    attached = _nvidia_smi.whole(top.get("Attached GPUs"))
    problems = [] if gpus else ["no GPU in the text"]
    if attached is not None and attached != len(gpus):
        problems.append("%d GPUs announced, %d described" % (attached, len(gpus)))
    return {
        "driver": _nvidia_smi.said(top.get("Driver Version")),
        "cuda": _nvidia_smi.said(top.get("CUDA Version")),
        "attached": attached,
        "gpus": len(gpus),
        "bus": [gpu["id"] for gpu in gpus],
        "names": unique(gpu["Product Name"] for gpu in gpus if "Product Name" in gpu),
        "mig": [gpu.get("MIG Mode/Current") for gpu in gpus],
        "fabric": [gpu.get("Fabric/State") for gpu in gpus],
        "problems": problems,
    }


def read_xml(text: str) -> dict[str, t.Any]:
    """Read C(nvidia-smi -q -x) into the facts that C(-q) gives, and what only a report of this kind says."""
    report = _nvidia_smi.read_xml(plain(text))

    def each(path: str) -> list[str | None]:
        return sorted({gpu.get(path) for gpu in report.gpus}, key=str)

    return {
        "driver": report.driver,
        "cuda": report.cuda,
        "attached": report.attached,
        "gpus": len(report.gpus),
        "bus": [gpu["id"] for gpu in report.gpus],
        "names": unique(gpu["product_name"] for gpu in report.gpus if "product_name" in gpu),
        "mig": [gpu.get("mig_mode/current_mig") for gpu in report.gpus],
        "mig_devices": [len(devices) for devices in report.mig],
        "fabric": each("fabric/state"),
        "clique": each("fabric/cliqueId"),
        "cluster": each("fabric/clusterUuid"),
        "addressing": each("addressing_mode"),
        "pcie_gen_max": each("pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        "problems": [report.damage] if report.damage else [],
    }


def read_links(text: str) -> dict[str, t.Any]:
    """Read C(nvidia-smi nvlink -s): how many links of each GPU are up and what one of them carries."""
    said = _nvidia_smi.read_nvlink("\n".join(line for line in lines(text) if not PROMPT.match(line)))
    links: dict[str, dict[str, t.Any]] = {}
    for index, gpu in said.items():
        rates = [link["rate_gbs"] for link in gpu["links"] if link["active"]]
        links[str(index)] = {
            "name": gpu["name"],
            "active": len(rates),
            "gbps": max(rates, default=None),
            "message": None if gpu["links"] else gpu["message"],
        }
    return {"gpus": len(said), "links": links, "problems": []}
