# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a lab's daemon, and sweeps away what one that did not end well left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab import cache, keys
from lab.cgroups import Group
from lab.images import WRAPPER
from lab.paths import LabError, LabPaths

START_SECONDS = 600.0
END_SECONDS = 15.0


@contextmanager
def changing(paths: LabPaths) -> Iterator[None]:
    """Let one process at a time start or end a lab."""
    with cache.locked(paths.changing, f"waiting for another process that starts or ends lab {paths.name}"):
        yield


def alive(paths: LabPaths) -> bool:
    """Tell whether any process of a lab lives, answering or not: they all hold one lock."""
    with suppress(FileNotFoundError), paths.alive.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def start(paths: LabPaths, answers: Callable[[], bool]) -> bool:
    """Start the daemon unless it runs, and wait until it answers; tells whether this call started it. Needs `changing`."""
    if answers():
        return False
    started = not alive(paths)
    try:
        if started:
            sweep(paths)
            spawn(paths)
        wait(paths, answers)
    except BaseException as error:
        if started:
            sweep(paths)
            paths.changing.unlink(missing_ok=True)
            # What went wrong can be read there; an interruption is nothing that went wrong.
            if isinstance(error, KeyboardInterrupt):
                paths.log.unlink(missing_ok=True)
        raise
    return started


def spawn(paths: LabPaths) -> None:
    """Start the daemon's processes in namespaces of their own."""
    paths.run.mkdir(parents=True, mode=0o700)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONUNBUFFERED": "1"}
    with paths.log.open("wb") as log, paths.alive.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [*WRAPPER, sys.executable, "-m", "lab.daemon", paths.name],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", env=environment, pass_fds=(lock.fileno(),),
        )  # fmt: skip
        lock.write(str(process.pid))


def wait(paths: LabPaths, answers: Callable[[], bool]) -> None:
    """Show what the daemon says until it answers."""
    shown = 0
    end = time.monotonic() + START_SECONDS
    while True:
        ready = answers()
        lines = paths.log.read_text(errors="replace").splitlines() if paths.log.exists() else []
        for line in lines[shown:]:
            if line.startswith("lab: ") and not line.endswith(" is ready"):
                print(line, file=sys.stderr, flush=True)
        shown = len(lines)
        if ready:
            return
        if not alive(paths) or time.monotonic() > end:
            raise LabError(f"lab {paths.name} did not start: {lines[-1] if lines else 'no word'} (whole log: {paths.log})")
        time.sleep(0.05)


def sweep(paths: LabPaths) -> None:
    """End what still lives of a lab, and remove what it left: groups, folders, sockets. Needs `changing`."""
    if alive(paths):
        pid = paths.alive.read_text()
        if pid.isdigit() and f"lab.daemon\0{paths.name}\0".encode() in _command_line(int(pid)):
            os.kill(int(pid), signal.SIGKILL)
        end = time.monotonic() + END_SECONDS
        while alive(paths):
            if time.monotonic() > end:
                raise LabError(f"processes of lab {paths.name} do not end; see process {pid} and its children")
            time.sleep(0.02)
    keys.close_masters(paths)
    if not Group(paths.cgroup).remove(END_SECONDS):
        raise LabError(f"processes in the control group {paths.cgroup} do not end")
    shutil.rmtree(paths.run, ignore_errors=True)
    # Mounts were in the lab's own namespace, so this meets only what hosts wrote.
    shutil.rmtree(paths.hosts, ignore_errors=True)
    paths.alive.unlink(missing_ok=True)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
