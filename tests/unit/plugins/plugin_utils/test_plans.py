# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for whole hosts: what is done, what waits, what is left alone."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _resolve
from fixtures.nodes import NEW, OLD, bare, host, installed, job, request, resolve, satisfied
from fixtures.stack import B200, H100, KERNEL, V100, catalog, driver, gpu, interface, nic

PIN = "file:/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
CPU = bare(gpus=0, switches=False, nics=[])


def test_a_bare_host_is_installed_freely() -> None:
    plan = resolve(request(), bare())
    assert plan["components"]["driver"]["action"] == "install"
    assert plan["components"]["pytorch"]["action"] == "install"
    assert plan["pending"] == []
    assert plan["todo"] == list(_resolve.ROLES)
    assert plan["consequences"] == {"reload": False, "reboot": False, "restarts": [], "holders": [], "downtime_s": 0}


HOSTS = {
    "h100": bare(),
    "pcie": bare(gpus=1, switches=False, nics=[]),
    "v100": bare(device=V100, switches=False),
    "b200": bare(device=B200),
    "cpu": CPU,
    "ubuntu": bare(host=host("ubuntu", "24.04", python="3.12.3")),
    "trixie": bare(host=host(version="13", python="3.13.5")),
    "arm": bare(host=host(architecture="aarch64")),
    "old": installed(),
    "busy": installed(busy=job()),
    "foreign": bare(driver=driver(OLD, "distro")),
}
REQUESTS = {
    "usual": request(),
    "auto": request(driver="auto", pytorch="2.13"),
    "cpu": request(pytorch="2.14+cpu"),
    "nothing": {"host": "n1", "driver": "580"},
    "mirror": request(mirror="http://mirror.lan/", mirror_key_fingerprint="ab" * 20, baseline={"service_user": "gpu"}, pytorch_prefix="/srv/torch"),
}
PAIRS = [pytest.param(REQUESTS[asked], HOSTS[seen], id=f"{asked}-{seen}") for asked, seen in itertools.product(REQUESTS, HOSTS)]


@pytest.mark.parametrize(("asked", "observed"), PAIRS)
def test_what_is_managed_was_observed(asked: dict[str, Any], observed: dict[str, Any]) -> None:
    """An id that gpu_facts was not asked for would differ for ever."""
    plan = resolve(asked, observed)
    ids = {(item["kind"], item["id"]) for item in _resolve.managed_ids(catalog(), asked)}
    mine = [(item["kind"], item["id"]) for item in plan["managed"]]
    assert mine and set(mine) <= ids
    assert len(mine) == len(set(mine))


@pytest.mark.parametrize(("asked", "observed"), PAIRS)
def test_the_same_input_gives_the_same_plan_and_stays_as_it_was(asked: dict[str, Any], observed: dict[str, Any]) -> None:
    known, before = catalog(), copy.deepcopy((asked, observed))
    first = resolve(asked, observed, catalog=known)
    shuffled = {**observed, "gpus": observed["gpus"][::-1], "nics": observed["nics"][::-1], "interfaces": observed["interfaces"][::-1]}
    assert resolve(asked, shuffled) == first
    assert (asked, observed) == before and known == catalog()
    assert json.loads(json.dumps(first)) == first


@pytest.mark.parametrize(("asked", "observed"), PAIRS)
def test_a_host_that_has_it_all_is_left_alone(asked: dict[str, Any], observed: dict[str, Any]) -> None:
    after = satisfied(asked, observed)
    plan = resolve(asked, {**after, "busy": {"jobs": [], "holders": 0}})
    assert (plan["todo"], plan["differs"], plan["pending"]) == ([], {}, [])
    assert {component["action"] for component in plan["components"].values()} <= {"none", "adopt"}
    assert plan["consequences"]["reload"] is plan["consequences"]["reboot"] is False
    forgotten = resolve(asked, {**after, "record": None, "busy": {"jobs": [], "holders": 0}})
    assert forgotten["todo"] == ["verification"]


def test_one_lost_item_is_the_only_thing_that_is_done() -> None:
    after = satisfied(request(), bare())
    for identity, state in after["managed"].items():
        lost = copy.deepcopy(after)
        lost["managed"][identity] = {**state, next(iter(state)): "other"}
        plan = resolve(request(), lost)
        assert list(itertools.chain.from_iterable(plan["differs"].values())) == [identity]
        assert plan["todo"] == list(plan["differs"])


@pytest.mark.parametrize("verdict", ["fail", None])
def test_only_a_pass_of_this_stack_counts_as_verified(verdict: str | None) -> None:
    after = satisfied(request(), bare())
    assert resolve(request(), {**after, "record": {**after["record"], "verdict": verdict}})["todo"] == ["verification"]
    assert resolve(request(), {**after, "host": host(kernel="6.1.0-41-amd64")})["verification"]["due"] is True
    assert resolve(request(), {**after, "gpus": after["gpus"][:7]})["verification"]["due"] is True
    assert resolve(request(fabric={"group": "gpu_fabric_a", "membership": "n1 and n2"}), after)["verification"]["due"] is True


def test_nobody_is_disturbed_by_a_verification() -> None:
    plan = resolve(request(), {**satisfied(request(), bare()), "record": None, "busy": job()})
    assert (plan["todo"], plan["verification"]["due"], plan["verification"]["reason"]) == ([], False, "the node is busy")


@pytest.mark.parametrize(
    ("disruption", "observed", "waits"),
    [
        ("never", installed(), True),
        ("idle", installed(), False),
        ("drain", installed(busy=job()), True),
        ("idle", installed(busy=job()), True),
        ("idle", installed(busy=None), True),
        ("never", bare(), False),
        ("never", bare(busy=None), False),
        ("never", bare(driver=driver(nouveau_loaded=True)), True),
        ("idle", bare(driver=driver(nouveau_loaded=True)), False),
    ],
)
def test_consent_decides_whether_the_driver_waits(disruption: str, observed: dict[str, Any], waits: bool) -> None:
    plan = resolve(request(disruption=disruption, pytorch=None), observed)
    assert [item["role"] for item in plan["pending"]] == (["nvidia_driver"] if waits else [])
    assert ("nvidia_driver" in plan["todo"]) is not waits
    assert "node_baseline" in plan["todo"], "what nobody notices does not wait"


def test_a_pending_item_says_what_to_do() -> None:
    [item] = resolve(request(pytorch=None), installed(busy=job()))["pending"]
    assert (item["component"], item["variable"]) == ("driver", "gpu_stack_disruption")
    assert item["value"] == {"seen": "never", "needed": "idle", "holders": ["python (4711)"]}
    assert "python (4711)" in item["reason"] and NEW in item["reason"]
    assert item["command"] == "ansible-playbook gpu.fleet.site --limit n1 -e gpu_stack_disruption=idle (once no process holds the GPUs)"


def test_the_same_version_is_not_repaired_under_a_job() -> None:
    """A missing library of the very version that runs still means a package transaction under somebody's feet."""
    broken = satisfied(request(), bare())
    broken["managed"]["package:libcuda1"] = {"version": None}
    free = resolve(request(), broken)
    assert (free["components"]["driver"]["action"], free["todo"], free["pending"]) == ("repair", ["nvidia_driver"], [])
    assert free["consequences"]["restarts"] == ["nvidia-fabricmanager.service", "nvidia-persistenced.service"]
    held = resolve(request(), {**broken, "busy": job()})
    assert held["todo"] == [] and [item["role"] for item in held["pending"]] == ["nvidia_driver"]


def test_a_file_that_no_job_sees_is_repaired_under_a_job() -> None:
    broken = {**satisfied(request(), bare()), "busy": job()}
    broken["managed"][PIN] = {"state": "absent"}
    assert resolve(request(), broken)["todo"] == ["nvidia_driver"]


def test_a_module_older_than_its_packages_is_reloaded_with_consent() -> None:
    """Packages were changed by somebody, and the old module still runs."""
    after = satisfied(request(), bare())
    after["driver"] = {**after["driver"], "loaded": {"version": OLD, "flavour": "open"}}
    after["managed"]["module:nvidia"] = {"version": OLD}
    plan = resolve(request(), after)
    assert plan["components"]["driver"]["action"] == "repair"
    assert plan["consequences"]["reload"] is True and plan["consequences"]["downtime_s"] > 0
    assert [item["role"] for item in plan["pending"]] == ["nvidia_driver"]
    assert resolve(request(disruption="idle"), after)["todo"] == ["nvidia_driver"]


def test_the_other_flavour_needs_a_reload() -> None:
    plan = resolve(request(), installed(NEW, driver=driver(NEW, "nvidia", "proprietary")))
    assert plan["consequences"]["reload"] is True and plan["pending"]


def test_pytorch_waits_for_the_driver_that_carries_it() -> None:
    observed = installed("535.309.01", driver=driver("535.309.01", "nvidia"))
    plan = resolve(request(pytorch="2.14+cu130"), observed)
    assert [item["role"] for item in plan["pending"]] == ["nvidia_driver", "conda_pytorch"]
    assert plan["todo"] == ["node_baseline", "nccl_tuning"]
    carried = resolve(request(pytorch="2.14+cu126"), observed)
    assert [item["role"] for item in carried["pending"]] == ["nvidia_driver"]
    assert "conda_pytorch" in carried["todo"]
    assert carried["verification"]["expected"]["driver"] == "535.309.01", "what runs is verified, not what waits"


@pytest.mark.parametrize("owner", ["runfile", "distro"])
def test_somebody_elses_driver_is_left_alone(owner: str) -> None:
    plan = resolve(request(), bare(driver=driver(OLD, owner)))
    assert plan["components"]["driver"]["action"] == "adopt"
    assert owner in plan["components"]["driver"]["reasons"][0]
    assert "nvidia_driver" not in plan["differs"] and not plan["packages"] and not plan["repositories"]
    assert plan["components"]["pytorch"]["wanted"]["tag"] == "cu130", "it still carries a build"


def test_a_distribution_driver_is_taken_over_when_named() -> None:
    plan = resolve(request(takeover=["driver"], disruption="idle"), bare(driver=driver(OLD, "distro")))
    assert plan["components"]["driver"]["wanted"]["source"] == "nvidia" and "nvidia_driver" in plan["todo"]


def test_a_runfile_under_our_pins_is_our_own_driver_damaged() -> None:
    observed = bare(driver=driver(NEW, "runfile"), managed={PIN: {"state": "file"}})
    assert resolve(request(), observed)["components"]["driver"]["wanted"]["version"] == NEW


def test_preinstalled_and_unset_drivers_stay() -> None:
    for asked in (request(driver_source="preinstalled"), request(driver=None)):
        component = resolve(asked, installed())["components"]["driver"]
        assert (component["wanted"], component["action"], component["present"]) == (None, "adopt", OLD)


@pytest.mark.parametrize(("driver_asked", "name"), [("580", "nvidia-fabricmanager"), ("535", "nvidia-fabricmanager-535")])
def test_a_host_with_switches_has_the_fabric_manager_in_lockstep(driver_asked: str, name: str) -> None:
    plan = resolve(request(driver=driver_asked, pytorch=None), bare())
    version = plan["components"]["driver"]["wanted"]["version"]
    assert plan["lockstep"] == {name: f"{version}-1"}
    assert plan["packages"]["nvidia_driver"][name] == f"{version}-1" and name in plan["closure"]
    units = {item["id"] for item in plan["managed"] if item["kind"] == "unit"}
    assert units == {"nvidia-fabricmanager.service", "nvidia-persistenced.service"}
    plain = resolve(request(driver=driver_asked, pytorch=None), bare(switches=False))
    assert plain["lockstep"] == {} and {item["id"] for item in plain["managed"] if item["kind"] == "unit"} == {"nvidia-persistenced.service"}


def test_a_host_without_gpus_gets_pytorch_for_cpus_and_no_driver() -> None:
    plan = resolve(request(), {**CPU, "busy": None})
    assert plan["components"]["driver"]["action"] == "none"
    assert plan["todo"] == ["node_baseline", "conda_pytorch", "verification"]
    assert plan["pytorch"]["index"].endswith("/cpu")
    assert plan["nccl"]["variables"] == {}
    assert (plan["verification"]["backend"], plan["verification"]["processes_per_node"]) == ("gloo", 1)
    assert plan["verification"]["expected"]["driver"] is None


def test_gpus_of_a_virtual_machine_are_not_ours() -> None:
    given = resolve(request(), {**CPU, "gpus": [gpu(0, kernel_driver="vfio-pci")]})
    assert given["components"]["driver"]["wanted"] is None
    assert given["verification"]["expected"]["gpus"] == 0


def test_a_gpu_host_is_verified_with_nccl_by_one_process_a_gpu() -> None:
    expected = {"gpus": 8, "driver": NEW, "torch": "2.14.1+cu130", "cuda": "13.0", "nics": 2, "memlock": "unlimited"}
    verification = resolve(request(), bare())["verification"]
    assert (verification["backend"], verification["processes_per_node"], verification["expected"]) == ("nccl", 8, expected)


def test_a_lock_outlives_the_catalog_until_it_is_made_anew() -> None:
    lock = {"driver": {"580": OLD}, "pytorch": {"2.14": "2.14.0+cu126"}}
    plan = resolve(request(), bare(), lock)
    assert plan["components"]["driver"]["wanted"]["version"] == OLD
    assert plan["components"]["pytorch"]["wanted"]["version"] == "2.14.0" and plan["components"]["pytorch"]["wanted"]["tag"] == "cu126"
    assert plan["lock"] == lock
    assert resolve(request(relock=True), bare(), lock)["lock"] == {"driver": {"580": NEW}, "pytorch": {"2.14": "2.14.1+cu130"}}
    assert resolve(request(driver="580.178"), bare(), lock)["components"]["driver"]["wanted"]["version"] == NEW


def test_a_foreign_nccl_file_is_left_alone() -> None:
    text = "NCCL_P2P_DISABLE=1\n"
    plan = resolve(request(), bare(nccl={"config": {"/etc/nccl.conf": text}}))
    assert plan["components"]["nccl"]["action"] == "adopt" and "NCCL_P2P_DISABLE" in plan["components"]["nccl"]["reasons"][1]
    assert "nccl_tuning" not in plan["differs"]
    assert "nccl_tuning" in resolve(request(takeover=["nccl"]), bare(nccl={"config": {"/etc/nccl.conf": text}}))["todo"]


def test_the_mirror_replaces_the_vendor() -> None:
    [source] = resolve(request(mirror="http://mirror.lan/", mirror_key_fingerprint="ab" * 20), bare())["repositories"]
    assert source["key_url"] == "http://mirror.lan/compute/cuda/repos/debian12/x86_64/3bf863cc.pub"
    assert source["fingerprint"] == "AB" * 20
    assert "URIs: http://mirror.lan/compute/cuda/repos/debian12/x86_64/\n" in source["content"]


def test_a_given_platform_is_believed() -> None:
    known = catalog()
    platform = {**known["platforms"]["ubuntu2404"], "id": "ubuntu2404", "architecture": "sbsa"}
    plan = resolve(request(), bare(), platform=platform)
    assert plan["platform"]["id"] == "ubuntu2404"
    assert "Architectures: arm64" in plan["repositories"][0]["content"]


def test_ids_are_known_even_for_a_request_that_will_be_refused() -> None:
    assert _resolve.managed_ids(catalog(), request(driver="latest")) == _resolve.managed_ids(catalog(), {})


def test_nothing_of_a_host_with_two_kinds_of_gpus_is_invented() -> None:
    mixed = {**bare(switches=False), "gpus": [gpu(0, H100), gpu(1, V100)], "nics": [nic("mlx5_0")], "interfaces": [interface("eth1")]}
    plan = resolve(request(), mixed)
    assert plan["components"]["driver"]["wanted"]["flavour"] == "proprietary"
    assert plan["components"]["pytorch"]["wanted"]["tag"] == "cu126", "the only build with code for both"
    assert plan["platform"]["kernel_headers"].format(kernel=KERNEL) == f"linux-headers-{KERNEL}"
