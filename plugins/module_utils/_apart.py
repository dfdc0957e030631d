# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Work in a process of its own, because a read of a file can sleep in the kernel (a dead network file system, a sick device) so deeply
that no timer of the same process ever gets its turn.

The process tells what it has so far. When its time is up, it is killed with the programs that it started, or left behind if that does not
help, and what it told stands.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import struct
import time
import traceback
import typing as t

# C(tell(kind, value)): value is made of what JSON has.
Tell = t.Callable[[str, t.Any], None]
LENGTH = struct.Struct("!I")
# What is told of programs counts each time; of all else only what differs from the last time is sent.
PROGRAMS = ("started", "ended")
# Seconds that a killed process gets to be gone.
PATIENCE = 0.2


class Outcome(t.NamedTuple):
    """C(told) has the last value of each kind; C(failure) says why the work did not end by itself."""

    told: t.Dict[str, t.Any]
    failure: t.Optional[str]


def work_apart(work: t.Callable[[Tell], None], seconds: float) -> Outcome:
    """Run C(work(tell)) for some seconds at most. Kinds C(started) and C(ended) are the ids of the programs that it runs."""
    until = time.monotonic() + seconds
    ours, theirs = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # No further process is to be had: as well as it goes in this one.
        os.close(ours)
        os.close(theirs)
        told: dict[str, t.Any] = {}
        work(told.__setitem__)
        return Outcome(told, None)
    if child == 0:
        os.close(ours)
        _be_the_child(work, theirs)
    os.close(theirs)
    try:
        return _listen(child, ours, until, seconds)
    finally:
        os.close(ours)


def _be_the_child(work: t.Callable[[Tell], None], pipe: int) -> t.NoReturn:
    """Never return: nobody else's clean-up may run twice. Whoever waits for the end of the module's output must not wait for this process."""
    try:
        # A collection would touch, and so copy, every object of the module, and the process does not live long enough to need one.
        gc.disable()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)

        last: dict[str, bytes] = {}

        def tell(kind: str, value: t.Any) -> None:
            data = json.dumps((kind, value)).encode()
            if last.get(kind) == data:
                return
            if kind not in PROGRAMS:
                last[kind] = data
            data = LENGTH.pack(len(data)) + data
            while data:
                data = data[os.write(pipe, data):]

        try:
            work(tell)
            tell("done", True)
        except BaseException:  # pylint: disable=broad-exception-caught
            tell("raised", traceback.format_exc())
    finally:
        os._exit(0)


def _listen(child: int, pipe: int, until: float, seconds: float) -> Outcome:
    data = bytearray()
    failure: str | None = None
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            failure = "gave up after %.1f s, in the midst of what cannot be interrupted" % seconds
            break
        chunk = os.read(pipe, 1 << 16)
        if not chunk:
            break
        data += chunk
    told, programs = _understand(data)
    if "done" not in told and failure is None:
        failure = "broke off"
    if failure:
        _kill(child, programs)
    else:
        os.waitpid(child, 0)
    return Outcome(told, failure)


def _understand(data: bytearray) -> tuple[dict[str, t.Any], set[int]]:
    """The last value of each kind, and the programs that were started and have not ended; what was cut off in its midst counts for nothing."""
    told: dict[str, t.Any] = {}
    programs: set[int] = set()
    at = 0
    while at + LENGTH.size <= len(data):
        begin = at + LENGTH.size
        at = begin + LENGTH.unpack_from(data, at)[0]
        if at > len(data):
            break
        kind, value = json.loads(data[begin:at])
        if kind == "started":
            programs.add(value)
        elif kind == "ended":
            programs.discard(value)
        else:
            told[kind] = value
    return told, programs


def _kill(child: int, programs: set[int]) -> None:
    """End the process and its programs, each of which leads a group of its own; wait for the process only as long as it can be expected to take."""
    with contextlib.suppress(OSError):
        # Held still, it starts no program any more, and what it has started and not told of yet can be seen.
        os.kill(child, signal.SIGSTOP)
        _wait(child, os.WUNTRACED)
    programs = programs | _children(child)
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)
    for program in programs:
        with contextlib.suppress(OSError):
            os.killpg(program, signal.SIGKILL)
        with contextlib.suppress(OSError):
            # Between its start and its own first step it leads no group yet.
            os.kill(program, signal.SIGKILL)
    with contextlib.suppress(OSError):
        _wait(child)


def _wait(child: int, options: int = 0) -> None:
    """Until it is gone (or what the options name), or for as long as that can be expected to take: asleep in the kernel it does neither."""
    until = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG | options)[0] == 0 and time.monotonic() < until:
        time.sleep(0.002)


def _children(parent: int) -> set[int]:
    """The processes that a process has started."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open("/proc/%s/stat" % name, encoding="ascii", errors="replace") as source:
                    # The name may hold blanks and brackets.
                    fields = source.read().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.add(int(name))
    return found
