#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the pages of docs/ that say what the catalog, the roles' argument specs and the schema of the facts say."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.catalog import load
from tools.common import CHECKOUT, say
from tools.compatibility import page, table

sys.path.insert(0, str(CHECKOUT / "collections"))
from ansible_collections.gpu.fleet.plugins.plugin_utils import _facts_schema

NOTE = "<!-- Written by `make docs` from {source}; change it there. -->\n"
# Markup of Ansible's documentation, as Markdown shows it.
MARKUP = re.compile(r"\b[CVOEP]\(((?:\\.|[^)\\])*)\)")


def compatibility() -> str:
    """Return docs/compatibility.md."""
    return page(load(), NOTE.format(source="`roles/gpu_stack/vars/main`"))


def _text(given: str | list[str]) -> str:
    return MARKUP.sub(r"`\1`", " ".join([given] if isinstance(given, str) else given))


def _options(role: Path) -> dict[str, dict[str, Any]]:
    """Return the options of a role by name, those of all its entry points."""
    found: dict[str, dict[str, Any]] = {}
    for entry in yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"].values():
        for name, option in (entry.get("options") or {}).items():
            found.setdefault(name, option)
    return found


def _variable(name: str, option: dict[str, Any]) -> tuple[str, ...]:
    kind = option["type"] + (f" of {option['elements']}" if "elements" in option else "")
    choices = f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}." if "choices" in option else ""
    default = "" if option.get("default") is None else f"`{json.dumps(option['default'])}`"
    return f"`{name}`", kind, "required" if option.get("required") else default, _text(option["description"]) + choices


def variables() -> str:
    """Return docs/variables.md."""
    parts = ["# Variables\n\n" + NOTE.format(source="`roles/*/meta/argument_specs.yml`") + "\nWhat an operator sets, by the role that declares it.\n"]
    for role in sorted((CHECKOUT / "roles").iterdir()):
        options = _options(role) if (role / "meta" / "argument_specs.yml").is_file() else {}
        if options:
            rows = [_variable(name, option) for name, option in options.items()]
            parts.append(f"## {role.name}\n\n" + table(("variable", "type", "default", "meaning"), rows))
    return "\n".join(parts)


def facts() -> str:
    """Return docs/facts.md: what is written there by hand, and between its two marks the table of the schema."""
    rows = [(f"`{path}`", types, meaning) for path, types, meaning in _facts_schema.FIELDS]
    begin, end = "<!-- fields -->\n", "<!-- end of fields -->\n"
    before, _, rest = (CHECKOUT / "docs" / "facts.md").read_text().partition(begin)
    note = NOTE.format(source="`plugins/plugin_utils/_facts_*.py`")
    return before + begin + note + "\n" + table(("field", "type", "meaning"), rows) + end + rest.partition(end)[2]


PAGES = {"compatibility.md": compatibility, "variables.md": variables, "facts.md": facts}


def main() -> int:
    """Write the pages that are not up to date."""
    for name, write in PAGES.items():
        path, text = CHECKOUT / "docs" / name, write()
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
            say(f"docs/{name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
