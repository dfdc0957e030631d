# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies in a package: files and maintainer scripts, made from its row of the table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.vendor.elf import shared_object
from lab.vendor.table import Package

PAYLOAD = Path(__file__).with_name("payload")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
LIBRARIES_EL = "/usr/lib64"
SIMULATORS = "/usr/local/lib/lab"
LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
# Module: (the function it calls, the function it offers, whether others may call that).
DEPENDENTS = {
    "nvidia-uvm": ("nvidia_register_module", "nvidia_uvm_part", False),
    "nvidia-modeset": ("nvidia_register_module", "nvidia_modeset_part", True),
    "nvidia-drm": ("nvidia_modeset_part", "nvidia_drm_part", False),
}


@dataclass(frozen=True)
class Entry:
    """A file, a link (`link` set) or a folder (`data` None and no link) of a package."""

    path: str
    data: bytes | None = None
    mode: int = 0o644
    link: str | None = None
    conffile: bool = False


def entries(package: Package) -> list[Entry]:
    """Return the files of a package."""
    made = [entry for row in package.files for entry in _entry(package, row)]
    documentation = f"/usr/share/doc/{package.name}"
    made.append(Entry(f"{documentation}/copyright", b"A stand-in with the vendor's names and none of the vendor's code. GPL-3.0-or-later.\n"))
    return sorted(made, key=lambda entry: entry.path)


def _entry(package: Package, row: dict[str, Any]) -> list[Entry]:
    if "library" in row:
        return _library(package, row)
    if "program" in row:
        name = row["program"]
        script = f'#!/bin/sh\nexec {SIMULATORS}/{name} "$@"\n'
        return [Entry(f"{row.get('folder', '/usr/bin')}/{name}", script.encode(), int(row.get("mode", "0755"), 8))]
    if "kernel_source" in row:
        return _kernel_source(package, row["kernel_source"])
    if "firmware" in row:
        folder = f"/usr/lib/firmware/nvidia/{package.release.version}"
        return [Entry(f"{folder}/{name}", f"stand-in for {name} {package.release.version}\n".encode() * 16) for name in row["firmware"]]
    return [_plain(package, row)]


def _plain(package: Package, row: dict[str, Any]) -> Entry:
    if "link" in row:
        return Entry(row["path"], link=row["link"])
    if "dir" in row:
        return Entry(row["path"], mode=int(row.get("mode", "0755"), 8))
    text = row["text"] if "text" in row else (PAYLOAD / row["source"]).read_text()
    data = _worded(text, {"USER": package.user or "root", **row.get("values", {})})
    conffile = row.get("conffile", row["path"].startswith("/etc/"))
    return Entry(row["path"], data, int(row.get("mode", "0644"), 8), conffile=conffile)


def _worded(text: str, words: dict[str, str]) -> bytes:
    """Return a payload with its @WORDS@ put in."""
    for key, value in words.items():
        text = text.replace(f"@{key}@", value)
    return text.encode()


def _library(package: Package, row: dict[str, Any]) -> list[Entry]:
    """Return a library and its links, as the vendor names them: NAME.so.RELEASE, NAME.so.SONAME, and NAME.so for those who compile."""
    name, version = row["library"], package.release.version
    real = f"{name}.{version}"
    soname = f"{name}.{row['soname']}" if "soname" in row else real
    folder = LIBRARIES_EL if package.platform.rpm else LIBRARIES
    made = [Entry(f"{folder}/{real}", shared_object(soname, f"{name} {version}"))]
    if soname != real:
        made.append(Entry(f"{folder}/{soname}", link=real))
    if row.get("development"):
        made.append(Entry(f"{folder}/{name}", link=soname))
    return made


def _kernel_source(package: Package, flavour: str) -> list[Entry]:
    """Return the sources of the kernel modules as they lie on a host for dkms."""
    version, name = package.release.version, package.dkms or "nvidia"
    sources = kernel_source(version, flavour)
    sources["dkms.conf"] = _worded((PAYLOAD / "dkms.conf").read_text(), {"VERSION": version, "NAME": name})
    return [Entry(f"/usr/src/{name}-{version}/{file}", data) for file, data in sources.items()]


def kernel_source(version: str, flavour: str) -> dict[str, bytes]:
    """Return the sources of the kernel modules: one small file each, built by the real dkms against real headers."""
    sources = {file: (PAYLOAD / file).read_text() for file in ("Makefile", "nvidia.c")}
    part = (PAYLOAD / "dependent.c").read_text()
    for module, (uses, offers, exported) in DEPENDENTS.items():
        text = part.replace("@USES@", uses).replace("@OFFERS@", offers)
        sources[f"{module}.c"] = text.replace("@EXPORT@", f"EXPORT_SYMBOL({offers});" if exported else "")
    return {file: _worded(text, {"VERSION": version, "LICENSE": LICENSES[flavour]}) for file, text in sources.items()}
