# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speaks to a lab's daemon: the lab as Python code and the command line see it."""

from __future__ import annotations

import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lab import images, keys, layers, start, wire
from lab.cache import Lease
from lab.machine import check, say
from lab.paths import CACHE, LabError, LabPaths, default_name
from lab.spec import HostSpec
from lab.vendor import prepare_wheels

__all__ = ["HostSpec", "Lab", "LabError"]
ANSWER_SECONDS = 10.0


class Lab:
    """A lab by its name; it need not be up."""

    def __init__(self, name: str | None = None) -> None:
        """Name the lab; without a name the one of $GPU_FLEET_LAB, or "default"."""
        self.name = name or default_name()
        self.paths = LabPaths(self.name)

    def ask(self, op: str, descriptors: list[int] | None = None, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request to the daemon and return its answer; raises LabError with the daemon's words."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            try:
                connection.connect(str(self.paths.socket))
            except OSError:
                raise LabError(f"lab {self.name} is not up; start it with: tests/lab/lab up --lab {self.name} --nodes 2") from None
            try:
                wire.send(connection, {"op": op, **fields}, descriptors)
                answer, _ = wire.receive(connection)
            except TimeoutError:
                raise LabError(f"lab {self.name} did not answer within {timeout:.0f} s ({op})") from None
            except OSError as error:
                raise LabError(f"lab {self.name} went away ({error})") from None
        if not answer:
            raise LabError(f"lab {self.name} ended before it answered; see {self.paths.log}")
        if "error" in answer:
            raise LabError(answer["error"])
        return answer

    def running(self) -> bool:
        """Tell whether the lab's daemon answers."""
        try:
            self.ask("status", timeout=ANSWER_SECONDS)
        except LabError:
            return False
        return True

    def up(self, hosts: Sequence[HostSpec]) -> None:
        """Bring hosts up, and the lab itself when it is not; hosts that run stay as they are.

        Interrupted or failed, it leaves what was there before.
        """
        for host in hosts:
            images.find(host.image)
            if not host.number:
                raise LabError(f"host name {host.name!r} has no number")
        check()
        # Built here and not in the daemon, so that progress is seen and Ctrl-C reaches it; held until the daemon holds them itself.
        leases = {host: layers.obtain(host.layers, host.image) + images.obtain(host.image) for host in hosts}
        try:
            self._wheels()
            self._up(hosts, leases)
        finally:
            for lease in (lease for several in leases.values() for lease in several):
                lease.release()

    def _wheels(self) -> None:
        try:
            prepare_wheels(CACHE)
        except LabError as error:
            # Most of what a lab is for needs no torch; what does fails at its own install with this said before.
            say(f"the site has no wheels: {error}")

    def _up(self, hosts: Sequence[HostSpec], leases: dict[HostSpec, list[Lease]]) -> None:
        started = False
        new: list[str] = []
        try:
            with start.changing(self.paths):
                started = start.start(self.paths, self.running)
            self._boot(hosts, leases, new)
        except BaseException:
            say("taking down what was being brought up")
            if started:
                self.down()
            else:
                self._take_back(new)
            raise

    def _take_back(self, new: list[str]) -> None:
        """Remove hosts that a failed or interrupted `up` added; the daemon does so itself when it sees in time that we have gone."""
        with suppress(LabError):
            # Waits until the daemon has done what it does.
            self.ask("down", hosts=[])
            left = [host["name"] for host in self.status()["hosts"] if host["name"] in new]
            self.ask("down", hosts=left)

    def _boot(self, hosts: Sequence[HostSpec], leases: dict[HostSpec, list[Lease]], new: list[str]) -> None:
        """Let the daemon bring hosts up; the names of those that were not there go into `new`."""
        state = self.status()
        if state.get("protocol") != wire.PROTOCOL:
            raise LabError(f"lab {self.name} was started by other code than this; take it down first: tests/lab/lab down --lab {self.name}")
        there = {host["name"]: host["state"] for host in state["hosts"]}
        new += [host.name for host in hosts if host.name not in there]
        missing = [host.name for host in hosts if there.get(host.name, "off") == "off"]
        began = time.monotonic()
        if missing:
            say(f"booting {', '.join(missing)}")
        self.ask("up", hosts=[{**host.packed(), "lowers": [str(layers.lower(lease)) for lease in leases[host]]} for host in hosts])
        if missing:
            say(f"up after {time.monotonic() - began:.1f} s: {', '.join(missing)}")

    def down(self, hosts: Sequence[str] = ()) -> None:
        """Take hosts away, or the whole lab with everything that it made; a lab that is not up is no error."""
        if hosts:
            self.ask("down", hosts=list(hosts))
            return
        with start.changing(self.paths):
            keys.close_masters(self.paths)
            # Where the daemon cannot do it any more, the sweep does.
            with suppress(LabError):
                self.ask("stop", timeout=60.0)
            start.sweep(self.paths)
            for path in (self.paths.log, self.paths.changing):
                path.unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        """Return the state of the lab."""
        return self.ask("status", timeout=ANSWER_SECONDS)

    def fault(self, target: str, kind: str, *args: str) -> None:
        """Break or mend a host, its hardware, the vendor's site ("site") or the way out ("proxy")."""
        self.ask("fault", target=target, kind=kind, args=list(args))

    def save(self, host: str, layer: str) -> None:
        """Halt a host, keep what it wrote as a layer for other hosts, and start it again."""
        self.ask("save", host=host, layer=layer)

    @staticmethod
    def has_layer(layer: str, image: str = "debian12") -> bool:
        """Tell whether a layer was saved over an image as it is now."""
        return layers.exists(layer, image)

    def run(self, host: str, argv: Sequence[str] | str, stdin: str = "", timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program in a host (a string goes to its shell) and return what it gave; needs no ssh.

        With a timeout (seconds) a program that takes longer is killed, and LabError raised.
        """
        words = ["sh", "-c", argv] if isinstance(argv, str) else list(argv)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            answer = self.ask("exec", [given.fileno(), out.fileno(), err.fileno()], timeout, host=host, argv=words)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, answer["rc"], out.read().decode(errors="replace"), err.read().decode(errors="replace"))

    def ssh(self, host: str, words: Sequence[str] = ()) -> list[str]:
        """Return the ssh command line for a host."""
        return ["ssh", "-F", str(self.paths.ssh_config), host, *([shlex.join(words)] if words else [])]
