# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two hosts that the lab's own tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.client import HostSpec, Lab
from own_lab import own_lab


@pytest.fixture(scope="session")
def pair() -> Iterator[Lab]:
    """Give two plain hosts, n1 and n2; each test leaves them up, whole and reachable."""
    with own_lab("self", [HostSpec("n1"), HostSpec("n2")]) as lab:
        yield lab
