#!/usr/bin/python3 -IS
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every program of the lab's hardware: the name that it is called by says which one."""

import importlib
import os
import signal
import sys

sys.path.insert(0, "/usr/local/lib/lab")
# Program -> module and function.
PROGRAMS = {
    "nvidia-smi": "smi:main",
    "nvidia-persistenced": "persistenced:main",
    "nvidia-modprobe": "modprobe:main",
    "nv-fabricmanager": "fabricmanager:main",
    "nvidia-imex": "services:imex",
    "nvlsm": "services:nvlsm",
    "lab-kernel": "kernel:main",
    "lab-fault": "faults:main",
    "lab-hw": "boot:main",
    "hold-gpu": "hold:main",
    "mokutil": "secureboot:main",
    "mlxconfig": "nicsettings:main",
    "grub-probe": "bootloader:probe",
    "dracut": "el:dracut",
    "grubby": "el:grubby",
}

if __name__ == "__main__":
    # As a compiled program ends when nobody reads on.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    module, function = PROGRAMS[os.path.basename(sys.argv[0])].split(":")
    sys.exit(getattr(importlib.import_module("labhw." + module), function)(sys.argv[1:]))
