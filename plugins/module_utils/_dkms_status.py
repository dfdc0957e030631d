# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What dkms has built for which kernel, and whether the firmware trusts the key that it signs with."""

from __future__ import annotations

import base64
import binascii
import os
import re
import struct
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

TREE = "/var/lib/dkms"
# Where builds are installed: Debian's and Ubuntu's folder, Red Hat's, and what a dkms.conf may name.
DESTINATIONS = ("updates/dkms", "extra", "updates")
# Beside the versions of a module in its folder.
NO_VERSION = later(r"kernel-|original_module$")
SETTINGS = "/etc/dkms/framework.conf"
KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
# Shim copies the keys that the machine's owner enrolled to where the kernel can read them, cut up where there are many.
ENROLLED = "MokListRT"
VARIABLES = "/sys/firmware/efi/efivars"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
X509 = b"\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
OWNER_BYTES = 16


def scan(system: System) -> list[dict[str, t.Any]]:
    """C([{module, version, kernel, architecture, state, notes}]), what C(dkms status) says, from the tree that it looks at.

    The program is a shell script that compares whole modules; it takes a fifth of a second of CPU, and seconds where modules are large.
    """
    found = []
    for module in system.names(TREE):
        folder = "%s/%s" % (TREE, module)
        for version in system.names(folder):
            if not NO_VERSION.match(version) and os.path.isdir(system.path("%s/%s" % (folder, version))):
                found += _version(system, folder, module, version)
    return found


def _version(system: System, folder: str, module: str, version: str) -> list[dict[str, t.Any]]:
    """The builds of one version, or that there are none."""
    home = "%s/%s" % (folder, version)
    known = {"module": module, "version": version}
    if not system.exists(home + "/source/dkms.conf"):
        return [{**known, "kernel": None, "architecture": None, "state": "broken", "notes": []}]
    found = []
    for kernel in system.names(home):
        for architecture in system.names("%s/%s" % (home, kernel)) if kernel not in ("source", "build") else ():
            built = "%s/%s/%s/module" % (home, kernel, architecture)
            files = [name for name in system.names(built) if ".ko" in name]
            if files:
                link = system.real("%s/kernel-%s-%s" % (folder, kernel, architecture))
                state = "installed" if link == "%s/%s/%s" % (home, kernel, architecture) else "built"
                notes = ["original_module exists"] if system.exists("%s/original_module/%s/%s" % (folder, kernel, architecture)) else []
                notes += _differing(system, built, kernel, files) if state == "installed" else []
                found.append({**known, "kernel": kernel, "architecture": architecture, "state": state, "notes": notes})
    return found or [{**known, "kernel": None, "architecture": None, "state": "added", "notes": []}]


def _differing(system: System, built: str, kernel: str, files: list[str]) -> list[str]:
    """Whether what is installed is what was built, judged by the sizes of the files."""
    notes = []
    for name in files:
        places = ["/lib/modules/%s/%s/%s" % (kernel, folder, name) for folder in DESTINATIONS]
        sizes = [system.size(place) for place in places if system.exists(place)]
        if not sizes:
            notes.append("%s is not installed" % name)
        elif system.size("%s/%s" % (built, name)) not in sizes:
            notes.append("%s is installed and is not the one that was built" % name)
    return notes


def parse_signatures(data: bytes) -> list[bytes]:
    """The certificates in an EFI variable of signature lists; what is cut off is left out."""
    found = []
    # The first four bytes are the variable's attributes.
    at = 4
    while at + 28 <= len(data):
        size, header, each = struct.unpack_from("<III", data, at + 16)
        if size < 28 or at + size > len(data):
            break
        first = at + 28 + header
        if data[at:at + 16] == X509 and each > OWNER_BYTES:
            found += [data[one + OWNER_BYTES:one + each] for one in range(first, at + size - each + 1, each)]
        at += size
    return found


def certificate(data: bytes) -> bytes:
    """A certificate's own bytes, also of one that is written as text."""
    match = re.search(rb"-----BEGIN CERTIFICATE-----(.*?)-----END", data, re.S)
    if not match:
        return data
    try:
        return base64.b64decode(match.group(1))
    except (binascii.Error, ValueError):
        return b""


def key_path(system: System) -> str | None:
    """Where the certificate is that dkms signs with, if it has one."""
    said = re.findall(r"^[ \t]*mok_certificate=[\"']?([^\"'\s#]+)", system.read(SETTINGS, 65536, True) or "", re.M)
    return next((path for path in said[-1:] + list(KEYS) if system.exists(path)), None)


def key(system: System) -> dict[str, t.Any] | None:
    """C({path, enrolled}) of the key that dkms signs with; C(enrolled) is None where the firmware has no such variables."""
    path = key_path(system)
    if path is None:
        return None
    mine = certificate(system.read_bytes(path, 1 << 16) or b"")
    names = system.names(VARIABLES)
    lists = [name for name in names if re.match(ENROLLED + r"\d*-" + SHIM + "$", name)]
    trusted = [one for name in lists for one in parse_signatures(system.read_bytes(VARIABLES + "/" + name) or b"")]
    return {"path": path, "enrolled": mine in trusted if names and mine else None}
