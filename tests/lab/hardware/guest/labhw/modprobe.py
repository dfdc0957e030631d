# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-modprobe: loads the driver's modules for programs that may not; device files appear by themselves here."""

from __future__ import annotations

import subprocess

MODPROBE = "/sbin/modprobe"
PROGRAM = "/usr/bin/nvidia-modprobe"


def main(words: list[str]) -> int:
    """Load the core module, with -u the one for unified memory, with -m the one for mode setting."""
    names = ["nvidia"]
    names += ["nvidia-uvm"] if {"-u", "--unified-memory"} & set(words) else []
    names += ["nvidia-modeset"] if {"-m", "--modeset"} & set(words) else []
    return subprocess.run([MODPROBE, "--all", "--use-blacklist", *names], check=False).returncode
