# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of the driver is told of the host: kernels, services, consent, and the settings that the GPUs lose with the module."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _driver, _driver_steps, _transaction
from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_change, _driver_rollback, _plan_table
from fixtures.nodes import NEW, OLD, bare, installed, job, request, resolve, satisfied
from fixtures.stack import KERNEL, driver

GPU = "0000:10:00.0"
PIN = "/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
# As a GPU has it that nobody has set anything on.
UNSET: dict[str, Any] = {
    "mig": "disabled", "mig_geometry": [], "compute_mode": "Default", "persistence_mode": True, "power_limit_w": 700.0,
    "power_limit_requested_w": 700.0, "power_limit_default_w": 700.0, "accounting_mode": False,
    "application_clocks": {"graphics_mhz": 1980, "memory_mhz": 2619}, "application_clocks_default": {"graphics_mhz": 1980, "memory_mhz": 2619},
}  # fmt: skip


def whole(id_: int, profile: int, start: int, *inner: int) -> dict[str, Any]:
    """Return a GPU instance with compute instances of these profiles."""
    compute = [{"id": number, "profile": "", "profile_id": one, "start": 0, "size": 1} for number, one in enumerate(inner)]
    return {"id": id_, "profile": "", "profile_id": profile, "start": start, "size": 1, "compute_instances": compute}


def change(facts: dict[str, Any], **asked: Any) -> dict[str, Any]:
    made = resolve(request(**asked), facts)
    assert "refusal" not in made, made
    found: dict[str, Any] = made["transaction"]
    return found


def settings(**state: Any) -> list[list[str]]:
    """Return what the settings of a GPU become, without the words that name it."""
    facts = installed(driver=driver(OLD, persistence={"active": True}), volatile={GPU: {**UNSET, **state}})
    found: list[list[str]] = change(facts, disruption="idle")["settings"]
    assert all(GPU in command for command in found)
    return found


def smi(*words: str) -> list[str]:
    return ["nvidia-smi", "-i", GPU, *words]


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        ({}, []),
        ({"power_limit_w": 300.0, "power_limit_requested_w": 300.0}, [smi("-pl", "300")]),
        # The module as a whole allows less for now.
        ({"power_limit_w": 500.0}, []),
        ({"power_limit_w": 500.5, "power_limit_requested_w": None}, [smi("-pl", "500.5")]),
        ({"compute_mode": "Exclusive_Process"}, [smi("-c", "EXCLUSIVE_PROCESS")]),
        ({"compute_mode": None, "mig": None, "persistence_mode": None, "power_limit_w": None, "power_limit_requested_w": None}, []),
        ({"persistence_mode": False}, [smi("-pm", "0")]),
        ({"application_clocks": {"graphics_mhz": 1500, "memory_mhz": 2619}}, [smi("-ac", "2619,1500")]),
        ({"application_clocks": None, "application_clocks_default": None}, []),
        ({"accounting_mode": True}, [smi("-am", "1")]),
        ({"mig": "enabled"}, [smi("-mig", "1")]),
    ],
)
def test_only_what_somebody_set_is_set_again(state: dict[str, Any], commands: list[list[str]]) -> None:
    assert settings(**state) == commands


def test_a_gpu_is_divided_as_it_was_and_before_its_limits_are_set() -> None:
    geometry = [whole(5, 14, 4, 1), whole(1, 9, 0, 0, 0, 0), whole(9, 19, 6)]
    mig = ["nvidia-smi", "mig", "-i", GPU]
    assert settings(mig="enabled", mig_geometry=geometry, compute_mode="Prohibited") == [
        smi("-mig", "1"),
        # What a run that was cut off made is in the way.
        ["-", *mig, "-dci"],
        ["-", *mig, "-dgi"],
        [*mig, "-cgi", "9:0,14:4,19:6"],
        [*mig, "-gi", "1", "-cci", "0,0,0"],
        [*mig, "-gi", "5", "-cci", "1"],
        smi("-c", "PROHIBITED"),
    ]


def test_persistence_without_a_daemon_is_set_by_hand() -> None:
    facts = installed(driver=driver(OLD), volatile={GPU: UNSET})
    assert change(facts, disruption="idle")["settings"] == [smi("-pm", "1")]


def test_nothing_is_set_where_nothing_is_lost() -> None:
    facts = installed(NEW, volatile={GPU: {**UNSET, "power_limit_requested_w": 300.0}})
    assert change(facts, disruption="idle")["settings"] == []


def test_what_belongs_to_the_packages_goes_with_them() -> None:
    made = change(bare())
    assert list(made["files"]) == [PIN] and f"Pin: version {NEW}-1" in made["files"][PIN]


@pytest.mark.parametrize(
    ("next_boot", "kernels"),
    [(None, [KERNEL]), ({"kernel": None}, [KERNEL]), ({"kernel": KERNEL}, [KERNEL]), ({"kernel": "6.1.0-41-amd64"}, [KERNEL, "6.1.0-41-amd64"])],
)
def test_the_kernel_of_the_next_boot_gets_a_module_too(next_boot: Any, kernels: list[str]) -> None:
    made = change(bare(driver=driver(next_boot=next_boot)))
    assert made["kernels"] == kernels
    assert made["headers"] == {f"linux-headers-{name}": f"/lib/modules/{name}/build" for name in kernels}


@pytest.mark.parametrize(
    ("facts", "disruption", "reload", "reboot"),
    [
        (bare(), "never", False, False),
        (installed(), "never", True, False),
        # Who lets the driver be taken out lets the host be rebooted where it cannot be.
        (installed(), "idle", True, True),
        (bare(driver=driver(nouveau_loaded=True)), "never", False, True),
        (installed(NEW), "idle", False, False),
    ],
)
def test_the_consent_is_handed_on(facts: dict[str, Any], disruption: str, reload: bool, reboot: bool) -> None:
    made = change(facts, disruption=disruption)
    assert (made["reload"], made["reboot"]) == (reload, reboot)


def test_services_of_others_that_restart_are_told_before() -> None:
    holders: list[dict[str, Any]] = [{"pid": 7, "name": "x", "unit": unit, "devices": []} for unit in ("nvidia-dcgm.service", "job.service", None)]
    ours = ["nvidia-fabricmanager.service", "nvidia-persistenced.service"]
    made = resolve(request(disruption="idle"), installed(driver=driver(OLD, holders=holders)))
    assert made["consequences"]["restarts"] == ["nvidia-dcgm.service", *ours]


@pytest.mark.parametrize(("found", "needed"), [(driver(OLD), "required"), (driver(OLD, user_space=NEW), "optional"), (driver(), "optional")])
def test_a_working_driver_must_be_to_be_had_again(found: dict[str, Any], needed: str) -> None:
    assert change(bare(driver=found), disruption="idle")["way_back"] == needed


def test_packages_of_the_present_driver_may_go() -> None:
    packages = [{"name": name, "version": "1", "held": False} for name in ("nvidia-kernel-dkms", "libcuda1")]
    assert change(installed(driver=driver(OLD, packages=packages)))["may_remove"] == ["libcuda1", "nvidia-kernel-dkms"]
    assert change(installed(driver=driver(OLD, packages=None)))["may_remove"] == []


ARCHIVES = ["libcuda1", "nvidia-alternative", "nvidia-kernel-dkms", "nvidia-settings"]


def packages_of(*names: str, version: str = "535.309.01-0+deb12u1", **others: str) -> list[dict[str, Any]]:
    """Return packages as gpu_facts tells of them."""
    versions = {**dict.fromkeys(names, version), **others}
    return [{"name": name.replace("_", "-"), "version": number, "held": False} for name, number in versions.items()]


def test_another_suppliers_driver_goes_as_a_whole() -> None:
    """No dependency says that Debian's alternatives lead paths away from the vendor's files; what has no version of a driver stays."""
    facts = bare(driver=driver(OLD, "distro", packages=packages_of(*ARCHIVES, nvidia_support="20220217+3~deb12u1")))
    told = change(facts, takeover=["driver"], disruption="idle")
    assert (told["absent"], told["afresh"]) == (["nvidia-alternative", "nvidia-kernel-dkms", "nvidia-settings"], True)
    assert "libcuda1" in told["may_remove"]


def test_of_the_same_supplier_only_what_another_branch_is_named_in_goes() -> None:
    left = packages_of("libcuda1", "nvidia-firmware-535", "nvidia-settings", "libnvidia-gl-535", version="535.309.01-0ubuntu1")
    told = change(installed(OLD, driver=driver(OLD, packages=left)))
    assert (told["absent"], told["afresh"]) == (["nvidia-firmware-535"], False), "libnvidia-gl is none of ours"
    assert change(bare())["absent"] == [] and change(bare())["afresh"] is False
    image = bare(driver=driver(OLD, "image", packages=left))
    assert change(image, takeover=["driver"])["afresh"] is False, "an image's settings, of the fabric manager for one, are to stay"


def test_both_sides_mean_the_same() -> None:
    """The resolver may not ask the modules; what it says of them is theirs."""
    assert set(_driver_change.SERVICES) == set(_driver.OWN_UNITS)
    assert (*_transaction.UNFINISHED, _transaction.NEEDS_ATTENTION) == _driver_change.UNFINISHED
    assert _driver_change.MAY_FAIL == _driver_steps.MAY_FAIL


def record(status: str, **more: Any) -> dict[str, Any]:
    """Return what gpu_facts says of a change of driver."""
    found = {"id": "t", "status": status, "direction": "forward", "step": "build", "from": OLD, "to": NEW, "reason": None, "waits_for": None}
    return {**found, **more}


def planned(transaction: dict[str, Any], version: str = NEW, **asked: Any) -> dict[str, Any]:
    """Return the plan for a host that is as planned, but for its record."""
    facts = satisfied(request(driver=version), installed(version))
    facts["driver"]["transaction"] = transaction
    return resolve(request(**asked), facts)


@pytest.mark.parametrize("status", ["done", "rolled_back"])
def test_a_change_that_ended_leaves_a_host_as_planned_alone(status: str) -> None:
    """Whatever was wrong has been mended since."""
    made = planned(record(status, reason="build failed: x"))
    assert made["todo"] == [] and made["differs"] == {}
    assert "change of driver" not in " ".join(made["components"]["driver"]["reasons"])


def test_a_change_that_was_cut_off_is_finished_by_the_next_run() -> None:
    made = planned(record("running"))
    assert made["differs"]["nvidia_driver"] == ["transaction:driver"]
    assert made["todo"][0] == "nvidia_driver" and made["pending"] == []
    assert f"the change of driver from {OLD} to {NEW} is not finished (step build)" in made["components"]["driver"]["reasons"][-1]


@pytest.mark.parametrize(("disruption", "waits"), [("never", True), ("idle", False)])
def test_the_boot_that_a_change_waits_for_takes_consent(disruption: str, waits: bool) -> None:
    made = planned(record("waiting_for_reboot", waits_for=f"driver {OLD} (open) is loaded until the host boots"), disruption=disruption)
    assert made["consequences"]["reboot"] is True and made["transaction"]["reboot"] is True
    assert bool(made["pending"]) is waits and ("nvidia_driver" in made["todo"]) is not waits
    if waits:
        assert made["pending"][0]["reason"].endswith(f"waits for a boot: driver {OLD} (open) is loaded until the host boots")


def test_a_host_that_a_failed_way_back_left_is_seen_to_whatever_it_looks_like() -> None:
    """Its driver may be the wanted one; the services that ran and the settings of its GPUs are still owed."""
    assert planned(record("needs_attention", reason="x"))["todo"][0] == "nvidia_driver"


@pytest.mark.parametrize("disruption", ["never", "idle"])
def test_a_host_between_two_drivers_says_why_and_how_to_go_on(disruption: str) -> None:
    made = planned(record("needs_attention", reason="packages failed: no space left"), OLD, disruption=disruption)
    row = next(row for row in _plan_table.rows(made) if row[0] == "driver")
    assert "needs attention: packages failed: no space left; once that is mended, the next run finishes it" in row[-1]
    assert ("nvidia_driver" in made["todo"]) is (disruption == "idle")


def test_what_was_undone_says_why_before_it_is_tried_again() -> None:
    made = planned(record("rolled_back", reason="build failed: planted"), OLD, disruption="idle")
    assert made["components"]["driver"]["reasons"][-1] == f"the change of driver from {OLD} to {NEW} was undone: build failed: planted"
    assert "nvidia_driver" in made["todo"]


def test_a_driver_that_is_not_ours_shows_its_record_and_is_left() -> None:
    made = planned(record("running"), driver_source="preinstalled")
    assert "nvidia_driver" not in made["todo"]
    assert "is not finished" in made["components"]["driver"]["reasons"][-1]


@pytest.mark.parametrize(
    ("disruption", "busy", "says"),
    [
        ("idle", None, None),
        ("never", None, f"driver {OLD} is to come back in place of {NEW}, which needs a reload of the driver (about 30 s)"),
        ("idle", job(), f"driver {OLD} is to come back in place of {NEW}, but python (4711) holds the GPUs"),
    ],
)
def test_going_back_takes_the_same_consent(disruption: str, busy: Any, says: str | None) -> None:
    changes = {"busy": busy} if busy else {}
    volatile = {GPU: {**UNSET, "persistence_mode": False, "mig": "enabled"}}
    facts = installed(driver=driver(NEW, transaction=record("done")), volatile=volatile, **changes)
    made = _driver_rollback.plan(request(disruption=disruption), facts)
    assert (made["from"], made["to"], made["services"]) == (NEW, OLD, list(_driver_change.SERVICES))
    assert made["settings"] == [smi("-mig", "1")]
    assert [item["reason"][: len(says or "")] for item in made["pending"]] == ([says] if says else [])
    assert all("ansible-playbook gpu.fleet.rollback_driver --limit n1 -e gpu_stack_disruption=idle" in item["command"] for item in made["pending"])
    assert made["reload"] is made["reboot"] is (disruption == "idle")
