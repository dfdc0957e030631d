# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver is changed, and what goes wrong on the way leaves the former one, the new one, or a host that says why it is neither.

Each test takes the host with whatever driver the one before has left at work, asks for the other one, and sees the whole of it: packages, pins,
module, libraries, services, and the settings of the GPUs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_change
from integration import harness
from integration.harness import footprint

from tools.common import CHECKOUT

from .conftest import CLOCKS, OLD, RECORD, SERVICES, Machine

HOLD_DPKG = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(600)"
PERSISTENCE = "nvidia-persistenced.service"


@pytest.fixture
def machine(host: Machine) -> Iterator[Machine]:
    """Give the host with a driver at work, whatever a test before has left."""
    assert host.now()
    yield host
    host.node.lab.fault("site", "ok")


def test_a_bare_host_gets_a_driver(host: Machine) -> None:
    assert host.node.run("ls", RECORD).returncode != 0
    done = host.change(OLD)
    assert done["rc"] == 0, done["msg"]
    assert done["changed"]
    assert done["record"]["status"] == "done"
    host.node("systemctl", "enable", "--now", *SERVICES)
    host.whole(OLD)
    host.compiled()


def test_somebody_sets_what_goes_with_the_driver(host: Machine) -> None:
    """From here on every test sees these settings before and after; that they go with the driver, test_45_settings shows."""
    smi = host.node
    smi("nvidia-smi", "-i", "0", "-pl", "600")
    smi("nvidia-smi", "-i", "2", "-c", "EXCLUSIVE_PROCESS")
    smi("nvidia-smi", "-i", "1", "-mig", "1")
    smi("nvidia-smi", "mig", "-i", "1", "-cgi", "14:4,9:0")
    smi("nvidia-smi", "mig", "-i", "1", "-gi", "1", "-cci", "0,1")
    (unit,) = re.findall(r"```ini\n(.*?)```", (CHECKOUT / "docs" / "transaction.md").read_text(), re.DOTALL)
    smi.lab.run("n1", f"cat >{CLOCKS}", unit)
    smi("systemctl", "enable", "--now", CLOCKS.rpartition("/")[2])
    host.shown = host.show()
    assert "1200 MHz" in host.shown and "600.00 W" in host.shown and "Exclusive_Process" in host.shown
    host.settings = _driver_change.settings(host.facts())
    assert len(host.settings) == 7


def test_a_second_run_finds_nothing_to_do(machine: Machine) -> None:
    before = footprint(machine.node.lab, "n1")
    done = machine.change(machine.now())
    assert (done["rc"], done["changed"], done["changes"]) == (0, False, [])
    assert footprint(machine.node.lab, "n1") == before


def test_another_version_takes_its_place(machine: Machine) -> None:
    version = machine.other()
    done = machine.change(version)
    assert done["rc"] == 0, done["msg"]
    machine.whole(version)
    assert {change["action"] for change in done["changes"]} == {"change"}
    machine.compiled()


def test_a_job_on_a_gpu_is_left_alone(machine: Machine) -> None:
    version = machine.now()
    machine.node.fault("hold-gpu", "3")
    before = footprint(machine.node.lab, "n1")
    done = machine.change(machine.other())
    after = footprint(machine.node.lab, "n1")
    machine.node.fault("release-gpu")
    assert done["rc"] != 0
    assert "hold-gpu" in done["msg"]
    assert (done["record"]["status"], done["record"]["failed_step"]) == ("rolled_back", "quiesce")
    assert after == before
    machine.whole(version)


@pytest.mark.parametrize("kind", ["gone", "half", "removed"])
def test_what_cannot_be_fetched_changes_nothing(machine: Machine, kind: str) -> None:
    version, wanted = machine.now(), machine.other()
    machine.node("sh", "-c", f"rm -f /var/cache/apt/archives/*.deb /var/lib/gpu_fleet/driver/packages/*{wanted}*")
    before = footprint(machine.node.lab, "n1")
    machine.node.lab.fault("site", kind, *{"half": ["path=*.deb"], "removed": [wanted]}.get(kind, []))
    done = machine.change(wanted)
    assert done["rc"] != 0
    assert wanted in done["msg"] or "apt-get" in done["msg"]
    assert footprint(machine.node.lab, "n1") == before
    assert machine.now() == version


def test_without_a_way_back_nothing_begins(machine: Machine) -> None:
    version = machine.now()
    machine.node("sh", "-c", "rm -f /var/cache/apt/archives/*.deb /var/lib/gpu_fleet/driver/packages/*.deb")
    machine.node.lab.fault("site", "removed", version)
    before = footprint(machine.node.lab, "n1")
    done = machine.change(machine.other())
    assert done["rc"] != 0
    assert "no way back" in done["msg"] and f"libcuda1 {version}-1" in done["msg"]
    assert footprint(machine.node.lab, "n1") == before


def test_a_module_that_cannot_be_built_gives_the_former_driver_back_also_when_it_is_gone_upstream(machine: Machine) -> None:
    version, wanted = machine.now(), machine.other()
    with machine.broken_build(wanted):
        machine.begin(wanted)
        machine.node.lab.fault("site", "removed", version)
        done = machine.change(wanted)
    assert done["rc"] != 0
    assert "no such function" in done["msg"], done["msg"]
    assert f"{version} is back" in done["msg"]
    assert done["record"]["status"] == "rolled_back"
    machine.whole(version)


def test_a_service_that_does_not_start_gives_the_former_driver_back(machine: Machine) -> None:
    version, wanted = machine.now(), machine.other()
    with machine.drop_in(PERSISTENCE, f"ExecStartPre=/bin/sh -c '! grep -q {wanted} /sys/module/nvidia/version'"):
        done = machine.change(wanted)
    assert (done["rc"], done["record"]["status"], done["record"]["failed_step"]) == (2, "rolled_back", "start")
    machine.whole(version)


def test_a_service_of_the_drivers_that_came_to_run_meanwhile_is_no_stranger(machine: Machine) -> None:
    """It did not run before, has a GPU open when the change turns around, and does not run afterwards."""
    node, version, wanted = machine.node, machine.now(), machine.other()
    unit = "[Service]\nExecStart=/bin/sh -c 'exec sleep infinity </dev/nvidia0'\n"
    node.lab.run("n1", "cat >/etc/systemd/system/dcgm.service", unit)
    come = f"ExecStartPost=/bin/sh -c '! grep -q {wanted} /sys/module/nvidia/version || (systemctl start dcgm && sleep 1 && false)'"
    with machine.drop_in(PERSISTENCE, come):
        done = machine.change(wanted, services=["dcgm.service", *SERVICES])
    assert (done["rc"], done["record"]["status"], done["record"]["failed_step"]) == (2, "rolled_back", "start"), done["msg"]
    machine.whole(version)
    assert node.run("systemctl", "is-active", "dcgm").stdout.strip() == "inactive"
    assert node.run("systemctl", "start", "dcgm").returncode == 0, "it was left masked"
    node("systemctl", "stop", "dcgm")
    node("rm", "/etc/systemd/system/dcgm.service")


def test_a_disk_that_is_full_in_the_middle_gives_the_former_driver_back(machine: Machine) -> None:
    version = machine.now()
    machine.node("mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", "/usr/src")
    done = machine.change(machine.other())
    machine.node("umount", "/usr/src")
    assert (done["rc"], done["record"]["status"], done["record"]["failed_step"]) == (2, "rolled_back", "packages")
    assert "No space left" in done["msg"]
    machine.whole(version)


def test_a_way_back_that_fails_too_is_said_and_the_next_run_mends_it(machine: Machine) -> None:
    version, wanted = machine.now(), machine.other()
    with machine.broken_build(version, wanted):
        done = machine.change(wanted)
    assert done["rc"] != 0
    assert "stands between two drivers" in done["msg"]
    assert "the way back failed at packages" in machine.record()["reason"]
    facts = machine.facts()["driver"]["transaction"]
    assert (facts["status"], facts["from"], facts["to"]) == ("needs_attention", version, wanted)
    # The plan of the next run sees no settings: there is no driver to ask.
    done = machine.change(wanted, settings=[], way_back="optional")
    assert done["rc"] == 0, done["msg"]
    machine.whole(wanted)


def test_a_way_back_takes_nothing_of_a_strangers_away(machine: Machine) -> None:
    """Somebody has installed a package meanwhile that needs the new version."""
    node, version, wanted = machine.node, machine.now(), machine.other()
    control = f"Package: trainer\nVersion: 1\nArchitecture: all\nMaintainer: n <n@example.org>\nDepends: libcuda1 (= {wanted}-1)\nDescription: x\n"
    node("mkdir", "-p", "/root/trainer/DEBIAN")
    node.lab.run("n1", "cat >/root/trainer/DEBIAN/control", control)
    node("dpkg-deb", "--build", "/root/trainer")
    come = f"ExecStartPre=/bin/sh -c '! grep -q {wanted} /sys/module/nvidia/version || (dpkg -i /root/trainer.deb && false)'"
    with machine.drop_in(PERSISTENCE, come):
        done = machine.change(wanted)
    assert (done["rc"], done["record"]["status"], done["record"]["failed_step"]) == (2, "needs_attention", "start")
    assert "it would also remove trainer" in done["msg"]
    assert node("dpkg-query", "-W", "-f", "${db:Status-Status}", "trainer") == "installed"
    done = machine.change(wanted, settings=[], way_back="optional")
    assert done["rc"] == 0, done["msg"]
    machine.whole(wanted)
    before = footprint(node.lab, "n1")
    asked = harness.play("playbooks/rollback_driver.yml", node.lab.name, extra={"gpu_stack_disruption": "idle"})
    assert asked.rc != 0 and "it would also remove trainer" in " ".join(asked.stdout.split())
    assert footprint(node.lab, "n1") == before and machine.now() != version
    node("dpkg", "--remove", "trainer")


def test_an_engine_that_is_killed_at_any_step_is_continued_by_the_next_run(machine: Machine) -> None:
    """Meanwhile another run of dpkg holds the lock for a while, and the site is gone for good."""
    wanted = machine.other()
    killed = []
    with machine.drop_in(PERSISTENCE, "ExecStartPre=/bin/sleep 2\nExecStopPost=/bin/sleep 5"):
        slow = [["sleep", "2"], *machine.settings]
        machine.node("systemd-run", "--unit=holds-dpkg", "--property=RuntimeMaxSec=20", "python3", "-c", HOLD_DPKG)
        machine.begin(wanted, settings=slow)
        machine.node.lab.fault("site", "gone")
        for step in ("quiesce", "packages", "start", "settings"):
            killed.append(machine.wait(step))
            machine.node("systemctl", "kill", "--signal=KILL", "gpu-fleet-driver.service")
            if step != "settings":
                machine.node("systemctl", "start", "gpu-fleet-driver.service")
        done = machine.change(wanted)
    assert killed == ["quiesce", "packages", "start", "settings"]
    assert done["rc"] == 0, done["msg"]
    assert (done["record"]["status"], done["record"]["reason"]) == ("done", None)
    machine.whole(wanted)


def test_a_host_that_loses_power_goes_on_by_itself(machine: Machine) -> None:
    wanted = machine.other()
    machine.begin(wanted)
    machine.wait("packages")
    machine.node.fault("unplug")
    machine.node.fault("plug")
    machine.node.settle()
    record = machine.settled()
    assert record["status"] == "done", json.dumps(record["history"][-5:])
    assert "resumed" in {entry["outcome"] for entry in record["history"]}
    machine.whole(wanted)


def test_a_change_by_reboot_waits_for_the_one_that_was_agreed_to(machine: Machine) -> None:
    version, wanted = machine.now(), machine.other()
    done = machine.change(wanted, reload=False, reboot=True)
    assert done["rc"] == 0, done["msg"]
    assert done["reboot"]
    assert done["record"]["waits_for"] == f"driver {version} (open) is loaded until the host boots"
    assert machine.now() == version
    machine.node.reboot()
    record = machine.settled()
    assert record["status"] == "done"
    assert machine.module(state="finished")["changed"] is False
    machine.whole(wanted)


def test_a_boot_starts_no_jobs_before_the_change_has_ended(machine: Machine) -> None:
    """Nor does the change wait for its own exporter, which runs in a container."""
    node, wanted = machine.node, machine.other()
    run = f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/cp {RECORD} /root/seen-by-%N\n[Install]\nWantedBy=multi-user.target\n"
    exporter = "nvidia-dcgm-exporter.service"
    units = {"slurmd.service": run, "docker.service": run, exporter: f"[Unit]\nRequires=docker.service\nAfter=docker.service\n{run}"}
    for name, text in units.items():
        node.lab.run("n1", f"cat >/etc/systemd/system/{name}", text)
    node("systemctl", "enable", "--now", *units)
    done = machine.change(wanted, reload=False, reboot=True, services=[exporter, *SERVICES])
    assert (done["rc"], done["reboot"]) == (0, True), done["msg"]
    # Long enough for everything else of the boot to be there first.
    with machine.drop_in(PERSISTENCE, "ExecStartPre=/bin/sleep 5"):
        node.reboot()
        assert machine.settled()["status"] == "done"
    for name in units:
        node("systemctl", "is-active", "--wait", name)
        assert json.loads(node("cat", f"/root/seen-by-{name.partition('.')[0]}"))["status"] == "done", name
    machine.whole(wanted)
    assert node.run("systemctl", "cat", "gpu-fleet-driver-gate.service").returncode != 0
    node("systemctl", "disable", "--now", *units)
    node("rm", *(f"/etc/systemd/system/{name}" for name in units))


def test_the_operator_goes_back_once_and_with_consent(machine: Machine) -> None:
    """By the playbook, to what the last change has replaced; the site that had it is gone."""
    lab, version, former = machine.node.lab, machine.now(), machine.other()
    lab.fault("site", "gone")
    before = footprint(lab, "n1")
    asked = harness.play("playbooks/rollback_driver.yml", lab.name)
    assert asked.rc != 0
    assert f"driver {former} is to come back in place of {version}, which needs a reload" in " ".join(asked.stdout.split())
    assert footprint(lab, "n1") == before
    done = harness.play("playbooks/rollback_driver.yml", lab.name, extra={"gpu_stack_disruption": "idle"})
    assert done.rc == 0, done.tail()
    machine.whole(former)
    before = footprint(lab, "n1")
    # Also without consent: nothing is to be done.
    again = harness.play("playbooks/rollback_driver.yml", lab.name)
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()
    assert "The former driver is back already" in " ".join(again.stdout.split())
    assert footprint(lab, "n1") == before
