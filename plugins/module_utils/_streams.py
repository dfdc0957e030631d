# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Which stream of a module dnf has enabled."""

from __future__ import annotations

import configparser
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

PATH = "/etc/dnf/modules.d/%s.module"


def enabled(module: str, text: str) -> str | None:
    """The stream that a module's file names as enabled."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    if parser.get(module, "state", fallback="") != "enabled":
        return None
    return parser.get(module, "stream", fallback="") or None


def read(module: str) -> str:
    """A module's file; an empty text where there is none."""
    try:
        with open(PATH % module, encoding="utf-8", errors="surrogateescape") as source:
            return source.read()
    except FileNotFoundError:
        return ""


def stream_state(system: System, module: str) -> dict[str, t.Any]:
    """The enabled stream of a module."""
    path = PATH % module
    return {"stream": enabled(module, (system.read(path) or "") if system.exists(path) else "")}
