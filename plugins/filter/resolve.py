# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters around the resolver. They hold no rules: those are in plugin_utils."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

import yaml
from ansible import context
from ansible.errors import AnsibleError
from ansible.parsing.splitter import parse_kv
from ansible_collections.gpu.fleet.plugins.plugin_utils import (
    _adopt,
    _driver_rollback,
    _fabric,
    _lock,
    _managed_plan,
    _plan_table,
    _resolve,
    _run_options,
    _variables,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._consent import VARIABLE
from ansible_collections.gpu.fleet.plugins.plugin_utils._fingerprint import membership
from ansible_collections.gpu.fleet.plugins.plugin_utils._hostvars import HostVars, raw


def resolve_stack(
    catalog: dict[str, Any],
    request: dict[str, Any],
    observed: dict[str, Any],
    today: str,
    lock: dict[str, Any] | None = None,
    fleet: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the plan for one host, or its refusal."""
    return _resolve.resolve_stack(catalog, request, lock, None, observed, fleet, today)


def managed_ids(catalog: dict[str, Any], request: dict[str, Any]) -> list[dict[str, str]]:
    """Return the {kind, id} of everything that the request could manage."""
    return _resolve.managed_ids(catalog, request)


def fabric_of(hostvars: HostVars, host: str) -> dict[str, Any]:
    """Return {group, membership} of the fabric that a host belongs to; a host of none shares jobs with nobody."""
    known = raw(hostvars)(host)
    name = min(fnmatch.filter(known["group_names"], "gpu_fabric_*"), default=None)
    return {"group": name, "membership": membership(known["groups"][name]) if name else None}


def nodes_in_service(groups: dict[str, list[str]]) -> list[str]:
    """Return the hosts of gpu_nodes without those of gpu_hold, in the inventory's order; where there are none, the pattern that no host fits."""
    held = set(groups.get("gpu_hold", ()))
    return [host for host in groups.get("gpu_nodes", ()) if host not in held] or ["!all"]


def with_fabrics(hosts: list[str], groups: dict[str, list[str]]) -> list[str]:
    """Return hosts and all who share a fabric with one of them, but for those on hold: a collective needs every member in service."""
    found = dict.fromkeys(hosts)
    held = set(groups.get("gpu_hold", ()))
    for name in sorted(groups):
        if fnmatch.fnmatchcase(name, "gpu_fabric_*") and set(groups[name]) & set(hosts):
            found.update(dict.fromkeys(groups[name]))
    # In the inventory's order, whatever order the hosts answered in: the first one is where a collective meets.
    return [host for host in groups.get("all", found) if host in found and host not in held]


def run_options(inventories: list[str]) -> str:
    """Return the options of this run that another one needs to meet the same hosts with the same wishes; consent is not among them."""
    given = [_given(str(text)) for text in context.CLIARGS.get("extra_vars") or ()]
    return _run_options.options(context.CLIARGS, inventories, given, VARIABLE)


def _given(text: str) -> str | Mapping[str, Any]:
    """Return what -e was given: the name of a file (@name), or variables."""
    if text.startswith("@"):
        return text
    try:
        found = yaml.safe_load(text) if text.lstrip().startswith(("{", "[")) else parse_kv(text)
    except (yaml.YAMLError, AnsibleError):
        return {}
    return found if isinstance(found, Mapping) else {}


def refusals(hosts: list[str], hostvars: HostVars) -> list[str]:
    """Return one line for each host without a plan that it should have: what was seen, what is allowed, and which variable to set.

    Variables that nothing reads count, too: the plan was made without them, so it is not the one that was asked for.
    """
    known = raw(hostvars)
    found = []
    mistyped: dict[str, list[str]] = {}
    fabrics: dict[str, dict[str, Any]] = {}
    for host in hosts:
        mine = known(host)
        for name in _variables.strangers(mine):
            mistyped.setdefault(name, []).append(host)
        refusal = (mine.get("__gpu_stack_plan") or {}).get("refusal")
        seen = mine.get("__gpu_stack_observation") or {}
        if seen.get("failed") and not seen.get("unreachable"):
            found.append(f"{host}: it could not be observed, so it has no plan: {seen.get('msg') or 'no reason given'}")
        elif refusal:
            found.append(f"{host}: {_refused(refusal)}")
        else:
            fabric = min(fnmatch.filter(mine.get("group_names") or (), "gpu_fabric_*"), default=None)
            if fabric:
                fabrics.setdefault(fabric, {})[host] = mine.get("__gpu_stack_plan") or {}
    unequal = [_refused(refusal) for fabric in sorted(fabrics) for refusal in _fabric.refusals(fabric, fabrics[fabric])]
    return [_mistyped(name, named) for name, named in sorted(mistyped.items())] + found + unequal


def _refused(refusal: dict[str, Any]) -> str:
    """Return a refusal as one line."""
    advice = f" Set {refusal['variable']}." if refusal["variable"] else ""
    nearest = f" The nearest that works: {refusal['nearest']}." if refusal["nearest"] else ""
    return f"{refusal['message']}.{advice}{nearest} [{refusal['rule']}]"


def _mistyped(name: str, hosts: list[str]) -> str:
    """Return the line of a variable that nothing reads; one in a group's variables is one line, not one a host."""
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return f"{', '.join(hosts[:3])}{more}: {_variables.advice(name)}. [variable.unknown]"


def differing(items: list[dict[str, Any]], states: dict[str, Any], role: str) -> list[str]:
    """Return what of a role's items is not in its desired state."""
    return _managed_plan.differing(items, states).get(role, [])


def driver_rollback(observed: dict[str, Any], request: dict[str, Any], kept: dict[str, str] | None = None) -> dict[str, Any]:
    """Return what going back to the former driver would disturb, whether that was agreed to, and what keeps its packages afterwards."""
    return _driver_rollback.plan(request, observed, kept)


def plan_table(hosts: list[str], hostvars: HostVars) -> list[str]:
    """Return the plans of hosts as the lines of a table."""
    return _plan_table.lines({host: raw(hostvars)(host).get("__gpu_stack_plan") or {} for host in hosts})


def adoption(hosts: list[str], hostvars: HostVars, catalog: dict[str, Any], today: str) -> list[str]:
    """Return the variables that describe what is on hosts, as lines to paste."""
    known = raw(hostvars)
    seen = {host: (known(host).get("__gpu_stack_observation") or {}).get("ansible_facts", {}).get("gpu_fleet") for host in hosts}
    return _adopt.lines(catalog, seen, today)


def lock_of(hosts: list[str], hostvars: HostVars, lock: dict[str, Any] | None) -> dict[str, Any]:
    """Return the lock that the plans of hosts make of the present one: {content, moved, split}."""
    plans = {host: raw(hostvars)(host).get("__gpu_stack_plan") or {} for host in hosts}
    after, split = _lock.settled(plans, lock or {})
    return {"content": _lock.text(after), "moved": _lock.moved(lock or {}, after), "split": split}


class FilterModule:
    """The resolver's filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "adoption": adoption,
            "differing": differing,
            "driver_rollback": driver_rollback,
            "fabric_of": fabric_of,
            "lock_of": lock_of,
            "managed_ids": managed_ids,
            "nodes_in_service": nodes_in_service,
            "plan_table": plan_table,
            "refusals": refusals,
            "resolve_stack": resolve_stack,
            "run_options": run_options,
            "with_fabrics": with_fabrics,
        }
