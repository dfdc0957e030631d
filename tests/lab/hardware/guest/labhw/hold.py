# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that holds GPUs, as a training job does."""

from __future__ import annotations

import os

from .daemon import notify, open_devices, wait_for_end


def main(words: list[str]) -> int:
    """Open the named device files with those that go with them, and sleep."""
    for path in words:
        os.stat(path)
    open_devices("/dev/nvidiactl", "/dev/nvidia-uvm", *words)
    notify("READY=1")
    wait_for_end()
    return 0
