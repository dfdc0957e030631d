# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Running programs of the host side by side, each with a limit, none of them able to hold us.

A program that does not end is killed with its whole process group; one that cannot be killed (uninterruptible
sleep on a sick device) is abandoned, not waited for.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
import typing as t

MOST_OUTPUT = 8 << 20
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Result(t.NamedTuple):
    """C(failure) is None when the program ended by itself, whatever its exit status; times are seconds."""

    rc: t.Optional[int]
    out: str
    err: str
    failure: t.Optional[str]

    @property
    def complaint(self) -> str:
        """One line that says what went wrong."""
        text = self.failure or (self.err.strip() or self.out.strip() or "no message").splitlines()[0][:200]
        return text if self.failure else "exit status %s: %s" % (self.rc, text)


@contextlib.contextmanager
def uninterrupted() -> t.Iterator[None]:
    """The limit of a probe (see C(System.probe)) strikes after the body, not within: a program must not slip away between its start and our list."""
    begin = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - begin)), interval)


class Child:
    """One running program and what it has said so far."""

    def __init__(self, argv: t.Sequence[str], until: float, limit: float) -> None:
        self.argv = argv
        self.until = until
        self.limit = limit
        self.failure: str | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.said: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
        self.open = 0


class Runner:
    """Starts programs and collects their answers; C(remaining) gives the seconds left for everything."""

    def __init__(
        self, remaining: t.Callable[[], float], limit: float = 3.0, search: str | None = None,
        tell: t.Callable[[str, t.Any], None] = lambda _kind, _value: None,
    ) -> None:
        self._tell = tell
        # Seconds to wait in all for killed children to be gone.
        self._patience = 0.3
        self._remaining = remaining
        self._limit = limit
        self._search = search or SEARCH
        self._selector = selectors.DefaultSelector()
        self._children: list[Child] = []
        self._environment = {"PATH": self._search, "LC_ALL": "C", "LANGUAGE": "C", "HOME": os.environ.get("HOME", "/")}

    def find(self, program: str) -> str | None:
        """Absolute path of a program, or None."""
        for folder in self._search.split(":"):
            path = os.path.join(folder, program)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
        return None

    def start(self, argv: t.Sequence[str], limit: float | None = None) -> Child:
        """Start a program (no shell, no input, its own process group); a missing one fails in its result."""
        seconds = min(limit or self._limit, self._remaining())
        child = Child(argv, time.monotonic() + seconds, seconds)
        path = self.find(argv[0])
        if path is None:
            child.failure = "%s is not installed" % argv[0]
            return child
        if seconds <= 0:
            child.failure = "not run: the time of the whole observation was used up"
            return child
        with uninterrupted():
            self._start(child, [path, *argv[1:]])
        return child

    def _start(self, child: Child, argv: list[str]) -> None:
        try:
            # Ansible's run_command waits without a limit, also for a child that cannot be killed.
            child.process = subprocess.Popen(  # pylint: disable=ansible-bad-function
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            child.failure = "cannot be run: %s" % error
            return
        self._children.append(child)
        self._tell("started", child.process.pid)
        for name, stream in (("out", child.process.stdout), ("err", child.process.stderr)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ, (child, name))
                child.open += 1

    def result(self, child: Child) -> Result:
        """Wait for a program; the others' output is taken meanwhile, so that none of them stands still."""
        process = child.process
        if process is not None and child in self._children:
            while child.open and child.failure is None:
                left = child.until - time.monotonic()
                if left <= 0:
                    break
                self._take(left)
            if child.open == 0 and child.failure is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, child.until - time.monotonic()))
            # A child that has ended but left its pipe to a grandchild has still answered.
            if child.failure is None and process.poll() is None:
                child.failure = "no answer within %.1f s" % child.limit
            with uninterrupted():
                self._end(child)
        texts = {name: bytes(said).decode("utf-8", "replace") for name, said in child.said.items()}
        rc = process.returncode if process is not None and child.failure is None else None
        return Result(rc, texts["out"], texts["err"], child.failure)

    def run(self, argv: t.Sequence[str], limit: float | None = None) -> Result:
        return self.result(self.start(argv, limit))

    def close(self) -> None:
        """End whatever still runs; called once, at the end of the observation."""
        for child in list(self._children):
            self._end(child)
        self._selector.close()

    def _take(self, seconds: float) -> None:
        for key, _dummy in self._selector.select(seconds):
            child, name = key.data
            try:
                chunk = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                self._selector.unregister(key.fileobj)
                child.open -= 1
            child.said[name] += chunk
            if len(child.said[name]) > MOST_OUTPUT:
                child.failure = "more than %d MiB of output" % (MOST_OUTPUT >> 20)

    def _end(self, child: Child) -> None:
        self._children.remove(child)
        process = child.process
        if process is None:
            return
        alive = process.poll() is None
        # Also after a child that has ended: what it started and left in its group is nobody's any more.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        if alive:
            begin = time.monotonic()
            try:
                process.wait(max(0.0, min(0.1, self._patience)))
            except subprocess.TimeoutExpired:
                child.failure = "%s; it cannot be killed and was left behind" % (child.failure or "still running")
            self._patience -= time.monotonic() - begin
        self._tell("ended", process.pid)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(stream)
                stream.close()
