# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job: bare hosts become a verified fleet; check mode told it before; a second run finds nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from integration.harness import Outcome, footprint, observation, plan, play
from lab.client import Lab

HOSTS = ("n1", "n2")


def change_set(outcome: Outcome) -> dict[str, dict[str, list[Any]]]:
    """Return per host the packages and the files that a run changed, or said it would change."""
    found: dict[str, dict[str, list[Any]]] = {host: {"packages": [], "files": []} for host in HOSTS}
    for module in ("apt_packages", "driver_transaction"):
        for host, result in outcome.results(module):
            found[host]["packages"] += [(c["name"], c["from"], c["to"]) for c in result.get("changes", [])]
    for host, result in outcome.results("managed_files"):
        found[host]["files"] += result.get("changes", [])
    for kinds in found.values():
        for kind in kinds:
            kinds[kind] = sorted(kinds[kind], key=repr)
    return found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder that the verification writes its report to."""
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def predicted(cluster: Lab) -> Outcome:
    """Run check mode on the bare hosts."""
    return play("site.yml", cluster.name, options="--check --diff")


@pytest.fixture(scope="module")
def first(cluster: Lab, predicted: Outcome, reports: Path) -> Outcome:
    """Run the main job."""
    return play("site.yml", cluster.name, extra={"verification_report_dir": str(reports)})


@pytest.fixture(scope="module")
def before_second(cluster: Lab, first: Outcome) -> dict[str, Any]:
    """Note what runs on the nodes after the first run."""
    return {host: footprint(cluster, host) for host in HOSTS}


@pytest.fixture(scope="module")
def second(cluster: Lab, before_second: dict[str, Any]) -> Outcome:
    """Run the main job again."""
    return play("site.yml", cluster.name)


def test_check_mode_succeeds_on_bare_hosts(predicted: Outcome) -> None:
    """Check mode needs nothing that an earlier step of a real run would have made."""
    assert predicted.rc == 0, predicted.tail()
    assert all(predicted.count("changed", host) for host in HOSTS)


def test_check_mode_changes_nothing(cluster: Lab, predicted: Outcome) -> None:
    """The bare hosts are as bare as before."""
    for host in HOSTS:
        gone = cluster.run(host, ["find", "/etc/apt/sources.list.d", "/etc/apt/preferences.d", "/etc/security/limits.d", "-name", "*gpu-fleet*"])
        assert gone.stdout.strip() == ""
        assert cluster.run(host, ["dpkg-query", "-W", "nvidia-driver-cuda"]).returncode != 0


def test_first_run_verifies_the_fleet(first: Outcome, reports: Path) -> None:
    """The run ends well, with a verification that judged both nodes and a real collective."""
    assert first.rc == 0, first.tail()
    result = json.loads((reports / "verification.json").read_text())
    assert result["verdict"] == "pass", json.dumps(result, indent=1)
    assert sorted(node["name"] for node in result["nodes"]) == list(HOSTS)
    collective = result["collective"]
    assert (collective["backend"], collective["world_size"], collective["correct"]) == ("gloo", 2, True)
    assert all(row["busbw_gbs"] > 0 and row["time_us"] > 0 for row in collective["rows"])
    assert sorted(path.name for path in reports.iterdir()) == ["junit.xml", "report.html", "verification.json"]
    page = (reports / "report.html").read_text()
    assert "n1" in page and "n2" in page and "<script src" not in page


def test_driver_is_loaded_and_in_lockstep(first: Outcome) -> None:
    """Loaded, on disk, user space and fabric manager are one version."""
    for host in HOSTS:
        facts = observation(first, host)
        driver = facts["driver"]
        versions = {driver["loaded"]["version"], driver["on_disk"][facts["host"]["kernel"]]["version"], driver["user_space"]}
        assert versions == {plan(first, host)["components"]["driver"]["wanted"]["version"]}
        assert driver["fabric_manager"]["active"] is True
        assert driver["fabric_manager"]["version"].split("-")[0] in versions


def test_check_mode_predicted_the_change_set(predicted: Outcome, first: Outcome) -> None:
    """Packages with versions, and files, are those that check mode named."""
    assert change_set(predicted) == change_set(first)
    assert all(change_set(first)[host]["packages"] and change_set(first)[host]["files"] for host in HOSTS)


def test_each_source_is_asked_once(first: Outcome) -> None:
    """What was seen to answer before the first change is not asked again by the role that uses it."""
    assert sorted(host for host, _result in first.results("uri")) == list(HOSTS)


def test_second_run_changes_nothing(second: Outcome) -> None:
    """changed=0 everywhere, no role play, no collective."""
    assert second.rc == 0, second.tail()
    assert second.changed_tasks() == []
    assert second.results("transient_unit") == []
    assert all(plan(second, host)["todo"] == [] for host in HOSTS)


def test_second_run_restarts_nothing(cluster: Lab, second: Outcome, before_second: dict[str, Any]) -> None:
    """Every process is the one from before, since the same instant."""
    assert {host: footprint(cluster, host) for host in HOSTS} == before_second


def test_second_run_is_quiet(second: Outcome) -> None:
    """A run with nothing to do warns of nothing."""
    assert "WARNING" not in second.stdout, second.tail(80)
