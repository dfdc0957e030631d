# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done about the next boot, and what is never rebooted. The hosts are made up: they answer each module with their facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.nodes import bare, request, satisfied
from fixtures.stack import driver
from integration.harness import Outcome, plan
from integration.made_up import Fleet, nodes, touched, words

NOUVEAU = "/etc/modprobe.d/gpu-fleet-nouveau.conf"
IDLE = {"gpu_stack_disruption": "idle", "gpu_stack_pytorch": ""}
ASKED = request(pytorch=None, disruption="idle")


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Give made-up hosts."""
    return Fleet(tmp_path)


def say(fleet: Fleet, facts: dict[str, Any], **answers: Any) -> None:
    """Let hosts answer with these facts, and modules by their names with something of their own."""
    common = {"changed": False, "ansible_facts": {"gpu_fleet": facts, "ansible_effective_user_id": 0}, "changes": [], "reboot": False}
    fleet.answer.write_text(json.dumps(common))
    for module, answer in answers.items():
        fleet.answer.with_name(f"answer-n1-{module}.json").write_text(json.dumps({**common, **answer}))


def tasks(outcome: Outcome) -> list[str]:
    """Return the names of the tasks that a host ended well or badly."""
    ended = ("runner_on_ok", "runner_on_failed")
    return [event["event_data"]["task"] for event in outcome.events if event["event"] in ended]


def test_failure_17_an_image_that_is_older_than_the_settings_is_made_anew(fleet: Fleet) -> None:
    """A run that ended between the file and the image would else be the last one to think of it."""
    facts = satisfied(ASKED, bare())
    kernel = facts["host"]["kernel"]
    version = facts["driver"]["loaded"]["version"]
    facts["driver"]["next_boot"] = {"kernel": kernel, "source": "newest", "once": False, "module": version}
    facts["driver"]["kernels"] = {kernel: {"initramfs": {"path": "/boot/initrd.img", "older_than": [NOUVEAU]}}}
    say(fleet, facts)
    outcome = fleet.run(nodes(n1=IDLE), options="--tags nvidia_driver")
    assert plan(outcome, "n1")["differs"] == {"nvidia_driver": [f"initramfs:{kernel}"]}
    assert "Tell the boot image of the module settings" in tasks(outcome) and "driver_transaction" not in touched(outcome)
    facts["driver"]["kernels"][kernel]["initramfs"]["older_than"] = []
    say(fleet, facts)
    assert "Tell the boot image of the module settings" not in tasks(fleet.run(nodes(n1=IDLE), options="--tags nvidia_driver"))


def test_failure_18_the_host_of_the_controller_is_not_rebooted(fleet: Fleet) -> None:
    mine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    say(fleet, bare(driver=driver(nouveau_loaded=True), boot_id=mine), driver_transaction={"changed": True, "reboot": True})
    outcome = fleet.run(nodes(n1=IDLE), options="--tags nvidia_driver")
    assert plan(outcome, "n1")["consequences"]["reboot"] is True
    assert outcome.rc != 0 and "n1 is the host that this run is controlled from; reboot it yourself" in words(outcome)
    assert "reboot" not in touched(outcome)


@pytest.mark.parametrize("disruption", ["never", "drain"])
def test_failure_18_nothing_is_rebooted_without_consent(fleet: Fleet, disruption: str) -> None:
    say(fleet, bare(driver=driver(nouveau_loaded=True)))
    outcome = fleet.run(nodes(n1={**IDLE, "gpu_stack_disruption": disruption}), options="--tags nvidia_driver")
    assert outcome.rc != 0 and not touched(outcome) & {"reboot", "driver_transaction"}
    assert "n1 is pending: driver 580.178.04 is wanted, which needs a reboot" in words(outcome)
