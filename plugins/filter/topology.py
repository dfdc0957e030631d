# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that show what gpu_facts observed: one node as a picture. They hold no rules: those are in plugin_utils."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _topology_draw


def gpu_topology_draw(facts: Mapping[str, Any]) -> str:
    """Return a node's topology as SVG."""
    return _topology_draw.draw(facts)


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_topology_draw": gpu_topology_draw}
