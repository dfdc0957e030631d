# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files to show: a mapping of paths to what is there, and its application to a real folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from . import state


@dataclass(frozen=True)
class Link:
    """A symbolic link, by its target's path from the same root (or relative when it starts with a dot)."""

    target: str


class Folder:
    """A folder that is there even when nothing is in it."""


# What a path holds: text (a line's end is added), bytes, a link or a folder.
Content = str | bytes | Link | Folder
# Path below /sys (no leading slash) -> what is there.
Tree = dict[str, Content]
REMEMBERED = f"{state.FOLDER}/paths.json"


def link_text(path: str, link: Link) -> str:
    """Return a link's relative text."""
    if link.target.startswith("."):
        return link.target
    return os.path.relpath("/" + link.target, os.path.dirname("/" + path))


def put(root: str, path: str, content: Content) -> None:
    """Make one path of a tree true, changing nothing that is right already."""
    target = f"{root}/{path}"
    if isinstance(content, Folder):
        os.makedirs(target, exist_ok=True)
        return
    if isinstance(content, Link):
        text = link_text(path, content)
        if os.path.islink(target):
            if os.readlink(target) == text:
                return
            os.unlink(target)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(text, target)
        return
    data = content if isinstance(content, bytes) else (content + "\n").encode()
    try:
        with open(target, "rb") as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(data)


def write(root: str, tree: Tree) -> None:
    """Write a whole tree into an empty place."""
    made = set()
    for path, content in tree.items():
        folder = os.path.dirname(path)
        if folder not in made:
            os.makedirs(f"{root}/{folder}", exist_ok=True)
            made.add(folder)
        if isinstance(content, Folder):
            os.makedirs(f"{root}/{path}", exist_ok=True)
        elif isinstance(content, Link):
            os.symlink(link_text(path, content), f"{root}/{path}")
        else:
            with open(f"{root}/{path}", "wb") as file:
                file.write(content if isinstance(content, bytes) else (content + "\n").encode())
    remember(tree)


def remember(tree: Tree) -> None:
    """Note which paths are ours, so that a later tree can take back what it lacks."""
    state.write(REMEMBERED, json.dumps(list(tree)))


def update(root: str, tree: Tree) -> None:
    """Turn what an earlier tree wrote into this one."""
    with open(REMEMBERED) as file:
        before: list[str] = json.load(file)
    for path in sorted(set(before) - set(tree), reverse=True):
        target = f"{root}/{path}"
        try:
            os.rmdir(target) if os.path.isdir(target) and not os.path.islink(target) else os.unlink(target)
            os.removedirs(os.path.dirname(target))
        except OSError:
            # Already gone, or the folder holds something else.
            continue
    # Last, since emptied folders went with what was in them.
    for path, content in tree.items():
        put(root, path, content)
    remember(tree)
