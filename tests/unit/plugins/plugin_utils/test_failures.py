# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public failures of tools like this one, as far as a plan prevents them; hosts on which they happen are in the other folders."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _verification
from fixtures.nodes import NEW, OLD, bare, host, installed, job, request, resolve, satisfied
from fixtures.stack import B200, H100, KERNEL, catalog, driver

UBUNTU = host("ubuntu", "24.04", python="3.12.3")
NOUVEAU = "/etc/modprobe.d/gpu-fleet-nouveau.conf"
META = re.compile(r"cuda(-.*)?|nvidia-(open|driver|headless)(-[0-9].*)?")
NEXT = "6.1.0-41-amd64"
ASKED = request(pytorch=None)


def names(made: dict[str, Any], kind: str) -> list[str]:
    return [item["id"] for item in made["managed"] if item["kind"] == kind]


def pinned(made: dict[str, Any]) -> dict[str, str]:
    """Return package -> version of all pins that the plan writes."""
    found: dict[str, str] = {}
    for item in made["managed"]:
        if item["id"].endswith("gpu-fleet-nvidia.pref"):
            for block in item["desired"]["content"].split("\n\n"):
                fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith("#"))
                found.update(dict.fromkeys(fields["Package"].split(), fields["Pin"].removeprefix("version ")))
    return found


# ---- A


def test_failure_01_a_module_that_is_not_its_user_space_is_a_state_of_its_own() -> None:
    """User space was moved under the loaded module: that is named, waits for consent, and is repaired by a reload."""
    moved = satisfied(ASKED, bare())
    moved["driver"] = driver(NEW, loaded={"version": OLD, "flavour": "open"})
    moved["managed"]["module:nvidia"] = {"version": OLD}
    waiting = resolve(ASKED, moved)
    assert waiting["components"]["driver"]["action"] == "repair" and waiting["consequences"]["reload"] is True
    assert [item["role"] for item in waiting["pending"]] == ["nvidia_driver"] and "nvidia_driver" not in waiting["todo"]
    assert resolve({**ASKED, "disruption": "idle"}, moved)["todo"] == ["nvidia_driver"]
    kept = resolve(request(driver=None, pytorch=None), moved)["components"]["driver"]["reasons"]
    assert f"its parts disagree: loaded {OLD}, on disk {NEW}, user space {NEW}" in kept


def test_failure_03_the_pins_hold_every_package_of_the_driver() -> None:
    """A pinned metapackage pins none of its dependencies: everything that has the driver's version is named, and no metapackage is."""
    for facts in (bare(), bare(host=UBUNTU), bare(device=B200), bare(host=host(architecture="aarch64"))):
        made = resolve(ASKED, facts)
        exact = {name: version for name, version in made["packages"]["nvidia_driver"].items() if version}
        assert pinned(made) == exact and set(exact) <= set(made["closure"]) and len(exact) > 8
        assert all(version.startswith(f"{NEW}-") for version in exact.values())


def test_failure_09_no_metapackage_of_cuda_is_ever_asked_for() -> None:
    """`cuda` and `cuda-drivers` mean whatever is newest, and push out what is there."""
    for platform, version in (("debian", "12"), ("debian", "13"), ("ubuntu", "20.04"), ("ubuntu", "22.04"), ("ubuntu", "24.04"), ("ubuntu", "26.04")):
        for branch in ("535", "570", "580", "595", "620"):
            made = resolve(request(driver=branch, pytorch=None), bare(host=host(platform, version)))
            asked = set(made.get("packages", {}).get("nvidia_driver", {}))
            assert not {name for name in asked if META.fullmatch(name)}


# ---- B


def test_failure_11_switches_bring_their_manager_and_its_state_is_looked_at() -> None:
    """By the switches and not by the model: the same GPUs without any need none."""
    made = resolve(ASKED, bare())
    assert "nvidia-fabricmanager" in made["packages"]["nvidia_driver"] and "nvidia-fabricmanager.service" in names(made, "unit")
    assert "nvidia-fabricmanager" not in resolve(ASKED, bare(switches=False))["packages"]["nvidia_driver"]
    kept = resolve(request(driver=None, pytorch=None), installed(owners={"fabric_manager": "absent"}))
    assert "CUDA error 802" in kept["components"]["fabric_manager"]["reasons"][0]


@pytest.mark.parametrize(
    ("fabric", "verdict"),
    [
        ({"state": "Completed", "status": "Success"}, "pass"),
        ({"state": "In Progress", "status": None}, "fail"),
        ({"state": "Completed", "status": "Insufficient Resources"}, "fail"),
        (None, "skip"),
    ],
)
def test_failure_11_the_fabric_is_a_gate(fabric: dict[str, Any] | None, verdict: str) -> None:
    """A manager that runs is not yet a fabric that lets the GPUs in."""
    gpus = [{"address": "0000:10:00.0", "fabric": {"state": "Completed", "status": "Success"}}, {"address": "0000:11:00.0", "fabric": fabric}]
    facts = {"gpus": gpus if fabric else gpus[1:], "driver": {"fabric_manager": {"version": NEW, "active": True}}}
    found = {one["id"]: one for one in _verification.node_checks(facts, {}, {})}["inventory.fabric"]
    assert found["verdict"] == verdict and ("0000:11:00.0" in found["evidence"]) == (verdict == "fail")


def test_failure_12_the_manager_has_the_drivers_version_or_there_is_no_driver() -> None:
    for asked, facts in ((ASKED, bare()), (request(driver=OLD, pytorch=None), bare()), (ASKED, bare(device=B200, host=UBUNTU))):
        made = resolve(asked, facts)
        version = made["components"]["driver"]["wanted"]["version"]
        assert made["lockstep"] and all(number.startswith(f"{version}-") for number in made["lockstep"].values())
        # One transaction moves both, and one pin holds both.
        assert made["lockstep"].items() <= made["packages"]["nvidia_driver"].items() and made["lockstep"].items() <= pinned(made).items()
    known = catalog()
    for rule in known["driver_companions"]["apt"]:
        del rule["fabric_manager"]
    assert resolve(ASKED, bare(), catalog=known)["refusal"]["rule"] == "driver.companion"
    stale = bare(driver={**driver(NEW, "distro"), "fabric_manager": {"version": OLD, "active": True}}, owners={"fabric_manager": "nvidia"})
    assert "the two work in one version only" in resolve(ASKED, stale)["components"]["fabric_manager"]["reasons"][0]


# The fabric manager's package by branch: with 580 apt's names lost their branch, and dnf's lost a hyphen.
MANAGERS = {
    ("debian12", 535): "nvidia-fabricmanager-535",
    ("debian12", 580): "nvidia-fabricmanager",
    ("debian13", 580): "nvidia-fabricmanager",
    ("ubuntu2404", 535): "nvidia-fabricmanager-535",
    ("ubuntu2404", 550): "nvidia-fabricmanager-550",
    ("ubuntu2404", 570): "nvidia-fabricmanager-570",
    ("ubuntu2404", 575): "nvidia-fabricmanager-575",
    ("ubuntu2404", 580): "nvidia-fabricmanager",
    ("ubuntu2404", 590): "nvidia-fabricmanager",
    ("ubuntu2404", 620): "nvidia-fabricmanager",
    ("ubuntu2604", 595): "nvidia-fabricmanager",
}


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("platform", "branch"), MANAGERS)
def test_failure_14_names_by_branch_platform_and_cpu(platform: str, branch: int, architecture: str) -> None:
    entry = catalog()["platforms"][platform]
    where = host(entry["distribution"], entry["version"], architecture=architecture)
    made = resolve(request(driver=str(branch), pytorch=None), bare(device=H100, host=where))
    assert list(made["lockstep"]) == [MANAGERS[platform, branch]]
    assert f"/{'sbsa' if architecture == 'aarch64' else 'x86_64'}/" in made["repositories"][0]["content"]


@pytest.mark.parametrize(
    ("branch", "manager", "nscq"),
    [
        (535, "nvidia-fabric-manager", "libnvidia-nscq-{branch}"),
        (575, "nvidia-fabric-manager", "libnvidia-nscq-{branch}"),
        (580, "nvidia-fabricmanager", "libnvidia-nscq"),
        (620, "nvidia-fabricmanager", "libnvidia-nscq"),
    ],
)
def test_failure_14_names_where_dnf_is(branch: int, manager: str, nscq: str) -> None:
    rule = next(rule for rule in catalog()["driver_companions"]["dnf"] if rule["branches"][0] <= branch <= rule["branches"][1])
    assert (rule["fabric_manager"], rule["nscq"]) == (manager, nscq)


# ---- C


def next_boot(module: str | None, kernel: str = NEXT, older_than: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """Return a host that is as planned but for what it would boot next."""
    after = satisfied(ASKED, bare())
    image = {"path": f"/boot/initrd.img-{kernel}", "older_than": list(older_than)}
    coming = {"kernel": kernel, "source": "/boot/grub/grub.cfg", "once": False, "module": module}
    kernels = {kernel: {"installed": True, "headers": False, "initramfs": image}}
    return {**after, "driver": {**after["driver"], "next_boot": coming, "kernels": kernels}, **changes}


@pytest.mark.parametrize(("module", "word"), [(None, "no module"), (OLD, f"only {OLD}")])
def test_failure_15_the_kernel_that_boots_next_has_the_module(module: str | None, word: str) -> None:
    """All packages are there and all is well, until the next boot."""
    made = resolve(ASKED, next_boot(module))
    assert made["differs"] == {"nvidia_driver": [f"kernel:{NEXT}"]} and made["todo"] == ["nvidia_driver"]
    assert made["components"]["driver"]["action"] == "repair" and made["consequences"]["reload"] is made["consequences"]["reboot"] is False
    assert f"the next boot is with kernel {NEXT}, for which there is {word}" in made["components"]["driver"]["reasons"]
    # It is built with that kernel's own headers, which are what was missing.
    assert made["transaction"]["kernels"] == sorted([KERNEL, NEXT])
    assert made["transaction"]["headers"][f"linux-headers-{NEXT}"] == f"/lib/modules/{NEXT}/build"
    assert resolve(ASKED, next_boot(NEW))["todo"] == []
    assert resolve(ASKED, next_boot(module, busy=job()))["todo"] == [], "no job's driver is touched for it"


def test_failure_17_the_image_to_boot_from_knows_that_nouveau_is_kept_out() -> None:
    """The file is in place; the image was made before it, and would bring nouveau back."""
    made = resolve(ASKED, next_boot(NEW, older_than=(NOUVEAU,)))
    assert made["differs"] == {"nvidia_driver": [f"initramfs:{NEXT}"]} and made["todo"] == ["nvidia_driver"] and made["pending"] == []
    assert any(f"initrd.img-{NEXT}, which is older than {NOUVEAU}" in reason for reason in made["components"]["driver"]["reasons"])
    assert resolve(ASKED, next_boot(NEW, older_than=("/etc/modprobe.d/site.conf",)))["todo"] == []
    # No job sees it happen.
    assert resolve(ASKED, next_boot(NEW, older_than=(NOUVEAU,), busy=job()))["todo"] == ["nvidia_driver"]


@pytest.mark.parametrize(("disruption", "waits"), [("never", True), ("drain", True), ("idle", False)])
def test_failure_17_nouveau_that_has_the_gpus_takes_a_reboot_and_consent(disruption: str, waits: bool) -> None:
    made = resolve({**ASKED, "disruption": disruption}, bare(driver=driver(nouveau_loaded=True)))
    assert made["consequences"]["reboot"] is True and NOUVEAU in names(made, "file")
    assert bool(made["pending"]) is waits and ("nvidia_driver" in made["todo"]) is not waits


def test_failure_18_a_host_whose_gpus_work_is_not_rebooted() -> None:
    """Whatever waits for a boot by itself, a newer kernel for one, is no reason of ours."""
    waiting = satisfied(ASKED, bare())
    waiting["driver"] = {**waiting["driver"], "reboot_reasons": [{"id": "newer_kernel", "seen": "x"}, {"id": "asked_by_packages", "seen": "y"}]}
    made = resolve({**ASKED, "disruption": "idle"}, waiting)
    assert (made["todo"], made["consequences"]["reboot"], made["pending"]) == ([], False, [])
    reload = resolve({**ASKED, "disruption": "idle"}, installed())
    assert reload["consequences"]["reload"] is True and reload["consequences"]["reboot"] is False


def test_failure_18_what_would_need_a_reboot_is_said_and_not_done() -> None:
    facts = copy.deepcopy(bare(driver=driver(nouveau_loaded=True)))
    (waiting,) = resolve(ASKED, facts)["pending"]
    assert "a reboot (about 600 s)" in waiting["reason"] and waiting["variable"] == "gpu_stack_disruption"
    assert waiting["value"] == {"seen": "never", "needed": "idle", "holders": []}
