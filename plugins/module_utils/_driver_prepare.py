# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What comes before a driver transaction: what it will do, what is there now, and the package files for both ways. Changes nothing that runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _driver, _kernel_driver, _managers, _pci
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives
from ansible_collections.gpu.fleet.plugins.module_utils._record import Record
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import Refused

QUERY_SECONDS = 60
State = t.Dict[str, t.Any]


def content(path: str) -> str | None:
    """Text of a settings file, or None when there is none."""
    try:
        with open(path, encoding="utf-8") as source:
            return source.read()
    except FileNotFoundError:
        return None


def running_units(units: t.Sequence[str]) -> list[str]:
    """Those of the units that run now."""
    found = []
    for unit in units:
        code, _output = _apt.run(["systemctl", "--quiet", "is-active", unit], 30)
        if code == 0:
            found.append(unit)
    return found


def present(system: System) -> t.Tuple[str | None, str | None]:
    """Version and flavour of the driver that is here: the loaded one, else that of the module on disk."""
    loaded = _driver.loaded(system)
    if loaded:
        return loaded["version"], loaded["flavour"]
    return _kernel_driver.built(system, _kernel_driver.running(system)), None


def countable(system: System) -> int:
    """How many GPUs the driver must see: those of this host, but for one that the present driver has lost already."""
    ours: int = sum(gpu["device_id"] is not None and gpu["kernel_driver"] != "vfio-pci" for gpu in _pci.scan(system)["gpus"])
    seen = 0
    if _driver.loaded(system):
        with contextlib.suppress(_kernel_driver.Refused, OSError, subprocess.TimeoutExpired):
            seen = len(_kernel_driver.call(*_kernel_driver.QUERY, seconds=QUERY_SECONDS).splitlines())
    return min(ours, seen) or ours


def states(request: t.Dict[str, t.Any], changes: t.List[_apt.Change], system: System) -> t.Tuple[State, State]:
    """The states C(wanted) and C(before), the package files still missing."""
    version, flavour = present(system)
    modules = _driver.module_files(system)
    wanted = {
        "version": request["version"],
        "flavour": request["flavour"],
        "kernels": dict.fromkeys(request["kernels"], False),
        "packages": {change["name"]: change["to"] for change in changes if change["to"]},
        "absent": [change["name"] for change in changes if change["action"] == "remove"],
        "files": request["files"],
        "locks": request.get("locks") or {},
        "gpus": countable(system),
        "afresh": request["afresh"],
    }
    before = {
        "version": version,
        "flavour": flavour,
        # A kernel that had no module before needs none on the way back.
        "kernels": {kernel: kernel not in modules for kernel in request["kernels"]},
        "packages": {change["name"]: change["from"] for change in changes if change["from"]},
        "absent": [change["name"] for change in changes if change["action"] == "install"],
        "files": {path: content(path) for path in request["files"]},
        "locks": {},
        # A driver that did not see all GPUs before is no reason to refuse the way back.
        "gpus": None,
        "afresh": request["afresh"],
    }
    if request["afresh"]:
        before["files"].update({path: content(path) for path in _apt.edited(before["packages"])})
    return wanted, before


def instead_of(owed: Record, request: t.Dict[str, t.Any], wanted: State, before: State) -> None:
    """Let a transaction begin where the way back of another has failed: what that one came from is what this one goes back to.

    Half of the packages may be those of either driver, so all of them are asked for, and not what a simulation says would change. What the former
    transaction never touched is as it was: it comes back in today's version, and goes only if this one brings it.
    """
    wanted["packages"].update({name: version for name, version in request["packages"].items() if version})
    former = owed["before"]
    touched = {*former["packages"], *former["absent"]}
    untouched = {name: version for name, version in before["packages"].items() if name not in touched}
    before["absent"] = sorted({*former["absent"], *before["absent"]} - set(former["packages"]))
    before.update(version=former["version"], flavour=former["flavour"], packages={**untouched, **former["packages"]})
    for part in ("files", "kernels"):
        before[part].update({name: state for name, state in former[part].items() if name in before[part]})
    if "locks" in former:
        before["locks"] = former["locks"]


def prepare(
    request: t.Dict[str, t.Any], archives: Archives, lock_timeout: int, manager: _managers.AptManager, owed: Record | None = None
) -> t.Tuple[State, State]:
    """Simulate the transaction and fetch the files for both ways; raises Refused, and then nothing has changed.

    C(owed) is the record of a transaction that could not go back.
    """
    system = System("/", 600.0)
    try:
        with manager.ready(request, lock_timeout) as found:
            wanted, before = states(request, found.changes, system)
            before["locks"] = manager.locks()
            if owed:
                instead_of(owed, request, wanted, before)
            before["archives"], lost = archives.have(before["packages"], found.source)
            if lost and request["way_back"] == "required":
                raise Refused("there would be no way back: %s cannot be had from a repository of this host or from %s" % (
                    ", ".join(lost), archives.folder))
            wanted["archives"], lacking = archives.have(wanted["packages"], found.source)
            if lacking:
                raise Refused("%s cannot be fetched" % ", ".join(lacking))
            if request["way_back"] == "required":
                way_back(archives, wanted, before, found.source, manager)
    except (_apt.Failed, _kernel_driver.Refused) as error:
        raise Refused(str(error)) from error
    for state in (wanted, before):
        room(archives.folder, state)
    return wanted, before


def way_back(archives: Archives, wanted: State, before: State, source: t.Any, manager: _managers.AptManager = _managers.APT) -> None:
    """Refuse a change after which there would be no way to go back, or none without taking more away than the change has brought."""
    try:
        manager.foresee_back(archives, wanted, before, source)
    except _apt.Failed as error:
        raise Refused("there would be no way back: %s" % error) from error


def room(folder: str, state: State, where: str = "/usr") -> None:
    """Refuse what cannot be unpacked: apt looks at the space for its own cache only."""
    packed = sum(os.path.getsize(os.path.join(folder, name)) for name in state["archives"])
    found = os.statvfs(where)
    free = found.f_bavail * found.f_frsize
    # Libraries of the driver unpack to some three times their size, and dpkg keeps the old files until the new are there.
    needed = 4 * packed
    if free < needed:
        raise Refused("%s has %d MiB free and the packages need some %d MiB" % (where, free >> 20, needed >> 20))
