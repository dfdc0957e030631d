# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who owns what: what somebody else installed is named, looked at and left, unless gpu_stack_takeover names it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _components
from ansible_collections.gpu.fleet.plugins.plugin_utils._managed_plan import HEADER
from ansible_collections.gpu.fleet.plugins.plugin_utils._request import COMPONENTS, MANAGED
from fixtures.nodes import NEW, OLD, bare, host, installed, request, resolve, satisfied
from fixtures.stack import B200, GB200, T4, V100, driver, gpu

PIN = "file:/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
UBUNTU = host("ubuntu", "24.04", python="3.12.3")
PLAIN = bare(device=T4, switches=False, nics=[])


def component(asked: Any, facts: Any, name: str = "driver") -> dict[str, Any]:
    made = resolve(asked, facts)
    assert "refusal" not in made, made["refusal"]["message"]
    found: dict[str, Any] = made["components"][name]
    return found


# ---- every component


def test_a_flavour_that_is_asked_for_is_missed_in_a_driver_that_stays() -> None:
    made = component(request(driver_flavour="open", pytorch=None), bare(driver=driver(NEW, "distro", "proprietary")))
    assert made["action"] == "adopt" and "nvidia_driver_flavour is open, and proprietary modules are there" in made["reasons"]


def test_what_can_be_taken_over_is_what_a_plan_speaks_of() -> None:
    assert set(COMPONENTS) == {*MANAGED, *_components.LEFT}
    assert set(COMPONENTS) | {"baseline", "fabric_manager"} == set(resolve(request(), bare())["components"])


@pytest.mark.parametrize("name", _components.LEFT)
@pytest.mark.parametrize(
    ("owner", "action"),
    [("nvidia", "adopt"), ("distro", "adopt"), ("doca", "adopt"), ("gpu-operator", "adopt"), ("mixed", "adopt"), ("absent", "none"), (None, "none")],
)
def test_what_is_left_to_its_owner_is_named(name: str, owner: str | None, action: str) -> None:
    found = component(request(), bare(owners={name: owner}), name)
    assert (found["wanted"], found["owner"], found["action"]) == (None, owner, action)
    assert bool(found["reasons"]) == (action == "adopt")
    assert resolve(request(), bare(owners={name: owner}))["managed"] == resolve(request(), bare())["managed"]


def test_versions_that_are_there_are_told() -> None:
    facts = bare(
        cuda=[{"version": "13.0.2"}, {"version": "12.9.1"}, {"version": None}],
        cudnn={"libraries": [{"version": "9.15.1"}, {"version": "9.15.1"}]},
        containers={"toolkit": {"version": "1.20.0-1"}},
        dcgm={"version": "4.6.0"},
        owners={"cuda": "mixed", "cudnn": "nvidia", "container_toolkit": "nvidia", "dcgm": "nvidia"},
    )
    made = resolve(request(), facts)["components"]
    assert {name: made[name]["present"] for name in _components.LEFT} == {
        "rdma": None, "cuda": "12.9.1, 13.0.2", "cudnn": "9.15.1", "container_toolkit": "1.20.0-1", "dcgm": "4.6.0",
    }  # fmt: skip
    assert made["cuda"]["reasons"] == ["cuda belongs to more than one and stays as it is"]


def test_an_environment_of_condas_is_left_to_it() -> None:
    there = [{"path": "/opt/gpu_fleet/pytorch", "kind": "conda", "owner": "conda", "python": "3.12.4", "torch": "2.13.0", "cuda": "12.9"}]
    made = resolve(request(), bare(pytorch=there))
    found = made["components"]["pytorch"]
    assert (found["wanted"], found["present"], found["owner"], found["action"]) == (None, "2.13.0", "conda", "adopt")
    assert "conda_pytorch" not in made["todo"] and made["pytorch"] is None
    taken = resolve(request(takeover=["pytorch"]), bare(pytorch=there))
    assert taken["components"]["pytorch"]["action"] == "change" and "conda_pytorch" in taken["todo"]
    elsewhere = resolve(request(pytorch_prefix="/srv/torch"), bare(pytorch=there))
    assert elsewhere["components"]["pytorch"]["action"] == "install"
    assert component(request(), bare(pytorch=[{**there[0], "kind": "venv", "owner": "pip"}]), "pytorch")["action"] == "change"


@pytest.mark.parametrize(
    ("text", "owner"), [(None, "absent"), ("NCCL_DEBUG=WARN\n", "site"), (f"{HEADER}NCCL_DEBUG=WARN\n", "gpu.fleet")]
)
def test_whose_the_settings_of_nccl_are(text: str | None, owner: str) -> None:
    assert component(request(), bare(nccl={"config": {"/etc/nccl.conf": text}}), "nccl")["owner"] == owner


# ---- the driver


@pytest.mark.parametrize("owner", ["distro", "runfile", "image"])
@pytest.mark.parametrize("source", ["auto", "nvidia"])
def test_a_driver_of_somebody_else_is_reported_and_left(owner: str, source: str) -> None:
    facts = bare(driver=driver("550.54.14", owner, user_space="550.163.01"), owners={"fabric_manager": owner})
    made = resolve(request(driver_source=source, disruption="idle", pytorch=None), facts)
    found = made["components"]["driver"]
    assert (found["action"], found["owner"], found["wanted"]) == ("adopt", owner, None)
    reasons = found["reasons"]
    assert reasons[0].startswith(f"the driver belongs to {owner}, the fabric manager belongs to {owner}; it is left as it is")
    assert reasons[1].startswith("its parts disagree: ")
    assert "gpu_stack_driver is 580, and 550.54.14 is there" in reasons
    assert any(reason.startswith("550.54.14 is known to be bad: ") for reason in reasons)
    assert any(reason.startswith("branch 550 has been out of support since ") for reason in reasons)
    assert not [item for item in made["managed"] if item["role"] == "nvidia_driver"] and made["packages"] == {}
    assert made["consequences"]["reload"] is made["consequences"]["reboot"] is False


def test_a_good_driver_of_somebody_else_has_nothing_against_it() -> None:
    assert len(component(request(), bare(driver=driver(NEW, "image")))["reasons"]) == 1
    assert len(component(request(driver="auto"), bare(driver=driver(NEW, "image")))["reasons"]) == 1


@pytest.mark.parametrize("asked", [None, "580", "595", "auto"])
def test_preinstalled_changes_nothing_and_says_what_is_there(asked: str | None) -> None:
    for facts in (installed(), bare(driver=driver(OLD, "runfile")), bare(driver=driver(OLD, "distro"))):
        made = resolve(request(driver=asked, driver_source="preinstalled", takeover=["driver"], disruption="idle", pytorch=None), facts)
        assert made["components"]["driver"]["action"] == "adopt" and "nvidia_driver" not in {item["role"] for item in made["managed"]}
        told = [reason for reason in made["components"]["driver"]["reasons"] if reason.startswith("gpu_stack_driver is ")]
        assert told == ([f"gpu_stack_driver is 595, and {OLD} is there"] if asked == "595" else [])


def test_gpu_operators_nodes_are_refused_whatever_is_asked() -> None:
    for source in ("auto", "nvidia", "preinstalled"):
        said = resolve(request(driver_source=source, takeover=["driver"]), bare(driver=driver(NEW, "gpu-operator")))["refusal"]
        assert (said["rule"], said["nearest"]) == ("driver.gpu_operator", "gpu_hold")


def test_a_driver_of_the_archive_that_we_hold_stays_with_it() -> None:
    """`auto` is the present owner: what was installed from the distribution's archive is not taken from it again."""
    asked = request(driver="535", driver_source="distro", pytorch=None)
    after = satisfied(asked, PLAIN)
    made = resolve({**asked, "driver_source": "auto"}, after)
    assert made["components"]["driver"]["wanted"]["source"] == "distro" and made["differs"] == {}
    somebodys = {**after, "managed": {}}
    assert component({**asked, "driver_source": "auto"}, somebodys)["action"] == "adopt"
    moved = resolve({**asked, "driver_source": "auto", "driver": "580", "takeover": ["driver"], "disruption": "idle"}, after)
    assert moved["components"]["driver"]["wanted"]["source"] == "nvidia" and moved["components"]["driver"]["action"] == "change"


@pytest.mark.parametrize("owner", ["distro", "runfile"])
def test_a_fabric_manager_of_somebody_else_is_no_companion(owner: str) -> None:
    theirs = {"fabric_manager": owner}
    assert resolve(request(), bare(owners=theirs))["refusal"]["rule"] == "driver.companion_owner"
    assert component(request(), installed(owners=theirs))["action"] == "adopt"
    assert component(request(takeover=["driver"]), bare(owners=theirs))["action"] == "install"
    # Where no switch is, nobody needs one.
    assert component(request(), bare(owners=theirs, switches=False))["action"] == "install"


def test_a_runfile_is_not_fetched_and_what_came_of_one_stays() -> None:
    said = resolve(request(driver_source="runfile"), bare())["refusal"]
    assert (said["rule"], said["nearest"]) == ("driver.runfile", "nvidia") and "checksum" in said["message"]
    kept = component(request(driver_source="runfile"), bare(driver=driver(NEW, "runfile")))
    assert kept["action"] == "adopt" and kept["reasons"][0].endswith("as nvidia_driver_source says, and is the one that is asked for")
    assert component(request(driver="auto", driver_source="runfile"), bare(driver=driver(NEW, "runfile")))["action"] == "adopt"
    other = resolve(request(driver="595", driver_source="runfile"), bare(driver=driver(NEW, "runfile")))["refusal"]
    assert (other["rule"], other["nearest"]) == ("driver.runfile", "preinstalled")
    assert "nvidia-uninstall" in component(request(), bare(driver=driver(NEW, "runfile")))["reasons"][0]


def test_a_driver_of_an_image_is_taken_over_where_it_is_made_of_packages() -> None:
    packages = [{"name": "libcuda1", "version": "580.159.04-1", "held": False}]
    asked = request(takeover=["driver"], disruption="idle")
    assert component(asked, bare(driver=driver(OLD, "image", packages=packages)))["action"] == "change"
    assert resolve(asked, bare(driver=driver(OLD, "image")))["refusal"]["rule"] == "driver.takeover"


# ---- the distributions' own packages


@pytest.mark.parametrize(("device", "flavour"), [(T4, "-open"), (V100, "")])
@pytest.mark.parametrize(("version", "suffix"), [("22.04", "0ubuntu0.22.04.1"), ("24.04", "0ubuntu0.24.04.1"), ("26.04", "0ubuntu0.26.04.1")])
def test_ubuntus_own_packages(device: str, flavour: str, version: str, suffix: str) -> None:
    facts = bare(1, device, switches=False, host=host("ubuntu", version, python="3.12.3"))
    made = resolve(request(driver="580.178.04", driver_source="distro", pytorch=None), facts)
    packages = made["packages"]["nvidia_driver"]
    assert set(packages.values()) == {f"580.178.04-{suffix}"}
    assert f"nvidia-dkms-580-server{flavour}" in packages and "nvidia-utils-580-server" in packages and not any("{" in name for name in packages)
    assert made["repositories"] == [] and made["components"]["driver"]["wanted"]["source"] == "distro"
    locked = resolve(request(driver="580", driver_source="distro", pytorch=None), facts, {"driver": {"580": "580.126.09"}})
    assert locked["components"]["driver"]["wanted"]["version"] == "580.126.09"


def test_secure_boot_is_told_for_the_archives_own_build_too() -> None:
    facts = bare(1, T4, switches=False, host=host(secure_boot=True))
    reasons = component(request(driver="535", driver_source="distro", pytorch=None), facts)["reasons"]
    assert any("mokutil --import" in reason for reason in reasons)


# ---- the fabric manager


def fabric_manager(version: str | None, owner: str, **changes: Any) -> dict[str, Any]:
    manager = {"version": version, "active": True} if version else None
    return {"driver": {**driver(OLD, **changes), "fabric_manager": manager}, "owners": {"fabric_manager": owner}}


@pytest.mark.parametrize(
    ("asked", "facts", "action", "word"),
    [
        (request(), bare(), "install", "has to have the driver's version"),
        (request(), bare(**fabric_manager(OLD, "nvidia")), "change", "has to have the driver's version"),
        (request(), bare(switches=False), "none", None),
        (request(), bare(switches=False, **fabric_manager(OLD, "nvidia")), "adopt", "nothing here needs it"),
        (request(driver=None), bare(**fabric_manager(OLD, "nvidia")), "adopt", None),
        (request(driver=None), bare(**fabric_manager(NEW, "nvidia")), "adopt", "the two work in one version only"),
        (request(driver=None), bare(**fabric_manager(None, "absent")), "none", "CUDA error 802"),
    ],
)
def test_the_fabric_manager_beside_its_driver(asked: Any, facts: Any, action: str, word: str | None) -> None:
    found = component({**asked, "pytorch": None, "disruption": "idle"}, facts, "fabric_manager")
    assert found["action"] == action
    assert bool(found["reasons"]) == bool(word) and (word or "") in " ".join(found["reasons"])


def bridge(said: bool | None) -> dict[str, Any]:
    return {"name": "mlx5_8", "vendor_id": "15b3", "link_layer": "InfiniBand", "state": "ACTIVE", "nvlink_bridge": said, "virtual_function": False}


@pytest.mark.parametrize(
    ("gpus", "virtual", "said", "led"),
    [
        (8, None, True, True),
        (8, None, None, True),
        # A physical board always has switches, whatever its adapters say.
        (8, None, False, True),
        # Guests have what was handed to them: the functions that lead the switches, or somebody else leads them.
        (8, "kvm", True, True),
        (2, "kvm", True, True),
        (8, "kvm", False, False),
        (8, "kvm", None, True),
        (2, "kvm", None, False),
    ],
)
def test_who_leads_the_switches_is_seen_at_the_adapters(gpus: int, virtual: str | None, said: bool | None, led: bool) -> None:
    facts = bare(gpus, B200, switches=False, host=host(virtualization=virtual), nics=[bridge(said)])
    packages = resolve(request(pytorch=None), facts)["packages"]["nvidia_driver"]
    assert ("nvlsm" in packages) == ("nvidia-fabricmanager" in packages) == led


def test_a_board_that_the_catalog_does_not_know_is_told_by_its_adapters() -> None:
    """The id is of Blackwell's range, and no row of the catalog says what links it."""
    facts = bare(8, "29ff", switches=False, nics=[bridge(True)])
    assert "nvlsm" in resolve(request(pytorch=None), facts)["packages"]["nvidia_driver"]
    assert "nvlsm" not in resolve(request(pytorch=None), {**facts, "nics": [bridge(None)]})["packages"]["nvidia_driver"]


def test_trays_of_a_rack_lead_no_switches() -> None:
    packages = resolve(request(pytorch=None), bare(4, GB200, switches=False, nics=[bridge(False)]))["packages"]["nvidia_driver"]
    assert "nvidia-imex" in packages and "nvlsm" not in packages


# ---- what must not depend on the driver


def test_a_child_group_that_overrides_the_driver_changes_no_other_component() -> None:
    facts = bare(owners={"cuda": "nvidia", "rdma": "doca"}, cuda=[{"version": "13.0.2"}])
    one, two = (resolve(request(driver=version), facts) for version in (NEW, OLD))
    mine = {"driver", "fabric_manager"}
    for name in set(one["components"]) - mine:
        assert json.dumps(one["components"][name]) == json.dumps(two["components"][name]), name
    for part in ("nccl", "pytorch", "platform"):
        assert json.dumps(one[part]) == json.dumps(two[part])
    rest = [[item for item in made["managed"] if item["role"] != "nvidia_driver"] for made in (one, two)]
    assert json.dumps(rest[0]) == json.dumps(rest[1])


def test_a_gpu_that_was_handed_away_is_nobodys_here() -> None:
    made = resolve(request(pytorch=None), {**bare(switches=False), "gpus": [gpu(0, kernel_driver="vfio-pci")]})
    assert made["components"]["driver"]["wanted"] is None and made["packages"] == {}
