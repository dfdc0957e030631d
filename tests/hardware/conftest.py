# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of every hardware profile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hardware.hosts import Node
from lab import hardware
from lab.client import HostSpec, Lab


@pytest.fixture(scope="session")
def worn() -> Iterator[dict[str, Node]]:
    """Give a bare host of each profile, by the profile's name."""
    lab = Lab("hardware-faces")
    lab.down()
    nodes = {profile: Node(lab, f"n{number}", profile) for number, profile in enumerate(hardware.profiles(), 1)}
    lab.up([HostSpec(node.name, image="debian12", profile=node.profile) for node in nodes.values()])
    yield nodes
    lab.down()


@pytest.fixture(scope="session")
def eight(worn: dict[str, Node]) -> Node:
    """Give the host with eight GPUs. The tests of a file run in order and hand it on."""
    return worn["h100-sxm8"]
