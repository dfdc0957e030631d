# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver and which PyTorch a host is planned to have, by GPU, platform and request."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_packages, _gpus, _resolve
from fixtures.stack import (
    A100,
    B200,
    B300,
    GB200,
    H100,
    H200,
    L40S,
    P100,
    RTX4090,
    T4,
    TODAY,
    V100,
    catalog,
    driver,
    gpu,
    h100,
    observed,
    plan,
    refusal,
)

NEW, OLD = "580.178.04", "580.159.04"


def with_gpus(*ids: str, **more: Any) -> dict[str, Any]:
    """Return a bare host with these GPUs."""
    return observed([gpu(number, device, None) for number, device in enumerate(ids)], **more)


DEBIAN12: dict[str, Any] = {}
DEBIAN13 = {"version": "13", "python": "3.13.5"}
UBUNTU = {"distribution": "ubuntu", "version": "24.04", "python": "3.12.3"}


@pytest.mark.parametrize("platform", [DEBIAN12, DEBIAN13, UBUNTU], ids=["debian12", "debian13", "ubuntu2404"])
@pytest.mark.parametrize(
    ("ids", "asked", "version", "flavour"),
    [
        ((H100,), "580", NEW, "open"),
        ((H100,), "580.178", NEW, "open"),
        ((H100,), NEW, NEW, "open"),
        ((H100,), OLD, OLD, "open"),
        ((H100,), 580, NEW, "open"),
        ((H100,), "auto", NEW, "open"),
        ((H200,) * 8, "auto", NEW, "open"),
        ((T4,), "auto", NEW, "open"),
        ((A100,), "580", NEW, "open"),
        ((L40S, L40S), "580", NEW, "open"),
        ((RTX4090,), "auto", NEW, "open"),
        ((B200,), "580", NEW, "open"),
        ((B300,), "auto", NEW, "open"),
        ((GB200,), "580", NEW, "open"),
        ((V100,), "580", NEW, "proprietary"),
        ((V100,), "auto", NEW, "proprietary"),
        ((P100,), "auto", NEW, "proprietary"),
        ((V100, T4), "auto", NEW, "proprietary"),
        ((V100, H100), "580", NEW, "proprietary"),
        ((T4, B200), "auto", NEW, "open"),
        (("13c2",), "580", NEW, "proprietary"),
        (("1db8",), "580", NEW, "proprietary"),
        (("1e04",), "580", NEW, "open"),
        (("2504",), "580", NEW, "open"),
        (("2782",), "580", NEW, "open"),
        (("2B85",), "580", NEW, "open"),
    ],
)
def test_a_driver_for_each_gpu(platform: dict[str, Any], ids: tuple[str, ...], asked: Any, version: str, flavour: str) -> None:
    made = plan({"driver": asked}, with_gpus(*ids, **platform))
    wanted = made["components"]["driver"]["wanted"]
    assert (wanted["version"], wanted["flavour"], wanted["source"]) == (version, flavour, "nvidia")
    assert made["components"]["driver"]["action"] == "install"
    assert made["todo"][:2] == ["node_baseline", "nvidia_driver"] and made["pending"] == []


@pytest.mark.parametrize(("platform", "works"), [(DEBIAN12, True), (UBUNTU, True), (DEBIAN13, False)], ids=["debian12", "ubuntu2404", "debian13"])
@pytest.mark.parametrize(("ids", "flavour"), [((H100,), "open"), ((V100,), "proprietary"), ((T4, A100, L40S), "open")])
def test_the_old_branch(platform: dict[str, Any], works: bool, ids: tuple[str, ...], flavour: str) -> None:
    if not works:
        assert refusal({"driver": "535"}, with_gpus(*ids, **platform))["rule"] == "driver.not_packaged"
        return
    driver_ = plan({"driver": "535"}, with_gpus(*ids, **platform))["components"]["driver"]
    assert (driver_["wanted"]["version"], driver_["wanted"]["flavour"]) == ("535.309.01", flavour)
    assert "branch 535 has been out of support since 2026-06-30" in driver_["reasons"]


def test_auto_takes_no_branch_that_is_out_of_support_or_new_feature() -> None:
    def chosen(asked: str, day: str, *ids: str, **platform: Any) -> str:
        version = plan({"driver": asked}, with_gpus(*ids, **platform), today=day)["components"]["driver"]["wanted"]["version"]
        return str(version)

    assert chosen("auto", TODAY, H100) == NEW
    assert chosen("610", TODAY, H100) == "610.57.04" and chosen("590", TODAY, H100) == "590.48.01"
    # The branch that nobody has seen twice is taken where nothing else is left, and refused to nobody who asks for it.
    assert chosen("auto", "2029-01-01", H100) == chosen("620", TODAY, H100) == "620.10.01"
    assert chosen("580", "2029-01-01", H100) == NEW
    assert refusal({"driver": "auto"}, with_gpus(H100), today="2030-01-01")["rule"] == "driver.none_usable"
    # Long-term support before production, and production where there is no other.
    assert chosen("auto", TODAY, H100, distribution="ubuntu", version="26.04", python="3.14.1") == "595.91.07"


def test_packages_by_platform_and_branch() -> None:
    """A few of the names in full; all of them are checked against the lab's copy of the vendor's site."""
    debian = plan({"driver": "580"}, h100())["packages"]["nvidia_driver"]
    assert debian["nvidia-driver-cuda"] == debian["nvidia-kernel-open-dkms"] == debian["nvidia-persistenced"] == f"{NEW}-1"
    assert debian["nvidia-fabricmanager"] == f"{NEW}-1"
    assert not [name for name in debian if name == "nvidia-driver" or "gl" in name.split("-")]
    ubuntu = plan({"driver": "580"}, with_gpus(H100, **UBUNTU))["packages"]["nvidia_driver"]
    assert ubuntu["nvidia-dkms-580-open"] == ubuntu["nvidia-utils-580"] == ubuntu["nvidia-persistenced"] == f"{NEW}-1ubuntu1"
    older = plan({"driver": "535"}, {**h100(), "host": with_gpus(H100, **UBUNTU)["host"]})["packages"]["nvidia_driver"]
    assert older["nvidia-compute-utils-535"] == "535.309.01-0ubuntu1" and older["nvidia-fabricmanager-535"] == "535.309.01-1"
    assert "nvidia-persistenced" not in older
    volta = plan({"driver": "580"}, with_gpus(V100))["packages"]["nvidia_driver"]
    assert "nvidia-kernel-dkms" in volta and "nvidia-kernel-open-dkms" not in volta and "nvidia-fabricmanager" not in volta


def test_nvswitch_brings_a_fabric_manager_in_lockstep() -> None:
    made = plan({"driver": "580"}, h100())
    assert made["lockstep"] == {"nvidia-fabricmanager": f"{NEW}-1"}
    units = [item["id"] for item in made["managed"] if item["kind"] == "unit"]
    assert units == ["nvidia-persistenced.service", "nvidia-fabricmanager.service"]
    alone = plan({"driver": "580"}, {**h100(), "nvswitches": []})
    assert alone["lockstep"] == {} and "nvidia-fabricmanager.service" not in [item["id"] for item in alone["managed"]]


def test_the_distribution_s_own_driver() -> None:
    made = plan({"driver": "535", "driver_source": "distro"}, with_gpus(T4))
    wanted = made["components"]["driver"]["wanted"]
    assert (wanted["version"], wanted["flavour"], wanted["source"]) == ("535.309.01", "proprietary", "distro")
    assert made["repositories"] == [] and made["packages"]["nvidia_driver"]["nvidia-kernel-dkms"].startswith("535.309.01-")
    assert not [item for item in made["managed"] if item["kind"] == "keyring"]


@pytest.mark.parametrize(
    ("distribution", "version", "asked", "wanted", "key"),
    [
        ("ubuntu", "20.04", "570", "570.211.01", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("ubuntu", "22.04", "auto", NEW, "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("ubuntu", "22.04", "595", "595.91.07", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("ubuntu", "26.04", "620", "620.10.01", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"),
        ("debian", "13", "610", "610.57.04", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
    ],
)
def test_each_platform_has_its_own_folder_and_key(distribution: str, version: str, asked: str, wanted: str, key: str) -> None:
    made = plan({"driver": asked}, with_gpus(H100, distribution=distribution, version=version, python="3.10.12"))
    assert made["components"]["driver"]["wanted"]["version"] == wanted
    (source,) = made["repositories"]
    assert source["fingerprint"] == key and source["key_url"].lower().endswith(f"/{key[-8:].lower()}.pub")
    assert f"/{distribution}{version.replace('.', '')}/x86_64/" in source["content"]
    # What dkms calls there and does not depend on comes along, unpinned: it is not the driver's.
    assert ("zstd" in made["packages"]["nvidia_driver"]) == (version == "26.04")
    assert "package:zstd" not in [f"{item['kind']}:{item['id']}" for item in made["managed"]]


@pytest.mark.parametrize(
    ("name", "version", "like", "reason"),
    [
        ("almalinux", "10.1", ["rhel", "centos", "fedora"], "the key of NVIDIA's repository for it is not known for sure"),
        ("rhel", "8.10", ["fedora"], "Python 3.6"),
        ("centos", "7", ["rhel", "fedora"], "out of support"),
        ("fedora", "44", [], "shorter than a driver branch"),
        ("amzn", "2023", ["fedora"], "not managed by this collection"),
        ("sles", "15.7", ["suse"], "zypper"),
        ("opensuse-slowroll", "20261101", ["suse", "opensuse"], "zypper"),
        ("miraclelinux", "9.6", ["rhel", "fedora"], "only RHEL and its rebuilds"),
        ("debian", "11", [], "frozen"),
        ("ubuntu", "18.04", ["debian"], "frozen"),
    ],
)
def test_a_distribution_that_is_not_managed_is_told_why(name: str, version: str, like: list[str], reason: str) -> None:
    host = {**observed()["host"], "distribution": name, "version": version, "like": like}
    said = refusal({"driver": "580"}, {**with_gpus(H100), "host": host})
    assert said["rule"] == "platform.refused" and f"{name} {version} is not supported: " in said["message"] and reason in said["message"]
    assert said["allowed"] == ["debian 12", "debian 13", "rhel 9", "ubuntu 20.04", "ubuntu 22.04", "ubuntu 24.04", "ubuntu 26.04"]


@pytest.mark.parametrize(
    ("name", "version"), [("rhel", "9.6"), ("rocky", "9.6"), ("almalinux", "9.7"), ("centos", "9"), ("ol", "9.5")]
)
def test_rhel_9_and_its_rebuilds_are_one_platform(name: str, version: str) -> None:
    host = {**observed()["host"], "distribution": name, "version": version, "like": ["rhel", "fedora"], "package_manager": "dnf"}
    made = plan({"driver": "580"}, {**with_gpus(H100), "host": host})
    assert (made["platform"]["id"], made["platform"]["package_manager"]) == ("rhel9", "dnf")
    assert made["repositories"][0]["fingerprint"] == "610C7B14E068A878070DA4E99CD0A493D42D0685"
    assert "nvidia-driver-cuda" in made["packages"]["nvidia_driver"]


# ---- who owns what is there


@pytest.mark.parametrize("owner", ["distro", "runfile", "image"])
@pytest.mark.parametrize("asked", [{}, {"driver": "580"}, {"driver": "auto", "driver_source": "nvidia"}])
def test_another_owner_s_driver_is_left_and_reported(owner: str, asked: dict[str, Any]) -> None:
    facts = with_gpus(H100, found=driver("550.163.01", owner))
    made = plan(asked, facts)
    component = made["components"]["driver"]
    assert (component["action"], component["wanted"], component["owner"], component["present"]) == ("adopt", None, owner, "550.163.01")
    assert owner in component["reasons"][0]
    assert not [item for item in made["managed"] if item["role"] == "nvidia_driver"]
    assert made["packages"] == {} and "nvidia_driver" not in made["todo"]


def test_takeover_names_the_driver() -> None:
    facts = with_gpus(H100, found=driver("550.163.01", "distro"))
    made = plan({"driver": "580", "takeover": ["driver"], "disruption": "idle"}, facts)
    assert made["components"]["driver"]["action"] == "change" and "nvidia_driver" in made["todo"]


def test_a_driver_that_somebody_took_apart_under_our_pins_is_still_ours() -> None:
    pin = "file:/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
    facts = with_gpus(H100, found=driver(NEW, "runfile"), managed={pin: {"state": "file"}})
    assert plan({"driver": "580"}, facts)["components"]["driver"]["action"] == "repair"


@pytest.mark.parametrize(
    ("facts", "asked", "reason"),
    [
        (observed(), {"driver": "580"}, "no NVIDIA GPU on the PCI bus"),
        (observed(accelerators_other=[{"address": "0000:01:00.0", "vendor_id": "1002", "device_id": "74a1"}]), {"driver": "580"}, "no NVIDIA GPU"),
        (observed([gpu(0, H100, "vfio-pci")]), {"driver": "580"}, "1 GPUs are handed to virtual machines"),
        (with_gpus(H100, found=driver("470.1.1")), {}, "gpu_stack_driver is not set: what is there stays"),
        (with_gpus(H100), {"driver": "580", "driver_source": "preinstalled"}, "nvidia_driver_source is preinstalled, but no driver is installed"),
        (with_gpus(H100, found=driver(NEW)), {"driver": "580", "driver_source": "preinstalled"}, "nvidia_driver_source is preinstalled"),
        (with_gpus(H100, found=driver(NEW) | {"owner": None, "packages": None}), {}, "whose driver this is could not be observed"),
    ],
)
def test_hosts_without_a_driver_of_ours(facts: dict[str, Any], asked: dict[str, Any], reason: str) -> None:
    made = plan(asked, facts)
    component = made["components"]["driver"]
    assert component["reasons"][0].startswith(reason)
    assert component["wanted"] is None and component["action"] == ("adopt" if component["present"] else "none")
    assert made["verification"]["expected"]["driver"] is None
    assert made["todo"] == ["node_baseline", *(["nccl_tuning"] if made["nccl"]["variables"] else []), "verification"]


def test_other_makers_accelerators_are_reported() -> None:
    facts = with_gpus(H100, accelerators_other=[{"address": "0000:01:00.0", "vendor_id": "1002", "device_id": "74a1"}])
    assert "1 accelerators of other makers are left alone" in plan({"driver": "580"}, facts)["components"]["driver"]["reasons"]


def test_a_kept_driver_whose_parts_disagree_is_reported() -> None:
    facts = with_gpus(H100, found=driver(OLD, user_space=NEW))
    assert plan({}, facts)["components"]["driver"]["reasons"][1] == f"its parts disagree: loaded {OLD}, on disk {OLD}, user space {NEW}"


# ---- lock, and releases that the catalog does not know


def test_lock_holds_a_request_to_its_release() -> None:
    lock = {"driver": {"580": OLD, "auto": OLD}, "pytorch": {"2.13": "2.13.0+cu126"}}
    for asked in ("580", "auto"):
        made = plan({"driver": asked, "pytorch": "2.13"}, h100(), lock=lock)
        assert made["components"]["driver"]["wanted"]["version"] == OLD
        assert made["components"]["pytorch"]["wanted"]["tag"] == "cu126"
        assert made["lock"] == {"driver": {asked: OLD}, "pytorch": {"2.13": "2.13.0+cu126"}}
    assert plan({"driver": NEW}, h100(), lock=lock)["components"]["driver"]["wanted"]["version"] == NEW
    assert plan({"driver": "580", "relock": True}, h100(), lock=lock)["lock"] == {"driver": {"580": NEW}}
    assert plan({"driver": "580", "relock": "true"}, h100(), lock=lock)["lock"] == {"driver": {"580": NEW}}


@pytest.mark.parametrize("empty", [None, {}, "", {"driver": None}])
def test_no_lock(empty: Any) -> None:
    assert plan({"driver": "580"}, h100(), lock=empty)["lock"] == {"driver": {"580": NEW}}


def test_a_lock_outlives_the_catalog() -> None:
    """Newer releases in the catalog, and the locked one gone from it: the same plan."""
    lock = {"driver": {"580": OLD}}
    before = plan({"driver": "580"}, h100(), lock=lock)
    known = catalog()
    next(entry for entry in known["driver_branches"] if entry["branch"] == 580)["versions"] = ["580.300.1", NEW]
    assert plan({"driver": "580"}, h100(), lock=lock, known=known) == before
    known["driver_branches"] = []
    assert refusal({"driver": "580"}, h100(), lock=lock, known=known)["variable"] == "gpu_stack_lock"


def test_a_working_driver_newer_than_the_catalog_stays() -> None:
    newer = "580.200.01"
    facts = with_gpus(H100, found=driver(newer))
    made = plan({"driver": "580"}, facts)
    assert made["components"]["driver"]["wanted"]["version"] == newer and made["pending"] == []
    assert plan({"driver": NEW}, facts)["components"]["driver"]["wanted"]["version"] == NEW
    half = with_gpus(H100, found=driver(newer, loaded={"version": NEW, "flavour": "open"}))
    assert plan({"driver": "580"}, half)["components"]["driver"]["wanted"]["version"] == NEW


# ---- PyTorch


@pytest.mark.parametrize(
    ("ids", "asked", "torch", "tag", "cuda"),
    [
        ((H100,), {"driver": "580", "pytorch": "2.13"}, "2.13.0", "cu130", "13.0"),
        ((H100,), {"driver": "580", "pytorch": 2.13}, "2.13.0", "cu130", "13.0"),
        ((H100,), {"driver": "580", "pytorch": "2.14"}, "2.14.1", "cu130", "13.0"),
        ((H100,), {"driver": "580", "pytorch": "2.14.0"}, "2.14.0", "cu130", "13.0"),
        ((H100,), {"driver": "580", "pytorch": "2.15"}, "2.15.0", "cu130", "13.0"),
        ((H100,), {"driver": "580", "pytorch": "2.15+cu132"}, "2.15.0", "cu132", "13.2"),
        ((H100,), {"driver": "580", "pytorch": "2.13+cu126"}, "2.13.0", "cu126", "12.6"),
        ((H100,), {"driver": "580", "pytorch": "2.13+cpu"}, "2.13.0", "cpu", None),
        ((H100,), {"driver": "535", "pytorch": "2.13"}, "2.13.0", "cu126", "12.6"),
        ((H100,), {"driver": "535", "pytorch": "2.11"}, "2.11.0", "cu128", "12.8"),
        ((B200,), {"driver": "580", "pytorch": "2.13"}, "2.13.0", "cu130", "13.0"),
        ((B300,), {"driver": "580", "pytorch": "2.11+cu128"}, "2.11.0", "cu128", "12.8"),
        ((L40S,), {"driver": "580", "pytorch": "2.10"}, "2.10.0", "cu128", "12.8"),
        ((V100,), {"driver": "580", "pytorch": "2.14"}, "2.14.1", "cu126", "12.6"),
        ((P100,), {"driver": "580", "pytorch": "2.10"}, "2.10.0", "cu126", "12.6"),
        ((V100, T4), {"driver": "580", "pytorch": "2.12"}, "2.12.1", "cu126", "12.6"),
        ((), {"pytorch": "2.13"}, "2.13.0", "cpu", None),
        ((), {"pytorch": "2.13+cpu"}, "2.13.0", "cpu", None),
    ],
)
def test_a_build_for_driver_and_gpu(ids: tuple[str, ...], asked: dict[str, Any], torch: str, tag: str, cuda: str | None) -> None:
    made = plan(asked, with_gpus(*ids))
    wanted = made["components"]["pytorch"]["wanted"]
    assert (wanted["version"], wanted["tag"], wanted["cuda"]) == (torch, tag, cuda)
    assert made["verification"]["backend"] == ("gloo" if tag == "cpu" else "nccl")
    assert made["verification"]["processes_per_node"] == (1 if tag == "cpu" else len(ids))
    assert made["verification"]["expected"]["torch"] == f"{torch}+{tag}"
    assert made["pytorch"]["index"].endswith(f"/{tag}")
    item = next(item for item in made["managed"] if item["kind"] == "python_environment")
    assert item["desired"]["packages"] == {"torch": f"{torch}+{tag}"}


def test_cudnn_and_nccl_of_the_build_are_named() -> None:
    wanted = plan({"driver": "580", "pytorch": "2.13"}, h100())["components"]["pytorch"]["wanted"]
    assert (wanted["cudnn"], wanted["nccl"], wanted["minimum_driver"]) == ("9.20.0.48", "2.29.7", "580.65.06")


@pytest.mark.parametrize(
    ("python", "environment", "interpreter", "found"),
    [
        ("/usr/bin/python3", None, "3.11.2", True),
        ("/usr/bin/python3.12", None, "3.9.2", True),
        ("python3", None, "3.12.1", True),
        ("/usr/bin/python3", "3.12.4", "3.9.2", True),
        ("/opt/site/bin/python3", None, "3.9.2", True),
        ("/usr/bin/python3", "3.9.2", "3.12.4", False),
        ("/usr/bin/python3.9", None, "3.12.4", False),
    ],
)
def test_the_python_that_counts(python: str, environment: str | None, interpreter: str, found: bool) -> None:
    """That of the environment, if there is one; else that which it will be made with, as far as it can be told."""
    there = [{"path": "/opt/gpu_fleet/pytorch", "python": environment, "torch": None, "cuda": None}] if environment else []
    facts = observed(python=interpreter, pytorch=there)
    if found:
        assert plan({"pytorch": "2.13", "python": python}, facts)["components"]["pytorch"]["wanted"]["tag"] == "cpu"
    else:
        assert refusal({"pytorch": "2.13", "python": python}, facts)["rule"] == "pytorch.python"


def test_an_environment_of_another_release_is_changed() -> None:
    there = [{"path": "/opt/gpu_fleet/pytorch", "python": "3.11.2", "torch": "2.12.1+cpu", "cuda": None}]
    component = plan({"pytorch": "2.13"}, observed(pytorch=there))["components"]["pytorch"]
    assert (component["present"], component["action"]) == ("2.12.1+cpu", "change")


# ---- what the observer is asked for


def test_every_package_of_every_plan_is_among_the_managed_ids() -> None:
    known = catalog()
    for platform, entry in known["platforms"].items():
        for version in (NEW, OLD, "535.309.01"):
            names = _driver_packages.every_package(known, version)
            for flavour in ("open", "proprietary"):
                wanted = {"version": version, "branch": int(version[:3]), "flavour": flavour}
                found = _driver_packages.packages(known, {**entry, "id": platform}, wanted, known["fabrics"][:1])
                assert {name for name, number in found.items() if number} <= names
            assert not [name for name in names if "{" in name]
            assert names <= _driver_packages.every_package(known, "auto"), "a lock may hold auto to any branch"
    assert not _driver_packages.every_package(known, None), "what is there stays"


@pytest.mark.parametrize("asked", [{}, {"driver": "580"}, {"driver": "no; such"}, None])
def test_managed_ids_answer_whatever_is_asked(asked: Any) -> None:
    """A request that will be refused still observes the host, so that its refusal can be told."""
    ids = _resolve.managed_ids(catalog(), asked)
    assert {"kind": "module", "id": "nvidia"} in ids and len({(item["kind"], item["id"]) for item in ids}) == len(ids)


def test_a_platform_that_is_given_is_not_looked_for() -> None:
    known = catalog()
    platform = {**known["platforms"]["debian12"], "id": "debian12", "architecture": "x86_64"}
    made = _resolve.resolve_stack(known, {"driver": "580"}, None, platform, {**h100(), "host": {"python": "3.11.2"}}, {}, TODAY)
    assert made["platform"]["id"] == "debian12"


def test_gpus_are_told_by_table_then_by_range() -> None:
    known = catalog()
    found = {one.device_id: one for one in _gpus.kinds(known, [gpu(0, device) for device in (H100, "2685", "zzzz", "123")])}
    assert (found[H100].model, found[H100].compute_capability) == ("H100 SXM5 80GB", "9.0")
    assert (found["2685"].model, found["2685"].architecture, found["2685"].compute_capability) == ("10de:2685", "ada", "8.9")
    assert found["zzzz"].architecture is None and found["123"].architecture is None
