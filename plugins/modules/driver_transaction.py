#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_transaction
short_description: Change the GPU driver as a whole, or give the host back as it was
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Installs a driver in place of the one that is there, or of none. Stops what uses it, takes it out, changes its packages in one transaction of apt
    or dnf, sees that a module was built for each kernel, loads it, runs the services again, gives the GPUs their settings back, and looks at the
    result.
  - A step that fails turns the transaction around. The former driver comes back from package files that are on the host before anything changes.
  - Runs as a service of the host. It goes on when the connection or the controller is lost, and in the next boot when power is.
  - Waits for, or finishes, a transaction that it finds unfinished.
  - The record is C(/var/lib/gpu_fleet/driver/transaction.json).
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(changed) makes the change that the other options describe.
      - V(finished) only finishes what is unfinished, as after a reboot that was waited for. It fails when the last change did not end well.
      - V(former) brings the driver back that the last change replaced, from the packages that are kept on the host. It fails, and changes nothing,
        where there is none, where the host is not as that change has left it, and where the last change was itself such a way back. One that waits
        for its boot is called back.
    type: str
    choices: [changed, finished, former]
    default: changed
  version:
    description: Version that the driver has afterwards.
    type: str
  flavour:
    description: Which kernel module it has afterwards.
    type: str
    choices: [open, proprietary]
  packages:
    description: Exact version of each package by its name; an empty version means that any will do.
    type: dict
    default: {}
  unless_present:
    description: Packages in any version, by name, each with a path. One whose path exists is not asked for.
    type: dict
    default: {}
  may_remove:
    description: Names of packages that the transaction may remove.
    type: list
    elements: str
    default: []
  absent:
    description: Names of packages that go with the change, and come back with the way back; those that are not installed count as gone.
    type: list
    elements: str
    default: []
  afresh:
    description:
      - Whether the packages come from another supplier than the present ones, which then go with their settings before any of them is unpacked.
      - Settings that somebody has changed come back with the way back.
    type: bool
    default: false
  files:
    description:
      - Files that belong to the version, such as its pins, by path. They change with the packages, and back with them.
      - An empty text is no file.
    type: dict
    default: {}
  locks:
    description:
      - Lines of dnf's list of locked versions by package. They change with the packages, and back with them. What others have locked of these
        packages is put aside meanwhile.
    type: dict
    default: {}
  kernels:
    description: Releases of the kernels that must have the module. The running one is always among them.
    type: list
    elements: str
    default: []
  services:
    description:
      - Units that use the driver. They are stopped first, in this order, also those that have come to run meanwhile. Those that ran before run again
        afterwards, in the opposite order.
    type: list
    elements: str
    default: []
  settings:
    description:
      - Programs, with their arguments, that give the GPUs back what they lose with the module. They must serve again after a run that was cut off.
      - One with V(-) before it may fail.
    type: list
    elements: list
    default: []
  reload:
    description: Whether a loaded driver may be taken out. Without it, only a host where none is loaded, or the wanted one, can be changed.
    type: bool
    default: false
  reboot:
    description: Whether the host may be rebooted where that is the only way. The module never reboots it; RV(reboot) says that it is needed.
    type: bool
    default: false
  way_back:
    description: Whether the files of the present packages must be had before anything changes.
    type: str
    choices: [required, optional]
    default: required
  repository:
    description: The source that the packages come from, as the plan describes it. Where apt is, it is used in check mode only.
    type: dict
  wait:
    description: Seconds to wait for the end. The transaction goes on when they are over, and the module fails.
    type: int
    default: 3600
  lock_timeout:
    description: Seconds to wait for another run of the package manager before anything has changed.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Change the driver
  gpu.fleet.driver_transaction:
    version: 580.178.04
    flavour: open
    packages:
      nvidia-driver-cuda: 580.178.04-1
      libcuda1: 580.178.04-1
      nvidia-kernel-open-dkms: 580.178.04-1
    services: [nvidia-persistenced.service]
    reload: true
"""

RETURN = r"""
record:
  description: The record of the transaction; null where there never was one.
  returned: always
  type: dict
  sample: {"status": "done", "step": "verify", "direction": "forward", "reason": null}
reboot:
  description: Whether the transaction waits for a reboot.
  returned: success
  type: bool
changes:
  description: What it does with packages, or would do in check mode; by name.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: libcuda1, from: 580.159.04-1, to: 580.178.04-1, action: change}
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import (
    _apt,
    _driver_prepare,
    _driver_steps,
    _engine,
    _kernel_driver,
    _managers,
    _packages,
    _record,
    _rollback,
    _transaction,
)
from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# In the record, but for the service alone.
INWARD = ("schema", "settings", "history", "wanted", "before")


class Failed(Exception):
    """The transaction did not do what was asked."""


class DriverTransaction:
    """The transaction of this host, as this module sees it."""

    def __init__(self, params: dict[str, t.Any], store: _record.Store, check_mode: bool = False) -> None:
        self.params = params
        self.check_mode = check_mode
        self.store = store
        self.manager = _managers.here()
        self.archives = self.manager.archives(os.path.join(store.folder, _engine.ARCHIVES))
        self.steps = _driver_steps.DriverSteps(self.archives, self.manager)
        self.until = time.monotonic() + params["wait"]

    def unfinished(self) -> dict[str, t.Any] | None:
        """A transaction that somebody began and nobody has finished."""
        record = self.store.read()
        return record if record and record["status"] in _transaction.UNFINISHED else None

    def request(self) -> dict[str, t.Any]:
        """What the steps are made from."""
        params, system = self.params, System("/", 60.0)
        packages = _packages.asked(params)
        return {
            "version": params["version"],
            "flavour": params["flavour"],
            "packages": packages,
            "may_remove": params["may_remove"],
            "absent": params["absent"],
            "afresh": params["afresh"],
            "files": {path: text or None for path, text in params["files"].items()},
            "locks": {name: str(line) for name, line in params["locks"].items()},
            "repository": params["repository"],
            "kernels": sorted({*params["kernels"], _kernel_driver.running(system)}),
            "mode": "reload" if params["reload"] or not params["reboot"] else "reboot",
            "may_reboot": params["reboot"],
            "own": params["services"],
            "settings": [[str(word) for word in command] for command in params["settings"]],
            "way_back": params["way_back"],
        }

    def foresee(self, request: dict[str, t.Any]) -> list[dict[str, t.Any]]:
        """What the transaction would do with packages; changes nothing, and needs no repository that is set up."""
        if not self.manager.missing(request["packages"]):
            return []
        return self.manager.foresee(request, self.params["repository"], self.params["lock_timeout"])

    def begin(self) -> dict[str, t.Any]:
        """Prepare a transaction and let the service make it."""
        request, lost = self.request(), self.left_behind()
        if not lost and self.as_wanted(request):
            return {}
        with self.store.alone():
            self.store.reserve()
            wanted, before = _driver_prepare.prepare(request, self.archives, self.params["lock_timeout"], self.manager, lost)
            services = _driver_prepare.running_units(self.params["services"])
            if lost:
                services = [unit for unit in self.params["services"] if unit in {*services, *lost["services"]}]
                request["settings"] = request["settings"] or lost["settings"]
            self.announce(request, wanted, before, services)
        return self.finish()

    def announce(
        self, request: dict[str, t.Any], wanted: dict[str, t.Any], before: dict[str, t.Any], services: list[str], undoes: str | None = None
    ) -> None:
        """Put the record of a new transaction on the disk, from where the service takes it."""
        stale = self.steps.stale(wanted)
        if stale and not (self.params["reload"] or self.params["reboot"]):
            raise Failed("%s is loaded, and neither reload nor reboot was agreed to" % stale)
        name = "%s to %s, %s" % (before["version"], wanted["version"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        self.store.write(_transaction.new(name, request, wanted, before, services, undoes))

    def go_back(self) -> dict[str, t.Any]:
        """Bring the driver back that the last transaction replaced; returns the record."""
        found = self.unfinished()
        if found and not self.check_mode and (found["undoes"] or found["status"] == _transaction.RUNNING):
            asked_before, found = bool(found["undoes"]), self.finish()
            if asked_before:
                # It is a way back already, which somebody was interrupted in: to turn it would bring back what is to go.
                return found
        if found and found["status"] == _transaction.WAITING:
            if self.check_mode:
                return found
            with self.store.alone():
                _rollback.turn(found)
                self.store.write(found)
            return self.finish()
        record = _rollback.check(self.store.read())
        with self.store.alone():
            wanted, before = _rollback.states(record, self.archives, System("/", 60.0), self.manager)
            if self.check_mode:
                return _transaction.new("", self.request(), wanted, before, [])
            services = _driver_prepare.running_units(self.params["services"])
            self.announce(self.request(), wanted, before, services, record["id"])
        return self.finish()

    def left_behind(self) -> dict[str, t.Any] | None:
        """The record of a transaction whose way back failed: it owes the host the services that ran, and the settings of the GPUs."""
        record = self.store.read()
        return record if record and record["status"] == _transaction.NEEDS_ATTENTION else None

    def as_wanted(self, request: dict[str, t.Any]) -> bool:
        """Whether the host has all of it already, and nothing else is loaded. That the module is loaded is not part of it."""
        version, flavour = _driver_prepare.present(System("/", 60.0))
        if version != request["version"] or flavour not in (None, request["flavour"]) or self.steps.stale(request):
            return False
        # dnf ends its own files with an empty line.
        settled = all((_driver_prepare.content(path) or "").rstrip() == (text or "").rstrip() for path, text in request["files"].items())
        settled = settled and self.manager.locks() == request["locks"]
        # Packages for a kernel end well also where its module was not built.
        settled = settled and all(_kernel_driver.built(System("/", 60.0), kernel) == request["version"] for kernel in request["kernels"])
        return settled and not self.manager.missing(request["packages"]) and not self.manager.cut_off()

    def finish(self) -> dict[str, t.Any]:
        """Let the service go on, and wait until it ends or waits itself."""
        if not _engine.active():
            # Also where it is installed: the program that stands there may be what failed.
            _engine.install(self.store.folder)
            _engine.systemctl("start", _engine.UNIT)
        pause = 0.2
        while time.monotonic() < self.until:
            time.sleep(pause)
            pause = min(2.0, pause * 1.3)
            record = self.store.read()
            if record and not _engine.active():
                if record["status"] == _transaction.RUNNING:
                    raise Failed("the service %s ended in the middle of %s: see journalctl -u %s" % (_engine.UNIT, record["step"], _engine.UNIT))
                return record
        raise Failed("the transaction goes on, but did not end within %d s; run the same again to wait for it" % self.params["wait"])


def judge(record: dict[str, t.Any]) -> None:
    """Raise Failed for an end that nobody wanted."""
    if record["status"] == _transaction.ROLLED_BACK:
        raise Failed("driver %s could not be installed, and %s is back: %s" % (
            record["wanted"]["version"], record["before"]["version"] or "no driver", record["reason"]))
    if record["status"] == _transaction.NEEDS_ATTENTION:
        raise Failed("the host stands between two drivers and needs attention: %s" % record["reason"])


def run(module: AnsibleModule, transaction: DriverTransaction) -> dict[str, t.Any]:
    """Finish what is unfinished, then make what is asked for."""
    if module.params["state"] == "former":
        return go_back(transaction)
    found, changed = transaction.unfinished(), False
    anew = module.params["state"] == "changed"
    if module.check_mode:
        request = transaction.request()
        changes = transaction.foresee(request) if anew else []
        wanting = anew and (transaction.left_behind() or not transaction.as_wanted(request))
        return {"changed": bool(found or wanting), "changes": changes, "reboot": False}
    record = transaction.store.read()
    if found:
        record, changed = transaction.finish(), True
    # One that still waits for its boot is not begun over: what is loaded and what is installed are two drivers until then.
    settled = not found or not record or record["status"] != _transaction.WAITING
    if anew and settled and not (found and record and same(record["wanted"], module.params)):
        made = transaction.begin()
        record, changed = made or record, changed or bool(made)
    if record and (changed or not anew):
        judge(record)
    changes = changes_of(record) if record and changed else []
    return {"changed": changed, "changes": changes, "reboot": bool(record and record["status"] == _transaction.WAITING)}


def go_back(transaction: DriverTransaction) -> dict[str, t.Any]:
    """Go back, and say how that ended."""
    record = transaction.go_back()
    waits = record["status"] == _transaction.WAITING and not transaction.check_mode
    called_back = record["status"] == _transaction.ROLLED_BACK and record["reason"] == _rollback.CALLED_BACK
    if not called_back and not transaction.check_mode:
        judge(record)
    return {"changed": True, "changes": changes_of(record), "reboot": waits}


def same(wanted: dict[str, t.Any], params: dict[str, t.Any]) -> bool:
    """Whether an earlier transaction was to bring the driver that is asked for now."""
    return all(wanted[part] == params[part] for part in ("version", "flavour"))


def changes_of(record: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """What a transaction does with packages, from its record."""
    now, then = record["before"]["packages"], record["wanted"]["packages"]
    names = sorted({*now, *then})
    return [
        {"name": name, "from": now.get(name), "to": then.get(name),
         "action": "remove" if name not in then else "change" if name in now else "install"}
        for name in names
    ]


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["changed", "finished", "former"], "default": "changed"},
            "version": {"type": "str"},
            "flavour": {"type": "str", "choices": ["open", "proprietary"]},
            "packages": {"type": "dict", "default": {}},
            "unless_present": {"type": "dict", "default": {}},
            "may_remove": {"type": "list", "elements": "str", "default": []},
            "absent": {"type": "list", "elements": "str", "default": []},
            "afresh": {"type": "bool", "default": False},
            "files": {"type": "dict", "default": {}},
            "locks": {"type": "dict", "default": {}},
            "kernels": {"type": "list", "elements": "str", "default": []},
            "services": {"type": "list", "elements": "str", "default": []},
            "settings": {"type": "list", "elements": "list", "default": []},
            "reload": {"type": "bool", "default": False},
            "reboot": {"type": "bool", "default": False},
            "way_back": {"type": "str", "choices": ["required", "optional"], "default": "required"},
            "repository": {"type": "dict"},
            "wait": {"type": "int", "default": 3600},
            "lock_timeout": {"type": "int", "default": 120},
        },
        required_if=[("state", "changed", ("version", "flavour"))],
        supports_check_mode=True,
    )
    transaction = DriverTransaction(module.params, _record.Store(), module.check_mode)
    try:
        result = run(module, transaction)
    except _record.Busy:
        module.fail_json(msg="another process works on the driver of this host")
    except (Failed, _transaction.Refused, _record.Unreadable, _apt.Failed, _kernel_driver.Refused, OSError) as error:
        module.fail_json(msg=str(error), record=summary(transaction.store))
    result["diff"] = _packages.diff(result["changes"])
    result["record"] = summary(transaction.store)
    module.exit_json(**result)


def summary(store: _record.Store) -> dict[str, t.Any] | None:
    """The record as far as it is of interest outside."""
    try:
        record = store.read()
    except _record.Unreadable:
        return None
    return {key: value for key, value in record.items() if key not in INWARD} if record else None


if __name__ == "__main__":
    main()
