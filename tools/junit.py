# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several reports of pytest as one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from tools.common import ToolError

BROKEN = ("failure", "error")


def merge(reports: Iterable[Path], into: Path) -> str:
    """Write all suites into one report and return what pytest would say last of all of them; a report that is missing is an error."""
    whole = ET.Element("testsuites")
    for report in reports:
        if not report.exists():
            raise ToolError(f"{report.stem} ended without a report")
        whole.extend(ET.parse(report).getroot().iter("testsuite"))
    ET.ElementTree(whole).write(into, encoding="utf-8", xml_declaration=True)
    return "\n".join([*(f"FAILED {name}" for name in failed(whole)), summary(whole)])


def failed(whole: ET.Element) -> list[str]:
    """Names of the tests that did not pass."""
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in whole.iter("testcase")
        if any(case.find(kind) is not None for kind in BROKEN)
    ]


def summary(whole: ET.Element) -> str:
    """Return the counts and the seconds of all suites, the way pytest ends a run."""
    suites = list(whole)
    count = {kind: sum(int(suite.get(kind, 0)) for suite in suites) for kind in ("tests", "failures", "errors", "skipped")}
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    passed = count["tests"] - count["failures"] - count["errors"] - count["skipped"]
    counts = ((count["failures"], "failed"), (passed, "passed"), (count["skipped"], "skipped"), (count["errors"], "errors"))
    words = [f"{number} {word}" for number, word in counts if number]
    return f"============ {', '.join(words) or 'no tests ran'} in {seconds:.2f}s ============"
