# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventories of two layers, locks, and fabrics, as playbooks see them. The hosts are made up: they answer each module with their facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from fixtures.stack import driver
from integration.harness import plan
from integration.made_up import GOOD, Fleet, answer, nodes, touched, words

PREFLIGHT = "playbooks/preflight.yml"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Give made-up hosts."""
    return Fleet(tmp_path)


def test_a_child_group_overrides_the_driver_and_nothing_else(fleet: Fleet) -> None:
    """Scalars: what a child group says of one component leaves the others to its parent."""
    common = {**GOOD, "nccl_tuning_traffic_class": 104, "node_baseline_nofile": 65536}
    canary = {"hosts": {"n2": {}}, "vars": {"gpu_stack_driver": "580.159.04"}}
    outcome = fleet.run({"gpu_nodes": {"hosts": {"n1": {}}, "children": {"gpu_canary": canary}, "vars": common}}, PREFLIGHT)
    assert outcome.rc == 0, outcome.tail()
    one, two = plan(outcome, "n1"), plan(outcome, "n2")
    assert [made["components"]["driver"]["wanted"]["version"] for made in (one, two)] == ["580.178.04", "580.159.04"]
    for name in set(one["components"]) - {"driver", "fabric_manager"}:
        assert json.dumps(one["components"][name]) == json.dumps(two["components"][name]), name
    rest = [[item for item in made["managed"] if item["role"] != "nvidia_driver"] for made in (one, two)]
    assert json.dumps(rest[0]) == json.dumps(rest[1])


def test_a_lock_is_shown_moved_and_followed(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "group_vars" / "all" / "gpu_stack.lock.yml"
    before = {"gpu_stack_lock": {"driver": {"580": "580.159.04"}, "pytorch": {"2.14": "2.14.0+cu130"}}}
    held = fleet.run(nodes(n1=before), PREFLIGHT)
    assert plan(held, "n1")["lock"] == before["gpu_stack_lock"] and not path.exists()
    assert "not locked" not in words(held) and "->" not in words(held)

    moved = fleet.run(nodes(n1=before), PREFLIGHT, extra={"gpu_stack_relock": "true"})
    assert moved.rc == 0, moved.tail()
    assert "driver 580: 580.159.04 -> 580.178.04" in words(moved) and "pytorch 2.14: 2.14.0+cu130 -> 2.14.1+cu130" in words(moved)
    after = yaml.safe_load(path.read_text())
    assert after == {"gpu_stack_lock": {"driver": {"580": "580.178.04"}, "pytorch": {"2.14": "2.14.1+cu130"}}}

    again = fleet.run(nodes(n1={}), PREFLIGHT)
    assert again.changed_tasks() == [] and plan(again, "n1")["lock"] == after["gpu_stack_lock"]
    assert plan(again, "n1")["components"]["driver"]["reasons"][1] == "gpu_stack_lock says 580.178.04"


def test_what_is_not_locked_is_printed_for_whoever_commits_it(fleet: Fleet, tmp_path: Path) -> None:
    outcome = fleet.run(nodes(n1={}), PREFLIGHT)
    assert outcome.rc == 0 and outcome.changed_tasks() == []
    assert "driver 580: not locked -> 580.178.04" in words(outcome) and 'gpu_stack_lock:' in words(outcome)
    assert not (tmp_path / "group_vars").exists()


def test_a_lock_that_cannot_be_written_is_printed(fleet: Fleet) -> None:
    outcome = fleet.run(nodes(n1={}), PREFLIGHT, extra={"gpu_stack_relock": True, "gpu_stack_lock_file": "/proc/sys/lock.yml"})
    assert outcome.rc != 0 and "/proc/sys/lock.yml cannot be written" in words(outcome) and "580.178.04" in words(outcome)


def test_a_fabric_that_would_not_talk_to_itself_stops_all(fleet: Fleet) -> None:
    groups = nodes(n1={}, n2={"gpu_stack_pytorch": "2.13"}, n3={})
    outcome = fleet.run({**groups, "gpu_fabric_a": {"hosts": {"n1": {}, "n2": {}}}})
    assert outcome.rc != 0 and touched(outcome) == set()
    assert "gpu_fabric_a: PyTorch 2.13.0 on n2, PyTorch 2.14.1 on n1" in words(outcome)
    assert fleet.run({**groups, "gpu_fabric_a": {"hosts": {"n1": {}, "n3": {}}}}, PREFLIGHT).rc == 0


@pytest.mark.parametrize("owner", ["distro", "runfile", "image"])
def test_a_driver_of_somebody_else_is_named_before_anything_changes(fleet: Fleet, owner: str) -> None:
    seen = json.loads(answer())
    seen["ansible_facts"]["gpu_fleet"]["driver"] = driver("570.133.20", owner)
    fleet.answer.write_text(json.dumps(seen))
    outcome = fleet.run(nodes(n1={}), PREFLIGHT)
    assert outcome.rc == 0 and f"the driver belongs to {owner}" in words(outcome) and touched(outcome) == set()
