# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the bare tree of a suite with mmdebstrap: the slow part of an image, which changes of the simulators do not touch."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from pathlib import Path

from lab.machine import say
from lab.paths import CACHE, LabError
from lab.proxy import Proxy, Upstream
from lab.sources import settings

PACKAGES = (
    "systemd systemd-sysv dbus openssh-server python3 sudo iproute2 iputils-ping nftables iperf3 ca-certificates curl procps "
    "kmod pciutils tzdata less infiniband-diags "
    # What a kernel module is built with. The kernel that a host reports must have headers that can be had, or dkms could build nothing.
    "dkms gcc make libc6-dev linux-headers-cloud-amd64"
)
OPTIONS = (
    "--variant=minbase",
    "--format=directory",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    '--aptopt=Acquire::Languages "none"',
    "--skip=cleanup/apt/lists",
)
STEPS = ("running apt-get update", "downloading packages", "extracting archives", "installing essential", "installing remaining", "cleaning")


def bootstrap(suite: str, sources: str, target: Path, packages: str = "") -> None:
    """Build the tree of a suite at `target` from a deb822 text; packages that an interrupted build fetched are not fetched again."""
    apt = settings()
    proxy = Proxy(("127.0.0.1", 0), CACHE / "downloads", Upstream.of_the_machine(apt))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    apt["Acquire::http::Proxy"] = f"http://127.0.0.1:{proxy.server_address[1]}"
    with tempfile.NamedTemporaryFile("w", prefix="lab-", suffix=".sources") as file:
        file.write(sources)
        file.flush()
        words = [*OPTIONS, f"--include={','.join(f'{PACKAGES} {packages}'.split())}", *(f'--aptopt={name} "{value}"' for name, value in apt.items())]
        process = subprocess.Popen(["mmdebstrap", *words, suite, str(target), file.name], stderr=subprocess.PIPE, text=True, errors="replace")
        said = []
        for line in process.stderr or ():
            said.append(line.strip())
            step = line.removeprefix("I: ").strip()
            if step.startswith(STEPS):
                say(f"{suite} tree: {step.rstrip('.')}")
        if process.wait():
            raise LabError(f"mmdebstrap could not build {suite}: {' '.join(line for line in said[-6:] if line)[-600:]}")
    proxy.shutdown()
    # Holds the addresses of this build; the hosts get settings of their own.
    (target / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
    # mmdebstrap names the file after the temporary one above.
    for written in (target / "etc/apt/sources.list.d").glob("*.sources"):
        written.rename(written.with_name("debian.sources"))
