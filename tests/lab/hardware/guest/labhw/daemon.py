# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver's services have in common: versions, going into the background, telling systemd."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import sys

LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib64", "/usr/lib/aarch64-linux-gnu")


def library_version() -> str | None:
    """Return the version of the user space driver: the name of the file that programs load."""
    for folder in LIBRARY_FOLDERS:
        link = f"{folder}/libnvidia-ml.so.1"
        if os.path.exists(link):
            return os.path.realpath(link).rpartition(".so.")[2]
    return None


def module_version() -> str | None:
    """Return the version of the loaded driver."""
    try:
        with open("/sys/module/nvidia/version") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def package_version(path: str) -> str | None:
    """Return the upstream version of the package that a file belongs to."""
    owner = ""
    if shutil.which("dpkg-query"):
        owner = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True, check=False).stdout.partition(":")[0]
    if owner:
        shown = subprocess.run(["dpkg-query", "--show", "--showformat=${Version}", owner], capture_output=True, text=True, check=False).stdout
        return shown.rpartition(":")[2].partition("-")[0] or None
    done = subprocess.run(["rpm", "-qf", "--queryformat=%{VERSION}", path], capture_output=True, text=True, check=False)
    return done.stdout or None


def notify(text: str) -> None:
    """Tell systemd something, when it listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(text.encode(), address.replace("@", "\0", 1))


def detach(pid_file: str) -> None:
    """Go on in the background, as a daemon of the old kind; the caller's process ends with success."""
    os.makedirs(os.path.dirname(pid_file), exist_ok=True)
    between = os.fork()
    if between:
        # systemd takes the one process that is left for the daemon.
        os.waitpid(between, 0)
        os._exit(0)
    os.setsid()
    child = os.fork()
    if child:
        with open(pid_file, "w") as file:
            file.write(f"{child}\n")
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def open_devices(*patterns: str) -> list[int]:
    """Open device files and keep them open."""
    return [os.open(path, os.O_RDWR) for pattern in patterns for path in sorted(glob.glob(pattern))]


def wait_for_end() -> None:
    """Sleep until a signal ends the process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()
