# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of the driver would disturb, who has to agree first, and what goes on meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from fixtures.stack import driver, h100, plan, satisfied

NEW, OLD = "580.178.04", "580.159.04"
ASK = {"driver": "580", "pytorch": "2.13", "host": "n1"}
JOB = {"jobs": [{"pid": 4711, "name": "python3", "unit": "job.service", "devices": ["/dev/nvidia0"]}], "holders": 3}


def running(version: str = OLD, **changes: Any) -> dict[str, Any]:
    """Return a host whose driver is whole, of our packages, and as planned but for its version."""
    ready = plan({**ASK, "driver": version}, h100())
    return {**satisfied(ready, h100()), **changes}


def item(made: dict[str, Any], component: str = "driver") -> dict[str, Any]:
    """Return what waits."""
    found: dict[str, Any] = next(item for item in made["pending"] if item["component"] == component)
    return found


@pytest.mark.parametrize(
    ("job", "devices", "said"),
    [
        (None, ["/dev/nvidia0"], "python3 (4711)"),
        ({"kind": "session", "id": "3", "step": None}, ["/dev/nvidia0"], "python3 (4711)"),
        ({"kind": "slurm", "id": "88", "step": "0"}, ["/dev/nvidia0"], "Slurm job 88 step 0, python3 (4711)"),
        # A job that has no GPU open yet holds the node all the same.
        ({"kind": "slurm", "id": "88", "step": None}, [], "Slurm job 88"),
        ({"kind": "container", "id": "0123456789ab", "step": None}, ["/dev/nvidia0"], "container 0123456789ab, python3 (4711)"),
    ],
)
def test_who_is_at_work_is_named_as_people_know_it(job: dict[str, Any] | None, devices: list[str], said: str) -> None:
    entry = {"pid": 4711, "name": "python3", "unit": None, "uid": 0, "job": job, "devices": devices}
    made = plan({**ASK, "disruption": "idle"}, running(busy={"jobs": [entry], "holders": 1}))
    assert made["consequences"]["holders"] == [said]
    assert said in item(made)["reason"]


@pytest.mark.parametrize(("rivals", "reboot"), [([], False), ([{"module": "nova_core", "bound": []}], False),
                                                ([{"module": "nova_core", "bound": ["0000:18:00.0"]}], True)])  # fmt: skip
def test_another_driver_on_a_gpu_takes_a_boot(rivals: list[dict[str, Any]], reboot: bool) -> None:
    bare = h100()
    bare["driver"]["rivals"] = rivals
    assert plan(ASK, bare)["consequences"]["reboot"] is reboot


def test_a_bare_host_asks_nobody() -> None:
    made = plan(ASK, h100())
    assert made["pending"] == [] and made["components"]["driver"]["action"] == "install"
    assert made["consequences"] == {"reload": False, "reboot": False, "restarts": [], "holders": [], "downtime_s": 0}


@pytest.mark.parametrize(
    ("disruption", "busy", "waits"),
    [
        ("never", False, True),
        ("drain", False, True),
        ("idle", False, False),
        ("never", True, True),
        ("idle", True, True),
        ("drain", True, True),
    ],
)
def test_a_working_driver_is_changed_only_with_consent_on_an_idle_node(disruption: str, busy: bool, waits: bool) -> None:
    made = plan({**ASK, "disruption": disruption}, running(busy=JOB if busy else {"jobs": [], "holders": 2}))
    assert made["components"]["driver"]["action"] == "change"
    assert made["consequences"]["reload"] is True and made["consequences"]["downtime_s"] > 0
    assert made["consequences"]["restarts"] == ["nvidia-fabricmanager.service", "nvidia-persistenced.service"]
    assert bool(made["pending"]) is waits and ("nvidia_driver" not in made["todo"]) is waits
    if waits:
        found = item(made)
        assert (found["role"], found["variable"]) == ("nvidia_driver", "gpu_stack_disruption")
        assert (found["value"]["seen"], found["value"]["needed"]) == (disruption, "idle")
        assert "--limit n1" in found["command"] and "gpu_stack_disruption=idle" in found["command"]
        assert ("drain waits as never does" in found["reason"]) is (disruption == "drain")
        assert ("python3 (4711)" in found["reason"]) is busy and ("once no process holds" in found["command"]) is busy


def test_the_command_meets_the_hosts_of_this_run() -> None:
    found = item(plan({**ASK, "run_options": "-i inventories/prod -e gpu_stack_driver=580"}, running()))
    expected = "ansible-playbook gpu.fleet.site -i inventories/prod -e gpu_stack_driver=580 --limit n1 -e gpu_stack_disruption=idle"
    assert found["command"] == expected


def test_who_holds_the_gpus_is_named_in_short() -> None:
    jobs: list[dict[str, object]] = [{"pid": number, "name": "rank", "unit": None, "devices": []} for number in range(8)]
    found = item(plan({**ASK, "disruption": "idle"}, running(busy={"jobs": jobs, "holders": 8})))
    assert found["reason"].count("rank (") == 3 and len(found["value"]["holders"]) == 8


def test_where_nobody_could_look_a_loaded_driver_counts_as_in_use() -> None:
    made = plan({**ASK, "disruption": "idle"}, running(busy=None, record=None))
    assert made["pending"] and made["verification"]["due"] is False and made["verification"]["reason"] == "the node is busy"
    assert plan(ASK, h100(busy=None))["pending"] == []


def test_the_other_flavour_of_the_same_version_is_a_reload() -> None:
    facts = running(NEW)
    facts["driver"] = driver(NEW, flavour="proprietary")
    facts["managed"]["package:nvidia-kernel-open-dkms"] = {"version": None}
    made = plan(ASK, facts)
    assert made["consequences"]["reload"] is True and item(made)
    assert made["components"]["driver"]["action"] == "change"
    assert "its kernel modules are proprietary and will be open" in made["components"]["driver"]["reasons"]


def test_nouveau_on_the_gpus_is_a_reboot() -> None:
    facts = h100(driver=driver(None, nouveau_loaded=True))
    made = plan(ASK, facts)
    assert made["consequences"]["reboot"] is True and "a reboot" in item(made)["reason"]
    assert plan({**ASK, "disruption": "idle"}, facts)["pending"] == []


def test_another_version_on_disk_than_loaded_is_repaired_with_consent() -> None:
    """Somebody upgraded the packages; the module in the kernel is still the old one."""
    facts = running(NEW)
    facts["driver"] = driver(NEW, loaded={"version": OLD, "flavour": "open"})
    facts["managed"]["module:nvidia"] = {"version": OLD}
    made = plan(ASK, facts)
    assert made["consequences"]["reload"] is True and item(made)["reason"].startswith(f"driver {NEW} is wanted, which needs a reload")
    assert "nvidia_driver" in plan({**ASK, "disruption": "idle"}, facts)["todo"]


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ("file:/etc/apt/preferences.d/gpu-fleet-nvidia.pref", {"state": "absent"}),
        ("keyring:/etc/apt/keyrings/gpu-fleet-nvidia.asc", {"state": "absent"}),
        ("file:/etc/modprobe.d/gpu-fleet-nouveau.conf", {"state": "absent"}),
    ],
)
def test_what_no_job_can_see_is_repaired_on_a_busy_node(key: str, state: dict[str, Any]) -> None:
    facts = running(NEW, busy=JOB)
    facts["managed"][key] = state
    made = plan(ASK, facts)
    assert made["pending"] == [] and made["todo"] == ["nvidia_driver"]


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ("package:nvidia-driver-cuda", {"version": None}),
        ("unit:nvidia-persistenced.service", {"enabled": True, "active": False}),
        ("unit:nvidia-fabricmanager.service", {"enabled": False, "active": True}),
    ],
)
def test_what_a_job_could_see_waits_for_it(key: str, state: dict[str, Any]) -> None:
    facts = running(NEW, busy=JOB)
    facts["managed"][key] = state
    assert item(plan(ASK, facts))
    idle = {**facts, "busy": {"jobs": [], "holders": 0}}
    assert plan(ASK, idle)["pending"] == [] and "nvidia_driver" in plan(ASK, idle)["todo"]


def test_a_pending_driver_stops_nothing_else() -> None:
    facts = running()
    facts["managed"]["directory:/var/lib/gpu_fleet"] = {"state": "absent"}
    facts["managed"]["python_environment:/opt/gpu_fleet/pytorch"] = {"state": "absent", "packages": {}}
    made = plan(ASK, facts)
    assert [found["component"] for found in made["pending"]] == ["driver"]
    assert made["todo"] == ["node_baseline", "conda_pytorch"]
    assert made["verification"]["due"] is False, "the stack that stays has passed"


def test_a_pytorch_that_needs_the_pending_driver_waits_with_it() -> None:
    facts = h100(driver=driver("535.309.01"))
    made = plan(ASK, facts)
    assert [found["component"] for found in made["pending"]] == ["driver", "pytorch"]
    found = item(made, "pytorch")
    assert found["role"] == "conda_pytorch" and "needs driver 580.65.06 or newer, and 535.309.01 stays" in found["reason"]
    assert "conda_pytorch" not in made["todo"] and "nccl_tuning" in made["todo"]
    assert made["verification"]["due"] is False and made["verification"]["reason"] == "PyTorch waits for the driver"
    carried = plan({**ASK, "pytorch": "2.13+cu126"}, facts)
    assert [found["component"] for found in carried["pending"]] == ["driver"] and "conda_pytorch" in carried["todo"]


def test_verification_is_due_once_a_stack() -> None:
    ready = running(NEW)
    again = plan(ASK, ready)
    assert again["verification"]["due"] is False and again["verification"]["reason"] == "passed before"
    for record in (None, {}, {"fingerprint": "other", "verdict": "pass"}, {**ready["record"], "verdict": "fail"}):
        made = plan(ASK, {**ready, "record": record})
        assert made["todo"] == ["verification"] and made["verification"]["reason"] == "no pass of this stack is on record"
    assert plan(ASK, {**ready, "record": None, "busy": JOB})["todo"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"host": {"kernel": "6.1.0-41-amd64"}},
        {"gpus": []},
        {"nics": []},
    ],
)
def test_another_stack_has_another_fingerprint(change: dict[str, Any]) -> None:
    facts = h100()
    before = plan(ASK, facts)["verification"]["fingerprint"]
    after = {**facts, **change, "host": {**facts["host"], **change.get("host", {})}}
    assert plan(ASK, after)["verification"]["fingerprint"] != before


@pytest.mark.parametrize(
    "change", [{"driver": OLD}, {"pytorch": "2.14"}, {"nccl": {"traffic_class": 7}}, {"fabric": {"group": "gpu_fabric_a", "membership": "n1 and n2"}}]
)
def test_another_request_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert plan({**ASK, **change}, h100())["verification"]["fingerprint"] != plan(ASK, h100())["verification"]["fingerprint"]
