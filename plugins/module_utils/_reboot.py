# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What is pending on a host until it boots again or loads its driver anew."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _boot, _kernels, _modprobe
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._runner import Result
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

FLAG = "/run/reboot-required"
DNF = ("dnf", "needs-restarting", "-r")
REQUIRED = "Reboot is required"
NOT_REQUIRED = "Reboot should not be necessary"
BULLET = later(r"^[ \t]*\*[ \t]+(\S+)", re.M)

Reason = t.Dict[str, str]
Driver = t.Dict[str, t.Any]


def asked_by_packages(system: System) -> Reason | None:
    """The flag that Debian's and Ubuntu's packages leave; a host without the packages that write it never has one."""
    if not system.exists(FLAG):
        return None
    asked = (system.read(FLAG + ".pkgs", quiet=True) or "").split()
    return {"id": "asked_by_packages", "seen": " ".join(sorted(set(asked))) or "no package named"}


def asked_by_dnf(answer: Result | None) -> t.Tuple[Reason | None, str | None]:
    """dnf's answer, or what is wrong with it: the exit status 1 means a reboot as well as an unknown command."""
    if answer is None:
        return None, None
    if answer.rc == 1 and REQUIRED in answer.out:
        names = BULLET.findall(answer.out)
        return {"id": "asked_by_dnf", "seen": " ".join(sorted(set(names))) or REQUIRED}, None
    return None, None if answer.rc == 0 and NOT_REQUIRED in answer.out else answer.complaint


def newer_kernel(kernel: str | None, kernels: list[str], following: t.Dict[str, t.Any]) -> Reason | None:
    """A newer kernel of the same kind is installed. Nothing is said where the running one is not from here, as in a container."""
    newest = _kernels.newest(kernels, kernel)
    if kernel not in kernels or newest in (None, kernel):
        return None
    chosen = following["kernel"]
    said = "running %s, installed %s" % (kernel, newest)
    return {"id": "newer_kernel", "seen": said if chosen in (newest, None) else said + ", the next boot is set to %s" % chosen}


def other_module_loaded(kernel: str | None, driver: Driver) -> Reason | None:
    """The loaded module is not the one on disk: in version, or in flavour."""
    now, disk = driver["loaded"] or {}, driver["on_disk"].get(kernel) or {}
    for field in ("version", "flavour"):
        if now.get(field) and disk.get(field) and now[field] != disk[field]:
            return {"id": "other_module_loaded", "seen": "loaded %s, on disk %s" % (now[field], disk[field])}
    return None


def other_user_space(kernel: str | None, driver: Driver) -> Reason | None:
    """A library has another version than the module on disk. Broken packages do this; no boot mends it."""
    disk = (driver["on_disk"].get(kernel) or {}).get("version")
    libraries = {"libnvidia-ml": driver["user_space"], "libcuda": driver["libcuda"]}
    if not disk or all(version in (None, disk) for version in libraries.values()):
        return None
    said = ", ".join("%s %s" % (name, version) for name, version in sorted(libraries.items()) if version)
    return {"id": "other_user_space", "seen": "on disk %s, %s" % (disk, said)}


def rivals(kernel: str | None, driver: Driver) -> list[Reason]:
    """Another driver for the GPUs is loaded while NVIDIA's is there to be loaded."""
    disk = driver["on_disk"].get(kernel)
    found = []
    for rival in driver["rivals"] if disk else ():
        bound = "is bound to %d devices" % len(rival["bound"]) if rival["bound"] else "is loaded"
        found.append({"id": rival["module"] + "_loaded", "seen": "%s %s, nvidia %s is on disk" % (rival["module"], bound, disk["version"])})
    return found


def reasons(system: System, kernel: str | None, kernels: list[str], driver: Driver, asked: Reason | None) -> list[Reason]:
    """Only what is really pending, each as {id, seen}; a changed package alone is no reason. C(asked) is dnf's."""
    found = [
        asked_by_packages(system),
        asked,
        newer_kernel(kernel, kernels, driver["next_boot"]),
        other_module_loaded(kernel, driver),
        other_user_space(kernel, driver),
    ]
    waiting = {
        "pending_module_options": _modprobe.pending(driver["module_options"]),
        "pending_kernel_options": _boot.pending_options(driver["kernel_options"]),
        "pending_nic_settings": [
            "%s %s is %s, next %s" % (address, entry["name"], entry["current"], entry["next_boot"])
            for address, entries in sorted((driver["nic_settings"] or {}).items()) for entry in entries
        ],
    }
    found += [{"id": name, "seen": "; ".join(said)} for name, said in waiting.items() if said]
    return [reason for reason in found if reason] + rivals(kernel, driver)
