# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""dnf's list of locked versions, which is everybody's: our lines stand between two marks, what they replace is put aside in its place.

C(dnf versionlock delete) writes the list anew without remarks. Our lines are known without their marks too, by the names that are ours.
"""

from __future__ import annotations

import functools
import re
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

PATH = "/etc/dnf/plugins/versionlock.list"
BEGIN = "# gpu.fleet: locks of the driver, from here to the end mark\n"
END = "# gpu.fleet: end\n"
AWAY = "# gpu.fleet put aside: "
# What follows a package's name in a lock: epoch, version, and release with or without an architecture.
EVR = re.compile(r"-(?:\d+:)?[\d*?\[][^-]*-[^-]+$")
Locks = t.Dict[str, str]
Lines = t.Dict[str, t.List[str]]


def name_of(line: str) -> str:
    """The package that a line speaks of, be it locked or excluded; patterns are taken by the word."""
    return EVR.sub("", line.strip().lstrip("!"))


def line(name: str, version: str) -> str:
    """A lock of a package to C([epoch:]version-release); without its epoch it would bind nothing."""
    return "%s-%s.*" % (name, version if ":" in version else "0:" + version)


def active(text: str) -> Lines:
    """By package the lines that bind."""
    found: Lines = {}
    for one in text.splitlines():
        if one.strip() and not one.startswith("#"):
            found.setdefault(name_of(one), []).append(one.strip())
    return found


def parts(text: str) -> tuple[list[str], list[str] | None, list[str]]:
    """The lines before ours, ours (None without marks), and those after them."""
    lines = text.splitlines(keepends=True)
    if BEGIN not in lines or END not in lines[lines.index(BEGIN):]:
        return lines, None, []
    begin = lines.index(BEGIN)
    end = lines.index(END, begin)
    return lines[:begin], lines[begin + 1:end], lines[end + 1:]


def ours(text: str) -> Locks:
    """Our locks by package."""
    return {name_of(one): one.strip() for one in parts(text)[1] or []}


def rewrite(text: str, locks: Locks, theirs: Lines | None = None) -> str:
    """The list with these locks of ours, and no others; C(theirs) says which of the lines that were put aside may come back, all by default."""
    before, _ours, after = parts(text)
    kept = [[one for one in (settled(each, locks, theirs) for each in lines) if one] for lines in (before, after)]
    if not locks:
        return "".join(kept[0] + kept[1])
    if kept[0] and not kept[0][-1].endswith("\n"):
        kept[0][-1] += "\n"
    return "".join([*kept[0], BEGIN, *("%s\n" % locks[name] for name in sorted(locks)), END, *kept[1]])


def settled(found: str, locks: Locks, theirs: Lines | None) -> str | None:
    """A line that stands outside of our marks, put aside or brought back; None where it is one of ours that lost its marks."""
    plain = found
    if found.startswith(AWAY):
        plain = found[len(AWAY):]
        if theirs is not None and plain.strip() not in theirs.get(name_of(plain), ()):
            return None
    if plain.startswith("#") or name_of(plain) not in locks:
        return plain
    # One that was put aside is somebody's also when it says for now what ours says.
    return None if plain is found and plain.strip() == locks[name_of(plain)] else AWAY + plain


def released(text: str, before: Lines) -> str:
    """The list without us; C(before) are, by package, the lines that others had before us."""
    if parts(text)[1] is not None:
        kept = rewrite(text, {}, before).splitlines(keepends=True)
    else:
        # Somebody's dnf has thrown all remarks away: what is in our packages' names is ours, but for what was there before.
        kept = [each for each in text.splitlines(keepends=True) if name_of(each) not in before or each.strip() in before[name_of(each)]]
    present = active("".join(kept))
    gone = [each for name, lines in sorted(before.items()) for each in lines if each not in present.get(name, [])]
    return "".join(kept + ["%s\n" % each for each in gone])


@functools.lru_cache(maxsize=1)
def _active(system: System) -> Lines:
    return active(system.read(PATH) or "")


def lock_state(system: System, name: str) -> dict[str, t.Any]:
    """The lines that bind a package."""
    return {"lines": _active(system).get(name, [])}
