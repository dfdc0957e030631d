# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments made for real, from an index in a folder that holds one tiny package in two versions."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Runner
from ansible_collections.gpu.fleet.plugins.modules import python_environment as module


def wheel(folder: Path, version: str) -> None:
    """Write a wheel of the package "tiny"."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a simple index (PEP 503) in a folder."""
    top = tmp_path_factory.mktemp("index")
    for version in ("1.0", "2.0+cpu"):
        wheel(top / "tiny", version)
    links = "".join(f'<a href="{path.name}">{path.name}</a>' for path in (top / "tiny").glob("*.whl"))
    (top / "tiny" / "index.html").write_text(f"<html><body>{links}</body></html>")
    return top


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefix") / "below" / "environment"


def environment(prefix: Path, index: Path, version: str, **more: Any) -> module.PythonEnvironment:
    params: dict[str, Any] = {"path": str(prefix), "packages": {"Tiny": version}, "index_url": index.as_uri(), "trusted_hosts": [], "proxy": None}
    params |= {"python": sys.executable, "timeout": 120, **more}
    return module.PythonEnvironment(params, Runner(lambda: float("inf")))


def test_it_is_made_changed_repaired_and_removed(prefix: Path, index: Path) -> None:
    one = environment(prefix, index, "1.0")
    assert one.found() is None
    one.install()
    assert one.found() == {"tiny": "1.0"}

    two = environment(prefix, index, "2.0+cpu")
    two.install()
    assert two.found() == {"tiny": "2.0+cpu"}

    info = next(prefix.glob("lib/python3*/site-packages/tiny-*.dist-info"))
    info.rename(info.with_name("tiny-9.9.dist-info"))
    assert two.found() == {"tiny": "9.9"}
    two.install()
    assert two.found() == {"tiny": "2.0+cpu"}

    with pytest.raises(module.EnvironmentFault, match=r"installing tiny==3\.0 .* failed"):
        environment(prefix, index, "3.0").install()
    assert two.found() == {"tiny": "2.0+cpu"}

    (prefix / "bin" / "python").unlink()
    assert two.found() is None
    two.remove()
    assert not prefix.exists()


def test_an_interpreter_without_venv_says_what_failed(tmp_path: Path, index: Path) -> None:
    with pytest.raises(module.EnvironmentFault, match=r"creating the environment .* failed"):
        environment(tmp_path / "environment", index, "1.0", python="/bin/false").install()


def test_a_folder_that_is_no_environment_is_not_removed(tmp_path: Path, index: Path) -> None:
    (tmp_path / "data").write_text("mine")
    with pytest.raises(module.EnvironmentFault, match="not removed"):
        environment(tmp_path, index, "1.0").remove()
    assert (tmp_path / "data").exists()
