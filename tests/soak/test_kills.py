# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller is killed at each step that changes something; the same command, given again, finishes the job."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import progress
import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import STEPS
from integration.harness import descendants, killed_when, play
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


RECORD = "/var/lib/gpu_fleet/driver/transaction.json"
ENGINE = "gpu-fleet-driver.service"


def record(lab: Lab) -> dict[str, Any]:
    """Return the record of the node's last change of driver; empty before the first one."""
    done = lab.run("n1", ["cat", RECORD])
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def at_step(lab: Lab, step: str, version: str) -> bool:
    """Tell whether the node is at a step on its way to a version, or past it."""
    seen = record(lab)
    if seen.get("status") not in ("running", "done") or seen["wanted"]["version"] != version:
        return False
    return seen["status"] == "done" or STEPS.index(step) <= STEPS.index(seen["step"])


def ended(lab: Lab, seconds: float = 900) -> dict[str, Any]:
    """Wait for the node to end its change without anybody, and return the record.

    A node that died before its engine was installed has changed nothing, and waits for the next run.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen, works = record(lab), lab.run("n1", ["systemctl", "is-active", ENGINE]).stdout.strip() == "active"
        engine = lab.run("n1", ["systemctl", "is-enabled", ENGINE]).stdout.strip() == "enabled"
        if not works and (seen["status"] not in ("running", "waiting_for_reboot") or not engine):
            return seen
        time.sleep(0.3)
    raise AssertionError(f"still under way: {record(lab)}")


def test_controller_and_node_die_at_each_step_of_a_driver_change(lab: Lab) -> None:
    """The node comes up and ends its change by itself, in a state that the record names; the same command finishes and finds nothing left to do."""
    versions = ["580.159.04", "580.178.04"]
    # The part of the main job that is about the driver.
    part = "--limit n1 --tags nvidia_driver"
    alike = {"gpu_stack_disruption": "idle", "gpu_stack_pytorch": ""}
    first = play("site.yml", lab.name, options=part, extra={"gpu_stack_driver": versions[0], **alike})
    assert first.rc == 0, first.tail()
    outcomes, failures = [], []
    for turn, step in enumerate(STEPS, start=1):
        version = versions[turn % 2]
        asked = {"gpu_stack_driver": version, **alike}
        words = [*part.split(), *(word for name, value in asked.items() for word in ("-e", f"{name}={value}"))]
        killed_when(functools.partial(at_step, lab, step, version), "site.yml", lab.name, words, seconds=900)
        lab.fault("n1", "unplug")
        lab.fault("n1", "plug")
        alone = ended(lab)
        loaded = lab.run("n1", ["cat", "/sys/module/nvidia/version"]).stdout.strip()
        resumed = [entry["step"] for entry in alone["history"] if entry["outcome"] == "resumed"]
        again = play("site.yml", lab.name, options=part, extra=asked)
        settled = play("site.yml", lab.name, options=part, extra=asked) if again.rc == 0 else again
        after = lab.run("n1", ["cat", "/sys/module/nvidia/version"]).stdout.strip()
        audit = lab.run("n1", ["dpkg", "--audit"]).stdout.strip()
        outcome = (
            f"killed at {step}: resumed at {', '.join(resumed) or 'nothing'}, alone it ended as {alone['status']} with {loaded or 'no driver'}"
            f" ({alone['reason'] or 'no complaint'}); the next run: rc {again.rc}, {after}"
        )
        progress.say(outcome)
        outcomes.append(outcome)
        # What the record says of the node is so, and a half-made change has a reason for people.
        other = loaded == versions[(turn + 1) % 2]
        untouched = other and not alone["history"]
        ends = {"done": loaded == version, "rolled_back": other, "needs_attention": bool(alone["reason"]), "running": untouched}
        truthful = ends.get(alone["status"], False)
        if not truthful or again.rc or after != version or settled.rc or settled.changed_tasks() or audit:
            failures.append(f"{outcome}, then {settled.rc} {settled.changed_tasks()}, dpkg {audit}\n{again.tail(15)}")
    print("\n".join(outcomes))
    assert not failures, "\n\n".join(failures)
