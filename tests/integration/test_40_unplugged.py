# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node loses its power in the middle of the main job."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from integration.harness import footprint, play
from lab.client import Lab


def test_a_pulled_plug_is_named_and_the_same_command_finishes_later(plain_pair: Lab, tmp_path: Path) -> None:
    """The other node is done and intact, the exit code tells, and a later run completes the fleet."""
    pulled = threading.Event()

    def pull(event: dict[str, Any]) -> None:
        data = event.get("event_data", {})
        begun = event["event"] == "runner_on_start" and data.get("host") == "n2"
        if begun and data.get("task") == "Install what virtual environments need" and not pulled.is_set():
            pulled.set()
            plain_pair.fault("n2", "unplug")

    extra = {"verification_report_dir": str(tmp_path)}
    broken = play("site.yml", plain_pair.name, extra=extra, on_event=pull)
    assert pulled.is_set(), broken.tail()
    assert broken.rc != 0
    assert broken.count("dark", "n2") == 1, broken.tail()
    failed = [event["event_data"] for event in broken.events if event["event"] == "runner_on_failed"]
    # The survivor's own work is done; what fails on it is the fleet's verdict, which names the lost node.
    assert [data["task"] for data in failed if data["host"] == "n1"] == ["Refuse to call it verified"], broken.tail()
    assert "n2" in failed[-1]["res"]["msg"]
    report = json.loads((tmp_path / "verification.json").read_text())
    assert report["verdict"] == "fail"
    assert {node["name"]: node["verdict"] for node in report["nodes"]}["n2"] == "fail"

    survivor = footprint(plain_pair, "n1")
    assert plain_pair.run("n1", ["/opt/gpu_fleet/pytorch/bin/python", "-c", "import torch"]).returncode == 0
    assert plain_pair.run("n1", ["systemctl", "list-units", "--plain", "--no-legend", "gpu-fleet-*"]).stdout.strip() == ""

    plain_pair.fault("n2", "plug")
    healed = play("site.yml", plain_pair.name, extra=extra)
    assert healed.rc == 0, healed.tail()
    assert json.loads((tmp_path / "verification.json").read_text())["verdict"] == "pass"
    assert footprint(plain_pair, "n1")["boot"] == survivor["boot"]
