# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real host with a sick driver: gpu_facts answers in time, names what it could not find out, and leaves no process behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hardware.hosts import NEW, Node
from integration import harness

# What stands before the driver's own program on the path of root.
BEFORE = "/usr/local/sbin/nvidia-smi"
# The parent of a vfork sleeps in the kernel until its child is done: no timer, no signal that it could handle.
ASLEEP = """#!/usr/bin/python3
import ctypes, signal, time
for number in range(1, 32):
    if number not in (9, 19):
        signal.signal(number, signal.SIG_IGN)
ctypes.CDLL(None).vfork()
time.sleep(300)
"""
# A control group that is frozen: its processes get no time at all.
FROZEN = """#!/bin/sh
mkdir -p /sys/fs/cgroup/gpu-fleet-frozen
echo $$ >/sys/fs/cgroup/gpu-fleet-frozen/cgroup.procs
echo 1 >/sys/fs/cgroup/gpu-fleet-frozen/cgroup.freeze
sleep 300
"""
RUBBISH = "#!/bin/sh\nexec head -c 1000000 /dev/urandom\n"
ENDLESS = "#!/bin/sh\nexec yes '<gpu id=\"00000000:1B:00.0\">'\n"


PLAYBOOK = """
- name: Observe a host
  hosts: {host}
  gather_facts: false
  {more}
  tasks:
    - name: Connect
      ansible.builtin.ping:
    - name: See what a module takes that does nothing
      ansible.builtin.ping:
    - name: Observe
      gpu.fleet.gpu_facts:
        probe_timeout: 1
        timeout: {timeout}
"""


@dataclass(frozen=True)
class Seen:
    """What the module said, and the seconds that it took beyond a module that does nothing."""

    facts: dict[str, Any]
    seconds: float

    @property
    def problems(self) -> dict[str, str]:
        """Return what could not be found out, by probe."""
        return {entry["probe"]: entry["reason"] for entry in self.facts["problems"]}

    def knows_the_hardware(self) -> None:
        """Assert that what needs no driver is there."""
        assert len(self.facts["gpus"]) == 8
        assert len(self.facts["nics"]) == 10
        assert self.facts["driver"]["loaded"]["version"] == NEW


@pytest.fixture(scope="module")
def host(eight: Node) -> Node:
    """Give the host with eight GPUs and its driver at work."""
    eight.drive()
    return eight


@pytest.fixture
def observe(host: Node, tmp_path: Path) -> Callable[..., Seen]:
    """Give a way to observe the host, with more lines of a play."""

    def look(timeout: float = 10, *more: str) -> Seen:
        (tmp_path / "observe.yml").write_text(PLAYBOOK.format(host=host.name, timeout=timeout, more="\n  ".join(more)))
        outcome = harness.play(str(tmp_path / "observe.yml"), host.lab.name)
        assert outcome.rc == 0, outcome.tail()
        durations = [event["event_data"]["duration"] for event in outcome.events if event["event"] == "runner_on_ok"]
        return Seen(harness.observation(outcome, host.name), durations[-1] - durations[-2])

    return look


@pytest.fixture
def instead(host: Node) -> Iterator[Callable[[str], None]]:
    """Put a program in the place of nvidia-smi for one test."""

    def put(text: str) -> None:
        host.lab.run(host.name, f"cat >{BEFORE} && chmod 0755 {BEFORE}", text)

    yield put
    host("rm", "-f", BEFORE)


def processes(host: Node) -> list[str]:
    """Return the states and names of processes that have nvidia-smi in their command line; they get a moment to be gone."""
    for _ in range(50):
        found = host("sh", "-c", "ps -eo stat=,args= | grep -F nvidia-smi | grep -v grep || true").splitlines()
        found = [line for line in found if not line.startswith("Z")]
        if not found:
            break
        time.sleep(0.1)
    return found


def test_a_healthy_host_is_observed_in_two_seconds(observe: Callable[..., Seen]) -> None:
    # Whatever else this machine does meanwhile, once in a few tries it has the time.
    seen = min((observe() for _ in range(3)), key=lambda one: one.seconds)
    assert seen.problems == {}
    assert seen.seconds <= 2
    seen.knows_the_hardware()


def test_failure_19_a_driver_that_hangs(host: Node, observe: Callable[..., Seen]) -> None:
    host.fault("smi-hang")
    seen = observe()
    host.fault("heal", "smi-hang")
    assert seen.problems == {"nvidia-smi": "no answer within 1.0 s", "nvidia-smi nvlink": "no answer within 1.0 s"}
    assert seen.seconds < 5
    seen.knows_the_hardware()
    assert (seen.facts["volatile"], seen.facts["gpus"][0]["uuid"]) == (None, None)
    assert processes(host) == []


def test_failure_19_a_program_asleep_in_the_kernel(host: Node, instead: Callable[[str], None], observe: Callable[..., Seen]) -> None:
    instead(ASLEEP)
    state = host("sh", "-c", f"setsid {BEFORE} & sleep 1; cut -d' ' -f3 /proc/$!/stat; /bin/kill -9 -- -$!").strip()
    assert state == "D"
    seen = observe()
    assert seen.problems == {"nvidia-smi": "no answer within 1.0 s", "nvidia-smi nvlink": "no answer within 1.0 s"}
    assert seen.seconds < 5
    seen.knows_the_hardware()
    assert processes(host) == []


def test_a_program_that_is_frozen(host: Node, instead: Callable[[str], None], observe: Callable[..., Seen]) -> None:
    instead(FROZEN)
    seen = observe()
    assert set(seen.problems) == {"nvidia-smi", "nvidia-smi nvlink"}
    assert seen.seconds < 5
    seen.knows_the_hardware()
    assert processes(host) == []
    host("sh", "-c", "echo 0 >/sys/fs/cgroup/gpu-fleet-frozen/cgroup.freeze; rmdir /sys/fs/cgroup/gpu-fleet-frozen")


def test_the_total_is_kept_when_it_is_short(host: Node, observe: Callable[..., Seen]) -> None:
    host.fault("smi-hang")
    seen = observe(timeout=0.8)
    host.fault("heal", "smi-hang")
    assert seen.seconds < 3
    assert {"nvidia-smi", "nvidia-smi nvlink"} <= set(seen.problems)
    assert seen.facts["boot_id"]
    assert processes(host) == []


@pytest.mark.parametrize("text", [RUBBISH, ENDLESS], ids=["rubbish", "endless"])
def test_a_driver_that_talks_nonsense(host: Node, instead: Callable[[str], None], observe: Callable[..., Seen], text: str) -> None:
    instead(text)
    seen = observe()
    assert seen.problems["nvidia-smi"].startswith(("the report is damaged: ", "more than 8 MiB of output"))
    seen.knows_the_hardware()
    assert {gpu["uuid"] for gpu in seen.facts["gpus"]} == {None}


def test_nobody_observes_as_well(host: Node, observe: Callable[..., Seen]) -> None:
    """Without root the hardware and the driver are known; who holds the GPUs is not, so that the host is not called idle."""
    seen = observe(10, "become: true", "become_user: nobody", "become_method: ansible.builtin.su", "vars: {ansible_become_flags: -s /bin/sh}")
    seen.knows_the_hardware()
    assert seen.facts["gpus"][0]["uuid"].startswith("GPU-")
    assert (seen.facts["busy"], seen.facts["driver"]["holders"]) == (None, None)
    assert "could not be looked into" in seen.problems["holders"]


def test_a_lane_lost_is_seen_the_same_by_both(host: Node, observe: Callable[..., Seen]) -> None:
    host.fault("pcie-x8", "0")
    seen = observe()
    host.fault("heal", "pcie-x8")
    first = seen.facts["gpus"][0]
    assert (first["pcie"]["width"], first["pcie_driver"]["width"], first["pcie"]["max_width"]) == (8, 8, 16)
    assert seen.problems == {}
