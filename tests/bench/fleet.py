# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a fleet of a thousand costs the controller, and what a decision costs."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils import _resolve
from ansible_collections.gpu.fleet.plugins.plugin_utils._fingerprint import membership
from bench.measure import Figure, Run, ansible_playbook, at_most, demand, found
from lab.client import Lab

from tools.common import CHECKOUT

SMALL, LARGE = 10, 1000


def answer_of(lab: Lab, scratch: Path) -> dict[str, Any]:
    """Return what gpu_facts says of a converged lab host, about everything that the request could manage."""
    playbook = scratch / "ask.yml"
    target = scratch / "asked.json"
    # The role's own observation, so that the list of managed things is the role's.
    playbook.write_text(
        "---\n- name: Ask\n  hosts: n1\n  gather_facts: false\n  roles:\n    - role: gpu.fleet.gpu_stack\n  post_tasks:\n"
        "    - name: Keep\n      ansible.builtin.copy:\n"
        "        content: \"{{ {'seen': __gpu_stack_observation, 'plan': __gpu_stack_plan, 'request': __gpu_stack_request} | to_json }}\"\n"
        f"        dest: {target}\n        mode: '0600'\n      delegate_to: localhost\n"
    )
    demand(ansible_playbook(playbook, "-i", "inventories/lab", GPU_FLEET_LAB=lab.name), "asking a lab host")
    kept: dict[str, Any] = json.loads(target.read_text())
    return kept


def model(hosts: int, scratch: Path, answer: dict[str, Any]) -> Run:
    """Run site.yml on hosts that answer at once with a recorded answer."""
    inventory = scratch / f"fleet-{hosts}"
    (inventory / "group_vars").mkdir(parents=True, exist_ok=True)
    (inventory / "hosts").write_text(
        f"[gpu_nodes]\nn[1:{hosts}]\n[gpu_fabric_lab:children]\ngpu_nodes\n"
        "[all:vars]\nansible_connection=instant\nansible_python_interpreter=/usr/bin/python3\n"
    )
    lab_settings = CHECKOUT / "inventories" / "lab" / "group_vars" / "all"
    sources = [lab_settings.with_suffix(".yml"), *sorted(lab_settings.glob("*.yml"))]
    settings = {name: value for path in sources if path.exists() for name, value in (yaml.safe_load(path.read_text()) or {}).items()}
    asked = answer["request"]
    settings.update(gpu_stack_mirror=asked.get("mirror"), gpu_stack_mirror_key_fingerprint=asked.get("mirror_key_fingerprint"))
    if asked.get("wheel_index"):
        settings["conda_pytorch_wheel_index"] = asked["wheel_index"]
    (inventory / "group_vars" / "all.yml").write_text(yaml.safe_dump(settings))
    recorded = scratch / "answer.json"
    recorded.write_text(json.dumps(answer["seen"]))
    return ansible_playbook(
        "site.yml", "-i", inventory,
        ANSIBLE_CONNECTION_PLUGINS=str(Path(__file__).parent / "connection"), GPU_FLEET_BENCH_ANSWER=str(recorded),
    )  # fmt: skip


def settled(answer: dict[str, Any], scratch: Path, hosts: int) -> dict[str, Any]:
    """Return the answer with the record of a passed verification of this very model, whose fabric has other members than the lab's."""
    probe = scratch / "members.json"
    asked = copy.deepcopy(answer)
    asked["request"]["fabric"] = {"group": "gpu_fabric_lab", "membership": membership(f"n{number}" for number in range(1, hosts + 1))}
    facts = asked["seen"]["ansible_facts"]["gpu_fleet"]
    made = _resolve.resolve_stack(catalog(), asked["request"], None, None, facts, None, "2026-01-01")
    if "refusal" in made:
        raise RuntimeError(f"the recorded host is refused: {made['refusal']['message']}")
    facts["record"]["fingerprint"] = made["verification"]["fingerprint"]
    probe.write_text(json.dumps(made))
    return asked


def fleet(lab: Lab, scratch: Path) -> list[Figure]:
    """Measure a no-op site.yml over ten and over a thousand hosts."""
    answer = answer_of(lab, scratch)
    runs = {}
    for hosts in (SMALL, LARGE):
        run = demand(model(hosts, scratch, settled(answer, scratch, hosts)), f"site.yml on {hosts} instant hosts")
        if any(found(run, f"n{number}")["changed"] for number in range(1, hosts + 1)) or "gpu.fleet.verification" in run.output:
            raise RuntimeError(f"the model of {hosts} hosts is not a no-op")
        runs[hosts] = run
    # The start of ansible-playbook is the same for any number of hosts.
    start = demand(model(1, scratch, settled(answer, scratch, 1)), "site.yml on one instant host").cpu
    each = {hosts: (run.cpu - start) / (hosts - 1) for hosts, run in runs.items()}
    return [
        at_most(f"no-op site.yml, {LARGE} hosts that answer at once: wall", runs[LARGE].wall, "s", 300),
        Figure(f"no-op site.yml, {LARGE} hosts: controller's CPU a host", round(each[LARGE], 4), "s", "none", True),
        at_most(f"no-op site.yml: CPU a host at {LARGE} against at {SMALL}", each[LARGE] / each[SMALL], "times", 1.2),
    ]


def catalog() -> dict[str, Any]:
    """Return the catalog as a role sees it."""
    files = sorted((CHECKOUT / "roles" / "gpu_stack" / "vars" / "main").glob("*.yml"))
    known: dict[str, Any] = {}
    for path in files:
        known.update(yaml.safe_load(path.read_text()) or {})
    whole = known["__gpu_stack_catalog"]
    return {name: known[value.strip("{} ")] if isinstance(value, str) and "{{" in value else value for name, value in whole.items()}


def decision(lab: Lab, scratch: Path) -> list[Figure]:
    """Measure the resolver on a recorded host, with the catalog loaded once."""
    answer = answer_of(lab, scratch)
    known, facts, times = catalog(), answer["seen"]["ansible_facts"]["gpu_fleet"], []
    for _ in range(200):
        start = time.perf_counter()
        _resolve.resolve_stack(known, answer["request"], None, None, facts, None, "2026-01-01")
        times.append(time.perf_counter() - start)
    return [at_most("resolve_stack, one host", sorted(times)[len(times) // 2] * 1000, "ms", 1)]
