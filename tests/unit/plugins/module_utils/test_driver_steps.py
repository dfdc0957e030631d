# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of a driver transaction: package files, settings files, the states for both ways, and the program that the service runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import (
    _apt,
    _driver,
    _driver_prepare,
    _driver_steps,
    _engine,
    _kernel_driver,
    _modprobe,
    _pci,
    _record,
    _transaction,
    _units,
)
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives, digest
from ansible_collections.gpu.fleet.plugins.module_utils._driver_steps import DriverSteps, put
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import Refused, StepFailed
from fixtures.sysfs import Tree, eight_gpus

from tools.common import CHECKOUT

KERNEL = "6.1.0-40-amd64"
GONE = "E: Version '1.0' for 'old' was not found\n"


class Site:
    """apt-get and dpkg-deb as far as package files go: what the site offers, by NAME=VERSION, with its bytes."""

    def __init__(self) -> None:
        self.offers: dict[str, bytes] = {}
        self.says = GONE
        self.calls: list[list[str]] = []

    def download(self, words: list[str], folder: str) -> tuple[int, str]:
        self.calls.append(words)
        code = 0
        for word in words:
            name, _, version = word.partition("=")
            data = self.offers.get(word)
            if data is None:
                code = 100
                continue
            Path(folder, f"{name}_{version.replace(':', '%3a')}_amd64.deb").write_bytes(data)
        return code, self.says if code else ""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    def run(words: list[str], _seconds: int, **_more: Any) -> tuple[int, str]:
        assert words[:2] == ["dpkg-deb", "--fsys-tarfile"]
        return (2, "damaged") if Path(words[2]).read_bytes().startswith(b"bad") else (0, "")

    monkeypatch.setattr(_apt, "run", run)
    return Site()


class TestArchives:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Archives:
        return Archives(str(tmp_path / "packages"))

    def test_files_are_fetched_once(self, store: Archives, site: Site) -> None:
        site.offers = {"a=1:2.0-1": b"a", "b=1": b"b"}
        sums, lost = store.have({"a": "1:2.0-1", "b": "1"}, site)  # type: ignore[arg-type]
        assert lost == []
        assert sorted(sums) == ["a_1%3a2.0-1_amd64.deb", "b_1_amd64.deb"]
        assert sums["b_1_amd64.deb"] == digest(os.path.join(store.folder, "b_1_amd64.deb"))
        assert store.have({"a": "1:2.0-1", "b": "1"}, site)[0] == sums  # type: ignore[arg-type]
        assert site.calls == [["a=1:2.0-1", "b=1"]]

    def test_what_is_gone_is_named_and_the_rest_is_had(self, store: Archives, site: Site) -> None:
        site.offers = {"new=2": b"new"}
        sums, lost = store.have({"old": "1.0", "new": "2"}, site)  # type: ignore[arg-type]
        assert (sorted(sums), lost) == (["new_2_amd64.deb"], ["old 1.0"])

    def test_a_site_that_is_away_is_asked_once_and_not_for_every_file(self, store: Archives, site: Site) -> None:
        site.says = "E: Failed to fetch http://site/a.deb  Connection failed\n"
        with pytest.raises(_apt.Failed, match="Connection failed"):
            store.have({"a": "1", "b": "1"}, site)  # type: ignore[arg-type]
        assert len(site.calls) == 1

    def test_a_file_that_dpkg_cannot_read_is_fetched_anew(self, store: Archives, site: Site) -> None:
        os.makedirs(store.folder)
        Path(store.folder, "a_1_amd64.deb").write_bytes(b"bad")
        site.offers = {"a=1": b"good"}
        store.have({"a": "1"}, site)  # type: ignore[arg-type]
        assert Path(store.folder, "a_1_amd64.deb").read_bytes() == b"good"

    def test_a_site_that_fails_is_no_missing_version(self, store: Archives, site: Site) -> None:
        site.says = "E: Failed to fetch http://site/a.deb  Connection refused\n"
        with pytest.raises(_apt.Failed, match="Connection refused"):
            store.have({"a": "1"}, site)  # type: ignore[arg-type]

    def test_another_version_whose_name_begins_alike_is_not_taken(self, store: Archives, site: Site) -> None:
        site.offers = {"a=1.0": b"x"}
        store.have({"a": "1.0"}, site)  # type: ignore[arg-type]
        assert store.find("a", "1") is None
        assert store.find("a", "1.0-1") is None

    def test_damage_and_absence_are_found(self, store: Archives, site: Site) -> None:
        site.offers = {"a=1": b"a"}
        sums, _ = store.have({"a": "1"}, site)  # type: ignore[arg-type]
        store.check(sums)
        path = Path(store.folder, "a_1_amd64.deb")
        path.write_bytes(b"b")
        with pytest.raises(_apt.Failed, match="is damaged"):
            store.check(sums)
        path.unlink()
        with pytest.raises(_apt.Failed, match="is missing"):
            store.check(sums)

    def test_only_what_is_needed_is_kept(self, store: Archives, site: Site) -> None:
        site.offers = {"a=1": b"1", "a=2": b"2", "a=3": b"3"}
        sums = [store.have({"a": version}, site)[0] for version in "123"]  # type: ignore[arg-type]
        store.keep(sums[1], sums[2])
        assert sorted(os.listdir(store.folder)) == ["a_2_amd64.deb", "a_3_amd64.deb"]


class TestSettingsFiles:
    def test_written_whole_and_readable(self, tmp_path: Path) -> None:
        path = tmp_path / "etc" / "pin"
        put(str(path), "one\n")
        put(str(path), "two\n")
        assert path.read_text() == "two\n"
        assert path.stat().st_mode & 0o777 == 0o644
        assert os.listdir(path.parent) == ["pin"]

    def test_taken_away(self, tmp_path: Path) -> None:
        path = tmp_path / "pin"
        put(str(path), "x")
        put(str(path), None)
        put(str(path), None)
        assert not path.exists()

    def test_a_failed_write_leaves_the_old_file_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "pin"
        put(str(path), "old")

        def fsync(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="No space"):
            put(str(path), "new")
        assert os.listdir(tmp_path) == ["pin"]
        assert path.read_text() == "old"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A host with eight GPUs and driver 1 loaded, built for its kernel."""
    made = eight_gpus(Tree(tmp_path / "root"))
    made.file("/proc/sys/kernel/osrelease", KERNEL)
    made.file("/proc/sys/kernel/random/boot_id", "b1")
    made.file("/sys/module/nvidia/version", "1.0")
    made.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  1.0  Release")
    made.file(f"/lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko:")
    monkeypatch.setattr(_driver_prepare, "System", lambda _root, seconds: System(str(made.root), seconds))
    monkeypatch.setattr(_driver_steps, "System", lambda _root, seconds: System(str(made.root), seconds))
    monkeypatch.setattr(_kernel_driver, "call", lambda *words, **_: "1.0" if words[0] == "modinfo" else "")
    return made


REQUEST = {
    "version": "2.0", "flavour": "open", "kernels": [KERNEL, "6.1.0-41-amd64"], "packages": {"libcuda1": "2.0-1"}, "may_remove": ["older"],
    "absent": [], "afresh": False, "way_back": "required", "mode": "reload", "may_reboot": False, "settings": [],
}  # fmt: skip
CHANGES: list[dict[str, Any]] = [
    {"name": "libcuda1", "from": "1.0-1", "to": "2.0-1", "action": "change"},
    {"name": "more", "from": None, "to": "2.0-1", "action": "install"},
    {"name": "older", "from": "1.0-1", "to": None, "action": "remove"},
]


class TestStates:
    def test_both_ways_are_each_others_mirror(self, tree: Tree, tmp_path: Path) -> None:
        pin = tmp_path / "pin"
        pin.write_text("old pin")
        wanted, before = _driver_prepare.states({**REQUEST, "files": {str(pin): "new pin"}}, CHANGES, System(str(tree.root), 5))
        assert wanted["packages"] == {"libcuda1": "2.0-1", "more": "2.0-1"}
        assert wanted["absent"] == ["older"]
        assert before["packages"] == {"libcuda1": "1.0-1", "older": "1.0-1"}
        assert before["absent"] == ["more"]
        assert (wanted["files"], before["files"]) == ({str(pin): "new pin"}, {str(pin): "old pin"})
        assert (before["version"], before["flavour"]) == ("1.0", "open")
        assert wanted["gpus"] == 8
        # A kernel without a module needs one afterwards, and none on the way back.
        assert wanted["kernels"] == {KERNEL: False, "6.1.0-41-amd64": False}
        assert before["kernels"] == {KERNEL: False, "6.1.0-41-amd64": True}

    def test_where_another_way_back_has_failed_all_packages_are_asked_for_and_the_first_driver_is_behind(self) -> None:
        owed = {
            "wanted": {"packages": {"libcuda1": "2", "new": "2"}},
            "before": {
                "version": "1", "flavour": "open", "packages": {"libcuda1": "1", "older": "1"}, "absent": ["new"],
                "files": {"/pin": "one", "/other": "x"}, "holds": ["libcuda1", "older"], "kernels": {"k1": False, "k0": False},
            },
        }  # fmt: skip
        wanted = {"packages": {"libcuda1": "3", "firmware": "3", "extra": "3", "older": "3", "new": "3"}}
        # As a simulation sees the host now: the first change took "older" away and brought "new", and none of them has its module.
        before: dict[str, Any] = {
            "version": None, "flavour": None, "packages": {"libcuda1": "2", "new": "2", "firmware": "1"}, "absent": ["extra", "older"],
            "files": {"/pin": "two"}, "holds": ["libcuda1", "firmware"], "kernels": {"k1": True, "k2": True}, "gpus": 1,
        }  # fmt: skip
        _driver_prepare.instead_of(owed, {"packages": {"libcuda1": "3", "module": "3", "headers": ""}}, wanted, before)
        assert wanted["packages"]["module"] == "3" and "headers" not in wanted["packages"]
        # "module" and "headers" are there and in nobody's change: they stay.
        assert before == {
            "version": "1", "flavour": "open", "packages": {"libcuda1": "1", "older": "1", "firmware": "1"}, "files": {"/pin": "one"},
            "absent": ["extra", "new"], "holds": ["firmware", "libcuda1", "older"], "kernels": {"k1": False, "k2": True}, "gpus": 1,
        }  # fmt: skip

    @pytest.mark.parametrize(("seen", "handed", "counted"), [(8, 0, 8), (7, 0, 7), (None, 0, 8), (8, 2, 6)])
    def test_what_was_lost_before_is_not_asked_for(
        self, tree: Tree, monkeypatch: pytest.MonkeyPatch, seen: int | None, handed: int, counted: int
    ) -> None:
        """A GPU that has fallen off the bus keeps no host from its driver; those handed to virtual machines never were the driver's."""

        def call(*_words: str, **_options: Any) -> str:
            if seen is None:
                raise _kernel_driver.Refused("Driver/library version mismatch")
            return "\n".join(["GPU"] * seen)

        monkeypatch.setattr(_kernel_driver, "call", call)
        gpus = [{"device_id": "2330", "kernel_driver": "vfio-pci" if number < handed else "nvidia"} for number in range(8)]
        monkeypatch.setattr(_pci, "scan", lambda _system: {"gpus": gpus})
        assert _driver_prepare.countable(System(str(tree.root), 5)) == counted

    def test_what_somebody_wrote_into_anothers_settings_comes_back(self, tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Packages of another supplier go with their settings, and a way back brings what the operator had in them."""
        theirs = tmp_path / "nvidia.conf"
        theirs.write_text("options nvidia NVreg_A=1\n")
        monkeypatch.setattr(_apt, "edited", lambda names: [str(theirs)] if sorted(names) == ["libcuda1", "older"] else [])
        wanted, before = _driver_prepare.states({**REQUEST, "files": {}, "afresh": True}, CHANGES, System(str(tree.root), 5))
        assert (wanted["files"], before["files"]) == ({}, {str(theirs): "options nvidia NVreg_A=1\n"})
        assert wanted["afresh"] is before["afresh"] is True
        assert _driver_prepare.states({**REQUEST, "files": {}}, CHANGES, System(str(tree.root), 5))[1]["files"] == {}

    def test_the_page_describes_record_and_states(self, tree: Tree) -> None:
        text = (CHECKOUT / "docs" / "transaction.md").read_text()
        tables = {part[2:].split(" |")[0]: set(re.findall(r"^\| `(\w+)` \|", part, re.M)) for part in re.split(r"\n\n(?=\| )", text)[1:]}
        states = [{**state, "archives": {}} for state in _driver_prepare.states({**REQUEST, "files": {}}, CHANGES, System(str(tree.root), 5))]
        assert set(states[0]) == set(states[1]) == tables["field of a state"]
        assert set(_transaction.new("t", REQUEST, states[0], states[1], [])) == tables["field"]
        assert set(_transaction.STEPS) == tables["step"]
        assert f"schema {_record.SCHEMA}," in text

    def test_a_host_without_a_driver(self, tree: Tree) -> None:
        (tree.root / "sys/module/nvidia/version").unlink()
        (tree.root / "sys/module/nvidia").rmdir()
        (tree.root / f"lib/modules/{KERNEL}/modules.dep").write_text("")
        _, before = _driver_prepare.states({**REQUEST, "files": {"/nowhere/pin": "x"}}, [], System(str(tree.root), 5))
        assert (before["version"], before["files"]) == (None, {"/nowhere/pin": None})

    def test_a_disk_without_room_is_known_before(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.deb").write_bytes(b"x" * (1 << 20))
        state = {"archives": {"a.deb": ""}}
        _driver_prepare.room(str(tmp_path), state, str(tmp_path))
        monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((4096, 4096, 0, 0, 512, 0, 0, 0, 0, 255)))
        with pytest.raises(Refused, match=r"2 MiB free and the packages need some 4 MiB"):
            _driver_prepare.room(str(tmp_path), state, "/usr")


class TestSteps:
    @pytest.fixture
    def steps(self, tree: Tree) -> DriverSteps:
        assert (tree.root / "sys/module/nvidia").is_dir()
        return DriverSteps(Archives("/nowhere"))

    @pytest.mark.parametrize(
        ("version", "flavour", "stale"),
        [
            ("1.0", "open", None),
            ("1.0", None, None),
            ("1.0", "proprietary", "driver 1.0 (open)"),
            ("2.0", "open", "driver 1.0 (open)"),
            (None, None, "driver 1.0 (open)"),
        ],
    )
    def test_what_is_loaded_is_held_against_the_state(self, steps: DriverSteps, version: str | None, flavour: str | None, stale: str | None) -> None:
        assert steps.stale({"version": version, "flavour": flavour}) == stale

    def test_nouveau_is_in_the_way_of_a_driver_only(self, steps: DriverSteps, tree: Tree) -> None:
        (tree.root / "sys/module/nvidia/version").unlink()
        (tree.root / "sys/module/nvidia").rmdir()
        tree.file("/sys/module/nouveau/refcnt", "1")
        assert steps.stale({"version": "2.0", "flavour": "open"}) == "nouveau"
        assert steps.stale({"version": None}) is None

    @pytest.mark.parametrize(("bound", "stale"), [([], None), (["0000:18:00.0"], "nova_core")])
    def test_another_driver_is_in_the_way_where_it_has_a_gpu(
        self, steps: DriverSteps, monkeypatch: pytest.MonkeyPatch, bound: list[str], stale: str | None
    ) -> None:
        monkeypatch.setattr(_modprobe, "rivals", lambda _system: [{"module": "nova_core", "bound": bound}])
        assert steps.stale({"version": "1.0", "flavour": "open"}) == stale

    def test_a_kernel_that_may_lack_its_module_is_tried_and_forgiven(self, steps: DriverSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        tried = []

        def have(_version: str, _system: System, kernel: str) -> None:
            tried.append(kernel)
            raise _kernel_driver.Refused("no module")

        monkeypatch.setattr(_kernel_driver, "have_module", have)
        steps.build({"version": "1.0", "kernels": {"k2": True}})
        with pytest.raises(StepFailed, match="no module"):
            steps.build({"version": "1.0", "kernels": {"k1": False}})
        assert tried == ["k2", "k1"]
        steps.build({"version": None, "kernels": {"k1": False}})
        assert tried == ["k2", "k1"]

    @pytest.mark.parametrize(
        ("state", "says"),
        [
            ({"version": "1.0"}, None),
            ({"version": "2.0"}, "driver 2.0 is wanted, but there is: loaded 1.0, on disk 1.0, user space 1.0"),
            ({"version": None}, "driver 1.0 is still loaded"),
            ({"version": "1.0", "gpus": 8}, "nvidia-smi sees 1 GPUs, and the PCI bus has 8"),
            ({"version": "1.0", "gpus": 1}, None),
        ],
    )
    def test_the_result_is_looked_at(
        self, steps: DriverSteps, tree: Tree, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], says: str | None
    ) -> None:
        tree.file("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1.0", "")
        monkeypatch.setattr(_driver, "user_space", lambda _system: "1.0")
        monkeypatch.setattr(_kernel_driver, "call", lambda *words, **_: "1.0" if words[0] == "modinfo" else "GPU-1")
        if says is None:
            steps.verify(state)
            return
        with pytest.raises(StepFailed) as failed:
            steps.verify(state)
        assert str(failed.value) == says

    def test_what_came_back_without_its_hold_is_put_on_hold(self, steps: DriverSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        """A package that a change takes away loses its mark with it."""
        told = "libcuda1 1 installed install,zstd 1 installed install,firmware 1 installed hold,gone 1 config-files deinstall"
        monkeypatch.setattr(_apt, "rows", lambda: [line.split(" ") for line in told.split(",")])
        marks: list[dict[str, bool]] = []
        monkeypatch.setattr(_apt, "select", lambda held, _seconds: marks.append(held))
        assert _apt.held(["libcuda1", "firmware", "gone"]) == ["firmware"]
        steps.hold({"holds": ["libcuda1", "firmware", "gone"]})
        steps.hold({"holds": ["firmware"]})
        steps.hold({})
        assert marks == [{"libcuda1": True}]

    def test_who_holds_a_gpu_is_named(self, steps: DriverSteps, tree: Tree) -> None:
        tree.file("/dev/nvidia0", "")
        (tree.root / "proc/77/fd").mkdir(parents=True)
        (tree.root / "proc/77/fd/3").symlink_to("/dev/nvidia0")
        tree.file("/proc/77/comm", "python3")
        tree.file("/proc/77/cgroup", "0::/system.slice/slurmstepd.scope")
        with pytest.raises(StepFailed, match=r"python3 \(77\) has the GPUs open"):
            steps.quiesce([])

    def test_services_start_in_the_order_that_is_the_other_way_round(self, steps: DriverSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[str] = []
        monkeypatch.setattr(_kernel_driver, "call", lambda *words, **_: calls.append(" ".join(words)))
        steps.quiesce(["users", "used"])
        steps.start({"version": "1.0"}, ["users", "used"], ["users", "used"])
        assert [call for call in calls if "mask" not in call and "reset-failed" not in call and " show " not in call] == [
            "systemctl stop users", "systemctl stop used", "systemctl start used", "systemctl start users",
        ]  # fmt: skip

    def test_a_service_of_the_drivers_that_runs_only_since_is_no_stranger_and_does_not_run_afterwards(
        self, steps: DriverSteps, tree: Tree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A boot, or a script of a package, has started it; one that was never installed is not asked to stop."""
        tree.file("/dev/nvidia0", "")
        (tree.root / "proc/77/fd").mkdir(parents=True)
        (tree.root / "proc/77/fd/3").symlink_to("/dev/nvidia0")
        tree.file("/proc/77/comm", "nv-hostengine")
        tree.file("/proc/77/cgroup", "0::/system.slice/dcgm.service")
        calls: list[str] = []

        def call(*words: str, **_: Any) -> str:
            calls.append(" ".join(words))
            if words[1] == "stop":
                (tree.root / "proc/77/fd/3").unlink(missing_ok=True)
            return f"LoadState={'not-found' if words[-1] == 'none' else 'loaded'}" if words[1] == "show" else ""

        monkeypatch.setattr(_kernel_driver, "call", call)
        steps.quiesce(["none", "dcgm.service", "used"])
        steps.start({"version": "1.0"}, ["used"], ["none", "dcgm.service", "used"])
        assert [call for call in calls if "none" in call and " show " not in call] == ["systemctl --quiet unmask --runtime none"]
        assert [call.split()[-2:] for call in calls if "dcgm" in call and " show " not in call] == [
            ["stop", "dcgm.service"], ["--runtime", "dcgm.service"], ["--runtime", "dcgm.service"],
        ]  # fmt: skip
        assert calls[-1] == "systemctl start used"

    def test_a_service_that_another_one_starts_again_is_stopped_again(self, steps: DriverSteps, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that fails and is tried again by systemd brings along what it had started, until it is stopped itself."""
        tree.file("/dev/nvidia0", "")
        tree.file("/proc/77/comm", "nv-hostengine")
        tree.file("/proc/77/cgroup", "0::/system.slice/dcgm.service")
        opened = tree.root / "proc/77/fd/3"
        opened.parent.mkdir()
        opened.symlink_to("/dev/nvidia0")
        stopped: list[str] = []

        def call(*words: str, **_: Any) -> str:
            if words[1] == "stop":
                stopped.append(words[2])
                opened.unlink(missing_ok=True)
                if stopped == ["dcgm.service", "used"]:
                    opened.symlink_to("/dev/nvidia0")
            return ""

        monkeypatch.setattr(_kernel_driver, "call", call)
        steps.quiesce(["dcgm.service", "used"])
        assert stopped == ["dcgm.service", "used", "dcgm.service"] and not opened.is_symlink()

    @pytest.mark.parametrize("version", ["1.0", None])
    def test_no_script_of_a_package_starts_a_service_in_between(
        self, steps: DriverSteps, monkeypatch: pytest.MonkeyPatch, version: str | None
    ) -> None:
        """Not even where the host ends without a driver is a service left forbidden."""
        calls: list[str] = []
        monkeypatch.setattr(_kernel_driver, "call", lambda *words, **_: calls.append(" ".join(words)))
        steps.quiesce(["used"])
        assert calls[1:] == ["systemctl stop used", "systemctl --quiet mask --runtime used"]
        steps.start({"version": version}, ["used"], ["used"])
        assert calls[3] == "systemctl --quiet unmask --runtime used"
        assert ("systemctl start used" in calls) is bool(version)

    def test_a_setting_after_a_dash_may_fail_and_no_other(self, steps: DriverSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[str, ...]] = []

        def call(*words: str, **_options: Any) -> str:
            calls.append(words)
            raise _kernel_driver.Refused("No GPU instances found")

        monkeypatch.setattr(_kernel_driver, "call", call)
        with pytest.raises(StepFailed, match="No GPU instances found"):
            steps.settings([["-", "nvidia-smi", "mig", "-dgi"], ["nvidia-smi", "-pl", "600"], ["never"]])
        assert calls == [("nvidia-smi", "mig", "-dgi"), ("nvidia-smi", "-pl", "600")]

    def test_settings_are_for_a_driver_that_is_loaded(self, steps: DriverSteps, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[str, ...]] = []
        monkeypatch.setattr(_kernel_driver, "call", lambda *words, **_: calls.append(words))
        steps.settings([["nvidia-smi", "-pl", "600"]])
        assert calls == [("nvidia-smi", "-pl", "600")]
        (tree.root / "sys/module/nvidia/version").unlink()
        (tree.root / "sys/module/nvidia").rmdir()
        steps.settings([["nvidia-smi", "-pl", "600"]])
        assert len(calls) == 1


class TestEngine:
    def test_the_program_runs_by_itself(self, tmp_path: Path) -> None:
        """Nothing of Ansible and nothing of this checkout is needed: on the host there is a Python, and that file."""
        _engine.write_engine(str(tmp_path))
        script = f"import sys; sys.path[:0] = [{str(tmp_path / 'engine.zip')!r}]; from {_engine.PACKAGE} import _engine; print(_engine.__file__)"
        done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(tmp_path / "engine.zip"))
        with zipfile.ZipFile(tmp_path / "engine.zip") as program:
            assert program.read("__main__.py").decode() == f"from {_engine.PACKAGE} import _engine\n_engine.main()\n"

    def test_it_is_written_as_a_whole(self, tmp_path: Path) -> None:
        _engine.write_engine(str(tmp_path))
        first = (tmp_path / "engine.zip").read_bytes()
        _engine.write_engine(str(tmp_path))
        assert (tmp_path / "engine.zip").read_bytes() == first
        assert os.listdir(tmp_path) == ["engine.zip"]

    def test_both_units_come_and_go_together(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[str, ...]] = []
        monkeypatch.setattr(_engine, "FOLDER", str(tmp_path))
        monkeypatch.setattr(_engine, "systemctl", lambda *words: calls.append(words))
        _engine.remove()
        assert calls == []
        (tmp_path / "state").mkdir()
        _engine.install(str(tmp_path / "state"))
        assert sorted(os.listdir(tmp_path)) == [_units.GATE, _engine.UNIT, "state"]
        gate = (tmp_path / _units.GATE).read_text()
        before = re.findall(r"^Before=(.*)$", gate, re.M)[0].split()
        assert {"slurmd.service", "docker.service", "kubelet.service"} <= set(before)
        # What the change itself starts must not wait for its end.
        assert not set(before) & set(_driver.OWN_UNITS)
        _engine.remove()
        assert os.listdir(tmp_path) == ["state"]
        assert calls == [("daemon-reload",), ("enable", _engine.UNIT, _units.GATE), ("disable", _units.GATE, _engine.UNIT), ("daemon-reload",)]

    @pytest.mark.parametrize(
        ("gate", "job", "asked"),
        [
            pytest.param("activating", "7 exporter.service start waiting", 1, id="held back by the gate"),
            pytest.param("activating", "7 exporter.service start running", 2, id="slow"),
            pytest.param("activating", "7 other.service start waiting", 2, id="another one is held back"),
            pytest.param("inactive", "7 exporter.service start waiting", 2, id="no boot"),
        ],
    )
    def test_a_service_that_waits_for_the_end_is_not_waited_for(self, monkeypatch: pytest.MonkeyPatch, gate: str, job: str, asked: int) -> None:
        starts = []

        def call(*words: str, seconds: int = 120) -> str:
            if words[1] == "start":
                starts.append(seconds)
                if len(starts) == 1:
                    raise subprocess.TimeoutExpired(words, seconds)
            return f"ActiveState={gate}" if words[1] == "show" else job

        monkeypatch.setattr(_kernel_driver, "call", call)
        _units.start("exporter.service")
        assert len(starts) == asked
