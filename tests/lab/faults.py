# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be done to a running host, by name: what the command line offers and the daemon does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.paths import LabError

if TYPE_CHECKING:
    from lab.fleet import Fleet
    from lab.hosts import Host


@dataclass(frozen=True)
class Fault:
    """Something that can happen to a host; `words` names the arguments that it takes."""

    does: str
    words: tuple[str, ...] = ()


FAULTS = {
    "reboot": Fault("the host reboots itself; waits until it is back"),
    "unplug": Fault("its power goes, without a goodbye"),
    "plug": Fault("its power comes back; waits until it is up"),
    "freeze": Fault("every process stops, as in a machine that hangs"),
    "thaw": Fault("they go on"),
    "cut": Fault("its cable carries nothing, but its link stays up"),
    "mend": Fault("undoes a cut"),
    "shape": Fault("limits both directions of its cable, such as to 200mbit", ("RATE",)),
    "unshape": Fault("lifts the limit"),
}


def strike(fleet: Fleet, host: Host, kind: str, args: list[str]) -> None:
    """Let a fault of the host (not of its hardware) happen."""
    words = FAULTS[kind].words
    if len(args) != len(words):
        raise LabError(f"fault {kind} takes {' '.join(words) or 'no further words'}")
    if kind in ("reboot", "freeze", "thaw"):
        # Refuses a host that is off.
        host.leader()
    if kind == "reboot" and host.frozen:
        raise LabError(f"{host.spec.name} is frozen: it cannot reboot itself")
    match kind:
        case "reboot":
            fleet.reboot(host)
        case "unplug":
            host.unplug()
        case "plug":
            host.boot()
            fleet.wait(host)
        case "freeze" | "thaw":
            host.freeze(kind == "freeze")
        case "cut":
            host.cable.cut()
        case "mend":
            host.cable.mend()
        case _:
            host.cable.shape(args[0] if args else None)


def overview() -> str:
    """Return the help text on faults."""
    lines = ["faults of a host:"]
    lines += [f"  {' '.join([kind, *fault.words]):14} {fault.does}" for kind, fault in FAULTS.items()]
    lines += [
        "faults of its hardware, such as gpu-off-bus: see tests/lab/hardware/README.md",
        'faults of the vendor\'s site (HOST is "site"): gone, slow, half, bad-signature, older, newer, removed VERSION, ok ...',
        'faults of the way out (HOST is "proxy"): offline, online',
    ]
    return "\n".join(lines)
