# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Small readers of texts that are larger languages: what is needed is taken, what is not understood is told by its line."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
KEYS = r"%s(?:\s*\.\s*%s)*" % (KEY, KEY)
TABLE = later(r"\[\[?\s*(%s)\s*\]\]?\s*(?:#.*)?$" % KEYS)
ENTRY = later(r"(%s)\s*=\s*(\S.*)$" % KEYS)
STRING = later(r"""(?:"((?:[^"\\]|\\.)*)"|'([^']*)')\s*(?:#.*)?$""")
ANY_STRING = later(r"""\"(?:[^"\\]|\\.)*"|'[^']*'""")
# File systems whose server may be away: even to look at them can hang.
FAR = later(r"nfs|cifs|smb|lustre|beegfs|gpfs|ceph|fuse\.|fuse$|afs|autofs|glusterfs|9p|pvfs|wekafs|panfs|orangefs|daos")


class Toml(t.NamedTuple):
    """C(tables) has the text of each value by table and key, strings without their quotes; C(strange) the numbers of lines not understood."""

    tables: t.Dict[t.Tuple[str, ...], t.Dict[str, str]]
    strange: t.List[int]


def _keys(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(KEY, text))


def _closed(value: str) -> bool:
    """Whether an array or an inline table ends where the text does; what stands in strings opens and closes nothing."""
    bare = ANY_STRING.sub("", value)
    return bare.count("[") + bare.count("{") <= bare.count("]") + bare.count("}")


def toml(text: str) -> Toml:
    """The configuration of a container engine, as far as its values are scalars and arrays."""
    tables: dict[tuple[str, ...], dict[str, str]] = {}
    strange: list[int] = []
    now: tuple[str, ...] = ()
    place: tuple[int, tuple[str, ...], str] | None = None
    until = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if place is not None:
            # An array or a long string that goes on over lines.
            value = place[2] + " " + line
            if until in line if until else _closed(value):
                tables.setdefault(place[1][:-1], {})[place[1][-1]] = value
                place = None
            else:
                place = (place[0], place[1], value)
            continue
        if not line or line.startswith("#"):
            continue
        head = TABLE.match(line)
        if head:
            now = _keys(head.group(1))
            tables.setdefault(now, {})
            continue
        entry = ENTRY.match(line)
        if entry is None:
            strange.append(number)
            continue
        path, value = now + _keys(entry.group(1)), entry.group(2)
        until = value[:3] if value[:3] in ('"' * 3, "'" * 3) else ""
        if (value.count(until) < 2) if until else not _closed(value) and value[0] in "[{":
            place = (number, path, value)
            continue
        whole = STRING.match(value)
        plain = (whole.group(1) if whole.group(1) is not None else whole.group(2)) if whole else value.split(" #")[0].strip()
        tables.setdefault(path[:-1], {})[path[-1]] = plain
    if place is not None:
        strange.append(place[0])
    return Toml(tables, strange)


def strings(value: str) -> list[str]:
    """The strings of an array's text."""
    return [found[1:-1] for found in ANY_STRING.findall(value)]


def defines(text: str, *names: str) -> str | None:
    """A version such as 9.10.2 from the numbers that a C header defines under C(names); None unless all are there."""
    numbers = []
    for name in names:
        match = re.search(r"^[ \t]*#[ \t]*define[ \t]+%s[ \t]+(\d+)\b" % name, text, re.M)
        if match is None:
            return None
        numbers.append(match.group(1))
    return ".".join(numbers)


def follow(system: System, path: str) -> str:
    """Where a link leads, link by link; the end need not exist. Links among the folders on the way stay as they are."""
    for _dummy in range(8):
        try:
            target = os.readlink(system.root + path)
        except OSError:
            break
        if system.root and target.startswith(system.root):
            target = target[len(system.root):]
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return path


class Mounts:
    """Which paths lie on file systems of other machines, from the kernel's own table."""

    def __init__(self, system: System) -> None:
        self._system = system
        rows = [line.split() for line in (system.read("/proc/self/mounts", quiet=True) or "").splitlines()]
        # A root is always near, whatever it is: this program came from it.
        self._known = {row[1].replace("\\040", " "): row[2] for row in rows if len(row) > 2 and row[1] != "/" and FAR.match(row[2])}

    def far(self, path: str) -> str | None:
        """Type of the distant file system that C(path), or what its links lead to, lies on or below; None where it is near."""
        now = ""
        for part in path.strip("/").split("/") if self._known else ():
            # No step is taken on the other machine: even to ask whether there is a link can hang.
            step = now + "/" + part
            kind = self._kind(step)
            if kind:
                return kind
            now = follow(self._system, step)
        return self._kind(now)

    def _kind(self, path: str) -> str | None:
        return next((kind for point, kind in self._known.items() if path == point or path.startswith(point + "/")), None)
