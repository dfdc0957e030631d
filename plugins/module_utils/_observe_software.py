# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The group C(software): what runs on top of the driver, and the limits that it runs under."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _conda,
    _conf,
    _containers,
    _cuda,
    _dcgm,
    _host,
    _limits,
    _nccl_env,
    _python_env,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils import _software
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
NCCL_FILES = ("/etc/nccl.conf",)
# A unit without limits of its own, so that systemd's default shows.
PLAIN_UNIT = "systemd-journald.service"
UNITS = tuple(dict.fromkeys((*_limits.UNITS, *_containers.UNITS, *_dcgm.UNITS)))
UNIT_FOLDERS = (
    "/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator.late", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
    "/lib/systemd/system",
)


def start(seen: Observation) -> None:
    """Ask about the units that this host has; each one more would cost systemd a millisecond."""
    seen.unit_names.append(PLAIN_UNIT)
    with seen.probe("systemd"):
        seen.unit_names += [name for name in UNITS if any(seen.system.exists(folder + "/" + name) for folder in UNIT_FOLDERS)]


def collect(seen: Observation) -> None:
    """Fill in C(cuda), C(cudnn), C(nccl), C(containers), C(pytorch), C(conda), C(dcgm), C(limits), and their C(owners)."""
    system, packages, units = seen.system, seen.packages, seen.units
    mounts: _conf.Mounts | None = None
    files: _cuda.Files | None = None
    with seen.probe("mounts"):
        mounts = _conf.Mounts(system)
    if mounts is None:
        return
    with seen.probe("limits"):
        _limits_of(seen, mounts)
    with seen.probe("cuda"):
        toolkits = _cuda.toolkits(system, packages, mounts)
        seen.facts["cuda"] = toolkits
        seen.own(cuda=_owner(packages, toolkits))
        files = _cuda.Files(system, mounts, [entry["path"] for entry in toolkits if entry["path"] != "/usr"])
    if files is not None:
        with seen.probe("cudnn"):
            seen.facts["cudnn"] = found = _cuda.cudnn(files, packages)
            seen.own(cudnn=_owner(packages, found["headers"] + found["libraries"]))
        with seen.probe("nccl"):
            _nccl(seen, files, mounts)
    with seen.probe("containers"):
        toolkit = _containers.toolkit(system, packages)
        seen.facts["containers"] = {"engines": _containers.engines(system, packages, units), "toolkit": toolkit, "cdi": _specifications(system)}
        seen.own(container_toolkit=_owner(packages, [toolkit] if toolkit else []))
    with seen.probe("pytorch"):
        _pytorch(seen, mounts)
    with seen.probe("dcgm"):
        seen.facts["dcgm"] = _dcgm.scan(packages, units)
        seen.own(dcgm=None if packages is None else _dcgm.owner(packages))


def _specifications(system: System) -> list[dict[str, t.Any]]:
    """Those of CDI; where no folder is for them their reader is not even loaded."""
    if not any(system.exists(folder) for folder in CDI_FOLDERS):
        return []
    from ansible_collections.gpu.fleet.plugins.module_utils import _cdi

    return _cdi.scan(system, CDI_FOLDERS)


def _owner(packages: dict[str, _software.Package] | None, entries: list[dict[str, t.Any]]) -> str | None:
    """Whose a component is; while packages are not known, nothing found is not yet nothing there."""
    return None if packages is None and not entries else _cuda.owner(entry["owner"] for entry in entries)


def _nccl(seen: Observation, files: _cuda.Files, mounts: _conf.Mounts) -> None:
    system, slurm = seen.system, (seen.facts["limits"] or {}).get("slurm") or {}
    found = _cuda.nccl(files, seen.packages)
    found["config"] = {path: system.read(path) for path in NCCL_FILES}
    asked = {name: properties for name, properties in (seen.units or {}).items() if name in UNITS}
    found["variables"] = _nccl_env.scan(system, mounts, asked, slurm.get("prologs") or [])
    seen.facts["nccl"] = found
    seen.own(nccl=_owner(seen.packages, found["headers"] + found["libraries"]))


def _pytorch(seen: Observation, mounts: _conf.Mounts) -> None:
    """Environments that were asked for first, then those that conda knows and that have a torch."""
    facts = seen.facts
    asked = [item["id"] for item in seen.managed if item["kind"] == "python_environment"]
    scanned = [_python_env.scan(seen.system, path) for path in asked]
    environments = [dict(_conda.described(found), asked=True) for found in scanned if found]
    facts["conda"], more = _conda.find(seen.system, mounts)
    known = {entry["path"]: entry for entry in more}
    for entry in environments:
        entry.update({key: value for key, value in known.get(entry["path"], {}).items() if key not in ("path", "python", "torch", "packages")})
    facts["pytorch"] = environments + [dict(entry, asked=False) for entry in more if entry["path"] not in asked]
    seen.own(pytorch=_cuda.owner(entry["owner"] for entry in facts["pytorch"] if entry["torch"]))


def _limits_of(seen: Observation, mounts: _conf.Mounts) -> None:
    system, units = seen.system, seen.units
    found = _host.memlock(system, (units or {}).get(PLAIN_UNIT, {}).get("LimitMEMLOCK"))
    found["units"] = _limits.units(system, units)
    found["slurm"] = _limits.slurm(system, mounts)
    found["sysctls"] = _limits.sysctls(system)
    found["governors"] = _limits.governors(system)
    found["transparent_hugepages"] = _limits.huge_pages(system)
    found["swap"] = _limits.swap(system)
    seen.facts["limits"] = found
