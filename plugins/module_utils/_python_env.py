# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Python environments read from their files; no interpreter is started."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

VERSION = later(r"^(__version__|cuda)\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", re.M)


def normal(name: str) -> str:
    """One spelling for the names of distributions."""
    return re.sub(r"[-_.]+", "-", name).lower()


def scan(system: System, prefix: str) -> dict[str, t.Any] | None:
    """C({path, python, torch, cuda, packages}) of the environment at C(prefix), or None when there is none.

    C(torch) and C(cuda) are what C(import torch) would say; a distribution without its files does not count.
    """
    if not os.access(system.path(prefix + "/bin/python"), os.X_OK):
        return None
    folders = [name for name in system.names(prefix + "/lib") if re.match(r"python3\.\d+$", name)]
    config = {}
    for line in (system.read(prefix + "/pyvenv.cfg", quiet=True) or "").splitlines():
        key, _dummy, value = line.partition("=")
        config[key.strip()] = value.strip()
    packages: dict[str, str] = {}
    torch: dict[str, str] = {}
    for folder in folders:
        site = "%s/lib/%s/site-packages" % (prefix, folder)
        for name in system.names(site):
            if name.endswith(".dist-info") and "-" in name:
                project, version = name[:-10].split("-", 1)
                packages[normal(project)] = version
        if system.exists(site + "/torch/__init__.py"):
            torch = dict(VERSION.findall(system.read(site + "/torch/version.py", quiet=True) or ""))
    # Files without their record are what a broken installation leaves: pip could neither upgrade nor remove them.
    recorded = packages.pop("torch", None) is not None
    if recorded and "__version__" in torch:
        packages["torch"] = torch["__version__"]
    return {
        "path": prefix,
        "python": config.get("version") or config.get("version_info") or (folders[-1][6:] if folders else None),
        "torch": torch.get("__version__"),
        "cuda": torch.get("cuda"),
        "packages": packages,
    }
