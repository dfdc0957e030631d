# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Versions of drivers, CUDA and PyTorch: dotted numbers."""

from __future__ import annotations

import re
from typing import TypeGuard

NUMBER = re.compile(r"[0-9]+(\.[0-9]+)*")


def is_version(text: object) -> TypeGuard[str]:
    """Tell whether something is a version of dotted numbers."""
    return isinstance(text, str) and NUMBER.fullmatch(text) is not None


def key(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for comparison; raises ValueError for anything but dotted numbers."""
    if not NUMBER.fullmatch(version):
        raise ValueError(f"{version!r} is not a version")
    return tuple(int(part) for part in version.split("."))


def branch(version: str) -> int:
    """Return the branch of a driver version: 580 for 580.178.04."""
    return key(version)[0]


def belongs(version: str, wanted: str) -> bool:
    """Tell whether a version is the wanted one or a release of it: 2.13.0 belongs to 2.13."""
    return key(version)[: len(key(wanted))] == key(wanted)
