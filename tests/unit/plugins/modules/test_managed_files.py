# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.modules import managed_files
from fixtures.module_run import ModuleRun

OWNER, GROUP = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(managed_files, capsys)


def item(path: Path | str, kind: str = "file", **desired: Any) -> dict[str, Any]:
    wanted = {"state": kind, "mode": "0644" if kind == "file" else "0755", "owner": OWNER, "group": GROUP}
    if kind == "file":
        wanted["content"] = "one\n"
    return {"role": "any", "kind": kind, "id": str(path), "desired": {**wanted, **desired}}


def mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o7777:04o}"


def test_everything_is_made_in_one_run_and_never_again(run: ModuleRun, tmp_path: Path) -> None:
    config, folder = tmp_path / "new" / "deep" / "a.conf", tmp_path / "state"
    items = [item(config, mode="0640"), item(folder, "directory", mode="0750")]
    result = run(items=items)
    assert result["changed"] is True
    assert result["changes"] == [str(config), str(folder)]
    assert (config.read_text(), mode(config), mode(folder)) == ("one\n", "0640", "0750")
    before = config.stat()
    again = run(items=items)
    assert (again["changed"], again["changes"], again["diff"]) == (False, [], [])
    assert (config.stat().st_ino, config.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in config.parent.iterdir()) == ["a.conf"]


@pytest.mark.parametrize(
    ("spoil", "shown"),
    [
        pytest.param(lambda path: path.write_text("two\n"), "two\n(file 0644)\n", id="content"),
        pytest.param(lambda path: path.write_bytes(b"\xff\xfe"), "\ufffd\ufffd(file 0644)\n", id="no text at all"),
        pytest.param(lambda path: path.chmod(0o600), "one\n(file 0600)\n", id="mode"),
        pytest.param(lambda path: path.chmod(0o4644), "one\n(file 4644)\n", id="set-user-id"),
        pytest.param(lambda path: path.unlink(), "", id="gone"),
    ],
)
def test_each_difference_is_predicted_shown_and_repaired(run: ModuleRun, tmp_path: Path, spoil: Any, shown: str) -> None:
    path = tmp_path / "a.conf"
    items = [item(path)]
    run(items=items)
    spoil(path)
    state = path.read_bytes() if path.exists() else None
    predicted = run(check=True, items=items)
    assert (path.read_bytes() if path.exists() else None) == state
    done = run(items=items)
    assert predicted == done
    assert done["diff"] == [{"before_header": str(path), "after_header": str(path), "before": shown, "after": "one\n(file 0644)\n"}]
    assert (path.read_text(), mode(path)) == ("one\n", "0644")


def test_a_file_is_replaced_as_a_whole(run: ModuleRun, tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("old\n")
    with path.open() as reader:
        run(items=[item(path)])
        assert reader.read() == "old\n"
    assert path.read_text() == "one\n"


def test_only_what_differs_is_written(run: ModuleRun, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    run(items=[item(right), item(wrong)])
    wrong.write_text("two\n")
    inode = right.stat().st_ino
    assert run(items=[item(right), item(wrong)])["changes"] == [str(wrong)]
    assert right.stat().st_ino == inode


def test_an_absent_file(run: ModuleRun, tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("one\n")
    items = [{"kind": "file", "id": str(path), "desired": {"state": "absent"}}]
    assert run(check=True, items=items)["changes"] == [str(path)]
    assert path.exists()
    assert run(items=items)["changed"] is True
    assert not path.exists()
    assert run(items=items)["changed"] is False


def test_other_kinds_are_passed_over(run: ModuleRun) -> None:
    items = [{"kind": "package", "id": "libcuda1", "desired": {"version": "1"}}, {"kind": "user", "id": "root", "desired": {"state": "present"}}]
    assert run(items=items)["changed"] is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(item("etc/x.conf"), "'etc/x.conf' is not a plain absolute path", id="relative"),
        pytest.param(item("/etc/../root/x"), "is not a plain absolute path", id="dots"),
        pytest.param(item("/x/a", state="link"), "/x/a: state 'link' is not one of file, absent", id="state"),
        pytest.param(item("/x/a", "directory", state="absent"), "state 'absent' is not one of directory", id="folders are never removed"),
        pytest.param(item("/x/a", owner="no-such-account"), "/x/a: owner or group does not exist on this host", id="owner"),
        pytest.param(item("/x/a", group="no-such-group"), "/x/a: owner or group does not exist on this host", id="group"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_one_bad_item_stops_all_before_the_first_write(run: ModuleRun, tmp_path: Path, wrong: dict[str, Any], message: str, check: bool) -> None:
    good = tmp_path / "good"
    result = run(check=check, items=[item(good), wrong])
    assert result["failed"] is True
    assert message in result["msg"]
    assert not good.exists()


@pytest.mark.parametrize("kind", ["directory", "link"])
def test_what_stands_in_the_way_is_not_swept_away(run: ModuleRun, tmp_path: Path, kind: str) -> None:
    path, good = tmp_path / "a.conf", tmp_path / "good"
    (tmp_path / "victim").write_text("mine\n")
    if kind == "link":
        path.symlink_to(tmp_path / "victim")
    else:
        path.mkdir()
    result = run(items=[item(good), item(path)])
    assert result["msg"] == f"in the way of what is planned stands something else: {path}"
    assert (tmp_path / "victim").read_text() == "mine\n"
    assert not good.exists()
