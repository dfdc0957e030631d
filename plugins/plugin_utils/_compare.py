# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which nodes differ from their siblings, and in what.

A value is the majority's when more than half of the siblings that have a known value have it. Without such a value nobody is called
odd: every node is named with what it has. A value that is null, or holds a null, is not known; that is said of the node, and is no difference.
"""

from __future__ import annotations

import fnmatch
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

try:
    import jmespath
    from jmespath import exceptions, functions
except ImportError:
    # Only the comparison needs it; whatever else imports this file has to go on without.
    jmespath = None

Facts: TypeAlias = Mapping[str, Any]
Fields: TypeAlias = Mapping[str, str]

MISSING = "comparing nodes needs the Python library jmespath on the controller, for the Python that runs Ansible: python3 -m pip install jmespath"
# What the nodes of one fabric have alike. Lists are compared without their order, so that a device may stand in another slot. An inner list
# keeps a null that a projection would drop: one device that says nothing makes the value unknown, not shorter.
DEFAULT_FIELDS = {
    "GPUs": "gpus[*].device_id",
    "GPU model": "gpus[*].[model]",
    "GPU memory, MiB": "gpus[*].[memory_mib]",
    "GPU PCIe lanes": "gpus[*].[pcie.width]",
    "active NVLinks": "gpus[*].[nvlinks != `null` && length(nvlinks[?active].link) || `null`]",
    "NVSwitches": "nvswitches[*].device_id",
    "driver": "driver && (driver.loaded == `null` && 'not loaded' || driver.loaded.version)",
    "kernel": "host.kernel",
    "NIC firmware": "nics[?address && !virtual_function].[device_id, firmware]",
    "NIC ports": "nics[?address && !virtual_function].[link_layer, state, rate_gbps]",
    "NIC PCIe lanes": "nics[?address && !virtual_function].[pcie.width]",
}
NAMED = 4
TITLES = ("differs in", "majority", "nodes", "have")
UNKNOWN = "not known"


class Answer(NamedTuple):
    """A value, and what it is equal by; None where it is not known."""

    value: Any
    key: str | None


class CompareError(ValueError):
    """The comparison cannot be made; the message says in one line why."""


class MissingLibraryError(CompareError):
    """The controller lacks what expressions are evaluated with."""


def compiled(fields: Fields) -> dict[str, Any]:
    """Return the fields' expressions ready for use; a bad one is named."""
    if jmespath is None:
        raise MissingLibraryError(MISSING)
    made = {}
    for name, expression in fields.items():
        try:
            made[name] = jmespath.compile(expression)
        except exceptions.JMESPathError as error:
            raise CompareError(_bad(name, expression, error)) from error
    return made


def _bad(name: str, expression: str, error: Exception) -> str:
    # The library draws the place of an error into lines of its own, and quotes values in whole.
    reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(" :")[:200]
    return f"field {name!r}: the JMESPath expression {expression!r} is bad: {reason}"


def _holds_null(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_null, value))
    if isinstance(value, dict):
        return any(map(_holds_null, value.values()))
    return value is None


def _canonical(value: Any) -> str:
    """A key under which equal values are equal; the order of a list of devices means nothing."""
    if isinstance(value, list):
        return "[" + ",".join(sorted(json.dumps(item, sort_keys=True) for item in value)) + "]"
    return json.dumps(value, sort_keys=True)


def plain(value: Any) -> Any:
    """Return a value in plain types: JMESPath's functions tell types by their names, and Ansible's own strings and lists have others."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, float) else value


def siblings(hosts: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str | None, list[str]]:
    """Return the hosts by the fabric that they belong to; those of none are compared with each other."""
    fabric: dict[str, str] = {}
    for name in sorted(groups):
        if fnmatch.fnmatchcase(name, "gpu_fabric_*"):
            for host in groups[name]:
                fabric.setdefault(host, name)
    found: dict[str | None, list[str]] = {}
    for host in hosts:
        found.setdefault(fabric.get(host), []).append(host)
    return dict(sorted(found.items(), key=lambda entry: (entry[0] is None, entry[0] or "")))


def _options() -> Any:
    """What expressions are evaluated with: no more than a function is given is made plain, because most facts are never asked for."""

    class Functions(functions.Functions):  # type: ignore[misc]
        def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
            return super().call_function(function_name, [plain(arg) for arg in resolved_args])

    return jmespath.Options(custom_functions=Functions())


def _answers(fields: Mapping[str, Any], sources: Fields, facts: Facts, options: Any) -> dict[str, Answer]:
    found = {}
    for name, expression in fields.items():
        try:
            value = plain(expression.search(facts, options))
            found[name] = Answer(value, None if _holds_null(value) else _canonical(value))
        except (TypeError, ValueError) as error:
            raise CompareError(_bad(name, sources[name], error)) from error
    return found


def _field(name: str, fabric: str | None, answers: Mapping[str, Answer]) -> dict[str, Any]:
    """Compare one field of siblings."""
    alike: dict[str, list[str]] = {}
    for host, answer in answers.items():
        if answer.key is not None:
            alike.setdefault(answer.key, []).append(host)
    known = sum(map(len, alike.values()))
    # The most common first; values that are equally common in the order of the hosts.
    ordered = sorted(alike.values(), key=len, reverse=True)
    shared = ordered[0] if ordered and 2 * len(ordered[0]) > known else None
    return {
        "field": name,
        "siblings": fabric,
        "known": known,
        "majority": {"value": answers[shared[0]].value, "hosts": len(shared)} if shared else None,
        "odd": [{"value": answers[members[0]].value, "hosts": members} for members in ordered if members is not shared],
        "unknown": [host for host, answer in answers.items() if answer.key is None],
    }


def compare(observed: Mapping[str, Facts | None], groups: Mapping[str, Sequence[str]], fields: Fields | None = None) -> dict[str, Any]:
    """Return what differs among siblings: `fields` in which somebody differs or is not known, and `hosts` with the fields they are odd in."""
    if fields is not None and not isinstance(fields, Mapping):
        raise CompareError("fields has to be a mapping of names to JMESPath expressions")
    sources = {str(name): str(expression) for name, expression in (DEFAULT_FIELDS if fields is None else fields).items()}
    expressions = compiled(sources)
    options = _options()
    answers = {host: _answers(expressions, sources, facts, options) for host, facts in observed.items() if facts is not None}
    found = []
    for fabric, members in siblings([host for host in observed if host in answers], groups).items():
        found += [_field(name, fabric, {host: answers[host][name] for host in members}) for name in sources]
    kept = [field for field in found if field["odd"] or field["unknown"]]
    hosts: dict[str, list[str]] = {}
    for field in kept:
        for entry in field["odd"]:
            for host in entry["hosts"]:
                hosts.setdefault(host, []).append(field["field"])
    return {
        "hosts": {host: hosts[host] for host in observed if host in hosts},
        "fields": kept,
        "unobserved": [host for host, facts in observed.items() if facts is None],
    }


def _item(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_item(item) for item in value) if value else "none"
    if isinstance(value, bool) or value is None or isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return str(value)


def shown(value: Any) -> str:
    """Return a value as a person reads it: equal items of a list are counted."""
    if not isinstance(value, list) or not value:
        return _item(value)
    counts = Counter(map(_item, value))
    return ", ".join(f"{number} x {item}" for item, number in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _named(hosts: Sequence[str]) -> str:
    more = len(hosts) - NAMED
    # One name more takes no more room than to say that there is one.
    return ", ".join(hosts) if more < 2 else f"{', '.join(hosts[:NAMED])} and {more} more"


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the differences as the lines of a table; none when there is nothing to tell. What is known of no sibling gets no line."""
    table: list[tuple[str, ...]] = [("siblings", *TITLES)]
    for field in found["fields"]:
        most = field["majority"]
        majority = f"{shown(most['value'])} ({most['hosts']} of {field['known']})" if most else "no majority"
        rows = [(_named(entry["hosts"]), shown(entry["value"])) for entry in field["odd"]]
        if field["unknown"] and field["known"]:
            rows.append((_named(field["unknown"]), UNKNOWN))
        table += [(field["siblings"] or "without fabric", field["field"], majority, *row) for row in rows]
    if len(table) == 1:
        return []
    if len({row[0] for row in table[1:]}) < 2:
        table = [row[1:] for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
