# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings made with nvidia-smi are in the facts, and gone from them with the driver, but for those that a GPU keeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hardware.hosts import Node
from integration import harness

PLAYBOOK = """
- name: Observe a host
  hosts: {host}
  gather_facts: false
  tasks:
    - name: Observe
      gpu.fleet.gpu_facts:
        gather_subset: [hardware, driver]
"""
PAGES = "v100x4"
AMPERE, HOPPER = "a100-sxm8", "h100-sxm8"


def observe(node: Node, folder: Path) -> dict[str, Any]:
    (folder / "observe.yml").write_text(PLAYBOOK.format(host=node.name))
    outcome = harness.play(str(folder / "observe.yml"), node.lab.name)
    assert outcome.rc == 0, outcome.tail()
    return harness.observation(outcome, node.name)


def reload(node: Node) -> None:
    """Unload the driver, and load it again."""
    node("systemctl", "stop", "nvidia-persistenced")
    node.run("systemctl", "stop", "nvidia-fabricmanager")
    node.run("modprobe", "-r", "nvidia_uvm")
    node("modprobe", "-r", "nvidia")
    node.drive()


@pytest.fixture(params=[HOPPER, AMPERE])
def set_up(request: pytest.FixtureRequest, worn: dict[str, Node]) -> Iterator[Node]:
    """Give a host on whose first GPU everything is set, and whose second one is divided."""
    node = worn[request.param]
    node.drive()
    model = node.model
    top, memory = model["clocks_mhz"]["graphics"] - 300, model["clocks_mhz"]["memory"]
    for words in (("-pl", "250"), ("-ac", f"{memory},{top}"), ("-lgc", "900,1200"), ("-c", "3"), ("-e", "0"), ("-am", "1"), ("-lmcd", str(memory))):
        node("nvidia-smi", "-i", "0", *words)
    node("nvidia-smi", "-i", "1", "-mig", "1")
    node("nvidia-smi", "mig", "-i", "1", "-cgi", "9,14", "-C")
    yield node
    undo: tuple[tuple[str, ...], ...] = (("-i", "0", "-e", "1"), ("mig", "-i", "1", "-dci"), ("mig", "-i", "1", "-dgi"), ("-i", "1", "-mig", "0"))
    for again in undo:
        node.run("nvidia-smi", *again)
    reload(node)


def test_settings_are_told_until_the_driver_goes(set_up: Node, tmp_path: Path) -> None:
    power, clocks = set_up.model["power_w"], set_up.model["clocks_mhz"]
    before = observe(set_up, tmp_path)
    first, second = (gpu["address"] for gpu in before["gpus"][:2])
    told = before["volatile"][first]
    assert before["problems"] == []
    assert (told["power_limit_w"], told["power_limit_default_w"], told["power_limit_min_w"], told["power_limit_max_w"]) == (
        250, power["default"], power["min"], power["max"],
    )  # fmt: skip
    assert told["application_clocks"] == {"graphics_mhz": clocks["graphics"] - 300, "memory_mhz": clocks["memory"]}
    assert told["application_clocks_default"] == {"graphics_mhz": clocks["graphics"], "memory_mhz": clocks["memory"]}
    assert (told["compute_mode"], told["ecc_pending"], told["accounting_mode"]) == ("Exclusive_Process", "disabled", True)
    assert told["memory_clock_deferred_mhz"] == clocks["memory"]
    assert before["gpus"][0]["ecc"]["mode"] == "enabled"
    divided = before["volatile"][second]["mig_geometry"]
    assert [(entry["profile_id"], entry["start"], entry["size"]) for entry in divided] == [(9, 0, 4), (14, 4, 2)]
    assert [len(entry["compute_instances"]) for entry in divided] == [1, 1]
    devices = before["gpus"][1]["mig"]
    assert [(device["gpu_instance"], device["profile"]) for device in devices] == [(entry["id"], entry["profile"]) for entry in divided]
    assert all(device["uuid"].startswith("MIG-") and device["memory_mib"] > 5000 for device in devices)

    reload(set_up)
    after = observe(set_up, tmp_path)
    told = after["volatile"][first]
    assert (told["power_limit_w"], told["compute_mode"], told["accounting_mode"]) == (power["default"], "Default", False)
    assert told["application_clocks"] == told["application_clocks_default"]
    assert after["gpus"][0]["ecc"]["mode"] == "disabled"
    assert after["volatile"][second]["mig"] == ("enabled" if set_up.profile == AMPERE else "disabled")
    assert (after["volatile"][second]["mig_geometry"], after["gpus"][1]["mig"]) == ([], [])


def test_locked_clocks_show_only_while_they_hold_a_gpu_back(worn: dict[str, Node], tmp_path: Path) -> None:
    node = worn[HOPPER]
    node.drive()
    node("nvidia-smi", "-i", "0", "-lgc", "900,1200")
    node.fault("hold-gpu", "0", "1")
    facts = observe(node, tmp_path)
    node.fault("release-gpu")
    node("nvidia-smi", "-i", "0", "-rgc")
    assert [entry["clocks_held_by_setting"] for entry in facts["volatile"].values()] == [True] + [False] * 7


def test_pages_out_of_use(worn: dict[str, Node], tmp_path: Path) -> None:
    node = worn[PAGES]
    node.drive()
    node.fault("ecc-pending", "1")
    facts = observe(node, tmp_path)
    node.fault("heal", "ecc-pending")
    assert [gpu["retired_pages"]["pending"] for gpu in facts["gpus"]] == [False, True, False, False]
    assert [gpu["row_remap"] for gpu in facts["gpus"]] == [None] * 4
    assert facts["gpus"][1]["recovery_action"] == "Reset"
