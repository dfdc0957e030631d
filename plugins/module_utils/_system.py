# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Reading a host's files without ever failing: what cannot be read becomes an entry in the list of problems.

Paths are absolute as seen on the host; C(root) is put before them so that tests can read a made-up tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import time
import typing as t

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO)


class TookTooLong(BaseException):
    """Raised inside a probe whose time is up (not an Exception, so that no probe swallows it)."""


def _time_is_up(*_signal: t.Any) -> t.NoReturn:
    raise TookTooLong


class System:
    """The host as files: reads below C(root), keeps problems as [{probe, reason}]."""

    def __init__(self, root: str = "/", total: float = 10.0, tell: t.Callable[[str, t.Any], None] = lambda _kind, _value: None) -> None:
        self.root = "" if root == "/" else os.path.realpath(root)
        self.until = time.monotonic() + total
        self.problems: list[dict[str, str]] = []
        self._probe = "host"
        self._tell = tell

    def remaining(self) -> float:
        """Seconds left for the whole observation; never negative."""
        return max(0.0, self.until - time.monotonic())

    def problem(self, reason: str, probe: str | None = None) -> None:
        """Note something; what programs and files put into a reason must not act on the terminal of whoever reads it."""
        reason = "".join(letter if letter.isprintable() else "?" for letter in reason)
        entry = {"probe": probe or self._probe, "reason": reason}
        if entry not in self.problems:
            self.problems.append(entry)

    @contextlib.contextmanager
    def probe(self, name: str, limit: float) -> t.Iterator[None]:
        """Run the body as the probe C(name), at most C(limit) seconds; whatever goes wrong is noted, not raised."""
        self._probe = name
        self._tell("probe", name)
        seconds = min(limit, self.remaining())
        if seconds <= 0:
            self.problem("not run: the time of the whole observation was used up")
        # A body cannot be left out from here: with no time left it is interrupted at its first step.
        previous = signal.signal(signal.SIGALRM, _time_is_up)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except TookTooLong:
            if seconds > 0:
                self.problem("gave up after %.1f s" % seconds)
        except Exception as error:  # pylint: disable=broad-except
            self.problem("%s: %s" % (type(error).__name__, error))
        finally:
            signal.signal(signal.SIGALRM, previous)

    def path(self, path: str) -> str:
        return self.root + path

    def read_bytes(self, path: str, limit: int = 1 << 20, quiet: bool = False) -> bytes | None:
        """Content of a file, at most C(limit) bytes; None when it is absent or cannot be read (the latter is noted)."""
        try:
            # Not blocking: a pipe in the place of a file must not hold us.
            handle = os.open(self.root + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in ABSENT and not quiet:
                self.problem("cannot read %s: %s" % (path, os.strerror(error.errno or 0)))
            return None
        try:
            data = os.read(handle, limit)
            chunk = data
            while chunk and len(data) < limit and len(chunk) >= 4096:
                chunk = os.read(handle, limit - len(data))
                data += chunk
            if not data and not stat.S_ISREG(os.fstat(handle).st_mode):
                # A pipe that nobody writes to reads as an empty file.
                if not quiet:
                    self.problem("cannot read %s: it is no regular file" % path)
                return None
            return data
        except OSError as error:
            if error.errno not in ABSENT and not quiet:
                self.problem("cannot read %s: %s" % (path, os.strerror(error.errno or 0)))
            return None
        finally:
            os.close(handle)

    def read(self, path: str, limit: int = 1 << 20, quiet: bool = False) -> str | None:
        """Content of a file as text without surrounding blanks."""
        data = self.read_bytes(path, limit, quiet)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def number(self, path: str, quiet: bool = True) -> int | None:
        """Content of a file as a number (decimal or 0x...); None for anything else."""
        text = self.read(path, 64, quiet)
        try:
            return int(text, 0) if text else None
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; an absent folder has none, an unreadable one is noted."""
        try:
            return sorted(os.listdir(self.root + path))
        except OSError as error:
            if error.errno not in ABSENT:
                self.problem("cannot list %s: %s" % (path, os.strerror(error.errno or 0)))
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self.root + path)

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when there is none."""
        try:
            return os.stat(self.root + path).st_size
        except OSError:
            return None

    def real(self, path: str) -> str:
        """The path with all links resolved, seen from the host."""
        return os.path.realpath(self.root + path)[len(self.root):]

    def device(self, path: str) -> str:
        """Where a link in sysfs leads, seen from the host: its target has no further links, so that no folder on the way needs a look."""
        try:
            target = os.readlink(self.root + path)
        except OSError:
            return path
        return os.path.normpath(os.path.join(self.device(os.path.dirname(path)), target))

    def link(self, path: str) -> str | None:
        """Last part of the target of a link (a driver, a device); None when it is no link."""
        try:
            return os.path.basename(os.readlink(self.root + path))
        except OSError:
            return None
