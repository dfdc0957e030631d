# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the lab's own tests look at hosts, and at what a lab leaves on the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from lab.cgroups import hierarchies
from lab.client import Lab
from lab.paths import LabPaths

COMMAND = str(Path(__file__).resolve().parents[1] / "lab" / "lab")
NAMESPACES = ("net", "mnt", "pid", "cgroup", "time")


def boot_id(lab: Lab, host: str) -> str:
    """Return the id of a host's present boot."""
    return lab.run(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()


def reaches(lab: Lab, host: str, other: str) -> bool:
    """Tell whether a host's pings to another come back."""
    return lab.run(host, ["ping", "-c1", "-W1", other]).returncode == 0


def until(true: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Wait until something holds; tells whether it came to that."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def daemons(name: str) -> list[int]:
    """Return the processes that hold a lab."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"\0lab.daemon\0{name}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def namespaces(pid: int | str) -> set[str]:
    """Return the namespaces of a process, as "net:[4026531840]"."""
    found = set()
    for kind in NAMESPACES:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return found


def inhabited() -> set[str]:
    """Return every namespace that a process of this machine lives in."""
    return {name for path in Path("/proc").glob("[0-9]*") for name in namespaces(path.name)}


def own_namespaces(lab: Lab) -> set[str]:
    """Return the namespaces that a running lab made: those of its hosts and of its daemon, without the machine's."""
    found: set[str] = set()
    for root in hierarchies():
        for path in (root / lab.paths.cgroup).rglob("cgroup.procs"):
            found |= {name for pid in path.read_text().split() for name in namespaces(pid)}
    found |= {name for pid in daemons(lab.name) for name in namespaces(pid)}
    return found - namespaces("self")


def traces(name: str) -> list[str]:
    """Return what is there of a lab on this machine: processes, control groups, mounts, folders."""
    paths = LabPaths(name)
    found = [f"process {pid}" for pid in daemons(name)]
    found += [str(root / paths.cgroup) for root in hierarchies() if (root / paths.cgroup).exists()]
    found += [str(path) for path in (paths.run, paths.hosts, paths.alive, paths.changing, paths.log) if path.exists()]
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if f"{paths.hosts}/" in text:
            found.append(f"mounts of process {path.parent.name}")
    return found
