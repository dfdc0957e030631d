# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input ends a run before anything changes on any host, with words that help. The hosts are made up: they answer each module with their facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from integration.harness import plan
from integration.made_up import Fleet, answer, nodes, touched, words

PLAYBOOKS = ("site.yml", *(f"playbooks/{name}.yml" for name in ("preflight", "adopt", "verify", "single_node", "infiniband_cluster")))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Give made-up hosts."""
    return Fleet(tmp_path)


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_an_inventory_without_nodes_is_refused(fleet: Fleet, playbook: str) -> None:
    outcome = fleet.run({"web": {"hosts": {"w1": {}}}}, playbook)
    assert outcome.rc != 0 and "There is no group gpu_nodes in " in words(outcome)


def test_an_empty_group_of_nodes_is_refused_whatever_the_limit(fleet: Fleet) -> None:
    outcome = fleet.run({"gpu_nodes": {"hosts": {}}, "web": {"hosts": {"w1": {}}}}, options="--limit w1")
    assert outcome.rc != 0 and "The group gpu_nodes is empty in " in words(outcome)


def test_nodes_that_are_all_on_hold_are_no_mistake(fleet: Fleet) -> None:
    outcome = fleet.run({**nodes(n1={}), "gpu_hold": {"hosts": {"n1": {}}}})
    assert outcome.rc == 0 and outcome.results("gpu_facts") == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("gpu_stack_pending_ok", "perhaps", "gpu_stack_pending_ok is 'perhaps'; give true or false"),
        ("gpu_stack_disruption", "always", "gpu_stack_disruption is 'always'; choose one of never, idle, drain"),
        ("gpu_stack_driver", {"branch": 580}, "gpu_stack_driver is \"{'branch': 580}\"; give a branch"),
    ],
)
def test_a_wrong_value_on_one_host_stops_all_and_is_one_line(fleet: Fleet, name: str, value: Any, said: str) -> None:
    outcome = fleet.run(nodes(n1={}, n2={name: value}, n3={}))
    assert outcome.rc != 0 and touched(outcome) == set()
    assert f"n2: {said}" in words(outcome) and "argument_spec" not in outcome.stdout


@pytest.mark.parametrize("name", ["gpu_stack_driver", "gpu_stack_lock"])
def test_a_variable_that_cannot_be_read_stops_all(fleet: Fleet, name: str) -> None:
    outcome = fleet.run(nodes(n1={}, n2={name: "{{ nosuch }}"}, n3={}))
    assert outcome.rc != 0 and "nosuch" in words(outcome) and touched(outcome) == set()


def test_a_host_that_cannot_be_observed_stops_all(fleet: Fleet) -> None:
    fleet.answer.with_name("answer-n2.json").write_text(json.dumps({"failed": True, "msg": "no Python here"}))
    outcome = fleet.run(nodes(n1={}, n2={}, n3={}))
    assert outcome.rc != 0 and "n2: it could not be observed, so it has no plan: no Python here" in words(outcome)
    assert touched(outcome) == set()


def test_a_host_that_cannot_be_reached_stops_no_other(fleet: Fleet) -> None:
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    outcome = fleet.run(nodes(n1={}, n2=away), "playbooks/preflight.yml")
    assert outcome.rc != 0 and outcome.count("dark", "n2") == 1
    assert plan(outcome, "n1")["todo"] and touched(outcome) == set()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("verification_sizes_mib", "large", "give a list of numbers, in MiB"),
        ("verification_port", 99999, "give a number from 1024 to 65535"),
        ("verification_group", "nosuch", "give the name of one"),
        ("conda_pytorch_install_timeout", "soon", "give a number from 10 to 86400"),
        ("gpu_stack_reboot_timeout", 0, "give a number from 30 to 86400"),
    ],
)
def test_a_setting_that_a_later_role_cannot_use_is_refused_first(fleet: Fleet, name: str, value: Any, allowed: str) -> None:
    outcome = fleet.run(nodes(n1={}, n2={name: value}), "playbooks/verify.yml")
    assert outcome.rc != 0 and touched(outcome) == set()
    said = words(outcome)
    assert f"n2: {name} is {value!r}" in said and allowed in said and f"Set {name}." in said


@pytest.mark.parametrize("how", ["inventory", "command line"])
def test_a_mistyped_variable_is_refused(fleet: Fleet, how: str) -> None:
    wrong = {"gpu_stack_drver": "580"}
    outcome = fleet.run(nodes(n1={}, n2=wrong if how == "inventory" else {}), extra=None if how == "inventory" else wrong)
    assert outcome.rc != 0 and touched(outcome) == set()
    assert "gpu_stack_drver is set, and nothing reads it; the nearest name that is read is gpu_stack_driver." in words(outcome)


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/verify.yml"])
def test_a_login_that_is_not_root_is_refused(fleet: Fleet, playbook: str) -> None:
    fleet.answer.with_name("answer-n2.json").write_text(answer(user=1000))
    outcome = fleet.run(nodes(n1={}, n2={}, n3={}), playbook)
    assert outcome.rc != 0 and touched(outcome) == {"setup"}
    said = words(outcome)
    assert "n2: the login does not act as root" in said and "Set ansible_become to true" in said


def test_a_source_that_one_host_lacks_stops_also_those_that_need_none(fleet: Fleet) -> None:
    fleet.answer.with_name("answer-n1-apt_packages.json").write_text(json.dumps({"failed": True, "msg": "the mirror is away"}))
    fleet.answer.with_name("answer-n2.json").write_text(answer(gpus=0))
    outcome = fleet.run(nodes(n1={}, n2={}), extra={"gpu_stack_mirror": "http://mirror.example"})
    assert outcome.rc != 0 and "n1: the mirror is away. The packages come from http://mirror.example, which gpu_stack_mirror sets" in words(outcome)
    # What is for the other package manager is come to, and skipped.
    assert touched(outcome) <= {"setup", "apt_packages", "apt_repository_info", "dnf_repository_info"}
    assert "node_baseline" in plan(outcome, "n2")["todo"]


def test_a_folder_that_takes_no_report_is_refused_before_any_job(fleet: Fleet) -> None:
    outcome = fleet.run(nodes(n1={}, n2={}), "playbooks/verify.yml", extra={"verification_report_dir": "/proc/sys/report"})
    assert outcome.rc != 0 and outcome.results("transient_unit") == []
    assert "verification_report_dir is /proc/sys/report, and nothing can be written there: " in words(outcome)


def test_a_folder_that_exists_is_tried(fleet: Fleet) -> None:
    outcome = fleet.run(nodes(n1={}), "playbooks/verify.yml", extra={"verification_report_dir": "/proc/sys"})
    assert outcome.rc != 0 and outcome.results("transient_unit") == []
    assert "verification_report_dir is /proc/sys, and nothing can be written there: " in words(outcome)
