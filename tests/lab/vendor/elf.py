# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the smallest shared object that the dynamic loader and ldconfig accept, so that stand-in libraries are libraries."""

from __future__ import annotations

import struct

PAGE = 0x1000
PT_LOAD, PT_DYNAMIC, PT_GNU_STACK = 1, 2, 0x6474E551
DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME = 0, 4, 5, 6, 10, 11, 14
HEADER, PROGRAM_HEADER, SYMBOL = 64, 56, 24


def shared_object(soname: str, note: str = "") -> bytes:
    """Return an x86-64 ELF shared object with a SONAME, no symbols, and a readable note at its end."""
    programs = 3
    hash_at = HEADER + programs * PROGRAM_HEADER
    # One bucket, one symbol (the null one), an empty chain.
    hash_table = struct.pack("<4I", 1, 1, 0, 0)
    symbols_at = hash_at + len(hash_table)
    strings = b"\0" + soname.encode() + b"\0"
    strings_at = symbols_at + SYMBOL
    dynamic_at = (strings_at + len(strings) + 7) & ~7
    dynamic = b"".join(
        struct.pack("<qQ", tag, value)
        for tag, value in (
            (DT_SONAME, 1),
            (DT_HASH, hash_at),
            (DT_STRTAB, strings_at),
            (DT_SYMTAB, symbols_at),
            (DT_STRSZ, len(strings)),
            (DT_SYMENT, SYMBOL),
            (DT_NULL, 0),
        )
    )
    size = dynamic_at + len(dynamic)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = identity + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, HEADER, 0, 0, HEADER, PROGRAM_HEADER, programs, 64, 0, 0)
    # The loader relocates the dynamic section in place, so the one segment is writable.
    load = struct.pack("<IIQQQQQQ", PT_LOAD, 6, 0, 0, 0, size, size, PAGE)
    dynamic_header = struct.pack("<IIQQQQQQ", PT_DYNAMIC, 6, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    stack = struct.pack("<IIQQQQQQ", PT_GNU_STACK, 6, 0, 0, 0, 0, 0, 16)
    body = header + load + dynamic_header + stack + hash_table + bytes(SYMBOL) + strings
    return body.ljust(dynamic_at, b"\0") + dynamic + (note.encode() + b"\n" if note else b"")
