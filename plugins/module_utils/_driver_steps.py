# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What each step of a driver transaction does to a host. Each can be done again, and then finds nothing to do.

A state that a host is brought to, by either direction::

  version, flavour   of the driver; version null is a host without one
  kernels            releases that must have its module, as {release: may it be missing}
  packages           exact versions by name
  absent             names of packages that are not to be there
  archives           {file name: sha256} of the package files, in the store
  files              {path: content, or null for no file}
  locks              {package: line} of ours in dnf's list of locked versions
  afresh             whether packages of the same names are another supplier's, so that nothing of theirs may stay, settings included
  holds              names of packages that are on hold by then; whatever else is, stays so
  gpus               how many GPUs nvidia-smi has to see; null is not asked
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _driver, _host, _kernel_driver, _managers, _modprobe, _units
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import StepFailed

State = t.Dict[str, t.Any]
OBSERVE_SECONDS = 600.0
SETTLE_SECONDS = 20
LOCK_SECONDS = 600
MAY_FAIL = "-"


@contextlib.contextmanager
def told() -> t.Iterator[None]:
    """Turn what programs and files answer into the failure of a step."""
    try:
        yield
    except (_apt.Failed, _kernel_driver.Refused) as error:
        raise StepFailed(str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise StepFailed("%s did not end within %d s" % (" ".join(error.cmd), error.timeout)) from error


def put(path: str, content: str | None) -> None:
    """Bring a settings file of root's into its state; no reader ever sees half of it."""
    if content is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpu-fleet-")
    try:
        with os.fdopen(handle, "wb") as output:
            output.write(content.encode())
            output.flush()
            os.fsync(output.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


class DriverSteps:
    """One host, looked at anew by every step."""

    def __init__(self, archives: Archives, manager: _managers.AptManager = _managers.APT) -> None:
        self.archives = archives
        self.manager = manager

    @property
    def system(self) -> System:
        return System("/", OBSERVE_SECONDS)

    def boot_id(self) -> str:
        return _host.boot_id(self.system) or "unknown"

    def stale(self, state: State) -> str | None:
        """What is loaded and is not the state's driver."""
        loaded = _driver.loaded(self.system)
        if loaded and (loaded["version"] != state["version"] or state.get("flavour") not in (None, loaded["flavour"])):
            return "driver %s (%s)" % (loaded["version"], loaded["flavour"])
        rivals = _modprobe.rivals(self.system) if state["version"] else []
        return next((rival["module"] for rival in rivals if rival["bound"] or rival["module"] == "nouveau"), None)

    def quiesce(self, own: t.List[str]) -> None:
        """Stop the services of the driver; nobody else may have a device of it open."""
        with told():
            system = self.system
            found = _kernel_driver.strangers(system, own)
            if found:
                raise StepFailed("%s has the GPUs open" % ", ".join(found))
            for unit in own:
                # systemd stops nothing that it does not know, and calls that a failure.
                if _kernel_driver.call("systemctl", "show", "--property=LoadState", "--", unit) == "LoadState=not-found":
                    continue
                _kernel_driver.call("systemctl", "stop", unit)
                # Scripts of packages start services, which fail again and again without a driver until systemd refuses them, and all that
                # hangs on them, for some time. A boot forgets it.
                _kernel_driver.call("systemctl", "--quiet", "mask", "--runtime", unit)
            end = time.monotonic() + SETTLE_SECONDS
            left = _driver.holders(system)
            while left and time.monotonic() < end:
                # What another one of them started once more before its own turn to stop had come.
                for unit in [unit for unit in own if unit in {entry["unit"] for entry in left}]:
                    _kernel_driver.call("systemctl", "stop", unit)
                time.sleep(0.2)
                left = _driver.holders(system)

    def unload(self) -> None:
        """Take the modules out."""
        with told():
            _kernel_driver.unload([], self.system)

    @staticmethod
    def write(files: t.Dict[str, str | None]) -> None:
        """Bring settings files into their state."""
        for path, text in sorted(files.items()):
            put(path, text)

    def packages(self, state: State, _other: State) -> None:
        """Bring packages, pins and settings into the state, in one transaction, from files that are on this host."""
        with told():
            self.write(state["files"])
            manager = self.manager
            manager.lock(state.get("locks") or {})
            # Also what is half installed, as after an unpacking that failed.
            here = manager.unpacked()
            gone = sorted(here & set(state["absent"]))
            lacking = manager.missing(state["packages"])
            if not lacking and not gone and not manager.cut_off():
                return
            self.archives.check(state["archives"])
            afresh = sorted(here.intersection(lacking)) if state.get("afresh") else None
            manager.exchange(self.archives.paths(state["archives"]), gone, afresh, LOCK_SECONDS)
            # What went with the packages and is the operator's.
            self.write(state["files"])
            left = manager.missing(state["packages"])
            if left:
                raise StepFailed("the package manager ended well, but these are not installed as asked: %s" % ", ".join(sorted(left)))
            stayed = sorted(manager.unpacked() & set(state["absent"]))
            if stayed:
                raise StepFailed("the package manager ended well, but these are still here: %s" % ", ".join(stayed))

    def hold(self, state: State) -> None:
        """Put packages on hold that came, or came back, without it."""
        with told():
            self.manager.hold(state.get("holds") or [], LOCK_SECONDS)

    def build(self, state: State) -> None:
        """See that each kernel that this host may run next has the module."""
        if not state["version"]:
            return
        for kernel, may_be_missing in sorted(state["kernels"].items()):
            try:
                with told():
                    _kernel_driver.have_module(state["version"], self.system, kernel)
            except StepFailed:
                if not may_be_missing:
                    raise

    def load(self, state: State) -> None:
        """Load the module of the running kernel."""
        if state["version"]:
            with told():
                _kernel_driver.load(state["version"], [], self.system)

    def start(self, state: State, services: t.List[str], own: t.List[str]) -> None:
        """Run the services again that ran before, and no others; what failed without a driver may be tried anew."""
        with told():
            self.release(own)
            for unit in reversed(services) if state["version"] else ():
                _kernel_driver.call("systemctl", "reset-failed", unit + "*")
                _units.start(unit)

    @staticmethod
    def release(own: t.List[str]) -> None:
        """Let the services be started again, by whomever."""
        for unit in own:
            _kernel_driver.call("systemctl", "--quiet", "unmask", "--runtime", unit)

    def settings(self, commands: t.List[t.List[str]]) -> None:
        """Give the GPUs back what they lost with the module: MIG, power limits, clocks. A command after a dash may fail."""
        if _driver.loaded(self.system):
            with told():
                for command in commands:
                    may_fail = command[0] == MAY_FAIL
                    try:
                        _kernel_driver.call(*command[may_fail:])
                    except _kernel_driver.Refused:
                        if not may_fail:
                            raise

    def verify(self, state: State) -> None:
        """Loaded, on disk and in user space there is one version, and it sees its GPUs."""
        system = self.system
        loaded = _driver.loaded(system)
        version = state["version"]
        if not version:
            if loaded:
                raise StepFailed("driver %s is still loaded" % loaded["version"])
            return
        seen = {"loaded": (loaded or {}).get("version"), "user space": _driver.user_space(system)}
        with told():
            seen["on disk"] = _kernel_driver.built(system, _kernel_driver.running(system))
        wrong = ["%s %s" % (name, found) for name, found in sorted(seen.items()) if found != version]
        if wrong:
            raise StepFailed("driver %s is wanted, but there is: %s" % (version, ", ".join(wrong)))
        if state.get("gpus") is not None:
            with told():
                count = len(_kernel_driver.call(*_kernel_driver.QUERY).splitlines())
            if count != state["gpus"]:
                raise StepFailed("nvidia-smi sees %d GPUs, and the PCI bus has %d" % (count, state["gpus"]))
