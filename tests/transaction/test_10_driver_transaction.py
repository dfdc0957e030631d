# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver is changed, and what goes wrong on the way leaves the former one, the new one, or a host that says why it is neither."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from integration.harness import footprint

from .conftest import RECORD, SERVICES, Machine

OLD, NEW = "580.159.04", "580.178.04"
LOGS_OUT = "/etc/systemd/system/nvidia-persistenced.service.d/planted.conf"


@pytest.fixture
def old(machine: Machine) -> Iterator[Machine]:
    """Give the host with the older driver at work, whatever a test before has left."""
    machine.node.lab.fault("site", "ok")
    done = machine.change(OLD)
    assert done["rc"] == 0, done["msg"]
    machine.node("systemctl", "enable", "--now", *SERVICES)
    machine.whole(OLD)
    yield machine
    machine.node.lab.fault("site", "ok")


def test_a_bare_host_gets_a_driver(machine: Machine) -> None:
    foreseen = machine.node.run("ls", RECORD)
    assert foreseen.returncode != 0
    done = machine.change(OLD)
    assert done["rc"] == 0, done["msg"]
    assert done["changed"]
    assert done["record"]["status"] == "done"
    machine.node("systemctl", "enable", "--now", *SERVICES)
    machine.whole(OLD)


def test_a_second_run_finds_nothing_to_do(old: Machine) -> None:
    before = footprint(old.node.lab, "n1")
    done = old.change(OLD)
    assert (done["rc"], done["changed"], done["changes"]) == (0, False, [])
    assert footprint(old.node.lab, "n1") == before


def test_another_version_takes_its_place_and_the_settings_stay(old: Machine) -> None:
    old.node("nvidia-smi", "-pl", "600")
    assert set(old.node("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader").splitlines()) == {"600.00 W"}
    done = old.change(NEW, settings=[["nvidia-smi", "-pl", "600"]])
    assert done["rc"] == 0, done["msg"]
    old.whole(NEW)
    assert set(old.node("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader").splitlines()) == {"600.00 W"}
    assert {change["action"] for change in done["changes"]} == {"change"}


def test_a_job_on_a_gpu_is_left_alone(old: Machine) -> None:
    old.node.fault("hold-gpu", "3")
    before = footprint(old.node.lab, "n1")
    done = old.change(NEW)
    after = footprint(old.node.lab, "n1")
    old.node.fault("release-gpu")
    assert done["rc"] != 0
    assert "hold-gpu" in done["msg"]
    assert (done["record"]["status"], done["record"]["failed_step"]) == ("rolled_back", "quiesce")
    assert after == before
    old.whole(OLD)


@pytest.mark.parametrize(("kind", "words"), [("gone", ()), ("half", ("path=*.deb",)), ("removed", (NEW,))])
def test_what_cannot_be_fetched_changes_nothing(old: Machine, kind: str, words: tuple[str, ...]) -> None:
    old.node("sh", "-c", "rm -f /var/cache/apt/archives/*.deb /var/lib/gpu_fleet/driver/packages/*178*")
    before = footprint(old.node.lab, "n1")
    old.node.lab.fault("site", kind, *words)
    done = old.change(NEW)
    assert done["rc"] != 0
    assert NEW in done["msg"] or "apt-get" in done["msg"]
    after = footprint(old.node.lab, "n1")
    assert set(after.pop("running")) ^ set(before.pop("running")) == set()
    assert after == before
    old.whole(OLD)


def test_the_way_back_is_there_when_the_old_version_is_gone_upstream(old: Machine) -> None:
    plant_build_failure(old)
    old.node.lab.fault("site", "removed", OLD)
    done = old.change(NEW)
    mend_build(old)
    assert (done["rc"], done["record"]["status"]) == (2, "rolled_back")
    old.whole(OLD)


def test_without_a_way_back_nothing_begins(old: Machine) -> None:
    old.node("sh", "-c", "rm -f /var/cache/apt/archives/*.deb /var/lib/gpu_fleet/driver/packages/*.deb")
    old.node.lab.fault("site", "removed", OLD)
    done = old.change(NEW)
    assert done["rc"] != 0
    assert "no way back" in done["msg"] and f"libcuda1 {OLD}-1" in done["msg"]
    old.whole(OLD)
    done = old.change(NEW, way_back="optional")
    assert done["rc"] == 0, done["msg"]
    old.whole(NEW)


def plant_build_failure(machine: Machine) -> None:
    """Let the build of the new version's module fail, as one against a kernel that it does not know does."""
    machine.node.lab.run("n1", f"cat >/etc/dkms/nvidia-{NEW}.conf", "MAKE[0]=\"sh -c 'echo planted.c:1: error: no such function >&2; exit 2'\"\n")


def mend_build(machine: Machine) -> None:
    machine.node("rm", f"/etc/dkms/nvidia-{NEW}.conf")


def test_a_module_that_cannot_be_built_gives_the_old_driver_back(old: Machine) -> None:
    plant_build_failure(old)
    done = old.change(NEW)
    mend_build(old)
    assert done["rc"] != 0
    assert "no such function" in done["msg"], done["msg"]
    assert f"{OLD} is back" in done["msg"]
    assert done["record"]["status"] == "rolled_back"
    old.whole(OLD)


def test_a_service_that_does_not_start_gives_the_old_driver_back(old: Machine) -> None:
    guard = f"[Service]\nExecStartPre=/bin/sh -c '! grep -q {NEW} /sys/module/nvidia/version'\n"
    old.node("mkdir", "-p", LOGS_OUT.rpartition("/")[0])
    old.node.lab.run("n1", f"cat >{LOGS_OUT}", guard)
    old.node("systemctl", "daemon-reload")
    done = old.change(NEW)
    old.node("rm", LOGS_OUT)
    old.node("systemctl", "daemon-reload")
    assert (done["rc"], done["record"]["status"], done["record"]["failed_step"]) == (2, "rolled_back", "start")
    old.whole(OLD)


def test_a_full_disk_is_said_and_the_next_run_mends_it(old: Machine) -> None:
    old.node("mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "/usr/src")
    done = old.change(NEW)
    assert done["rc"] != 0
    assert "space" in done["msg"]
    record = old.record()
    assert record["status"] == "needs_attention"
    assert "the way back failed" in record["reason"]
    old.node("umount", "/usr/src")
    done = old.change(OLD)
    assert done["rc"] == 0, done["msg"]
    old.whole(OLD)


def test_a_lock_of_dpkg_is_waited_for(old: Machine) -> None:
    hold = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(600)"
    old.node("systemd-run", "--unit=holds-dpkg", "--property=RuntimeMaxSec=8", "python3", "-c", hold)
    done = old.change(NEW)
    assert done["rc"] == 0, done["msg"]
    old.whole(NEW)


def begin(machine: Machine, version: str) -> None:
    """Start a transaction and come back at once; the module's patience is over, and the service goes on."""
    done = machine.change(version, wait=0)
    assert done["rc"] != 0
    assert "goes on" in done["msg"]


@pytest.mark.parametrize("step", ["unload", "packages", "load", "verify"])
def test_a_killed_engine_is_continued_by_the_next_run(old: Machine, step: str) -> None:
    begin(old, NEW)
    reached = old.wait("unload", "packages") if step in ("unload", "packages") else old.wait(step, "settings", "verify", "start")
    assert reached
    old.node("systemctl", "kill", "--signal=KILL", "gpu-fleet-driver.service")
    done = old.change(NEW)
    assert done["rc"] == 0, done["msg"]
    assert done["record"]["status"] == "done"
    old.whole(NEW)


def test_a_host_that_loses_power_goes_on_by_itself(old: Machine) -> None:
    begin(old, NEW)
    old.wait("packages")
    old.node.fault("unplug")
    old.node.fault("plug")
    old.node.settle()
    record = old.settled()
    assert record["status"] == "done", json.dumps(record["history"][-5:])
    assert "resumed" in {entry["outcome"] for entry in record["history"]}
    old.whole(NEW)


def test_a_held_module_waits_for_the_reboot_that_was_agreed_to(old: Machine) -> None:
    """The device is free, but the module cannot be taken out: something in the kernel uses it."""
    done = old.change(NEW, reload=False, reboot=True)
    assert done["rc"] == 0, done["msg"]
    assert done["reboot"]
    assert done["record"]["waits_for"] == f"driver {OLD} (open) is loaded until the host boots"
    assert old.node("cat", "/sys/module/nvidia/version").strip() == OLD
    old.node.reboot()
    record = old.settled()
    assert record["status"] == "done"
    assert old.module(state="finished")["changed"] is False
    old.whole(NEW)
