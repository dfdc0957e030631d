# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Which sources need a key that apt trusts for every source: the signatures of the lists that apt has fetched name it. No program is started."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _apt_sources, _managed

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

LISTS = "/var/lib/apt/lists"
# What apt writes otherwise in the names of its lists.
QUOTED = "\\|{}[]<>\"^~_=!@#$%&*"
SIGNATURE, ISSUER, ISSUER_FINGERPRINT = 2, 16, 33
Lists = t.Sequence[str]


def remaining(system: System, places: t.Iterable[str]) -> list[_apt_sources.Source]:
    """The sources outside of the places that bring no key, and that apt does not trust without one."""
    paths = [_apt_sources.FOLDER + "/" + name for name in system.names(_apt_sources.FOLDER) if _apt_sources.NAME.match(name)]
    found = [source for path in [_apt_sources.FILE, *paths] for source in _apt_sources.entries(path, system.read(path) or "")]
    return [source for source in found if not (source.own_key or source.trusted or _apt_sources.names(source.uri, places))]


def listed(source: _apt_sources.Source) -> str:
    """How the names of a source's lists begin."""
    where = _apt_sources.SCHEME.sub("", source.uri, 1).rstrip("/") + "/"
    if source.suite != "/":
        where += source.suite if source.suite.endswith("/") else "dists/" + source.suite + "/"
    quoted = ("%%%02x" % ord(letter) if letter in QUOTED or not " " < letter < "\x7f" else letter for letter in where)
    return "".join(quoted).replace("/", "_")


def signers(system: System, source: _apt_sources.Source, lists: Lists = ()) -> set[str] | None:
    """Fingerprints or key ids that a source's lists are signed with; None where there are no lists, or their signature cannot be read."""
    for folder in (LISTS, *lists):
        path = "%s/%s" % (folder, listed(source))
        data = system.read_bytes(path + "InRelease", _managed.MOST_BYTES)
        if data is None:
            data = system.read_bytes(path + "Release.gpg", _managed.MOST_BYTES)
        if data is not None:
            return issuers(data) or None
        if system.exists(path + "Release"):
            return set()
    return None


def issuers(data: bytes) -> set[str]:
    """Who has signed, from the signatures in a text (RFC 9580, section 5.2): key ids, and fingerprints where they are given."""
    found = set()
    try:
        for tag, body in _managed.packets(_managed.dearmor(data)):
            if tag == SIGNATURE and body[:1] == b"\x03":
                found.add(body[7:15].hex().upper())
            elif tag == SIGNATURE:
                for kind, content in subpackets(body):
                    if kind == ISSUER:
                        found.add(content.hex().upper())
                    elif kind == ISSUER_FINGERPRINT:
                        found.add(content[1:].hex().upper())
    except (_managed.Damaged, IndexError):
        return set()
    return found


def subpackets(body: bytes) -> t.Iterator[tuple[int, bytes]]:
    """Type and content of each subpacket of a signature, be it signed over or not."""
    width, at = 4 if body[:1] == b"\x06" else 2, 4
    for _part in range(2):
        end = at + width + int.from_bytes(body[at:at + width], "big")
        at += width
        while at < end:
            length, size = body[at], 1
            if length == 255:
                length, size = int.from_bytes(body[at + 1:at + 5], "big"), 5
            elif length >= 192:
                length, size = ((length - 192) << 8) + body[at + 1] + 192, 2
            at += size
            yield body[at] & 0x7F, body[at + 1:at + length]
            at += length


def signs(names: t.Collection[str], by: t.Collection[str]) -> bool:
    """Whether one of the keys C(names), fingerprints, is among the signers. An id is an end of a fingerprint: the last of v4, the first of v6."""
    return bool(set(by) & {part for name in names for part in (name, name[-16:] if len(name) == 40 else name[:16])})


def needed_by(system: System, names: t.Collection[str], places: t.Iterable[str], lists: Lists = ()) -> list[str]:
    """The remaining sources, C(address suite) each, that one of the keys signs, or that may be signed by it: of which there are no lists."""
    found = set()
    for source in remaining(system, places):
        by = signers(system, source, lists)
        if by is None or signs(names, by):
            found.add("%s %s" % (shown(source.uri), source.suite))
    return sorted(found)


def shown(uri: str) -> str:
    """An address without an account's name and password."""
    return "%s%s" % (uri[:uri.find(":") + 1] + "//" if "://" in uri else "", _apt_sources.SCHEME.sub("", uri, 1))


def unknown(system: System, places: t.Iterable[str]) -> bool:
    """Whether there is a remaining source of which it is not known who signs it."""
    return any(signers(system, source) is None for source in remaining(system, places))
