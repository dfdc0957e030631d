# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One idle host from flavour to flavour and from branch to branch: each time the driver is whole, and the next run finds nothing to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hardware.hosts import OLD, Node
from integration.harness import observation, plan, play
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
