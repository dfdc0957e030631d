# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tools/bootstrap makes an environment of its own and touches nobody else's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.common import CHECKOUT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Give a checkout that has a lock of nothing, so that whatever is made is made at once."""
    made = tmp_path / "checkout"
    (made / "tools").mkdir(parents=True)
    (made / "requirements").mkdir()
    shutil.copy(CHECKOUT / "tools" / "bootstrap", made / "tools")
    for name in ("py311.txt", "py312.txt"):
        (made / "requirements" / name).write_text("")
    return made


def bootstrap(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run it with this very Python."""
    return subprocess.run([checkout / "tools" / "bootstrap", sys.executable], capture_output=True, text=True)


def test_a_link_is_left_as_it_is(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".stamp").write_text("3.12 1 2 /somewhere/else\n")
    (checkout / ".venv").symlink_to(other)
    done = bootstrap(checkout)
    assert done.returncode == 1 and f".venv is a link to {other}, and is left as it is" in done.stderr
    assert (checkout / ".venv").is_symlink() and (other / ".stamp").read_text() == "3.12 1 2 /somewhere/else\n"


def test_an_environment_of_another_tool_is_left_as_it_is(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "pyvenv.cfg").write_text("uv = 0.9\n")
    done = bootstrap(checkout)
    assert done.returncode == 1 and ".venv was not made by tools/bootstrap, and is left as it is" in done.stderr
    assert (checkout / ".venv" / "pyvenv.cfg").read_text() == "uv = 0.9\n"


def test_an_environment_that_was_cut_off_is_made_again(checkout: Path) -> None:
    """The programs that it would go on with are not there: it is enough to see that it goes on."""
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".stamp").write_text("unfinished\n")
    (checkout / ".venv" / "left-over").write_text("")
    python = checkout / "python"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\nexit 3\n')
    python.chmod(0o755)
    done = subprocess.run(
        [checkout / "tools" / "bootstrap", python], capture_output=True, text=True, env={"PATH": f"{nothing(checkout)}:/usr/bin:/bin"}
    )
    assert done.returncode != 0 and "== making .venv" in done.stdout
    assert not (checkout / ".venv" / "left-over").exists() and (checkout / ".venv" / ".stamp").read_text() == "unfinished\n"


def nothing(checkout: Path) -> Path:
    """Return a folder whose apt-get installs nothing."""
    folder = checkout / "bin"
    folder.mkdir()
    (folder / "apt-get").write_text("#!/bin/sh\nexit 9\n")
    (folder / "apt-get").chmod(0o755)
    return folder
