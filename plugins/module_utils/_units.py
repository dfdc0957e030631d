# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Starting units of systemd while a boot holds others back for the sake of who starts them."""

from __future__ import annotations

import subprocess

from ansible_collections.gpu.fleet.plugins.module_utils import _kernel_driver

# What a boot starts jobs and containers after.
GATE = "gpu-fleet-driver-gate.service"
PATIENCE_SECONDS = 10


def held_back(unit: str) -> bool:
    """Whether systemd is to start a unit once the gate has opened."""
    gate = _kernel_driver.call("systemctl", "show", "--property=ActiveState", "--", GATE)
    jobs = _kernel_driver.call("systemctl", "list-jobs", "--no-legend", "--no-pager", "--full")
    return gate == "ActiveState=activating" and any(line.split()[1:] == [unit, "start", "waiting"] for line in jobs.splitlines())


def start(unit: str) -> None:
    """Start a unit and wait for that, but not for one that itself waits for us, as an exporter in a container does; raises Refused."""
    try:
        _kernel_driver.call("systemctl", "start", unit, seconds=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        # What was asked for goes on although nobody waits for it, and to ask again is to wait for it.
        if not held_back(unit):
            _kernel_driver.call("systemctl", "start", unit)
