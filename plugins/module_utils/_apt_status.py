# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""dpkg's status with other marks than it has, so that apt can say what it would do under them; the host's own stays as it is."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import typing as t

STATUS = "/var/lib/dpkg/status"
NAME = re.compile(r"\n*Package: (\S+)")
ARCHITECTURE = re.compile(r"^Architecture: (\S+)", re.M)
MARK = re.compile(r"^Status: (?:install|hold) ", re.M)


def write(path: str, marks: t.Mapping[str, bool]) -> None:
    """Copy the status; C(marks) says by name which installed package is on hold there, and which is not."""
    with open(STATUS, encoding="utf-8", errors="surrogateescape") as source:
        stanzas = source.read().split("\n\n")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as output:
        output.write("\n\n".join(marked(stanza, marks) for stanza in stanzas))


def marked(stanza: str, marks: t.Mapping[str, bool]) -> str:
    """A stanza of dpkg's status with the mark that its package is to have."""
    name = NAME.match(stanza)
    if not name or name.group(1) not in marks:
        return stanza
    return MARK.sub("Status: hold " if marks[name.group(1)] else "Status: install ", stanza, count=1)


def replaced(stanzas: list[str], coming: t.Mapping[str, str], going: t.Collection[str]) -> list[str]:
    """The stanzas of a host on which other packages are installed; C(coming) are control files by the names of their packages."""
    kept = []
    for stanza in stanzas:
        name, architecture = NAME.match(stanza), ARCHITECTURE.search(stanza)
        control = coming.get(name.group(1), "") if name else ""
        both = {found.group(1) for found in (architecture, ARCHITECTURE.search(control)) if found}
        # The same library for another architecture stays beside it.
        if not (name and name.group(1) in going) and (not control or (len(both) > 1 and "all" not in both)):
            kept.append(stanza.strip("\n"))
    return kept + [NAME.sub(r"Package: \1\nStatus: install ok installed", control.strip("\n"), count=1) for control in coming.values()]


@contextlib.contextmanager
def after(coming: t.Mapping[str, str], going: t.Collection[str]) -> t.Iterator[list[str]]:
    """apt's options for a host on which these packages have come, by their control files, and those have gone."""
    with open(STATUS, encoding="utf-8", errors="surrogateescape") as source:
        stanzas = [stanza for stanza in source.read().split("\n\n") if stanza.strip()]
    with tempfile.TemporaryDirectory(prefix="gpu-fleet-apt-") as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "status")
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as output:
            output.write("\n\n".join(replaced(stanzas, coming, going)) + "\n")
        yield ["-o", "Dir::State::Status=%s" % path]


@contextlib.contextmanager
def freed(names: t.Collection[str]) -> t.Iterator[list[str]]:
    """apt's options for a host on which these packages are not on hold."""
    if not names:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="gpu-fleet-apt-") as folder:
        # apt may look as an account of its own.
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "status")
        write(path, dict.fromkeys(names, False))
        yield ["-o", "Dir::State::Status=%s" % path]
