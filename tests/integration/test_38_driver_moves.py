# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One idle host from flavour to flavour and from branch to branch: each time the driver is whole, and the next run finds nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hardware.hosts import OLD, Node
from integration.harness import observation, plan, play
from integration.poison import must
from lab.client import HostSpec
from own_lab import own_lab

# The driver alone, and of the whole main job what belongs to it.
DRIVER_ONLY = "--tags nvidia_driver"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Give a host on which somebody runs the proprietary flavour of the oldest branch."""
    with own_lab("moves", [HostSpec("n1", image="debian12", profile="h100-sxm8")]) as lab:
        made = Node(lab, "n1", "h100-sxm8")
        made.install(OLD, "nvidia-fabricmanager-535", proprietary=True)
        made("rm", "/etc/apt/sources.list.d/vendor.list")
        made("modprobe", "nvidia")
        yield made


@pytest.mark.parametrize("branch", ["535", "580"])
def test_the_driver_moves_as_a_whole(node: Node, branch: str) -> None:
    asked = {"gpu_stack_driver": branch, "gpu_stack_pytorch": "", "gpu_stack_disruption": "idle", "gpu_stack_lock": {}}
    moved = play("site.yml", node.lab.name, options=DRIVER_ONLY, extra=asked)
    assert moved.rc == 0, moved.tail()
    made, facts = plan(moved, "n1"), observation(moved, "n1")
    wanted, driver = made["components"]["driver"]["wanted"], facts["driver"]
    assert wanted["flavour"] == "open" and f"{wanted['branch']}" == branch
    kernel = driver["on_disk"][facts["host"]["kernel"]]
    assert {driver["loaded"]["version"], kernel["version"], driver["user_space"], driver["libcuda"]} == {wanted["version"]}
    assert {driver["loaded"]["flavour"], kernel["flavour"]} == {"open"}
    assert driver["fabric_manager"] == {"version": wanted["version"], "active": True}
    assert all(package["version"] in made["packages"]["nvidia_driver"].values() for package in driver["packages"]), driver["packages"]
    again = play("site.yml", node.lab.name, options=DRIVER_ONLY, extra={**asked, "gpu_stack_disruption": "never"})
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()


def test_what_comes_back_under_other_names_is_kept_where_it_is(node: Node) -> None:
    """The names of the former branch had lost their holds with their packages, and nothing else named them."""
    before = play("playbooks/rollback_driver.yml", node.lab.name, options="--check", extra={"gpu_stack_disruption": "idle"})
    assert before.rc == 0, before.tail()
    back = play("playbooks/rollback_driver.yml", node.lab.name, extra={"gpu_stack_disruption": "idle"})
    assert back.rc == 0, back.tail()
    version = node("cat", "/sys/module/nvidia/version").strip()
    assert version.startswith("535.")
    kept = back.results("driver_transaction")[-1][1]["kept"]
    rows = [row.split() for row in node("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n").splitlines()]
    driver = {row[0]: row[2] for row in rows if len(row) == 4 and row[3] == "installed" and row[0] in kept}
    assert set(driver) == set(kept) and "nvidia-fabricmanager-535" in kept and set(driver.values()) == {"hold"}
    said = must(node.lab, "n1", "apt-get -q update && apt-get -q --simulate dist-upgrade")
    assert [line for line in said.splitlines() if line.startswith(("Inst", "Remv")) and line.split()[1] in kept] == []
    # Nothing but the pins keeps what is not on hold.
    said = must(node.lab, "n1", "apt-get -q --simulate --ignore-hold dist-upgrade")
    assert [line for line in said.splitlines() if line.startswith(("Inst", "Remv")) and line.split()[1] in kept] == []
    listed = must(node.lab, "n1", "cat /var/lib/gpu_fleet/managed.json")
    assert all(f'"{name}"' in listed for name in kept)
