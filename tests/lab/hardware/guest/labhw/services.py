# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's other services, as far as a process that runs and holds its devices."""

from __future__ import annotations

import os
import sys

from . import machine as machines
from .daemon import detach, library_version, module_version, open_devices, wait_for_end
from .state import find, read

IMEX_PID_FILE = "/run/nvidia-imex/nvidia-imex.pid"
NVLSM_PID_FILE = "/run/nvidia-fabricmanager/nvlsm.pid"


def imex(words: list[str]) -> int:
    """nvidia-imex: needs a driver of its own version."""
    if "-v" in words or "--version" in words:
        print(f"IMEX version is: {library_version()}")
        return 0
    if module_version() is None or module_version() != library_version():
        print("nvidia-imex: the driver cannot be spoken to", file=sys.stderr)
        return 1
    open_devices("/dev/nvidiactl")
    detach(IMEX_PID_FILE)
    try:
        wait_for_end()
    finally:
        os.unlink(IMEX_PID_FILE)
    return 0


def nvlsm(words: list[str]) -> int:
    """nvlsm: reaches the NVLink switches of the fifth generation through the adapters that lead them."""
    if not machines.load().switch_managers or not find(read(), "ib_umad"):
        print("nvlsm: no port of an NVLink switch was found. Is ib_umad loaded?", file=sys.stderr)
        return 1
    detach(NVLSM_PID_FILE)
    try:
        wait_for_end()
    finally:
        os.unlink(NVLSM_PID_FILE)
    return 0
