# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The lock of a fleet: what its requests were settled on, and what another settling would move."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._names import ranges

COMPONENTS = ("driver", "pytorch")
Lock = dict[str, dict[str, str]]
TOP = """---
# Written by gpu.fleet's preflight.yml with gpu_stack_relock: what branches and "auto" stand for, whatever repositories offer since.
# Commit it beside the inventory.
"""


def settled(plans: Mapping[str, Mapping[str, Any]], before: Mapping[str, Any]) -> tuple[Lock, list[str]]:
    """Return the lock that all plans together make, and a line for each request that means different things on different hosts.

    Such a request stays out: one lock cannot hold it. What no plan of this run asks for stays as it was.
    """
    lock: Lock = {name: {str(request): str(exact) for request, exact in (before.get(name) or {}).items()} for name in COMPONENTS}
    split = []
    for name in COMPONENTS:
        meant: dict[str, dict[str, list[str]]] = {}
        for host, plan in plans.items():
            for request, exact in (plan.get("lock") or {}).get(name, {}).items():
                meant.setdefault(request, {}).setdefault(exact, []).append(host)
        for request, versions in sorted(meant.items()):
            if len(versions) == 1:
                lock[name][request] = next(iter(versions))
                continue
            lock[name].pop(request, None)
            said = ", ".join(f"{exact} on {ranges(hosts)}" for exact, hosts in sorted(versions.items()))
            split.append(f"{name} {request} is {said}: no lock can hold it; ask for exact versions in the variables of these groups")
    return lock, split


def moved(before: Mapping[str, Any], after: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return what differs between two locks, one line a request."""
    lines = []
    for name in COMPONENTS:
        old, new = before.get(name) or {}, after.get(name) or {}
        for request in sorted({*map(str, old), *new}):
            was, now = old.get(request), new.get(request)
            if was != now:
                lines.append(f"{name} {request}: {was or 'not locked'} -> {now or 'not locked'}")
    return lines


def text(lock: Mapping[str, Mapping[str, str]]) -> str:
    """Return the file that holds the lock."""
    lines = ["gpu_stack_lock:"]
    for name in COMPONENTS:
        entries = sorted((lock.get(name) or {}).items())
        lines.append(f"  {name}:" if entries else f"  {name}: {{}}")
        lines += [f"    {json.dumps(request)}: {json.dumps(exact)}" for request, exact in entries]
    return TOP + "\n".join(lines) + "\n"
