# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _dkms, _driver
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from ansible_collections.gpu.fleet.plugins.modules import kernel_driver
from fixtures.module_run import ModuleRun
from fixtures.sysfs import Tree

VERSION = "580.178.04"
RUNNING = "6.1.0-40-amd64"
BUILT = f"/lib/modules/{RUNNING}/updates/dkms/nvidia.ko"
MODINFO = f"modinfo -F version {BUILT}"
UNITS = ["nvidia-fabricmanager.service", "nvidia-persistenced.service"]


class Kernel:
    """A host's files, with a modprobe and systemctl that act on them."""

    def __init__(self, folder: Path) -> None:
        self.tree = Tree(folder)
        self.calls: list[str] = []
        self.holders: list[dict[str, Any]] | None = []
        self.builds = VERSION
        self.dkms = self.forced = ""
        self.fails = ""
        self.tree.file("/proc/self/comm", "x")
        self.tree.file(f"/lib/modules/{RUNNING}/modules.dep", "updates/dkms/nvidia.ko:")

    def load(self, name: str, version: str) -> None:
        self.tree.file(f"/sys/module/{name}/version", version + "\n")

    def loaded(self) -> list[str]:
        return sorted(path.name for path in (self.tree.root / "sys/module").glob("*"))

    def run(self, words: tuple[str, ...], **_options: object) -> subprocess.CompletedProcess[str]:
        line = " ".join(words)
        self.calls.append(line)
        if line == self.fails:
            return subprocess.CompletedProcess(words, 1, "modprobe: FATAL: Module nvidia not found\n")
        if words[0] == "modinfo":
            return subprocess.CompletedProcess(words, 0, self.builds + "\n")
        if words[:2] == ("dkms", "autoinstall"):
            if not self.dkms:
                return subprocess.CompletedProcess(words, 11, "Bad return status for module build\n")
            self.builds = self.dkms
            self.tree.file(f"/lib/modules/{RUNNING}/modules.dep", "updates/dkms/nvidia.ko:")
        elif words[:2] == ("dkms", "install"):
            self.builds = self.forced
        elif words[:2] == ("modprobe", "-r"):
            (self.tree.root / "sys/module" / words[2] / "version").unlink()
            (self.tree.root / "sys/module" / words[2]).rmdir()
        elif words[0] == "modprobe":
            self.load(words[1].replace("-", "_"), self.builds)
        elif words[:2] == ("systemctl", "stop") and self.holders:
            self.holders = [entry for entry in self.holders if entry["unit"] != words[2]]
        return subprocess.CompletedProcess(words, 0, "")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(tmp_path)
    monkeypatch.setattr(kernel_driver, "System", lambda _root, seconds: System(str(tmp_path), seconds))
    monkeypatch.setattr(subprocess, "run", made.run)
    monkeypatch.setattr(_driver, "holders", lambda _system: made.holders)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(kernel_driver, capsys)


def holder(name: str, unit: str | None) -> dict[str, Any]:
    return {"pid": 77, "name": name, "unit": unit, "devices": ["/dev/nvidia0"]}


def test_load(run: ModuleRun, kernel: Kernel) -> None:
    predicted = run(check=True, version=VERSION)
    assert kernel.calls == []
    done = run(version=VERSION)
    assert done == predicted
    assert (done["changed"], done["version"]) == (True, VERSION)
    assert done["diff"] == {"before": "driver loaded: None\n", "after": f"driver loaded: {VERSION}\n"}
    assert kernel.calls == [MODINFO, "modprobe nvidia", "modprobe nvidia-uvm"]
    again = run(version=VERSION)
    assert (again["changed"], again["version"], len(kernel.calls)) == (False, VERSION, 3)


def test_services_that_failed_without_the_driver_may_start_at_once(run: ModuleRun, kernel: Kernel) -> None:
    run(version=VERSION, units=UNITS)
    assert kernel.calls[-3:] == ["modprobe nvidia-uvm", *(f"systemctl reset-failed {unit}*" for unit in UNITS)]
    run(version=VERSION, units=UNITS)
    assert len(kernel.calls) == 5


def test_a_part_that_the_kernel_did_not_load_by_itself_is_loaded(run: ModuleRun, kernel: Kernel) -> None:
    kernel.load("nvidia", VERSION)
    predicted = run(check=True, version=VERSION)
    assert run(version=VERSION) == predicted
    assert predicted["changed"] is True
    assert predicted["diff"] == {"before": f"driver loaded: {VERSION} without nvidia-uvm\n", "after": f"driver loaded: {VERSION}\n"}
    assert kernel.calls == ["modprobe nvidia-uvm"]
    assert run(version=VERSION)["changed"] is False


def test_another_version_is_never_replaced_by_loading(run: ModuleRun, kernel: Kernel) -> None:
    kernel.load("nvidia", "535.309.01")
    result = run(version=VERSION)
    assert result["msg"] == f"driver 535.309.01 is loaded and {VERSION} is wanted; unload it first"
    assert (result["version"], kernel.calls) == ("535.309.01", [])


def test_a_build_of_another_version_is_not_loaded(run: ModuleRun, kernel: Kernel) -> None:
    kernel.builds = "535.309.01"
    result = run(version=VERSION)
    assert result["msg"] == f"driver {VERSION} is installed, but for kernel {RUNNING} there is only 535.309.01"
    assert kernel.calls == [MODINFO]


@pytest.mark.parametrize("before", ["535.309.01", ""])
def test_a_missing_module_is_built(run: ModuleRun, kernel: Kernel, before: str) -> None:
    kernel.tree.file("/usr/sbin/dkms", "")
    kernel.builds, kernel.dkms = before, VERSION
    if not before:
        kernel.tree.file(f"/lib/modules/{RUNNING}/modules.dep", "kernel/other.ko:")
    assert run(version=VERSION)["version"] == VERSION
    asked = [MODINFO] if before else []
    assert kernel.calls == [*asked, f"dkms autoinstall -k {RUNNING}", MODINFO, "modprobe nvidia", "modprobe nvidia-uvm"]


def test_a_build_whose_file_is_the_other_flavours_is_installed_once_more(run: ModuleRun, kernel: Kernel) -> None:
    """dkms has put back what it took for the original, and calls the wanted one installed."""
    kernel.tree.file("/usr/sbin/dkms", "")
    kernel.tree.file(f"/var/lib/dkms/nvidia-open/{VERSION}/source/dkms.conf", "")
    kernel.tree.file("/var/lib/dkms/nvidia/535.309.01/source/dkms.conf", "")
    kernel.builds, kernel.dkms, kernel.forced = "535.309.01", "535.309.01", VERSION
    assert run(version=VERSION)["version"] == VERSION
    once = f"dkms install --force -m nvidia-open -v {VERSION} -k {RUNNING}"
    assert [call for call in kernel.calls if call.startswith("dkms")] == [f"dkms autoinstall -k {RUNNING}", once]


def test_a_build_that_fails_is_told_from_its_log(run: ModuleRun, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel.tree.file("/usr/sbin/dkms", "")
    kernel.tree.file(f"/lib/modules/{RUNNING}/modules.dep", "kernel/other.ko:")
    log = kernel.tree.file("/var/lib/dkms/nvidia/580.178.04/build/make.log", "CC nvidia.o\nnv.c:3:1: error: too few arguments\nmake: ***\n")
    os.utime(log, (time.time() + 5, time.time() + 5))
    monkeypatch.setattr(_dkms, "LOGS", f"{tmp_path}/var/lib/dkms/*/*/build/make.log")
    message = run(version=VERSION)["msg"]
    assert f"for kernel {RUNNING} there is no module of it" in message
    assert "Bad return status for module build" in message
    assert f"{log} says: nv.c:3:1: error: too few arguments" in message
    assert not [call for call in kernel.calls if call.startswith("modprobe")]


def test_the_kernels_refusal_is_passed_on(run: ModuleRun, kernel: Kernel) -> None:
    kernel.fails = "modprobe nvidia"
    result = run(version=VERSION)
    assert result["msg"] == "modprobe nvidia failed: modprobe: FATAL: Module nvidia not found"
    assert result["version"] is None


def test_unload_stops_services_and_takes_users_before_what_they_use(run: ModuleRun, kernel: Kernel) -> None:
    for name in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"):
        kernel.load(name, VERSION)
    kernel.tree.file("/usr/lib/systemd/system/nvidia-persistenced.service", "[Unit]")
    kernel.holders = [holder("nvidia-persiste", "nvidia-persistenced.service")]
    predicted = run(check=True, state="unloaded", units=UNITS)
    assert kernel.calls == []
    done = run(state="unloaded", units=UNITS)
    assert done == predicted
    assert (done["changed"], done["version"]) == (True, None)
    # The fabric manager was never installed on this host.
    assert kernel.calls == [
        "systemctl stop nvidia-persistenced.service",
        *("modprobe -r nvidia_drm", "modprobe -r nvidia_modeset", "modprobe -r nvidia_uvm", "modprobe -r nvidia"),
    ]
    assert kernel.loaded() == []
    assert run(state="unloaded", units=UNITS)["changed"] is False


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("unit", [None, "slurmstepd.scope", "nvidia-dcgm.service"])
def test_a_job_is_never_disturbed(run: ModuleRun, kernel: Kernel, check: bool, unit: str | None) -> None:
    kernel.load("nvidia", VERSION)
    kernel.holders = [holder("nvidia-persiste", UNITS[1]), holder("python3", unit)]
    result = run(check=check, state="unloaded", units=UNITS)
    assert result["msg"] == "the driver cannot be unloaded: python3 (77) has its devices open"
    assert (kernel.calls, kernel.loaded()) == ([], ["nvidia"])


@pytest.mark.parametrize("check", [True, False])
def test_who_cannot_look_does_not_unload(run: ModuleRun, kernel: Kernel, check: bool) -> None:
    kernel.load("nvidia", VERSION)
    kernel.holders = None
    result = run(check=check, state="unloaded", units=UNITS)
    assert "can be seen by root only" in result["msg"]
    assert kernel.calls == []


def test_a_module_that_will_not_go(run: ModuleRun, kernel: Kernel) -> None:
    kernel.load("nvidia", VERSION)
    kernel.fails = "modprobe -r nvidia"
    result = run(state="unloaded", units=UNITS)
    assert result["failed"] is True
    assert result["version"] == VERSION
