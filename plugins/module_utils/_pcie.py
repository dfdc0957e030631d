# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The bridges above GPUs and RDMA devices, and the settings of both that decide how they reach each other."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _config_space, _pci

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

SETTINGS = ("parent", "max_read_request", "ats")


def scan(system: System, gpus: list[dict[str, t.Any]], nics: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """All bridges above the devices, by address; each device gets C(SETTINGS)."""
    parents: dict[str, str | None] = {}
    hidden = 0
    dead: list[str] = []
    for device in [*gpus, *nics]:
        device.update(dict.fromkeys(SETTINGS))
        if not device["address"]:
            continue
        # Without the host bridge, and without the one that a storage controller makes below itself.
        line = [part for part in _pci.chain(system, device["address"]) if _pci.ADDRESS.match(part)]
        above: list[str | None] = [None, *line]
        parents.update(zip(line[:-1], above))
        device["parent"] = line[-2] if len(line) > 1 else None
        found = _settings(system, device["address"], bool(device.get("virtual_function")))
        hidden += found["hidden"]
        dead += [device["address"]] if found["dead"] and device in nics else []
        device.update({key: found[key] for key in ("max_read_request", "ats")})
    bridges = []
    for address in sorted(parents):
        found = _settings(system, address)
        hidden += found["hidden"]
        dead += [address] if found["dead"] else []
        bridges.append({
            "address": address,
            "parent": parents[address],
            "role": found["role"],
            "pcie": _pci.link(system, "%s/%s" % (_pci.DEVICES, address)),
            "acs": found["acs"],
        })
    # GPUs that do not answer were named when they were found.
    for address in dead:
        system.problem("%s does not answer on the PCI bus" % address)
    if hidden:
        system.problem("%d PCI devices do not show their whole configuration space (root may see it): their settings are not known" % hidden)
    return bridges


def _settings(system: System, address: str, virtual: bool = False) -> dict[str, t.Any]:
    """Settings of one function; C(hidden) when its space cannot be read, C(dead) when it does not answer."""
    with _config_space.opened(system, "%s/%s" % (_pci.DEVICES, address)) as space:
        if space is None:
            return {**_config_space.UNKNOWN, "hidden": False, "dead": False}
        found = _config_space.settings(space, virtual)
        return {**found, "hidden": not space.dead and found["acs"] is None, "dead": space.dead}
