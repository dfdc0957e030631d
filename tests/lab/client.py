# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Speaks to a lab's daemon, and starts it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import wire
from lab.hosts import HostSpec
from lab.images import lowers
from lab.machine import check, say
from lab.paths import CACHE, LabError, LabPaths, default_name
from lab.vendor import prepare_wheels

__all__ = ["HostSpec", "Lab", "LabError"]
START_SECONDS = 600.0


class Lab:
    """A lab by its name; it need not be up."""

    def __init__(self, name: str | None = None) -> None:
        """Name the lab; without a name the one of $GPU_FLEET_LAB, or "default"."""
        self.name = name or default_name()
        self.paths = LabPaths(self.name)

    def ask(self, op: str, descriptors: list[int] | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request to the daemon and return its answer; raises LabError with the daemon's words."""
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.paths.socket))
            except OSError:
                raise LabError(f"lab {self.name} is not up; start it with: tests/lab/lab up --lab {self.name}") from None
            wire.send(connection, {"op": op, **fields}, descriptors)
            answer, _ = wire.receive(connection)
        if not answer:
            if op == "stop":
                return {}
            raise LabError(f"lab {self.name} ended before it answered; see {self.paths.run}.log")
        if "error" in answer:
            raise LabError(answer["error"])
        return answer

    def running(self) -> bool:
        """Tell whether the lab's daemon answers."""
        try:
            self.ask("status")
        except LabError:
            return False
        return True

    def start(self) -> None:
        """Start the daemon, after what a crash may have left is swept away."""
        if self.running():
            return
        check()
        self.sweep()
        self.paths.run.mkdir(parents=True, mode=0o700)
        log = Path(f"{self.paths.run}.log")
        wrapper = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "lab.daemon", self.name],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1]), "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        (self.paths.run / "wrapper.pid").write_text(str(process.pid))
        shown = 0
        end = time.monotonic() + START_SECONDS
        while not self.running():
            lines = log.read_text(errors="replace").splitlines()
            for line in lines[shown:]:
                if line.startswith("lab: "):
                    print(line, file=sys.stderr, flush=True)
            shown = len(lines)
            if process.poll() is not None or time.monotonic() > end:
                self.sweep()
                raise LabError(f"lab {self.name} did not start: {lines[-1] if lines else 'no word'} (whole log: {log})")
            time.sleep(0.1)

    def sweep(self) -> None:
        """Remove what a lab that did not end well left behind."""
        from lab.daemon import remove_groups  # noqa: PLC0415  (the daemon's imports are heavy, and only needed here)

        pid_file = self.paths.run / "wrapper.pid"
        if pid_file.exists() and self.name in _command_line(int(pid_file.read_text())):
            os.kill(int(pid_file.read_text()), 9)
            time.sleep(0.2)
        remove_groups(self.paths)
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.paths.run), str(self.paths.hosts)], check=True)

    def up(self, hosts: Sequence[HostSpec]) -> None:
        """Bring hosts up, and the lab itself when it is not; hosts that run stay as they are."""
        check()
        for image in sorted({host.image for host in hosts}):
            # Built here and not in the daemon, so that its progress is seen and Ctrl-C reaches it.
            lowers(image)
        try:
            prepare_wheels(CACHE)
        except LabError as error:
            # Most of what a lab is for needs no torch; what does fails at its own install with this said before.
            say(f"the site has no wheels: {error}")
        self.start()
        wanted = [{"name": host.name, "image": host.image, "profile": host.profile, "layers": list(host.layers)} for host in hosts]
        self.ask("up", hosts=wanted)

    def down(self, hosts: Sequence[str] = ()) -> None:
        """Take hosts away, or the whole lab with everything that it made."""
        if hosts:
            self.ask("down", hosts=list(hosts))
            return
        if self.running():
            try:
                self.ask("stop")
            except LabError as error:
                say(f"the daemon did not stop by itself ({error})")
            for _ in range(600):
                if not self.paths.run.exists():
                    break
                time.sleep(0.05)
        self.sweep()

    def status(self) -> dict[str, Any]:
        """Return the state of the lab."""
        return self.ask("status")

    def fault(self, target: str, kind: str, *args: str) -> None:
        """Break or mend a host, its hardware, or the vendor's site."""
        self.ask("fault", target=target, kind=kind, args=list(args))

    def save(self, host: str, layer: str) -> None:
        """Keep what a host wrote as a layer for other hosts."""
        self.ask("save", host=host, layer=layer)

    @staticmethod
    def has_layer(layer: str) -> bool:
        """Tell whether a saved layer exists."""
        return (CACHE / "layers" / layer).is_dir()

    def run(self, host: str, argv: Sequence[str] | str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program in a host (a string goes to its shell) and return what it gave; needs no ssh."""
        words = ["sh", "-c", argv] if isinstance(argv, str) else list(argv)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            answer = self.ask("exec", [given.fileno(), out.fileno(), err.fileno()], host=host, argv=words)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, answer["rc"], out.read().decode(errors="replace"), err.read().decode(errors="replace"))

    def ssh(self, host: str, words: Sequence[str] = ()) -> list[str]:
        """Return the ssh command line for a host."""
        return ["ssh", "-F", str(self.paths.ssh_config), host, *([shlex.join(words)] if words else [])]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
