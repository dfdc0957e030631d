#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the collection's artifact into build/dist, from what git knows."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.common import BIN, BUILD, run


def main() -> int:
    """Build."""
    target = BUILD / "dist"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("gpu-fleet-*.tar.gz"):
        old.unlink()
    return run([BIN / "ansible-galaxy", "collection", "build", "--force", "--output-path", target])


if __name__ == "__main__":
    sys.exit(main())
