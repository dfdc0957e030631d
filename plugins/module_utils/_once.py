# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Compile each of our files once, because a module arrives as an archive of sources without byte code.

C(zipimport) compiles a file when it is looked for, only to know its name, throws that away, and compiles it again when it is loaded. On a host
that is half of what loading costs.
"""

from __future__ import annotations

import importlib.machinery
import sys
import typing as t
import zipimport

PACKAGE = __name__.rpartition(".")[0] + "."


class Once:
    """Finds the modules beside this one without a look at them; one that is not there fails when it is loaded."""

    def __init__(self, loader: zipimport.zipimporter) -> None:
        self.loader = loader

    def find_spec(self, fullname: str, *_where: t.Any) -> importlib.machinery.ModuleSpec | None:
        """What loads C(fullname), if it is one of ours."""
        if not fullname.startswith(PACKAGE):
            return None
        return importlib.machinery.ModuleSpec(fullname, t.cast(t.Any, self.loader))


def compile_once() -> None:
    """From here on load our files so; where they come from a folder there is nothing to do."""
    loader = globals().get("__loader__")
    if isinstance(loader, zipimport.zipimporter):
        sys.meta_path.insert(0, Once(loader))
