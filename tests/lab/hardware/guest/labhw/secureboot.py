# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot: what the firmware keeps of it, and mokutil, which asks for keys to be trusted."""

from __future__ import annotations

import glob
import os
import shutil
import struct
import sys
import uuid

FIRMWARE = "/sys/firmware/efi/efivars"
EFI_VARIABLE = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = uuid.UUID("605dab50-e046-4300-abb6-3dd810dd8b23")
X509 = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
# The firmware's memory, which a reboot leaves: keys that the owner enrolled, those that mokutil asked for, and the switch in the setup.
ENROLLED, ASKED, SWITCH = "/var/lib/lab/mok/enrolled", "/var/lib/lab/mok/asked", "/var/lib/lab/secure-boot"
# Boot services may read it and the system at run time.
ATTRIBUTES = struct.pack("<I", 0x6)


def certificates() -> list[bytes]:
    """Return the certificates of the keys that the owner enrolled."""
    found = []
    for path in sorted(glob.glob(f"{ENROLLED}/*")):
        with open(path, "rb") as file:
            found.append(file.read())
    return found


def switched(otherwise: bool | None) -> bool | None:
    """Return whether the setup has Secure Boot on; a machine without EFI has no such switch."""
    if otherwise is None or not os.path.exists(SWITCH):
        return otherwise
    with open(SWITCH) as file:
        return file.read().strip() == "on"


def variables(enabled: bool) -> dict[str, bytes]:
    """Return the EFI variables of a start, by name."""
    found = {EFI_VARIABLE: ATTRIBUTES + bytes([enabled])}
    lists = [X509.bytes_le + struct.pack("<III", 28 + 16 + len(key), 0, 16 + len(key)) + SHIM.bytes_le + key for key in certificates()]
    if lists:
        found[f"MokListRT-{SHIM}"] = ATTRIBUTES + b"".join(lists)
    return found


def trusts(signer: str) -> bool:
    """Tell whether the kernel that runs got a key of that name from the firmware."""
    try:
        with open(f"{FIRMWARE}/MokListRT-{SHIM}", "rb") as file:
            return signer.encode() in file.read()
    except FileNotFoundError:
        return False


def turn(word: str) -> None:
    """Set the switch in the firmware's setup, which the next start obeys."""
    os.makedirs(os.path.dirname(SWITCH), exist_ok=True)
    with open(SWITCH, "w") as file:
        file.write(word)


def confirm() -> int:
    """Somebody at the console says yes to the keys that were asked for, while the machine starts next. Returns how many."""
    paths = glob.glob(f"{ASKED}/*")
    os.makedirs(ENROLLED, exist_ok=True)
    for path in paths:
        os.replace(path, f"{ENROLLED}/{os.path.basename(path)}")
    return len(paths)


def ask(path: str) -> None:
    """Ask for a key to be enrolled."""
    os.makedirs(ASKED, exist_ok=True)
    shutil.copy(path, f"{ASKED}/{os.path.basename(path)}")


def main(words: list[str]) -> int:
    """Answer --sb-state | --import FILE | --test-key FILE."""
    try:
        with open(f"{FIRMWARE}/{EFI_VARIABLE}", "rb") as file:
            enabled = file.read()[-1]
    except FileNotFoundError:
        print("EFI variables are not supported on this system", file=sys.stderr)
        return 1
    if words == ["--sb-state"]:
        print(f"SecureBoot {'enabled' if enabled else 'disabled'}")
        return 0
    if len(words) == 2 and words[0] == "--import":
        ask(words[1])
        return 0
    if len(words) == 2 and words[0] == "--test-key":
        with open(words[1], "rb") as file:
            known = file.read() in certificates()
        print(f"{words[1]} is {'already' if known else 'not'} enrolled")
        return int(known)
    print("Usage: mokutil --sb-state | --import FILE | --test-key FILE", file=sys.stderr)
    return 1
