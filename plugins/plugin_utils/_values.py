# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Values of variables as people and tools give them, read as what they mean, or refused."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal

YES = ("true", "yes", "on", "1", "y", "t")
NO = ("false", "no", "off", "0", "n", "f")


def text(value: Any) -> str | None:
    """Return a scalar as text; YAML makes 580 and 2.14 numbers, and an empty survey field is no answer."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return repr(value)
    return str(value)


def one_of(value: Any, allowed: tuple[str, ...], variable: str) -> str:
    """Return a word that is one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise Refusal(
            "request.choice", f"{variable} is {value!r}; choose one of {', '.join(allowed)}",
            seen=shown(value), allowed=list(allowed), variable=variable,
        )  # fmt: skip
    return str(value)


def shown(value: Any) -> Any:
    """Return a value as a refusal can carry it: plain, and not longer than a person reads."""
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)[:200]


def flag(value: Any, variable: str) -> bool:
    """Return a yes or no, which a command line gives as a text; no answer is a no."""
    word = str(value).lower() if isinstance(value, (bool, int, str)) or value is None else ""
    if word in YES or word in NO or value is None or value == "":
        return word in YES
    raise Refusal("request.choice", f"{variable} is {value!r}; give true or false", seen=shown(value), allowed=[True, False], variable=variable)


def number(value: Any, variable: str, low: int, high: int) -> int | None:
    """Return a whole number within limits, given as one or as its digits; None for no answer."""
    if value is None or value == "":
        return None
    digits = "" if isinstance(value, (bool, float)) else str(value)
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12 or not low <= int(digits) <= high:
        raise Refusal(
            "request.range", f"{variable} is {value!r}; give a number from {low} to {high}",
            seen=shown(value), allowed=[low, high], variable=variable,
        )  # fmt: skip
    return int(digits)


def mapping(value: Any, variable: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping with its defaults where it has no answer."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise Refusal("request.type", f"{variable} is {value!r}; give a mapping", seen=repr(value), allowed="a mapping", variable=variable)
    return {**defaults, **{name: given for name, given in value.items() if given is not None and given != ""}}


def names(value: Any, variable: str, allowed: tuple[str, ...]) -> list[str]:
    """Return words that are all allowed, each once; one word alone is a list of it."""
    given = [value] if isinstance(value, str) and value else value or []
    if not isinstance(given, (list, tuple)):
        raise Refusal("request.type", f"{variable} is {value!r}; give a list", seen=shown(value), allowed="a list", variable=variable)
    for name in given:
        if not isinstance(name, str) or name not in allowed:
            raise Refusal(
                "request.choice", f"{variable} names {name!r}; choose from {', '.join(allowed)}",
                seen=shown(name), allowed=list(allowed), variable=variable,
            )  # fmt: skip
    return sorted(set(given))
