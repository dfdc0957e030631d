# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changes while a host runs and is forgotten when it stops: loaded modules, GPU settings, the kernel's log."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FOLDER = "/run/lab/hw"
STATE = f"{FOLDER}/state.json"
MODULES = f"{FOLDER}/modules"
DMESG = f"{FOLDER}/dmesg"

# Modules newest first: {name, size, used_by, version, license, taint, path, ...}. Settings by GPU address.
State = dict[str, Any]


def fresh() -> State:
    """Return the state of a machine that has just been switched on."""
    return {"modules": [], "settings": {}, "fabric": False}


def read() -> State:
    """Return the state now."""
    try:
        with open(STATE) as file:
            state: State = json.load(file)
            return state
    except FileNotFoundError:
        return fresh()


@contextmanager
def changing() -> Iterator[State]:
    """Give the state to be changed, by one process at a time; it is written when the block ends without an exception."""
    with open(f"{FOLDER}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = read()
        yield state
        write(STATE, json.dumps(state))
        write(MODULES, module_table(state))


def write(path: str, text: str) -> None:
    """Replace a file at once."""
    part = f"{path}.{os.getpid()}"
    with open(part, "w") as file:
        file.write(text)
    os.replace(part, path)


def module_table(state: State) -> str:
    """Return /proc/modules as it reads while no device file is open."""
    lines = []
    for module in state["modules"]:
        users = users_of(state, module["name"])
        names = "".join(f"{user}," for user in users) or "-"
        taint = f" ({module['taint']})" if module.get("taint") else ""
        lines.append(f"{module['name']} {module['size']} {len(users)} {names} Live 0x0000000000000000{taint}\n")
    return "".join(lines)


def users_of(state: State, name: str) -> list[str]:
    """Return the loaded modules that need a module."""
    return [module["name"] for module in state["modules"] if name in module["depends"]]


def find(state: State, name: str) -> dict[str, Any] | None:
    """Return a loaded module, or None."""
    return next((module for module in state["modules"] if module["name"] == name), None)


def log(text: str, level: int = 6) -> None:
    """Write lines into the kernel's log."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    with open(DMESG, "a") as file:
        file.writelines(f"<{level}>[{now:12.6f}] {line}\n" for line in text.splitlines())


def holders() -> list[tuple[int, str, list[str]]]:
    """Return the processes that have a device file of the driver open: (pid, program, files)."""
    found = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        files = []
        try:
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("/dev/nvidia"):
                    files.append(target)
            if files:
                found.append((pid, program_of(pid), files))
        except OSError:
            continue
    return found


def program_of(pid: int) -> str:
    """Return the name that a process was started by: of an interpreter the script, as nvidia-smi would see a real binary."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().split(b"\0")[:-1]
    if not words:
        return ""
    first = words[0].decode(errors="replace")
    if os.path.basename(first).startswith("python") and len(words) > 1:
        script = next((word.decode(errors="replace") for word in words[1:] if not word.startswith(b"-")), first)
        if script.startswith("/usr/local/lib/lab/"):
            return script
    return first
