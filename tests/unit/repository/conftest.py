# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the repository share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.common import CHECKOUT, tracked_files

SHIPPED = ("plugins", "roles", "playbooks", "meta")


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds; tags such as !vault count as plain text."""
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Give the repository's files, relative to the checkout."""
    return tracked_files()


@pytest.fixture(scope="session")
def shipped(files: list[Path]) -> list[Path]:
    """Give the files that an installation runs."""
    return [path for path in files if path.parts[0] in SHIPPED]


@pytest.fixture(scope="session")
def roles() -> list[Path]:
    """Give the folders of the roles."""
    return sorted(path.parent for path in (CHECKOUT / "roles").glob("*/meta"))
