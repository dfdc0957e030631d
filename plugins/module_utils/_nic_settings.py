# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Settings in the firmware of NVIDIA's network adapters that wait for a reboot."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._runner import Runner
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# The vendor's tool, and the same from a distribution's archive.
PROGRAMS = ("mlxconfig", "mstconfig")
VENDOR = "0x15b3"
SETTING = later(r"([A-Z][A-Z0-9_]*(?:\[[^\]\s]*\])?)\s+(\S+)\s+(\S+)\s+(\S+)$")


def questions(system: System, runner: Runner) -> dict[str, list[str]]:
    """The question for each adapter by its PCI address; none where the tool is not installed. Ports of one card share its settings."""
    program = next((name for name in PROGRAMS if runner.find(name)), None)
    found = {}
    for name in system.names("/sys/class/infiniband") if program else ():
        device = "/sys/class/infiniband/%s/device" % name
        address = system.device(device).rsplit("/", 1)[-1]
        if address.endswith(".0") and system.read(device + "/vendor", 64, True) == VENDOR and not system.exists(device + "/physfn"):
            found[address] = [str(program), "-d", address, "-e", "q"]
    return found


def parse(text: str) -> list[dict[str, str]]:
    """C([{name, current, next_boot}]) of the settings that differ, from the columns default, current, next boot of C(-e q)."""
    found = []
    columns = False
    for line in text.splitlines():
        if line.strip().startswith("Configurations:"):
            columns = line.split()[1:] == ["Default", "Current", "Next", "Boot"]
        match = SETTING.match(line.lstrip(" *\t").rstrip()) if columns else None
        if match and match.group(3) != match.group(4):
            found.append({"name": match.group(1), "current": match.group(3), "next_boot": match.group(4)})
    return found
