# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters that show what gpu_facts observed: one node as a picture, and who differs among many. They hold no rules: those are in plugin_utils."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils import _compare, _topology_draw
from ansible_collections.gpu.fleet.plugins.plugin_utils._hostvars import HostVars, raw

Groups = Mapping[str, list[str]]


def gpu_topology_draw(facts: Mapping[str, Any]) -> str:
    """Return a node's topology as SVG."""
    return _topology_draw.draw(facts)


def _observed(hosts: list[str], hostvars: HostVars) -> dict[str, Any]:
    """Return what is known of each host: what a role of this collection observed last, else what the play has gathered itself."""
    get = raw(hostvars)
    found = {}
    for host in hosts:
        known = get(host)
        registered = (known.get("__gpu_stack_observation") or {}).get("ansible_facts") or {}
        found[host] = registered.get("gpu_fleet") or (known.get("ansible_facts") or {}).get("gpu_fleet")
    return found


def odd_ones_out(hosts: list[str], hostvars: HostVars, groups: Groups | None = None, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return which hosts differ from their siblings, and in what."""
    # Ansible would tell the cause, too, which says the same in more lines.
    try:
        return _compare.compare(_observed(hosts, hostvars), groups or {}, fields)
    except _compare.CompareError as error:
        raise AnsibleFilterError(str(error)) from None


def odd_ones_out_table(hosts: list[str], hostvars: HostVars, groups: Groups | None = None, fields: Mapping[str, str] | None = None) -> list[str]:
    """Return the same as the lines of a table; a missing library is such a line, because a run needs no comparison."""
    if len(hosts) < 2:
        return []
    try:
        return _compare.lines(_compare.compare(_observed(hosts, hostvars), groups or {}, fields))
    except _compare.MissingLibraryError as error:
        return [str(error)]
    except _compare.CompareError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "gpu_topology_draw": gpu_topology_draw,
            "odd_ones_out": odd_ones_out,
            "odd_ones_out_table": odd_ones_out_table,
        }
