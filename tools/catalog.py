# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog, for the tools that show and check it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tools.common import CHECKOUT

VARS = CHECKOUT / "roles" / "gpu_stack" / "vars" / "main"


def load(folder: Path = VARS) -> dict[str, Any]:
    """Return the catalog as the roles pass it to the resolver."""
    variables: dict[str, Any] = {}
    for path in sorted(folder.glob("*.yml")):
        variables.update(yaml.safe_load(path.read_text()) or {})
    whole = variables["__gpu_stack_catalog"]
    return {name: variables[value.strip("{} ")] if isinstance(value, str) else value for name, value in whole.items()}


def entries(value: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every mapping below a part that says where it comes from, under a name that finds it."""
    if isinstance(value, list):
        for item in value:
            yield from entries(item, f"{name} {_told(item)}")
    elif isinstance(value, dict):
        if "source" in value and "date" in value:
            yield name.strip(), value
        else:
            for key, item in value.items():
                yield from entries(item, f"{name} {key}")


# What tells the entries of a list apart: the first of these groups of fields that an entry has.
IDENTITY = (
    *(("component", "first", "last"), ("first", "last"), ("branch",), ("platforms",), ("version",), ("tag",), ("name",), ("channel",)),
    *(("architecture",), ("key_file",), ("major",), ("minimum_driver",), ("package_manager",), ("distributions", "versions"), ("distributions",)),
    ("branches",),
)


def _told(item: Any) -> str:
    """Return what an entry of a list is called."""
    fields = next((group for group in IDENTITY if isinstance(item, dict) and set(group) <= set(item)), ())
    words = [item[field] for field in fields]
    return " ".join(", ".join(map(str, word)) if isinstance(word, list) else str(word) for word in words)
