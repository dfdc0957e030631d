# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The IOMMU: whether there is one, how the kernel was told to use it, and the domain that each GPU is in."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _pci
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

GROUPS = "/sys/kernel/iommu_groups"
# iommu=pt, intel_iommu=on, amd_iommu=off, iommu.passthrough=1
OPTION = later(r"(?:\w+_)?iommu(?:\.\w+)?=")


def options(command_line: str | None) -> list[str]:
    """The words of the kernel's command line about the IOMMU, as they stand there."""
    return [word for word in (command_line or "").split() if OPTION.match(word)]


def scan(system: System, gpus: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """C({present, options}); each GPU gets C(iommu_group) and C(iommu_type), the type of its group's domain in the kernel's words."""
    for gpu in gpus:
        group = system.link("%s/%s/iommu_group" % (_pci.DEVICES, gpu["address"]))
        gpu["iommu_group"] = int(group) if group and group.isdecimal() else None
        gpu["iommu_type"] = system.read("%s/%s/type" % (GROUPS, group), 64) or None if gpu["iommu_group"] is not None else None
    return {
        "present": bool(system.names(GROUPS) or system.names("/sys/class/iommu")),
        "options": options(system.read("/proc/cmdline", 1 << 16, True)),
    }
