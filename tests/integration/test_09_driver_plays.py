# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plays around a driver do to a host, and in which order. The hosts are made up: they answer each module with their facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fixtures.nodes import NEW, OLD, bare, host, installed, request, satisfied
from fixtures.stack import driver
from integration.harness import Outcome, plan
from integration.made_up import Fleet, nodes, words

ROLLBACK = "playbooks/rollback_driver.yml"
IDLE = {"gpu_stack_disruption": "idle", "gpu_stack_pytorch": ""}
# As the way back finds a node.
MOVED = installed(NEW, driver=driver(NEW, transaction={"id": "t", "status": "done", "direction": "forward", "from": OLD, "to": NEW, "reason": None}))
# What the node says of the packages that come back.
COMES = {"name": "libcuda1", "from": f"{NEW}-1", "to": f"{OLD}-1", "action": "change"}
BACK: dict[str, Any] = {"changed": True, "changes": [COMES], "kept": {"libcuda1": f"{OLD}-1"}}
# What a reboot asks of a host beside the number of its boot.
REBOOTS = {"ansible_distribution": "Debian", "ansible_distribution_version": "12.1", "ansible_os_family": "Debian"}
SHUTDOWN = {"files": [{"path": "/sbin/shutdown"}]}
NOUVEAU = "/etc/modprobe.d/gpu-fleet-nouveau.conf"
# A host of each package manager, and where the key of NVIDIA's repository is there.
HOSTS = {"apt": host(), "dnf": host("rocky", "9.6")}
KEYS = {"apt": "/etc/apt/keyrings/gpu-fleet-nvidia.asc", "dnf": "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpu-fleet-nvidia"}


class Talkative(Fleet):
    """Hosts that say of each module what a test wants."""

    def say(self, facts: dict[str, Any], **answers: dict[str, Any]) -> None:
        """Let hosts have these facts, and n1 answer a module by its name."""
        common = {"changed": False, "ansible_facts": {"gpu_fleet": facts, "ansible_effective_user_id": 0, **REBOOTS}, "changes": [], **SHUTDOWN}
        self.answer.write_text(json.dumps(common))
        for module, answer in answers.items():
            self.answer.with_name(f"answer-n1-{module}.json").write_text(json.dumps({**common, **answer}))


@pytest.fixture
def fleet(tmp_path: Path) -> Talkative:
    """Give made-up hosts."""
    return Talkative(tmp_path)


def done(outcome: Outcome, host: str = "n1") -> list[str]:
    """Return the actions that a host ended, well or badly, in their order, without those of the controller alone."""
    own = ("set_fact", "fail", "assert", "debug", "group_by", "validate_argument_spec", "include_role", "include_tasks", "setup")
    ended = [event["event_data"] for event in outcome.events if event["event"] in ("runner_on_ok", "runner_on_failed")]
    return [name for data in ended if data["host"] == host and (name := data["task_action"].split(".")[-1]) not in own]


@pytest.mark.parametrize("boots", [True, False])
def test_the_way_back_is_looked_at_taken_and_waited_for(fleet: Talkative, boots: bool) -> None:
    """A look that changes nothing, the change, and after a boot the node's own end of it."""
    fleet.say(MOVED, driver_transaction={**BACK, "reboot": boots})
    outcome = fleet.run(nodes(n1=IDLE), ROLLBACK)
    assert outcome.rc == 0, outcome.tail()
    change = ["gpu_facts", "driver_transaction", "managed_record", "driver_transaction"]
    assert done(outcome) == ([*change, "reboot", "driver_transaction"] if boots else change)
    assert f"Driver {OLD} is back in place of {NEW}. site.yml makes the same change again unless gpu_stack_driver" in words(outcome)


def test_a_driver_that_is_back_already_is_left(fleet: Talkative) -> None:
    """Also by a run that agreed to nothing: there is nothing to agree to."""
    fleet.say(MOVED, driver_transaction={"changed": False, "changes": [], "kept": BACK["kept"], "reboot": False})
    outcome = fleet.run(nodes(n1={**IDLE, "gpu_stack_disruption": "never"}), ROLLBACK)
    assert outcome.rc == 0 and done(outcome) == ["gpu_facts", "driver_transaction"], outcome.tail()
    assert "The former driver is back already" in words(outcome)


def test_no_node_goes_back_where_one_cannot(fleet: Talkative) -> None:
    fleet.say(MOVED, driver_transaction={"failed": True, "msg": "there is nothing to go back to"})
    outcome = fleet.run(nodes(n1=IDLE, n2=IDLE), ROLLBACK)
    assert outcome.rc != 0 and outcome.changed_tasks() == []
    assert "n1: there is nothing to go back to. Nothing was changed for it." in words(outcome)
    assert [done(outcome, name) for name in ("n1", "n2")] == [["gpu_facts", "driver_transaction"]] * 2


def test_the_way_back_waits_for_consent(fleet: Talkative) -> None:
    fleet.say(MOVED, driver_transaction={**BACK, "reboot": False})
    outcome = fleet.run(nodes(n1={**IDLE, "gpu_stack_disruption": "never"}), ROLLBACK)
    assert outcome.rc != 0 and done(outcome) == ["gpu_facts", "driver_transaction"]
    assert f"n1 is pending: driver {OLD} is to come back in place of {NEW}, which needs a reload" in words(outcome)


def test_what_could_not_be_had_does_not_bar_the_way_back(fleet: Talkative, tmp_path: Path) -> None:
    """A play that has put up with a refusal of the way forward may go back."""
    refused = {"name": "Refused", "ansible.builtin.set_fact": {"__gpu_stack_unreached": "the mirror is away"}}
    back = {"name": "Back", "ansible.builtin.include_role": {"name": "gpu.fleet.nvidia_driver", "tasks_from": "rollback"}}
    book = tmp_path / "book.yml"
    book.write_text(yaml.safe_dump([{"name": "Both", "hosts": "gpu_nodes", "gather_facts": False, "tasks": [refused, back]}]))
    fleet.say(MOVED, driver_transaction={**BACK, "reboot": False})
    outcome = fleet.run(nodes(n1=IDLE), str(book))
    assert outcome.rc == 0 and done(outcome)[-3:] == ["driver_transaction", "managed_record", "driver_transaction"], outcome.tail()


@pytest.mark.parametrize("manager", HOSTS)
def test_a_new_driver_comes_step_by_step(fleet: Talkative, manager: str) -> None:
    """What will be installed is asked for once; what was there is noted before the first change; the node ends a change that needed its boot before
    anybody looks for the module; and a host that is still bare after all of it is not called done.
    """
    fleet.say(bare(host=HOSTS[manager], driver=driver(nouveau_loaded=True)), driver_transaction={"changed": True, "reboot": True})
    outcome = fleet.run(nodes(n1=IDLE), options="--tags nvidia_driver")
    others = ["apt_sources"] if manager == "apt" else []
    before = ["gpu_facts", f"{manager}_packages", "managed_record", *others, "repository_key", "managed_files"]
    after = ["kernel_driver", "systemd_service", {"apt": "apt_holds", "dnf": "dnf_locks"}[manager], "gpu_facts"]
    assert done(outcome) == [*before, "driver_transaction", "reboot", "driver_transaction", *after]
    assert outcome.rc != 0 and "still differ from the plan for driver 580.178.04" in words(outcome)


@pytest.mark.parametrize("manager", HOSTS)
@pytest.mark.parametrize("lacks", ["packages", "source"])
def test_a_role_that_stands_alone_asks_the_site_first(fleet: Talkative, tmp_path: Path, lacks: str, manager: str) -> None:
    """In a play of somebody else, whether packages are missing or only the way to them."""
    facts = bare(host=HOSTS[manager])
    if lacks == "source":
        facts = satisfied(request(pytorch=None, disruption="idle"), facts)
        facts["managed"][f"keyring:{KEYS[manager]}"]["fingerprints"] = []
    book = tmp_path / "book.yml"
    book.write_text(yaml.safe_dump([{"name": "Driver", "hosts": "gpu_nodes", "gather_facts": False, "roles": [{"role": "gpu.fleet.nvidia_driver"}]}]))
    away = {"failed": True, "msg": "the site is away"}
    asked = {"packages": f"{manager}_packages", "source": f"{manager}_repository_info"}
    fleet.say(facts, **dict.fromkeys(asked.values(), away))
    outcome = fleet.run(nodes(n1=IDLE), str(book))
    assert outcome.rc != 0 and "n1: the site is away. The packages come from NVIDIA's own site" in words(outcome)
    assert done(outcome) == ["gpu_facts", asked[lacks]]


@pytest.mark.parametrize("manager", HOSTS)
def test_a_run_ends_badly_where_an_upgrade_would_move_the_driver(fleet: Talkative, manager: str) -> None:
    """Also in check mode, which proves the plan."""
    facts = satisfied(request(pytorch=None, disruption="idle"), bare(host=HOSTS[manager]))
    del facts["managed"][next(name for name in facts["managed"] if name.startswith(("hold:", "lock:")))]
    fleet.say(facts, **{f"{manager}_upgrade_info": {"findings": ["not on hold: libcuda1"]}})
    outcome = fleet.run(nodes(n1=IDLE), options="--tags nvidia_driver --check")
    assert plan(outcome, "n1")["todo"] == ["nvidia_driver"]
    assert outcome.rc != 0 and "n1 is not safe from upgrades: not on hold: libcuda1." in words(outcome)


def test_what_was_there_is_described(fleet: Talkative) -> None:
    fleet.say(bare(driver=driver("570.133.20", "runfile")))
    outcome = fleet.run(nodes(n1=IDLE), "playbooks/adopt.yml")
    assert outcome.rc == 0 and done(outcome) == ["gpu_facts"], outcome.tail()
    assert 'driver 570.133.20 belongs to runfile' in words(outcome) and 'nvidia_driver_source: \\"preinstalled\\"' in words(outcome)


@pytest.mark.parametrize(("changes", "image"), [([f"file:{NOUVEAU}"], True), (["hold:libcuda1"], False)])
def test_what_is_undone_reaches_the_boot_image(fleet: Talkative, changes: list[str], image: bool) -> None:
    left = "file:/etc/nccl.conf: somebody else has written it since"
    fleet.say(MOVED, managed_release={"changed": True, "changes": changes, "left": [left]})
    outcome = fleet.run(nodes(n1=IDLE), "playbooks/unmanage.yml")
    assert outcome.rc == 0 and left in words(outcome), outcome.tail()
    assert done(outcome) == ["managed_release", "command"] if image else ["managed_release"]
