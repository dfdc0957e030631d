# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The one way in which a request is turned down."""

from __future__ import annotations

from typing import Any

SCHEMA = 1


class Refusal(Exception):
    """A request that cannot be met, with everything that the operator needs to make one that can."""

    def __init__(
        self,
        rule: str,
        message: str,
        *,
        seen: Any = None,
        allowed: Any = None,
        variable: str | None = None,
        source: str | None = None,
        nearest: Any = None,
    ) -> None:
        """Keep the rule's id, the value seen, the values allowed, the variable to set, and the nearest request that works."""
        super().__init__(message)
        self.fields = {
            "schema": SCHEMA,
            "rule": rule,
            "message": message,
            "seen": seen,
            "allowed": allowed,
            "variable": variable,
            "source": source,
            "nearest": nearest,
        }
