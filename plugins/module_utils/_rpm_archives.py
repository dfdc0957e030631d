# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Files of rpm kept on the host: what a transaction installs, and what it would need to go back."""

from __future__ import annotations

import glob
import os
import tempfile
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt
from ansible_collections.gpu.fleet.plugins.module_utils._archives import FETCH_SECONDS, Archives


class RpmArchives(Archives):
    """A folder of package files. dnf checks what it fetches against the repository's key; from then on the sums tell damage."""

    SUFFIX = ".rpm"

    @staticmethod
    def pattern(name: str, version: str) -> str:
        """How the file of a package is named, whatever its architecture: without the epoch; a name may hold the version, or an architecture."""
        plain = name[:-len(version) - 1] if name.endswith("-" + version) else name
        release = version.rpartition(":")[2]
        for arch in ("i686",):
            if plain.endswith("." + arch):
                return "%s-%s.%s.rpm" % (glob.escape(plain[:-len(arch) - 1]), glob.escape(release), arch)
        return "%s-%s.*.rpm" % (glob.escape(plain), glob.escape(release))

    @staticmethod
    def readable(path: str) -> bool:
        """Whether rpm can read a file to its end and its own sums are right."""
        code, _output = _apt.run(["rpmkeys", "--checksig", "--nosignature", path], FETCH_SECONDS)
        return code == 0

    def download(self, versions: t.Dict[str, str], source: t.Any) -> None:
        """Fetch package files, all at once; what no repository has any more is left out."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            source.collect(versions, folder)
            for name in os.listdir(folder):
                os.replace(os.path.join(folder, name), os.path.join(self.folder, name))
