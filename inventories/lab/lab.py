#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dynamic inventory of the lab that $GPU_FLEET_LAB names (else "default"): its hosts, and how they are reached."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from lab import inventory
from lab.paths import LabError, LabPaths, default_name

if __name__ == "__main__":
    try:
        print(json.dumps(inventory.build(LabPaths(default_name()))))
    except LabError as error:
        sys.exit(str(error))
