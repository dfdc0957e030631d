# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Taking NVIDIA's kernel driver out of a host and putting it in; used by C(kernel_driver) and by the driver transaction.

run_command of Ansible has no time limit, which a build and a module that hangs need.
"""

from __future__ import annotations

import subprocess
import time

from ansible_collections.gpu.fleet.plugins.module_utils import _dkms, _driver
from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# Users before what they use. https://github.com/NVIDIA/gpu-driver-container, function _unload_driver
UNLOAD = ("nvidia_drm", "nvidia_modeset", "gdrdrv", "nvidia_fs", "nvidia_peermem", "nvidia_uvm", "nvidia")
LOAD = ("nvidia", "nvidia-uvm")
# What the driver sees, one line a GPU.
QUERY = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
SECONDS = 120
BUILD_SECONDS = 1800
DKMS_TREE = "/var/lib/dkms"


class Refused(Exception):
    """The driver cannot be loaded or unloaded now."""


def call(*words: str, seconds: int = SECONDS) -> str:
    """Run a program; returns what it says, or raises Refused with its own words."""
    done = subprocess.run(  # pylint: disable=ansible-bad-function
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False, timeout=seconds,
    )
    if done.returncode:
        raise Refused("%s failed: %s" % (" ".join(words), done.stdout.strip()[-600:]))
    return done.stdout.strip()


def version_now(system: System) -> str | None:
    """Version of the loaded driver."""
    found = _driver.loaded(system)
    return found["version"] or "unknown" if found else None


def strangers(system: System, units: list[str]) -> list[str]:
    """Processes that have a device open and belong to none of the services; raises Refused where they cannot be seen."""
    found = _driver.holders(system)
    if found is None:
        raise Refused("who has the driver's devices open can be seen by root only")
    return ["%s (%s)" % (entry["name"], entry["pid"]) for entry in found if entry["unit"] not in units]


def built(system: System, kernel: str) -> str | None:
    """Version of the module that would be loaded into this kernel."""
    path = _driver.module_files(system).get(kernel)
    return call("modinfo", "-F", "version", path) if path else None


def running(system: System) -> str:
    """Release of the running kernel."""
    return system.read("/proc/sys/kernel/osrelease", 256) or ""


def have_module(wanted: str, system: System, kernel: str | None = None) -> None:
    """See that the wanted version's module exists for a kernel, the running one by default; build it where that is all that is missing."""
    kernel, started = kernel or running(system), time.time()
    found = built(system, kernel)
    why = ""
    if found != wanted and system.exists("/usr/sbin/dkms"):
        # Packages for a new kernel end well even when the build was left out, or failed.
        try:
            call("dkms", "autoinstall", "-k", kernel, seconds=BUILD_SECONDS)
            found = built(system, kernel)
            if found != wanted:
                found = _put_over(wanted, system, kernel)
        except Refused as error:
            why = ". %s%s" % (error, _dkms.failure_since(started))
            found = built(system, kernel)
    if found != wanted:
        what = "only " + found if found else "no module of it"
        raise Refused("driver %s is installed, but for kernel %s there is %s%s" % (wanted, kernel, what, why))


def _put_over(wanted: str, system: System, kernel: str) -> str | None:
    """Install a build once more whose files are another's; returns the version that is there afterwards.

    The flavours are modules of different names to dkms, with files of the same names. Where the one takes the other's place, dkms keeps the other's
    file as the original, puts it back when the one goes, and still calls installed what came meanwhile.
    """
    for name in system.names(DKMS_TREE):
        if system.exists("%s/%s/%s" % (DKMS_TREE, name, wanted)):
            call("dkms", "install", "--force", "-m", name, "-v", wanted, "-k", kernel, seconds=BUILD_SECONDS)
    return built(system, kernel)


def lacking(system: System) -> list[str]:
    """Those of the modules to load that are not there; at boot the kernel loads nvidia by itself, and that one alone."""
    return [name for name in LOAD if not system.exists("/sys/module/" + name.replace("-", "_"))]


def load(wanted: str | None, units: list[str], system: System) -> None:
    """Load the driver and look whether it is the wanted one."""
    now, missing = version_now(system), lacking(system)
    if now is None and wanted:
        have_module(wanted, system)
    if missing and (now is None or not wanted or now == wanted):
        for name in missing:
            call("modprobe", name)
        for unit in units:
            # A pattern, as a plain name that systemd has not met is an error.
            call("systemctl", "reset-failed", unit + "*")
        now = version_now(system)
    if wanted and now != wanted:
        raise Refused("driver %s is loaded and %s is wanted; unload it first" % (now, wanted))


def unload(units: list[str], system: System) -> None:
    """Stop the services and take the modules out."""
    found = strangers(system, units)
    if found:
        raise Refused("the driver cannot be unloaded: %s has its devices open" % ", ".join(found))
    for unit in units:
        # A service that was never installed is as good as stopped.
        if system.exists("/usr/lib/systemd/system/" + unit) or system.exists("/etc/systemd/system/" + unit):
            call("systemctl", "stop", unit)
    end = time.monotonic() + 10
    while _driver.holders(system) and time.monotonic() < end:
        time.sleep(0.2)
    for name in UNLOAD:
        if system.exists("/sys/module/" + name):
            call("modprobe", "-r", name)
