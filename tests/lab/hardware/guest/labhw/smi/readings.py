# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that nvidia-smi can be asked of a GPU, read off the machine, the loaded driver and the host's processes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass

from ..machine import Entry, Machine
from ..state import State
from . import mig

NOT_AVAILABLE = "N/A"
# Branch -> CUDA version of its user space.
CUDA = {
    535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 595: "13.2",
    610: "13.3", 615: "13.4", 620: "13.5",
}  # fmt: skip
SERVICES = ("nvidia-persistenced", "nv-fabricmanager", "nvidia-smi", "nv-hostengine", "nvidia-imex")
JOB_MEMORY_MIB = 512
# Compute capability of the first GPUs that say how their fabric is.
FIRST_WITH_FABRIC = 9.0

Readings = dict[str, str]


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU."""

    pid: int
    name: str
    gpu: int


@dataclass(frozen=True)
class Driver:
    """The driver as a program sees it."""

    version: str

    @property
    def branch(self) -> int:
        """Return the branch's number."""
        return int(self.version.partition(".")[0])

    @property
    def cuda(self) -> str:
        """Return the CUDA version of the newest branch that is not newer than this driver."""
        return CUDA[max((branch for branch in CUDA if branch <= self.branch), default=min(CUDA))]


def smi_address(address: str) -> str:
    """Return a PCI address as nvidia-smi writes it: eight digits of domain, capitals."""
    return "0000" + address.upper()


def processes(holders: list[tuple[int, str, list[str]]]) -> list[Process]:
    """Return who computes on which GPU; the driver's own services do not."""
    found = []
    for pid, program, files in holders:
        if os.path.basename(program) not in SERVICES:
            numbers = {name.removeprefix("/dev/nvidia") for name in files}
            found += [Process(pid, program, int(number)) for number in sorted(numbers) if number.isdigit()]
    return found


def persistent(holders: list[tuple[int, str, list[str]]]) -> bool:
    """Tell whether the persistence daemon runs."""
    return any(os.path.basename(program) == "nvidia-persistenced" for _, program, _ in holders)


def watts(number: float) -> str:
    """Return a power as nvidia-smi prints it."""
    return f"{number:.2f} W"


def read_gpu(machine: Machine, state: State, driver: Driver, gpu: Entry, jobs: list[Process], daemon: bool) -> Readings:
    """Return the readings of one GPU by the names that --query-gpu knows, and a few more for the report."""
    spec, address = gpu["spec"], gpu["address"]
    settings = state["settings"].get(address, {})
    busy = [job for job in jobs if job.gpu == gpu["index"]]
    used = JOB_MEMORY_MIB * len(busy)
    coherent = gpu["memory_numa"] is not None
    readings = {
        "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        "driver_version": driver.version,
        "count": str(len(machine.gpus)),
        "index": str(gpu["index"]),
        "minor": str(gpu["index"]),
        "name": spec["name"], "brand": spec["brand"], "architecture": spec["architecture"], "compute_cap": spec["compute_capability"],
        # Boards for players and desks have no serial number that the driver would know.
        "serial": NOT_AVAILABLE if spec["brand"] == "GeForce" else gpu["serial"], "uuid": gpu["uuid"], "pdi": gpu["pdi"],
        "platform.module_id": gpu["module_id"],
        "vbios_version": spec["vbios"], "board_part": spec.get("board_part", NOT_AVAILABLE), "gpu_part": spec.get("gpu_part", NOT_AVAILABLE),
        "inforom.img": spec.get("inforom", NOT_AVAILABLE),
        "display_active": "Disabled", "display_mode": "Disabled",
        "addressing_mode": "ATS" if coherent else "None", "c2c.mode": "Enabled" if coherent else "Disabled",
        "virtualization": machine.system["virtualization"] or "None",
        "persistence_mode": "Enabled" if daemon or settings.get("persistence") else "Disabled",
        "compute_mode": settings.get("compute_mode", "Default"),
        "mig.mode.current": settings.get("mig", "Disabled") if spec["mig"] else NOT_AVAILABLE,
        "mig.mode.pending": settings.get("mig", "Disabled") if spec["mig"] else NOT_AVAILABLE,
        "xml_mig": json.dumps(mig.devices(gpu, settings)),
        "accounting.mode": settings.get("accounting", "Disabled"),
        "pstate": "P0", "fan.speed": NOT_AVAILABLE,
        "memory.total": f"{spec['memory_mib']} MiB", "memory.reserved": f"{spec['reserved_mib']} MiB", "memory.used": f"{used} MiB",
        "memory.free": f"{spec['memory_mib'] - spec['reserved_mib'] - used} MiB",
        "bar1.total": f"{spec['bar1_mib']} MiB", "bar1.used": "1 MiB", "bar1.free": f"{spec['bar1_mib'] - 1} MiB",
        "utilization.gpu": "0 %", "utilization.memory": "0 %",
        "temperature.gpu": "33", "temperature.gpu.tlimit": "54", "temperature.memory": "40",
    }  # fmt: skip
    readings.update(_pci(machine, gpu, driver))
    readings.update(_power_and_clocks(spec, settings, bool(busy)))
    readings.update(_memory_health(machine, gpu, settings))
    readings.update(_fabric(machine, state, gpu))
    return readings


def _pci(machine: Machine, gpu: Entry, driver: Driver) -> Readings:
    address = gpu["address"]
    function = machine.by_address[address]
    domain, bus, device = address[:4], address[5:7].upper(), address[8:10].upper()
    ids = f"{function['device']}{function['vendor']}".upper()
    vendor, part = function["subsystem"].upper().split(":")
    generation, width, current = str(machine.generation(function)), str(function["width"]), str(machine.width(function))
    base, sub = str(int(function["class"][:2], 16)), str(int(function["class"][2:4], 16))
    host = generation if driver.branch < 550 else NOT_AVAILABLE
    return {
        "pci.bus_id": smi_address(address), "pci.domain": f"0x{domain}", "pci.bus": f"0x{bus}", "pci.device": f"0x{device}",
        "pci.device_id": f"0x{ids}", "pci.sub_device_id": f"0x{part}{vendor}", "pci.baseClass": f"0x{base}", "pci.subClass": f"0x{sub}",
        "xml_domain": domain, "xml_bus": bus, "xml_device": device, "xml_device_id": ids, "xml_sub_device_id": part + vendor,
        "xml_base_class": base, "xml_sub_class": sub, "board_id": hex(int(bus, 16) << 8 | int(device, 16)),
        "pcie.link.gen.current": generation, "pcie.link.gen.gpucurrent": generation, "pcie.link.gen.max": generation,
        "pcie.link.gen.gpumax": generation, "pcie.link.gen.hostmax": host, "pcie.link.width.current": current, "pcie.link.width.max": width,
    }  # fmt: skip


def _power_and_clocks(spec: Entry, settings: Entry, busy: bool) -> Readings:
    power, clocks = spec["power_w"], spec["clocks_mhz"]
    draw, limit = watts(power["idle"]), watts(settings.get("power_limit", power["default"]))
    application = settings.get("application_clocks", [clocks["memory"], clocks["graphics"]])
    top = min(application[1], settings.get("locked_graphics", [0, clocks["graphics"]])[1])
    now = top if busy else clocks["idle"]
    held = busy and top < clocks["graphics"]
    readings = {
        "power.draw": draw, "power.draw.average": draw, "power.draw.instant": draw, "power.limit": limit, "enforced.power.limit": limit,
        "power.default_limit": watts(power["default"]), "power.min_limit": watts(power["min"]), "power.max_limit": watts(power["max"]),
        "clocks.current.graphics": f"{now} MHz", "clocks.current.sm": f"{now} MHz", "clocks.current.memory": f"{clocks['memory']} MHz",
        "clocks.current.video": f"{clocks['video_idle']} MHz", "clocks.max.graphics": f"{clocks['graphics']} MHz",
        "clocks.max.sm": f"{clocks['graphics']} MHz", "clocks.max.memory": f"{clocks['memory']} MHz", "clocks.max.video": f"{clocks['video']} MHz",
        "clocks.applications.graphics": f"{application[1]} MHz", "clocks.applications.memory": f"{application[0]} MHz",
        "clocks.default_applications.graphics": f"{clocks['graphics']} MHz", "clocks.default_applications.memory": f"{clocks['memory']} MHz",
        "clocks.deferred": f"{settings['deferred_memory']} MHz" if "deferred_memory" in settings else NOT_AVAILABLE,
        "clocks_event_reasons.active": f"0x{2 * held if busy else 1:016x}",
        "clocks_event_reasons.gpu_idle": "Not Active" if busy else "Active",
        "clocks_event_reasons.applications_clocks_setting": "Active" if held else "Not Active",
    }  # fmt: skip
    for reason in ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"):
        readings[f"clocks_event_reasons.{reason}"] = "Not Active"
    return readings


def _memory_health(machine: Machine, gpu: Entry, settings: Entry) -> Readings:
    """A row, or on GPUs without spare rows a page, that waits to be taken out of use; after the next boot it is, and only counted."""
    spec = gpu["spec"]
    fault = next((fault for fault in machine.faults if fault["kind"] == "ecc-pending" and fault["target"] == gpu["address"]), None)
    pending = fault is not None and fault["boot"] == machine.boot
    ecc, banks = spec["ecc"] and settings.get("ecc_on", spec.get("ecc_on", True)), spec.get("remap_banks")
    count, zero = ("1" if fault else "0"), "0"
    mode = {True: "Enabled", False: "Disabled"}
    pages = spec["ecc"] and not banks

    def known(text: str, when: object) -> str:
        return text if when else NOT_AVAILABLE

    return {
        "ecc.mode.current": known(mode[ecc], spec["ecc"]), "ecc.mode.pending": known(mode[settings.get("ecc", ecc)], spec["ecc"]),
        "ecc_zero": known(zero, ecc), "ecc_no": known("No", ecc),
        "ecc.errors.uncorrected.volatile.dram": known("1" if pending else zero, ecc),
        "ecc.errors.uncorrected.volatile.total": known("1" if pending else zero, ecc),
        "ecc.errors.uncorrected.aggregate.dram": known(count, ecc), "ecc.errors.uncorrected.aggregate.total": known(count, ecc),
        "ecc.errors.corrected.volatile.total": known(zero, ecc), "ecc.errors.corrected.aggregate.total": known(zero, ecc),
        "retired_pages.pending": known("Yes" if pending else "No", pages), "retired_pages.double_bit.count": known(count, pages),
        "retired_pages.single_bit_ecc.count": known(zero, pages),
        "remapped_rows.correctable": known(zero, banks), "remapped_rows.uncorrectable": known(count, banks),
        "remapped_rows.pending": known("Yes" if pending else "No", banks), "remapped_rows.failure": known("No", banks),
        "remapped_rows.histogram.max": known(str((banks or 0) - int(count)), banks), "remapped_rows.histogram.high": known(count, banks),
        "gpu_recovery_action": "Reset" if pending else "None", "reset_required": "Yes" if pending else "No",
        "drain_recommended": "Yes" if pending else "No",
    }  # fmt: skip


def _fabric(machine: Machine, state: State, gpu: Entry) -> Readings:
    """The state of the fabric: known since Hopper where NVLinks lead to switches, and complete once a fabric manager has been at work.

    Where the switches are outside of the machine, that manager is outside too and has been at work before the machine started.
    """
    links = machine.links(gpu["address"])
    switched = any(end is None or end in machine.nvswitches for end, _ in links)
    if machine.nvlink is None or not switched or float(gpu["spec"]["compute_capability"]) < FIRST_WITH_FABRIC:
        return {"fabric.state": NOT_AVAILABLE, "fabric.status": NOT_AVAILABLE, "fabric.cliqueId": NOT_AVAILABLE, "fabric.clusterUuid": NOT_AVAILABLE,
                "fabric.health.summary": NOT_AVAILABLE, "fabric.health.bandwidth": NOT_AVAILABLE}  # fmt: skip
    cluster, clique = machine.nvlink["cluster"], machine.nvlink["clique"]
    done = state["fabric"] or cluster is not None
    degraded = any(not up for _, up in links)
    return {
        "fabric.state": "Completed" if done else "In Progress",
        "fabric.status": "Success" if done else NOT_AVAILABLE,
        "fabric.cliqueId": str(clique or 0) if done else NOT_AVAILABLE,
        "fabric.clusterUuid": (cluster or "00000000-0000-0000-0000-000000000000") if done else NOT_AVAILABLE,
        "fabric.health.summary": NOT_AVAILABLE,
        "fabric.health.bandwidth": "Degraded" if done and degraded else ("Full" if cluster else NOT_AVAILABLE),
    }
