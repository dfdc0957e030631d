# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-persistenced: keeps every GPU open, so that the driver does not shut it down."""

from __future__ import annotations

import os
import pwd
import sys

from . import modprobe
from .daemon import detach, library_version, module_version, open_devices, wait_for_end

PID_FILE = "/run/nvidia-persistenced/nvidia-persistenced.pid"


def main(words: list[str]) -> int:
    """Start the daemon; options as the real one's, of which only --user, --no-persistence-mode and --version mean something here."""
    if "--version" in words:
        print(f"nvidia-persistenced:  version {library_version()}")
        return 0
    if module_version() is None and os.path.exists(modprobe.PROGRAM):
        modprobe.main([])
    devices = open_devices("/dev/nvidiactl", "/dev/nvidia[0-9]*")
    if not devices or library_version() != module_version():
        print("nvidia-persistenced failed to initialize. Check syslog for more details.", file=sys.stderr)
        return 1
    user = option(words, "--user")
    os.makedirs(os.path.dirname(PID_FILE), exist_ok=True)
    account = None
    if user:
        try:
            account = pwd.getpwnam(user)
        except KeyError:
            print(f"nvidia-persistenced failed to initialize. Failed to find user ID of user '{user}'", file=sys.stderr)
            return 1
        os.chown(os.path.dirname(PID_FILE), account.pw_uid, account.pw_gid)
    detach(PID_FILE)
    if account:
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    try:
        wait_for_end()
    finally:
        os.unlink(PID_FILE)
    return 0


def option(words: list[str], name: str) -> str | None:
    """Return an option's value, written with a blank or an equals sign."""
    for number, word in enumerate(words):
        if word == name and number + 1 < len(words):
            return words[number + 1]
        if word.startswith(name + "="):
            return word.partition("=")[2]
    return None
