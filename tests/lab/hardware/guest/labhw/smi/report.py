# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi -q, as text and as XML, both drawn from one table."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field

from .readings import NOT_AVAILABLE, Driver, Process, Readings

TABLE = os.path.join(os.path.dirname(__file__), "report.txt")
JOB_MEMORY = "512 MiB"
READING = re.compile(r"{([^}]+)}")


@dataclass
class Line:
    """A line of the report, with what is nested in it."""

    depth: int
    tag: str
    label: str
    value: str | None
    below: list[Line] = field(default_factory=list)


def load(branch: int) -> list[Line]:
    """Return the report's lines for a driver branch."""
    top = Line(-1, "", "", None)
    path = [top]
    with open(TABLE) as file:
        rows = file.read().splitlines()
    for row in rows:
        if not row or row.startswith("#"):
            continue
        depth = (len(row) - len(row.lstrip())) // 2
        # One blank stands on each side of a bar; any more belongs to the label.
        cells = [cell.removeprefix(" ").rstrip() for cell in row.strip().split("|")]
        tag, label, value, branches = [*cells, "", ""][:4]
        while path[-1].depth >= depth:
            path.pop()
        line = Line(depth, tag, label, value or None)
        path.append(line)
        if within(branches, branch):
            path[-2].below.append(line)
    return top.below


def within(branches: str, branch: int) -> bool:
    """Tell whether a branch lies in a range such as 535-579; either end may be open."""
    if not branches:
        return True
    first, _, last = branches.partition("-")
    return int(first or 0) <= branch <= int(last or 9999)


def fill(value: str, readings: Readings) -> str:
    """Put readings into a value; what is not available takes the whole value with it."""
    names = READING.findall(value)
    if any(readings[name] == NOT_AVAILABLE for name in names):
        return NOT_AVAILABLE
    return READING.sub(lambda match: readings[match[1]], value)


def header(driver: Driver, count: int) -> list[tuple[str, str, str]]:
    """Return (tag, label, value) of the lines before the first GPU."""
    now = time.strftime("%a %b %e %H:%M:%S %Y")
    return [
        ("timestamp", "Timestamp", now),
        ("driver_version", "Driver Version", driver.version),
        ("cuda_version", "CUDA Version", driver.cuda),
        ("attached_gpus", "Attached GPUs", str(count)),
    ]


def as_text(driver: Driver, gpus: list[Readings], count: int, jobs: list[Process]) -> str:
    """Return the whole report as text."""
    width = 42 if driver.branch < 570 else 55
    lines = ["", "==============NVSMI LOG==============", ""]
    for tag, label, value in header(driver, count):
        lines += [""] if tag == "attached_gpus" else []
        lines.append(f"{label:<{width}}: {value}")

    def write(entries: list[Line], readings: Readings, indent: str) -> None:
        for entry in entries:
            if entry.label == "-":
                continue
            label = indent + entry.label
            lines.append(label if entry.value is None else f"{label:<{width}}: {fill(entry.value, readings)}")
            write(entry.below, readings, indent + "    ")

    report = load(driver.branch)
    for readings in gpus:
        lines.append(f"GPU {readings['pci.bus_id']}")
        write(report, readings, "    ")
        after = next(place for place in range(len(lines) - 1, 0, -1) if lines[place].startswith("    Accounting Mode  "))
        lines[after:after] = [line for device in json.loads(readings["xml_mig"]) for line in _mig_text(device, width)]
        mine = [job for job in jobs if str(job.gpu) == readings["index"]]
        title = "    Processes"
        if not mine:
            lines.append(f"{title:<{width}}: None")
        else:
            lines.append(title)
        for job in mine:
            for label, value in (("GPU instance ID", NOT_AVAILABLE), ("Compute instance ID", NOT_AVAILABLE), ("Process ID", str(job.pid)),
                                 ("    Type", "C"), ("    Name", job.name), ("    Used GPU Memory", JOB_MEMORY)):  # fmt: skip
                lines.append(f"{'        ' + label:<{width}}: {value}")
        if driver.branch >= 570:
            lines += ["    Capabilities", f"{'        EGM':<{width}}: disabled"]
        lines.append("")
    return "\n".join(lines) + "\n"


def as_xml(driver: Driver, gpus: list[Readings], count: int, jobs: list[Process]) -> str:
    """Return the whole report as XML."""
    form = 12 if driver.branch < 580 else 13
    lines = ['<?xml version="1.0" ?>', f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{form}.dtd">', "<nvidia_smi_log>"]
    lines += [f"\t<{tag}>{value}</{tag}>" for tag, _, value in header(driver, count)]

    def write(entries: list[Line], readings: Readings, indent: str) -> None:
        for entry in entries:
            if entry.tag == "-":
                continue
            if entry.tag == "mig_devices":
                found = [line for device in json.loads(readings["xml_mig"]) for line in _mig_xml(device)]
                lines.extend([f"{indent}<mig_devices>", *(f"{indent}\t{line}" for line in found or ["None"]), f"{indent}</mig_devices>"])
            elif entry.value is not None:
                lines.append(f"{indent}<{entry.tag}>{fill(entry.value, readings)}</{entry.tag}>")
            else:
                lines.append(f"{indent}<{entry.tag}>")
                write(entry.below, readings, indent + "\t")
                lines.append(f"{indent}</{entry.tag}>")

    report = load(driver.branch)
    for readings in gpus:
        lines.append(f'\t<gpu id="{readings["pci.bus_id"]}">')
        write(report, readings, "\t\t")
        lines += _clocks(readings)
        lines.append("\t\t<processes>")
        for job in jobs:
            if str(job.gpu) == readings["index"]:
                lines.append("\t\t\t<process_info>")
                for tag, value in (("gpu_instance_id", NOT_AVAILABLE), ("compute_instance_id", NOT_AVAILABLE), ("pid", job.pid), ("type", "C"),
                                   ("process_name", job.name), ("used_memory", JOB_MEMORY)):  # fmt: skip
                    lines.append(f"\t\t\t\t<{tag}>{value}</{tag}>")
                lines.append("\t\t\t</process_info>")
        lines += ["\t\t</processes>", "\t\t<accounted_processes>", "\t\t</accounted_processes>"]
        if driver.branch >= 570:
            lines += ["\t\t<capabilities>", "\t\t\t<egm>disabled</egm>", "\t\t</capabilities>"]
        lines += ["\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"


def _mig_xml(device: dict[str, str]) -> list[str]:
    """Return a MIG device. Neither its profile nor its UUID is part of a report."""
    return [
        "<mig_device>", f"\t<index>{device['index']}</index>", f"\t<gpu_instance_id>{device['gpu_instance']}</gpu_instance_id>",
        f"\t<compute_instance_id>{device['compute_instance']}</compute_instance_id>", "\t<device_attributes>", "\t\t<shared>",
        f"\t\t\t<multiprocessor_count>{device['multiprocessors']}</multiprocessor_count>", "\t\t</shared>", "\t</device_attributes>",
        "\t<ecc_error_count>", "\t\t<volatile_count>", "\t\t\t<sram_uncorrectable>0</sram_uncorrectable>", "\t\t</volatile_count>",
        "\t</ecc_error_count>", "\t<fb_memory_usage>", f"\t\t<total>{device['memory']}</total>", "\t\t<reserved>0 MiB</reserved>",
        "\t\t<used>0 MiB</used>", f"\t\t<free>{device['memory']}</free>", "\t</fb_memory_usage>", "</mig_device>",
    ]  # fmt: skip


def _mig_text(device: dict[str, str], width: int) -> list[str]:
    """Return a MIG device of the report as text."""
    rows = (("Index", device["index"]), ("GPU Instance ID", device["gpu_instance"]), ("Compute Instance ID", device["compute_instance"]))
    lines = ["    MIG Device", *(f"{'        ' + label:<{width}}: {value}" for label, value in rows), "        FB Memory Usage"]
    sizes = (("Total", device["memory"]), ("Used", "0 MiB"), ("Free", device["memory"]))
    return lines + [f"{'            ' + label:<{width}}: {value}" for label, value in sizes]


def _clocks(readings: Readings) -> list[str]:
    """Return the section of clocks that may be chosen: one memory clock with its steps of 15 MHz."""
    top = int(readings["clocks.max.graphics"].split()[0])
    lines = ["\t\t<supported_clocks>", "\t\t\t<supported_mem_clock>", f"\t\t\t\t<value>{readings['clocks.max.memory']}</value>"]
    lines += [f"\t\t\t\t<supported_graphics_clock>{clock} MHz</supported_graphics_clock>" for clock in range(top, 344, -15)]
    return [*lines, "\t\t\t</supported_mem_clock>", "\t\t</supported_clocks>"]
