# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the site at the moment: read from a control file at every request, so that a running site can be broken and mended."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.paths import LabError
from lab.vendor.site import Offer

# Kind: what it does, and which words it takes beside `path=PATTERN` (the pattern is matched against the whole path of a request).
KINDS = {
    "gone": "answers 503; `mode=reset` drops the connection, `mode=refuse` closes the port",
    "slow": "sends `rate=BYTES` a second (default 20000)",
    "half": "announces the whole body, sends half of it and hangs up",
    "bad-signature": "signs the lists with another key than the one it offers",
    "wrong-key": "offers another key than the one the lists are signed with",
    "older": "serves the lists of an earlier day: the newest release of each branch is not there yet",
    "newer": "has moved on: releases that were not published before are there",
    "removed": "no longer has VERSION, neither in the lists nor as files",
}
WORDS = {"gone": {"mode"}, "slow": {"rate"}}
MODES = ("error", "reset", "refuse")
EVERYTHING = "*"


@dataclass(frozen=True)
class Faults:
    """The faults of one moment, and the moment they were set."""

    listed: tuple[dict[str, Any], ...] = ()
    moment: float = 0.0

    def on(self, kind: str, path: str) -> dict[str, Any] | None:
        """Return the fault of a kind that meets a path."""
        for fault in self.listed:
            if fault["kind"] == kind and fnmatch.fnmatchcase(path, fault.get("path", EVERYTHING)):
                return fault
        return None

    def offer(self) -> Offer:
        """Return what the site offers under these faults."""
        kinds = {fault["kind"] for fault in self.listed}
        removed = frozenset(fault["version"] for fault in self.listed if fault["kind"] == "removed")
        return Offer(newer="newer" in kinds, older="older" in kinds, removed=removed)

    @property
    def refuses(self) -> bool:
        """Tell whether nobody listens."""
        return any(fault["kind"] == "gone" and fault.get("mode") == "refuse" for fault in self.listed)


def read_faults(control: Path) -> Faults:
    """Return the faults that a control file sets; no file, or an empty one, means none."""
    try:
        moment = control.stat().st_mtime
        text = control.read_text().strip()
    except FileNotFoundError:
        return Faults()
    return Faults(tuple(json.loads(text).get("faults", [])) if text else (), moment)


def set_fault(control: Path, kind: str, args: list[str]) -> None:
    """Add a fault (the same kind on the same path and version is replaced), or with "ok" clear all of them.

    Arguments are words such as `path=*.deb`, `rate=5000`, `mode=refuse`; `removed` takes a driver release such as 580.159.04.
    """
    faults = [] if kind == "ok" else list(read_faults(control).listed)
    if kind != "ok":
        new = parse(kind, args)
        same = ("kind", "path", "version")
        faults = [fault for fault in faults if [fault.get(key) for key in same] != [new.get(key) for key in same]] + [new]
    elif args:
        raise LabError("fault ok takes no further words")
    part = control.with_name(control.name + ".new")
    part.write_text(json.dumps({"faults": faults}))
    part.replace(control)


def parse(kind: str, args: list[str]) -> dict[str, Any]:
    """Return a fault from its words; raises LabError when they mean nothing."""
    if kind not in KINDS:
        raise LabError(f"unknown fault of the site {kind!r}: choose one of {', '.join(KINDS)}, ok")
    fault: dict[str, Any] = {"kind": kind}
    for word in args:
        key, equals, value = word.partition("=")
        if not equals and kind == "removed":
            key, value = "version", word
        allowed = WORDS.get(kind, set()) | ({"version"} if kind == "removed" else {"path"})
        if key not in allowed or not value:
            raise LabError(f"fault {kind}: {word!r} is not understood; it {KINDS[kind]}")
        fault[key] = value
    if kind == "removed" and "version" not in fault:
        raise LabError("fault removed: name the driver release, such as 580.159.04")
    if fault.get("mode", "error") not in MODES:
        raise LabError(f"fault gone: mode is one of {', '.join(MODES)}")
    if "rate" in fault and not (fault["rate"].isdigit() and int(fault["rate"]) > 0):
        raise LabError("fault slow: rate is a number of bytes a second")
    return fault
