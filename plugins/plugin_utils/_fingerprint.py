# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""One word for everything that a verification's answer depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any


def membership(hosts: Iterable[str]) -> str:
    """Return one word for the members of a fabric: a plan needs no more, and a thousand names would be carried around for every host."""
    return hashlib.sha256("\n".join(sorted(map(str, hosts))).encode()).hexdigest()[:32]


def fingerprint(observed: dict[str, Any], driver: str | None, torch: str | None, nccl: dict[str, str], fabric: dict[str, Any]) -> str:
    """Return the fingerprint of the stack that the host will run; a pass under the same one need not be repeated."""
    parts = {
        "kernel": (observed.get("host") or {}).get("kernel"),
        "gpus": sorted([str(gpu["address"]), str(gpu["device_id"])] for gpu in observed.get("gpus") or []),
        "nics": sorted(str(nic["name"]) for nic in observed.get("nics") or []),
        "driver": driver,
        "torch": torch,
        "nccl": nccl,
        "fabric": fabric,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
