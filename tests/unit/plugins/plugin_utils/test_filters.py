# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters around the resolver: what playbooks see of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible import context
from ansible_collections.gpu.fleet.plugins.filter import resolve as filters
from fixtures.nodes import bare, request, resolve, satisfied
from fixtures.stack import TODAY, catalog

GROUPS = {
    "all": ["n3", "n1", "n2", "n4"],
    "gpu_nodes": ["n1", "n2", "n3", "n4"],
    "gpu_fabric_b": ["n4"],
    "gpu_fabric_a": ["n2", "n1", "n3"],
}


def shown(**plans: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {host: {"__gpu_stack_plan": plan} for host, plan in plans.items()}


def known(**changes: list[str]) -> dict[str, dict[str, Any]]:
    groups = {**GROUPS, **changes}
    return {host: {"groups": groups, "group_names": [name for name in groups if host in groups[name]]} for host in ("n1", "n2", "n3", "n4", "n9")}


def test_every_filter_is_offered_by_its_name() -> None:
    offered = filters.FilterModule().filters()
    assert set(offered) >= {"resolve_stack", "managed_ids", "fabric_of", "with_fabrics", "refusals", "differing", "plan_table"}
    assert all(call.__name__ == name for name, call in offered.items())


def test_the_plan_is_the_resolvers() -> None:
    lock = {"driver": {"580": "580.159.04"}}
    assert filters.resolve_stack(catalog(), request(), bare(), TODAY) == resolve(request(), bare())
    assert filters.resolve_stack(catalog(), request(), bare(), TODAY, lock) == resolve(request(), bare(), lock)
    assert {"kind": "module", "id": "nvidia"} in filters.managed_ids(catalog(), request())


@pytest.mark.parametrize(("host", "group"), [("n1", "gpu_fabric_a"), ("n4", "gpu_fabric_b"), ("n9", None)])
def test_a_host_belongs_to_the_fabric_that_names_it(host: str, group: str | None) -> None:
    assert filters.fabric_of(known(), host)["group"] == group


def test_a_fabric_is_another_one_with_other_members_and_not_in_another_order() -> None:
    word = filters.fabric_of(known(), "n1")["membership"]
    assert filters.fabric_of(known(gpu_fabric_a=["n1", "n2", "n3"]), "n2")["membership"] == word
    assert filters.fabric_of(known(gpu_fabric_a=["n1", "n2"]), "n1")["membership"] != word
    assert filters.fabric_of(known(), "n9")["membership"] is None


@pytest.mark.parametrize(
    ("groups", "hosts"),
    [
        (GROUPS, ["n1", "n2", "n3", "n4"]),
        ({**GROUPS, "gpu_hold": ["n2", "n9"]}, ["n1", "n3", "n4"]),
        ({**GROUPS, "gpu_hold": GROUPS["gpu_nodes"]}, ["!all"]),
        ({"all": ["n1"]}, ["!all"]),
    ],
)
def test_a_run_is_about_the_nodes_that_are_not_held(groups: dict[str, list[str]], hosts: list[str]) -> None:
    assert filters.nodes_in_service(groups) == hosts


def test_a_collective_needs_every_member_of_its_fabric_in_the_inventorys_order() -> None:
    assert filters.with_fabrics(["n1"], GROUPS) == ["n3", "n1", "n2"]
    assert filters.with_fabrics(["n4"], GROUPS) == ["n4"]
    assert filters.with_fabrics([], GROUPS) == []


def test_nobody_on_hold_is_brought_into_a_collective() -> None:
    assert filters.with_fabrics(["n1"], {**GROUPS, "gpu_hold": ["n2"]}) == ["n3", "n1"]


def test_refusals_are_one_line_a_host_with_what_to_set() -> None:
    hosts = shown(n1=resolve(request(), bare()), n2=resolve(request(driver="999"), bare()), n3=resolve(request(), {"schema": 2}))
    unknown, schema = filters.refusals(["n1", "n2", "n3", "n4"], {**hosts, "n4": {}})
    assert unknown.startswith("n2: ") and unknown.endswith("[driver.branch_unknown]")
    assert " Set gpu_stack_driver. The nearest that works: 580. " in unknown
    assert schema.startswith("n3: ") and "Set " not in schema and "nearest" not in schema


def test_a_host_that_answered_and_could_not_be_observed_is_a_refusal() -> None:
    broken, away = {"failed": True, "msg": "no Python"}, {"failed": True, "unreachable": True, "msg": "no route"}
    found = filters.refusals(["n1", "n2"], {"n1": {"__gpu_stack_observation": broken}, "n2": {"__gpu_stack_observation": away}})
    assert found == ["n1: it could not be observed, so it has no plan: no Python"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu_stack_drver", "the nearest name that is read is gpu_stack_driver"),
        ("verification_sizes", "the nearest name that is read is verification_sizes_mib"),
        ("nccl_tuning_trafic_class", "the nearest name that is read is nccl_tuning_traffic_class"),
        ("node_baseline_xyz", "names that are read: node_baseline_memlock, node_baseline_nofile, node_baseline_service_user"),
        ("rollout_max_unavailble", "nothing in this release reads rollout_max_unavailable"),
        ("drain_adapter", "nothing in this release reads drain_adapter"),
    ],
)
def test_a_variable_that_nothing_reads_is_refused_with_the_nearest_that_is_read(name: str, said: str) -> None:
    hosts = shown(n1=resolve(request(), bare()), n2=resolve(request(), bare()))
    hosts["n2"][name] = "x"
    (line,) = filters.refusals(["n1", "n2"], hosts)
    assert line.startswith(f"n2: {name} is set, and nothing") and said in line


@pytest.mark.parametrize("name", ["gpu_stack_driver", "gpu_stack_relock", "nccl_tuning_extra", "drain_timeout", "rdma_devices", "__gpu_stack_drver"])
def test_a_variable_that_is_read_or_somebody_elses_is_no_refusal(name: str) -> None:
    assert filters.refusals(["n1"], {"n1": {name: "x"}}) == []


def test_a_mistyped_variable_of_a_whole_group_is_one_line() -> None:
    (line,) = filters.refusals([f"n{number}" for number in range(5)], {f"n{number}": {"gpu_stack_drver": 580} for number in range(5)})
    assert line.startswith("n0, n1, n2 and 2 more: gpu_stack_drver")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "-i inventories/prod"),
        ({"extra_vars": ("gpu_stack_driver=580 gpu_stack_disruption=never",)}, "-i inventories/prod -e gpu_stack_driver=580"),
        ({"extra_vars": ('{"gpu_stack_cuda": ["13"]}',)}, """-i inventories/prod -e '{"gpu_stack_cuda": ["13"]}'"""),
        ({"extra_vars": ("@my vars.yml",)}, "-i inventories/prod -e '@my vars.yml'"),
        ({"extra_vars": ("ansible_become_pass=secret", '{"token": "secret"}')}, "-i inventories/prod -e ansible_become_pass=... -e token=..."),
        ({"extra_vars": ("conda_pytorch_proxy=http://me:secret@proxy",)}, "-i inventories/prod -e conda_pytorch_proxy=..."),
        ({"extra_vars": ("{secret", "[secret]", "")}, "-i inventories/prod"),
        ({"become": True, "become_ask_pass": True, "remote_user": "ops"}, "-i inventories/prod --become --ask-become-pass --user ops"),
        ({"vault_ids": ["prod@prompt"]}, "-i inventories/prod --vault-id prod@prompt"),
    ],
)
def test_the_options_of_the_run_are_told_but_no_secret(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], said: str) -> None:
    monkeypatch.setattr(context, "CLIARGS", arguments)
    assert filters.run_options(["inventories/prod"]) == said


def test_what_differs_is_asked_for_by_role() -> None:
    plan = resolve(request(), bare())
    states = satisfied(request(), bare())["managed"]
    assert filters.differing(plan["managed"], states, "nvidia_driver") == []
    assert filters.differing(plan["managed"], {**states, "module:nvidia": None}, "nvidia_driver") == ["module:nvidia"]
    assert filters.differing(plan["managed"], {}, "nccl_tuning") == ["file:/etc/nccl.conf"]
