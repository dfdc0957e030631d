# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The node's list of what is managed and what was there before; it is on the disk before the first change that it speaks of."""

from __future__ import annotations

import base64
import json
import os
import stat
import tempfile
import typing as t

PATH = "/var/lib/gpu_fleet/managed.json"
SCHEMA = 1
State = t.Dict[str, t.Any]


class Damaged(Exception):
    """The list cannot be read as one; the message says what to do."""


def state_of(path: str) -> State:
    """What is at a path, as C(restore) takes it: C({state}), of a file with C(mode), C(uid), C(gid) and C(content) in base64."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return {"state": "absent"}
    if stat.S_ISLNK(found.st_mode):
        return {"state": "link", "target": os.readlink(path)}
    if not stat.S_ISREG(found.st_mode):
        return {"state": "other"}
    with open(path, "rb") as source:
        content = base64.b64encode(source.read()).decode("ascii")
    return {"state": "file", "mode": "%04o" % stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid, "content": content}


def content(state: State) -> bytes:
    """Content of a file's state."""
    return base64.b64decode(state["content"])


def put(path: str, data: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0) -> None:
    """Write a file in one step, so that it is there as a whole or not at all, whatever happens to the power."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, prefix=".gpu-fleet-")
    try:
        with os.fdopen(handle, "wb") as output:
            output.write(data)
            # Owner and mode before the rename: no moment with a file that is open to the wrong reader.
            os.fchmod(output.fileno(), mode)
            os.fchown(output.fileno(), uid, gid)
            output.flush()
            os.fsync(output.fileno())
        os.rename(part, path)
    except BaseException:
        os.unlink(part)
        raise
    settle(folder)


def settle(folder: str) -> None:
    """Bring a folder's names to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restore(path: str, state: State) -> None:
    """Make a path what it was."""
    if state["state"] == "file":
        put(path, content(state), int(state["mode"], 8), state["uid"], state["gid"])
        return
    if os.path.lexists(path):
        os.unlink(path)
    if state["state"] == "link":
        os.symlink(state["target"], path)


class Record:
    """C(items) are C({kind, id, role, before}); C(aside) are C({path, before, after, taken}) of files that somebody else had written."""

    def __init__(self) -> None:
        self.items: list[State] = []
        self.aside: list[State] = []

    @classmethod
    def load(cls) -> Record:
        """The list of this node; an empty one where there is none. Raises Damaged."""
        record = cls()
        try:
            with open(PATH, encoding="utf-8") as source:
                found = json.load(source)
            if found["schema"] != SCHEMA:
                raise Damaged("%s is of schema %r; this release of the collection writes schema %d" % (PATH, found["schema"], SCHEMA))
            record.items = [{name: item[name] for name in ("kind", "id", "role", "before")} for item in found["items"]]
            record.aside = [{name: entry[name] for name in ("path", "before", "after", "taken")} for entry in found["aside"]]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged("%s is no list of managed things (%s: %s); look at it, and move it away" % (PATH, type(error).__name__, error)) from error
        return record

    def knows(self, kind: str, name: str) -> bool:
        """Whether a thing is on the list."""
        return any(item["kind"] == kind and item["id"] == name for item in self.items)

    def note(self, kind: str, name: str, role: str, before: State | None) -> bool:
        """Put a thing on the list, unless it is there: what was before us is what was there the first time. Returns whether it is new."""
        if self.knows(kind, name):
            return False
        self.items.append({"kind": kind, "id": name, "role": role, "before": before})
        return True

    def save(self) -> None:
        """Write the list; it may hold the content of files that not everybody may read."""
        # Who may look in is for the plan to say, which has the folder among its things: until then nobody but root.
        os.makedirs(os.path.dirname(PATH), mode=0o700, exist_ok=True)
        text = json.dumps({"schema": SCHEMA, "items": self.items, "aside": self.aside}, indent=1, sort_keys=True) + "\n"
        put(PATH, text.encode("utf-8"), 0o600)

    def remove(self) -> None:
        """Take the list away, and its folder where nothing else is in it."""
        folder = os.path.dirname(PATH)
        os.unlink(PATH)
        settle(folder)
        if not os.listdir(folder):
            os.rmdir(folder)
