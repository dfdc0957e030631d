#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names entries of the catalog that the calendar has overtaken: out of support, or read at their source too long ago.

Exit 1 when there are any, 0 when there are none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.catalog import entries, load

DAYS = 90


def over(known: dict[str, Any], today: date) -> Iterator[str]:
    """Yield a line for each entry that is past its end of life."""
    for part, value in known.items():
        for name, entry in entries(value, part):
            end = entry.get("end_of_life")
            if end and date.fromisoformat(end) < today:
                where = f"; still installable on {', '.join(entry['packaged'])}" if entry.get("packaged") else ""
                yield f"{name}: out of support since {end}{where}"


def old(known: dict[str, Any], today: date, days: int) -> Iterator[str]:
    """Yield a line for each source that was read more than so many days ago, with the entries that stand on it."""
    standing: dict[tuple[str, str], list[str]] = {}
    for part, value in known.items():
        for name, entry in entries(value, part):
            if (today - date.fromisoformat(entry["date"])).days > days:
                standing.setdefault((entry["date"], entry["source"]), []).append(name)
    for (day, source), names in sorted(standing.items()):
        age = (today - date.fromisoformat(day)).days
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"{source}: read {age} days ago ({day}), for {', '.join(names[:3])}{more}"


def main(words: list[str] | None = None, today: date | None = None) -> int:
    """Show what the calendar has overtaken."""
    parser = argparse.ArgumentParser(description="name entries of the catalog that are out of support, or whose source was read long ago")
    parser.add_argument("--days", type=int, default=DAYS, help="a source read longer ago than this is old (default: %(default)s)")
    given = parser.parse_args(words)
    if given.days < 0:
        parser.error("--days: give a number of days, 0 or more")
    known, now = load(), today or date.today()
    past, stale = list(over(known, now)), list(old(known, now, given.days))
    for line in [*past, *stale]:
        print(line)
    print(f"{now}: {len(past)} entries out of support, {len(stale)} sources read more than {given.days} days ago")
    return 1 if past or stale else 0


if __name__ == "__main__":
    sys.exit(main())
