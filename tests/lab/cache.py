# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders that are built once and kept by content: made whole or not at all, and not removed while somebody stands on them."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lab.paths import LabError

BUILDING = ".building-"


@contextmanager
def locked(path: Path, waiting: str = "") -> Iterator[None]:
    """Let one process at a time do a thing; `waiting` is shown when another one is at it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    from lab.machine import say  # noqa: PLC0415  (only those who wait speak)

                    say(waiting)
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Whoever held it may have removed it, and somebody else made it anew: then the lock is that one.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    yield
                    return


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lease")


class Lease:
    """Keeps a folder of the cache from being removed, across processes and namespaces, until it is given back."""

    def __init__(self, folder: Path) -> None:
        """Take the lease; raises LabError when the folder is not there (any more)."""
        self.folder = folder
        try:
            self._lock: IO[str] = _lock_of(folder).open("a")
        except OSError:
            raise LabError(f"{folder} is not there") from None
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        os.utime(self._lock.fileno())
        if not folder.is_dir():
            self._lock.close()
            raise LabError(f"{folder} is not there any more; run the same command again")

    def release(self) -> None:
        """Give the lease back."""
        self._lock.close()


def rested(folder: Path) -> float:
    """Return the seconds since a lease on a folder was last taken."""
    with suppress(FileNotFoundError):
        return time.time() - _lock_of(folder).stat().st_mtime
    return time.time() - folder.stat().st_mtime


def in_use(folder: Path) -> bool:
    """Tell whether somebody holds a lease on a folder at this moment."""
    with suppress(FileNotFoundError), _lock_of(folder).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def remove_unused(folder: Path) -> bool:
    """Remove a folder unless somebody holds a lease on it; tells whether it is gone."""
    with _lock_of(folder).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if folder.is_dir():
            # Renamed first, so that what is half removed is never taken for whole.
            dying = folder.with_name(f".dying-{os.getpid()}-{folder.name}")
            folder.rename(dying)
            shutil.rmtree(dying, ignore_errors=True)
    return True


def remove_rests(parent: Path, pattern: str = "") -> None:
    """Remove what interrupted removals left in a folder, and interrupted builds of things that match a pattern."""
    for rest in parent.glob(".dying-*"):
        shutil.rmtree(rest, ignore_errors=True)
    for rest in parent.glob(f"{BUILDING}{pattern}") if pattern else ():
        with build_lock(parent / rest.name.removeprefix(BUILDING)).open("a") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(rest, ignore_errors=True)


def build_lock(folder: Path) -> Path:
    """Return the file that is locked while a folder is built."""
    return folder.with_name(f".{folder.name}.lock")


def building(folder: Path) -> Path:
    """Return where a folder grows before it is put in its place."""
    return folder.with_name(f"{BUILDING}{folder.name}")
