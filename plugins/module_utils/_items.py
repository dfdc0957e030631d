# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The option C(items) of modules that are given what a plan manages."""

from __future__ import annotations

ITEMS: dict[str, object] = {
    "type": "list",
    "elements": "dict",
    "required": True,
    "options": {
        "role": {"type": "str"},
        "kind": {"type": "str", "required": True},
        "id": {"type": "str", "required": True},
        "desired": {"type": "dict", "required": True},
    },
}
