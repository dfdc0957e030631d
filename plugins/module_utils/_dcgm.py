# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""DCGM: packages, the host engine, and the exporter, as far as packages and units tell; no engine is asked."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _cuda, _software
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    Packages = t.Optional[t.Dict[str, _software.Package]]
    Units = t.Optional[t.Dict[str, t.Dict[str, str]]]

PACKAGE = later(r"datacenter-gpu-manager(?!-exporter)(?:-|$)")
MAIN = later(r"datacenter-gpu-manager(?:-\d+-core)?$")
EXPORTER = later(r"(?:datacenter-gpu-manager-exporter|dcgm-exporter)$")
FLAVOUR = later(r"datacenter-gpu-manager-\d+-(cuda(?:\d+|-all))$")
ENGINE_UNITS = ("nvidia-dcgm.service", "dcgm.service")
EXPORTER_UNIT = "nvidia-dcgm-exporter.service"
UNITS = (*ENGINE_UNITS, EXPORTER_UNIT)
LISTEN = later(r"\s(?:-a|--address)[ =](\S+)")
PORT = later(r"\s(?:-p|--port)[ =](\d+)")
BIND = later(r"\s(?:-b|--bind-interface)[ =](\S+)")


def _exists(unit: dict[str, str]) -> bool:
    return unit.get("LoadState") not in (None, "not-found")


def arguments(unit: dict[str, str]) -> str:
    """Command line of a unit in systemctl's words: { path=... ; argv[]=/usr/bin/x -a y ; ignore_errors=no ; ... }."""
    match = re.search(r"argv\[\]=(.*?) ; ", unit.get("ExecStart", ""))
    return match.group(1) if match else ""


def listens(unit: dict[str, str]) -> str | None:
    """Where the exporter listens, if its unit says so: a flag goes before the variable."""
    match = LISTEN.search(arguments(unit)) or re.search(r"(?:^|[\s\"])DCGM_EXPORTER_LISTEN=([^\s\"]+)", unit.get("Environment", ""))
    return match.group(1) if match else None


def scan(packages: Packages, units: Units) -> dict[str, t.Any]:
    """The fact C(dcgm)."""
    made = _cuda.installed(packages, PACKAGE)
    known = units or {}
    engine = next((known[name] for name in ENGINE_UNITS if _exists(known.get(name, {}))), None)
    main = next((package.version for name, package in sorted(made.items(), reverse=True) if MAIN.match(name)), None)
    exporter = _cuda.installed(packages, EXPORTER)
    unit = known.get(EXPORTER_UNIT, {})
    command = arguments(engine or {})
    port, bind = PORT.search(command), BIND.search(command)
    return {
        "packages": {name: package.version for name, package in sorted({**made, **exporter}.items())},
        "version": _software.upstream(main),
        "flavours": sorted(match.group(1) for match in map(FLAVOUR.match, made) if match),
        "active": None if units is None else engine is not None and engine.get("ActiveState") == "active",
        "listen": "%s:%s" % (bind.group(1) if bind else "", port.group(1) if port else "5555") if port or bind else None,
        "exporter": {
            "version": _software.upstream(next((package.version for package in exporter.values()), None)),
            "active": None if units is None else unit.get("ActiveState") == "active",
            "listen": listens(unit),
        } if exporter or _exists(unit) else None,
    }


def owner(packages: dict[str, _software.Package]) -> str:
    """Who made what is installed of DCGM."""
    made = {**_cuda.installed(packages, PACKAGE), **_cuda.installed(packages, EXPORTER)}
    return _cuda.maker(made) if made else "absent"
