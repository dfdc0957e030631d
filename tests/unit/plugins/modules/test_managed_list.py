# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _managed_list, _record
from ansible_collections.gpu.fleet.plugins.modules import apt_holds, managed_record, managed_release
from fixtures.module_run import ModuleRun

OURS = "# Managed by gpu.fleet: changes made here are undone.\nours\n"


class Host:
    """Files, and programs in the place of dpkg and systemctl that keep what they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks({"libcuda1": "install", "zstd": "hold"})
        self.program("dpkg-query", f"cat {folder}/marks")
        self.program("dpkg", f'while read name mark; do sed -i "s/^\\($name\\t.*\\t\\)[a-z]*$/\\1$mark/" {folder}/marks; done')
        (folder / "enabled").touch()
        self.program(
            "systemctl",
            f'case "$1" in\n'
            f"  show) echo LoadState=loaded; if grep -qx $4 {folder}/enabled; then echo UnitFileState=enabled; fi;;\n"
            f"  is-enabled) grep -qx $4 {folder}/enabled;;\n"
            f"  disable) sed -i /^$3$/d {folder}/enabled;;\nesac",
        )

    def program(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / name).chmod(0o755)

    def marks(self, marks: dict[str, str]) -> None:
        (self.folder / "marks").write_text("".join(f"{name}\t1-1\tinstalled\t{mark}\n" for name, mark in marks.items()))

    def held(self) -> list[str]:
        return [line.split("\t")[0] for line in (self.folder / "marks").read_text().splitlines() if line.endswith("\thold")]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setitem(_apt.ENVIRONMENT, "PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(_managed_list, "PATH", str(tmp_path / "state" / "managed.json"))
    monkeypatch.setattr(_record.Store.__init__, "__defaults__", (str(tmp_path / "driver"),))
    return Host(folder)


@pytest.fixture
def record(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(managed_record, capsys)


@pytest.fixture
def hold(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(apt_holds, capsys)


@pytest.fixture
def release(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(managed_release, capsys)


def item(kind: str, name: str, **desired: Any) -> dict[str, Any]:
    return {"role": "r", "kind": kind, "id": name, "desired": desired}


def test_holds_are_set_once_and_only_on_what_is_installed(host: Host, hold: ModuleRun) -> None:
    items = [item("hold", name, held=True) for name in ("libcuda1", "zstd", "none")] + [item("package", "zstd", version="1")]
    assert hold(check=True, items=items)["changes"] == ["libcuda1", "none"]
    assert host.held() == ["zstd"]
    done = hold(items=items)
    assert (done["changes"], done["diff"]) == (["libcuda1"], {"before": "libcuda1 free\n", "after": "libcuda1 held\n"})
    assert host.held() == ["libcuda1", "zstd"]
    assert hold(items=items)["changed"] is False


def test_a_lock_that_stays_is_said(host: Host, hold: ModuleRun) -> None:
    host.program("dpkg", "echo 'dpkg: error: dpkg database is locked by another process'; exit 2")
    assert "is locked by another process" in hold(items=[item("hold", "libcuda1", held=True)], lock_timeout=0)["msg"]


def everything(tmp_path: Path) -> list[dict[str, Any]]:
    return [
        item("file", str(tmp_path / "new"), state="file"),
        item("file", str(tmp_path / "old"), state="file"),
        item("file", str(tmp_path / "taken"), state="file"),
        item("keyring", str(tmp_path / "key"), state="file"),
        item("hold", "libcuda1", held=True),
        item("hold", "zstd", held=True),
        item("unit", "off.service", enabled=True),
        item("unit", "on.service", enabled=True),
        item("package", "libcuda1", version="1-1"),
        item("user", "trainer", state="present"),
    ]


def test_what_was_there_before_comes_back(host: Host, record: ModuleRun, release: ModuleRun, tmp_path: Path) -> None:
    items = everything(tmp_path)
    (tmp_path / "old").write_text("before\n")
    (tmp_path / "old").chmod(0o600)
    (host.folder / "enabled").write_text("on.service\n")
    predicted = record(check=True, items=items)
    assert not Path(_managed_list.PATH).exists()
    written = record(items=items)
    assert predicted == written and len(written["added"]) == len(items)
    assert Path(_managed_list.PATH).stat().st_mode & 0o777 == 0o600
    assert Path(_managed_list.PATH).parent.stat().st_mode & 0o777 == 0o700
    assert {entry["id"]: entry["before"] for entry in json.loads(Path(_managed_list.PATH).read_text())["items"]}["trainer"] is None

    for name in ("new", "old", "key"):
        (tmp_path / name).write_text(OURS)
    (tmp_path / "taken").write_text("somebody else's\n")
    host.marks({"libcuda1": "hold", "zstd": "hold"})
    (host.folder / "enabled").write_text("on.service\noff.service\n")
    assert record(items=items)["added"] == [], "what was before us is what was there the first time"

    foreseen = release(check=True)
    assert (tmp_path / "new").read_text() == OURS and host.held() == ["libcuda1", "zstd"]
    done = release()
    assert foreseen == done
    assert {change.partition(":")[0] for change in done["changes"]} == {"file", "keyring", "hold", "unit", "list"}
    assert not (tmp_path / "new").exists() and not (tmp_path / "key").exists() and not Path(_managed_list.PATH).exists()
    assert (tmp_path / "old").read_text() == "before\n" and (tmp_path / "old").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "taken").read_text() == "somebody else's\n" and done["left"] == [f"{tmp_path}/taken: somebody else has written it since"]
    assert host.held() == ["zstd"], "a hold that somebody else had set stays"
    assert (host.folder / "enabled").read_text() == "on.service\n"
    again = release()
    assert (again["changed"], again["changes"], again["left"]) == (False, [], [])


def test_a_list_of_another_release_is_not_guessed_at(host: Host, record: ModuleRun, release: ModuleRun) -> None:
    record(items=[item("user", "trainer")])
    path = Path(_managed_list.PATH)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 7'))
    assert "schema 7" in release()["msg"] and "schema 7" in record(items=[item("user", "x")])["msg"]
    assert host.held() == ["zstd"]


@pytest.mark.parametrize(
    ("status", "undone"), [("running", False), ("waiting_for_reboot", False), ("needs_attention", False), ("done", True), ("rolled_back", True)]
)
def test_a_change_of_the_driver_is_not_robbed_of_its_way(
    host: Host, record: ModuleRun, release: ModuleRun, tmp_path: Path, status: str, undone: bool
) -> None:
    path = tmp_path / "new"
    record(items=[item("file", str(path), state="file")])
    path.write_text(OURS)
    _record.Store().write({"schema": _record.SCHEMA, "status": status, "step": "packages"})
    foreseen = release(check=True)
    result = release()
    assert (foreseen == result) or not undone
    assert path.exists() is not undone
    # Nor is anything kept for a way back to a driver that nothing would keep in place.
    assert Path(_record.Store().folder).exists() is not undone
    assert (f"transaction:{_record.Store().folder}" in result.get("changes", [])) is undone
    if undone:
        assert release()["changed"] is False
    assert ("under way" in result.get("msg", "")) is not undone
