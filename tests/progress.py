# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a long test shows what it is doing, although pytest captures its output."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

_START = time.monotonic()
_uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext


def reach(uncaptured: Callable[[], AbstractContextManager[None]]) -> None:
    """Tell how to reach the terminal; pytest's configuration calls this."""
    global _uncaptured  # noqa: PLW0603  (one terminal, one way to it)
    _uncaptured = uncaptured


def say(text: str) -> None:
    """Show a line at once, with the seconds since the run began."""
    with _uncaptured():
        print(f"\n  [{time.monotonic() - _START:6.1f} s] {text}", end="", flush=True)
