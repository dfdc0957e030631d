#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the tests: `unit`, `role NAME`, or `all`; the last line is the summary, in pytest's words."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from lab.machine import check
from lab.paths import LabError

from tools.common import BIN, BUILD, CHECKOUT, ToolError, environment, run
from tools.junit import merge

REPORTS = BUILD / "test"
# What fails fast comes first; what needs hosts comes in the order in which one part builds on another.
WITHOUT_HOSTS = ("tests/static", "tests/unit")
WITH_HOSTS = ("tests/lab_self", "tests/hardware", "tests/transaction", "tests/roles", "tests/integration")


def pytest(*words: str, report: str = "junit") -> int:
    """Run pytest on the checkout."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    return run([BIN / "pytest", "--junit-xml", REPORTS / f"{report}.xml", *words], environment())


def everything() -> int:
    """Run all tests, two at a time; of those with hosts two folders, as the tests of one hand their hosts on."""
    parts = {"without-hosts": ("--dist=worksteal", *WITHOUT_HOSTS), "with-hosts": ("--verbose", "--dist=loadscope", *WITH_HOSTS)}
    reports = [REPORTS / f"{name}.xml" for name in parts]
    for report in reports:
        report.unlink(missing_ok=True)
    codes = [pytest("--numprocesses=2", "--timeout=1200", *words, report=name) for name, words in parts.items()]
    print(merge(reports, REPORTS / "junit.xml"))
    return next((code for code in codes if code), 0)


def role_test(role: str) -> int:
    """Run the scenario of a role."""
    if not (CHECKOUT / "molecule" / role / "converge.yml").exists():
        known = sorted(path.parent.name for path in (CHECKOUT / "molecule").glob("*/converge.yml"))
        print(f"make test-role: no scenario for role {role!r}; say ROLE= one of {', '.join(known)}", file=sys.stderr)
        return 2
    return pytest("--verbose", "tests/roles/test_roles.py", "-k", f"test_role[{role}]")


def main(words: list[str]) -> int:
    """Run what the command line names."""
    if words == ["unit"]:
        return pytest("tests/unit", "--numprocesses=2", "--timeout=60")
    try:
        check()
    except LabError as error:
        print(f"make test: {error} (make test-unit needs none of it)", file=sys.stderr)
        return 1
    if len(words) == 2 and words[0] == "role":
        return role_test(words[1])
    if words == ["all"]:
        return everything()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolError as error:
        sys.exit(f"make test: {error}")
    except KeyboardInterrupt:
        print("interrupted; the same command starts over, its hosts are gone", file=sys.stderr)
        sys.exit(130)
