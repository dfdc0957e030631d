# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public failures that a change of driver prevents, on a real host."""

from __future__ import annotations

import re

import pytest
from integration.harness import footprint

from .conftest import Machine

OLD, NEW = "580.159.04", "580.178.04"
MANAGER = "nvidia-fabricmanager"


@pytest.fixture(scope="module")
def running(host: Machine) -> Machine:
    """Give the host with the older driver at work."""
    done = host.change(OLD)
    assert done["rc"] == 0, done["msg"]
    return host


def test_failure_12_without_an_equal_fabric_manager_nothing_changes(running: Machine) -> None:
    """The driver is there in the new version, and its fabric manager is not."""
    before = footprint(running.node.lab, "n1")
    asked = running.request(NEW)
    done = running.module(**{**asked, "packages": {**asked["packages"], MANAGER: "580.178.99-1"}})
    assert done["rc"] != 0 and MANAGER in done["msg"] and "580.178.99-1" in done["msg"]
    assert footprint(running.node.lab, "n1") == before and running.versions() == {OLD}


def test_failure_15_a_kernel_that_was_left_out_of_the_build_gets_its_module(running: Machine) -> None:
    """Its packages ended well without one, as there were no headers; it would boot without GPUs."""
    node = running.node
    mine = node("uname", "-r").strip()
    node("apt-get", "-q", "update")
    releases = re.findall(r"^linux-headers-([0-9].*-cloud-amd64)$", node("apt-cache", "pkgnames", "linux-headers-"), re.MULTILINE)
    series = mine.partition("-")[0]
    other = max(release for release in releases if release.startswith(f"{series}-") and release != mine)
    node("mkdir", "-p", f"/lib/modules/{other}/kernel")
    node("touch", *(f"/lib/modules/{other}/modules.{part}" for part in ("order", "builtin", "builtin.modinfo")))
    assert node.run("modinfo", "-k", other, "nvidia").returncode != 0
    asked = running.request(OLD, kernels=[mine, other], unless_present={f"linux-headers-{other}": f"/lib/modules/{other}/build"})
    done = running.module(**asked)
    assert done["rc"] == 0, done["msg"]
    assert node("modinfo", "-k", other, "-F", "version", "nvidia").strip() == OLD

    # The headers are there now, and somebody took the module away.
    node("dkms", "uninstall", f"nvidia/{OLD}", "-k", other)
    assert node.run("modinfo", "-k", other, "nvidia").returncode != 0
    again = running.module(**asked)
    assert again["rc"] == 0 and again["changed"], again
    assert node("modinfo", "-k", other, "-F", "version", "nvidia").strip() == OLD
    assert running.module(**asked)["changed"] is False


def test_failure_15_a_kernel_that_cannot_have_the_module_ends_the_change(running: Machine) -> None:
    """Nothing is left as if it were well: the former driver is back, and the reason names the kernel."""
    running.node("mkdir", "-p", "/lib/modules/6.1.0-99-cloud-amd64/kernel")
    done = running.module(**running.request(NEW, kernels=["6.1.0-99-cloud-amd64"]))
    assert done["rc"] != 0 and "6.1.0-99-cloud-amd64" in done["msg"]
    assert running.versions() == {OLD}
