# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private, _download
from ansible_collections.gpu.fleet.plugins.modules import apt_repository_info
from fixtures.module_run import ModuleRun

REPOSITORY = {
    "path": "/etc/apt/sources.list.d/vendor.sources",
    "content": "Types: deb\nURIs: http://site/\nSuites: /\nSigned-By: /etc/apt/keyrings/vendor.asc\n",
    "key_path": "/etc/apt/keyrings/vendor.asc",
    "key_url": "http://site/vendor.pub",
    "fingerprint": "A" * 40,
}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Give the calls of apt-get, each with the sources that it knew; it answers as `answer` in the folder says."""
    found: list[tuple[list[str], dict[str, str]]] = []
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "own.list").write_text("deb http://own/ /\n")

    def run(words: list[str], _seconds: int) -> tuple[int, str]:
        parts = next(word.partition("=")[2] for word in words if word.startswith("Dir::Etc::SourceParts="))
        found.append((words, {path.name: path.read_text() for path in Path(parts).iterdir()}))
        return (100, (tmp_path / "bad").read_text()) if (tmp_path / "bad").exists() else (0, "")

    monkeypatch.setattr(_apt_private, "LISTS", str(tmp_path / "lists"))
    monkeypatch.setattr(_apt, "run", run)
    monkeypatch.setattr(_download, "key", lambda *_words: b"key")
    return found


@pytest.fixture
def module(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(apt_repository_info, capsys)


@pytest.mark.parametrize("check", [False, True])
def test_one_repository_is_asked_and_no_other(calls: list[Any], module: ModuleRun, check: bool) -> None:
    assert module(check, repository=REPOSITORY)["changed"] is False
    ((words, sources),) = calls
    assert "update" in words and "Dir::Etc::SourceList=/dev/null" in words
    assert list(sources) == ["vendor.sources"] and "http://site/" in sources["vendor.sources"]


def test_lists_that_do_not_come_are_a_failure(calls: list[Any], module: ModuleRun, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("E: no lists here\n")
    assert "no lists here" in module(repository=REPOSITORY)["msg"]
    assert len(calls) == 1


def test_another_key_is_a_failure(calls: list[Any], module: ModuleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(*_words: object) -> bytes:
        raise _download.Failed("the site holds the key B")

    monkeypatch.setattr(_download, "key", key)
    assert module(repository=REPOSITORY)["msg"] == "the site holds the key B"
    assert calls == []


def test_a_verifier_that_does_not_accept_the_key(calls: list[Any], module: ModuleRun, tmp_path: Path) -> None:
    """As Debian 13 puts it: its apt verifies with sqv."""
    (tmp_path / "bad").write_text(
        "W: OpenPGP signature verification failed: http://site  InRelease: Sub-process /usr/bin/sqv returned an error code (1), error message is: "
        "Signing key on AA is not bound:            because: SHA1 is not considered secure since 2026-02-01T00:00:00Z\n"
        "E: The repository 'http://site  InRelease' is not signed.\n"
    )
    said = module(repository={**REPOSITORY, "instead": "another one"})["msg"]
    assert f"does not accept the key {'A' * 40}" in said and "use another one" in said and "is not signed" in said


def test_a_repository_behind_a_proxy(calls: list[Any], module: ModuleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_download, "through", calls.append)
    module(repository={**REPOSITORY, "proxy": "http://proxy:3128"})
    assert calls[0] == "http://proxy:3128"
    assert {f"Acquire::{scheme}::Proxy::site=http://proxy:3128" for scheme in ("http", "https")} <= set(calls[1][0])
