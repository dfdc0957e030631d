# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are made up: whole playbooks run against them, and they answer each module with their facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from fixtures.nodes import bare
from integration.harness import CHECKOUT, Outcome, play

GOOD = {"gpu_stack_driver": "580", "gpu_stack_pytorch": "2.14"}


def answer(user: int = 0, gpus: int = 8) -> str:
    """Return what a host says to every module: a server with nothing installed, and who the login is."""
    return json.dumps({"changed": False, "ansible_facts": {"gpu_fleet": bare(gpus), "ansible_effective_user_id": user}})


class Fleet:
    """Hosts that answer at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answer = folder / "answer.json"
        self.answer.write_text(answer())

    def run(self, groups: dict[str, Any], playbook: str = "site.yml", **given: Any) -> Outcome:
        """Run a playbook on an inventory of these groups."""
        inventory = self.folder / "hosts.yml"
        connection = {"ansible_connection": "instant", "ansible_python_interpreter": "/usr/bin/python3"}
        inventory.write_text(yaml.safe_dump({"all": {"children": groups, "vars": connection}}))
        env = {"ANSIBLE_CONNECTION_PLUGINS": str(CHECKOUT / "tests" / "bench" / "connection"), "GPU_FLEET_BENCH_ANSWER": str(self.answer)}
        return play(playbook, "none", inventory=inventory, env=env, **given)


def nodes(**hosts: dict[str, Any]) -> dict[str, Any]:
    """Return the group of nodes, each with variables of its own on top of good ones."""
    return {"gpu_nodes": {"hosts": {name: {**GOOD, **values} for name, values in hosts.items()}}}


def touched(outcome: Outcome) -> set[str]:
    """Return the modules that ran on hosts beside the one that observes; those of the controller's own are no modules."""
    own = {"set_fact", "fail", "assert", "debug", "group_by", "validate_argument_spec", "include_role", "import_role", "include_tasks", "gpu_facts"}
    actions = {event.get("event_data", {}).get("task_action", "").split(".")[-1] for event in outcome.events if event["event"] == "runner_on_start"}
    return actions - own


def words(outcome: Outcome) -> str:
    """Return what the run printed, on one line."""
    return " ".join(outcome.stdout.split())
