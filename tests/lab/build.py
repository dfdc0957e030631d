# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a build that mounts: runs in namespaces of its own. Usage: python -m lab.build tree|layer IMAGE FOLDER."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from lab import images
from lab.bootstrap import bootstrap
from lab.machine import call
from lab.paths import LabError
from lab.prepare import prepare
from lab.sources import sources


def build_tree(image: images.Image, work: Path) -> None:
    """Build the bare tree of an image."""
    bootstrap(image.suite, sources(image.suite), work / images.DONE, image.packages)


def build_layer(image: images.Image, work: Path) -> None:
    """Build the layer over the tree of an image."""
    for folder in (images.DONE, "work", "root"):
        (work / folder).mkdir()
    options = f"lowerdir={image.tree()},upperdir={work / images.DONE},workdir={work}/work"
    call("mount", "-t", "overlay", "gpu-fleet-image", "-o", options, work / "root")
    prepare(work / "root", image.face, image.family)
    call("umount", work / "root")


def main(kind: str, name: str, folder: str) -> int:
    """Build; what an interrupted build left is removed first."""
    work = Path(folder)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        {"tree": build_tree, "layer": build_layer}[kind](images.find(name), work)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
