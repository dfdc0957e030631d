# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi without options: the table for people."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .readings import Driver, Process, Readings


@dataclass(frozen=True)
class Shape:
    """The widths of the table, which grew by two columns."""

    middle: int

    @property
    def whole(self) -> int:
        """Return the width between the outer bars."""
        return 41 + self.middle + 22 + 2

    def bar(self, edge: str = "+", fill: str = "-") -> str:
        """Return a line between rows of GPUs."""
        return edge + fill * 41 + "+" + fill * self.middle + "+" + fill * 22 + edge


def number(text: str) -> str:
    """Return a reading without its unit and the blank before it, as the table has it."""
    return text.partition(".")[0].partition(" ")[0]


def table(driver: Driver, gpus: list[Readings], jobs: list[Process]) -> str:
    """Return the table."""
    shape = Shape(22 if driver.branch < 550 else 24)
    wide, middle = shape.whole, shape.middle
    versions = f" NVIDIA-SMI {driver.version:<22} Driver Version: {driver.version:<{middle - 10}} CUDA Version: {driver.cuda:<8} "
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y       "),
        "+" + "-" * wide + "+",
        f"|{versions:<{wide}}|",
        shape.bar("|" if driver.branch < 550 else "+"),
        f"| GPU  Name                 Persistence-M | {'Bus-Id' + 'Disp.A'.rjust(middle - 8)} | Volatile Uncorr. ECC |",
        f"| Fan  Temp   Perf          Pwr:Usage/Cap | {'Memory-Usage'.rjust(middle - 2)} | GPU-Util  Compute M. |",
        f"|                                         | {' ' * (middle - 2)} |               MIG M. |",
        shape.bar("|", "="),
    ]
    for gpu in gpus:
        persistence = "On" if gpu["persistence_mode"] == "Enabled" else "Off"
        ecc = gpu["ecc.errors.uncorrected.volatile.total"]
        power = f"{number(gpu['power.draw'])}W / {number(gpu['power.limit']):>4}W"
        memory = f"{number(gpu['memory.used'])}MiB / {number(gpu['memory.total']):>6}MiB"
        lines += [
            f"| {gpu['index']:>3}  {gpu['name']:<25}    {persistence:>5} | {gpu['pci.bus_id']:>{middle - 6}} Off | {ecc:>20} |",
            f"| N/A {gpu['temperature.gpu']:>4}C    {gpu['pstate']:<4} {power:>21} | {memory:>{middle - 2}} | "
            f"{number(gpu['utilization.gpu']) + '%':>8} {gpu['compute_mode']:>11} |",
            f"|                                         | {' ' * (middle - 2)} | {gpu['mig.mode.current']:>20} |",
            shape.bar(),
        ]
    lines += [
        "",
        "+" + "-" * wide + "+",
        f"|{' Processes:':<{wide}}|",
        "|  GPU   GI   CI              PID   Type   Process name" + "GPU Memory ".rjust(wide - 54) + "|",
        "|        ID   ID" + "Usage      ".rjust(wide - 15) + "|",
        "|" + "=" * wide + "|",
    ]
    shown = {gpu["index"] for gpu in gpus}
    rows = []
    for job in jobs:
        if str(job.gpu) in shown:
            row = f"{job.gpu:>5}   N/A  N/A {job.pid:>16}      C   "
            room = wide - len(row) - 11
            rows.append(f"|{row}{job.name[-room + 1 :]:<{room}}{'512MiB':>10} |")
    lines += rows or [f"|{'  No running processes found':<{wide}}|"]
    return "\n".join([*lines, "+" + "-" * wide + "+"]) + "\n"
