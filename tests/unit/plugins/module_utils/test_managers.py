# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of the driver asks of dnf: files of rpm, names of answers, and what goes back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _dnf, _dnf_back, _driver_steps, _lock_list, _locks, _managers, _transaction
from ansible_collections.gpu.fleet.plugins.module_utils._archives import digest
from ansible_collections.gpu.fleet.plugins.module_utils._rpm_archives import RpmArchives

CUDA = "3:580.178.04-1.el9"
DEVEL = "kernel-devel-6.1.0-57.el9"
HERE = [
    ("nvidia-modprobe", "3:580.159.04-1.el9", "580.159.04-1.el9.x86_64"),
    ("kernel-devel", "6.1.0-57.el9", "6.1.0-57.el9.x86_64"),
    ("kernel-devel", "6.1.0-58.el9", "6.1.0-58.el9.x86_64"),
    ("nvidia-driver-libs", CUDA, "580.178.04-1.el9.i686"),
]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_dnf, "installed", lambda: HERE)
    monkeypatch.setattr(_locks, "PATH", str(tmp_path / "versionlock.list"))


class Site:
    """What stands in for dnf where files are fetched."""

    def __init__(self, **offers: str) -> None:
        self.offers, self.asked = offers, []  # type: tuple[dict[str, str], list[dict[str, str]]]

    def collect(self, wanted: dict[str, str], folder: str) -> list[str]:
        """Fetch what there is."""
        self.asked.append(wanted)
        for name in wanted:
            if name in self.offers:
                Path(folder, self.offers[name]).write_bytes(name.encode())
        return [name for name in wanted if name not in self.offers]


@pytest.mark.parametrize(
    ("name", "version", "file"),
    [
        ("nvidia-modprobe", CUDA, "nvidia-modprobe-580.178.04-1.el9.x86_64.rpm"),
        ("nvidia-kmod-common", CUDA, "nvidia-kmod-common-580.178.04-1.el9.noarch.rpm"),
        (DEVEL, "6.1.0-57.el9", DEVEL + ".x86_64.rpm"),
        ("nvidia-driver-libs.i686", CUDA, "nvidia-driver-libs-580.178.04-1.el9.i686.rpm"),
    ],
)
def test_the_file_of_a_package(tmp_path: Path, name: str, version: str, file: str) -> None:
    (tmp_path / "nvidia-modprobe-libs-580.178.04-1.el9.x86_64.rpm").touch()
    store = RpmArchives(str(tmp_path))
    assert store.find(name, version) is None
    (tmp_path / file).touch()
    assert store.find(name, version) == str(tmp_path / file)
    assert store.find(name, version + "2") is None


def test_files_are_fetched_at_once_and_what_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_apt, "run", lambda words, _seconds: (int(Path(words[-1]).read_bytes() == b"half"), ""))
    store, site = RpmArchives(str(tmp_path / "store")), Site(new="new-2-1.x86_64.rpm", half="half-1-1.x86_64.rpm")
    os.makedirs(store.folder)
    Path(store.folder, "half-1-1.x86_64.rpm").write_bytes(b"half")
    (Path(store.folder) / "other-1-1.x86_64.rpm").write_bytes(b"x")
    sums, lost = store.have({"new": "2-1", "old": "1-1", "other": "1-1"}, site)  # type: ignore[arg-type]
    assert (sorted(sums), lost) == (["new-2-1.x86_64.rpm", "other-1-1.x86_64.rpm"], ["old 1-1"])
    assert site.asked == [{"new": "2-1", "old": "1-1"}]
    assert sums["new-2-1.x86_64.rpm"] == digest(os.path.join(store.folder, "new-2-1.x86_64.rpm"))
    store.have({"half": "1-1"}, site)  # type: ignore[arg-type]
    assert site.asked[-1] == {"half": "1-1"}, "what rpm cannot read is fetched anew"
    store.keep(sums)
    assert sorted(os.listdir(store.folder)) == sorted(sums)


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        ({DEVEL: "6.1.0-57.el9"}, False),
        ({"kernel-devel-6.1.0-59.el9": "6.1.0-59.el9"}, True),
        ({"kernel-devel-6.1.0-57.el9.x86_64": ""}, False),
        ({"nvidia-driver-libs.i686": CUDA}, False),
        ({"nvidia-modprobe": CUDA}, True),
        # Two versions of what can be there only once are what a killed rpm leaves.
        ({"kernel-devel": "6.1.0-57.el9"}, True),
    ],
)
def test_what_is_missing(wanted: dict[str, str], missing: bool) -> None:
    assert bool(_managers.DnfManager().missing(wanted)) is missing


def test_the_driver_that_comes_back_is_locked() -> None:
    packages = {"nvidia-modprobe": CUDA, "dkms": "3.0-1.el9", "kernel-devel-6.1.0-57.el9": "6.1.0-57.el9", "libnvidia-ml": CUDA}
    assert set(_managers.DnfManager().exact(packages)) == {"nvidia-modprobe", "libnvidia-ml"}
    assert _managers.AptManager().exact(packages) == {}


@pytest.mark.parametrize(("apt", "dnf", "kind"), [(True, True, "AptManager"), (False, True, "DnfManager"), (True, False, "AptManager")])
def test_whose_a_host_is(tmp_path: Path, apt: bool, dnf: bool, kind: str) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    for name, there in (("apt-get", apt), ("dnf", dnf)):
        if there:
            (tmp_path / "usr/bin" / name).touch()
    assert type(_managers.here(str(tmp_path))).__name__ == kind


class Exchanger(_managers.DnfManager):
    """dnf whose exchange is noted."""

    def __init__(self) -> None:
        self.done: list[tuple[list[str], list[str]]] = []
        self.failing = False

    def exchange(self, files: list[str], gone: list[str], _afresh: list[str] | None, _lock_timeout: int) -> None:
        self.done.append(([os.path.basename(path) for path in files], gone))
        if self.failing:
            raise _apt.Failed("rpm has said no")


def state(folder: Path, **more: Any) -> dict[str, Any]:
    sums = {path.name: digest(str(path)) for path in folder.glob("*.rpm")}
    return {"packages": {"nvidia-modprobe": CUDA}, "absent": [], "archives": sums, "files": {}, "locks": {}, **more}


def test_packages_go_with_their_locks_and_their_stream(tmp_path: Path) -> None:
    (tmp_path / "nvidia-modprobe-580.178.04-1.el9.x86_64.rpm").write_bytes(b"x")
    manager, stream = Exchanger(), str(tmp_path / "nvidia-driver.module")
    steps = _driver_steps.DriverSteps(RpmArchives(str(tmp_path)), manager)
    locks = {"nvidia-modprobe": _locks.line("nvidia-modprobe", CUDA)}
    wanted = state(tmp_path, locks=locks, files={stream: "580-open"}, absent=["nvidia-driver-libs.i686", DEVEL, "never-there"])
    before = state(tmp_path, packages={"nvidia-modprobe": "3:580.159.04-1.el9"}, files={stream: None})
    with pytest.raises(_transaction.StepFailed, match="not installed as asked: nvidia-modprobe"):
        steps.packages(wanted, before)
    assert manager.done == [(["nvidia-modprobe-580.178.04-1.el9.x86_64.rpm"], [DEVEL, "nvidia-driver-libs.i686"])]
    assert manager.locks() == locks and Path(stream).read_text() == "580-open"
    # Going back asks for nothing where nothing has come, and locks and stream are as they were.
    steps.packages(before, wanted)
    assert len(manager.done) == 1 and _lock_list.read() == "" and not Path(stream).exists()
    manager.failing = True
    with pytest.raises(_transaction.StepFailed, match="rpm has said no"):
        steps.packages(wanted, before)


def test_a_damaged_file_is_seen_before_the_exchange(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-modprobe-580.178.04-1.el9.x86_64.rpm"
    path.write_bytes(b"x")
    wanted = state(tmp_path)
    path.write_bytes(b"y")
    manager = Exchanger()
    with pytest.raises(_transaction.StepFailed, match="is damaged"):
        _driver_steps.DriverSteps(RpmArchives(str(tmp_path)), manager).packages(wanted, state(tmp_path))
    assert manager.done == []


def test_the_way_back_is_looked_at_on_a_copy_in_which_the_change_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "rpm"
    database.mkdir()
    (database / "rpmdb.sqlite").write_text("rows")
    store = tmp_path / "store"
    store.mkdir()
    for file in ("nvidia-modprobe-580.178.04-1.el9.x86_64.rpm", f"{DEVEL}.x86_64.rpm", "nvidia-modprobe-580.159.04-1.el9.x86_64.rpm"):
        (store / file).touch()
    ran: list[list[str]] = []
    asked: list[tuple[list[str], list[str], bool]] = []

    class Source:
        """What stands in for dnf."""

        def exchange(self, files: list[str], removed: list[str], dry: bool, root: str) -> None:
            """Keep what is asked."""
            assert Path(root + str(database), "rpmdb.sqlite").read_text() == "rows"
            asked.append(([os.path.basename(path) for path in files], removed, dry))

    def run(words: list[str], _seconds: int) -> tuple[int, str]:
        if "--eval" in words:
            return 0, f"{database}\n"
        ran.append([os.path.basename(word) for word in words])
        return (1, "no") if "broken" in words else (0, "")

    monkeypatch.setattr(_apt, "run", run)
    wanted = {"packages": {"nvidia-modprobe": CUDA, DEVEL: "6.1.0-57.el9"}, "absent": ["nvidia-driver-libs.i686", "never-there"]}
    before = {"archives": {"nvidia-modprobe-580.159.04-1.el9.x86_64.rpm": ""}, "absent": [DEVEL, "nvidia-driver-libs.i686", "elsewhere"]}
    _managers.DnfManager().foresee_back(RpmArchives(str(store)), wanted, before, Source())
    verbs = {next(word for word in words if word in ("--erase", "--install", "--upgrade")): words[-1] for words in ran}
    assert verbs == {
        "--erase": "nvidia-driver-libs.i686", "--install": f"{DEVEL}.x86_64.rpm", "--upgrade": "nvidia-modprobe-580.178.04-1.el9.x86_64.rpm",
    }  # fmt: skip
    assert all({"--justdb", "--noscripts", "--dbpath"} <= set(words) for words in ran)
    assert asked == [(["nvidia-modprobe-580.159.04-1.el9.x86_64.rpm"], [DEVEL], True)]
    with pytest.raises(_apt.Failed, match="rpm --erase broken failed: no"):
        _dnf_back.rpm("--erase", "broken")


def test_what_a_killed_rpm_has_left_comes_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [*HERE, ("nvidia-modprobe", CUDA, "580.178.04-1.el9.x86_64")]
    monkeypatch.setattr(_dnf, "installed", lambda: there)
    files = ["/x/nvidia-modprobe-580.178.04-1.el9.x86_64.rpm", f"/x/{DEVEL}.x86_64.rpm", "/x/other-1-1.x86_64.rpm"]
    assert _dnf_back.cut_off(files) == ["nvidia-modprobe-580.178.04-1.el9"]
    monkeypatch.setattr(_dnf, "installed", lambda: HERE)
    assert _dnf_back.cut_off(files) == []
