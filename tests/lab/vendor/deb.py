# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes Debian packages without dpkg: the same table always gives the same bytes, hundreds a second."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import PurePosixPath

from lab.vendor.contents import LIBRARIES, Entry, entries
from lab.vendor.scripts import maintainer_scripts
from lab.vendor.table import RELATIONS, Package

# All members carry this time (2026-01-01); only equality matters.
EPOCH = 1767225600
MAINTAINER = "cudatools <cudatools@nvidia.com>"


def build_deb(package: Package) -> tuple[bytes, dict[str, str]]:
    """Return a package's file and its control fields (the Packages stanza but for file name, size and sums)."""
    files = entries(package)
    fields = control_fields(package, sum(len(entry.data or b"") for entry in files))
    control = {"control": "".join(f"{key}: {value}\n" for key, value in fields.items())}
    control["md5sums"] = "".join(f"{hashlib.md5(e.data).hexdigest()}  {e.path[1:]}\n" for e in files if e.data is not None and not e.conffile)
    if conffiles := [entry.path for entry in files if entry.conffile]:
        control["conffiles"] = "".join(f"{path}\n" for path in conffiles)
    if any(entry.path.startswith(LIBRARIES) for entry in files):
        control["triggers"] = "activate-noawait ldconfig\n"
    scripts = maintainer_scripts(package)
    members = [Entry(f"/{name}", text.encode(), 0o755 if name in scripts else 0o644) for name, text in {**control, **scripts}.items()]
    parts = {"debian-binary": b"2.0\n", "control.tar": tar(members), "data.tar": tar(files)}
    return b"!<arch>\n" + b"".join(_ar_member(name, data) for name, data in parts.items()), fields


def control_fields(package: Package, size: int) -> dict[str, str]:
    """Return the fields of a package's control file in their usual order."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        "Section": "non-free/utils",
        "Priority": "optional",
        "Maintainer": MAINTAINER,
        "Installed-Size": str(max(1, size // 1024)),
    }
    for key in RELATIONS:
        if package.relations.get(key):
            fields["-".join(word.capitalize() for word in key.split("_"))] = ", ".join(package.relations[key])
    fields["Description"] = f"{package.description}\n Stand-in of the lab for the vendor's package of this name."
    return fields


def tar(files: list[Entry]) -> bytes:
    """Return a tar of the files and of all folders above them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        _add_folder(archive, "./", 0o755)
        seen: set[str] = set()
        for entry in files:
            for parent in reversed(PurePosixPath(entry.path).parents[:-1]):
                if str(parent) not in seen:
                    seen.add(str(parent))
                    _add_folder(archive, f".{parent}", 0o755)
            if entry.data is None and entry.link is None:
                seen.add(entry.path)
                _add_folder(archive, f".{entry.path}", entry.mode)
                continue
            member = _member(f".{entry.path}", entry.mode)
            if entry.link is not None:
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, entry.link, 0o777
                archive.addfile(member)
            else:
                member.size = len(entry.data or b"")
                archive.addfile(member, io.BytesIO(entry.data or b""))
    return buffer.getvalue()


def _member(name: str, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime, member.uname, member.gname = mode, EPOCH, "root", "root"
    return member


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    member = _member(name, mode)
    member.type = tarfile.DIRTYPE
    archive.addfile(member)


def _ar_member(name: str, data: bytes) -> bytes:
    header = f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
    return header + data + (b"\n" if len(data) % 2 else b"")
