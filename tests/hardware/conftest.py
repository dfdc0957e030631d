# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of every hardware profile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hardware.hosts import DRIVEN, PROFILES, Node
from lab.client import HostSpec
from own_lab import own_lab


@pytest.fixture(scope="session")
def worn() -> Iterator[dict[str, Node]]:
    """Give a bare host of each profile, by the profile's name."""
    names = {profile: f"n{number}" for number, profile in enumerate(PROFILES, 1)}
    with own_lab("hardware-faces", [HostSpec(name, image="debian12", profile=profile) for profile, name in names.items()]) as lab:
        yield {profile: Node(lab, name, profile) for profile, name in names.items()}


@pytest.fixture(scope="module")
def driving(worn: dict[str, Node]) -> dict[str, Node]:
    """Give the hosts that have GPUs for NVIDIA's driver, with that driver at work; two build theirs at a time."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda profile: worn[profile].drive(), DRIVEN))
    return {profile: worn[profile] for profile in DRIVEN}


@pytest.fixture(scope="session")
def eight(worn: dict[str, Node]) -> Node:
    """Give the host with eight GPUs. The tests of a file run in order and hand it on."""
    return worn["h100-sxm8"]
