# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nv-fabricmanager: brings the NVSwitches into service, if its version is the driver's."""

from __future__ import annotations

import os
import sys

from . import machine as machines
from .daemon import detach, module_version, open_devices, package_version, wait_for_end
from .faces import show
from .state import changing, find, read

PROGRAM = "/usr/bin/nv-fabricmanager"
PID_FILE = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"


def main(words: list[str]) -> int:
    """Start the daemon."""
    version = package_version(PROGRAM)
    if "-v" in words or "--version" in words:
        print(f"Fabric Manager version is : {version}")
        return 0
    driver = module_version()
    machine = machines.load()
    if driver is None or not (machine.nvswitches or machine.switch_managers):
        reason = "WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
        print(f"request to query NVSwitch device information from NVSwitch driver failed with error:{reason}", file=sys.stderr)
        return 1
    if version != driver:
        print(
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver version {driver}. "
            "Please update with matching NVIDIA driver package.",
            file=sys.stderr,
        )
        return 1
    if machine.switch_managers and not find(read(), "ib_umad"):
        # The subnet manager of such switches speaks to them through the adapters that manage them.
        print("failed to find a management port of the NVLink switches. Please check if ib_umad is loaded.", file=sys.stderr)
        return 1
    open_devices("/dev/nvidiactl", "/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch[0-9]*", "/dev/nvidia[0-9]*")
    with changing() as state:
        state["fabric"] = True
    show(machine, read())
    detach(PID_FILE)
    try:
        wait_for_end()
    finally:
        os.unlink(PID_FILE)
    return 0
