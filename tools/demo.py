#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the main job on this machine: two bare hosts with the hardware of an eight-GPU server become a verified PyTorch fleet."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from lab.client import HostSpec, Lab
from lab.paths import LabError

from tools.common import BIN, BUILD, CHECKOUT, Clock, environment, run, say

REPORTS = BUILD / "demo"
HOSTS = [HostSpec("n1", image="debian12", profile="h100-sxm8"), HostSpec("n2", image="debian12", profile="h100-sxm8")]
STOP = "make demo-down"


def play(playbook: str, lab: Lab) -> int:
    """Run a playbook on the demo's hosts, exactly as an operator would."""
    words = ["ansible-playbook", playbook, "-i", "inventories/lab", "-e", f"verification_report_dir={REPORTS}"]
    say(f"GPU_FLEET_LAB={lab.name} {' '.join(words)}")
    return run([BIN / words[0], *words[1:]], environment(GPU_FLEET_LAB=lab.name))


def table(result: dict[str, Any]) -> Iterator[str]:
    """Return the lines of the verification's table."""
    yield f"{'node':10} {'verdict':8} {'check':34} seen"
    for node in result["nodes"]:
        verdict = node["verdict"]
        yield f"{node['name']:10} {verdict:8} {sum(check['verdict'] == 'pass' for check in node['checks'])} of {len(node['checks'])} checks pass"
        for check in node["checks"]:
            if check["verdict"] != "pass":
                yield f"{'':10} {check['verdict']:8} {check['id']:34} {check['seen']} (wanted {check['wanted']})"
    collective = result.get("collective") or {}
    if collective.get("rows"):
        yield f"all-reduce over {collective['world_size']} hosts, {collective['backend']}, sums {'correct' if collective['correct'] else 'WRONG'}"
        for row in collective["rows"]:
            rates = f"algbw {row['algbw_gbs']:7.3f} GB/s   busbw {row['busbw_gbs']:7.3f} GB/s"
            yield f"{row['size_bytes'] / 2**20:8.0f} MiB   {rates}   {row['time_us']:10.0f} us"


def written_since(start: float) -> bool:
    """Tell whether this run has left a verification."""
    path = REPORTS / "verification.json"
    return path.exists() and path.stat().st_mtime >= start


def demo(lab: Lab) -> int:
    """Boot, run, show."""
    clock, start = Clock(), time.time()
    say("booting two hosts, each with the hardware of an eight-GPU H100 server (simulated) and nothing installed")
    lab.up(HOSTS)
    say(f"hosts are up ({clock})")
    code = play("site.yml", lab)
    if code == 0 and not written_since(start):
        say("the fleet is as it should be since an earlier run; verifying it again")
        code = play("playbooks/verify.yml", lab)
    if not written_since(start):
        say(f"site.yml ended with {code} before anything was verified; run `make demo` again, or start from nothing with `{STOP}` first")
        return code or 1
    result = json.loads((REPORTS / "verification.json").read_text())
    print()
    for line in table(result):
        print("  " + line)
    print()
    say(f"verdict: {result['verdict']} ({clock}); report: {REPORTS.relative_to(CHECKOUT)}/report.html, verification.json")
    say(f"look around: tests/lab/lab ssh --lab {lab.name} n1     stop: {STOP}")
    return 0 if code == 0 and result["verdict"] == "pass" else 1


def main(words: list[str]) -> int:
    """Run the demo, or end its lab."""
    lab = Lab("demo")
    try:
        if words == ["--down"]:
            lab.down()
            return 0
        return demo(lab)
    except LabError as error:
        print(f"make demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted; `make demo` goes on from here, `{STOP}` removes the hosts", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
