# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What dkms has built for which kernel, and whether the firmware trusts the key that it signs with."""

from __future__ import annotations

import base64
import binascii
import re
import struct
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# 3.x says "nvidia/580.1, 6.1.0-40, x86_64: installed (note)", 2.x has a comma and a blank for the slash.
LINE = re.compile(r"([^/,:\s]+)(?:/|,\s*)([^,:\s]+)(?:,\s*([^,:\s]+),\s*([^,:\s]+))?:\s*([a-z][\w-]*)\s*(.*)$")
NOTE = re.compile(r"\(([^()]*)\)")
SETTINGS = "/etc/dkms/framework.conf"
KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
# Shim copies the keys that the machine's owner enrolled to where the kernel can read them, cut up where there are many.
ENROLLED = "MokListRT"
VARIABLES = "/sys/firmware/efi/efivars"
SHIM = "605dab50-e046-4300-abb6-3dd810dd8b23"
X509 = b"\xa1\x59\xc0\xa5\xe4\x94\xa7\x4a\x87\xb5\xab\x15\x5c\x2b\xf0\x72"
OWNER_BYTES = 16


def parse_status(text: str) -> list[dict[str, t.Any]]:
    """C([{module, version, kernel, architecture, state, notes}]) from C(dkms status), both spellings; other lines are skipped."""
    found = []
    for line in text.splitlines():
        match = LINE.match(line.strip())
        if match:
            module, version, kernel, architecture, state, rest = match.groups()
            found.append({
                "module": module, "version": version, "kernel": kernel, "architecture": architecture, "state": state,
                "notes": NOTE.findall(rest),
            })
    return found


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
