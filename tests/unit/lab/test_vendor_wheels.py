# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheel index: what pip fetches becomes an index that pip can install from; what cannot be fetched is said plainly."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from lab.paths import LabError
from lab.vendor import wheels


def make_wheel(folder: Path, name: str, version: str) -> None:
    """Write an empty wheel."""
    stem = f"{name}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")


def test_the_index_names_every_wheel_with_its_checksum(tmp_path: Path) -> None:
    make_wheel(tmp_path, "torch", "2.13.0+cpu")
    make_wheel(tmp_path, "typing_extensions", "4.15.0")
    wheels.write_index(tmp_path)
    page = (tmp_path / "torch/index.html").read_text()
    digest = wheels.checksum(tmp_path / "torch-2.13.0+cpu-py3-none-any.whl")
    assert f'href="../torch-2.13.0%2Bcpu-py3-none-any.whl#sha256={digest}"' in page
    assert 'href="typing-extensions/"' in (tmp_path / "index.html").read_text()
    assert (tmp_path / "typing-extensions/index.html").exists()


def test_an_index_over_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no wheels"):
        wheels.write_index(tmp_path)


def test_fetched_once_and_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fetch(folder: Path, _pip: list[str]) -> None:
        calls.append(folder)
        make_wheel(folder, "torch", "2.13.0+cpu")

    monkeypatch.setattr(wheels, "download", fetch)
    folder = wheels.prepare_wheels(tmp_path)
    assert folder == tmp_path / "vendor/wheels/cpu"
    assert wheels.prepare_wheels(tmp_path) == folder
    assert len(calls) == 1
    assert list(folder.parent.glob("part-*")) == []
    # Another recipe, another index.
    monkeypatch.setattr(wheels, "WANTED", ("torch==9",))
    wheels.prepare_wheels(tmp_path)
    assert len(calls) == 2


def test_a_failed_fetch_leaves_nothing_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "machine_pip", lambda _spare: ["sh", "-c", "echo 'ERROR: No matching distribution' >&2; exit 1", "pip"])
    with pytest.raises(LabError, match=r"No matching distribution.*PIP_FIND_LINKS"):
        wheels.prepare_wheels(tmp_path)
    assert [path.name for path in (tmp_path / "vendor/wheels").iterdir()] == ["lock"]


def test_a_pip_is_found_beside_a_bare_virtual_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare, good = tmp_path / "bare/python3", tmp_path / "good/python3"
    for path, code in ((bare, 1), (good, 0)):
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    monkeypatch.setenv("PATH", f"{bare.parent}:{good.parent}")
    assert wheels.machine_pip(tmp_path / "spare") == [str(good), "-m", "pip"]


def test_a_machine_without_pip_makes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []

    def only_a_venv(line: list[str]) -> bool:
        tried.append(line)
        return "venv" in line

    monkeypatch.setattr(wheels, "works", only_a_venv)
    assert wheels.machine_pip(tmp_path / "spare") == [str(tmp_path / "spare/bin/python3"), "-m", "pip"]
    assert tried[-1][1:] == ["-m", "venv", "--clear", str(tmp_path / "spare")]
    monkeypatch.setattr(wheels, "works", lambda _line: False)
    with pytest.raises(LabError, match="apt-get install python3-pip"):
        wheels.machine_pip(tmp_path / "spare")
