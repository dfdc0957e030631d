# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of another driver and another boot, in the cache and injected by an earlier play, change nothing of what preflight.yml decides."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hardware.hosts import NEW, OLD, Node
from integration import harness
from integration.harness import Outcome

LIE = """
- name: Leave facts as an earlier play or an old cache may
  hosts: all
  gather_facts: false
  tasks:
    - name: Lie
      ansible.builtin.set_fact:
        gpu_fleet: {lie}
        cacheable: true
    - name: Be believed
      ansible.builtin.assert:
        that: ansible_facts['gpu_fleet']['boot_id'] == 'another'
- name: Decide
  ansible.builtin.import_playbook: {preflight}
"""
PREFLIGHT = harness.CHECKOUT / "playbooks" / "preflight.yml"


@pytest.fixture(scope="module")
def host(eight: Node) -> Node:
    """Give the host with eight GPUs and its driver at work."""
    eight.drive()
    return eight


def decide(host: Node, playbook: str) -> Outcome:
    outcome = harness.play(playbook, host.lab.name, options=f"--limit {host.name}")
    assert outcome.rc == 0, outcome.tail()
    return outcome


def lying(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts with another driver, nothing managed as it is, and another boot."""
    lie = copy.deepcopy(facts)
    lie["boot_id"], lie["managed"] = "another", {}
    lie["driver"].update(loaded={"version": OLD, "flavour": "proprietary"}, user_space=OLD, owner="runfile", packages=[], on_disk={})
    lie["gpus"] = lie["gpus"][:3]
    return lie


def test_preflight_decides_by_what_it_observes(host: Node, tmp_path: Path) -> None:
    honest = decide(host, str(PREFLIGHT))
    facts = harness.observation(honest, host.name)
    assert facts["driver"]["loaded"]["version"] == NEW
    (tmp_path / "lie.yml").write_text(LIE.format(lie=json.dumps(lying(facts)), preflight=PREFLIGHT))
    misled = decide(host, str(tmp_path / "lie.yml"))
    assert harness.plan(misled, host.name) == harness.plan(honest, host.name)
    assert harness.observation(misled, host.name)["boot_id"] == facts["boot_id"]
    assert len(misled.results("gpu_facts")) == 1
