# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back from a driver at work: from what the last change has kept, or a reason why there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_back, _driver, _driver_prepare, _kernel_driver, _rollback, _transaction
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives, digest
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import Refused

KERNEL, NEXT = "6.1.0-40-amd64", "6.1.0-41-amd64"


@pytest.fixture
def store(tmp_path: Path) -> Archives:
    (tmp_path / "libcuda1_1-1_amd64.deb").write_bytes(b"one")
    return Archives(str(tmp_path))


@pytest.fixture
def record(store: Archives, tmp_path: Path) -> dict[str, Any]:
    """Return the record of a change from driver 1 to driver 2 that ended well."""
    sums = {"libcuda1_1-1_amd64.deb": digest(str(tmp_path / "libcuda1_1-1_amd64.deb"))}
    pin = str(tmp_path / "pin")
    Path(pin).write_text("two")
    common = {"flavour": "open", "kernels": {KERNEL: True}, "locks": {}}
    wanted = {**common, "version": "2", "packages": {"libcuda1": "2-1"}, "absent": [], "archives": {}, "files": {pin: "two"}, "gpus": 8}
    before = {**common, "version": "1", "packages": {"libcuda1": "1-1"}, "absent": ["new"], "archives": sums, "files": {pin: "one"}, "gpus": None}
    asked = {"mode": "reload", "may_reboot": False, "settings": []}
    return {**_transaction.new("one to two", asked, wanted, before, []), "status": "done"}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give a host with driver 2 at work, and what of it is changed."""
    found: dict[str, Any] = {"present": ("2", "open"), "missing": []}
    monkeypatch.setattr(_driver_prepare, "present", lambda _system: found["present"])
    monkeypatch.setattr(_driver_prepare, "countable", lambda _system: 8)
    monkeypatch.setattr(_apt, "missing", lambda _packages: found["missing"])
    monkeypatch.setattr(_apt_back, "see", found.setdefault("see", lambda *_: None))
    monkeypatch.setattr(_kernel_driver, "running", lambda _system: NEXT)
    monkeypatch.setattr(_driver, "module_files", lambda _system: {KERNEL: "/x/nvidia.ko"})
    return found


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"status": "rolled_back"}, "the change to driver 2 was undone already"),
        ({"status": "needs_attention", "reason": "x"}, "stands between driver 1 and 2: x"),
        ({"undoes": "two to one"}, "the last change was itself the way back from driver 1 to 2"),
        ({"before": {"version": None}}, "the host had no driver before 2"),
    ],
)
def test_what_cannot_be_gone_back_on_is_said(record: dict[str, Any], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        _rollback.check({**record, **changes})
    assert _rollback.check(record) is record


def test_a_host_that_never_changed_says_so() -> None:
    with pytest.raises(Refused, match="no record of a change of driver"):
        _rollback.check(None)


def test_the_way_back_is_the_way_there_the_other_way_round(record: dict[str, Any], store: Archives, host: dict[str, Any]) -> None:
    assert host["present"] == ("2", "open")
    wanted, before = _rollback.states(record, store, System("/", 5))
    assert (wanted["version"], wanted["packages"], wanted["absent"]) == ("1", {"libcuda1": "1-1"}, ["new"])
    assert list(wanted["files"].values()) == ["one"] and list(before["files"].values()) == ["two"]
    assert (before["version"], before["packages"]) == ("2", {"libcuda1": "2-1"})
    # The host boots another kernel by now.
    assert wanted["kernels"] == {KERNEL: True, NEXT: False} and before["kernels"] == {KERNEL: False, NEXT: True}
    assert (wanted["gpus"], before["gpus"]) == (8, None)
    assert set(wanted) == set(before) == set(record["wanted"])


def test_a_host_that_has_moved_on_is_not_gone_back_on(record: dict[str, Any], store: Archives, host: dict[str, Any]) -> None:
    host["missing"] = ["libcuda1"]
    with pytest.raises(Refused, match="packages have changed since driver 2 was installed: libcuda1"):
        _rollback.states(record, store, System("/", 5))
    host["present"] = ("3", "open")
    with pytest.raises(Refused, match="the host has driver 3, and the last change brought 2"):
        _rollback.states(record, store, System("/", 5))


def test_packages_that_are_gone_or_damaged_are_named(record: dict[str, Any], store: Archives, host: dict[str, Any], tmp_path: Path) -> None:
    assert host
    (tmp_path / "libcuda1_1-1_amd64.deb").write_bytes(b"other")
    with pytest.raises(Refused, match=r"libcuda1_1-1_amd64\.deb is damaged"):
        _rollback.states(record, store, System("/", 5))
    (tmp_path / "libcuda1_1-1_amd64.deb").unlink()
    with pytest.raises(Refused, match="libcuda1 1-1 is not in"):
        _rollback.states(record, store, System("/", 5))


def test_a_change_that_waits_for_a_boot_is_turned_around(record: dict[str, Any]) -> None:
    record.update(status="waiting_for_reboot", step="boot", asked_in="b1", waits_for="driver 1 is loaded", mode="reboot")
    _rollback.turn(record)
    assert (record["status"], record["direction"], record["step"], record["failed_step"]) == ("running", "back", "quiesce", "boot")
    assert (record["asked_in"], record["waits_for"], record["mode"], record["reason"]) == (None, None, "reload", _rollback.CALLED_BACK)
