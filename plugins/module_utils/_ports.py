# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Ports of RDMA devices and the GIDs that they are reached by, from sysfs, in the kernel's own words."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

GID = later(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}$")
NO_GID = ":".join(["0000"] * 8)
# A table has up to 256 rows, filled from its start; where addresses were taken away there are gaps.
GAP, ROWS = 8, 256


def rate(text: str | None) -> float | None:
    """C("400 Gb/sec (4X NDR)") is 400 Gb/s."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*(?:Gb/sec|Gb/s|$)", text or "")
    value = float(found.group(1)) if found else None
    return int(value) if value is not None and value.is_integer() else value


def word(text: str | None) -> str | None:
    """C("4: ACTIVE") is ACTIVE."""
    return text.rsplit(":", 1)[-1].strip() or None if text else None


def lid(number: int | None) -> int | None:
    """A LID; 0 and 0xffff stand for none."""
    return None if number in (0, 0xFFFF) else number


def gids(system: System, folder: str) -> list[dict[str, t.Any]]:
    """The GIDs of a port: C([{index, gid, type, netdev}])."""
    found: list[dict[str, t.Any]] = []
    gap = 0
    for index in range(ROWS):
        text = system.read("%s/gids/%d" % (folder, index), 64, True) or ""
        if text == NO_GID or not GID.match(text):
            gap += 1
            if gap == GAP:
                break
            continue
        gap = 0
        found.append({
            "index": index,
            "gid": text,
            "type": system.read("%s/gid_attrs/types/%d" % (folder, index), 64, True) or None,
            "netdev": system.read("%s/gid_attrs/ndevs/%d" % (folder, index), 64, True) or None,
        })
    return found


def scan(system: System, folder: str) -> list[dict[str, t.Any]]:
    """The ports below the folder of a device, by number; LIDs of InfiniBand only."""
    ports = []
    for number in sorted(int(name) for name in system.names(folder + "/ports") if name.isdecimal()):
        port = "%s/ports/%d" % (folder, number)
        layer = system.read(port + "/link_layer", 64) or None
        infiniband = layer == "InfiniBand"
        ports.append({
            "number": number,
            "link_layer": layer,
            "state": word(system.read(port + "/state", 64)),
            "physical_state": word(system.read(port + "/phys_state", 64)),
            "rate_gbps": rate(system.read(port + "/rate", 64)),
            "lid": lid(system.number(port + "/lid")) if infiniband else None,
            "sm_lid": lid(system.number(port + "/sm_lid")) if infiniband else None,
            "gids": gids(system, port),
        })
    return ports
