# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller is killed at each step that changes something; the same command, given again, finishes the job."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import progress
import pytest
from integration.harness import play
from lab.client import HostSpec, Lab
from own_lab import own_lab

from tools.common import BIN, CHECKOUT, environment

HOSTS = [HostSpec("n1", image="debian12", profile="h100-sxm8"), HostSpec("n2", image="debian12", profile="h100-sxm8")]
# Into the step, so that what it started on the hosts is under way.
DELAY = 0.7


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Give two bare hosts."""
    with own_lab("kills", HOSTS) as running:
        yield running


def bare(lab: Lab) -> None:
    """Replace the hosts by bare ones."""
    lab.down([host.name for host in HOSTS])
    lab.up(HOSTS)


def descendants(pid: int) -> list[int]:
    """Return every process below one; Ansible's workers have sessions of their own, so that a group would not hold them."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            below.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, ahead = [], [pid]
    while ahead:
        children = below.get(ahead.pop(), [])
        found += children
        ahead += children
    return found


def killed_at(lab: Lab, step: str) -> bool:
    """Run site.yml and kill it, with all its processes, once a step has begun; tells whether the step was reached."""
    process = subprocess.Popen(
        [f"{BIN}/ansible-playbook", "site.yml", "-i", "inventories/lab", "-e", "verification_report_dir="],
        cwd=CHECKOUT, env=environment(GPU_FLEET_LAB=lab.name), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    reached = False
    with process:
        for line in process.stdout:
            if line.startswith(("TASK [", "RUNNING HANDLER [")) and f": {step}]" in line:
                reached = True
                time.sleep(DELAY)
                for victim in [process.pid, *descendants(process.pid)]:
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                break
    return reached


def test_the_same_command_finishes_after_a_kill(lab: Lab) -> None:
    """After each kill: the run ends well, nothing is left to do, no job is left on the hosts, and packages are whole."""
    reference = play("site.yml", lab.name)
    assert reference.rc == 0, reference.tail()
    steps = list(dict.fromkeys(re.sub(r"^.* : ", "", line.partition(": ")[2]) for line in reference.changed_tasks()))
    assert len(steps) > 5, steps
    failures = []
    for step in steps:
        bare(lab)
        assert killed_at(lab, step), f"never reached {step}"
        progress.say(f"killed at: {step}")
        again = play("site.yml", lab.name)
        settled = play("site.yml", lab.name) if again.rc == 0 else again
        left = [lab.run(host.name, ["systemctl", "list-units", "--plain", "--no-legend", "gpu-fleet-*"]).stdout.strip() for host in HOSTS]
        audit = [lab.run(host.name, ["dpkg", "--audit"]).stdout.strip() for host in HOSTS]
        if again.rc or settled.rc or settled.changed_tasks() or any(left) or any(audit):
            failures.append(f"{step}: rc {again.rc}, then {settled.rc} {settled.changed_tasks()}, left {left}, dpkg {audit}\n{again.tail(15)}")
            progress.say(f"NOT finished after a kill at: {step}")
    assert not failures, "\n\n".join(failures)
