# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the figures that the design promises: build/bench/bench.json, a list of {name, value, unit, target, ok}."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import fleet, network, noop
from bench.measure import Figure, ansible_playbook, demand
from lab.client import HostSpec, Lab
from lab.paths import LabError
from own_lab import own_lab

from tools.common import BUILD, Clock, say

HOSTS = [HostSpec("n1", image="debian12", profile="h100-sxm8"), HostSpec("n2", image="debian12", profile="h100-sxm8")]


def measure(lab: Lab, scratch: Path) -> list[Figure]:
    """Run every measurement; one that cannot be made is a figure that misses, with the reason shown."""
    steps: list[tuple[str, Callable[[], list[Figure]]]] = [
        ("decision", lambda: fleet.decision(lab, scratch)),
        ("no-op run", lambda: noop.no_op(lab)),
        ("no-op run against four stat tasks", lambda: noop.against_stats(lab, scratch)),
        ("gpu_facts", lambda: noop.facts_cost(lab, scratch)),
        ("bandwidth on shaped links", lambda: network.busbw(lab, scratch)),
        ("a thousand hosts", lambda: fleet.fleet(lab, scratch)),
    ]
    figures = []
    for name, step in steps:
        clock = Clock()
        say(f"{name} ...")
        try:
            got = step()
        except (RuntimeError, LabError, KeyError, OSError, StopIteration, ValueError) as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            got = [Figure(name, 0.0, "not measured", "measured", False)]
        figures += got
        for figure in got:
            print("   " + figure.line(), flush=True)
        say(f"{name} took {clock}")
    return figures


def main() -> int:
    """Measure on a lab of its own and leave the figures."""
    target = BUILD / "bench"
    target.mkdir(parents=True, exist_ok=True)
    say("booting two hosts and converging them, so that there is nothing to do")
    try:
        with own_lab("bench", HOSTS) as lab, tempfile.TemporaryDirectory(prefix="gpu-fleet-bench-") as scratch:
            words = ("site.yml", "-i", "inventories/lab", "-e", f"verification_report_dir={scratch}")
            demand(ansible_playbook(*words, GPU_FLEET_LAB=lab.name), "site.yml on bare hosts")
            figures = measure(lab, Path(scratch))
    except (LabError, RuntimeError) as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 1
    (target / "bench.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    missed = [figure for figure in figures if not figure.ok]
    say(f"{len(figures)} figures in build/bench/bench.json, {len(missed)} miss their target")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
