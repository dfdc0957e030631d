# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module does with the record that it finds, and what it says about the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import (
    _apt,
    _apt_private,
    _driver_prepare,
    _driver_steps,
    _engine,
    _kernel_driver,
    _record,
    _rollback,
    _transaction,
)
from ansible_collections.gpu.fleet.plugins.modules import driver_transaction
from fixtures.module_run import ModuleRun

NEW: dict[str, Any] = {"version": "2", "flavour": "open", "packages": {"libcuda1": "2-1"}}
CHANGES = [{"name": "libcuda1", "from": "1-1", "to": "2-1", "action": "change"}]


class Host:
    """A host with a version, and a service that ends each transaction as it is told."""

    def __init__(self, store: _record.Store) -> None:
        self.store = store
        self.version = "1"
        self.stale: str | None = None
        self.unbuilt: list[str] = []
        self.ends = ["done", "done"]
        self.running: list[str] = []
        self.begun: list[str] = []

    def state(self, version: str) -> dict[str, Any]:
        return {"version": version, "flavour": "open", "packages": {"libcuda1": f"{version}-1"}, "files": {}, "absent": [], "archives": {}}

    def leave(self, status: str, version: str = "2") -> None:
        """Write the record that somebody left."""
        asked = {"mode": "reload", "may_reboot": False, "settings": []}
        record = _transaction.new("left", asked, self.state(version), self.state("1"), [])
        self.store.write({**record, "status": status, "reason": "build failed: planted"})

    def prepare(self, request: dict[str, Any], *_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        self.begun.append(request["version"])
        return self.state(request["version"]), self.state(self.version)

    def systemctl(self, *words: str) -> None:
        assert words == ("start", _engine.UNIT)
        record = self.store.read()
        assert record is not None
        record["status"] = self.ends.pop(0)
        if record["status"] == "done":
            self.version = record["wanted"]["version"]
        elif record["status"] != "waiting_for_reboot" and record["direction"] == "forward":
            record["reason"] = "build failed: planted"
        self.store.write(record)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(_record.Store(str(tmp_path)))

    class Private:
        def __init__(self, *_: Any) -> None: ...

        def __enter__(self) -> Private:
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self) -> None: ...

        def simulate(self, _packages: dict[str, str], _may_remove: list[str], _absent: list[str]) -> list[dict[str, Any]]:
            return CHANGES

    monkeypatch.setattr(_record, "FOLDER", str(tmp_path))
    monkeypatch.setattr(_record.Store.__init__, "__defaults__", (str(tmp_path),))
    monkeypatch.setattr(_apt_private, "PrivateApt", Private)
    monkeypatch.setattr(_apt, "missing", lambda wanted: [name for name, version in wanted.items() if version != f"{made.version}-1"])
    monkeypatch.setattr(_apt, "cut_off", lambda: False)
    monkeypatch.setattr(_apt, "lower", lambda *_: False)
    monkeypatch.setattr(_kernel_driver, "built", lambda _system, kernel: None if kernel in made.unbuilt else made.version)
    monkeypatch.setattr(_driver_prepare, "present", lambda _system: (made.version, "open"))
    monkeypatch.setattr(_driver_prepare, "prepare", made.prepare)
    monkeypatch.setattr(_driver_prepare, "running_units", lambda units: [unit for unit in units if unit in made.running])
    monkeypatch.setattr(_driver_steps.DriverSteps, "stale", lambda _self, _state: made.stale)
    monkeypatch.setattr(_engine, "active", lambda: False)
    monkeypatch.setattr(_engine, "install", lambda _folder: None)
    monkeypatch.setattr(_engine, "systemctl", made.systemctl)
    return made


@pytest.fixture
def module(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(driver_transaction, capsys)


def test_a_change_is_made_once(host: Host, module: ModuleRun) -> None:
    done = module(**NEW)
    assert (done["changed"], done["changes"], done["reboot"], done["record"]["status"]) == (True, CHANGES, False, "done")
    again = module(**NEW)
    assert (again["changed"], again["changes"]) == (False, [])
    assert host.begun == ["2"]


def test_failure_15_a_kernel_without_its_module_is_not_as_wanted(host: Host, module: ModuleRun) -> None:
    """The packages are all there, and a kernel that may be next was left out of the build."""
    host.version, host.unbuilt = "2", ["6.1.0-41-amd64"]
    assert module(**NEW)["changed"] is False
    assert module(check=True, **{**NEW, "kernels": ["6.1.0-41-amd64"]})["changed"] is True
    assert module(**{**NEW, "kernels": ["6.1.0-41-amd64"]})["changed"] is True and host.begun == ["2"]


def test_check_mode_says_the_same_and_does_nothing(host: Host, module: ModuleRun) -> None:
    foreseen = module(check=True, **NEW)
    assert (foreseen["changed"], foreseen["changes"], foreseen["record"]) == (True, CHANGES, None)
    assert host.begun == []
    host.version = "2"
    assert module(check=True, **NEW)["changed"] is False
    # All packages are there, and another driver is loaded.
    host.stale = "driver 1 (open)"
    assert module(check=True, **NEW)["changed"] is True


def test_another_driver_that_is_loaded_takes_consent(host: Host, module: ModuleRun) -> None:
    host.stale = "driver 1 (open)"
    assert "neither reload nor reboot was agreed to" in module(**NEW)["msg"]
    assert host.store.read() is None
    assert module(**NEW, reload=True)["changed"]


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("rolled_back", "driver 2 could not be installed, and 1 is back: build failed: planted"),
        ("needs_attention", "the host stands between two drivers and needs attention: build failed: planted"),
    ],
)
def test_an_end_that_nobody_wanted_is_a_failure(host: Host, module: ModuleRun, end: str, says: str) -> None:
    host.ends = [end, "done"]
    done = module(**NEW)
    assert (done["msg"], done["record"]["status"]) == (says, end)
    # Who comes after a boot, when the service has long ended, hears of it too.
    assert module(state="finished")["msg"] == says
    # The next run tries anew.
    assert module(**NEW)["changed"]
    assert host.begun == ["2", "2"]


def test_what_a_failed_way_back_could_not_give_back_is_given_back_later(host: Host, module: ModuleRun) -> None:
    host.leave("needs_attention")
    record = host.store.read()
    assert record is not None
    host.store.write({**record, "services": ["used"], "settings": [["nvidia-smi", "-pl", "300"]]})
    host.running = ["user"]
    assert module(**NEW, services=["user", "idle", "used"])["changed"]
    record = host.store.read()
    assert record is not None
    assert (record["services"], record["settings"]) == (["user", "used"], [["nvidia-smi", "-pl", "300"]])
    # Also where nothing but that is left to do.
    host.store.write({**record, "status": "needs_attention"})
    host.ends = ["done", "done"]
    assert module(check=True, **NEW)["changed"] and module(**NEW, services=["used"])["record"]["status"] == "done"
    # From one that ended well nothing is owed.
    host.version = "1"
    assert module(**NEW, services=["user", "idle", "used"])["changed"]
    record = host.store.read()
    assert record is not None
    assert (record["services"], record["settings"]) == (["user"], [])


def test_what_is_unfinished_is_finished_and_not_begun_again(host: Host, module: ModuleRun) -> None:
    host.leave("running")
    done = module(**NEW)
    assert (done["changed"], done["record"]["id"], host.begun) == (True, "left", [])


def test_a_service_that_ends_while_it_is_looked_at_was_not_cut_off(host: Host, module: ModuleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last word is on the disk before it is gone."""
    host.leave("running")
    answers = iter([True, True])

    def active() -> bool:
        at_work = next(answers, False)
        record = host.store.read()
        assert record is not None
        if not at_work:
            # It has ended between two questions; this is the moment of the later one.
            host.store.write({**record, "status": "done"})
        return at_work

    monkeypatch.setattr(_engine, "active", active)
    done = module(**NEW)
    assert (done["record"]["status"], done.get("msg")) == ("done", None)


def test_what_is_unfinished_is_finished_before_something_else_is_begun(host: Host, module: ModuleRun) -> None:
    host.leave("running", "3")
    host.ends = ["done", "done"]
    assert module(**NEW)["changed"]
    assert (host.version, host.begun) == ("2", ["2"])


@pytest.mark.parametrize("version", ["2", "3"])
def test_what_waits_for_a_boot_is_not_begun_over(host: Host, module: ModuleRun, version: str) -> None:
    host.leave("waiting_for_reboot", version)
    host.ends = ["waiting_for_reboot"]
    done = module(**NEW)
    assert (done["reboot"], done["record"]["id"], host.begun) == (True, "left", [])


def test_nothing_to_finish_is_no_failure(host: Host, module: ModuleRun) -> None:
    done = module(state="finished")
    assert (done["changed"], done["record"], done["reboot"]) == (False, None, False)
    assert host.begun == []


def test_a_record_of_another_release_is_not_touched(host: Host, module: ModuleRun) -> None:
    host.leave("running")
    record = host.store.read()
    assert record is not None
    host.store.write({**record, "schema": 99})
    assert "is of schema 99" in module(**NEW)["msg"]
    assert host.begun == []


def test_two_at_once_are_one_too_many(host: Host, module: ModuleRun) -> None:
    with host.store.alone():
        assert module(**NEW)["msg"] == "another process works on the driver of this host"
    assert host.begun == []


def test_the_former_driver_comes_back_once(host: Host, module: ModuleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rollback, "states", lambda record, *_: (record["before"], record["wanted"]))
    assert "no record of a change" in module(check=True, state="former")["msg"]
    assert module(**NEW)["changed"]
    monkeypatch.setattr(_apt, "selections", lambda: {"libcuda1": (f"{host.version}-1", False), "zstd": ("1", False)})
    foreseen = module(check=True, state="former")
    assert foreseen["kept"] == {"libcuda1": "1-1"}
    assert foreseen["changes"] == [{"name": "libcuda1", "from": "2-1", "to": "1-1", "action": "change"}]
    assert (foreseen["changed"], host.version) == (True, "2")
    host.ends = ["done"]
    done = module(state="former", reload=True)
    assert (done["changed"], done["changes"], host.version) == (True, foreseen["changes"], "1")
    # Whoever asks again, as after the boot that it waited for, is told that it has been done.
    for check in (True, False):
        again = module(check=check, state="former", reload=True)
        assert (again["changed"], again["changes"], again["reboot"], again["record"]["status"], host.version) == (False, [], False, "done", "1")
        assert again["kept"] == {"libcuda1": "1-1"}
    # Somebody has moved the driver since: where that leads back to is not known.
    host.version = "7"
    assert "was itself the way back from driver 2 to 1" in module(state="former", reload=True)["msg"]


def test_a_change_that_waits_for_its_boot_is_called_back(host: Host, module: ModuleRun) -> None:
    host.leave("waiting_for_reboot")
    host.ends = ["rolled_back"]
    foreseen = module(check=True, state="former")
    assert foreseen["changes"] == [{"name": "libcuda1", "from": "2-1", "to": "1-1", "action": "change"}]
    done = module(state="former", reload=True)
    assert (done["changed"], done["changes"], done["reboot"], done["record"]["direction"]) == (True, foreseen["changes"], False, "back")
    assert module(state="former", reload=True)["changed"] is False
    # One that had to be undone was nobody's way back.
    host.leave("rolled_back")
    assert "was undone already" in module(state="former", reload=True)["msg"]


def test_a_way_back_that_waits_for_its_boot_is_not_turned_by_the_same_command(host: Host, module: ModuleRun) -> None:
    host.leave("waiting_for_reboot")
    record = host.store.read()
    assert record is not None
    host.store.write({**record, "undoes": "an earlier one"})
    host.ends = ["done"]
    done = module(state="former", reload=True)
    assert (done["record"]["direction"], done["record"]["status"]) == ("forward", "done")


def test_a_change_that_mended_the_same_driver_leads_back_to_none(host: Host, module: ModuleRun) -> None:
    host.leave("done", "1")
    assert "mended driver 1, and brought no other one" in module(state="former", reload=True)["msg"]


def test_a_way_back_that_fails_is_a_failure(host: Host, module: ModuleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rollback, "states", lambda record, *_: (record["before"], record["wanted"]))
    host.ends = ["done", "rolled_back"]
    assert module(**NEW)["changed"]
    assert module(state="former", reload=True)["msg"] == "driver 1 could not be installed, and 2 is back: build failed: planted"
