# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A served site, and clients of it, for the tests of the vendor's site."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

from lab.vendor import serve, set_fault
from lab.vendor.site import SiteTree


class Served:
    """A running site."""

    def __init__(self, tree: SiteTree, folder: Path) -> None:
        """Serve on a free port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.tree = tree
        self.control = folder / "site.json"
        self.control.write_text("{}")
        self.ended = threading.Event()
        self.thread = threading.Thread(target=serve, args=(tree, "127.0.0.1", self.port, self.control), kwargs={"stop": self.ended})
        self.thread.start()
        self.wait(True)

    def wait(self, listening: bool) -> None:
        """Wait until somebody listens, or until nobody does."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with socket.socket() as probe:
                if (probe.connect_ex(("127.0.0.1", self.port)) == 0) == listening:
                    return
            time.sleep(0.02)
        raise AssertionError(f"listening: {not listening}")

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Ask for a path; words of header names are joined by an underscore."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def fault(self, kind: str, *args: str) -> None:
        """Set a fault."""
        set_fault(self.control, kind, list(args))

    def requests(self) -> list[dict[str, object]]:
        """Return the request log."""
        return [json.loads(line) for line in self.control.with_suffix(".log").read_text().splitlines()]

    def requested(self, count: int) -> list[dict[str, object]]:
        """Wait until the log tells of that many requests (a line follows its answer) and return it."""
        end = time.monotonic() + 10
        while len(self.requests()) < count and time.monotonic() < end:
            time.sleep(0.02)
        return self.requests()


class Apt:
    """The real apt with a root of its own: it knows this site and a distribution that has what the table says."""

    def __init__(self, folder: Path, port: int, tree: SiteTree, platform: str = "debian12") -> None:
        """Lay the root out."""
        self.root = folder
        for part in (
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "etc/apt/sources.list.d",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
        ):
            (folder / part).mkdir(parents=True)
        self.status = folder / "var/lib/dpkg/status"
        self.status.parent.mkdir(parents=True)
        self.distribution = "".join(stanza(name, "99") for name in ("adduser", "debconf", "dkms", "libc6"))
        self.status.write_text(self.distribution)
        self.ring = folder / "etc/apt/vendor.asc"
        shutil.copy(tree.key, self.ring)
        url = f"http://127.0.0.1:{port}/compute/cuda/repos/{platform}/x86_64/"
        (folder / "etc/apt/sources.list").write_text(f"deb [signed-by={self.ring}] {url} /\n")
        self.configuration = folder / "apt.conf"
        self.configuration.write_text(
            f'Dir "{folder}/";\nDir::State::status "{self.status}";\nDir::Bin::methods "/usr/lib/apt/methods/";\nDir::Etc::trustedparts "none";\n'
            'APT::Architecture "amd64";\nAPT::Architectures {"amd64";};\nAPT::Sandbox::User "root";\nAcquire::Languages "none";\n'
            'Acquire::Retries "0";\nAcquire::http::Timeout "5";\nAcquire::http::Proxy "DIRECT";\nDebug::NoLocking "1";\n'
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run apt-get."""
        environment = {"PATH": os.environ["PATH"], "APT_CONFIG": str(self.configuration), "LC_ALL": "C"}
        line = ["apt-get", "-q", "-o", "Dir::State::extended_states=/dev/null", *words]
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=60)

    def plan(self, *packages: str) -> dict[str, str]:
        """Return what apt would install, by name."""
        done = self("-s", "--no-install-recommends", "--allow-downgrades", "install", *packages)
        assert done.returncode == 0, done.stdout + done.stderr
        words = [line.split() for line in done.stdout.splitlines() if line.startswith("Inst ")]
        return {word[1]: next(part for part in word[2:] if part.startswith("(")).lstrip("(") for word in words}


def stanza(name: str, version: str) -> str:
    """Return the record of an installed package."""
    return (
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n"
        "Maintainer: none <none@none.invalid>\nDescription: part of the distribution\n\n"
    )
