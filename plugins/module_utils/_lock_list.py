# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Reading and writing dnf's list of locked versions."""

from __future__ import annotations

from ansible_collections.gpu.fleet.plugins.module_utils import _locks, _managed_list


def read() -> str:
    """The list as it is; an empty one where there is none."""
    try:
        with open(_locks.PATH, encoding="utf-8", errors="surrogateescape") as source:
            return source.read()
    except FileNotFoundError:
        return ""


def write(text: str) -> None:
    """Put the list there. An empty one stays: without a list the plugin makes every run of dnf fail."""
    _managed_list.put(_locks.PATH, text.encode("utf-8", "surrogateescape"))


def put(locks: _locks.Locks) -> None:
    """Have these locks of ours, and no others."""
    present = read()
    wanted = _locks.rewrite(present, locks)
    if wanted != present:
        write(wanted)
