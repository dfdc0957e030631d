# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for every request and every host."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _resolve
from fixtures.stack import A100, B200, B300, GB200, H100, P100, T4, V100, catalog, driver, gpu, h100, nic, observed, resolve, satisfied
from hypothesis import given, settings
from hypothesis import strategies as st

CATALOG = catalog()
COMPONENTS = {"baseline", "driver", "fabric_manager", "pytorch", "nccl", "rdma", "cuda", "cudnn", "container_toolkit", "dcgm"}
ACTIONS = {"none", "install", "change", "repair", "adopt"}
ROLES = ["node_baseline", "nvidia_driver", "conda_pytorch", "nccl_tuning", "verification"]

requests = st.fixed_dictionaries(
    {},
    optional={
        "driver": st.sampled_from(["", "580", "580.159.04", "535", "auto", "620", "595", "570.124.06", "615", "999"]),
        "pytorch": st.sampled_from(["", "2.13", "2.13+cpu", "2.15", "2.14+cu126", "2.13+cu130"]),
        "driver_source": st.sampled_from(["auto", "nvidia", "distro", "preinstalled", "runfile"]),
        "driver_flavour": st.sampled_from(["auto", "open", "proprietary"]),
        "disruption": st.sampled_from(["never", "idle", "drain"]),
        "takeover": st.lists(st.sampled_from(["driver", "nccl", "pytorch"]), max_size=2),
        "mirror": st.sampled_from(["", "http://mirror.example/nvidia"]),
        "nccl": st.fixed_dictionaries({}, optional={"traffic_class": st.integers(0, 255), "socket_interface": st.sampled_from(["", "eno1", "eth9"])}),
        "baseline": st.fixed_dictionaries({}, optional={"memlock": st.sampled_from(["unlimited", 65536]), "service_user": st.just("trainer")}),
    },
)
drivers = st.builds(
    driver,
    st.sampled_from([None, "580.178.04", "580.159.04", "535.309.01", "550.163.01", "580.999.1"]),
    st.sampled_from(["nvidia", "distro", "runfile", "gpu-operator"]),
    st.sampled_from(["open", "proprietary"]),
    nouveau_loaded=st.booleans(),
)
hosts = st.builds(
    observed,
    st.lists(st.sampled_from([H100, A100, V100, P100, T4, B200, B300, GB200, "ffff"]), max_size=3).map(
        lambda ids: [gpu(number, device) for number, device in enumerate(ids)]
    ),
    st.sampled_from(["debian", "ubuntu", "rocky"]),
    st.sampled_from(["12", "13", "20.04", "24.04", "26.04", "9.6"]),
    st.sampled_from(["3.11.2", "3.13.5", "3.9.2"]),
    drivers,
    st.integers(0, 2),
    nics=st.lists(st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_10"]), unique=True).map(lambda names: [nic(name) for name in names]),
    busy=st.sampled_from([None, {"jobs": [], "holders": 0}, {"jobs": [{"pid": 1, "name": "a", "unit": None, "devices": []}], "holders": 1}]),
    record=st.sampled_from([None, {"fingerprint": "x", "verdict": "pass"}]),
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(request=requests, facts=hosts)
def test_a_plan_or_a_refusal_and_both_whole(request: dict[str, Any], facts: dict[str, Any]) -> None:
    """Nothing raises, nothing that was given is changed, the same arguments give the same answer, and it can be stored as JSON."""
    before = copy.deepcopy((request, facts))
    made = resolve(request, facts)
    assert (request, facts) == before
    assert resolve(copy.deepcopy(request), copy.deepcopy(facts)) == made
    assert json.loads(json.dumps(made)) == made
    if "refusal" in made:
        assert set(made) == {"refusal"} and made["refusal"]["message"]
        return
    assert set(made["components"]) == COMPONENTS
    assert all(one["action"] in ACTIONS and {"wanted", "present", "reasons"} <= set(one) for one in made["components"].values())
    assert made["todo"] == [role for role in ROLES if role in made["todo"]]
    assert set(made["differs"]) <= set(ROLES)
    assert not {item["role"] for item in made["pending"]} & set(made["todo"])
    assert {item["role"] for item in made["pending"]} <= set(made["differs"])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(request=requests, facts=hosts)
def test_what_is_managed_was_asked_for(request: dict[str, Any], facts: dict[str, Any]) -> None:
    """The observation names every id that a plan may hold: the list made before anything is known of the host is a superset."""
    made = resolve(request, facts)
    ids = {(item["kind"], item["id"]) for item in _resolve.managed_ids(CATALOG, request)}
    items = [(item["kind"], item["id"]) for item in made.get("managed", [])]
    assert set(items) <= ids and len(items) == len(set(items))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(request=requests, facts=hosts)
def test_a_host_that_is_as_planned_needs_nothing(request: dict[str, Any], facts: dict[str, Any]) -> None:
    made = resolve(request, facts)
    if "refusal" in made:
        return
    # A driver that waits is not installed; the record is then that of the stack that stays.
    if made["pending"]:
        return
    again = resolve(request, satisfied(made, {**facts, "busy": {"jobs": [], "holders": 0}}))
    assert "refusal" not in again, again["refusal"]["message"]
    assert (again["todo"], again["differs"], again["pending"]) == ([], {}, [])
    assert again["managed"] == made["managed"]
    assert all(one["action"] in ("none", "adopt") for one in again["components"].values())
    assert not any(again["consequences"][name] for name in ("reload", "reboot", "restarts", "downtime_s"))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(request=requests, facts=hosts, seed=st.integers(0, 1 << 30))
def test_order_means_nothing(request: dict[str, Any], facts: dict[str, Any], seed: int) -> None:
    """Devices, interfaces and mapping keys may come in any order."""
    shaken = random.Random(seed)
    facts = {**facts, "nics": [*facts["nics"], nic("mlx5_4"), nic("mlx5_3", "Ethernet")]}
    request = {**request, "fabric": {"group": "gpu_fabric_a", "membership": "n1 to n3"}}

    def mixed(items: list[Any]) -> list[Any]:
        return shaken.sample(items, len(items))

    other_facts = {name: mixed(facts[name]) if name in ("gpus", "nics", "interfaces") else facts[name] for name in mixed(list(facts))}
    other_request = {name: request[name] for name in mixed(list(request))}
    other_request["fabric"] = {"membership": "n1 to n3", "group": "gpu_fabric_a"}
    assert resolve(other_request, other_facts) == resolve(request, facts)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(request=requests, facts=hosts, picked=st.randoms(use_true_random=False))
def test_every_change_behind_our_back_is_seen(request: dict[str, Any], facts: dict[str, Any], picked: random.Random) -> None:
    """Change one field of one managed thing: exactly that thing differs, and its role is in the plan or waits."""
    made = resolve(request, facts)
    if "refusal" in made or made["pending"]:
        return
    ready = satisfied(made, {**facts, "busy": {"jobs": [], "holders": 0}})
    item = picked.choice(made["managed"])
    field = picked.choice([name for name in item["desired"] if name != "content"])
    key = f"{item['kind']}:{item['id']}"
    ready["managed"] = {**ready["managed"], key: {**ready["managed"][key], field: "changed"}}
    again = resolve(request, ready)
    assert again["differs"] == {item["role"]: [key]}
    assert item["role"] in again["todo"] or item["role"] in [waiting["role"] for waiting in again["pending"]]


def test_another_driver_changes_no_other_component() -> None:
    """A child group that overrides only the driver leaves every other part of the plan as it is."""
    one, two = (resolve({"driver": version, "pytorch": "2.13+cpu"}, h100()) for version in ("580.178.04", "580.159.04"))
    for part in ("baseline", "pytorch", "nccl"):
        assert json.dumps(one["components"][part]) == json.dumps(two["components"][part])
    rest = [[item for item in made["managed"] if item["role"] != "nvidia_driver"] for made in (one, two)]
    assert json.dumps(rest[0]) == json.dumps(rest[1])
