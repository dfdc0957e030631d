# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private, _apt_sources, _dkms, _download
from ansible_collections.gpu.fleet.plugins.modules import apt_packages
from fixtures.module_run import ModuleRun

SIMULATED = """Reading package lists...
Inst libcuda1 [535.309.01-1] (580.178.04-1 NVIDIA:1.0 [amd64]) []
Inst nvidia-driver-cuda (580.178.04-1 NVIDIA:1.0 [amd64])
Conf libcuda1 (580.178.04-1 NVIDIA:1.0 [amd64])
Conf nvidia-driver-cuda (580.178.04-1 NVIDIA:1.0 [amd64])
"""
CHANGES = [
    {"name": "libcuda1", "from": "535.309.01-1", "to": "580.178.04-1", "action": "change"},
    {"name": "nvidia-driver-cuda", "from": None, "to": "580.178.04-1", "action": "install"},
]
WANTED = {"libcuda1": "580.178.04-1", "nvidia-driver-cuda": "580.178.04-1"}
REPOSITORY = {
    "id": "vendor",
    "path": "/etc/apt/sources.list.d/vendor.sources",
    "content": "Types: deb\nURIs: http://site/\nSuites: /\nSigned-By: /etc/apt/keyrings/vendor.asc\n",
    "key_path": "/etc/apt/keyrings/vendor.asc",
    "key_url": "http://site/vendor.pub",
    "fingerprint": "A" * 40,
}


class Machine:
    """Programs in the place of apt-get and dpkg, which answer from files and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed({"libcuda1": "535.309.01-1"})
        self.says(SIMULATED)
        (folder / "after").write_text("".join(f"{name}\t{version}\tinstalled\n" for name, version in WANTED.items()))
        self.program("dpkg-query", f"cat {folder}/installed")
        self.program("dpkg", '[ "$3" = lt ] && [ "$2" != "$4" ] && [ "$(printf "%s\\n" "$2" "$4" | sort -V | head -n1)" = "$2" ]')
        self.program(
            "apt-get",
            f'for word; do printf "%s " "$word"; done >>{folder}/calls; echo >>{folder}/calls\n'
            f'case "$*" in\n  *--simulate*) cat {folder}/simulated;;\n  *install*) cat {folder}/after >{folder}/installed;;\nesac',
        )

    def program(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / name).chmod(0o755)

    def installed(self, packages: dict[str, str], state: str = "installed") -> None:
        (self.folder / "installed").write_text("".join(f"{name}\t{version}\t{state}\n" for name, version in packages.items()))

    def says(self, text: str) -> None:
        (self.folder / "simulated").write_text(text)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setitem(_apt.ENVIRONMENT, "PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(_apt, "JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setattr(_dkms, "LOGS", str(tmp_path / "dkms" / "*" / "*" / "build" / "make.log"))
    return Machine(folder)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(apt_packages, capsys)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Inst libcuda1 (580.178.04-1 NVIDIA:1.0 [amd64])", {"name": "libcuda1", "from": None, "to": "580.178.04-1", "action": "install"}),
        ("Inst libc6:i386 [2.36-9] (2.36-10 Debian:12 [i386]) []", {"name": "libc6", "from": "2.36-9", "to": "2.36-10", "action": "change"}),
        ("Inst g++ [4:12.2.0-3] (4:12.3.0-1 Debian:12 [amd64])", {"name": "g++", "from": "4:12.2.0-3", "to": "4:12.3.0-1", "action": "change"}),
        ("Remv nvidia-kernel-dkms [580.1-1] [libcuda1 ]", {"name": "nvidia-kernel-dkms", "from": "580.1-1", "to": None, "action": "remove"}),
        ("Purg old:amd64 [1]", {"name": "old", "from": "1", "to": None, "action": "remove"}),
        ("Conf libcuda1 (580.178.04-1 NVIDIA:1.0 [amd64])", None),
        ("0 upgraded, 0 newly installed, 0 to remove and 3 not upgraded.", None),
        ("  Inst indented (1 x [amd64])", None),
    ],
)
def test_reading_a_simulation(line: str, found: dict[str, Any] | None) -> None:
    assert _apt.parse(f"Building dependency tree...\n{line}\n") == ([found] if found else [])


def test_a_simulation_is_sorted_by_name() -> None:
    backwards = SIMULATED.splitlines()[::-1]
    assert _apt.parse("\n".join(backwards)) == CHANGES


def change(name: str, old: str | None, new: str | None) -> dict[str, Any]:
    return {"name": name, "from": old, "to": new, "action": "remove" if new is None else "change" if old else "install"}


@pytest.mark.parametrize(
    ("changes", "may_remove", "refusal"),
    [
        pytest.param([change("libcuda1", None, "2")], [], None, id="a new one"),
        pytest.param([change("libcuda1", "1", "2")], [], None, id="a newer one"),
        pytest.param([change("libcuda1", "3", "2")], [], None, id="a lower one that was asked for"),
        pytest.param([change("dependency", "1", "2")], [], None, id="a dependency goes up"),
        pytest.param([change("dependency", "2", "1")], [], "would lower dependency 2 -> 1", id="a dependency goes down"),
        pytest.param([change("any", "2", "1")], [], "would lower any 2 -> 1", id="asked for in any version, but not in a lower one"),
        pytest.param([change("slurmd", "1", None)], [], "would remove slurmd", id="a removal"),
        pytest.param([change("slurmd", "1", None)], ["slurmd"], None, id="an allowed removal"),
        pytest.param([change("a", "1", None), change("b", "1", None)], ["a"], "would remove b;", id="only one of two allowed"),
        pytest.param([change("linux-image-6.1.0-50-amd64", None, "6")], [], "kernel packages linux-image-6.1.0-50-amd64", id="a kernel"),
        pytest.param([change("linux-modules-6.8.0-1-generic", None, "6")], [], "kernel packages", id="a kernel's modules"),
        pytest.param([change("linux-headers-6.1.0-50-amd64", None, "6")], [], None, id="headers are no kernel"),
        pytest.param([change("linux-image-asked", None, "6")], [], None, id="a kernel that was asked for"),
        pytest.param([{**change("libcuda1", "1", "2"), "held": True}], [], None, id="one on hold that was asked for"),
        pytest.param([{**change("slurmd", "1", "2"), "held": True}], [], "would change slurmd, which are on hold", id="one on hold"),
        pytest.param([{**change("old", "1", None), "held": True}], ["old"], None, id="the removal of one on hold, where that is allowed"),
    ],
)
def test_what_is_refused(machine: Machine, changes: list[dict[str, Any]], may_remove: list[str], refusal: str | None) -> None:
    wanted = {"libcuda1": "2", "any": "", "linux-image-asked": "6"}
    if refusal is None:
        _apt.judge(changes, wanted, may_remove)
        return
    with pytest.raises(_apt.Failed, match="refused: the transaction would") as failed:
        _apt.judge(changes, wanted, may_remove)
    assert refusal in str(failed.value)


@pytest.mark.parametrize(
    ("present", "state", "missing"),
    [
        ({"libcuda1": "580.178.04-1", "nvidia-driver-cuda": "580.178.04-1"}, "installed", []),
        ({"libcuda1": "580.178.04-1", "nvidia-driver-cuda": "580.159.04-1"}, "installed", ["nvidia-driver-cuda"]),
        ({"libcuda1": "580.178.04-1"}, "installed", ["nvidia-driver-cuda"]),
        (WANTED, "half-configured", ["libcuda1", "nvidia-driver-cuda"]),
        (WANTED, "config-files", ["libcuda1", "nvidia-driver-cuda"]),
    ],
)
def test_what_is_missing(machine: Machine, present: dict[str, str], state: str, missing: list[str]) -> None:
    machine.installed(present, state)
    assert _apt.missing(WANTED) == missing


def test_any_version_will_do(machine: Machine) -> None:
    machine.installed({"dkms": "3"})
    assert _apt.missing({"dkms": "", "gcc": ""}) == ["gcc"]


def test_nothing_is_called_where_nothing_is_missing(run: ModuleRun, machine: Machine) -> None:
    machine.installed(WANTED)
    result = run(packages=WANTED)
    assert (result["changed"], result["changes"], machine.calls()) == (False, [], [])


def test_one_transaction_simulated_first(run: ModuleRun, machine: Machine) -> None:
    result = run(packages=WANTED, lock_timeout=7)
    assert (result["changed"], result["changes"]) == (True, CHANGES)
    assert result["diff"] == {"before": "libcuda1 535.309.01-1\n", "after": "libcuda1 580.178.04-1\nnvidia-driver-cuda 580.178.04-1\n"}
    update, simulation, install = machine.calls()
    assert " update " in update
    assert "APT::Update::Error-Mode=any" in update
    exact = "libcuda1=580.178.04-1 nvidia-driver-cuda=580.178.04-1 "
    assert "--simulate install" in simulation
    assert simulation.endswith(exact)
    assert install.endswith(exact)
    assert "--simulate" not in install
    assert "--force-confold" in install
    assert all("DPkg::Lock::Timeout=7" in call for call in machine.calls())
    assert run(packages=WANTED)["changed"] is False


def test_a_refused_transaction_is_not_made(run: ModuleRun, machine: Machine) -> None:
    machine.says(SIMULATED + "Remv slurmd [23.11]\n")
    result = run(packages=WANTED)
    assert result["failed"] is True
    assert "remove slurmd" in result["msg"]
    assert len(machine.calls()) == 2
    assert run(packages=WANTED, may_remove=["slurmd"])["changed"] is True


def test_an_install_that_only_said_it_worked(run: ModuleRun, machine: Machine) -> None:
    (machine.folder / "after").write_text("libcuda1\t580.178.04-1\tinstalled\nnvidia-driver-cuda\t580.178.04-1\thalf-configured\n")
    result = run(packages=WANTED)
    assert result["failed"] is True
    assert "not installed as asked: nvidia-driver-cuda" in result["msg"]


def test_what_is_on_hold_is_known(run: ModuleRun, machine: Machine) -> None:
    (machine.folder / "installed").write_text("libcuda1\t535.309.01-1\tinstalled\thold\n")
    assert [entry.get("held") for entry in run(packages=WANTED)["changes"]] == [True, None]


def test_apts_own_words_are_passed_on(run: ModuleRun, machine: Machine) -> None:
    machine.program("apt-get", "echo Hit:1 http://site; echo 'E: The repository is not signed.'; exit 100")
    result = run(packages=WANTED)
    assert result["msg"] == "apt-get update failed: E: The repository is not signed."


def test_a_host_without_apt(run: ModuleRun, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine.folder / "apt-get").unlink()
    (machine.folder / "dpkg-query").write_text("#!/bin/true\n")
    monkeypatch.setitem(_apt.ENVIRONMENT, "PATH", str(machine.folder))
    assert run(packages=WANTED)["msg"] == "apt-get is not on this host"


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "distribution.sources").write_text("Types: deb\n")
    (folder / "vendor.sources").write_text("an earlier one\n")
    monkeypatch.setattr(_apt_private, "LISTS", str(folder))
    return folder


def test_check_mode_asks_a_private_root(run: ModuleRun, machine: Machine, lists: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_download, "key", lambda _url, _fingerprint, _seconds: b"the key")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    repository = {**REPOSITORY, "path": f"{lists}/vendor.sources"}
    # What apt would find there is kept, as the root is gone when the module has ended.
    keep = f'case "$*" in *--simulate*) cat {machine.folder}/simulated; cp -r {tmp_path}/gpu-fleet-apt-* {tmp_path}/kept;; esac'
    machine.program("apt-get", f'echo "$*" >>{machine.folder}/calls\n{keep}')
    result = run(check=True, packages=WANTED, repository=repository)
    assert (result["changed"], result["changes"]) == (True, CHANGES)
    assert len(machine.calls()) == 2
    assert all(f"Dir::Etc::SourceParts={tmp_path}/gpu-fleet-apt-" in call and "Dir::State::Lists=" in call for call in machine.calls())
    kept = tmp_path / "kept"
    assert sorted(path.name for path in (kept / "sources").iterdir()) == ["distribution.sources", "vendor.sources"]
    source = (kept / "sources" / "vendor.sources").read_text()
    assert source.startswith("Types: deb\nURIs: http://site/\n")
    assert "/etc/apt/keyrings" not in source
    assert (kept / "vendor.asc").read_bytes() == b"the key"
    assert kept.stat().st_mode & 0o7777 == 0o755
    assert list(tmp_path.glob("gpu-fleet-apt-*")) == []
    assert (lists / "vendor.sources").read_text() == "an earlier one\n"
    assert _apt.missing(WANTED) == ["libcuda1", "nvidia-driver-cuda"]


def test_the_hosts_other_entries_for_the_repository_are_left_out(
    run: ModuleRun, machine: Machine, lists: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two entries with different keys would make apt refuse everything; by the time of the real run they are gone."""
    monkeypatch.setattr(_download, "key", lambda _url, _fingerprint, _seconds: b"the key")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (lists / "cuda.list").write_text("deb [signed-by=/usr/share/keyrings/cuda.gpg] http://site/repos/debian12/ /\n# theirs\n")
    main = tmp_path / "sources.list"
    main.write_text("deb http://site/repos/debian12 /\ndeb http://other/ /\n")
    monkeypatch.setattr(_apt_sources, "FILE", str(main))
    machine.program("apt-get", f'case "$*" in *--simulate*) cp -r {tmp_path}/gpu-fleet-apt-* {tmp_path}/kept;; esac')
    run(check=True, packages=WANTED, repository={**REPOSITORY, "path": f"{lists}/vendor.sources", "places": ["site/repos/"]})
    kept = tmp_path / "kept"
    assert (kept / "sources" / "cuda.list").read_text() == "# theirs\n"
    assert (kept / "sources.list").read_text() == "deb http://other/ /\n"


def test_a_key_that_is_not_the_vendors_ends_check_mode(
    run: ModuleRun, machine: Machine, lists: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_given: object) -> bytes:
        raise _download.Failed("not the key")

    monkeypatch.setattr(_download, "key", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run(check=True, packages=WANTED, repository={**REPOSITORY, "path": f"{lists}/vendor.sources"})
    assert (result["failed"], result["msg"], machine.calls()) == (True, "not the key", [])
    assert list(tmp_path.glob("gpu-fleet-apt-*")) == []


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("Get:1 x\nE: Unable to locate package y\n", "E: Unable to locate package y"),
        ("dpkg: error processing package z\nE: Sub-process failed\n", "dpkg: error processing package z | E: Sub-process failed"),
        (" a : Depends: b (= 2) but 1 is to be installed\n", " a : Depends: b (= 2) but 1 is to be installed"),
        ("nothing telling\n\nat all\n", "nothing telling | at all"),
        ("", ""),
    ],
)
def test_the_lines_that_tell(output: str, complaint: str) -> None:
    assert _apt.complaint(output) == complaint


def test_fetching_brings_the_packages_and_changes_nothing(run: ModuleRun, machine: Machine) -> None:
    (machine.folder / "after").write_text((machine.folder / "installed").read_text())
    assert run(packages=WANTED, fetch_only=True)["changed"] is False
    assert run(check=True, packages=WANTED, fetch_only=True)["changed"] is False
    update, simulation, fetch, *checked = machine.calls()
    assert " update " in update
    assert "--simulate install" in simulation
    assert "--download-only install" in fetch
    assert "--simulate" not in fetch
    assert not [call for call in checked if "--download-only" in call]


def test_a_fetch_that_would_be_refused_brings_nothing(run: ModuleRun, machine: Machine) -> None:
    machine.says(SIMULATED + "Remv slurmd [23.11]\n")
    assert "remove slurmd" in run(packages=WANTED, fetch_only=True)["msg"]
    assert not [call for call in machine.calls() if "--download-only" in call]


def test_lists_that_were_just_fetched_are_used(run: ModuleRun, machine: Machine) -> None:
    assert run(packages=WANTED, refresh=False)["changed"] is True
    assert not [call for call in machine.calls() if " update " in call]


def test_what_stands_there_already_needs_no_package(run: ModuleRun, machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    run(packages=WANTED, unless_present={"linux-headers-1": str(tmp_path / "build"), "linux-headers-2": str(tmp_path / "none")})
    assert machine.calls()[-1].endswith("linux-headers-2 nvidia-driver-cuda=580.178.04-1 ")
    assert "linux-headers-1" not in machine.calls()[-1]


def test_a_run_of_dpkg_that_was_cut_off_is_finished_first(run: ModuleRun, machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "0001").touch()
    busy = f'[ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; echo "dpkg frontend lock is locked"; exit 2; }}'
    order = f'echo dpkg "$@" >>{machine.folder}/calls; {busy}'
    # It ends badly, as packages do that are only half there; what counts is that its journal is settled.
    machine.program("dpkg", f'case "$*" in *--configure*) {order}; rm {tmp_path}/journal/0001; exit 1;; esac')
    assert run(check=True, packages=WANTED)["changed"] is True
    assert not [call for call in machine.calls() if call.startswith("dpkg")]
    assert run(packages=WANTED)["changed"] is True
    done = machine.calls()[2:]
    assert done[:2] == ["dpkg --force-confold --configure -a"] * 2
    assert " update " in done[2]


def test_a_dpkg_that_cannot_be_finished_is_told(run: ModuleRun, machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "0001").touch()
    machine.program("dpkg", "echo 'dpkg: error processing package x (--configure):'; exit 1")
    message = run(packages=WANTED)["msg"]
    assert message == "an earlier run of dpkg was cut off, and dpkg --configure -a failed (1): dpkg: error processing package x (--configure):"


def test_a_build_that_fails_inside_a_package_is_told_from_its_log(run: ModuleRun, machine: Machine, tmp_path: Path) -> None:
    old, new = (tmp_path / "dkms" / name / "1" / "build" / "make.log" for name in ("other", "nvidia"))
    for path in (old, new):
        path.parent.mkdir(parents=True)
    old.write_text("an old error: not ours\n")
    os.utime(old, (1, 1))
    fails = f"printf 'CC x.o\\nx.c:3: error: too few arguments\\n' >{new}; echo 'dpkg: error processing package nvidia-kernel-open-dkms'; exit 100"
    machine.program("apt-get", f'case "$*" in *--simulate*) cat {machine.folder}/simulated;; *install*) {fails};; esac')
    message = run(packages=WANTED)["msg"]
    assert "error processing package nvidia-kernel-open-dkms" in message
    assert message.endswith(f"{new} says: x.c:3: error: too few arguments")
