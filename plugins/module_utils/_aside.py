# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Sources and keys of one repository that somebody else set up: taken out of apt's files, kept in the record, and brought back."""

from __future__ import annotations

import base64
import hashlib
import os
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt_signers, _apt_sources, _managed, _managed_list
from ansible_collections.gpu.fleet.plugins.module_utils._system import System


class Cut(t.NamedTuple):
    """A file that is to lose something: C(left) is what stays (None: nothing, so the file goes), C(taken) is what it loses."""

    path: str
    before: _managed_list.State
    left: t.Optional[bytes]
    taken: t.List[str]


Items = t.List[t.Dict[str, t.Any]]


def places(items: Items) -> list[str]:
    """The places of the sources."""
    return [item["id"] for item in items if item["kind"] == "source"]


def _keys(items: Items) -> list[str]:
    return [item["id"] for item in items if item["kind"] == "trusted_key"]


def needed(items: Items, lists: t.Sequence[str] = ()) -> dict[str, list[str]]:
    """By the keys that stay, the sources that need them."""
    system = System("/", 60.0)
    found = {key: _managed.trusted_key_state(system, key, places(items), lists)["needed_by"] for key in _keys(items)}
    return {key: sources for key, sources in found.items() if sources}


def unsure(items: Items) -> bool:
    """Whether a key stays although the lists of a source are not here, from which would be seen who signs it."""
    return bool(needed(items)) and _apt_signers.unknown(System("/", 60.0), places(items))


def _paths(single: str, folder: str, pattern: t.Pattern[str]) -> list[str]:
    inside = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [path for path in [single] + [os.path.join(folder, name) for name in inside if pattern.match(name)] if os.path.isfile(path)]


def cuts(items: Items, staying: t.Collection[str] = ()) -> list[Cut]:
    """What has to be taken out so that each source of C(items) is only where it is to be, and no key but the C(staying) trusted for all sources."""
    found = []
    sources = {item["id"]: item["desired"].get("files", []) for item in items if item["kind"] == "source"}
    unwanted = set(_keys(items)) - set(staying)
    for path in _paths(_apt_sources.FILE, _apt_sources.FOLDER, _apt_sources.NAME):
        unwelcome = [place for place, files in sources.items() if path not in files]
        before = _managed_list.state_of(os.path.realpath(path))
        left, taken = _apt_sources.without(path, _managed_list.content(before).decode("utf-8", "surrogateescape"), unwelcome)
        if taken:
            # A list with nothing but remarks is no use to anybody.
            rest = None if _apt_sources.idle(left) else left.encode("utf-8", "surrogateescape")
            found.append(Cut(path, before, rest, taken))
    for path in _paths(_managed.TRUSTED, _managed.TRUSTED + ".d", _managed.TRUSTED_NAME):
        before = _managed_list.state_of(os.path.realpath(path))
        data = _managed_list.content(before)
        gone = [fingerprint for fingerprint in _managed.fingerprints(data) if fingerprint in unwanted]
        if gone:
            kept = keys_without(data, gone)
            found.append(Cut(path, before, kept or None, gone))
    return found


def keys_without(data: bytes, gone: list[str]) -> bytes:
    """A keyring without some of its primary keys and what belongs to them; in the form that it had."""
    kept, dropping = b"", False
    for tag, body in _managed.packets(_managed.dearmor(data)):
        packet = bytes((0xC0 | tag, 0xFF)) + len(body).to_bytes(4, "big") + body
        if tag == _managed.PUBLIC_KEY:
            dropping = bool(set(_managed.fingerprints(packet)) & set(gone))
        kept += b"" if dropping else packet
    if not kept or data[:1][0] & 0x80:
        return kept
    lines = base64.encodebytes(kept)
    return b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + lines + b"-----END PGP PUBLIC KEY BLOCK-----\n"


def take(cut: Cut) -> None:
    """Make a file lose what it is to lose. A link stays one."""
    if cut.left is None:
        os.unlink(cut.path)
    else:
        state = cut.before
        _managed_list.put(os.path.realpath(cut.path), cut.left, int(state["mode"], 8), state["uid"], state["gid"])


def entry(cut: Cut) -> _managed_list.State:
    """What the record keeps of a cut."""
    after = None if cut.left is None else hashlib.sha256(cut.left).hexdigest()
    return {"path": cut.path, "before": cut.before, "after": after, "taken": cut.taken}


def returned(kept: _managed_list.State) -> bytes | None:
    """What a file of the record is to hold again; None when it has to stay as it is.

    A file that nobody has touched since becomes what it was. One that somebody has, gets its sources back and keeps the rest; a keyring
    that somebody has changed is the one case where nothing can be put in between.
    """
    path, before = kept["path"], _managed_list.content(kept["before"])
    if not os.path.exists(path):
        return before
    with open(path, "rb") as source:
        now = source.read()
    if now == before or hashlib.sha256(now).hexdigest() == kept["after"]:
        return before
    if not path.startswith(_apt_sources.FILE):
        return None
    missing = [piece for piece in kept["taken"] if piece.strip() not in now.decode("utf-8", "surrogateescape")]
    gap = "\n" if path.endswith(".sources") else ""
    more = "".join(gap + piece.rstrip("\n") + "\n" for piece in missing).encode("utf-8", "surrogateescape")
    return now + (b"" if now.endswith(b"\n") or not now else b"\n") + more
