# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judging one node: each check passes on a healthy node and fails, with its evidence, on exactly the fault it is for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _verification as judge

EXPECTED = {"gpus": 8, "nics": 8, "driver": "580.178.04", "torch": "2.13.0+cpu", "cuda": None, "memlock": "unlimited"}
FRAMEWORK = {"torch": "2.13.0+cpu", "cuda": None, "devices": [{"device": "cpu", "error": None}]}


def healthy() -> dict[str, Any]:
    """Return the observation of a node with eight GPUs, four switches and ten HCAs, of which two are not cabled."""
    link = {"width": 16, "max_width": 16}
    gpus = [
        {
            "address": f"0000:{16 + number:02x}:00.0",
            "device_id": "2330",
            "model": "NVIDIA H100 80GB HBM3",
            "uuid": f"GPU-{number}",
            "pcie": dict(link),
            "ecc": {"volatile_uncorrected": 0},
            "row_remap": {"pending": False, "failure": False},
            "nvlinks": [{"link": one, "active": True} for one in range(18)],
            "fabric": {"state": "Completed", "status": "Success"},
        }
        for number in range(8)
    ]
    nics = [
        {
            "name": f"mlx5_{number}",
            "address": f"0000:{48 + number:02x}:00.0",
            "device_id": "1021" if number < 8 else "101d",
            "link_layer": "InfiniBand" if number < 8 else "Ethernet",
            "state": "ACTIVE" if number < 8 else "DOWN",
            "rate_gbps": 400.0 if number < 8 else None,
            "virtual_function": False,
            "pcie": dict(link),
        }
        for number in range(10)
    ]
    return {
        "gpus": gpus,
        "nics": nics,
        "nvswitches": [{"address": "0000:07:00.0"}],
        "host": {"kernel": "6.1.0-1"},
        "driver": {
            "loaded": {"version": "580.178.04"},
            "on_disk": {"6.1.0-1": {"version": "580.178.04"}},
            "user_space": "580.178.04",
            "fabric_manager": {"version": "580.178.04", "active": True},
        },
        "limits": {"memlock": {"shell": "unlimited", "service": "unlimited"}},
        "busy": {"jobs": []},
        "problems": [],
    }


def failed(observed: dict[str, Any], **expected: Any) -> dict[str, dict[str, Any]]:
    """Return the failed checks of a node by their id."""
    found = judge.node_checks(observed, {**EXPECTED, **expected}, FRAMEWORK)
    return {one["id"]: one for one in found if one["verdict"] == "fail"}


def test_a_healthy_node_passes_every_check() -> None:
    found = judge.node_checks(healthy(), EXPECTED, FRAMEWORK)
    assert [(one["id"], one["verdict"]) for one in found if one["verdict"] != "pass"] == []
    assert len({one["id"] for one in found}) == len(found) == len(judge.INVENTORY) + 2
    assert judge.verdict(found) == "pass"


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a fault that sets one field of an observation."""

    def plant(observed: dict[str, Any]) -> None:
        place: Any = observed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return plant


def drop_gpu(observed: dict[str, Any]) -> None:
    observed["gpus"].pop()


@pytest.mark.parametrize(
    ("fault", "check", "told"),
    [
        (drop_gpu, "inventory.gpus", "7"),
        (at("gpus", 5, "uuid", value=None), "inventory.driver_sees_gpus", "0000:15:00.0"),
        (at("driver", "loaded", value={"version": "580.159.04"}), "inventory.lockstep", "loaded 580.159.04"),
        (at("driver", "loaded", value=None), "inventory.lockstep", "loaded unknown"),
        (at("driver", "on_disk", value={"6.0": {"version": "580.178.04"}}), "inventory.lockstep", "on disk unknown"),
        (at("driver", "user_space", value="580.159.04"), "inventory.lockstep", "user space 580.159.04"),
        (at("driver", "fabric_manager", "version", value="535.274.02"), "inventory.lockstep", "fabric manager 535.274.02"),
        (at("driver", "fabric_manager", "active", value=False), "inventory.fabric_manager", "not active"),
        (at("driver", "fabric_manager", "active", value=None), "inventory.fabric_manager", "not active"),
        (at("gpus", 3, "nvlinks", 4, "active", value=False), "inventory.nvlink", "0000:13:00.0 link 4"),
        (at("gpus", 3, "nvlinks", value=[{"link": 0, "active": True}]), "inventory.nvlink", "0000:13:00.0 has 1 of 18 links"),
        (at("nics", 1, "state", value="DOWN"), "inventory.fabric_ports", "mlx5_1 is DOWN"),
        (at("nics", 1, "state", value="INIT"), "inventory.fabric_ports", "mlx5_1 is INIT"),
        (at("nics", 2, "rate_gbps", value=200.0), "inventory.fabric_ports", "mlx5_2 runs at 200 Gb/s, its siblings at 400"),
        (at("nics", value=[]), "inventory.fabric_ports", "0 of 0 active"),
        (at("gpus", 0, "pcie", "width", value=8), "inventory.pcie_width", "0000:10:00.0 x8 of x16"),
        (at("nics", 0, "pcie", "width", value=4), "inventory.pcie_width", "0000:30:00.0 x4 of x16"),
        (at("gpus", 1, "ecc", "volatile_uncorrected", value=2), "inventory.gpu_memory", "0000:11:00.0: 2 uncorrected errors"),
        (at("gpus", 1, "row_remap", "pending", value=True), "inventory.gpu_memory", "reset the GPU"),
        (at("gpus", 1, "row_remap", "failure", value=True), "inventory.gpu_memory", "replace the GPU"),
        (at("limits", "memlock", "service", value=8388608), "inventory.memlock", "service 8388608"),
    ],
)  # fmt: skip
def test_each_fault_fails_its_own_check_and_no_other(fault: Callable[[dict[str, Any]], None], check: str, told: str) -> None:
    observed = copy.deepcopy(healthy())
    fault(observed)
    found = failed(observed)
    assert list(found) == [check]
    assert told in f"{found[check]['seen']} {found[check]['evidence']}"
    assert found[check]["wanted"]


def test_a_driver_of_another_version_in_lockstep_is_not_the_planned_one() -> None:
    assert list(failed(healthy(), driver="580.159.04")) == ["inventory.lockstep"]
    assert failed(healthy(), driver="580") == {}


def test_ports_that_nobody_cabled_are_no_fault_but_the_expected_number_is() -> None:
    assert failed(healthy(), nics=None) == {}
    assert "inventory.fabric_ports" in failed(healthy(), nics=9)


def test_memlock_is_wanted_in_kibibytes_and_seen_in_bytes() -> None:
    observed = healthy()
    observed["limits"]["memlock"]["service"] = 65536 * 1024
    assert failed(observed, memlock="65536") == {}
    assert list(failed(observed, memlock="65537")) == ["inventory.memlock"]


def test_a_node_without_gpus_skips_what_is_about_them() -> None:
    observed = {"gpus": [], "nics": [], "nvswitches": [], "limits": {"memlock": {"service": "unlimited"}}}
    found = judge.node_checks(observed, {**EXPECTED, "gpus": 0, "nics": None, "driver": None}, FRAMEWORK)
    verdicts = {one["id"]: one["verdict"] for one in found}
    assert {name for name, verdict in verdicts.items() if verdict == "skip"} == {
        "inventory.driver_sees_gpus",
        "inventory.lockstep",
        "inventory.fabric_manager",
        "inventory.fabric",
        "inventory.nvlink",
        "inventory.fabric_ports",
        "inventory.pcie_width",
        "inventory.gpu_memory",
    }
    assert judge.verdict(found) == "pass"


def test_gpus_that_could_not_be_looked_for_are_not_taken_for_none() -> None:
    observed = {**healthy(), "gpus": None, "problems": [{"probe": "pci", "reason": "no such file"}]}
    found = failed(observed)
    assert found["inventory.gpus"]["seen"] == "unknown"
    assert "pci: no such file" in found["inventory.gpus"]["evidence"]


def test_a_driver_that_hangs_is_named_in_the_evidence() -> None:
    observed = healthy()
    observed["gpus"][0]["uuid"] = None
    observed["problems"] = [{"probe": "nvidia-smi", "reason": "no answer within 3.0 s"}]
    assert "nvidia-smi: no answer within 3.0 s" in failed(observed)["inventory.driver_sees_gpus"]["evidence"]


@pytest.mark.parametrize(
    ("answer", "expected", "check"),
    [
        ({**FRAMEWORK, "torch": "2.12.1+cpu"}, {}, "framework.torch"),
        ({**FRAMEWORK, "torch": "2.13.0+cu130"}, {}, "framework.torch"),
        ({}, {}, "framework.torch"),
        ({**FRAMEWORK, "devices": []}, {}, "framework.product"),
        ({**FRAMEWORK, "devices": [{"device": "cpu", "error": "7 of 262144 elements are wrong"}]}, {}, "framework.product"),
        ({**FRAMEWORK, "torch": "2.13.0+cu130"}, {"torch": "2.13.0+cu130", "cuda": "13.0"}, "framework.cuda"),
        (
            {**FRAMEWORK, "torch": "2.13.0+cu130", "cuda": "13.0", "devices": [{"device": "cpu"}, {"device": "cuda:0"}]},
            {"torch": "2.13.0+cu130", "cuda": "13.0"},
            "framework.devices",
        ),
    ],
)
def test_each_fault_of_the_framework_is_found(answer: dict[str, Any], expected: dict[str, Any], check: str) -> None:
    found = judge.framework(answer, {**EXPECTED, **expected}, "the unit was ended")
    assert [one["id"] for one in found if one["verdict"] == "fail"] == [check]
    if not answer:
        assert found[0]["evidence"] == "the unit was ended"


def test_no_framework_in_the_plan_is_no_fault() -> None:
    assert [one["verdict"] for one in judge.framework({}, {"torch": None})] == ["skip"]


def test_a_host_that_was_not_observed_fails() -> None:
    found = judge.node_checks({}, EXPECTED, {}, "timed out")
    assert [(one["id"], one["verdict"], one["evidence"]) for one in found] == [("inventory.observed", "fail", "timed out")]
    assert judge.verdict(found) == "fail"


def test_nothing_judged_is_no_pass() -> None:
    assert judge.verdict([]) == "fail"
    assert judge.verdict([judge.check("a", None, "skipped")]) == "fail"


@pytest.mark.parametrize(
    ("version", "wanted", "good"),
    [
        ("580.178.04", "580", True),
        ("580.178.04", "580.178.04", True),
        ("580.178.04", "580.17", False),
        ("58.1", "580", False),
        ("2.13.0+cpu", "2.13", True),
        ("2.13.0+cpu", "2.13+cpu", True),
        ("2.13.0+cpu", "2.13+cu130", False),
        (None, "580", False),
    ],
)
def test_versions_agree_by_whole_fields(version: str | None, wanted: str, good: bool) -> None:
    assert judge.agrees(version, wanted) is good


def test_siblings_name_the_host_that_has_less_and_one_that_has_more() -> None:
    less = healthy()
    drop_gpu(less)
    found = judge.siblings({"n1": judge.shape(healthy()), "n2": judge.shape(less)})
    assert found["n1"]["verdict"] == "pass"
    assert found["n2"]["verdict"] == "fail"
    assert "7 GPUs, n1 has 8" in found["n2"]["evidence"]
    assert judge.siblings({"n1": judge.shape(less)})["n1"]["verdict"] == "skip"
    assert judge.siblings({}) == {}


def test_long_lists_are_cut_with_their_rest_counted() -> None:
    assert judge.few([str(number) for number in range(9)], 3) == "0; 1; 2; and 6 more"
    assert judge.few(["a", "b"]) == "a; b"
