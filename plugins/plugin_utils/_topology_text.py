# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Text of a topology drawing: escaped, and cut to the room it has."""

from __future__ import annotations

from html import escape

# Widths in parts of the font's size, of the widest of the usual fonts, so that a label that fits here fits everywhere.
NARROW, WIDE = frozenset("iljtfrI.,:;'|![]() -·"), frozenset("mwMWQOGD@%&—…")


def printable(text: object) -> str:
    """Text without the characters that no XML may hold."""
    return "".join(char if char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff" else "\ufffd" for char in str(text))


def clean(text: object) -> str:
    """Text as it may stand in XML."""
    return escape(printable(text))


def width(text: str, size: float = 11.5, bold: bool = False) -> float:
    """How wide a text may become, whatever font the reader has."""
    total = 0.0
    for char in text:
        total += 1.0 if char > "\u024f" and char not in NARROW | WIDE else 0.4 if char in NARROW else 0.98 if char in WIDE else 0.64
        total += 0.06 if char.isupper() else 0.0
    return total * size * (1.1 if bold else 1.0)


def fit(text: str, room: float, size: float = 11.5, bold: bool = False) -> str:
    """The text as it can be shown, cut where it would not fit."""
    text = printable(text)
    if width(text, size, bold) <= room:
        return text
    while text and width(text + "…", size, bold) > room:
        text = text[:-1]
    return text + "…"
