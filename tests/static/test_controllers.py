# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controllers that are supported: each lock installs on its Python and takes site.yml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.common import BIN, CHECKOUT, environment


def interpreter(version: str) -> str | None:
    """Return a Python of this version on this machine."""
    found = shutil.which(f"python{version}")
    own = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    if found and subprocess.run([found, "-c", "import venv"], capture_output=True).returncode == 0:
        return found
    return str(own[-1]) if own else None


def missing(version: str) -> pytest.MarkDecorator:
    """Skip a test where there is no such Python."""
    return pytest.mark.skipif(interpreter(version) is None, reason=f"this machine has no Python {version}")


def controller(version: str) -> Path:
    """Return the environment of a controller with this Python, made by its lock."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return BIN.parent
    venv = CHECKOUT / ".cache" / f"controller-{version}"
    made = subprocess.run(
        [CHECKOUT / "tools" / "bootstrap", str(interpreter(version))],
        env={**os.environ, "GPU_FLEET_VENV": str(venv)}, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return venv


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("version", "core"),
    [pytest.param(version, core, marks=missing(version)) for version, core in (("3.11", "2.19"), ("3.12", "2.21"), ("3.13", "2.21"))],
)
def test_site_is_sound_on_each_supported_controller(version: str, core: str) -> None:
    """The lock of that Python installs, brings the promised ansible-core, and takes site.yml."""
    venv = controller(version)
    env = environment(PATH=f"{venv}/bin:{os.environ['PATH']}")
    shown = subprocess.run([venv / "bin" / "ansible", "--version"], env=env, capture_output=True, text=True, cwd=CHECKOUT)
    assert f"[core {core}." in shown.stdout, shown.stdout + shown.stderr
    checked = subprocess.run(
        [venv / "bin" / "ansible-playbook", "site.yml", "-i", "inventories/prod", "--syntax-check"],
        env=env, capture_output=True, text=True, cwd=CHECKOUT,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("target", "version"),
    [
        # Python 3.8 is a target of the older controller alone; ansible-test knows the targets of its own release.
        pytest.param(target, version, marks=[missing(target), missing(version)])
        for target, version in (("3.8", "3.11"), ("3.9", "3.12"), ("3.10", "3.12"), ("3.11", "3.12"), ("3.13", "3.12"))
    ],
)
def test_modules_can_be_imported_on_each_python_of_a_target(target: str, version: str) -> None:
    """ansible-test imports every module and what it needs, with nothing but that Python's own library."""
    venv, python = controller(version), Path(str(interpreter(target)))
    words: list[str | Path] = [venv / "bin" / "python", CHECKOUT / "tools" / "sanity.py", "--python", target, "--test", "import"]
    env = environment(PATH=f"{python.parent}:{venv}/bin:{os.environ['PATH']}")
    done = subprocess.run(words, env=env, capture_output=True, text=True, cwd=CHECKOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'Running sanity test "import" on Python {target}' in done.stdout + done.stderr
