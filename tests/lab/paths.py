# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a lab keeps its things, and the numbers that its parts agree on."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("GPU_FLEET_LAB_CACHE", "/var/cache/gpu-fleet-lab"))
RUN = Path("/run/gpu-fleet-lab")

NETWORK = "10.213.7"
GATEWAY = f"{NETWORK}.254"
PREFIX = 24
PROXY_PORT = 3128
SITE_PORT = 80
SSH_PORT = 22
SITE_NAME = "vendor.lab"
MOST_HOSTS = 64

NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


class LabError(Exception):
    """Something that the person at the keyboard can mend; its text says how."""


def default_name() -> str:
    """Return the lab that commands speak to when none is named."""
    return os.environ.get("GPU_FLEET_LAB", "default")


@dataclass(frozen=True)
class LabPaths:
    """The places of one lab."""

    name: str

    def __post_init__(self) -> None:
        """Refuse names that would not do as a folder or a control group."""
        if not NAME.fullmatch(self.name):
            raise LabError(f"lab name {self.name!r}: use a lower-case letter, then letters, digits and '-', 31 at most")

    @property
    def run(self) -> Path:
        """Return the folder of the socket, keys and logs; it exists as long as the lab does."""
        return RUN / self.name

    @property
    def socket(self) -> Path:
        """Return the daemon's socket."""
        return self.run / "lab.sock"

    @property
    def ssh_config(self) -> Path:
        """Return the file for ssh -F."""
        return self.run / "ssh_config"

    @property
    def state(self) -> Path:
        """Return the file that describes the running lab."""
        return self.run / "state.json"

    @property
    def logs(self) -> Path:
        """Return the folder of the hosts' consoles."""
        return self.run / "log"

    @property
    def log(self) -> Path:
        """Return the daemon's log; it outlives a lab that did not end well."""
        return RUN / f"{self.name}.log"

    @property
    def changing(self) -> Path:
        """Return the file that is locked while somebody starts or ends the lab."""
        return RUN / f".{self.name}.changing"

    @property
    def alive(self) -> Path:
        """Return the file that the lab's processes keep locked; it holds the id of the first of them."""
        return RUN / f".{self.name}.alive"

    @property
    def hosts(self) -> Path:
        """Return where the hosts' changes to their image live; on disk, since /run may be small."""
        return CACHE / "hosts" / self.name

    @property
    def cgroup(self) -> str:
        """Return the name of the lab's control group."""
        return f"gpu-fleet-lab-{self.name}"
