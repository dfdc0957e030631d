# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of hosts: a bare tree of a suite, and over it a thin layer that makes a lab host of it. Kept by content, built when missing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lab import bootstrap, cache, hardware, prepare, rhel
from lab.machine import say
from lab.paths import CACHE, LabError
from lab.sources import sources

TREES = CACHE / "trees"
LAYERS = CACHE / "images"
# What of a build's folder is put in its place when the build is done.
DONE = "done"
KEPT_SECONDS = 86400.0
# A build can mount what it likes: its end, however it comes, takes mounts and processes away.
WRAPPER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")


@dataclass(frozen=True)
class Image:
    """A suite of Debian, and what makes it look like another distribution (texts by path)."""

    name: str
    suite: str
    face: dict[str, str] = field(default_factory=dict)
    # Debian's packages beside those of every tree, for a tree of its own.
    packages: str = ""

    @property
    def trunk(self) -> str:
        """Return what the tree is named after: images of a suite share it unless they have packages of their own."""
        return self.name if self.packages else self.suite

    @property
    def family(self) -> str:
        """Return the family of package managers that a host looks like: debian or rhel."""
        return "rhel" if self.packages == rhel.PACKAGES else "debian"

    def recipe(self) -> dict[str, str]:
        """Return everything that goes into the tree."""
        more = {"packages": self.packages} if self.packages else {}
        return {"suite": self.suite, "sources": sources(self.suite), "code": Path(bootstrap.__file__).read_text(), **more}

    def tree(self) -> Path:
        """Return where the tree of this content belongs."""
        return TREES / f"{self.trunk}-{digest(self.recipe())}"

    def layer(self) -> Path:
        """Return where the layer of this content belongs."""
        parts = {
            "tree": self.tree().name,
            "code": Path(prepare.__file__).read_text(),
            "hardware": hardware.content_key(),
            "face": json.dumps(self.face),
            "apt": prepare.APT,
            "pip": json.dumps(prepare.pip_settings()),
            "certificates": "".join(path.read_text(errors="replace") for path in prepare.certificates()),
        }
        if self.family == "rhel":
            parts["rhel"] = rhel.content_key()
        return LAYERS / f"{self.name}-{digest(parts)}"


UBUNTU = {
    "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION="24.04.3 LTS (Noble Numbat)"\n'
    "VERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=noble\n",
    "etc/lsb-release": 'DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\nDISTRIB_CODENAME=noble\nDISTRIB_DESCRIPTION="Ubuntu 24.04.3 LTS"\n',
}
IMAGES = {
    image.name: image
    for image in (
        Image("debian12", "bookworm"),
        Image("debian13", "trixie"),
        # Debian's userland under Ubuntu's name: a simulation of what a package manager sees, not Ubuntu.
        Image("ubuntu2404", "bookworm", UBUNTU),
        # The same under the name of a distribution with dnf: a simulation of what a package manager of the RHEL family sees.
        Image("el9", "bookworm", rhel.FACE, rhel.PACKAGES),
    )
}


def digest(parts: dict[str, str]) -> str:
    """Return a short name for a content."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def find(name: str) -> Image:
    """Return an image by name."""
    if name not in IMAGES:
        raise LabError(f"image {name!r}: choose one of {', '.join(sorted(IMAGES))}")
    return IMAGES[name]


def obtain(name: str) -> list[cache.Lease]:
    """Return leases on the folders of an image, top first; what is missing is built."""
    image = find(name)
    tree, layer = image.tree(), image.layer()
    for kind, folder in (("tree", tree), ("layer", layer)):
        with cache.locked(cache.build_lock(folder), f"waiting for another process that builds {folder.name}"):
            if not folder.is_dir():
                build(kind, image, folder)
            lease = cache.Lease(folder)
        if kind == "tree":
            below = lease
    return [lease, below]


def build(kind: str, image: Image, folder: Path) -> None:
    """Build a tree or a layer beside its place, then put it there whole; removes what it replaces."""
    say(f"building the {image.trunk} tree (1 to 3 minutes, once)" if kind == "tree" else f"preparing image {image.name}")
    work = cache.building(folder)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run([*WRAPPER, sys.executable, "-m", "lab.build", kind, image.name, str(work)], env=environment, check=False)
    if done.returncode or not (work / DONE).is_dir():
        raise LabError(f"the {kind} of image {image.name} was not built; the reason stands above")
    (work / DONE).rename(folder)
    shutil.rmtree(work, ignore_errors=True)
    remove_old(folder, f"{image.trunk}-*" if kind == "tree" else f"{image.name}-*")


def remove_old(current: Path, pattern: str) -> None:
    """Remove older states of a folder that nobody has used for long, and the saved layers that stood on them."""
    from lab.layers import remove_orphans  # noqa: PLC0415  (saved layers stand on images)

    for old in current.parent.glob(pattern):
        # Not at once: two checkouts may share the cache, and branches alternate.
        if old != current and cache.rested(old) > KEPT_SECONDS:
            cache.remove_unused(old)
    cache.remove_rests(current.parent, pattern)
    remove_orphans()
