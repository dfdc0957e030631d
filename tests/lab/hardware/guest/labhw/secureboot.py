# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mokutil, as far as asking goes."""

from __future__ import annotations

import sys

from .boot import EFI_VARIABLE


def main(words: list[str]) -> int:
    """Answer --sb-state."""
    try:
        with open(f"/sys/firmware/efi/efivars/{EFI_VARIABLE}", "rb") as file:
            enabled = file.read()[-1]
    except FileNotFoundError:
        print("EFI variables are not supported on this system", file=sys.stderr)
        return 1
    if words != ["--sb-state"]:
        print("Usage: mokutil --sb-state", file=sys.stderr)
        return 1
    print(f"SecureBoot {'enabled' if enabled else 'disabled'}")
    return 0
