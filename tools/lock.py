#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolves requirements/dev.in anew, once for each kind of controller that is supported."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.common import BIN, CHECKOUT, run, say

# Python -> what its controller is held to.
CONTROLLERS = {"3.11": "ansible-core>=2.19.14,<2.20", "3.12": "ansible-core>=2.21.5,<2.22"}


def main() -> int:
    """Write a lock for each controller."""
    folder = CHECKOUT / "requirements"
    for version, pin in CONTROLLERS.items():
        name = f"py{version.replace('.', '')}.txt"
        constraint = CHECKOUT / ".cache" / f"constraint-{version}.txt"
        constraint.parent.mkdir(exist_ok=True)
        constraint.write_text(pin + "\n")
        say(f"resolving {name}")
        lock = folder / name
        code = run(
            [BIN / "uv", "pip", "compile", "--quiet", "--upgrade", "--no-annotate", "--no-emit-index-url", "--python-version", version,
             "--constraint", constraint, "--custom-compile-command", "make lock", "--no-header", "--output-file", lock, folder / "dev.in"]
        )  # fmt: skip
        if code:
            return code
        lock.write_text("# Locked tools. Made by: make lock\n" + lock.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
