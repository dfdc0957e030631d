# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's defaults and its argument specs say the same, both ways and in value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils import _variables
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._request import normalize, normalize_lock

from tools.common import CHECKOUT

ROLES = sorted(path.parents[1].name for path in (CHECKOUT / "roles").glob("*/meta/argument_specs.yml"))
# Variables of other roles that a role reads by their public name are declared by the role that owns them.
OWNERS = sorted(ROLES, key=len, reverse=True)


def specs(role: str) -> dict[str, dict[str, Any]]:
    """Return the options of a role, over all its entry points."""
    given = yaml.safe_load((CHECKOUT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    merged: dict[str, dict[str, Any]] = {}
    for entry in given["argument_specs"].values():
        for name, option in (entry.get("options") or {}).items():
            merged[name] = option
    return merged


def defaults(role: str) -> dict[str, Any]:
    """Return the defaults of a role."""
    path = CHECKOUT / "roles" / role / "defaults" / "main.yml"
    return (yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def test_every_role_has_specs() -> None:
    """No role goes without argument specs."""
    assert sorted(path.name for path in (CHECKOUT / "roles").iterdir() if path.is_dir()) == ROLES


@pytest.mark.parametrize("role", ROLES)
def test_each_default_is_specified_with_its_value(role: str) -> None:
    """What defaults/main.yml sets is an option with the same default; a templated default is documented instead."""
    options = specs(role)
    for name, value in defaults(role).items():
        if name.startswith("__"):
            continue
        assert name in options, f"{name} has no spec"
        option = options[name]
        assert option.get("type"), f"{name} has no type"
        assert not option.get("required"), f"{name} is required and has a default"
        if isinstance(value, str) and "{{" in value:
            assert "default" not in option, f"{name} follows other variables; say so in its description"
        elif value is not None:
            assert option.get("default") == value, f"{name}: default {value!r}, spec {option.get('default')!r}"
        else:
            assert option.get("default") is None


@pytest.mark.parametrize("role", ROLES)
def test_each_option_has_a_default_or_is_required(role: str) -> None:
    """What the specs promise of the role's own variables is in defaults/main.yml."""
    known = defaults(role)
    for name, option in specs(role).items():
        if name.startswith("__"):
            continue
        assert next((owner for owner in OWNERS if name.startswith(f"{owner}_")), None) is not None, f"{name} belongs to no role"
        if name.startswith(f"{role}_"):
            assert option.get("required") or name in known, f"{name} is neither required nor set in defaults/main.yml"


@pytest.mark.parametrize("role", ROLES)
def test_names_begin_with_the_role(role: str) -> None:
    """Public names are role_x, internal ones __role_x; nothing that a user sets stands in vars/."""
    assert all(re.match(rf"(__)?{role}_", name) for name in defaults(role))
    for path in sorted((CHECKOUT / "roles" / role).glob("vars/**/*.yml")):
        names = set(yaml.safe_load(path.read_text()) or {})
        assert all(name.startswith("__") for name in names), f"{path.relative_to(CHECKOUT)}: {sorted(names)}"


def registered(tasks: list[Any]) -> set[str]:
    """Return the names that tasks register, blocks included."""
    found = set()
    for task in tasks:
        found |= {task["register"]} if "register" in task else set()
        for part in ("block", "rescue", "always"):
            found |= registered(task.get(part) or [])
    return found


@pytest.mark.parametrize("role", ROLES)
def test_registered_names_are_internal(role: str) -> None:
    """What a task registers is no interface, unless defaults name it so."""
    for path in sorted(Path(CHECKOUT / "roles" / role / "tasks").glob("*.yml")):
        for name in registered(yaml.safe_load(path.read_text()) or []):
            assert name.startswith("__"), f"{path.relative_to(CHECKOUT)} registers {name}"


def test_a_yes_or_no_is_read_as_one() -> None:
    """Given on a command line it is a text, which no condition takes for a yes or a no by itself."""
    flags = [name for role in ROLES for name, option in specs(role).items() if option.get("type") == "bool"]
    assert flags
    for path in [*(CHECKOUT / "roles").glob("*/tasks/*.yml"), *(CHECKOUT / "playbooks").glob("*.yml")]:
        for name in flags:
            bare = re.findall(rf"^.*\b{name}\b(?!\s*(?:\||:)).*$", path.read_text(), re.MULTILINE)
            assert not bare, f"{path.relative_to(CHECKOUT)}: {bare}"
            assert not re.search(rf"\b{name}\s*\|(?!\s*bool)", path.read_text())


def test_the_names_that_are_read_are_those_that_roles_declare() -> None:
    """Whatever else begins like one of them is refused as mistyped."""
    declared = {name for role in ROLES for name in specs(role)}
    assert sorted(declared) == list(_variables.KNOWN)
    assert {prefix for prefix in _variables.PREFIXES if any(name.startswith(prefix) for name in declared)} == set(_variables.PREFIXES)
    assert all(name.startswith(_variables.PREFIXES) for name in declared)


def test_what_the_request_reads_is_declared() -> None:
    """The resolver's request names no variable that operators cannot find in the documentation."""
    text = (CHECKOUT / "roles" / "gpu_stack" / "vars" / "main" / "request.yml").read_text()
    read = set(re.findall(rf"\b(?:{'|'.join(_variables.PREFIXES)})\w+", text))
    assert read and read <= set(_variables.KNOWN) | {"verification_members"}


# The option's type -> a value that is not of it.
WRONG = {"str": {"a": 1}, "list": {"a": 1}, "dict": "x", "bool": "perhaps", "int": "soon"}
SETTINGS = ("gpu_stack_lock_file", "gpu_stack_pending_ok", "gpu_stack_reboot_timeout")


@pytest.mark.parametrize("name", sorted(specs("gpu_stack")))
def test_the_resolver_refuses_what_the_specs_would(name: str) -> None:
    """The playbooks leave the check of the first step's specs out: the resolver says the same in fewer words."""
    wrong = WRONG[specs("gpu_stack")[name]["type"]]
    with pytest.raises(Refusal) as caught:
        if name == "gpu_stack_lock":
            normalize_lock(wrong, False)
        elif name in SETTINGS:
            normalize({"settings": {name: wrong}})
        else:
            normalize({name.removeprefix("gpu_stack_"): wrong})
    assert caught.value.fields["variable"] == name
