# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs that the whole-playbook tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.client import HostSpec, Lab
from own_lab import own_lab


@pytest.fixture(scope="session")
def cluster() -> Iterator[Lab]:
    """Give two bare eight-GPU nodes; the tests of one file run in order and hand them on."""
    hosts = [HostSpec("n1", image="debian12", profile="h100-sxm8"), HostSpec("n2", image="debian12", profile="h100-sxm8")]
    with own_lab("integration", hosts) as lab:
        yield lab


@pytest.fixture(scope="module")
def plain_pair() -> Iterator[Lab]:
    """Give two bare nodes without GPUs, for the test that pulls a plug."""
    hosts = [HostSpec("n1", image="debian12", profile="none"), HostSpec("n2", image="debian12", profile="none")]
    with own_lab("unplugged", hosts) as lab:
        yield lab
