# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What dkms's logs say of a build that failed; dkms, apt and the kernel say only that it did."""

from __future__ import annotations

import glob
import os
import re

LOGS = "/var/lib/dkms/*/*/build/make.log"
TELLING = re.compile(r"error:|Error \d|No such file|missing|not found", re.I)
MOST_BYTES = 1 << 20


def tail(path: str) -> str:
    """The lines of a log that say what went wrong, or its last ones, as one line."""
    with open(path, "rb") as source:
        source.seek(max(0, os.path.getsize(path) - MOST_BYTES))
        lines = [line.strip() for line in source.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return " | ".join([line for line in lines if TELLING.search(line)][:6] or lines[-6:])[:1500]


def failure_since(start: float) -> str:
    """An addition to a message: what the newest log says that was written after C(start), seconds since the epoch; else nothing."""
    # The clock of a file system lags behind by a tick.
    logs = [path for path in glob.glob(LOGS) if os.path.getmtime(path) >= start - 1]
    if not logs:
        return ""
    newest = max(logs, key=os.path.getmtime)
    return ". %s says: %s" % (newest, tail(newest))
