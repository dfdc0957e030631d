#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the static checks: all, or those named on the command line; the same list is part of `make test`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.common import BIN, CHECKOUT, Clock, environment, say


@dataclass(frozen=True)
class Check:
    """A static check: a command that exits non-zero when it finds something."""

    name: str
    argv: tuple[str, ...]


CHECKS = (
    Check("ruff", (f"{BIN}/ruff", "check", "--quiet", ".")),
    Check("mypy", (f"{BIN}/mypy", "tools", "tests", "collections/ansible_collections/gpu/fleet/plugins")),
    Check("yamllint", (f"{BIN}/yamllint", "--strict", ".")),
    Check("ansible-lint", (f"{BIN}/ansible-lint", "--nocolor", "-q")),
    Check("docs", (f"{BIN}/antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs", "self", ".")),
    Check("changelog", (f"{BIN}/antsibull-changelog", "lint")),
    Check("sanity", (sys.executable, f"{CHECKOUT}/tools/sanity.py")),
)


def perform(check: Check) -> tuple[int, str]:
    """Run a check and return its exit code and what it printed."""
    done = subprocess.run(check.argv, cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main(names: list[str]) -> int:
    """Run the checks and show what they found."""
    unknown = set(names) - {check.name for check in CHECKS}
    if unknown:
        print(f"no check {', '.join(sorted(unknown))}; there are {', '.join(check.name for check in CHECKS)}", file=sys.stderr)
        return 2
    failed = []
    for check in CHECKS:
        if names and check.name not in names:
            continue
        clock = Clock()
        code, output = perform(check)
        say(f"{check.name}: {'clean' if code == 0 else f'exit {code}'} ({clock})")
        if code:
            failed.append(check.name)
            print(output.rstrip(), flush=True)
    say(f"{len(failed)} of the checks found something: {', '.join(failed)}" if failed else "all clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
