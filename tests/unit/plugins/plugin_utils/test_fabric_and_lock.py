# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts for several hosts at once: what a fabric must have alike, and the lock that all plans make together."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.filter import resolve as filters
from ansible_collections.gpu.fleet.plugins.plugin_utils import _fabric, _lock
from ansible_collections.gpu.fleet.plugins.plugin_utils._names import ranges
from fixtures.nodes import NEW, OLD, bare, host, request, resolve
from fixtures.stack import A100, H100, V100

V100S = bare(device=V100, switches=False)


def rules(**plans: Any) -> list[str]:
    return [refusal["rule"] for refusal in _fabric.refusals("gpu_fabric_a", plans)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((request(), bare()), (request(), bare(device=A100)), []),
        ((request(), bare()), (request(pytorch="2.13"), bare()), ["fabric.pytorch"]),
        ((request(), bare()), (request(pytorch=None), bare()), []),
        ((request(), bare()), (request(), bare(gpus=0, switches=False)), ["fabric.pytorch"]),
        # The only build for Volta has another NCCL inside.
        ((request(), bare()), (request(), V100S), ["fabric.pytorch"]),
        ((request(pytorch="2.14+cu126"), bare()), (request(pytorch="2.14"), V100S), []),
        ((request(nccl={"traffic_class": 104}), bare()), (request(), bare()), ["fabric.traffic"]),
        ((request(nccl={"service_level": 1}), bare()), (request(nccl={"service_level": 2}), bare()), ["fabric.traffic"]),
        ((request(nccl={"traffic_class": 104}), bare()), (request(), bare(nics=[])), []),
        ((request(), bare()), (request(driver="999"), bare()), []),
    ],
)
def test_who_shares_a_fabric(one: tuple[Any, Any], other: tuple[Any, Any], expected: list[str]) -> None:
    assert rules(n1=resolve(*one), n2=resolve(*other)) == expected


def test_what_is_not_known_is_no_disagreement() -> None:
    """The NCCL of some builds is not in the catalog."""
    plans = {name: resolve(request(pytorch=f"2.14+{tag}"), bare()) for name, tag in (("n1", "cu130"), ("n2", "cu126"))}
    plans["n2"]["components"]["pytorch"]["wanted"]["nccl"] = None
    assert rules(**plans) == []


def test_a_fabric_that_disagrees_is_a_refusal_that_names_its_hosts() -> None:
    plans = {f"n{number}": resolve(request(pytorch="2.14" if number < 5 else "2.13"), bare()) for number in range(1, 7)}
    hosts = {name: {"__gpu_stack_plan": made, "group_names": ["gpu_fabric_a", "gpu_nodes"]} for name, made in plans.items()}
    (line,) = filters.refusals(list(hosts), hosts)
    assert line.startswith("gpu_fabric_a: PyTorch 2.14.1 on n1 to n4, PyTorch 2.13.0 on n5, n6; ")
    assert line.endswith("Set gpu_stack_pytorch. [fabric.pytorch]")
    apart = {name: {**found, "group_names": [f"gpu_fabric_{name}"]} for name, found in hosts.items()}
    assert filters.refusals(list(apart), apart) == []
    assert filters.refusals(list(hosts), {name: {**found, "group_names": ["gpu_nodes"]} for name, found in hosts.items()}) == []


def test_the_lock_of_a_fleet_is_what_its_plans_settled_on() -> None:
    plans = {"n1": resolve(request(), bare()), "n2": resolve(request(driver="535", pytorch=None), bare())}
    lock, split = _lock.settled(plans, {})
    assert lock == {"driver": {"580": NEW, "535": "535.309.01"}, "pytorch": {"2.14": "2.14.1+cu130"}} and split == []
    assert yaml.safe_load(_lock.text(lock)) == {"gpu_stack_lock": lock}
    assert yaml.safe_load(_lock.text({"driver": {}, "pytorch": {}})) == {"gpu_stack_lock": {"driver": {}, "pytorch": {}}}
    # Under it, every plan is what it was.
    assert resolve(request(), bare(), lock)["lock"] == plans["n1"]["lock"]


def test_a_request_that_means_two_things_is_in_no_lock() -> None:
    plans = {"n1": resolve(request(), bare()), "n2": resolve(request(), V100S), "n3": resolve(request(), bare(device=H100))}
    lock, (line,) = _lock.settled(plans, {"pytorch": {"2.14": "2.14.0+cu130"}})
    assert lock["pytorch"] == {} and lock["driver"] == {"580": NEW}
    assert "2.14.1+cu126 on n2, 2.14.1+cu130 on n1, n3" in line


def test_what_another_settling_moves_is_told() -> None:
    before = {"driver": {"580": OLD, "535": "535.261.03"}}
    plans = {"n1": resolve(request(relock=True), bare(), before)}
    after, _split = _lock.settled(plans, before)
    assert _lock.moved(before, after) == [f"driver 580: {OLD} -> {NEW}", "pytorch 2.14: not locked -> 2.14.1+cu130"]
    assert after["driver"]["535"] == "535.261.03", "what this run did not ask for stays locked"
    assert _lock.moved(after, after) == []
    hosts = {"n1": {"__gpu_stack_plan": plans["n1"]}}
    answer = filters.lock_of(["n1"], hosts, before)
    assert answer["moved"] == _lock.moved(before, after) and yaml.safe_load(answer["content"])["gpu_stack_lock"] == after
    assert filters.lock_of(["n1"], hosts, after)["moved"] == []


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (["n1"], "n1"),
        (["n2", "n1"], "n1, n2"),
        (["n10", "n9", "n8", "n3"], "n3, n8 to n10"),
        (["gpu-a01", "gpu-a02", "gpu-a03"], "gpu-a01 to gpu-a03"),
        (["web", "db"], "db, web"),
        ([f"n{number}" for number in range(1, 1001)], "n1 to n1000"),
        ([f"n{number}" for number in range(1, 21, 2)], "n1, n3, n5, n7 and 6 more"),
        ([f"n{number}" for number in (1, 3, 5, 7, 9, 10, 11)], "n1, n3, n5, n7, n9 to n11"),
        ([f"n{number}" for number in (1, 3, 5, 7, 9, 10, 11, 20)], "n1, n3, n5, n7 and 4 more"),
    ],
)
def test_many_names_in_few_words(hosts: list[str], said: str) -> None:
    assert ranges(hosts) == said


def test_failure_07_newer_apt_takes_the_repository_that_it_can_verify() -> None:
    """sqv takes no signature of the older key; where NVIDIA signs with another one, the plan goes on."""
    sqv = {"signature_verifier": "sqv", "python": "3.13.5"}
    assert resolve(request(), bare(host=host(version="13", **sqv)))["repositories"]
    said = resolve(request(), bare(host=host(**sqv)))["refusal"]
    assert said["rule"] == "repository.key_refused" and "SHA-1" in said["message"] and said["seen"].endswith("3BF863CC")
    assert resolve(request(), bare(host=host(**sqv)), today="2026-01-31")["repositories"]
    assert resolve(request(), bare(host=host(signature_verifier="gpgv")))["repositories"]
    mirrored = request(mirror="http://mirror.lan", mirror_key_fingerprint="AB" * 20)
    assert resolve(mirrored, bare(host=host(**sqv)))["repositories"]
