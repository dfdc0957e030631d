# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What a PCI function's configuration space says of its place and settings: kind of port, ACS, read requests, ATS.

Offsets and bits are those of the PCI Express base specification, as pci_regs.h of the kernel names them. Whoever is not root gets the
first 64 bytes of a function only, and of one that fell off the bus everything reads as ones.
"""

from __future__ import annotations

import contextlib
import os
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

HEADER = 64
EXTENDED = 0x100
CAP_EXPRESS, EXT_ACS, EXT_ATS = 0x10, 0x000D, 0x000F
ROLES = {0x4: "root_port", 0x5: "upstream", 0x6: "downstream"}
# Bits of the ACS capability and control registers, in lspci's words.
ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
UNKNOWN: t.Dict[str, t.Any] = {"role": None, "max_read_request": None, "ats": None, "acs": None}


class Space:
    """The space behind C(read(offset, length)), which gives fewer bytes where there are none, or none that we may see."""

    def __init__(self, read: t.Callable[[int, int], bytes]) -> None:
        self._read = read
        self._header = read(0, HEADER)

    @property
    def dead(self) -> bool:
        """True for a function that is not there any more; of a virtual one vendor and device alone read as ones."""
        return self._header == b"\xff" * HEADER

    @property
    def whole(self) -> bool:
        """False where the header can be read at most."""
        return len(self._header) == HEADER and len(self._read(HEADER, 4)) == 4

    def number(self, offset: int, size: int = 2) -> int | None:
        """A little-endian number."""
        data = self._header[offset:offset + size] if offset + size <= HEADER else self._read(offset, size)
        return int.from_bytes(data, "little") if len(data) == size else None

    def capability(self, wanted: int) -> int | None:
        """Offset of a capability of the conventional list."""
        if not (self.number(0x06) or 0) & 0x10:
            return None
        offset = (self.number(0x34, 1) or 0) & 0xFC
        # A damaged list may lead in a circle.
        been: t.Set[int] = set()
        while offset >= HEADER and offset not in been:
            been.add(offset)
            entry = self.number(offset)
            if entry is None:
                break
            if entry & 0xFF == wanted:
                return offset
            offset = entry >> 8 & 0xFC
        return None

    def extended(self, wanted: int) -> int | None:
        """Offset of a capability of the extended list."""
        been: t.Set[int] = set()
        offset = EXTENDED
        while offset >= EXTENDED and offset not in been:
            been.add(offset)
            entry = self.number(offset, 4)
            if entry is None:
                break
            if entry & 0xFFFF == wanted:
                return offset
            offset = entry >> 20 & 0xFFC
        return None


def acs(space: Space, express: bool) -> dict[str, list[str]] | None:
    """The ACS registers of a bridge as names of what is there and of what is on; None where the host hides the space that they are in."""
    if express and space.number(EXTENDED, 4) is None:
        return None
    place = space.extended(EXT_ACS)
    able, control = (space.number(place + 4), space.number(place + 6)) if place else (0, 0)
    if able is None or control is None:
        return None
    return {key: [name for bit, name in enumerate(ACS_BITS) if value >> bit & 1] for key, value in (("able", able), ("on", control))}


def settings(space: Space, virtual: bool = False) -> dict[str, t.Any]:
    """C({role, max_read_request, ats, acs}); all None where the space cannot be read beyond its header.

    C(max_read_request) is in bytes; a virtual function has none of its own. No ACS capability is one that offers nothing.
    """
    if space.dead or not space.whole:
        return dict(UNKNOWN)
    express = space.capability(CAP_EXPRESS)
    flags = space.number(express + 2) if express else None
    control = space.number(express + 8) if express else None
    request = None if control is None or virtual else control >> 12 & 7
    bridge = bool((space.number(0x0E, 1) or 0) & 0x7F)
    at_ats = None if bridge else space.extended(EXT_ATS)
    ats = space.number(at_ats + 6) if at_ats else None
    return {
        "role": None if flags is None else ROLES.get(flags >> 4 & 0xF),
        # 6 and 7 are reserved.
        "max_read_request": 128 << request if request is not None and request < 6 else None,
        "ats": None if ats is None else bool(ats & 0x8000),
        "acs": acs(space, express is not None) if bridge else {"able": [], "on": []},
    }


@contextlib.contextmanager
def opened(system: System, folder: str) -> t.Iterator[Space | None]:
    """The space of the function whose sysfs folder this is; None when there is no file. Only what is asked for is read from the device."""
    try:
        handle = os.open(system.path(folder + "/config"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return

    def read(offset: int, length: int) -> bytes:
        try:
            return os.pread(handle, length, offset)
        except OSError:
            return b""

    try:
        yield Space(read)
    finally:
        os.close(handle)
