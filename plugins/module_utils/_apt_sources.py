# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""apt's sources in both of their forms: which of them name a place, and a file's text without those that do.

A place is the beginning of an address without its scheme and account: C(developer.download.nvidia.com/compute/cuda/repos/).
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

FILE = "/etc/apt/sources.list"
FOLDER = FILE + ".d"
# apt reads no other names.
NAME = later(r"[A-Za-z0-9_.-]+\.(?:list|sources)$")
ONE_LINE = later(r"[ \t]*(?:deb|deb-src)[ \t]+(?:\[([^\]]*)\][ \t]*)?(\S+)(?:[ \t]+(\S+))?")
SCHEME = later(r"[A-Za-z+]+:(?://)?(?:[^/@]*@)?")
FIELD = later(r"([A-Za-z0-9-]+)[ \t]*:[ \t]*(.*)$")
NO = ("no", "false", "without", "off", "disable")
YES = ("yes", "true", "with", "on", "enable")

Places = t.Iterable[str]


class Source(t.NamedTuple):
    """One address of an entry, and how apt checks what it serves: by keyrings of the entry's own, or not at all where it is C(trusted)."""

    uri: str
    suite: str
    own_key: bool
    trusted: bool


def place(uri: str) -> str:
    """An address without scheme, account and default port; the host's name in lower case."""
    rest = SCHEME.sub("", uri, 1)
    host, slash, path = rest.partition("/")
    return re.sub(r":(?:80|443)$", "", host.lower()) + slash + re.sub(r"/{2,}", "/", path)


def names(uri: str, places: Places) -> bool:
    """Whether an address lies in one of the places."""
    return any((place(uri).rstrip("/") + "/").startswith(one) for one in places)


def _fields(stanza: str) -> dict[str, str]:
    """Fields of a stanza by their names in lower case; what is continued over lines is one text."""
    found: dict[str, str] = {}
    last = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        match = FIELD.match(line)
        if line[:1] in (" ", "\t") and last:
            found[last] += " " + line.strip()
        elif match:
            last = match.group(1).lower()
            found[last] = match.group(2).strip()
    return found


def _stanzas(text: str) -> list[str]:
    """The stanzas of a text, each with its line ends and the blank lines after it; put together they are the text."""
    found: list[str] = []
    blank = True
    for line in text.splitlines(True):
        if blank and line.strip():
            found.append("")
        blank = not line.strip()
        found[-1:] = [(found[-1] if found else "") + line]
    return found


def _parts(path: str, text: str) -> list[tuple[str, list[str]]]:
    """The pieces of a file, each with the addresses that apt takes from it; put together they are the file."""
    if not path.endswith(".sources"):
        lines = text.splitlines(True)
        matches = [ONE_LINE.match(line) for line in lines]
        return [(line, [match.group(2)] if match else []) for line, match in zip(lines, matches)]
    found = []
    for stanza in _stanzas(text):
        fields = _fields(stanza)
        off = fields.get("enabled", "yes").lower() in NO
        found.append((stanza, [] if off else fields.get("uris", "").split()))
    return found


def _keyed(signed_by: str) -> bool:
    """Whether an entry brings its keys: a fingerprint alone only picks one of those that are trusted for everything."""
    return "/" in signed_by or "BEGIN PGP" in signed_by


def entries(path: str, text: str) -> list[Source]:
    """The sources that apt takes from a file."""
    found = []
    if path.endswith(".sources"):
        for fields in map(_fields, _stanzas(text)):
            if fields.get("enabled", "yes").lower() not in NO:
                own, trusted = _keyed(fields.get("signed-by", "")), fields.get("trusted", "").lower() in YES
                found += [Source(uri, suite, own, trusted) for uri in fields.get("uris", "").split() for suite in fields.get("suites", "").split()]
        return found
    for match in filter(None, map(ONE_LINE.match, text.splitlines())):
        options = dict(word.lower().partition("=")[::2] for word in (match.group(1) or "").split())
        own, trusted = _keyed(options.get("signed-by", "")), options.get("trusted", "") in YES
        found.append(Source(match.group(2), match.group(3) or "", own, trusted))
    return found


def holds(path: str, text: str, places: Places) -> bool:
    """Whether a file has a source in one of the places."""
    return any(names(uri, places) for _piece, uris in _parts(path, text) for uri in uris)


def without(path: str, text: str, places: Places) -> tuple[str, list[str]]:
    """A file's text without the sources in the places, and the pieces that were taken out.

    A stanza with several addresses keeps those that are elsewhere.
    """
    left, taken = "", []
    for piece, uris in _parts(path, text):
        here = [uri for uri in uris if names(uri, places)]
        if not here:
            left += piece
            continue
        taken.append(piece)
        if len(here) < len(uris):
            left += re.sub(r"(?<=[\s:])(?:%s)(?=\s|$)" % "|".join(map(re.escape, here)), "", piece)
    return left, taken


def idle(text: str) -> bool:
    """Whether apt takes no source from a file: it is empty, or there are only remarks."""
    return not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
