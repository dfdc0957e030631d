# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verification promises, seen on the hosts and in the report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from testinfra.host import Host

testinfra_hosts = ["ansible://n1", "ansible://n3"]

RECORD = "/var/lib/gpu_fleet/verification.json"
SIZES = [1 << 19, 1 << 20, 4 << 20]


@pytest.fixture(scope="module")
def report() -> Path:
    return Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "report"


@pytest.fixture(scope="module")
def result(report: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((report / "verification.json").read_text())
    return found


def test_the_node_keeps_the_record_of_its_pass(host: Host) -> None:
    """The record names the stack that passed and can be read by everybody."""
    file = host.file(RECORD)
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    record = json.loads(file.content_string)
    assert (record["schema"], record["verdict"]) == (1, "pass")
    assert len(record["fingerprint"]) == 32
    assert record["date"].endswith("Z")
    assert "2 ranks" in record["summary"]


def test_nothing_of_the_job_stays_behind(host: Host) -> None:
    """No unit, no folder, no process, no file of the service account."""
    assert host.check_output("systemctl list-units --all --no-legend 'gpu-fleet-*'") == ""
    assert host.run("ls -d /run/gpu-fleet-*").rc != 0
    assert host.run("pgrep -f allreduce.py").rc == 1
    assert host.check_output("find /tmp /var/tmp /dev/shm /var/lib/gpu_fleet -user gpufleet") == ""


def test_the_result_lists_every_host_with_its_checks(result: dict[str, Any]) -> None:
    """Schema 1, both hosts, each check with what was seen and wanted."""
    assert (result["schema"], result["verdict"]) == (1, "pass")
    assert [node["name"] for node in result["nodes"]] == ["n1", "n3"]
    for node in result["nodes"]:
        verdicts = {check["id"]: check["verdict"] for check in node["checks"]}
        assert node["verdict"] == "pass"
        assert set(verdicts.values()) <= {"pass", "skip"}
        for name in ("inventory.gpus", "inventory.lockstep", "inventory.nvlink", "inventory.fabric_ports", "framework.torch", "collective.correct"):
            assert verdicts[name] == "pass", name
        assert all({"id", "verdict", "seen", "wanted", "evidence"} == set(check) for check in node["checks"])


def test_the_collective_was_a_real_one_of_both(result: dict[str, Any]) -> None:
    """Two ranks over gloo, exact, with a bandwidth for each size in ascending order."""
    collective = result["collective"]
    assert (collective["backend"], collective["world_size"], collective["correct"]) == ("gloo", 2, True)
    assert [row["size_bytes"] for row in collective["rows"]] == SIZES
    for row in collective["rows"]:
        assert row["algbw_gbs"] == pytest.approx(row["size_bytes"] / row["time_us"] / 1e3, rel=0.01)
        assert row["busbw_gbs"] == pytest.approx(row["algbw_gbs"])
    assert collective["ddp"] == {"steps": 2, "gradients_equal": True, "gradients_right": True, "parameters_equal": True, "different": []}


def test_the_page_and_the_junit_file_tell_the_same(report: Path, result: dict[str, Any]) -> None:
    """All three forms agree, and the page fetches nothing."""
    page = (report / "report.html").read_text()
    assert page.count("<details") == len(result["nodes"])
    assert "<script" not in page and "http" not in page
    cases = ElementTree.parse(report / "junit.xml").getroot()
    assert cases.findall(".//failure") == []
    assert len(cases.findall(".//testcase")) == sum(len(node["checks"]) for node in result["nodes"]) + 1
