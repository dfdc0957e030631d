# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own network: one namespace with a bridge, one namespace a host, and no route out of either."""

from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable

from lab.machine import call
from lab.paths import GATEWAY, NETWORK, PREFIX, LabError

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
# Room for the 64 KiB packets that the kernel hands over whole.
BURST = "256kb"
RATE = re.compile(r"\d+(\.\d+)?(kbit|mbit|gbit)")


def _checked(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def new_namespace() -> int:
    """Return a descriptor of a fresh network namespace; it lives as long as the descriptor."""
    found: list[int] = []

    def make() -> None:
        _checked(LIBC.unshare(CLONE_NEWNET), "unshare")
        found.append(os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not found:
        raise LabError("no network namespace could be made")
    return found[0]


def start_inside(namespace: int, target: Callable[[], None]) -> threading.Thread:
    """Start a thread whose sockets, and whose threads' sockets, belong to a namespace."""

    def run() -> None:
        _checked(LIBC.setns(namespace, CLONE_NEWNET), "setns")
        target()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def inside(namespace: int, argv: list[str], *others: int) -> subprocess.CompletedProcess[str]:
    """Run a program in a namespace; it can name `others` by their descriptors."""
    return call("nsenter", f"--net=/proc/self/fd/{namespace}", *argv, pass_fds=(namespace, *others))


def tried(namespace: int, argv: list[str]) -> bool:
    """Run a program in a namespace and tell whether it ended well."""
    line = ["nsenter", f"--net=/proc/self/fd/{namespace}", *argv]
    return subprocess.run(line, pass_fds=(namespace,), capture_output=True, check=False).returncode == 0


def connect(namespace: int, address: str, port: int, timeout: float) -> socket.socket:
    """Return a TCP connection made from within a namespace."""
    made: list[socket.socket | OSError] = []

    def run() -> None:
        try:
            made.append(socket.create_connection((address, port), timeout))
        except OSError as error:
            made.append(error)

    start_inside(namespace, run).join()
    if not made:
        raise OSError("the namespace is gone")
    if isinstance(made[0], OSError):
        raise made[0]
    made[0].settimeout(None)
    return made[0]


class Cable:
    """A host's network namespace, and the cable from it to the bridge."""

    def __init__(self, bridge: int, number: int) -> None:
        """Make both, with the host's address."""
        self.bridge = bridge
        self.port = f"v{number}"
        self.namespace = new_namespace()
        self.cut_off = False
        self.rate: str | None = None
        peer = f"/proc/self/fd/{self.namespace}"
        inside(bridge, ["ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", peer], self.namespace)
        inside(bridge, ["ip", "link", "set", self.port, "master", "br0", "up"])
        for line in ("link set lo up", f"addr add {NETWORK}.{number}/{PREFIX} dev eth0", "link set eth0 up"):
            inside(self.namespace, ["ip", *line.split()])

    def remove(self) -> None:
        """Take the cable and the namespace away."""
        self.mend()
        tried(self.bridge, ["ip", "link", "del", self.port])
        os.close(self.namespace)

    def plug(self, plugged: bool) -> None:
        """Give the cable's end at the bridge a carrier or take it away."""
        inside(self.bridge, ["ip", "link", "set", self.port, "up" if plugged else "down"])

    def cut(self) -> None:
        """Let the cable carry nothing, while both ends still look up to their owners."""
        if self.cut_off:
            return
        rules = [f"add table bridge {self.port}"]
        for hook, sides in (("forward", ("iifname", "oifname")), ("input", ("iifname",)), ("output", ("oifname",))):
            rules.append(f"add chain bridge {self.port} {hook} {{ type filter hook {hook} priority 0; }}")
            rules += [f'add rule bridge {self.port} {hook} {side} "{self.port}" drop' for side in sides]
        inside(self.bridge, ["nft", "; ".join(rules)])
        self.cut_off = True

    def mend(self) -> None:
        """Undo a cut."""
        if self.cut_off:
            tried(self.bridge, ["nft", f"delete table bridge {self.port}"])
        self.cut_off = False

    def shape(self, rate: str | None) -> None:
        """Limit both directions to a rate such as "200mbit"; None lifts it."""
        if rate and not RATE.fullmatch(rate):
            raise LabError(f"rate {rate!r}: give a number with kbit, mbit or gbit, such as 200mbit")
        for namespace, device in ((self.namespace, "eth0"), (self.bridge, self.port)):
            tried(namespace, ["tc", "qdisc", "del", "dev", device, "root"])
            if rate:
                inside(namespace, ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", BURST, "latency", "50ms"])
        self.rate = rate


class Network:
    """The bridge of a lab."""

    def __init__(self) -> None:
        """Make the lab's namespace with its bridge."""
        self.namespace = new_namespace()
        for line in ("link set lo up", "link add br0 type bridge", f"addr add {GATEWAY}/{PREFIX} dev br0", "link set br0 up"):
            inside(self.namespace, ["ip", *line.split()])

    def lay(self, number: int) -> Cable:
        """Return a new cable for a host."""
        return Cable(self.namespace, number)
