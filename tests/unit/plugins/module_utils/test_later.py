# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A regular expression that is compiled later is the same one, and is compiled once and only if it is used."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._later import later


def test_it_is_compiled_at_its_first_use_and_then_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = re.compile

    def compile_(*words: Any) -> Any:
        compiled.append(words)
        return real(*words)

    monkeypatch.setattr(re, "compile", compile_)
    expression = later(r"A(\d)$", re.I)
    assert compiled == []
    assert [bool(expression.match(text)) for text in ("a1", "a", "A2", "b1")] == [True, False, True, False]
    assert compiled == [(r"A(\d)$", re.I)]


def test_it_does_what_the_compiled_one_does() -> None:
    text = "a1 b2"
    assert later(r"[a-z](\d)").findall(text) == ["1", "2"]
    assert later(r"\d").sub("", text) == "a b"
    assert later(rb"\d").findall(text.encode()) == [b"1", b"2"]
    with pytest.raises(AttributeError):
        _ = later("x").nothing  # type: ignore[attr-defined]
