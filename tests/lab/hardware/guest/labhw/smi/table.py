# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi without options: the table for people."""

from __future__ import annotations

import time

from .readings import Driver, Process, Readings

WIDE = 89


def bar(edge: str = "+", fill: str = "-") -> str:
    """Return a line between rows of GPUs."""
    return edge + fill * 41 + "+" + fill * 24 + "+" + fill * 22 + edge


def number(text: str) -> str:
    """Return a reading without its unit and the blank before it, as the table has it."""
    return text.partition(".")[0].partition(" ")[0]


def table(driver: Driver, gpus: list[Readings], jobs: list[Process]) -> str:
    """Return the table."""
    versions = f" NVIDIA-SMI {driver.version:<22} Driver Version: {driver.version:<14} CUDA Version: {driver.cuda:<8} "
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y       "),
        "+" + "-" * WIDE + "+",
        f"|{versions:<{WIDE}}|",
        bar(),
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        bar("|", "="),
    ]
    for gpu in gpus:
        persistence = "On" if gpu["persistence_mode"] == "Enabled" else "Off"
        ecc = gpu["ecc.errors.uncorrected.volatile.total"]
        power = f"{number(gpu['power.draw'])}W / {number(gpu['power.limit']):>4}W"
        memory = f"{number(gpu['memory.used'])}MiB / {number(gpu['memory.total']):>6}MiB"
        lines += [
            f"| {gpu['index']:>3}  {gpu['name']:<25}    {persistence:>5} | {gpu['pci.bus_id']:>18} Off | {ecc:>20} |",
            f"| N/A {gpu['temperature.gpu']:>4}C    {gpu['pstate']:<4}          {power:>15} | {memory:>22} | "
            f"{number(gpu['utilization.gpu']) + '%':>8} {gpu['compute_mode']:>11} |",
            f"|                                         |                        | {gpu['mig.mode.current']:>20} |",
            bar(),
        ]
    lines += [
        "",
        "+" + "-" * WIDE + "+",
        f"|{' Processes:':<{WIDE}}|",
        f"|{'  GPU   GI   CI              PID   Type   Process name                        GPU Memory ':<{WIDE}}|",
        f"|{'        ID   ID                                                               Usage      ':<{WIDE}}|",
        "|" + "=" * WIDE + "|",
    ]
    shown = {gpu["index"] for gpu in gpus}
    rows = [f"|{job.gpu:>5}   N/A  N/A {job.pid:>16}      C   {job.name[-32:]:<32} {'512MiB':>14} " for job in jobs if str(job.gpu) in shown]
    lines += [f"{row:<{WIDE + 1}}|" for row in rows] or [f"|{'  No running processes found':<{WIDE}}|"]
    return "\n".join([*lines, "+" + "-" * WIDE + "+"]) + "\n"
