# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of every test run: the checkout is the collection, and long tests can speak."""

from __future__ import annotations

import os
from pathlib import Path

import progress
import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
# Read by Ansible when it is first imported, which a test module may do.
os.environ.setdefault("ANSIBLE_COLLECTIONS_PATH", str(CHECKOUT / "collections"))
os.environ.setdefault("ANSIBLE_HOME", str(CHECKOUT / ".cache" / "ansible"))
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(CHECKOUT / ".cache" / "hypothesis"))


def pytest_configure(config: pytest.Config) -> None:
    """Let progress reach the terminal."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        progress.reach(capture.global_and_fixture_disabled)


# Before pytest-xdist, whose own hook reads the mark.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a folder in one process and in order where several run: they hand their hosts on."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.relative_to(CHECKOUT / "tests").parts[0]))
