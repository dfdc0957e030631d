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

from lab.cgroups import hierarchies
from lab.paths import LabError

# Program or file that proves a package is there -> package.
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "nft": "nftables",
    "ip": "iproute2",
    "tc": "iproute2",
    "iperf3": "iperf3",
    "apt-ftparchive": "apt-utils",
    "dpkg-deb": "dpkg",
    "gpg": "gnupg",
    "gpgv": "gpgv",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    "unshare": "util-linux",
}
NAMESPACES = ("--mount", "--pid", "--net", "--cgroup", "--time", "--fork")


def say(text: str) -> None:
    """Show one line of progress."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def lacking() -> list[str]:
    """Return the packages that have to be installed."""
    return sorted({package for proof, package in TOOLS.items() if not (Path(proof).exists() if proof[0] == "/" else shutil.which(proof))})


def install_tools() -> None:
    """Install what is missing of the tools, once."""
    missing = lacking()
    if not missing:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for package in missing:
        say(f"installing {package} with apt-get")
    for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(["apt-get", *step], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise LabError(f"apt-get {step[0]} failed: {' '.join(done.stderr.strip().splitlines()[-2:])}")


def check() -> None:
    """Refuse in one line when the machine cannot carry a lab; install what apt can."""
    if os.geteuid() != 0:
        raise LabError("the lab needs root (it makes namespaces, mounts and control groups): run it with sudo")
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        raise LabError("the lab needs Debian 12 or newer on this machine: its images come from the machine's own apt sources")
    done = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"this machine does not allow namespaces (a container without privileges?): {' '.join(done.stderr.split())}")
    if not all(os.access(root / "cgroup.procs", os.W_OK) for root in hierarchies()):
        raise LabError(f"no control groups can be made in {' and '.join(map(str, hierarchies()))} (is /sys/fs/cgroup mounted?)")
    install_tools()


def call(*argv: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program and raise with its last words when it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise LabError(f"{' '.join(str(word) for word in argv)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done  # type: ignore[no-any-return]
