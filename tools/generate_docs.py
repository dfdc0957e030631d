#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the pages of docs/ that say what the catalog, the roles' argument specs and the schema of the facts say."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.common import CHECKOUT, say

sys.path.insert(0, str(CHECKOUT / "collections"))
from ansible_collections.gpu.fleet.plugins.plugin_utils import _facts_schema

VARS = CHECKOUT / "roles" / "gpu_stack" / "vars" / "main"
NOTE = "<!-- Written by `make docs` from {source}; change it there. -->\n"
# Markup of Ansible's documentation, as Markdown shows it.
MARKUP = re.compile(r"\b[CVOEP]\(((?:\\.|[^)\\])*)\)")


def catalog() -> dict[str, Any]:
    """Return the catalog as the roles pass it to the resolver."""
    variables: dict[str, Any] = {}
    for path in sorted(VARS.glob("*.yml")):
        variables.update(yaml.safe_load(path.read_text()) or {})
    whole = variables["__gpu_stack_catalog"]
    return {name: variables[value.strip("{} ")] if isinstance(value, str) else value for name, value in whole.items()}


def table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; a bar in a cell would end it."""
    lines = [list(titles)]
    lines.append(["---"] * len(lines[0]))
    lines += [["" if cell is None else str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _sourced(entry: dict[str, Any]) -> str:
    return f"{entry['source']}, {entry['date']}" + (" (unverified)" if entry.get("unverified") else "")


def _platforms(known: dict[str, Any]) -> str:
    rows = [
        (f"{entry['distribution']} {entry['version']}", ", ".join(entry["architectures"]), entry.get("minimum_driver_branch", "any"), _sourced(entry))
        for entry in known["platforms"].values()
    ]
    refused = [
        (", ".join(entry["distributions"]), ", ".join(entry.get("versions") or ["all others"]), entry["reason"])
        for entry in known["unsupported_platforms"]
    ]
    return (
        "## Distributions\n\n"
        + table(("distribution", "architectures", "oldest driver branch", "source"), rows)
        + "\nRefused, with the reason:\n\n"
        + table(("distribution", "versions", "reason"), refused)
    )


def _drivers(known: dict[str, Any]) -> str:
    rows = [
        (
            entry["branch"], entry["type"], entry["end_of_life"], entry["cuda"], ", ".join(entry["flavours"]),
            f"{entry['oldest_architecture']} to {entry['newest_architecture']}", ", ".join(map(str, entry["versions"])),
            "yes" if entry["packaged"] else "not by this release", _sourced(entry),
        )
        for entry in known["driver_branches"]
    ]  # fmt: skip
    titles = ("branch", "support", "until", "CUDA", "kernel modules", "GPUs", "versions", "can be installed", "source")
    archives = [
        (name, ", ".join(release["version"] for release in entry["releases"]), ", ".join(entry["flavours"]), _sourced(entry))
        for name, entry in known["distribution_drivers"].items()
    ]
    return (
        "## Drivers\n\nNVIDIA's repository:\n\n"
        + table(titles, rows)
        + "\nThe distribution's archive (`nvidia_driver_source: distro`):\n\n"
        + table(("platform", "versions", "kernel modules", "source"), archives)
    )


def _gpus(known: dict[str, Any]) -> str:
    generations = [(entry["name"], ", ".join(entry["flavours"]), entry["compute_capability"]) for entry in known["architectures"]]
    rows = [
        (f"`{device}`", entry["model"], entry["architecture"], entry["compute_capability"], _sourced(entry))
        for device, entry in known["gpus"].items()
    ]
    return (
        "## GPUs\n\n"
        + table(("generation", "kernel modules that drive it", "compute capability from"), generations)
        + "\n"
        + table(("PCI id", "model", "generation", "compute capability", "source"), rows)
        + "\nA device id that is not here counts as one of the generation that its range was given to.\n"
    )


def _pytorch(known: dict[str, Any]) -> str:
    builds = [
        (f"`{entry['tag']}`", entry["cuda"], entry["minimum_driver"], entry["full_driver"], ", ".join(entry["capabilities"]))
        for entry in known["builds"]
    ]
    releases = [
        (entry["version"], entry["released"], ", ".join(entry["python"]), ", ".join(f"`{tag}`" for tag in entry["builds"]), _sourced(entry))
        for entry in known["pytorch"]
    ]
    return (
        "## PyTorch\n\n"
        + table(("release", "of", "Python", "builds, the default first", "source"), releases)
        + "\n"
        + table(("build", "CUDA", "oldest driver", "driver that knows all of it", "compute capabilities"), builds)
    )


def compatibility() -> str:
    """Return docs/compatibility.md."""
    known = catalog()
    head = "# Compatibility: what goes with what\n\n" + NOTE.format(source="`roles/gpu_stack/vars/main`")
    head += (
        "\nThe resolver decides from these tables and from nothing else. A combination that they do not carry is refused before any host changes.\n"
    )
    return "\n".join((head, _platforms(known), _drivers(known), _gpus(known), _pytorch(known)))


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
