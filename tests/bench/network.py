# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bandwidth that the verification's job reaches on shaped links, against iperf3 on the same links in the same run."""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path

from bench.measure import Figure, ansible_playbook, at_least, demand
from lab.client import Lab

RATE = "250mbit"
SECONDS = 5


def iperf3(lab: Lab, repeats: int = 3) -> float:
    """Return what iperf3 carries from n1 to n2, in Gbit/s."""
    address = next(host["address"] for host in lab.status()["hosts"] if host["name"] == "n2")
    started = lab.run("n2", ["systemd-run", "--quiet", "--unit=bench-iperf3", "iperf3", "--server"])
    if started.returncode:
        raise RuntimeError(started.stderr)
    try:
        rates: list[float] = []
        for _ in range(repeats):
            time.sleep(0.5)
            done = lab.run("n1", ["iperf3", "--client", address, "--time", str(SECONDS), "--json"])
            report = json.loads(done.stdout)
            rates.append(float(report["end"]["sum_received"]["bits_per_second"]) / 1e9)
        return statistics.median(rates)
    finally:
        lab.run("n2", ["systemctl", "stop", "bench-iperf3"])


def busbw(lab: Lab, scratch: Path) -> list[Figure]:
    """Measure all-reduce at 64 MiB, median of five, and iperf3."""
    for host in ("n1", "n2"):
        lab.fault(host, "shape", RATE)
    try:
        plain = iperf3(lab)
        extra = {"verification_sizes_mib": [64], "verification_iterations": 5, "verification_report_dir": str(scratch)}
        run = ansible_playbook("playbooks/verify.yml", "-i", "inventories/lab", "-e", json.dumps(extra), GPU_FLEET_LAB=lab.name)
        demand(run, "verify.yml")
        rows = json.loads((scratch / "verification.json").read_text())["collective"]["rows"]
    finally:
        for host in ("n1", "n2"):
            lab.fault(host, "unshape")
    carried = next(row["busbw_gbs"] for row in rows if row["size_bytes"] == 64 * 2**20) * 8
    return [
        Figure(f"iperf3, links shaped to {RATE}", round(plain, 4), "Gbit/s", "none", True),
        at_least(f"all-reduce busbw at 64 MiB, links shaped to {RATE}, against iperf3", carried / plain, "times", 0.95),
    ]
