# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metadata of a folder of RPM packages, as createrepo_c writes it: packages, their files, module streams, and what binds them."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import yaml

from lab.vendor.rpm import EPOCH, Rpm

FOLDER = "repodata"
INDEX = f"{FOLDER}/repomd.xml"
SIGNATURE = f"{INDEX}.asc"
SENSES = {2: "LT", 4: "GT", 8: "EQ", 10: "LE", 12: "GE"}
DIRECTORY = ' type="dir"'
COMMON = "http://linux.duke.edu/metadata/common"
# Files that a package's requirement may name without the whole list of files being fetched.
PRIMARY_FILES = ("/etc/", "/usr/bin/", "/usr/sbin/")


def entry(rpm: Rpm, data: bytes, header: tuple[int, int]) -> dict[str, str]:
    """Return a package's part of each list."""
    digest = hashlib.sha256(data).hexdigest()
    version = f'<version epoch="{rpm.epoch}" ver="{rpm.version}" rel="{rpm.release}"/>'
    head = f"<package pkgid={quoteattr(digest)} name={quoteattr(rpm.name)} arch={quoteattr(rpm.arch)}>{version}"
    folders = {file.path for file in rpm.files if file.data is None and file.link is None}
    names = "".join(f"<file{DIRECTORY if file.path in folders else ''}>{escape(file.path)}</file>" for file in rpm.files)
    some = "".join(f"<file>{escape(file.path)}</file>" for file in rpm.files if file.path.startswith(PRIMARY_FILES))
    relations = "".join(_relations(rpm, kind) for kind in ("provides", "requires", "conflicts", "obsoletes", "recommends"))
    size = sum(len(file.data or b"") for file in rpm.files)
    primary = (
        f'<package type="rpm"><name>{rpm.name}</name><arch>{rpm.arch}</arch>{version}<checksum type="sha256" pkgid="YES">{digest}</checksum>'
        f"<summary>{escape(rpm.summary)}</summary><description>{escape(rpm.summary)}</description><packager></packager><url></url>"
        f'<time file="{EPOCH}" build="{EPOCH}"/><size package="{len(data)}" installed="{size}" archive="{size}"/><location href="{rpm.filename}"/>'
        f"<format><rpm:license>GPL-3.0-or-later</rpm:license><rpm:vendor>{escape(rpm.vendor)}</rpm:vendor><rpm:group>Unspecified</rpm:group>"
        f"<rpm:buildhost>lab</rpm:buildhost><rpm:sourcerpm>{rpm.name}-{rpm.version}-{rpm.release}.src.rpm</rpm:sourcerpm>"
        f'<rpm:header-range start="{header[0]}" end="{header[1]}"/>{relations}{some}</format></package>'
    )
    return {"primary": primary, "filelists": f"{head}{names}</package>", "other": f"{head}</package>"}


def _relations(rpm: Rpm, kind: str) -> str:
    rows = "".join(_relation(name, sense, version) for name, sense, version in rpm.related(kind))
    return f"<rpm:{kind}>{rows}</rpm:{kind}>" if rows else ""


def _relation(name: str, sense: int, version: str) -> str:
    if not sense:
        return f"<rpm:entry name={quoteattr(name)}/>"
    epoch, _, rest = version.rpartition(":")
    number, _, release = rest.partition("-")
    end = f' rel="{release}"' if release else ""
    return f'<rpm:entry name={quoteattr(name)} flags="{SENSES[sense]}" epoch="{epoch or 0}" ver="{number}"{end}/>'


def lists(entries: list[dict[str, str]], modules: str, moment: float) -> dict[str, bytes]:
    """Return all files of the folder but the signature, by path."""
    roots = {
        "primary": f'<metadata xmlns="{COMMON}" xmlns:rpm="http://linux.duke.edu/metadata/rpm" packages="{len(entries)}">',
        "filelists": f'<filelists xmlns="http://linux.duke.edu/metadata/filelists" packages="{len(entries)}">',
        "other": f'<otherdata xmlns="http://linux.duke.edu/metadata/other" packages="{len(entries)}">',
    }
    texts = {}
    for kind, root in roots.items():
        body = "\n".join(one[kind] for one in entries)
        texts[f"{kind}.xml"] = f'<?xml version="1.0" encoding="UTF-8"?>\n{root}\n{body}\n</{root[1:].partition(" ")[0]}>\n'
    if modules:
        texts["modules.yaml"] = modules
    found, index = {}, []
    for name, text in texts.items():
        plain = text.encode()
        packed = gzip.compress(plain, 6, mtime=0)
        path = f"{FOLDER}/{name}.gz"
        found[path] = packed
        index.append(
            f'<data type="{name.partition(".")[0]}"><checksum type="sha256">{hashlib.sha256(packed).hexdigest()}</checksum>'
            f'<open-checksum type="sha256">{hashlib.sha256(plain).hexdigest()}</open-checksum><location href="{path}"/>'
            f"<timestamp>{int(moment)}</timestamp><size>{len(packed)}</size><open-size>{len(plain)}</open-size></data>"
        )
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<repomd xmlns="http://linux.duke.edu/metadata/repo"><revision>{int(moment)}</revision>\n'
    found[INDEX] = (head + "\n".join(index) + "\n</repomd>\n").encode()
    return found


def modules(name: str, streams: dict[str, list[str]], default: str | None, moment: float) -> str:
    """Return the streams of a module: what each holds, by full names of packages, and which one is enabled where nobody chose."""
    documents: list[dict[str, Any]] = []
    for stream, artifacts in sorted(streams.items()):
        data = {
            "name": name,
            "stream": stream,
            "version": int(moment),
            "context": "rhel9000",
            "arch": "x86_64",
            "summary": f"Nvidia driver for {stream} branch",
            "description": "Stand-in of the lab.",
            "license": {"module": ["MIT"]},
            "profiles": {"default": {"rpms": ["nvidia-open" if stream.endswith("open") or stream == "open-dkms" else "cuda-drivers"]}},
            "artifacts": {"rpms": sorted(artifacts)},
        }
        documents.append({"document": "modulemd", "version": 2, "data": data})
    if default:
        profiles = {stream: ["default"] for stream in sorted(streams)}
        documents.append({"document": "modulemd-defaults", "version": 1, "data": {"module": name, "stream": default, "profiles": profiles}})
    return str(yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False))
