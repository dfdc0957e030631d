# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Regular expressions that are compiled when they are first used: of a hundred, one host needs a third, and each costs a tenth of a millisecond."""

from __future__ import annotations

import re
import typing as t


class _Later:
    """Becomes the compiled expression, one method at a time."""

    def __init__(self, pattern: t.Any, flags: int) -> None:
        self._words = (pattern, flags)

    def __getattr__(self, name: str) -> t.Any:
        method = getattr(re.compile(*self._words), name)
        # From now on it is found without coming here.
        setattr(self, name, method)
        return method


def later(pattern: t.AnyStr, flags: int = 0) -> t.Pattern[t.AnyStr]:
    """What C(re.compile) gives, as far as its methods go; functions of C(re) do not take it."""
    return t.cast("t.Pattern[t.AnyStr]", _Later(pattern, flags))
