# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private, _apt_signers, _apt_sources, _managed, _managed_list, _record
from ansible_collections.gpu.fleet.plugins.modules import apt_sources, managed_release
from fixtures.module_run import ModuleRun
from unit.plugins.module_utils.test_apt_signers import old_signature
from unit.plugins.module_utils.test_managed import ARMORED, BINARY, FINGERPRINTS

PLACE = "developer.download.nvidia.com/compute/cuda/repos/"
VENDOR = f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://{PLACE}debian12/x86_64/ /\n"
DEBIAN = "deb http://archive.example/debian bookworm main\n"
STANZA = f"Types: deb\nURIs: http://{PLACE}debian12/x86_64/\nSuites: /\n"


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder in the place of /etc/apt, whose record is beside it."""
    folder = tmp_path / "apt"
    (folder / "sources.list.d").mkdir(parents=True)
    (folder / "trusted.gpg.d").mkdir()
    (folder / "sources.list.d" / "debian.list").write_text(DEBIAN)
    monkeypatch.setattr(_apt_sources, "FILE", str(folder / "sources.list"))
    monkeypatch.setattr(_apt_sources, "FOLDER", str(folder / "sources.list.d"))
    # Nobody's key of these tests has signed what the distribution offers.
    monkeypatch.setattr(_apt_signers, "LISTS", str(tmp_path / "lists"))
    (tmp_path / "lists").mkdir()
    for suite in ("bookworm", "sid"):
        (tmp_path / "lists" / f"archive.example_debian_dists_{suite}_Release.gpg").write_bytes(old_signature("0123456789ABCDEF"))
    monkeypatch.setattr(_managed, "TRUSTED", str(folder / "trusted.gpg"))
    monkeypatch.setattr(_managed_list, "PATH", str(tmp_path / "state" / "managed.json"))
    monkeypatch.setattr(_record.Store.__init__, "__defaults__", (str(tmp_path / "driver"),))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(apt_sources, capsys)


@pytest.fixture
def undo(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(managed_release, capsys)


def items(apt: Path) -> list[dict[str, Any]]:
    ours = str(apt / "sources.list.d" / "ours.sources")
    return [
        {"role": "r", "kind": "source", "id": PLACE, "desired": {"files": [ours]}},
        {"role": "r", "kind": "trusted_key", "id": FINGERPRINTS[0], "desired": {"spare": []}},
        {"role": "r", "kind": "file", "id": ours, "desired": {"state": "file"}},
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


LEGACY = {
    "sources.list": (DEBIAN + VENDOR).encode(),
    "sources.list.d/cuda-debian12-x86_64.list": VENDOR.encode(),
    "sources.list.d/cuda.sources": STANZA.encode(),
    "sources.list.d/both.sources": f"Types: deb\nURIs: http://archive.example/debian\nSuites: sid\n\n{STANZA}".encode(),
    "trusted.gpg": BINARY,
    "trusted.gpg.d/both.asc": ARMORED,
}
LEFT = {
    "sources.list": DEBIAN.encode(),
    "sources.list.d/both.sources": b"Types: deb\nURIs: http://archive.example/debian\nSuites: sid\n\n",
    "sources.list.d/debian.list": DEBIAN.encode(),
    "sources.list.d/ours.sources": STANZA.encode(),
}


def legacy(apt: Path) -> dict[str, bytes]:
    """Write what an earlier installation left, and what is ours."""
    for name, content in {**LEGACY, "sources.list.d/ours.sources": STANZA.encode()}.items():
        (apt / name).write_bytes(content)
    (apt / "sources.list").chmod(0o640)
    return files(apt)


def test_only_what_is_the_repositorys_goes_and_comes_back(run: ModuleRun, undo: ModuleRun, apt: Path) -> None:
    before = legacy(apt)
    predicted = run(check=True, items=items(apt))
    assert files(apt) == before and not Path(_managed_list.PATH).exists()
    done = run(items=items(apt))
    assert done == predicted and done["changed"]
    assert sorted(Path(path).name for path in done["changes"]) == sorted(Path(name).name for name in LEGACY)
    assert VENDOR.strip() in json.dumps(done["diff"]).replace("\\n", "")
    after = files(apt)
    for name in ("trusted.gpg", "trusted.gpg.d/both.asc"):
        assert _managed.fingerprints(after.pop(name)) == FINGERPRINTS[1:]
    assert after == LEFT
    assert f"{(apt / 'sources.list').stat().st_mode & 0o777:o}" == "640"
    assert run(items=items(apt))["changed"] is False

    assert undo()["changed"]
    assert files(apt) == before
    assert f"{(apt / 'sources.list').stat().st_mode & 0o777:o}" == "640"


def test_what_somebody_changed_since_gets_its_sources_back(run: ModuleRun, undo: ModuleRun, apt: Path) -> None:
    legacy(apt)
    run(items=items(apt))
    (apt / "sources.list").write_text(DEBIAN + "deb http://more/ x main")
    (apt / "sources.list.d/cuda.sources").write_text("Types: deb\nURIs: http://more/\nSuites: x\n")
    (apt / "trusted.gpg").write_bytes(b"")
    result = undo()
    assert (apt / "sources.list").read_text() == DEBIAN + "deb http://more/ x main\n" + VENDOR
    assert (apt / "sources.list.d/cuda.sources").read_text() == f"Types: deb\nURIs: http://more/\nSuites: x\n\n{STANZA}"
    assert [entry for entry in result["left"] if str(apt / "trusted.gpg") in entry]


def test_a_list_that_comes_again_is_put_aside_again(run: ModuleRun, undo: ModuleRun, apt: Path) -> None:
    path = apt / "sources.list.d" / "cuda.list"
    for content in (VENDOR, "# of a package\n" + VENDOR, VENDOR):
        path.write_text(content)
        assert run(items=items(apt))["changed"]
        assert not path.exists()
    undo()
    assert path.read_text().count(VENDOR) == 1


@pytest.mark.parametrize(("signer", "kept"), [(FINGERPRINTS[0], True), (FINGERPRINTS[1], False), (None, True)])
@pytest.mark.parametrize("known", [True, False])
def test_a_key_that_another_source_needs_stays(
    run: ModuleRun, apt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signer: str | None, kept: bool, known: bool
) -> None:
    """Also where the lists, from which that is seen, are not on the host and have to be fetched; and where they cannot be had."""
    legacy(apt)
    name = "archive.example_debian_dists_bookworm_Release.gpg"
    data = old_signature(signer[-16:]) if signer else b""
    (tmp_path / "lists" / name).unlink()
    if known:
        (tmp_path / "lists" / name).write_bytes(data)

    def update(private: _apt_private.PrivateApt) -> None:
        assert VENDOR not in Path(private.root, "sources.list").read_text(), "what is to go would be asked, too"
        if not signer:
            raise _apt.Failed("archive.example does not answer")
        Path(private.lists, name).write_bytes(data)

    monkeypatch.setattr(_apt_private, "LISTS", str(apt / "sources.list.d"))
    monkeypatch.setattr(_apt_private.PrivateApt, "update", update)
    predicted = run(check=True, items=items(apt))
    done = run(items=items(apt))
    assert done == predicted
    assert done["kept"] == ({FINGERPRINTS[0]: ["http://archive.example/debian bookworm"]} if kept else {})
    assert (FINGERPRINTS[0] in _managed.fingerprints((apt / "trusted.gpg").read_bytes())) is kept
    assert not (apt / "sources.list.d/cuda.sources").exists()
    assert run(items=items(apt))["changed"] is False


def test_a_damaged_record_stops_everything(run: ModuleRun, apt: Path) -> None:
    before = legacy(apt)
    os.makedirs(os.path.dirname(_managed_list.PATH))
    Path(_managed_list.PATH).write_text("{")
    assert "move it away" in run(items=items(apt))["msg"]
    assert files(apt) == before
