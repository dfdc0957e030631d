# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The way back of a change by dnf, looked at before the change: over a copy of rpm's database in which the change has been made."""

from __future__ import annotations

import os
import shutil
import tempfile
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _dnf
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives

# Nothing but the database is written, and nobody is asked.
WORDS = ("--justdb", "--nodeps", "--noscripts", "--notriggers")
RPM_SECONDS = 600
State = t.Dict[str, t.Any]


def rpm(*words: str) -> str:
    """Run rpm, which must end well; returns what it says."""
    code, output = _apt.run(["rpm", *words], RPM_SECONDS)
    if code:
        raise _apt.Failed("rpm %s failed: %s" % (" ".join(words), _apt.complaint(output)))
    return output


def foresee(archives: Archives, wanted: State, before: State, dnf: _dnf.Dnf) -> None:
    """See that after a change to C(wanted) the files of C(before) suffice to go back, and that nothing else would go; raises Failed."""
    present = _dnf.versions()
    leaving = sorted(set(present) & set(wanted["absent"]))
    # What is installed in several versions does not take the place of another.
    beside = {name for name, version in wanted["packages"].items() if name.endswith("-" + version)}
    files = {name: archives.find(name, version) or "" for name, version in wanted["packages"].items()}
    with tempfile.TemporaryDirectory(prefix="gpu-fleet-dnf-", dir="/var/tmp") as root:
        database = rpm("--eval", "%{_dbpath}").strip()
        shutil.copytree(database, root + database)
        words = ("--dbpath", root + database, *WORDS)
        if leaving:
            rpm(*words, "--erase", *leaving)
        for verb, names in (("--install", beside), ("--upgrade", set(files) - beside)):
            coming = sorted(files[name] for name in names)
            if coming:
                rpm(*words, verb, "--force", "--nosignature", *coming)
        there = (set(present) - set(leaving)) | set(wanted["packages"])
        dnf.exchange(archives.paths(before["archives"]), sorted(there & set(before["absent"])), dry=True, root=root)


def cut_off(files: list[str]) -> list[str]:
    """Which of the packages in C(files) are in the database beside another version, as a killed rpm leaves them.

    Whether their scripts have run is not known. Once they are out of the database they come anew, in place of the other version.
    """
    names = [os.path.basename(path) for path in files]
    found = []
    for name, evrs in sorted(_dnf.versions().items()):
        plain = ["%s-%s" % (name, evr.rpartition(":")[2]) for evr in sorted(evrs)]
        # Of kernels and what belongs to them there may be several.
        if len(evrs) > 1 and not name.startswith("kernel"):
            found += [one for one in plain if any(file.startswith(one + ".") for file in names)]
    return found
