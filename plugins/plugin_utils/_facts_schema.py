# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The shape of what gpu_facts returns, field by field: the page docs/facts.md is written from it, and observations are held against it.

A path such as C(gpus[].pcie.width) has C([]) after a list and C(<x>) for keys that are data. Types are JSON's, in Python's words; C(null) among
them is a value that may be unknown. What has no row of its own is a mapping or a list, never null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _facts_driver, _facts_hardware, _facts_host, _facts_software

FIELDS = _facts_host.FIELDS + _facts_hardware.FIELDS + _facts_driver.FIELDS + _facts_software.FIELDS
# Their content is described elsewhere: the managed kinds in a table of their own, the record by the role that writes it.
OPAQUE = ("managed.<id>", "record")
STEP = re.compile(r"<[^>]*>|\[\]|[^.\[]+")


def seen(facts: Any) -> set[tuple[str, str]]:
    """Every (path, type) of an observation in the words of the schema, what the schema does not know included."""
    return set(_walk(facts, _tree(), ""))


def violations(facts: Any) -> list[str]:
    """What an observation has that the schema does not allow, each as C(path: type)."""
    allowed = {path: set(types.split(", ")) for path, types, _meaning in FIELDS}
    # A group that was not asked for is null as a whole.
    groups = {STEP.findall(path)[0]: {"null"} for path in allowed}
    return sorted(f"{path}: {kind}" for path, kind in seen(facts) if kind not in allowed.get(path, groups.get(path, set())))


def _tree() -> dict[str, Any]:
    """The paths as nested mappings by their steps."""
    root: dict[str, Any] = {}
    for path, _types, _meaning in FIELDS:
        node = root
        for step in STEP.findall(path):
            node = node.setdefault(step, {})
    return root


def _walk(value: Any, node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if path in OPAQUE:
        yield path, "null"
    elif isinstance(value, dict):
        data = next((step for step in node if step.startswith("<")), None)
        for key, item in value.items():
            step = data or str(key)
            yield from _walk(item, node.get(step, {}), f"{path}.{step}" if path else step)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, node.get("[]", {}), f"{path}[]")
    else:
        yield path, "null" if value is None else type(value).__name__
