# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What the host is: distribution, kernel, machine, limits, and the boot it is in."""

from __future__ import annotations

import os
import platform
import re
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Firmware names by which hypervisors give themselves away, in the order of asking.
MACHINES = (
    ("kvm", ("qemu", "kvm", "red hat")),
    ("amazon", ("amazon ec2",)),
    ("google", ("google",)),
    ("vmware", ("vmware",)),
    ("microsoft", ("microsoft corporation virtual",)),
    ("xen", ("xen",)),
    ("virtualbox", ("virtualbox", "innotek")),
)


def os_release(text: str) -> dict[str, str]:
    """The keys of /etc/os-release, quotes removed."""
    found = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip().isidentifier():
            found[key.strip()] = re.sub(r"\\(.)", r"\1", value.strip().strip("\"'"))
    return found


def virtualization(system: System) -> str | None:
    """Name of the container manager or hypervisor; None on bare metal."""
    container = system.read("/run/systemd/container", 64, True)
    if container:
        return container
    names = " ".join(system.read("/sys/class/dmi/id/" + part, 256, True) or "" for part in ("sys_vendor", "product_name"))
    for name, marks in MACHINES:
        if any(mark in names.lower() for mark in marks):
            return None if "metal" in names.lower() else name
    return None


def secure_boot(system: System) -> bool | None:
    """From the firmware's variable; False without EFI; None when it cannot be read."""
    if not system.exists("/sys/firmware/efi"):
        return False
    data = system.read_bytes(SECURE_BOOT, 16)
    return bool(data[4]) if data and len(data) >= 5 else None


def verifier(system: System) -> str:
    """What apt checks repositories with: Sequoia's program where apt has a method for it and the program is there."""
    return "sqv" if system.exists("/usr/lib/apt/methods/sqv") and system.exists("/usr/bin/sqv") else "gpgv"


def scan(system: System) -> dict[str, t.Any]:
    """The group C(host)."""
    release = os_release(system.read("/etc/os-release") or system.read("/usr/lib/os-release") or "")
    if not release.get("ID"):
        system.problem("os-release names no distribution")
    manager = package_manager(system)
    return {
        "name": system.read("/proc/sys/kernel/hostname", 256) or None,
        "distribution": release.get("ID"),
        "version": release.get("VERSION_ID"),
        "like": release.get("ID_LIKE", "").split(),
        "architecture": os.uname().machine,
        "kernel": kernel(system),
        "package_manager": manager,
        "python": platform.python_version(),
        "virtualization": virtualization(system),
        "secure_boot": secure_boot(system),
        "signature_verifier": verifier(system) if manager == "apt" else None,
        "init": "systemd" if system.exists("/run/systemd/system") else None,
    }


def package_manager(system: System) -> str | None:
    """C(apt) or C(dnf): whose the host is. apt comes first, as hosts of its own may have dnf beside it."""
    return next((name for name, program in (("apt", "/usr/bin/apt-get"), ("dnf", "/usr/bin/dnf")) if system.exists(program)), None)


def kernel(system: System) -> str | None:
    """Release of the running kernel."""
    return system.read("/proc/sys/kernel/osrelease", 256, True) or os.uname().release


def boot_id(system: System) -> str | None:
    return system.read("/proc/sys/kernel/random/boot_id", 64)


def memlock(system: System, service: str | None) -> dict[str, t.Any]:
    """Locked memory allowed to a login (from pam_limits, entries for everybody) and to a service of systemd.

    C("unlimited"), a number of bytes, or None when nothing is set or known.
    """
    shell: str | int | None = None
    files = ["/etc/security/limits.conf"]
    files += ["/etc/security/limits.d/" + name for name in system.names("/etc/security/limits.d") if name[-5:] == ".conf"]
    for name in files:
        for line in (system.read(name, quiet=True) or "").splitlines():
            words = line.split("#", 1)[0].split()
            if len(words) == 4 and words[0] == "*" and words[1] in ("-", "soft") and words[2] == "memlock":
                if words[3] in ("unlimited", "infinity", "-1"):
                    shell = "unlimited"
                elif words[3].isdigit():
                    shell = int(words[3]) * 1024
    given: str | int | None = None
    if service:
        given = int(service) if service.isdigit() else "unlimited"
        if isinstance(given, int) and given >= 1 << 63:
            given = "unlimited"
    return {"memlock": {"shell": shell, "service": given}}
