# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines for the tests of the simulated hardware: the profiles, and small ones written for one purpose."""

from __future__ import annotations

from typing import Any

from lab.hardware import expand, schema
from lab.hardware.guest.labhw.machine import Machine

BOOT = "boot-1"


def machine(profile: str, *faults: dict[str, Any], identity: str = "n1", boot: str = BOOT) -> Machine:
    """Return a host that wears a profile, with faults."""
    full = [{"target": None, "more": None, "boot": BOOT, **fault} for fault in faults]
    return Machine(expand.describe(schema.load(profile), profile, identity), full, boot)


def small(pci: list[dict[str, Any]], numa: int = 1, **more: Any) -> Machine:
    """Return a machine of a few functions: parts port, up, down and dev (a GPU)."""
    bridge = {"class": "060400", "speed": 16, "width": 16, "ids": "8086:352a"}
    model = {
        "name": "NVIDIA Small", "brand": "NVIDIA", "architecture": "Ampere", "compute_capability": "8.0", "memory_mib": 16384, "reserved_mib": 300,
        "bar1_mib": 256, "ecc": False, "mig": False, "flavours": ["open"], "vbios": "1", "power_w": {"idle": 20, "default": 70, "min": 60, "max": 70},
        "clocks_mhz": {"idle": 300, "graphics": 1590, "memory": 5001, "video_idle": 540, "video": 1470},
    }  # fmt: skip
    profile = {
        "schema": 1,
        "system": {"vendor": "Lab", "product": "Small"},
        "numa": [{"id": node, "cpus": f"{node * 4}-{node * 4 + 3}", "memory_gib": 8, "distance": [10] * numa} for node in range(numa)],
        "parts": {
            "port": {**bridge, "role": "root_port"},
            "up": {**bridge, "role": "upstream"},
            "down": {**bridge, "role": "downstream"},
            "dev": {"ids": "10de:20b0", "class": "030200", "model": "small", "speed": 16, "width": 16},
        },
        "pci": pci,
        "gpu_models": {"small": model},
        **more,
    }
    schema.check(profile)
    return Machine(expand.describe(profile, "small", "n1"), [], BOOT)
