# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change would disturb, and when it has to wait."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _consent
from fixtures.nodes import NEW, OLD, job
from fixtures.stack import driver

WANTED = {"version": NEW, "flavour": "open"}
UNITS = ["nvidia-persistenced.service", "nvidia-fabricmanager.service"]
IDLE = {"jobs": [], "holders": 0}
PACKAGE, FILE, MODULE = ["package:libcuda1"], ["file:/etc/x"], ["module:nvidia"]


def foreseen(found: dict[str, Any], differs: list[str], busy: Any = IDLE) -> dict[str, Any]:
    return _consent.consequences({"driver": found, "busy": busy}, WANTED, differs, UNITS)


@pytest.mark.parametrize(
    ("found", "differs", "reload", "reboot", "restarts"),
    [
        (driver(), PACKAGE, False, False, False),
        (driver(OLD), PACKAGE, True, False, True),
        (driver(OLD), MODULE, True, False, True),
        (driver(NEW), PACKAGE, False, False, True),
        (driver(NEW), FILE, False, False, False),
        (driver(NEW, flavour="proprietary"), PACKAGE, True, False, True),
        (driver(nouveau_loaded=True), PACKAGE, False, True, False),
        (driver(nouveau_loaded=True), [], False, False, False),
    ],
)
def test_consequences(found: dict[str, Any], differs: list[str], reload: bool, reboot: bool, restarts: bool) -> None:
    seen = foreseen(found, differs)
    assert (seen["reload"], seen["reboot"], seen["restarts"]) == (reload, reboot, sorted(UNITS) if restarts else [])
    assert (seen["downtime_s"] > 0) is (reload or reboot)


def test_no_wanted_driver_has_no_consequences() -> None:
    seen = _consent.consequences({"driver": driver(OLD), "busy": IDLE}, None, [], [])
    assert seen == {"reload": False, "reboot": False, "restarts": [], "holders": [], "downtime_s": 0}


@pytest.mark.parametrize(
    ("busy", "found", "held"),
    [(IDLE, driver(NEW), False), (job(), driver(NEW), True), (None, driver(NEW), True), (None, driver(), False)],
)
def test_who_could_not_be_looked_for_may_be_there(busy: Any, found: dict[str, Any], held: bool) -> None:
    assert bool(_consent.holders({"driver": found, "busy": busy})) is held


@pytest.mark.parametrize("disruption", ["never", "idle", "drain"])
@pytest.mark.parametrize("busy", [IDLE, job()])
@pytest.mark.parametrize("differs", [PACKAGE, FILE, MODULE])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_pending(disruption: str, busy: Any, differs: list[str], version: str) -> None:
    seen = foreseen(driver(version), differs, busy)
    item = _consent.driver_pending({"disruption": disruption, "host": None}, WANTED, seen, differs)
    due = differs is not FILE and (bool(busy["jobs"]) or (version == OLD and disruption != "idle"))
    assert (item is not None) is due
    if item:
        assert item["value"]["seen"] == disruption and item["value"]["needed"] == "idle"
        assert "--limit HOST " in item["command"] and ("once no process" in item["command"]) is bool(busy["jobs"])
