# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tools share: where things are, how a command is run, how progress is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BUILD = CHECKOUT / "build"
CACHE = CHECKOUT / ".cache"
BIN = Path(sys.executable).parent


class ToolError(Exception):
    """Something that the person at the keyboard can mend; its text is one line that says how."""


def say(text: str) -> None:
    """Show one line of progress."""
    print(f"== {text}", flush=True)


def environment(**extra: str) -> dict[str, str]:
    """Return the environment for Ansible's tools: the checkout's configuration, the venv's programs, nothing from the home folder."""
    return {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_HOME": str(CACHE / "ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "collections"),
        "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}",
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def run(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path = CHECKOUT) -> int:
    """Run a command with its output on ours and return its exit code."""
    interrupted = False
    with subprocess.Popen([str(word) for word in argv], cwd=cwd, env=env or environment()) as process:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                # The terminal has sent it to the command too, which may have hosts to take away before it ends.
                interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return code


def tracked_files() -> list[Path]:
    """Return the files of the checkout that git does not ignore, relative to it, without the links under collections/."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout
    names = sorted(set(listed.split("\0")) - {""})
    return [Path(name) for name in names if not name.startswith("collections/") and (CHECKOUT / name).exists()]


class Clock:
    """Tells how long something took."""

    def __init__(self) -> None:
        """Start."""
        self.start = time.monotonic()

    def __str__(self) -> str:
        """Return the time since the start."""
        return f"{time.monotonic() - self.start:.1f} s"
