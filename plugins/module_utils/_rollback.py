# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The way back from a driver that is at work: to what the record of the last change has kept, from the package files on the host."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _apt,
    _driver,
    _driver_prepare,
    _kernel_driver,
    _managers,
    _transaction,
)
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives
from ansible_collections.gpu.fleet.plugins.module_utils._record import Record
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import Refused

CALLED_BACK = "it was called back while it waited for a boot"
LOCK_SECONDS = 120
State = t.Dict[str, t.Any]


def check(record: Record | None) -> Record:
    """The record of a change that can be gone back on; raises Refused where there is no such thing."""
    if record is None:
        raise Refused("there is nothing to go back to: this host has no record of a change of driver")
    there, back = record["wanted"]["version"], record["before"]["version"]
    if record["status"] == _transaction.NEEDS_ATTENTION:
        raise Refused("the host stands between driver %s and %s: %s. Run what makes the change again" % (back, there, record["reason"]))
    if record["status"] == _transaction.ROLLED_BACK:
        raise Refused("there is nothing to go back to: the change to driver %s was undone already" % there)
    if record["undoes"]:
        raise Refused("there is nothing to go back to: the last change was itself the way back from driver %s to %s" % (back, there))
    if there == back and record["before"]["flavour"] in (None, record["wanted"]["flavour"]):
        raise Refused("there is nothing to go back to: the last change mended driver %s, and brought no other one" % there)
    if not back:
        raise Refused("there is nothing to go back to: the host had no driver before %s" % there)
    return record


def states(record: Record, archives: Archives, system: System, manager: _managers.AptManager = _managers.APT) -> t.Tuple[State, State]:
    """The states C(wanted) and C(before) of the way back; raises Refused where the host is not as the change has left it, or files are lacking."""
    left, former = record["wanted"], record["before"]
    version, flavour = _driver_prepare.present(system)
    if version != left["version"]:
        raise Refused("the host has driver %s, and the last change brought %s: where that leads back to is not known" % (version, left["version"]))
    moved = manager.missing(left["packages"])
    if moved:
        raise Refused("packages have changed since driver %s was installed: %s" % (version, ", ".join(sorted(moved))))
    lacking = ["%s %s" % item for item in sorted(former["packages"].items()) if archives.find(*item) is None]
    if lacking:
        raise Refused("%s is not in %s" % (", ".join(lacking), archives.folder))
    try:
        archives.check(former["archives"])
        manager.see_back(archives, former, LOCK_SECONDS)
    except _apt.Failed as error:
        raise Refused(str(error)) from error
    _driver_prepare.room(archives.folder, former)
    # The host may run another kernel by now than it did then.
    kernels = {**former["kernels"], _kernel_driver.running(system): False}
    modules = _driver.module_files(system)
    # Whoever goes back wants to stay there, also where nothing had locked the former driver.
    locks = former.get("locks") or manager.exact(former["packages"])
    wanted = {**former, "kernels": kernels, "gpus": _driver_prepare.countable(system), "locks": locks}
    before = {
        **left, "flavour": flavour, "locks": manager.locks(), "kernels": {kernel: kernel not in modules for kernel in kernels},
        "files": {path: _driver_prepare.content(path) for path in former["files"]}, "gpus": None,
    }  # fmt: skip
    return wanted, before


def turn(record: Record) -> None:
    """Let a change that waits for a boot go back instead; what is loaded is still the former driver."""
    record.update(
        status=_transaction.RUNNING, direction=_transaction.BACK, failed_step=record["step"], step=_transaction.STEPS[0],
        reason=CALLED_BACK, asked_in=None, waits_for=None, mode="reload",
    )  # fmt: skip
