# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One built site for all tests of the lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.vendor.site import SiteTree, build
from unit.lab.vendor_clients import Served


@pytest.fixture(scope="session")
def vendor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache of this run's own, so that tests neither need nor touch the machine's."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def site(vendor_cache: Path) -> SiteTree:
    """Give the vendor's site, built."""
    return build(vendor_cache)


@pytest.fixture
def served(site: SiteTree, tmp_path: Path) -> Iterator[Served]:
    """Give a site that is up, and take it down."""
    running = Served(site, tmp_path)
    yield running
    running.ended.set()
    running.thread.join(10)
    assert not running.thread.is_alive()
