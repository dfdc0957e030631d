# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs of pytest end as one: nothing that failed in the first is lost behind the second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tools.common import ToolError
from tools.junit import merge

FIRST = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2
@pytest.fixture
def broken(): raise ValueError
def test_error(broken): pass
"""
SECOND = """
import pytest
def test_good(): pass
def test_left_out(): pytest.importorskip("no_such_module")
"""


def report(folder: Path, name: str, tests: str) -> Path:
    """Run real tests and return the report."""
    (folder / f"test_{name}.py").write_text(tests)
    path = folder / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), f"test_{name}.py", "--junit-xml", str(path)]
    subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)
    return path


def test_the_end_names_what_failed_in_any_of_them(tmp_path: Path) -> None:
    reports = [report(tmp_path, "first", FIRST), report(tmp_path, "second", SECOND)]
    first, second, last = merge(reports, tmp_path / "whole.xml").splitlines()
    assert {first, second} == {"FAILED test_first.py::test_bad", "FAILED test_first.py::test_error"}
    assert last.startswith("============ 1 failed, 2 passed, 1 skipped, 1 errors in ")
    assert len(list(ET.parse(tmp_path / "whole.xml").iter("testcase"))) == 5


def test_a_run_that_left_no_report_is_no_success(tmp_path: Path) -> None:
    good = report(tmp_path, "second", SECOND)
    with pytest.raises(ToolError, match="with-hosts ended without a report"):
        merge([good, tmp_path / "with-hosts.xml"], tmp_path / "whole.xml")
