# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make catalog-check names what the calendar has overtaken, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from typing import Any

import pytest

from tools import catalog_check
from tools.catalog import entries, load
from tools.common import CHECKOUT

NOW = date(2026, 11, 30)


def branch(number: int, end: str | None, read: str = "2026-11-30", **more: Any) -> dict[str, Any]:
    """Return a driver branch."""
    return {"branch": number, "end_of_life": end, "packaged": [], "source": "notes", "date": read, **more}


def made(**parts: Any) -> dict[str, Any]:
    """Return a catalog of these parts, with one entry that nothing is wrong with."""
    return {"schema": 2, "gpus": {"2330": {"model": "H100", "source": "a table", "date": "2026-11-30"}}, **parts}


@pytest.mark.parametrize(
    ("parts", "days", "code", "lines"),
    [
        ({}, 90, 0, []),
        ({"driver_branches": [branch(620, "2029-09-30"), branch(590, None), branch(580, "2026-11-30")]}, 90, 0, []),
        ({"driver_branches": [branch(535, "2026-11-29")]}, 90, 1, ["driver_branches 535: out of support since 2026-11-29"]),
        (
            {"driver_branches": [branch(535, "2026-06-30", packaged=["debian", "ubuntu"])]}, 90, 1,
            ["driver_branches 535: out of support since 2026-06-30; still installable on debian, ubuntu"],
        ),
        ({"driver_branches": [branch(580, None, "2026-09-01")]}, 90, 0, []),
        ({"driver_branches": [branch(580, None, "2026-08-31")]}, 90, 1, ["notes: read 91 days ago (2026-08-31), for driver_branches 580"]),
        ({"driver_branches": [branch(580, None, "2026-11-29")]}, 0, 1, ["notes: read 1 days ago (2026-11-29), for driver_branches 580"]),
        (
            {"gpus": {name: {"source": "ids", "date": "2026-01-01"} for name in ("20b0", "20b2", "2330", "2335", "2901")}}, 90, 1,
            ["ids: read 333 days ago (2026-01-01), for gpus 20b0, gpus 20b2, gpus 2330 and 2 more"],
        ),
        (
            {"driver_packages": {"el": [{"branches": [535, 620], "source": "lists", "date": "2026-01-01"}]}}, 90, 1,
            ["lists: read 333 days ago (2026-01-01), for driver_packages el 535, 620"],
        ),
    ],
)  # fmt: skip
def test_what_is_past_its_date(
    parts: dict[str, Any], days: int, code: int, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalog_check, "load", lambda: made(**parts))
    assert catalog_check.main(["--days", str(days)], NOW) == code
    printed = capsys.readouterr().out.splitlines()
    assert printed[:-1] == lines and printed[-1].startswith("2026-11-30: ")


def test_the_catalog_of_this_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    """On the day on which all of it was read, only what was out of support by then."""
    assert catalog_check.main([], NOW) == 1
    printed = capsys.readouterr().out
    assert "driver_branches 535: out of support since 2026-06-30" in printed and "580" not in printed
    assert printed.splitlines()[-1].endswith("0 sources read more than 90 days ago")
    assert catalog_check.main([], date(2027, 3, 1)) == 1
    assert "91 days ago (2026-11-30)" in capsys.readouterr().out
    assert catalog_check.main([], date(2023, 1, 1)) == 0


def test_no_two_entries_have_one_name() -> None:
    """A line that names an entry has to lead to it."""
    known = load()
    names = [name for part in known for name, _ in entries(known[part], part)]
    assert len(names) > 300
    assert {name for name in names if names.count(name) > 1} == set()


def test_the_day_is_the_machine_s_own() -> None:
    done = subprocess.run([sys.executable, CHECKOUT / "tools" / "catalog_check.py"], capture_output=True, text=True, check=False)
    day = done.stdout.splitlines()[-1].partition(":")[0]
    assert date.fromisoformat(day) in (date.today(), date.fromordinal(date.today().toordinal() - 1))
    assert done.returncode == (1 if len(done.stdout.splitlines()) > 1 else 0)


@pytest.mark.parametrize("words", [["--days", "-1"], ["--days", "many"], ["--weeks", "2"]])
def test_a_wrong_word_is_an_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        catalog_check.main(words, NOW)
    assert ended.value.code == 2 and words[0] in capsys.readouterr().err
