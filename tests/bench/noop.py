# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run with nothing to do costs on two lab hosts, and what the observing module costs a host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Figure, Run, ansible_playbook, at_most, demand, found
from lab.client import Lab

STATS = """---
- name: Four stat tasks
  hosts: gpu_nodes
  gather_facts: false
  tasks:
""" + "".join(
    f"    - name: Look at file {number}\n      ansible.builtin.stat:\n        path: /etc/hostname\n" for number in range(4)
)
REPEATS = 5
# The programs that gpu_facts asks on a healthy host. What they take is theirs, and the lab's nvidia-smi is a program in Python.
ASKED = ("nvidia-smi", "modinfo", "dpkg-query", "systemctl")
# Before their own folders on root's path.
BEFORE = "/usr/local/sbin"
ANSWERS = "/run/bench-answers"
# As the shell tells times.
MINUTES = re.compile(r"(\d+)m([\d.]+)s")
ANSWER = """#!/bin/sh
kept="{answers}/{name}${{1##*/}}"
[ -e "$kept" ] || {program} "$@" >"$kept"
exec cat "$kept"
"""


def play_of(module: str, times: int) -> str:
    """Return a play that runs a module a number of times on n1."""
    task = f"    - name: Run\n      {module}:\n"
    return "---\n- name: Repeat\n  hosts: n1\n  gather_facts: false\n  tasks:\n" + task * times


def executions(run: Run, host: str) -> int:
    """Return how often a host's Python was started for a module, as the connection reports it."""
    return sum(1 for line in run.output.splitlines() if re.match(rf"<{host}> .*EXEC ", line) and "python" in line)


def no_op(lab: Lab) -> list[Figure]:
    """Measure site.yml where it has nothing to do."""
    inventory, env = ("-i", "inventories/lab"), {"GPU_FLEET_LAB": lab.name}
    counted = demand(ansible_playbook("site.yml", *inventory, "-vvv", **env), "site.yml")
    hosts = [host["name"] for host in lab.status()["hosts"]]
    if any(found(counted, host)["changed"] for host in hosts):
        raise RuntimeError("site.yml still changes something: nothing to measure")
    preflight = demand(ansible_playbook("playbooks/preflight.yml", *inventory, "-vvv", **env), "preflight.yml")
    return [
        at_most("no-op site.yml: remote module executions a host", max(executions(counted, host) for host in hosts), "executions", 12),
        at_most("preflight.yml: remote module executions a host", max(executions(preflight, host) for host in hosts), "executions", 1),
    ]


def against_stats(lab: Lab, scratch: Path) -> list[Figure]:
    """Measure the no-op run against four stat tasks, in turns, and compare the best of each."""
    stats = scratch / "stats.yml"
    stats.write_text(STATS)
    inventory, env = ("-i", "inventories/lab"), {"GPU_FLEET_LAB": lab.name}
    ours, theirs = [], []
    for _ in range(REPEATS):
        theirs.append(demand(ansible_playbook(stats, *inventory, **env), "four stat tasks"))
        ours.append(demand(ansible_playbook("site.yml", *inventory, **env), "site.yml"))
    wall = min(run.wall for run in ours) / min(run.wall for run in theirs)
    cpu = min(run.machine for run in ours) / min(run.machine for run in theirs)
    return [
        Figure("no-op site.yml, two hosts: wall", round(min(run.wall for run in ours), 3), "s", "none", True),
        at_most("no-op site.yml, two hosts: wall against four stat tasks", wall, "times", 3),
        at_most("no-op site.yml, two hosts: machine's CPU against four stat tasks", cpu, "times", 3),
    ]


@contextmanager
def answers_kept(lab: Lab) -> Iterator[None]:
    """Let the programs that n1 is asked through give at once what they said the first time."""
    lab.run("n1", ["mkdir", "-p", ANSWERS])
    for name in ASKED:
        program = lab.run("n1", ["sh", "-c", f"command -v {name}"]).stdout.strip()
        lab.run("n1", f"cat >{BEFORE}/{name} && chmod 0755 {BEFORE}/{name}", ANSWER.format(answers=ANSWERS, name=name, program=program))
    try:
        yield
    finally:
        lab.run("n1", ["rm", "-rf", ANSWERS, *(f"{BEFORE}/{name}" for name in ASKED)])


def facts_cost(lab: Lab, scratch: Path) -> list[Figure]:
    """Measure the CPU that gpu_facts takes on a host with eight GPUs, beyond a module that does nothing: alone, and with the programs it asks."""
    with answers_kept(lab):
        own = facts_cost_of(lab, scratch) - answers_cost(lab)
    whole = facts_cost_of(lab, scratch)
    return [
        at_most("gpu_facts, 8 GPUs and 10 NICs: own CPU beyond an empty module", own, "s", 0.15),
        Figure("gpu_facts, the programs that it asks included", round(whole, 4), "s", "none", True),
    ]


def answers_cost(lab: Lab) -> float:
    """Return the CPU seconds that giving all kept answers once takes by itself: what stands in for the programs is not the module's own."""
    kept = lab.run("n1", ["ls", ANSWERS]).stdout.split()
    asked = [(name, answer[len(name):]) for answer in kept for name in ASKED if answer.startswith(name)]
    assert asked
    once = "; ".join(f"{BEFORE}/{name} '{word}' >/dev/null" for name, word in asked)
    turns = 40
    # What runs so is not in the control group of n1, but its shell counts its children.
    counted = [lab.run("n1", f"for turn in $(seq {turns}); do {once}; done; times").stdout.splitlines()[-1] for _ in range(3)]
    return min(sum(60 * float(minutes) + float(seconds) for minutes, seconds in MINUTES.findall(line)) for line in counted) / turns


def facts_cost_of(lab: Lab, scratch: Path) -> float:
    """Return the CPU seconds of everything on n1 for one observation, beyond those for a module that does nothing."""
    cost = {}
    for module in ("ansible.builtin.ping", "gpu.fleet.gpu_facts"):
        playbook = scratch / "repeat.yml"
        playbook.write_text(play_of(module, 10))
        runs = []
        for _ in range(3):
            before = host_seconds(lab)
            demand(ansible_playbook(playbook, "-i", "inventories/lab", GPU_FLEET_LAB=lab.name), module)
            runs.append((host_seconds(lab) - before) / 10)
        cost[module] = min(runs)
    return cost["gpu.fleet.gpu_facts"] - cost["ansible.builtin.ping"]


def host_seconds(lab: Lab) -> float:
    """Return the CPU seconds that everything on n1 has used since it started."""
    text = lab.run("n1", ["cat", "/sys/fs/cgroup/cpu.stat"]).stdout
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6
