# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of every test run: the checkout is the collection, and long tests can speak."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import progress
import pytest
from xdist.scheduler import LoadScopeScheduling

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


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a folder in one process and in order: they hand their hosts on."""

    def _split_scope(self, nodeid: str) -> str:
        return "/".join(nodeid.split("/")[:2])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let `--dist=loadscope` mean folders."""
    return ByFolder(config, log) if config.getoption("dist") == "loadscope" else None
