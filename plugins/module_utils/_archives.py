# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Package files kept on the host: what a transaction installs, and what it would need to go back, also when the repository has moved on.

A set of files is C({file name: sha256}). apt checks what it fetches against the repository's signature; from then on the sums tell damage.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import tempfile
import typing as t
from urllib.parse import quote

from ansible_collections.gpu.fleet.plugins.module_utils import _apt

Sums = t.Dict[str, str]
CACHE = "/var/cache/apt/archives"
# What apt-get says of a version that no repository offers.
UNKNOWN = re.compile(r"E: (Version|Unable to locate|Can't find)")
FETCH_SECONDS = 3600


def digest(path: str) -> str:
    """The sha256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as source:
        for block in iter(lambda: source.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


class Archives:
    """A folder of package files."""

    SUFFIX = ".deb"

    def __init__(self, folder: str, cache: str = CACHE) -> None:
        self.folder = folder
        self.cache = cache

    @staticmethod
    def pattern(name: str, version: str) -> str:
        """How apt names the file of a package, whatever its architecture: a colon in a version is written C(%3a)."""
        return "%s_%s_*.deb" % (glob.escape(name), glob.escape(quote(version, safe="+~.-").replace("%3A", "%3a")))

    def find(self, name: str, version: str, *folders: str) -> str | None:
        """The file of a package in one of the folders, this one by default."""
        for folder in folders or (self.folder,):
            found = sorted(glob.glob(os.path.join(glob.escape(folder), self.pattern(name, version))))
            if found:
                return found[0]
        return None

    def have(self, versions: t.Dict[str, str], source: t.Any) -> t.Tuple[Sums, t.List[str]]:
        """Bring the files of exact versions here; returns their sums, and what could not be had as C(name version)."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        wanted = {name: version for name, version in sorted(versions.items()) if not self.sound(name, version)}
        if wanted:
            self.download(wanted, source)
        sums, lacking = {}, []
        for name, version in sorted(versions.items()):
            path = self.find(name, version)
            if path is None:
                lacking.append("%s %s" % (name, version))
            else:
                sums[os.path.basename(path)] = digest(path)
        return sums, lacking

    def sound(self, name: str, version: str) -> bool:
        """Whether the file is here and can be read to its end; one that cannot is thrown away."""
        path = self.find(name, version)
        if path is None:
            return False
        if self.readable(path):
            return True
        os.unlink(path)
        return False

    @staticmethod
    def readable(path: str) -> bool:
        """Whether dpkg can read a file to its end."""
        code, _output = _apt.run(["dpkg-deb", "--fsys-tarfile", path], FETCH_SECONDS, quiet=True)
        return code == 0

    def download(self, versions: t.Dict[str, str], source: t.Any) -> None:
        """Fetch package files, all at once; where one is not to be had any more, the others one by one."""
        words = ["%s=%s" % item for item in versions.items()]
        output = self.fetch(words, source)
        # A site that is away, or serves half a file, is no better asked for one file after the other.
        if output and UNKNOWN.search(output) and len(words) > 1:
            for word in words:
                output = self.fetch([word], source)
                if output and not UNKNOWN.search(output):
                    break
        if output and not UNKNOWN.search(output):
            raise _apt.Failed("apt-get download failed: %s" % _apt.complaint(output))

    def fetch(self, words: t.List[str], apt: _apt.Apt) -> str:
        """Fetch what apt can vouch for; returns what it says when it fails. It leaves half files where it was stopped."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            code, output = apt.download(words, folder)
            if code:
                return output or "apt-get ended with %d" % code
            for name in os.listdir(folder):
                os.replace(os.path.join(folder, name), os.path.join(self.folder, name))
        return ""

    def paths(self, sums: t.Iterable[str]) -> t.List[str]:
        """The files of a set."""
        return [os.path.join(self.folder, name) for name in sorted(sums)]

    def check(self, sums: Sums) -> None:
        """See that every file of a set is here and unchanged; raises Failed."""
        for name, wanted in sorted(sums.items()):
            path = os.path.join(self.folder, name)
            if not os.path.exists(path):
                raise _apt.Failed("%s is missing" % path)
            if digest(path) != wanted:
                raise _apt.Failed("%s is damaged: its sha256 is not %s" % (path, wanted))

    def keep(self, *sets: Sums) -> None:
        """Throw away every file that is in none of the sets."""
        wanted = {name for sums in sets for name in sums}
        for name in os.listdir(self.folder) if os.path.isdir(self.folder) else ():
            if name.endswith(self.SUFFIX) and name not in wanted:
                os.unlink(os.path.join(self.folder, name))
