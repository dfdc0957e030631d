# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the measurements share."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.common import BIN, CHECKOUT, environment


@dataclass(frozen=True)
class Figure:
    """One measured figure and the bar that the design sets for it."""

    name: str
    value: float
    unit: str
    target: str
    ok: bool

    def line(self) -> str:
        """Return the figure as a line of the table."""
        return f"{'ok  ' if self.ok else 'MISS'} {self.name:58} {self.value:10.3f} {self.unit:16} target {self.target}"


def at_most(name: str, value: float, unit: str, limit: float) -> Figure:
    """Return a figure that should not exceed a limit."""
    return Figure(name, round(value, 4), unit, f"<= {limit:g}", value <= limit)


def at_least(name: str, value: float, unit: str, limit: float) -> Figure:
    """Return a figure that should reach a limit."""
    return Figure(name, round(value, 4), unit, f">= {limit:g}", value >= limit)


@dataclass(frozen=True)
class Run:
    """A finished ansible-playbook: wall seconds, CPU seconds of its process tree and of the whole machine, exit code, output."""

    wall: float
    cpu: float
    machine: float
    rc: int
    output: str


def busy_seconds() -> float:
    """Return the seconds that the machine's cores have worked since it started."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def ansible_playbook(*words: str | Path, **extra: str) -> Run:
    """Run ansible-playbook and measure it."""
    before, machine, start = resource.getrusage(resource.RUSAGE_CHILDREN), busy_seconds(), time.monotonic()
    done = subprocess.run(
        [str(word) for word in (BIN / "ansible-playbook", *words)],
        cwd=CHECKOUT, env=environment(**extra), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(time.monotonic() - start, cpu, busy_seconds() - machine, done.returncode, done.stdout)


def demand(run: Run, what: str) -> Run:
    """Return a run that ended well; a measurement of a failed run would be a lie."""
    if run.rc:
        raise RuntimeError(f"{what} ended with {run.rc}:\n" + "\n".join(run.output.splitlines()[-30:]))
    return run


def found(run: Run, host: str) -> dict[str, Any]:
    """Return the recap of a host as numbers: ok, changed, unreachable, failed, skipped."""
    line = next(line for line in run.output.splitlines() if line.startswith(f"{host} ") and "unreachable=" in line)
    return {key: int(value) for key, value in (word.split("=") for word in line.split(":", 1)[1].split())}
