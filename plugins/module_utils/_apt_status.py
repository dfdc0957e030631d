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
