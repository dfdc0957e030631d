# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A repository on a host that calls itself the distribution's updates and would push the driver out."""

from __future__ import annotations

import base64

from hardware.hosts import Node
from lab.vendor import repodata
from lab.vendor.rpm import Rpm, build_rpm

FOLDER = "/srv/poison"
REPO = "/etc/yum.repos.d/zz-updates.repo"
CONTENT = f"[zz-updates]\nname=Updates\nbaseurl=file://{FOLDER}\ngpgcheck=0\nmodule_hotfixes=1\n"
# What is on the host from the start, and innocent.
AGENT = Rpm("site-agent", "1.0-1", "x86_64", "Agent of the site")
HIGHER = ("nvidia-modprobe", "nvidia-persistenced")
# What the rest of the driver asks for.
EQUAL = "(= 3:580.178.04)"
# Higher versions of what a driver is made of, something that takes its place, and an agent whose next version has none of it beside it.
PACKAGES = (
    AGENT,
    *(Rpm(name, "4:999.1-1", "x86_64", name, relations={"provides": [f"{name} {EQUAL}", f"{name}(x86-64) {EQUAL}"]}) for name in HIGHER),
    Rpm(
        "nvidia-driver-next", "999.1-1", "x86_64", "Another driver",
        relations={"obsoletes": ["libnvidia-gpucomp"], "provides": [f"libnvidia-gpucomp(x86-64) {EQUAL}"]},
    ),
    Rpm("site-agent", "2.0-1", "x86_64", "Agent of the site", relations={"conflicts": ["nvidia-driver-cuda-libs"]}),
)  # fmt: skip


def prepare(node: Node) -> None:
    """Put the packages there and install the innocent one; the repository is not known to dnf yet."""
    node("mkdir", "-p", f"{FOLDER}/repodata")
    entries = []
    for rpm in PACKAGES:
        data, header = build_rpm(rpm)
        put(node, f"{FOLDER}/{rpm.filename}", data)
        entries.append(repodata.entry(rpm, data, header))
    for path, data in repodata.lists(entries, "", 0).items():
        put(node, f"{FOLDER}/{path}", data)
    node("rpm", "-i", f"{FOLDER}/{AGENT.filename}")


def put(node: Node, path: str, data: bytes) -> None:
    """Write a file on the host."""
    done = node.lab.run(node.name, f"base64 -d >{path}", base64.b64encode(data).decode())
    assert done.returncode == 0, done.stderr


def offer(node: Node, on: bool = True) -> None:
    """Let dnf know the repository, or forget it."""
    if on:
        node.lab.run(node.name, f"cat >{REPO}", CONTENT)
    else:
        node("rm", "-f", REPO)
