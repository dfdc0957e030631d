# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of a change of driver, on a host of numbers: every step fails, every step is cut off, and the host is never left between two drivers."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _transaction
from ansible_collections.gpu.fleet.plugins.module_utils._record import RESERVE, Busy, Store, Unreadable
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import STEPS, StepFailed, Transaction

OLD, NEW = {"version": "1"}, {"version": "2"}
SETTINGS = [["nvidia-smi", "-pl", "300"]]


class Killed(BaseException):
    """The process ends here; what it had written is on the disk."""


class Host:
    """A host with one driver, whose steps can be made to fail or to be cut off."""

    def __init__(self, version: str | None = "1", held: bool = False) -> None:
        self.boot = 0
        self.disk: str | None = version
        self.loaded: str | None = version
        self.services = version is not None
        self.tuned = version is not None
        self.held = held
        self.fails: set[tuple[str, str | None]] = set()
        self.dies: tuple[str, str | None, str] | None = None
        self.held_version: str | None = None
        self.calls: list[str] = []

    def restart(self) -> None:
        self.boot += 1
        self.loaded, self.held, self.tuned = self.disk, False, False

    def at(self, step: str, target: dict[str, Any] | None, when: str) -> None:
        version = target["version"] if target else None
        if self.dies == (step, version, when):
            self.dies = None
            raise Killed
        if when == "before":
            self.calls.append(step)
            if (step, version) in self.fails:
                raise StepFailed("planted")

    def boot_id(self) -> str:
        return str(self.boot)

    def stale(self, state: dict[str, Any]) -> str | None:
        return f"driver {self.loaded}" if self.loaded not in (None, state["version"]) else None

    def quiesce(self, own: list[str]) -> None:
        assert own == ["monitor", "fabric"]
        self.at("quiesce", None, "before")
        self.services = False
        self.at("quiesce", None, "after")

    def unload(self) -> None:
        self.at("unload", None, "before")
        if self.held:
            raise StepFailed("somebody holds the GPUs")
        self.loaded, self.tuned = None, False
        self.at("unload", None, "after")

    def packages(self, state: dict[str, Any], other: dict[str, Any]) -> None:
        assert state["version"] != other["version"]
        self.at("packages", state, "before")
        self.disk = "half"
        self.at("packages", state, "middle")
        self.disk = state["version"]
        self.at("packages", state, "after")

    def hold(self, state: dict[str, Any]) -> None:
        assert self.disk == state["version"]
        self.held_version = state["version"]

    def build(self, state: dict[str, Any]) -> None:
        assert self.held_version == state["version"]
        self.at("build", state, "before")
        assert self.disk == state["version"]

    def load(self, state: dict[str, Any]) -> None:
        self.at("load", state, "before")
        self.loaded = state["version"]
        self.at("load", state, "after")

    def start(self, state: dict[str, Any], services: list[str], own: list[str]) -> None:
        assert (services, own) == (["fabric"], ["monitor", "fabric"])
        self.at("start", state, "before")
        self.services = state["version"] is not None

    def settings(self, commands: list[list[str]]) -> None:
        self.at("settings", None, "before")
        self.tuned = commands == SETTINGS and self.loaded is not None

    def verify(self, state: dict[str, Any]) -> None:
        self.at("verify", state, "before")
        if (self.disk, self.loaded) != (state["version"], state["version"]):
            raise StepFailed(f"disk {self.disk}, loaded {self.loaded}")


def begin(store: Store, host: Host, mode: str = "reload") -> Transaction:
    request = {"mode": mode, "may_reboot": mode == "reboot", "settings": SETTINGS, "own": ["monitor", "fabric"]}
    return Transaction(store, host, _transaction.new("t", request, NEW, {"version": host.disk}, ["fabric"]))


def resume(store: Store, host: Host) -> dict[str, Any]:
    """What the next run, or the next boot, does with the record that it finds."""
    record = store.read()
    assert record is not None
    return Transaction(store, host, record).run()


def finish(store: Store, host: Host, transaction: Transaction) -> dict[str, Any]:
    """Run to the end over as many deaths and boots as there are; a fresh process knows nothing but the record."""
    begun = False
    for _ in range(8):
        try:
            record = resume(store, host) if begun else transaction.run()
        except Killed:
            begun = True
            continue
        begun = True
        if record["status"] != "waiting_for_reboot":
            return record
        host.restart()
    raise AssertionError("no end")


def whole(host: Host, version: str | None) -> bool:
    there = version is not None
    return (host.disk, host.loaded, host.services, host.tuned) == (version, version, there, there)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.mark.parametrize(("mode", "start"), list(itertools.product(("reload", "reboot"), (None, "1"))))
def test_all_goes_well(store: Store, mode: str, start: str | None) -> None:
    host = Host(start, held=mode == "reboot")
    record = finish(store, host, begin(store, host, mode))
    assert (record["status"], record["reason"], record["failed_step"]) == ("done", None, None)
    assert whole(host, "2")
    assert host.boot == (1 if mode == "reboot" and start else 0)
    assert record["waits_for"] is None
    assert store.read() == record


PLACES = [
    (step, version)
    for step in STEPS
    for version in (("2",) if step in ("packages", "build", "load", "start", "verify") else (None,))
    if step != "boot"
]


@pytest.mark.parametrize(("mode", "place"), list(itertools.product(("reload", "reboot"), PLACES)))
def test_a_step_that_fails_gives_the_old_driver_back(store: Store, mode: str, place: tuple[str, str | None]) -> None:
    host = Host(held=mode == "reboot")
    host.fails.add(place)
    record = finish(store, host, begin(store, host, mode))
    step, version = place
    if mode == "reboot" and step == "unload":
        # Nothing is unloaded where a boot does it.
        assert record["status"] == "done"
        return
    assert record["failed_step"] == step
    assert "planted" in record["reason"]
    if version is None and step in ("settings", "unload") and record["status"] == "needs_attention":
        # It fails on the way back as well.
        assert "way back failed" in record["reason"]
    else:
        assert record["status"] == "rolled_back"
        assert (host.disk, host.loaded, host.services) == ("1", "1", True)


@pytest.mark.parametrize(("forward", "back"), list(itertools.product(["packages", "build", "load", "start", "verify"], repeat=2)))
def test_a_way_back_that_fails_is_said(store: Store, forward: str, back: str) -> None:
    host = Host()
    host.fails |= {(forward, "2"), (back, "1")}
    record = finish(store, host, begin(store, host))
    assert record["status"] == "needs_attention"
    assert (record["failed_step"], record["step"], record["direction"]) == (forward, back, "back")
    assert record["reason"] == f"{forward} failed: planted; the way back failed at {back}: planted"


DEATHS = [(step, version, when) for step, version in PLACES for when in ("before", "middle", "after")]


@pytest.mark.parametrize(("mode", "death"), list(itertools.product(("reload", "reboot"), DEATHS)))
def test_a_process_that_dies_is_continued(store: Store, mode: str, death: tuple[str, str | None, str]) -> None:
    host = Host(held=mode == "reboot")
    host.dies = death
    assert finish(store, host, begin(store, host, mode))["status"] == "done"
    assert whole(host, "2")


@pytest.mark.parametrize("death", DEATHS)
def test_a_host_that_loses_power_is_continued_in_its_next_boot(store: Store, death: tuple[str, str | None, str]) -> None:
    host = Host()
    host.dies = death
    transaction = begin(store, host)
    try:
        record = transaction.run()
    except Killed:
        host.restart()
        host.services = False
        record = finish(store, host, Transaction(store, host, store.read() or {}))
    assert record["status"] == "done"
    assert whole(host, "2")


LATE_DEATHS = [("packages", "1", "middle"), ("unload", None, "after"), ("load", "1", "after")]


@pytest.mark.parametrize(("failing", "death"), list(itertools.product(["build", "verify"], LATE_DEATHS)))
def test_a_way_back_that_dies_is_continued(store: Store, failing: str, death: tuple[str, str | None, str]) -> None:
    host = Host()
    host.fails.add((failing, "2"))
    transaction = begin(store, host)
    host.dies = death
    record = finish(store, host, transaction)
    assert record["status"] == ("done" if record["direction"] == "forward" else "rolled_back")
    assert whole(host, "2" if record["direction"] == "forward" else "1")


def test_nothing_is_unloaded_for_a_driver_that_is_loaded_already(store: Store) -> None:
    host = Host("2")
    host.disk = "1"
    assert finish(store, host, begin(store, host))["status"] == "done"
    assert "unload" not in host.calls
    assert whole(host, "2")


def test_a_module_that_cannot_be_taken_out_stops_it_before_a_package_changes(store: Store) -> None:
    host = Host(held=True)
    record = finish(store, host, begin(store, host))
    assert (record["status"], record["failed_step"]) == ("rolled_back", "unload")
    assert record["reason"] == "unload failed: somebody holds the GPUs"
    assert whole(host, "1")
    assert host.boot == 0


def test_a_boot_that_does_not_help_is_not_repeated(store: Store) -> None:
    host = Host(held=True)

    def restart() -> None:
        host.boot += 1

    transaction = begin(store, host, "reboot")
    assert transaction.run()["status"] == "waiting_for_reboot"
    restart()
    record = resume(store, host)
    assert record["failed_step"] == "boot"
    assert "also after a boot" in record["reason"]
    assert record["status"] == "rolled_back"
    assert (host.disk, host.loaded, host.boot) == ("1", "1", 1)


def test_waiting_for_a_boot_goes_on_waiting_in_the_same_boot(store: Store) -> None:
    host = Host(held=True)
    assert begin(store, host, "reboot").run()["status"] == "waiting_for_reboot"
    record = resume(store, host)
    assert (record["status"], record["boot_id"]) == ("waiting_for_reboot", "0")
    assert host.calls.count("packages") == 1


def test_a_host_without_a_driver_is_without_one_again(store: Store) -> None:
    host = Host(None)
    host.fails.add(("verify", "2"))
    record = finish(store, host, begin(store, host))
    assert record["status"] == "rolled_back"
    assert whole(host, None)


def test_an_error_that_nobody_foresaw_turns_it_as_well(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    real = host.build

    def build(state: dict[str, Any]) -> None:
        if state == NEW:
            raise OSError(28, "No space left on device")
        real(state)

    monkeypatch.setattr(host, "build", build)
    record = finish(store, host, begin(store, host))
    assert (record["status"], record["failed_step"]) == ("rolled_back", "build")
    assert "No space left on device" in record["reason"]
    assert whole(host, "1")


def test_each_step_is_announced_before_it_is_done(store: Store) -> None:
    host, announced = Host(), []
    for step in ("quiesce", "unload", "packages", "build", "load", "start", "settings", "verify"):
        real = getattr(host, step)

        def act(*arguments: Any, step: str = step, real: Any = real) -> None:
            announced.append((step, json.loads(Path(store.path).read_text())["step"]))
            real(*arguments)

        setattr(host, step, act)
    begin(store, host).run()
    assert [on_disk for _, on_disk in announced] == [step for step, _ in announced]
    assert len(announced) == 8


def test_a_shutdown_lets_the_step_end_and_the_next_boot_goes_on(store: Store) -> None:
    host = Host()
    transaction = begin(store, host)
    real = host.packages

    def packages(state: dict[str, Any], other: dict[str, Any]) -> None:
        transaction.stopping = True
        real(state, other)

    host.packages = packages  # type: ignore[method-assign]
    record = transaction.run()
    assert (record["status"], record["step"], host.disk) == ("running", "build", "2")
    host.restart()
    host.packages = real  # type: ignore[method-assign]
    assert resume(store, host)["status"] == "done"
    assert whole(host, "2")


def test_the_history_tells_what_happened(store: Store) -> None:
    host = Host()
    host.fails.add(("build", "2"))
    record = finish(store, host, begin(store, host))
    told = [(entry["direction"], entry["step"], entry["outcome"]) for entry in record["history"]]
    assert told[:5] == [
        ("forward", "quiesce", "begun"), ("forward", "quiesce", "done"), ("forward", "unload", "done"), ("forward", "packages", "done"),
        ("forward", "build", "failed: planted"),
    ]  # fmt: skip
    assert [step for direction, step, _ in told if direction == "back"] == list(STEPS)


class TestStore:
    def test_there_is_none_at_first(self, store: Store) -> None:
        assert store.read() is None

    @pytest.mark.parametrize("text", ["", "{half", "[]", '{"schema": 99}', "\x00\xff"])
    def test_a_record_that_cannot_be_understood_is_no_missing_one(self, store: Store, text: str) -> None:
        Path(store.path).write_text(text, encoding="latin-1")
        with pytest.raises(Unreadable, match=r"transaction\.json"):
            store.read()

    def test_a_write_that_is_cut_off_leaves_the_old_record(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.write({"schema": 1, "id": "old"})

        def replace(*_: Any) -> None:
            raise Killed

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(Killed):
            store.write({"schema": 1, "id": "new"})
        assert (store.read() or {})["id"] == "old"

    def test_a_full_disk_has_room_for_the_record(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        store.reserve()
        reserve = Path(store.folder, RESERVE)
        real = os.fsync

        def fsync(handle: int) -> None:
            if reserve.exists():
                raise OSError(28, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        store.write({"schema": 1, "id": "kept"})
        assert (store.read() or {})["id"] == "kept"
        assert not reserve.exists()

    def test_one_at_a_time(self, store: Store) -> None:
        with store.alone(), pytest.raises(Busy), Store(store.folder).alone():
            pass
        with store.alone():
            pass


def test_what_cannot_be_stopped_after_a_loss_of_power_is_not_taken_for_untouched(store: Store) -> None:
    host = Host()
    host.dies = ("packages", "2", "middle")
    with pytest.raises(Killed):
        begin(store, host).run()
    host.restart()
    host.fails = {("quiesce", None)}
    record = resume(store, host)
    assert (record["status"], host.disk) == ("needs_attention", "half")


class Mended(Host):
    """A host that has its driver and lacks a part of it."""

    def packages(self, state: dict[str, Any], other: dict[str, Any]) -> None:
        assert state["version"] == other["version"]
        self.at("packages", state, "before")


def test_no_service_stops_for_what_the_same_driver_lacks(store: Store) -> None:
    host, same = Mended(), {"version": "1", "flavour": "open"}
    request = {"mode": "reload", "may_reboot": False, "settings": SETTINGS, "own": ["monitor", "fabric"]}
    record = Transaction(store, host, _transaction.new("t", request, same, same, ["fabric"])).run()
    assert record["status"] == "done"
    assert not {"quiesce", "unload"} & set(host.calls) and "packages" in host.calls
