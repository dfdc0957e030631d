# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every static check is clean; `make lint` runs the same list by itself."""

from __future__ import annotations

import pytest

from tools.lint import CHECKS, Check, perform


@pytest.mark.timeout(900)
@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_static_check_is_clean(check: Check) -> None:
    """The check exits with 0."""
    code, output = perform(check)
    assert code == 0, output[-8000:]
