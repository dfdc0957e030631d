# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a lab and the file that makes a plain ssh find its hosts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab.machine import call
from lab.paths import LabPaths

CLIENT_KEY = "id_ed25519"
HOST_KEY = "host_ed25519"


def make_keys(paths: LabPaths) -> None:
    """Make the key that opens the hosts and the one that the hosts show, and write what ssh reads."""
    for name in (CLIENT_KEY, HOST_KEY):
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"lab {paths.name}", "-f", paths.run / name)
    kind, key = (paths.run / f"{HOST_KEY}.pub").read_text().split()[:2]
    (paths.run / "known_hosts").write_text(f"* {kind} {key}\n")
    paths.ssh_config.write_text(ssh_config(paths))


def ssh_config(paths: LabPaths) -> str:
    """Return the settings for ssh -F: connections come from the daemon, and only the lab's own key is accepted."""
    connector = Path(__file__).with_name("connect.py")
    return (
        "Host *\n"
        f"  IdentityFile {paths.run / CLIENT_KEY}\n  IdentitiesOnly yes\n  User root\n"
        f"  UserKnownHostsFile {paths.run}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        f'  ProxyCommand "{sys.executable}" -S -E "{connector}" {paths.socket} %h %p\n  ProxyUseFdpass yes\n'
        "  BatchMode yes\n  ConnectTimeout 10\n  ServerAliveInterval 5\n  ServerAliveCountMax 3\n  LogLevel ERROR\n"
    )


def close_masters(paths: LabPaths) -> None:
    """End the shared ssh connections into a lab: each would keep a socket in the lab's network alive."""
    for control in paths.run.glob("control-*"):
        subprocess.run(["ssh", "-F", "none", "-o", f"ControlPath={control}", "-O", "exit", "lab"], capture_output=True, check=False)
