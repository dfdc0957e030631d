# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs of a test run's own: two runs on one machine never meet, and what a killed run left is taken away by the next."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.client import HostSpec, Lab
from lab.paths import RUN


def own_name(purpose: str) -> str:
    """Return the name that this process's lab for a purpose has."""
    return f"{purpose}-{os.getpid()}"


def sweep(purpose: str) -> None:
    """End the labs for a purpose whose test run is gone."""
    for folder in RUN.glob(f"{purpose}-*"):
        owner = re.fullmatch(rf"{purpose}-(\d+)", folder.name)
        if owner and folder.is_dir() and not Path("/proc", owner.group(1)).exists():
            Lab(folder.name).down()


@contextmanager
def own_lab(purpose: str, hosts: Sequence[HostSpec]) -> Iterator[Lab]:
    """Give running hosts, and take them away at the end."""
    sweep(purpose)
    lab = Lab(own_name(purpose))
    try:
        lab.up(hosts)
        yield lab
    finally:
        lab.down()
