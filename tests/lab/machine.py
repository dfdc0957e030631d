# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine under the lab must offer: root, Debian, namespaces, and a few tools that apt installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab.paths import LabError

# Program that proves a package is there -> package.
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "ip": "iproute2",
    "tc": "iproute2",
    "iperf3": "iperf3",
    "apt-ftparchive": "apt-utils",
    "dpkg-deb": "dpkg",
    "gpg": "gnupg",
    "gpgv": "gpgv",
    "ssh": "openssh-client",
    "gcc": "gcc",
    "unshare": "util-linux",
}


def say(text: str) -> None:
    """Show one line of progress."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def install_tools() -> None:
    """Install what is missing of the tools, once."""
    missing = sorted({package for program, package in TOOLS.items() if shutil.which(program) is None})
    if not missing:
        return
    say(f"installing {' '.join(missing)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing, "libc6-dev"]):
        done = subprocess.run(["apt-get", *step], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"apt-get {step[0]} failed: {done.stderr.strip().splitlines()[-1:]}")


def check() -> None:
    """Refuse in one line when the machine cannot carry a lab."""
    if os.geteuid() != 0:
        raise LabError("the lab needs root (it makes namespaces, mounts and control groups): run it with sudo")
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        raise LabError("the lab needs Debian 12 or newer on this machine: its images come from the machine's own apt sources")
    done = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"this machine does not allow namespaces: {done.stderr.strip()}")
    install_tools()


def call(*argv: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program and raise with its last words when it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise LabError(f"{' '.join(str(word) for word in argv)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done  # type: ignore[no-any-return]
