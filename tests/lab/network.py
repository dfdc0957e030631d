# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's own network: one namespace with a bridge, one namespace a host, and no route out of either."""

from __future__ import annotations

import ctypes
import os
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


def inside(namespace: int, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program in a namespace."""
    return call("nsenter", f"--net=/proc/self/fd/{namespace}", *argv, pass_fds=(namespace,))


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


class Network:
    """The bridge, and a cable for each host."""

    def __init__(self) -> None:
        """Make the lab's namespace with its bridge."""
        self.namespace = new_namespace()
        self.hosts: dict[str, int] = {}
        for line in ("link set lo up", "link add br0 type bridge", f"addr add {GATEWAY}/{PREFIX} dev br0", "link set br0 up"):
            inside(self.namespace, ["ip", *line.split()])

    def plug(self, host: str, number: int) -> int:
        """Return the namespace of a host, made with its cable when it is new."""
        if host in self.hosts:
            return self.hosts[host]
        namespace = new_namespace()
        inside(self.namespace, ["ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", f"p{number}"])
        holder = subprocess.Popen(["nsenter", f"--net=/proc/self/fd/{namespace}", "sleep", "infinity"], pass_fds=(namespace,))
        try:
            inside(self.namespace, ["ip", "link", "set", f"p{number}", "netns", str(self._entered(holder.pid, namespace))])
        finally:
            holder.kill()
            holder.wait()
        inside(self.namespace, ["ip", "link", "set", f"v{number}", "master", "br0", "up"])
        for line in (
            "link set lo up",
            f"link set p{number} name eth0",
            f"addr add {NETWORK}.{number}/{PREFIX} dev eth0",
            "link set eth0 up",
        ):
            inside(namespace, ["ip", *line.split()])
        self.hosts[host] = namespace
        return namespace

    @staticmethod
    def _entered(pid: int, namespace: int) -> int:
        """Wait until a process is in the namespace, and return its id."""
        wanted = os.fstat(namespace).st_ino
        for _ in range(500):
            if os.stat(f"/proc/{pid}/ns/net").st_ino == wanted:
                return pid
            threading.Event().wait(0.01)
        raise LabError("a process did not enter its network namespace")

    def unplug(self, host: str, number: int) -> None:
        """Take a host's cable and namespace away."""
        namespace = self.hosts.pop(host, None)
        if namespace is not None:
            inside(self.namespace, ["ip", "link", "del", f"v{number}"])
            os.close(namespace)

    def cut(self, number: int) -> None:
        """Cut a host off: its cable carries nothing, while both ends still look up to their owners."""
        self.mend(number)
        rules = (
            "add table bridge cut; "
            f"add chain bridge cut h{number} {{ type filter hook forward priority 0; }}; "
            f"add chain bridge cut i{number} {{ type filter hook input priority 0; }}; "
            f"add chain bridge cut o{number} {{ type filter hook output priority 0; }}; "
            f'add rule bridge cut h{number} iifname "v{number}" drop; add rule bridge cut h{number} oifname "v{number}" drop; '
            f'add rule bridge cut i{number} iifname "v{number}" drop; add rule bridge cut o{number} oifname "v{number}" drop'
        )
        try:
            inside(self.namespace, ["nft", rules])
        except LabError:
            # No bridge filter in this kernel: take the bridge's end down, which the host sees as a pulled cable.
            inside(self.namespace, ["ip", "link", "set", f"v{number}", "down"])

    def mend(self, number: int) -> None:
        """Undo a cut."""
        for chain in "hio":
            line = ["nsenter", f"--net=/proc/self/fd/{self.namespace}", "nft", f"delete chain bridge cut {chain}{number}"]
            subprocess.run(line, pass_fds=(self.namespace,), capture_output=True, check=False)
        inside(self.namespace, ["ip", "link", "set", f"v{number}", "up"])

    def shape(self, host: str, number: int, rate: str | None) -> None:
        """Limit both directions of a host's cable to a rate such as "200mbit"; None lifts it."""
        for namespace, device in ((self.hosts[host], "eth0"), (self.namespace, f"v{number}")):
            clear = ["nsenter", f"--net=/proc/self/fd/{namespace}", "tc", "qdisc", "del", "dev", device, "root"]
            subprocess.run(clear, pass_fds=(namespace,), capture_output=True, check=False)
            if rate:
                limit = ["tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", BURST, "latency", "50ms"]
                inside(namespace, limit)
