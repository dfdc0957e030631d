# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saved states of hosts: what a host wrote over an image, for other hosts to start from."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from lab import cache, images
from lab.machine import call
from lab.paths import CACHE, LabError

SAVED = CACHE / "layers"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
UPPER = "upper"
ABOUT = "layer.json"
# Belongs to the host that was saved, and to no other that starts from it.
PERSONAL = ("var/log/journal", "root/.ansible")


def place(layer: str, base: str) -> Path:
    """Return where a layer over an image (by the name of its folder, which tells its content) belongs."""
    if not NAME.fullmatch(layer):
        raise LabError(f"layer name {layer!r}: use letters, digits, '-', '_' and '.'")
    return SAVED / f"{layer}@{base}"


def exists(layer: str, image: str) -> bool:
    """Tell whether a layer was saved over the image as it is now."""
    return (place(layer, images.find(image).layer().name) / ABOUT).is_file()


def obtain(names: tuple[str, ...], image: str) -> list[cache.Lease]:
    """Return leases on saved layers, top first."""
    base = images.find(image).layer().name
    leases: list[cache.Lease] = []
    below: list[str] = []
    for name in names:
        folder = place(name, base)
        if not (folder / ABOUT).is_file():
            others = sorted(path.name for path in SAVED.glob(f"{name}@{image}-*"))
            why = f"it was saved over another state of image {image} and has to be made anew" if others else "there is none of that name"
            raise LabError(f"no saved layer {name!r} for image {image} ({why}); make it with: lab save HOST {name}")
        leases.insert(0, cache.Lease(folder))
        about = json.loads((folder / ABOUT).read_text())
        if about["below"] != below:
            raise LabError(f"layer {name!r} was saved over {about['below'] or 'the bare image'}, not over {below or 'the bare image'}")
        below.append(name)
    return leases


def free_place(name: str, image_folder: str) -> Path:
    """Return where a layer can be saved; refuses what hosts stand on."""
    target = place(name, image_folder)
    if cache.in_use(target):
        raise LabError(f"layer {name!r} is in use by hosts; take them down, or save under another name")
    return target


def keep(upper: Path, name: str, image_folder: str, about: dict[str, Any]) -> Path:
    """Make a layer of what a halted host wrote; `upper` is moved away. Returns the layer's folder."""
    target = free_place(name, image_folder)
    part = cache.building(target)
    with cache.locked(cache.build_lock(target)):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        if not cache.remove_unused(target):
            part.rmdir()
            raise LabError(f"layer {name!r} is in use by hosts; take them down, or save under another name")
        upper.rename(part / UPPER)
        for path in PERSONAL:
            shutil.rmtree(part / UPPER / path, ignore_errors=True)
        # A layer outlives the machine's next crash, so it has to be on the disk before it counts.
        call("sync", "--file-system", part)
        (part / ABOUT).write_text(json.dumps(about, indent=1))
        part.rename(target)
    return target


def lower(lease: cache.Lease) -> Path:
    """Return the folder to mount of a leased layer or image."""
    return lease.folder / UPPER if lease.folder.parent == SAVED else lease.folder


def lease_of(path: Path) -> cache.Lease:
    """Return a lease on what `lower` named."""
    return cache.Lease(path.parent if path.parent.parent == SAVED else path)


def remove_orphans() -> None:
    """Remove the layers whose image is gone and that no host uses."""
    for folder in SAVED.glob("*@*"):
        if not folder.name.startswith(".") and not (images.LAYERS / folder.name.partition("@")[2]).is_dir():
            cache.remove_unused(folder)
    cache.remove_rests(SAVED, "*@*")
