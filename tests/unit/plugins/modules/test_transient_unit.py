# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Transient units: what is asked of systemd, what is read back, and what is left behind (nothing)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Result
from ansible_collections.gpu.fleet.plugins.modules import transient_unit as module


class Systemd:
    """As much of systemd as one unit needs: it answers what it is asked and notes what it is told."""

    def __init__(self, starts: bool = True) -> None:
        self.starts = starts
        self.unit: dict[str, str] | None = None
        self.calls: list[list[str]] = []

    def run(self, argv: list[str], _limit: float | None = None) -> Result:
        self.calls.append(argv)
        if argv[0] == "systemd-run":
            if not self.starts:
                return Result(1, "", "Failed to find executable /nonexistent", None)
            description = next(word for word in argv if word.startswith("--property=Description="))
            self.unit = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "InvocationID": "1d"}
            self.unit["Description"] = description.split("=", 2)[2]
        elif argv[:2] == ["systemctl", "stop"]:
            self.unit = None
        elif argv[:2] == ["systemctl", "show"]:
            shown = self.unit or {"LoadState": "not-found", "ActiveState": "inactive"}
            return Result(0, "".join(f"{name}={value}\n" for name, value in shown.items()), "", None)
        elif argv[0] == "journalctl":
            return Result(0, "first\nlast\n", "", None)
        return Result(0, "", "", None)

    def told(self, program: str) -> list[list[str]]:
        return [argv for argv in self.calls if argv[0] == program]


class Module:
    """What the module's code needs of Ansible's."""

    def __init__(self, check_mode: bool = False, **params: Any) -> None:
        given = {"argv": ["/bin/job", "$HOME"], "files": {"job.py": "code"}, "environment": {"A": "b c"}, "user": "nobody", "run_limit": 60}
        self.params = {"name": "job", "state": "started", "wait": 0, **given, **params}
        self.check_mode = check_mode


@pytest.fixture
def systemd() -> Systemd:
    return Systemd()


@pytest.fixture
def unit(systemd: Systemd, tmp_path: Path) -> Any:
    return module.TransientUnit("job", systemd, str(tmp_path))  # type: ignore[arg-type]


def run(unit: Any, **params: Any) -> dict[str, Any]:
    check_mode = params.pop("check_mode", False)
    return module.run(Module(check_mode, **params), unit)  # type: ignore[arg-type]


def test_a_job_is_started_once_with_a_limit_as_its_user(unit: Any, systemd: Systemd, tmp_path: Path) -> None:
    assert run(unit)["changed"] is True
    argv = systemd.told("systemd-run")[0]
    for word in ("--uid=nobody", "--property=RuntimeMaxSec=60", "--setenv=A=b c", "--service-type=exec", "--property=NoNewPrivileges=yes"):
        assert word in argv
    assert argv[argv.index("--") + 1 :] == ["/bin/job", "$$HOME"]
    assert (tmp_path / "job" / "job.py").read_text() == "code"
    again = run(unit)
    assert (again["changed"], again["unit"]["state"]) == (False, "running")
    assert len(systemd.told("systemd-run")) == 1


def test_an_account_that_does_not_exist_is_named_before_anything_is_ended(unit: Any, systemd: Systemd, tmp_path: Path) -> None:
    with pytest.raises(module.UnitError, match=r"the account no-such-account, as which job\.service is to run, does not exist on this host"):
        run(unit, user="no-such-account")
    assert {argv[1] for argv in systemd.told("systemctl")} == {"show"}
    assert systemd.told("systemd-run") == [] and list(tmp_path.iterdir()) == []


def test_another_job_of_that_name_replaces_the_one_that_runs(unit: Any, systemd: Systemd, tmp_path: Path) -> None:
    run(unit)
    (tmp_path / "job" / "left.json").write_text("{}")
    assert run(unit, run_limit=61)["changed"] is True
    assert ["systemctl", "stop", "job.service"] in systemd.calls
    assert not (tmp_path / "job" / "left.json").exists()


def test_check_mode_predicts_and_does_nothing(unit: Any, systemd: Systemd, tmp_path: Path) -> None:
    assert run(unit, check_mode=True)["changed"] is True
    assert run(unit, check_mode=True, state="absent")["changed"] is False
    assert {argv[1] for argv in systemd.told("systemctl")} == {"show"}
    assert systemd.told("systemd-run") == [] and list(tmp_path.iterdir()) == []


def test_its_end_brings_back_what_it_left_and_leaves_nothing(unit: Any, systemd: Systemd, tmp_path: Path) -> None:
    run(unit)
    assert systemd.unit is not None
    systemd.unit.update(ActiveState="failed", Result="timeout", ExecMainStatus="15")
    (tmp_path / "job" / "result.json").write_text('{"a": 1}')
    answer = run(unit, state="absent", wait=5)
    assert answer["unit"] == {"state": "failed", "result": "timeout", "exit_status": 15}
    assert answer["documents"] == {"result.json": '{"a": 1}'}
    assert answer["output"] == ["first", "last"]
    assert systemd.unit is None and not (tmp_path / "job").exists()
    assert run(unit, state="absent", wait=5)["changed"] is False


def test_a_job_still_running_when_the_wait_is_over_is_ended_and_said_to_have_run(unit: Any, systemd: Systemd) -> None:
    run(unit)
    assert run(unit, state="absent", wait=0)["unit"]["state"] == "running"
    assert systemd.unit is None


def test_only_plain_files_of_the_job_itself_are_read(unit: Any, tmp_path: Path) -> None:
    run(unit)
    folder = tmp_path / "job"
    (tmp_path / "secret.json").write_text("secret")
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    (folder / "note.txt").write_text("no document")
    (folder / "big.json").write_text("x" * (module.MOST_BYTES + 10))
    found = unit.documents()
    assert set(found) == {"big.json"}
    assert len(found["big.json"]) == module.MOST_BYTES


def test_a_folder_that_is_a_link_is_neither_read_nor_removed(unit: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_text("{}")
    (tmp_path / "job").symlink_to(tmp_path / "elsewhere")
    assert unit.documents() == {}
    unit.end()
    assert (tmp_path / "elsewhere" / "a.json").exists()


def test_a_program_that_cannot_be_started_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    unit = module.TransientUnit("job", Systemd(starts=False), str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(module.UnitError, match=r"could not be started.*Failed to find executable"):
        run(unit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shown", "state", "status"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "absent", None),
        ({"ActiveState": "inactive"}, "absent", None),
        ({"ActiveState": "activating"}, "running", None),
        ({"ActiveState": "deactivating", "ExecMainStatus": "0"}, "running", 0),
        ({"ActiveState": "exited", "Result": "success", "ExecMainStatus": "0"}, "succeeded", 0),
        ({"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": "3"}, "failed", 3),
    ],
)
def test_states_are_told_in_four_words(shown: dict[str, str], state: str, status: int | None) -> None:
    assert (module.verdict(shown)["state"], module.verdict(shown)["exit_status"]) == (state, status)


@pytest.mark.parametrize("name", ["../x", "a/b", "", "-x", "A", "x.service"])
def test_names_cannot_leave_their_folder(name: str) -> None:
    assert not module.NAME.match(name)
    assert not module.FILE.match("../" + name)
