# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration space of a PCI function, as lspci and setpci read it."""

from __future__ import annotations

import struct

from .machine import Entry, Machine

PORT_TYPES = {"endpoint": 0x0, "root_port": 0x4, "upstream": 0x5, "downstream": 0x6}
EXPRESS = 0x40
EXTENDED = 0x100
ACS, ATS = 0x000D, 0x000F
# Registers that setpci may change: ACS or ATS control, and device control, which holds the largest read request.
WRITABLE = (EXTENDED + 0x06, EXPRESS + 0x08)
MIB = 1 << 20
# Above 4 GiB and wide enough apart for the largest GPU memory.
WINDOW_BASE = 0x2000_0000_0000
WINDOW = 0x200_0000_0000
# Memory, prefetchable, 64 bit: how the kernel flags such a resource.
RESOURCE_FLAGS = 0x14220C


def regions(machine: Machine, function: Entry) -> list[tuple[int, int]]:
    """Return (start, size in bytes) of a function's memory regions."""
    found = []
    place = WINDOW_BASE + WINDOW * machine.pci.index(function)
    for size_mib in function["bars_mib"]:
        size = size_mib * MIB
        place = -(-place // size) * size
        found.append((place, size))
        place += size
    return found


def resource_table(machine: Machine, function: Entry) -> str:
    """Return the text of sysfs' `resource`: 13 lines of start, end, flags."""
    rows = [(0, 0, 0)] * 13
    for number, (start, size) in enumerate(regions(machine, function)):
        rows[2 * number] = (start, start + size - 1, RESOURCE_FLAGS)
    return "".join(f"0x{start:016x} 0x{end:016x} 0x{flags:016x}\n" for start, end, flags in rows)


def space(machine: Machine, function: Entry) -> bytes:
    """Return a function's configuration space; one that fell off the bus reads as ones."""
    if function["address"] in machine.dead:
        return b"\xff" * 256
    bridge = function["role"] != "endpoint"
    config = bytearray(4096)
    express = function["width"] is not None
    # Memory and bus master on; a capability list when there is one.
    struct.pack_into("<HHHH", config, 0, int(function["vendor"], 16), int(function["device"], 16), 0x0406, 0x0010 if express else 0)
    code = int(function["class"], 16)
    struct.pack_into("<BBBB", config, 8, int(function["revision"], 16), code & 0xFF, code >> 8 & 0xFF, code >> 16)
    config[0x0E] = 1 if bridge else 0
    if express:
        config[0x34] = EXPRESS
        _express(config, machine, function)
    if bridge:
        bus = int(function["address"][5:7], 16)
        config[0x18:0x1B] = bytes([bus, *function["buses"]])
        if function["role"] in ("root_port", "downstream"):
            # Access control services: able, and off unless the profile says so, as GPU servers run on bare metal.
            struct.pack_into("<IHH", config, EXTENDED, ACS | 1 << 16, 0x005F, function["acs"])
    else:
        for number, (start, _) in enumerate(regions(machine, function)):
            struct.pack_into("<Q", config, 0x10 + 8 * number, start | 0xC)
        vendor, device = function["subsystem"].split(":")
        struct.pack_into("<HH", config, 0x2C, int(vendor, 16), int(device, 16))
        if function["ats"] is not None:
            struct.pack_into("<IHH", config, EXTENDED, ATS | 1 << 16, 0x0020, 0x8000 if function["ats"] else 0)
    if function["virtual"]:
        # A virtual function leaves its ids to the one it is of, and has no link of its own.
        config[0:4] = b"\xff" * 4
        config[EXPRESS : EXPRESS + 0x3C] = struct.pack("<BBHIH", 0x10, 0, 0x2, 0x10008001, 0).ljust(0x3C, b"\0")
        config[0x34] = EXPRESS
        config[0x06] = 0x10
    return bytes(config)


def rewritten(drawn: bytes, present: bytes) -> bytes:
    """Return a space as it is drawn with the registers that were written to since the start as they are now."""
    if len(present) != len(drawn) or b"\xff" * EXPRESS in (drawn[:EXPRESS], present[:EXPRESS]):
        return drawn
    kept = bytearray(drawn)
    for offset in WRITABLE:
        kept[offset : offset + 2] = present[offset : offset + 2]
    return bytes(kept)


def _express(config: bytearray, machine: Machine, function: Entry) -> None:
    """Write the PCI Express capability: kind of port, and the link as it could be and as it is."""
    generation, widest, width = machine.generation(function) or 1, function["width"], machine.width(function) or 0
    struct.pack_into("<BBH", config, EXPRESS, 0x10, 0, 0x2 | PORT_TYPES[function["role"]] << 4)
    # 256 byte payloads; the largest read request is the usual 512 bytes.
    struct.pack_into("<IHH", config, EXPRESS + 0x04, 0x00008001, 0x2930, 0)
    struct.pack_into("<I", config, EXPRESS + 0x0C, generation | widest << 4)
    struct.pack_into("<HH", config, EXPRESS + 0x10, 0x0040, generation | width << 4)
    struct.pack_into("<I", config, EXPRESS + 0x2C, ((1 << generation) - 1) << 1)
    struct.pack_into("<H", config, EXPRESS + 0x30, generation)
