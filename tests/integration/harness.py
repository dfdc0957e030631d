# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs whole playbooks against the hosts of a lab, through ansible-runner, and reads what happened from its events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner
import progress

from tools.common import environment

CHECKOUT = Path(__file__).resolve().parents[2]

Event = dict[str, Any]


@dataclass
class Outcome:
    """What a playbook run did."""

    rc: int
    stats: dict[str, dict[str, int]]
    events: list[Event] = field(repr=False)
    stdout: str = field(repr=False)

    def count(self, what: str, host: str) -> int:
        """Return how many tasks of a host ended as `what`: ok, changed, failures, dark, skipped."""
        return self.stats.get(what, {}).get(host, 0)

    def results(self, action: str) -> list[tuple[str, dict[str, Any]]]:
        """Return (host, result) of every finished task with this action (the module's last name part)."""
        found = []
        for event in self.events:
            data = event.get("event_data", {})
            if event["event"].startswith("runner_on_") and data.get("task_action", "").split(".")[-1] == action and "res" in data:
                found.append((data["host"], data["res"]))
        return found

    def changed_tasks(self) -> list[str]:
        """Return "host: task" for each task that reported a change."""
        return [
            f"{event['event_data']['host']}: {event['event_data']['task']}"
            for event in self.events
            if event["event"] == "runner_on_ok" and event["event_data"].get("res", {}).get("changed")
        ]

    def tail(self, lines: int = 40) -> str:
        """Return the end of the run's output, for an assertion's message."""
        return "\n".join(self.stdout.splitlines()[-lines:])


def play(
    playbook: str,
    lab: str,
    *,
    extra: dict[str, Any] | None = None,
    options: str = "",
    on_event: Callable[[Event], None] | None = None,
    inventory: Path = CHECKOUT / "inventories" / "lab",
    env: dict[str, str] | None = None,
) -> Outcome:
    """Run a playbook of the checkout against the lab's inventory, or another one, as an operator or AWX does."""
    events: list[Event] = []

    def keep(event: Event) -> bool:
        events.append(event)
        if event["event"] == "playbook_on_task_start":
            progress.say(f"{playbook}: {event['event_data']['task']}")
        if on_event:
            on_event(event)
        return True

    with tempfile.TemporaryDirectory(prefix="gpu-fleet-run-") as private:
        run = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(CHECKOUT),
            inventory=str(inventory),
            playbook=playbook,
            extravars={"verification_report_dir": f"{private}/verification"} | (extra or {}),
            cmdline=options or None,
            envvars={
                "GPU_FLEET_LAB": lab,
                "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
                "ANSIBLE_HOME": str(CHECKOUT / ".cache" / "ansible"),
                "ANSIBLE_INJECT_FACT_VARS": "false",
                # The tools beside this interpreter, whether or not their environment is activated.
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            }
            | (env or {}),
            event_handler=keep,
            quiet=True,
        )
        stdout = run.stdout.read()
        return Outcome(rc=int(run.rc), stats=run.stats or {}, events=events, stdout=stdout)


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


def killed_when(ready: Callable[[], bool], playbook: str, lab: str, words: Sequence[str] = (), seconds: float = 180) -> None:
    """Run a playbook and kill it with all its processes as soon as `ready` says so; it must not end before."""
    argv = [f"{Path(sys.executable).parent}/ansible-playbook", playbook, "-i", "inventories/lab", "-e", "verification_report_dir=", *words]
    with subprocess.Popen(
        argv, cwd=CHECKOUT, env=environment(GPU_FLEET_LAB=lab), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:  # fmt: skip
        until = time.monotonic() + seconds
        while not ready():
            assert process.poll() is None and time.monotonic() < until, f"{playbook} ended, or nothing happened"
            time.sleep(0.02)
        for victim in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)


def refused(outcome: Outcome) -> str:
    """Return the one reason why a run changed nothing."""
    assert outcome.rc != 0 and outcome.changed_tasks() == [], outcome.tail()
    failed = [event["event_data"] for event in outcome.events if event["event"] == "runner_on_failed"]
    assert failed, outcome.tail()
    return str(failed[-1]["res"]["msg"])


def observation(outcome: Outcome, host: str) -> dict[str, Any]:
    """Return the last facts that gpu_facts gave for a host in this run."""
    seen = [result["ansible_facts"]["gpu_fleet"] for name, result in outcome.results("gpu_facts") if name == host]
    assert seen, f"gpu_facts did not run on {host}:\n{outcome.tail()}"
    last: dict[str, Any] = seen[-1]
    return last


def plan(outcome: Outcome, host: str) -> dict[str, Any]:
    """Return the last plan that was made for a host in this run."""
    for name, result in reversed(outcome.results("set_fact")):
        facts = result.get("ansible_facts", {})
        if name == host and "__gpu_stack_plan" in facts:
            made: dict[str, Any] = facts["__gpu_stack_plan"]
            return made
    raise AssertionError(f"no plan was made for {host}:\n{outcome.tail()}")


# What a second run, or a refused one, must leave alone: process ids with their start times, the boot, and what is installed.
FOOTPRINT = r"""
import glob, hashlib, json, os, subprocess
units = subprocess.run(["systemctl", "show", "--property=Id,ActiveState,MainPID,ExecMainStartTimestampMonotonic", "*.service"],
                       capture_output=True, text=True).stdout.split("\n\n")
running = sorted(unit for unit in units if "ActiveState=active" in unit and "ssh" not in unit and "session" not in unit and "user@" not in unit)
packages = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n"], capture_output=True, text=True).stdout
libraries = {path: os.stat(path, follow_symlinks=False).st_mtime_ns for path in glob.glob("/usr/lib/x86_64-linux-gnu/lib*nvidia*")
             + glob.glob("/usr/lib/x86_64-linux-gnu/libcuda*")}
print(json.dumps({"boot": open("/proc/sys/kernel/random/boot_id").read().strip(), "running": running,
                  "packages": hashlib.sha256(packages.encode()).hexdigest(), "libraries": libraries}))
"""


def footprint(lab: Any, host: str) -> dict[str, Any]:
    """Return what a job on the host could notice a change of."""
    done = lab.run(host, ["python3", "-c", FOOTPRINT])
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
