# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""apt-get in a private root that knows one repository more than the host: what would happen can be known before anything is set up."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import typing as t
from urllib.parse import urlsplit

from ansible_collections.gpu.fleet.plugins.module_utils import _apt_sources, _download
from ansible_collections.gpu.fleet.plugins.module_utils._apt import Apt, Failed

LISTS = _apt_sources.FOLDER
# Of Sequoia's sqv, which newer apt verifies with. https://github.com/NVIDIA/cuda-repo-management/issues/39
WEAK = re.compile(r"SHA1 is not considered secure|not bound|[Pp]olicy rejected")
Repository = t.Dict[str, t.Any]


class PrivateApt(Apt):
    """apt-get with lists and sources of its own; a context, at whose end nothing is left of them.

    A repository that has C(places) alone is one that is left out.
    """

    def __init__(self, repository: Repository | None, lock_timeout: int) -> None:
        super().__init__(lock_timeout)
        self.repository = repository
        self.root = self.lists = ""

    def __enter__(self) -> PrivateApt:
        self.root = tempfile.mkdtemp(prefix="gpu-fleet-apt-")
        try:
            self.furnish(self.root)
            if self.repository and "path" in self.repository:
                self.add(self.root, self.repository)
        except BaseException:
            shutil.rmtree(self.root)
            raise
        return self

    def __exit__(self, *_details: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def furnish(self, root: str) -> None:
        """Give the private root the host's own sources."""
        # apt fetches as an account of its own, which must be able to look in.
        os.chmod(root, 0o755)
        for folder in ("sources", "lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(root, folder))
        self.copy(_apt_sources.FILE, os.path.join(root, "sources.list"))
        for name in os.listdir(LISTS):
            if os.path.join(LISTS, name) != (self.repository or {}).get("path"):
                self.copy(os.path.join(LISTS, name), os.path.join(root, "sources", name))
        self.lists = os.path.join(root, "lists")
        settings = {
            "Dir::Etc::SourceList": os.path.join(root, "sources.list"),
            "Dir::Etc::SourceParts": os.path.join(root, "sources"),
            "Dir::State::Lists": self.lists,
            "Dir::Cache": os.path.join(root, "cache"),
        }
        for name, value in settings.items():
            self.options += ["-o", "%s=%s" % (name, value)]

    def copy(self, path: str, target: str) -> None:
        """Copy a list of the host's, without what is the repository that is to come: it will be gone from there by then."""
        if not os.path.isfile(path):
            return
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as source:
            text, _taken = _apt_sources.without(path, source.read(), (self.repository or {}).get("places") or [])
        with open(target, "w", encoding="utf-8", errors="surrogateescape", newline="") as output:
            output.write(text)

    def update(self) -> None:
        """Fetch the lists; where the host's verifier is what refuses them, say so and what to use."""
        try:
            super().update()
        except Failed as error:
            if self.repository and WEAK.search(str(error)):
                raise Failed(
                    "the verifier of this host's apt does not accept the key %s, whose own signature is made with SHA-1; use %s. It said: %s"
                    % (self.repository["fingerprint"], self.repository.get("instead") or "a repository that is signed by another key", error)
                ) from error
            raise

    def add(self, root: str, repository: Repository) -> None:
        """Add the repository that is to come."""
        key = os.path.join(root, os.path.basename(repository["key_path"]))
        if repository.get("proxy"):
            _download.through(repository["proxy"])
        try:
            data = _download.key(repository["key_url"], repository["fingerprint"], 30)
        except _download.Failed as error:
            raise Failed(str(error)) from error
        with open(key, "wb") as output:
            output.write(data)
        source = os.path.join(root, "sources", os.path.basename(repository["path"]))
        with open(source, "w", encoding="utf-8") as text:
            text.write(repository["content"].replace(repository["key_path"], key))
        if repository.get("proxy"):
            host = urlsplit(repository["key_url"]).hostname
            for scheme in ("http", "https"):
                self.options += ["-o", "Acquire::%s::Proxy::%s=%s" % (scheme, host, repository["proxy"])]
