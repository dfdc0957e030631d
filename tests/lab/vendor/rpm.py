# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes RPM packages without rpmbuild: the same description always gives the same bytes, hundreds a second."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from lab.vendor.contents import Entry

# Everything carries this time (2026-01-01); only equality matters.
EPOCH = 1767225600
MAGIC = b"\x8e\xad\xe8\x01\0\0\0\0"
INT16, INT32, STRING, BINARY, STRINGS, LOCALIZED = 3, 4, 6, 7, 8, 9
WIDTHS = {INT16: 2, INT32: 4}
SIGNATURE_REGION, HEADER_REGION = 62, 63
SHA256 = 8
SENSES = {"<<": 2, ">>": 4, "=": 8, "<=": 10, ">=": 12}
CONFIG_NOREPLACE = (1 << 0) | (1 << 4)
GHOST = 1 << 6
# What rpm itself has to know to read such a package.
FEATURES = (("rpmlib(CompressedFileNames)", "3.0.4-1"), ("rpmlib(FileDigests)", "4.6.0-1"), ("rpmlib(PayloadFilesHavePrefix)", "4.0-1"))
RPMLIB = 1 << 24
# Kind of relation -> its tags for name, flags and version.
RELATION_TAGS = {
    "provides": (1047, 1112, 1113),
    "requires": (1049, 1048, 1050),
    "conflicts": (1054, 1053, 1055),
    "obsoletes": (1090, 1114, 1115),
    "recommends": (5046, 5048, 5047),
}
SCRIPT_TAGS = {"pre": (1023, 1085), "post": (1024, 1086), "preun": (1025, 1087), "postun": (1026, 1088)}
RELATION = re.compile(r"(?P<name>\S+)(?: \((?P<operator><<|<=|=|>=|>>) (?P<version>[^)]+)\))?$")
Sign = Callable[[bytes], bytes]
Value = tuple[int, object]


@dataclass(frozen=True)
class Rpm:
    """A package; relations are written "name (>= epoch:version-release)"."""

    name: str
    evr: str
    arch: str
    summary: str
    files: list[Entry] = field(default_factory=list)
    relations: dict[str, list[str]] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    vendor: str = ""
    ghosts: frozenset[str] = frozenset()

    @property
    def epoch(self) -> str:
        """Return the epoch, which is 0 where none is set."""
        return self.evr.rpartition(":")[0] or "0"

    @property
    def version(self) -> str:
        """Return the version alone."""
        return self.evr.rpartition(":")[2].rpartition("-")[0]

    @property
    def release(self) -> str:
        """Return the release alone."""
        return self.evr.rpartition("-")[2]

    @property
    def filename(self) -> str:
        """Return the name of the package's file, which has no epoch."""
        return f"{self.name}-{self.version}-{self.release}.{self.arch}.rpm"

    @property
    def nevra(self) -> str:
        """Return the package's full name as modules list it."""
        return f"{self.name}-{self.epoch}:{self.version}-{self.release}.{self.arch}"

    def related(self, kind: str) -> list[tuple[str, int, str]]:
        """Return (name, sense, version) of each relation of a kind; a package always provides itself."""
        found = []
        for text in self.relations.get(kind, []):
            match = RELATION.match(text)
            if not match:
                raise ValueError(f"{self.name}: {kind} {text!r} is no relation")
            found.append((match["name"], SENSES.get(match["operator"] or "", 0), match["version"] or ""))
        if kind == "provides":
            isa = [] if self.arch == "noarch" else [f"{self.name}(x86-64)"]
            found += [(name, SENSES["="], self.evr) for name in [self.name, *isa]]
            found += [(f"{PurePosixPath(entry.path).name}()(64bit)", 0, "") for entry in self.files if soname(entry)]
        return list(dict.fromkeys(found))


def soname(entry: Entry) -> bool:
    """Tell whether an entry is a library under the name that programs load it by."""
    return re.search(r"/lib64/lib[^/]+\.so\.\d+$", entry.path) is not None


def build_rpm(rpm: Rpm, sign: Sign | None = None) -> tuple[bytes, tuple[int, int]]:
    """Return a package's file, and where in it the header begins and ends; `sign` makes a binary OpenPGP signature."""
    archive = cpio(rpm)
    payload = gzip.compress(archive, 1, mtime=0)
    header = store(HEADER_REGION, header_of(rpm, payload, sum(len(entry.data or b"") for entry in rpm.files)))
    signature: dict[int, Value] = {
        269: (STRING, hashlib.sha1(header).hexdigest()),
        273: (STRING, hashlib.sha256(header).hexdigest()),
        1000: (INT32, [len(header) + len(payload)]),
        1004: (BINARY, hashlib.md5(header + payload).digest()),
        1007: (INT32, [len(archive)]),
    }
    if sign:
        signature[268] = (BINARY, sign(header))
    front = lead(rpm) + padded(store(SIGNATURE_REGION, signature), 8)
    return front + header + payload, (len(front), len(front) + len(header))


def lead(rpm: Rpm) -> bytes:
    """Return the 96 bytes that every package begins with and nobody reads."""
    title = f"{rpm.name}-{rpm.version}-{rpm.release}".encode()[:65]
    return struct.pack(">4sBBHH66sHH16x", b"\xed\xab\xee\xdb", 3, 0, 0, 1, title, 1, 5)


def padded(data: bytes, width: int) -> bytes:
    """Return data with zeros up to a multiple of a width."""
    return data + bytes(-len(data) % width)


def store(region: int, values: dict[int, Value]) -> bytes:
    """Return a header: an index of tags and the data that they point to, closed by a region that says how far it reaches."""
    index, data = [], b""
    for tag in sorted(values):
        kind, value = values[tag]
        encoded, count = encode(kind, value)
        data = padded(data, WIDTHS.get(kind, 1))
        index.append(struct.pack(">4I", tag, kind, len(data), count))
        data += encoded
    total = len(index) + 1
    first = struct.pack(">4I", region, BINARY, len(data), 16)
    data += struct.pack(">IIiI", region, BINARY, -16 * total, 16)
    return MAGIC + struct.pack(">2I", total, len(data)) + first + b"".join(index) + data


def encode(kind: int, value: object) -> tuple[bytes, int]:
    """Return the bytes of a value and how many of its kind it counts."""
    if kind == BINARY:
        assert isinstance(value, bytes)
        return value, len(value)
    if kind in (STRING, LOCALIZED):
        return str(value).encode() + b"\0", 1
    assert isinstance(value, list)
    if kind == STRINGS:
        return b"".join(str(item).encode() + b"\0" for item in value), len(value)
    return b"".join(struct.pack(">H" if kind == INT16 else ">I", item) for item in value), len(value)


def header_of(rpm: Rpm, payload: bytes, size: int) -> dict[int, Value]:
    """Return the tags of a package."""
    tags: dict[int, Value] = {
        100: (STRINGS, ["C"]),
        1000: (STRING, rpm.name),
        1001: (STRING, rpm.version),
        1002: (STRING, rpm.release),
        1004: (LOCALIZED, rpm.summary),
        1005: (LOCALIZED, f"{rpm.summary}\nStand-in of the lab for the package of this name."),
        1006: (INT32, [EPOCH]),
        1007: (STRING, "lab"),
        1009: (INT32, [size]),
        1014: (STRING, "GPL-3.0-or-later"),
        1016: (LOCALIZED, "Unspecified"),
        1021: (STRING, "linux"),
        1022: (STRING, rpm.arch),
        1044: (STRING, f"{rpm.name}-{rpm.version}-{rpm.release}.src.rpm"),
        1064: (STRING, "4.16.1.3"),
        1124: (STRING, "cpio"),
        1125: (STRING, "gzip"),
        1126: (STRING, "1"),
        5062: (STRING, "utf-8"),
        5092: (STRINGS, [hashlib.sha256(payload).hexdigest()]),
        5093: (INT32, [SHA256]),
    }
    if rpm.vendor:
        tags[1011] = (STRING, rpm.vendor)
    if ":" in rpm.evr:
        tags[1003] = (INT32, [int(rpm.epoch)])
    for kind, (names, flags, versions) in RELATION_TAGS.items():
        found = rpm.related(kind)
        if kind == "requires":
            found += [(name, RPMLIB | SENSES["<="], version) for name, version in FEATURES]
        if found:
            tags[names] = (STRINGS, [name for name, _, _ in found])
            tags[flags] = (INT32, [sense for _, sense, _ in found])
            tags[versions] = (STRINGS, [version for _, _, version in found])
    for name, text in rpm.scripts.items():
        script, program = SCRIPT_TAGS[name]
        tags[script], tags[program] = (STRING, text), (STRING, "/bin/sh")
    if rpm.files:
        tags |= file_tags(rpm)
    return tags


def kind_and_mode(entry: Entry) -> int:
    """Return an entry's mode with the bits that say what it is."""
    if entry.link is not None:
        return 0o120777
    return (0o100000 if entry.data is not None else 0o040000) | entry.mode


def content(entry: Entry) -> bytes:
    """Return what the archive holds of an entry."""
    return entry.link.encode() if entry.link is not None else entry.data or b""


def file_tags(rpm: Rpm) -> dict[int, Value]:
    """Return the tags that describe a package's files."""
    files = rpm.files
    folders = sorted({f"{PurePosixPath(entry.path).parent}/" for entry in files})
    count = len(files)
    flags = [GHOST if entry.path in rpm.ghosts else CONFIG_NOREPLACE if entry.conffile else 0 for entry in files]
    return {
        1028: (INT32, [4096 if entry.data is None and entry.link is None else len(content(entry)) for entry in files]),
        1030: (INT16, [kind_and_mode(entry) for entry in files]),
        1033: (INT16, [0] * count),
        1034: (INT32, [EPOCH] * count),
        1035: (STRINGS, [hashlib.sha256(entry.data).hexdigest() if entry.data is not None else "" for entry in files]),
        1036: (STRINGS, [entry.link or "" for entry in files]),
        1037: (INT32, flags),
        1039: (STRINGS, ["root"] * count),
        1040: (STRINGS, ["root"] * count),
        1045: (INT32, [0xFFFFFFFF] * count),
        1095: (INT32, [1] * count),
        1096: (INT32, list(range(1, count + 1))),
        1097: (STRINGS, [""] * count),
        1116: (INT32, [folders.index(f"{PurePosixPath(entry.path).parent}/") for entry in files]),
        1117: (STRINGS, [PurePosixPath(entry.path).name for entry in files]),
        1118: (STRINGS, folders),
        5011: (INT32, [SHA256]),
    }


def cpio(rpm: Rpm) -> bytes:
    """Return the archive of a package's files."""
    made = b""
    for number, entry in enumerate(rpm.files, 1):
        if entry.path not in rpm.ghosts:
            made += member(f".{entry.path}", number, kind_and_mode(entry), content(entry))
    return made + member("TRAILER!!!", 0, 0, b"")


def member(name: str, inode: int, mode: int, data: bytes) -> bytes:
    """Return a file of an archive in cpio's format newc."""
    links = 1 if mode else 0
    fields = (inode, mode, 0, 0, links, EPOCH if mode else 0, len(data), 0, 1, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08x" % value for value in fields)
    return padded(head + name.encode() + b"\0", 4) + padded(data, 4)
