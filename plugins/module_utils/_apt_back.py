# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The way back of a change of packages, looked at before the change: on a host as it will be by then, with nothing but the files that are kept."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_status
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives

CONTROL_SECONDS = 60
State = t.Dict[str, t.Any]


def control(path: str) -> str:
    """The control file of a package file."""
    code, output = _apt.run(["dpkg-deb", "--field", path], CONTROL_SECONDS)
    if code:
        raise _apt.Failed("dpkg-deb --field %s failed: %s" % (path, _apt.complaint(output)))
    return output


def foresee(archives: Archives, wanted: State, before: State, apt: _apt.Apt) -> None:
    """See that after a change to C(wanted) the files of C(before) suffice to go back, and that nothing else would go; raises Failed."""
    coming = {os.path.basename(path).partition("_")[0]: control(path) for path in archives.paths(wanted["archives"])}
    there = (_apt.unpacked() - set(wanted["absent"])) | set(coming)
    with _apt_status.after(coming, wanted["absent"]) as options:
        apt.foresee_exchange(archives.paths(before["archives"]), sorted(there & set(before["absent"])), *options)


def see(archives: Archives, former: State, apt: _apt.Apt) -> None:
    """See the same of the host as it is."""
    apt.foresee_exchange(archives.paths(former["archives"]), sorted(_apt.unpacked() & set(former["absent"])))
