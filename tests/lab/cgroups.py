# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups: each host gets one of its own, by which it is frozen and killed whole."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
# $1 descriptor of a network namespace, then control groups up to "--", then the program. nspawn must start inside both: with
# its own option for the namespace /sys would show the machine's interfaces, and without a group of its own the systemd of
# one host would manage the units of every other host.
ENTER = """
ns=$1; shift
while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 125; shift; done; shift
exec nsenter --net=/proc/self/fd/$ns "$@"
"""


def hierarchies() -> list[Path]:
    """Return the roots of the trees that a host gets a place in; the last one can freeze and kill."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [ROOT / "systemd", ROOT / "unified"]


class Group:
    """A control group in every tree, by its path in them."""

    def __init__(self, name: str) -> None:
        """Name the group; `make` makes it."""
        self.folders = [root / name for root in hierarchies()]

    def child(self, name: str) -> Group:
        """Return a group below this one."""
        child = Group("")
        child.folders = [folder / name for folder in self.folders]
        return child

    def make(self) -> None:
        """Make the group."""
        for folder in self.folders:
            folder.mkdir(parents=True, exist_ok=True)

    def enter(self, namespace: int, argv: list[str]) -> list[str]:
        """Return the words that start a program in this group and in a network namespace."""
        return ["sh", "-c", ENTER, "enter", str(namespace), *map(str, self.folders), "--", *argv]

    def kill(self) -> None:
        """Kill every process of the group, frozen ones too."""
        self._write("cgroup.kill", "1")

    def freeze(self, frozen: bool) -> None:
        """Stop every process of the group, or let them go on."""
        self._write("cgroup.freeze", "1" if frozen else "0")

    def _write(self, name: str, value: str) -> None:
        with suppress(FileNotFoundError):
            (self.folders[-1] / name).write_text(value)

    def empty(self) -> bool:
        """Tell whether no process is in the group or below it."""
        with suppress(OSError):
            return "populated 0" in (self.folders[-1] / "cgroup.events").read_text()
        return True

    def remove(self, seconds: float = 5.0) -> bool:
        """Kill what is in the group and remove it; tells whether nothing is left."""
        end = time.monotonic() + seconds
        while True:
            left = [folder for folder in self.folders if not _removed(folder)]
            if not left:
                return True
            if time.monotonic() > end:
                return False
            self.kill()
            time.sleep(0.02)


def _removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        # Busy ones are met again at the next try.
        with suppress(OSError):
            os.rmdir(folder)
    return not top.exists()
