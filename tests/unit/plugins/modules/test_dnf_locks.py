# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _dnf, _download, _locks, _managed_list, _managers, _record, _streams
from ansible_collections.gpu.fleet.plugins.modules import dnf_locks, dnf_upgrade_info, managed_record, managed_release
from fixtures.module_run import ModuleRun

LINE = "nvidia-modprobe-3:580.178.04-1.el9.*"
THEIRS = "# The site's.\nhtop-0:3.2-1.el9.*\nnvidia-modprobe-3:535.309.01-1.el9.*\n"
CONTENT = "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n"
REPOSITORY = {
    "path": "/etc/yum.repos.d/vendor.repo", "content": "[vendor]\nname=vendor\nbaseurl=http://site/\n", "key_path": "/etc/pki/rpm-gpg/vendor",
    "key_url": "http://site/vendor.pub", "fingerprint": "a" * 40, "stream": "nvidia-driver:580-open",
}  # fmt: skip
ITEMS: list[dict[str, Any]] = [
    {"role": "r", "kind": "lock", "id": "nvidia-modprobe", "desired": {"lines": [LINE]}},
    {"role": "r", "kind": "stream", "id": "nvidia-driver", "desired": {"stream": "580-open", "content": CONTENT}},
    {"role": "r", "kind": "package", "id": "nvidia-modprobe", "desired": {"version": "3:580.178.04-1.el9"}},
]
MOVE = {
    "name": "nvidia-modprobe", "package": "nvidia-modprobe", "from": "3:580.178.04-1.el9", "to": "4:999.1-1", "action": "change", "lower": False,
}  # fmt: skip


Look = Callable[..., dict[str, Any]]


class Host:
    """The two files, and what stands in for dnf."""

    def __init__(self, folder: Path) -> None:
        self.locks, self.stream = folder / "versionlock.list", folder / "nvidia-driver.module"
        self.locks.write_text(THEIRS)
        self.answer: dict[str, Any] = {"changes": [], "locking": True}
        self.requests: list[dict[str, Any]] = []
        self.planned = ""

    def run(self, _words: list[str], request: str, _seconds: int, _said: str) -> dict[str, Any]:
        """Keep what is asked, and the list of locks that it would be asked under."""
        asked = json.loads(request)
        self.requests.append(asked)
        for folder in asked["settings"].get("pluginconfpath", [])[1:]:
            settings = Path(folder, "versionlock.conf").read_text()
            self.planned = Path(settings.split("locklist = ")[1].strip()).read_text()
        return self.answer


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(tmp_path)
    monkeypatch.setattr(_locks, "PATH", str(found.locks))
    monkeypatch.setattr(_streams, "PATH", f"{tmp_path}/%s.module")
    monkeypatch.setattr(_managed_list, "PATH", str(tmp_path / "state" / "managed.json"))
    monkeypatch.setattr(_record.Store.__init__, "__defaults__", (str(tmp_path / "driver"),))
    monkeypatch.setattr(_managers, "here", _managers.DnfManager)
    monkeypatch.setattr(dnf_upgrade_info, "AUTOMATIC", str(tmp_path / "none.conf"))
    monkeypatch.setattr(_dnf, "installed", lambda: [("nvidia-modprobe", "3:580.178.04-1.el9", "580.178.04-1.el9.x86_64")])
    monkeypatch.setattr(_dnf, "run", found.run)
    monkeypatch.setattr(_dnf, "interpreter", lambda: ["python"])
    monkeypatch.setattr(_download, "key", lambda *_words: b"key")
    monkeypatch.setattr(_dnf, "FOLDERS", (str(tmp_path / "none"),))
    return found


@pytest.fixture
def lock(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(dnf_locks, capsys)


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Look:
    return functools.partial(ModuleRun(dnf_upgrade_info, capsys), repository=REPOSITORY)


def test_what_differs_is_written_once(host: Host, lock: ModuleRun) -> None:
    foreseen = lock(check=True, items=ITEMS)
    assert host.locks.read_text() == THEIRS and not host.stream.exists()
    done = lock(items=ITEMS)
    assert foreseen == done and done["changes"] == sorted([str(host.locks), str(host.stream)])
    assert _locks.active(host.locks.read_text()) == {"htop": ["htop-0:3.2-1.el9.*"], "nvidia-modprobe": [LINE]}
    assert host.stream.read_text() == CONTENT
    assert lock(items=ITEMS)["changed"] is False


def test_a_stream_that_dnf_wrote_in_its_own_way_is_left(host: Host, lock: ModuleRun) -> None:
    host.stream.write_text(CONTENT.replace("profiles=", "profiles=default") + "\n")
    assert lock(items=ITEMS[1:])["changed"] is False
    host.stream.write_text(CONTENT.replace("580-open", "latest-dkms"))
    assert lock(items=ITEMS[1:])["changes"] == [str(host.stream)]


def test_what_was_there_before_comes_back(host: Host, lock: ModuleRun, capsys: pytest.CaptureFixture[str]) -> None:
    record, release = ModuleRun(managed_record, capsys), ModuleRun(managed_release, capsys)
    record(items=ITEMS)
    lock(items=ITEMS)
    foreseen = release(check=True)
    assert LINE in host.locks.read_text()
    done = release()
    assert foreseen == done and {change.partition(":")[0] for change in done["changes"]} == {"locks", "stream", "list"}
    assert host.locks.read_text() == THEIRS and not host.stream.exists()
    assert release()["changed"] is False


def test_a_host_whose_driver_stays(host: Host, lock: ModuleRun, look: Look) -> None:
    lock(items=ITEMS)
    host.answer["changes"] = [{**MOVE, "name": "bash", "package": "bash"}]
    found = look(items=ITEMS)
    assert (found["findings"], found["changed"]) == ([], False)
    assert (host.requests[0]["verb"], host.requests[0]["refresh"]) == ("upgrade", False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (MOVE, "change nvidia-modprobe 3:580.178.04-1.el9 to 4:999.1-1"),
        ({**MOVE, "to": None, "action": "remove"}, "remove nvidia-modprobe 3:580.178.04-1.el9"),
        ({**MOVE, "name": "nvidia-driver-next", "from": None, "action": "install"}, "install nvidia-driver-next 4:999.1-1"),
    ],
)
def test_what_a_full_upgrade_would_do(host: Host, lock: ModuleRun, look: Look, change: dict[str, Any], said: str) -> None:
    lock(items=ITEMS)
    host.answer["changes"] = [change]
    assert look(items=ITEMS)["findings"] == [f"a full upgrade would {said}"]


def test_each_thing_that_keeps_them_is_looked_at(host: Host, look: Look) -> None:
    host.answer["locking"] = False
    found = look(items=ITEMS)
    assert (found["unlocked"], found["locking"], found["stream"]) == (["nvidia-modprobe"], False, "none")
    assert len(found["findings"]) == 3


def test_automatic_updates_without_plugins_are_seen(
    host: Host, lock: ModuleRun, look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host.locks.exists()
    lock(items=ITEMS)
    monkeypatch.setattr(dnf_upgrade_info, "AUTOMATIC", str(tmp_path / "automatic.conf"))
    for text, unfenced in (("[commands]\napply_updates = yes\n", False), ("[base]\nplugins = 0\n", True), ("[base]\nplugins=True\n", False)):
        (tmp_path / "automatic.conf").write_text(text)
        found = look(items=ITEMS)
        assert found["unfenced"] is unfenced and len(found["findings"]) == unfenced


def test_what_is_planned_counts_as_there(host: Host, look: Look) -> None:
    host.answer = {"changes": [{**MOVE, "from": "3:535.309.01-1.el9", "to": "3:580.178.04-1.el9"}], "locking": False}
    found = look(items=ITEMS, planned=True)
    assert found["findings"] == []
    assert _locks.active(host.planned)["nvidia-modprobe"] == [LINE] and host.locks.read_text() == THEIRS
    assert (host.requests[0]["private"], host.requests[0]["refresh"]) == (True, True)
    host.answer["changes"] = [MOVE]
    assert look(items=ITEMS, planned=True)["moves"]
