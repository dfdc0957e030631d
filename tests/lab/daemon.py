# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one process that holds a lab: its end removes every process, mount and namespace of the lab. Usage: python -m lab.daemon NAME."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab import wire
from lab.fleet import Fleet
from lab.machine import say
from lab.network import connect
from lab.paths import LabError, LabPaths
from lab.spec import HostSpec

Answer = tuple[dict[str, Any], list[int]]


class Daemon:
    """Serves requests about one fleet."""

    def __init__(self, paths: LabPaths) -> None:
        """Make the fleet, then open the socket: whoever can connect finds it whole."""
        self.paths = paths
        self.fleet = Fleet(paths)
        self._ending = threading.Lock()
        self.ear = socket.socket(socket.AF_UNIX)
        part = paths.socket.with_suffix(".new")
        self.ear.bind(str(part))
        os.chmod(part, 0o600)
        self.ear.listen(128)
        part.rename(paths.socket)

    def serve(self) -> None:
        """Answer until the lab ends."""
        while True:
            connection, _ = self.ear.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        """Serve one request; whatever goes wrong with it is told to who asked."""
        with connection:
            request, descriptors = wire.receive(connection)
            if not request:
                return
            try:
                answer = self.act(request, descriptors, connection)
            except Exception as error:
                if not isinstance(error, LabError):
                    traceback.print_exc()
                answer = {"error": str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"}, []
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            with suppress(OSError):
                wire.send(connection, *answer)
            for descriptor in answer[1]:
                os.close(descriptor)
            if request.get("op") == "stop" and "error" not in answer[0]:
                os._exit(0)

    def act(self, request: dict[str, Any], descriptors: list[int], connection: socket.socket) -> Answer:
        """Do what a request asks; returns the answer and the descriptors that go with it."""
        op = request.get("op")
        if op == "connect":
            host = self.fleet.host(request["host"])
            return {}, [connect(self.fleet.network.namespace, host.address, request["port"], 10.0).detach()]
        if op == "exec":
            return {"rc": self.run(request["host"], request["argv"], descriptors, connection)}, []
        if op == "up":
            wanted = [(HostSpec.unpacked(spec), [Path(path) for path in spec["lowers"]]) for spec in request["hosts"]]
            self.fleet.up(wanted, hangup(connection))
        elif op == "down":
            self.fleet.down(request["hosts"])
        elif op == "fault":
            self.fleet.fault(request["target"], request["kind"], request["args"])
        elif op == "save":
            self.fleet.save(request["host"], request["layer"])
        elif op == "stop":
            self.end()
        elif op != "status":
            raise LabError(f"unknown request {op!r}")
        return self.fleet.describe(), []

    def run(self, name: str, argv: list[str], descriptors: list[int], connection: socket.socket) -> int:
        """Run a program in a host on the client's own standard streams; it ends when the client goes away."""
        host = self.fleet.host(name)
        stdin, stdout, stderr = descriptors
        process = subprocess.Popen(
            self.fleet.entering(host, argv), stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=(host.cable.namespace,), start_new_session=True
        )
        ended = os.pidfd_open(process.pid)
        try:
            with selectors.DefaultSelector() as waiting:
                waiting.register(ended, selectors.EVENT_READ)
                waiting.register(connection, selectors.EVENT_READ)
                if all(key.fileobj is connection for key, _ in waiting.select()):
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        finally:
            os.close(ended)
        return process.wait()

    def end(self) -> None:
        """Take everything down that outlives the namespaces."""
        with self._ending:
            self.fleet.end()
            self.paths.log.unlink(missing_ok=True)
            shutil.rmtree(self.paths.run, ignore_errors=True)

    def quit(self) -> None:
        """End the lab and this process."""
        self.end()
        os._exit(0)


def hangup(connection: socket.socket) -> threading.Event:
    """Return an event that is set when the client goes away, or has got its answer."""
    gone = threading.Event()

    def watch() -> None:
        # Its request is read; whatever comes now is its end.
        with suppress(OSError, ValueError), selectors.DefaultSelector() as waiting:
            waiting.register(connection, selectors.EVENT_READ)
            waiting.select()
        gone.set()

    threading.Thread(target=watch, daemon=True).start()
    return gone


def hold(child: int) -> None:
    """Collect orphans, as the first process of a namespace has to, until the daemon ends; its end is the end of the namespace."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    while True:
        ended, status = os.wait()
        if ended == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main(name: str) -> None:
    """Hold a lab until it is told to stop."""
    child = os.fork()
    if child:
        hold(child)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        daemon = Daemon(LabPaths(name))
    except LabError as error:
        say(str(error))
        sys.exit(1)

    def told(*_: object) -> None:
        threading.Thread(target=daemon.quit).start()

    signal.signal(signal.SIGTERM, told)
    say(f"{name} is ready")
    daemon.serve()


if __name__ == "__main__":
    main(sys.argv[1])
