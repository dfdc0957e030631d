# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The variables of hosts as filters get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

HostVars = Mapping[str, Mapping[str, Any]]


def raw(hostvars: HostVars) -> Callable[[str], Mapping[str, Any]]:
    """Return how to get a host's variables as they are.

    What modules and plans left there holds no templates, and to look for them takes ten times as long as what is done with it.
    """
    return getattr(hostvars, "raw_get", hostvars.__getitem__)
