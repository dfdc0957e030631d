# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _dnf, _dnf_worker, _download
from ansible_collections.gpu.fleet.plugins.modules import dnf_packages, dnf_repository_info
from fixtures.module_run import ModuleRun

CUDA = "3:580.178.04-1.el9"
WANTED = {"nvidia-driver-cuda": CUDA, "nvidia-modprobe": CUDA}
CHANGES: list[dict[str, Any]] = [
    {"name": "nvidia-driver-cuda", "from": None, "to": CUDA, "action": "install", "lower": False, "package": "nvidia-driver-cuda"},
    {"name": "nvidia-modprobe", "from": "3:570.195.03-1.el9", "to": CUDA, "action": "change", "lower": False, "package": "nvidia-modprobe"},
]
TOLD = [{key: value for key, value in change.items() if key not in ("lower", "package")} for change in CHANGES]
KEY = "/etc/pki/rpm-gpg/vendor"
REPOSITORY = {
    "id": "vendor",
    "path": "/etc/yum.repos.d/vendor.repo",
    "content": f"[vendor]\nname=vendor\nbaseurl=http://site/\ngpgcheck=1\ngpgkey=file://{KEY}\n",
    "key_path": KEY,
    "key_url": "http://site/vendor.pub",
    "fingerprint": "a" * 40,
    "stream": "nvidia-driver:580-open",
}


class Machine:
    """What stands in for rpm and for the program that runs under dnf's Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.present: list[tuple[str, str, str]] = [("nvidia-modprobe", "3:570.195.03-1.el9", "570.195.03-1.el9.x86_64")]
        self.answers: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.repos: dict[str, str] = {}
        self.installs = True

    def run(self, _words: list[str], request: str, _seconds: int, _said: str) -> dict[str, Any]:
        """Answer as told, else with the changes; keep what was asked."""
        asked = json.loads(request)
        self.requests.append(asked)
        for folder in asked["settings"].get("reposdir", []):
            self.repos = {path.name: path.read_text() for path in Path(folder).iterdir()}
        if self.answers:
            return self.answers.pop(0)
        if asked["verb"] == "install" and self.installs:
            self.present = [(name, version, f"{version[2:]}.x86_64") for name, version in asked["wanted"].items()]
        return {"changes": CHANGES}

    @property
    def verbs(self) -> list[str]:
        """Return what was asked for, in order."""
        return [request["verb"] for request in self.requests]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine(tmp_path)
    (tmp_path / "repos").mkdir()
    (tmp_path / "repos/own.repo").write_text("[own]\nbaseurl=http://own/\n")
    (tmp_path / "repos/own.repo.rpmnew").write_text("[no]\n")
    monkeypatch.setattr(_dnf, "run", found.run)
    monkeypatch.setattr(_dnf, "installed", lambda: found.present)
    monkeypatch.setattr(_dnf, "interpreter", lambda: ["python"])
    monkeypatch.setattr(_dnf, "FOLDERS", (str(tmp_path / "repos"), str(tmp_path / "none")))
    monkeypatch.setattr(_dnf, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(_download, "key", lambda *_words: b"key")
    return found


@pytest.fixture
def module(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(dnf_packages, capsys)


def test_what_is_looked_at_is_what_is_made(machine: Machine, module: ModuleRun) -> None:
    result = module(packages=WANTED, repository=REPOSITORY)
    assert (result["changed"], result["changes"]) == (True, TOLD)
    assert result["diff"] == {"before": "nvidia-modprobe 3:570.195.03-1.el9\n", "after": f"nvidia-driver-cuda {CUDA}\nnvidia-modprobe {CUDA}\n"}
    looked, made = machine.requests
    assert (looked["verb"], looked["refresh"], looked["private"], looked["settings"]) == ("simulate", True, False, {})
    assert (made["verb"], made["refresh"], made["expected"]) == ("install", False, CHANGES)
    assert looked["stream"] == "nvidia-driver:580-open" and looked["fingerprints"] == {"vendor": "A" * 40}
    machine.requests.clear()
    assert module(packages=WANTED, repository=REPOSITORY)["changed"] is False
    assert machine.requests == []


def test_check_mode_changes_nothing_and_knows_the_repository_to_come(machine: Machine, module: ModuleRun) -> None:
    result = module(True, packages=WANTED, repository={**REPOSITORY, "path": str(machine.folder / "repos/vendor.repo")}, refresh=False)
    assert (result["changed"], result["changes"]) == (True, TOLD)
    (asked,) = machine.requests
    assert (asked["verb"], asked["private"], asked["refresh"]) == ("simulate", True, True)
    root = Path(asked["settings"]["cachedir"]).parent
    assert {Path(asked["settings"][name]).parent for name in ("persistdir", "logdir")} == {root}
    assert set(machine.repos) == {"own.repo", "vendor.repo"}
    assert f"gpgkey=file://{root}/key.asc" in machine.repos["vendor.repo"]
    assert not root.exists()


def test_a_repository_that_is_set_up_already_is_not_known_twice(machine: Machine, module: ModuleRun) -> None:
    (machine.folder / "repos/vendor.repo").write_text("[vendor]\nbaseurl=http://stale/\n")
    module(True, packages=WANTED, repository={**REPOSITORY, "path": str(machine.folder / "repos/vendor.repo")})
    assert "stale" not in machine.repos["vendor.repo"] and "http://site/" in machine.repos["vendor.repo"]


def test_fetching_changes_nothing(machine: Machine, module: ModuleRun) -> None:
    assert module(packages=WANTED, fetch_only=True)["changed"] is False
    assert machine.verbs == ["simulate", "fetch"]
    machine.requests.clear()
    assert module(True, packages=WANTED, fetch_only=True)["changed"] is False
    assert machine.verbs == ["simulate"]


@pytest.mark.parametrize(
    ("change", "more", "said"),
    [
        ({"name": "kmod-old", "from": "1-1", "to": None, "action": "remove", "lower": False}, {}, "would remove kmod-old"),
        ({"name": "kernel-core", "from": None, "to": "6-1", "action": "install", "lower": False}, {}, "kernel packages kernel-core"),
        ({"name": "kernel-rt-modules", "from": None, "to": "6-1", "action": "install", "lower": False}, {}, "kernel packages kernel-rt-modules"),
        ({"name": "kernel-core-6-1", "package": "kernel-core", "from": None, "to": "6-1", "action": "install", "lower": False}, {}, "kernel-core"),
        ({"name": "kernel-uki-virt", "from": None, "to": "6-1", "action": "install", "lower": False}, {}, "kernel packages kernel-uki-virt"),
        ({"name": "glibc", "from": "2-1", "to": "1-1", "action": "change", "lower": True}, {}, "would lower glibc 2-1 -> 1-1"),
        ({"name": "kmod-old", "from": "1-1", "to": None, "action": "remove", "lower": False}, {"may_remove": ["kmod-old"]}, None),
        ({"name": "kernel-devel", "from": None, "to": "6-1", "action": "install", "lower": False}, {}, None),
        ({"name": "kernel-headers", "from": "5-1", "to": "6-1", "action": "change", "lower": False}, {}, None),
    ],
)
def test_what_nobody_asked_for_is_refused(
    machine: Machine, module: ModuleRun, change: dict[str, Any], more: dict[str, Any], said: str | None
) -> None:
    machine.answers = [{"changes": [*CHANGES, {"package": change["name"], **change}]}]
    result = module(True, packages=WANTED, **more)
    assert (said in result["msg"]) if said else not result.get("failed")


def test_a_wanted_package_may_be_lowered(machine: Machine, module: ModuleRun) -> None:
    machine.answers = [{"changes": [{**CHANGES[1], "lower": True}]}]
    assert module(True, packages=WANTED)["changed"] is True


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ({"one": "3:1-1"}, []),
        ({"one": ""}, []),
        ({"one": "1-1"}, ["one"]),
        ({"other": ""}, ["other"]),
        ({"two": "1-1"}, ["two"]),
        ({"two": "1-2"}, ["two"]),
        ({"kernel-devel-5.14.0-9.el9.x86_64": ""}, []),
        ({"kernel-devel-5.14.0-9.el9": ""}, []),
        ({"kernel-devel-5.14.0-10.el9.x86_64": ""}, ["kernel-devel-5.14.0-10.el9.x86_64"]),
    ],
)
def test_what_is_missing(machine: Machine, wanted: dict[str, str], left: list[str]) -> None:
    """`two` is there in two versions, as after a transaction that was cut off."""
    machine.present = [
        ("one", "3:1-1", "1-1.noarch"), ("two", "1-1", "1-1.noarch"), ("two", "1-2", "1-2.noarch"),
        ("kernel-devel", "5.14.0-9.el9", "5.14.0-9.el9.x86_64"),
    ]  # fmt: skip
    assert _dnf.missing(wanted) == left


def test_a_name_whose_path_exists_is_not_asked_for(machine: Machine, module: ModuleRun, tmp_path: Path) -> None:
    module(packages=WANTED, unless_present={"kernel-devel-5-1.x86_64": str(tmp_path / "none"), "gcc": str(tmp_path)})
    assert machine.requests[0]["wanted"] == {**WANTED, "kernel-devel-5-1.x86_64": ""}


def test_another_dnf_is_waited_for(machine: Machine, module: ModuleRun) -> None:
    machine.answers = [{"locked": "held by 1"}, {"locked": "held by 1"}]
    assert module(packages=WANTED)["changed"] is True
    machine.answers = [{"locked": "held by 1"}] * 3
    machine.present = []
    assert "another run of dnf did not end within 0 s: held by 1" in module(packages=WANTED, lock_timeout=0)["msg"]


def test_a_failure_is_told_and_one_that_dnf_hides_is_found(machine: Machine, module: ModuleRun) -> None:
    machine.answers = [{"error": "no way"}]
    assert module(packages=WANTED)["msg"] == "no way"
    machine.installs = False
    assert "not installed as asked: nvidia-driver-cuda, nvidia-modprobe" in module(packages=WANTED)["msg"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"#!/usr/bin/python3\nimport dnf\n", ["/usr/bin/python3"]),
        (b"#!/usr/libexec/platform-python -sP\n", ["/usr/libexec/platform-python", "-sP"]),
        (b"\x7fELF\x02\x01\x01", None),
        (b"#!/bin/sh\nexec dnf5\n", None),
    ],
)
def test_dnfs_own_python_is_named_by_dnf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, found: list[str] | None) -> None:
    monkeypatch.setattr(_dnf, "PROGRAM", str(tmp_path / "dnf"))
    with pytest.raises(_dnf.Failed, match="is not on this host"):
        _dnf.interpreter()
    (tmp_path / "dnf").write_bytes(content)
    if found:
        assert _dnf.interpreter() == found
    else:
        with pytest.raises(_dnf.Failed, match="version 5"):
            _dnf.interpreter()


def test_the_program_stands_alone_and_says_what_is_wrong(tmp_path: Path) -> None:
    """Under a Python without dnf it still answers."""
    request = json.dumps({"fingerprints": {}})
    answer = _dnf.run([sys.executable, "-I", str(_dnf_worker.__file__)], request, 30, str(tmp_path / "said"))
    assert "dnf" in answer["error"]
    with _dnf.Dnf(None, 1, private=False) as dnf:
        assert Path(dnf.program()).read_text() == Path(str(_dnf_worker.__file__)).read_text()


def test_a_program_without_an_answer_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(_dnf.Failed, match="ended with 3 and no answer: gone wrong"):
        _dnf.run(["sh", "-c", "echo gone wrong >&2; exit 3"], "{}", 30, str(tmp_path / "said"))
    with pytest.raises(_dnf.Failed, match="did not end within 1 s"):
        _dnf.run(["sleep", "20"], "{}", 1, str(tmp_path / "said"))


def test_the_worker_trusts_one_key_for_our_repository_and_what_others_configured() -> None:
    ours, others = _dnf_worker.Keys("A" * 40), _dnf_worker.Keys(None)
    assert ours.trusts("aaaa " * 10) and not ours.trusts("B" * 40) and others.trusts("B" * 40)


def test_rpm_that_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dnf, "RPM", ("sh", "-c", "echo database is broken >&2; exit 1"))
    with pytest.raises(_dnf.Failed, match="database is broken"):
        _dnf.installed()
    monkeypatch.setattr(_dnf, "RPM", ("printf", "one\\t3:1-1\\t1-1.noarch\\n"))
    assert _dnf.installed() == [("one", "3:1-1", "1-1.noarch")]


def test_one_repository_is_asked_and_no_other(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    info = ModuleRun(dnf_repository_info, capsys)
    assert info(repository=REPOSITORY)["fingerprint"] == "a" * 40
    (asked,) = machine.requests
    assert (asked["verb"], asked["alone"], asked["private"], asked["refresh"]) == ("load", True, True, True)
    assert list(machine.repos) == ["vendor.repo"]
    machine.answers = [{"error": "no lists here"}]
    assert info(True, repository=REPOSITORY)["msg"] == "no lists here"


def test_both_families_judge_alike() -> None:
    """The rules are the same ones; only who knows which version is lower differs."""
    change = {"name": "one", "from": "2", "to": "1", "action": "change"}
    with pytest.raises(_apt.Failed, match="would lower one 2 -> 1"):
        _apt.judge([change], {}, [], lambda one, two: (one, two) == ("1", "2"))
