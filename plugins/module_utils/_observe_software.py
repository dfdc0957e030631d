# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The group C(software): what runs on top of the driver, and the limits that it runs under."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _host, _python_env

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation

NCCL_FILES = ("/etc/nccl.conf",)
# A unit without limits of its own, so that systemd's default shows.
PLAIN_UNIT = "systemd-journald.service"


def start(seen: Observation) -> None:
    """Software needs no program of its own."""
    seen.unit_names.append(PLAIN_UNIT)


def collect(seen: Observation) -> None:
    """Fill in C(pytorch), C(nccl), C(limits), and C(cuda)."""
    system, facts, units = seen.system, seen.facts, seen.units
    with seen.probe("software"):
        paths = [item["id"] for item in seen.managed if item["kind"] == "python_environment"]
        found = [_python_env.scan(system, path) for path in paths]
        facts["pytorch"] = [environment for environment in found if environment]
        facts["nccl"] = {"config": {path: system.read(path) for path in NCCL_FILES}}
        facts["limits"] = _host.memlock(system, (units or {}).get(PLAIN_UNIT, {}).get("LimitMEMLOCK"))
        facts["cuda"] = []
        for name in system.names("/usr/local"):
            if re.match(r"cuda-\d+\.\d+$", name):
                text = system.read("/usr/local/%s/version.json" % name)
                version = json.loads(text).get("cuda", {}).get("version") if text else None
                facts["cuda"].append({"path": "/usr/local/" + name, "version": version or name[5:]})
