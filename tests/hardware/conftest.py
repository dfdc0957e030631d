# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of every hardware profile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hardware.hosts import Node
from lab import hardware
from lab.client import HostSpec
from own_lab import own_lab


@pytest.fixture(scope="session")
def worn() -> Iterator[dict[str, Node]]:
    """Give a bare host of each profile, by the profile's name."""
    names = {profile: f"n{number}" for number, profile in enumerate(hardware.profiles(), 1)}
    with own_lab("hardware-faces", [HostSpec(name, image="debian12", profile=profile) for profile, name in names.items()]) as lab:
        yield {profile: Node(lab, name, profile) for profile, name in names.items()}


@pytest.fixture(scope="session")
def eight(worn: dict[str, Node]) -> Node:
    """Give the host with eight GPUs. The tests of a file run in order and hand it on."""
    return worn["h100-sxm8"]
