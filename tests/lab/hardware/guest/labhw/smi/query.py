# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi --query-gpu and --query-compute-apps."""

from __future__ import annotations

from .readings import NOT_AVAILABLE, Process, Readings

# Fields that carry a unit: it stands in the header, and nounits takes it from the values.
UNITS = {
    "MiB": ("memory.total", "memory.reserved", "memory.used", "memory.free", "used_memory", "used_gpu_memory"),
    "W": ("power.draw", "power.draw.average", "power.draw.instant", "power.limit", "enforced.power.limit", "power.default_limit",
          "power.min_limit", "power.max_limit"),
    "MHz": ("clocks.current.graphics", "clocks.current.sm", "clocks.current.memory", "clocks.current.video", "clocks.max.graphics",
            "clocks.max.sm", "clocks.max.memory", "clocks.applications.graphics", "clocks.applications.memory",
            "clocks.default_applications.graphics", "clocks.default_applications.memory"),
    "%": ("utilization.gpu", "utilization.memory", "fan.speed"),
}  # fmt: skip
UNIT_OF = {name: unit for unit, names in UNITS.items() for name in names}
# Other names of the same field: the header always shows the first.
ALIASES = {
    "gpu_name": "name", "gpu_uuid": "uuid", "gpu_serial": "serial", "gpu_bus_id": "pci.bus_id", "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm", "clocks.mem": "clocks.current.memory", "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory", "clocks_throttle_reasons.active": "clocks_event_reasons.active",
    "ecc.errors.uncorrected.volatile.device_memory": "ecc.errors.uncorrected.volatile.dram",
}  # fmt: skip
APP_FIELDS = ("timestamp", "gpu_name", "gpu_bus_id", "gpu_serial", "gpu_uuid", "pid", "process_name", "used_gpu_memory", "used_memory", "name")
PRIVATE = ("xml_", "ecc_")


class UnknownField(Exception):
    """A field that nvidia-smi has no answer to."""


def value(text: str, field: str, units: bool) -> str:
    """Return a reading as a cell."""
    if text == NOT_AVAILABLE:
        return "[N/A]"
    unit = UNIT_OF.get(field)
    return text.removesuffix(" " + unit) if unit and not units else text


def csv(rows: list[Readings], fields: list[str], options: list[str]) -> str:
    """Return rows as nvidia-smi's CSV; options are those of --format."""
    units = "nounits" not in options
    lines = []
    if "noheader" not in options:
        lines.append(", ".join(f"{field} [{UNIT_OF[field]}]" if field in UNIT_OF else field for field in fields))
    lines += [", ".join(value(row[field], field, units) for field in fields) for row in rows]
    return "\n".join(lines) + "\n" if lines else ""


def gpu_csv(gpus: list[Readings], wanted: str, options: list[str]) -> str:
    """Return --query-gpu's answer."""
    fields = [ALIASES.get(field.strip(), field.strip()) for field in wanted.split(",") if field.strip()]
    for field in fields:
        if (gpus and field not in gpus[0]) or field.startswith(PRIVATE):
            raise UnknownField(field)
    return csv(gpus, fields, options)


def app_csv(gpus: list[Readings], jobs: list[Process], wanted: str, options: list[str]) -> str:
    """Return --query-compute-apps' answer."""
    fields = [field.strip() for field in wanted.split(",") if field.strip()]
    rows = []
    for job in jobs:
        gpu = next((gpu for gpu in gpus if gpu["index"] == str(job.gpu)), None)
        if gpu:
            rows.append(
                {
                    "timestamp": gpu["timestamp"], "gpu_name": gpu["name"], "gpu_bus_id": gpu["pci.bus_id"], "gpu_serial": gpu["serial"],
                    "gpu_uuid": gpu["uuid"], "pid": str(job.pid), "process_name": job.name, "name": job.name, "used_gpu_memory": "512 MiB",
                    "used_memory": "512 MiB",
                }
            )  # fmt: skip
    for field in fields:
        if field not in APP_FIELDS:
            raise UnknownField(field)
    return csv(rows, fields, options)
