# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Who put the driver, the RDMA stack and the fabric manager on a host."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _driver, _software
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# What images leave behind that came with a driver in them: DGX OS, Azure's images for high-performance computing.
IMAGES = ("/etc/dgx-release", "/opt/azurehpc/component_versions.txt")
DOCA = later(r"doca-(?:ofed|all|networking|roce|kernel)\b")
OFED = later(r"(?:mlnx-ofed|mlnx-ofa_kernel|mlnx-ofed-kernel|kmod-mlnx-ofa_kernel|ofed-scripts)")
INBOX = later(r"(?:rdma-core|libibverbs1?|ibverbs-providers)$")

Packages = t.Dict[str, _software.Package]


def driver(system: System, packages: Packages | None, library: str | None, modules: bool) -> str | None:
    """C(absent), C(nvidia), C(distro), C(runfile), C(image), or C(gpu-operator); None when packages are unknown."""
    if system.exists("/run/nvidia/driver/usr"):
        return "gpu-operator"
    if packages is None:
        return None
    maker = _software.origin({name: package for name, package in packages.items() if package.version})
    if maker is None and library is None and not modules:
        return "absent"
    if any(system.exists(path) for path in IMAGES):
        return "image"
    return maker or "runfile"


def rdma(system: System, packages: Packages | None) -> str | None:
    """C(doca), C(mlnx_ofed), C(inbox), or C(absent); None when packages are unknown."""
    if packages is None:
        return None
    names = [name for name, package in packages.items() if package.version]
    # DOCA's stack is made of the older one's packages.
    for owner, known in (("doca", DOCA), ("mlnx_ofed", OFED)):
        if any(known.match(name) for name in names):
            return owner
    kernel = system.exists("/sys/module/mlx5_core") or system.exists("/sys/class/infiniband")
    return "inbox" if kernel or any(INBOX.match(name) for name in names) else "absent"


def fabric_manager(system: System, packages: Packages | None) -> str | None:
    """C(nvidia), C(distro), C(runfile), or C(absent); None when packages are unknown."""
    if packages is None:
        return None
    mine = {name: package for name, package in packages.items() if package.version and _driver.FABRIC_PACKAGE.match(name)}
    if mine:
        return _software.origin(mine)
    return "runfile" if system.exists("/usr/bin/nv-fabricmanager") else "absent"
