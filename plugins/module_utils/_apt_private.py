# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""apt-get in a private root that knows one repository more than the host: what would happen can be known before anything is set up."""

from __future__ import annotations

import os
import shutil
import tempfile

from ansible_collections.gpu.fleet.plugins.module_utils import _download
from ansible_collections.gpu.fleet.plugins.module_utils._apt import Apt, Failed

LISTS = "/etc/apt/sources.list.d"


class PrivateApt(Apt):
    """apt-get with lists and sources of its own; a context, at whose end nothing is left of them."""

    def __init__(self, repository: dict[str, str] | None, lock_timeout: int) -> None:
        super().__init__(lock_timeout)
        self.repository = repository
        self.root = ""

    def __enter__(self) -> PrivateApt:
        self.root = tempfile.mkdtemp(prefix="gpu-fleet-apt-")
        try:
            self.furnish(self.root)
            if self.repository:
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
        for name in os.listdir(LISTS):
            if self.repository is None or os.path.join(LISTS, name) != self.repository["path"]:
                shutil.copy(os.path.join(LISTS, name), os.path.join(root, "sources"))
        settings = {
            "Dir::Etc::SourceParts": os.path.join(root, "sources"),
            "Dir::State::Lists": os.path.join(root, "lists"),
            "Dir::Cache": os.path.join(root, "cache"),
        }
        for name, value in settings.items():
            self.options += ["-o", "%s=%s" % (name, value)]

    @staticmethod
    def add(root: str, repository: dict[str, str]) -> None:
        """Add the repository that is to come."""
        key = os.path.join(root, os.path.basename(repository["key_path"]))
        try:
            data = _download.key(repository["key_url"], repository["fingerprint"], 30)
        except _download.Failed as error:
            raise Failed(str(error)) from error
        with open(key, "wb") as output:
            output.write(data)
        source = os.path.join(root, "sources", os.path.basename(repository["path"]))
        with open(source, "w", encoding="utf-8") as text:
            text.write(repository["content"].replace(repository["key_path"], key))
