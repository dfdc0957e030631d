# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Names of many hosts in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable

NUMBERED = re.compile(r"(.*?)([0-9]+)")
NAMED = 4


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name) if part]


def ranges(hosts: Iterable[str]) -> str:
    """Return names in order, those that count up as a range: n1 to n4, n7; of very many the first few and how many more."""
    runs: list[list[str]] = []
    for name in sorted(hosts, key=natural):
        if runs and _next(runs[-1][-1]) == name:
            runs[-1].append(name)
        else:
            runs.append([name])
    said = [word for run in runs for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)]
    if len(said) <= NAMED + 1:
        return ", ".join(said)
    sizes = [size for run in runs for size in ([len(run)] if len(run) > 2 else [1] * len(run))]
    return f"{', '.join(said[:NAMED])} and {sum(sizes[NAMED:])} more"


def _next(name: str) -> str | None:
    """Return the name that counts one further, with as many digits; None for one without a number at its end."""
    match = NUMBERED.fullmatch(name)
    return f"{match[1]}{int(match[2]) + 1:0{len(match[2])}d}" if match else None
