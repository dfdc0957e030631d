# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""State of the things that the collection manages, each asked for as {kind, id} and answered under C(kind:id)."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import os
import re
import stat
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _python_env
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._software import Package
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

MOST_BYTES = 16 << 20
# Keyrings that apt trusts for every source; it reads no other names in the folder.
TRUSTED = "/etc/apt/trusted.gpg"
TRUSTED_NAME = later(r"[A-Za-z0-9_.-]+\.(?:gpg|asc)$")
PATHS = ("file", "directory", "keyring", "python_environment")
ARMOR = later(rb"-----BEGIN PGP (?:PUBLIC KEY BLOCK|SIGNATURE)-----(.*?)-----END PGP (?:PUBLIC KEY BLOCK|SIGNATURE)-----", re.S)
PUBLIC_KEY, SUBKEY = 6, 14


class Damaged(Exception):
    """A keyring that is not a whole number of OpenPGP packets."""


def packets(data: bytes) -> t.Iterator[tuple[int, bytes]]:
    """Tag and body of each OpenPGP packet (RFC 9580, section 4.2)."""
    at = 0
    while at < len(data):
        if not data[at] & 0x80 or at + 2 > len(data):
            raise Damaged
        first, length, size = data[at], data[at + 1], 1
        if first & 0x40:
            tag = first & 0x3F
            if length == 255:
                length, size = int.from_bytes(data[at + 2:at + 6], "big"), 5
            elif length >= 224:
                # Keys never come in parts.
                raise Damaged
            elif length >= 192:
                length, size = ((length - 192) << 8) + int.from_bytes(data[at + 2:at + 3], "big") + 192, 2
        else:
            tag, size = (first & 0x3C) >> 2, 1 << (first & 3)
            if size == 8:
                raise Damaged
            length = int.from_bytes(data[at + 1:at + 1 + size], "big")
        body = data[at + 1 + size:at + 1 + size + length]
        if len(body) != length:
            raise Damaged
        yield tag, body
        at += 1 + size + length


def dearmor(data: bytes) -> bytes:
    """Binary form of armored keys or signatures, whatever stands around them; binary input is returned as it is."""
    if data[:1] and data[0] & 0x80:
        return data
    found = b""
    for block in ARMOR.findall(data.replace(b"\r", b"")):
        body = block.split(b"\n\n", 1)[-1]
        lines = [line.strip() for line in body.split(b"\n") if line.strip() and not line.startswith(b"=")]
        try:
            found += base64.b64decode(b"".join(lines), validate=True)
        except (binascii.Error, ValueError):
            raise Damaged from None
    return found


def fingerprint(body: bytes) -> str | None:
    """Fingerprint of a key from the body of its packet: 40 (v4) or 64 (v6) upper-case digits; None for what is older."""
    if body[:1] == b"\x04":
        return hashlib.new("sha1", b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    return None


def keys(data: bytes) -> dict[str, list[str]]:
    """By the fingerprints of the primary keys in a keyring, armored or not, those of all keys that sign as one: it and its subkeys.

    A damaged keyring has none: half a key still has its fingerprint but verifies nothing.
    """
    found: dict[str, list[str]] = {}
    primary = None
    try:
        for tag, body in packets(dearmor(data)):
            name = fingerprint(body) if tag in (PUBLIC_KEY, SUBKEY) else None
            primary = name if tag == PUBLIC_KEY else primary
            if name and primary:
                found.setdefault(primary, []).append(name)
    except (Damaged, OverflowError):
        return {}
    return found


def fingerprints(data: bytes) -> list[str]:
    """Sorted fingerprints of the primary keys in a keyring."""
    return sorted(keys(data))


def _name(system: System, table: str, number: int) -> str:
    """Name of a local user or group; the number when it has none (no directory service is asked, it might hang)."""
    for line in (system.read(table, quiet=True) or "").splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(number):
            return fields[0]
    return str(number)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def _entry(system: System, path: str) -> dict[str, t.Any]:
    try:
        found = os.lstat(system.path(path))
    except OSError:
        return {"state": "absent"}
    return {
        "state": _kind(found.st_mode),
        "mode": "%04o" % stat.S_IMODE(found.st_mode),
        "owner": _name(system, "/etc/passwd", found.st_uid),
        "group": _name(system, "/etc/group", found.st_gid),
    }


def _content(system: System, path: str) -> bytes | None:
    data = system.read_bytes(path, MOST_BYTES)
    if data is not None and len(data) == MOST_BYTES:
        system.problem("%s is too large to be compared" % path)
        return None
    return data


def file_state(system: System, path: str) -> dict[str, t.Any]:
    state = _entry(system, path)
    if state["state"] == "file":
        data = _content(system, path)
        state["sha256"] = hashlib.sha256(data).hexdigest() if data is not None else None
    return state


def keyring_state(system: System, path: str) -> dict[str, t.Any]:
    state = _entry(system, path)
    if state["state"] == "file":
        data = _content(system, path)
        state["fingerprints"] = fingerprints(data) if data is not None else None
    return state


def user_state(system: System, name: str) -> dict[str, t.Any]:
    """A local user; those of a directory service are not ours."""
    for line in (system.read("/etc/passwd", quiet=True) or "").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[0] == name and fields[2].isdigit():
            return {"state": "present", "system": int(fields[2]) < 1000, "home": fields[5], "shell": fields[6]}
    return {"state": "absent"}


def unit_state(properties: dict[str, str] | None) -> dict[str, t.Any] | None:
    """None when systemd did not answer; a unit that does not exist is neither enabled nor active."""
    if properties is None:
        return None
    return {
        "enabled": properties.get("UnitFileState") in ("enabled", "enabled-runtime"),
        "active": properties.get("ActiveState") in ("active", "reloading"),
    }


def module_state(system: System, name: str) -> dict[str, t.Any]:
    return {"version": system.read("/sys/module/%s/version" % name.replace("-", "_"), 64)}


def environment_state(system: System, prefix: str) -> dict[str, t.Any]:
    found = _python_env.scan(system, prefix)
    if found is None:
        return {"state": "absent", "packages": {}}
    return {"state": "present", "packages": {name: version for name, version in found["packages"].items() if name == "torch"}}


def hold_state(packages: dict[str, Package], name: str) -> dict[str, t.Any]:
    """A package that is not installed is held by nobody, whatever was written down for it."""
    return {"held": name in packages and packages[name].version is not None and packages[name].held}


def source_state(system: System, place: str) -> dict[str, t.Any]:
    """Files from which apt takes sources in a place (see C(_apt_sources))."""
    from ansible_collections.gpu.fleet.plugins.module_utils import _apt_sources

    paths = [_apt_sources.FOLDER + "/" + name for name in system.names(_apt_sources.FOLDER) if _apt_sources.NAME.match(name)]
    return {"files": [path for path in [_apt_sources.FILE, *paths] if _apt_sources.holds(path, system.read(path) or "", [place])]}


@functools.lru_cache(maxsize=1)
def _trusted(system: System) -> dict[str, dict[str, list[str]]]:
    """By keyring the keys that apt trusts for every source; read once for all that are asked for."""
    paths = [TRUSTED + ".d/" + name for name in system.names(TRUSTED + ".d") if TRUSTED_NAME.match(name)]
    return {path: keys(_content(system, path) or b"") for path in [TRUSTED, *paths]}


def trusted_key_state(system: System, key: str, places: t.Iterable[str], lists: t.Sequence[str] = ()) -> dict[str, t.Any]:
    """Keyrings with a key for whose signatures apt trusts every source, and the sources elsewhere than in C(places) that need it.

    C(lists) are folders with lists of apt's beside its own. Without a source that needs it, it is C(spare) wherever it is.
    """
    found = {path: there[key] for path, there in _trusted(system).items() if key in there}
    needed: list[str] = []
    if found:
        from ansible_collections.gpu.fleet.plugins.module_utils import _apt_signers

        needed = _apt_signers.needed_by(system, {name for names in found.values() for name in names}, places, lists)
    state = "needed" if needed else "trusted" if found else "absent"
    return {"state": state, "files": list(found), "needed_by": needed, "spare": [] if needed else list(found)}


def lock_state(system: System, name: str) -> dict[str, t.Any]:
    """The lines of dnf's list that bind a package."""
    from ansible_collections.gpu.fleet.plugins.module_utils import _locks

    return _locks.lock_state(system, name)


def stream_state(system: System, name: str) -> dict[str, t.Any]:
    """The stream of a module that dnf has enabled."""
    from ansible_collections.gpu.fleet.plugins.module_utils import _streams

    return _streams.stream_state(system, name)


def states(
    system: System,
    wanted: list[dict[str, str]],
    packages: dict[str, Package] | None,
    units: dict[str, dict[str, str]] | None,
) -> dict[str, dict[str, t.Any] | None]:
    """The states of C(wanted); None for what could not be found out."""
    found: dict[str, dict[str, t.Any] | None] = {}
    places = [item["id"] for item in wanted if item["kind"] == "source"]
    for item in wanted:
        name = "%s:%s" % (item["kind"], item["id"])
        found[name] = None
        try:
            if item["kind"] in PATHS and not os.path.isabs(item["id"]):
                raise ValueError("its id is no absolute path")
            if item["kind"] == "trusted_key":
                found[name] = trusted_key_state(system, item["id"], places)
            else:
                found[name] = _state(system, item["kind"], item["id"], packages, units)
        except (OSError, ValueError) as error:
            system.problem("%r cannot be looked at: %s" % (name, error))
    return found


def _state(
    system: System, kind: str, name: str, packages: dict[str, Package] | None, units: dict[str, dict[str, str]] | None
) -> dict[str, t.Any] | None:
    """The state of one thing."""
    if kind == "package":
        return None if packages is None else {"version": packages[name].version if name in packages else None}
    if kind == "unit":
        return None if units is None else unit_state(units.get(name))
    if kind == "hold":
        return None if packages is None else hold_state(packages, name)
    return READERS[kind](system, name)


READERS: t.Dict[str, t.Callable[[System, str], t.Optional[t.Dict[str, t.Any]]]] = {
    "file": file_state,
    "directory": _entry,
    "keyring": keyring_state,
    "module": module_state,
    "user": user_state,
    "python_environment": environment_state,
    "source": source_state,
    "lock": lock_state,
    "stream": stream_state,
}
