# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution's own NVIDIA packages, with the real build of the real kernel module by dkms (ten minutes of compiling for each).

No GPU is there to load it for: programs that speak to one, and the loading, are the lab's. Everything before that is Debian's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from integration.harness import Outcome, observation, plan, play
from lab import debian
from lab.client import HostSpec, Lab
from own_lab import own_lab

# What was released, and its security update.
FIRST, SECURITY = "535.261.03", "535.309.01"
VENDOR, TRIXIE = "580.178.04", "550.163.01"
OPTIONS = "--tags node_baseline,nvidia_driver"


def site(lab: Lab, version: str, source: str = "distro", **more: Any) -> tuple[Outcome, float]:
    """Run the main job as far as it is about the driver; returns what came of it, and the seconds that it took."""
    began = time.monotonic()
    asked = {"gpu_stack_driver": version, "nvidia_driver_source": source, "gpu_stack_disruption": "idle"}
    outcome = play("site.yml", lab.name, extra={**asked, "gpu_stack_pytorch": "", "gpu_stack_lock": {}, **more}, options=OPTIONS)
    seconds = time.monotonic() - began
    print(f"{source} {version}: exit {outcome.rc} after {seconds:.0f} s")
    return outcome, seconds


def whole(lab: Lab, outcome: Outcome, version: str) -> None:
    """See that loaded, on disk and in user space there is one version."""
    facts = observation(outcome, "n1")
    driver, kernel = facts["driver"], facts["host"]["kernel"]
    seen = {driver["loaded"]["version"], driver["on_disk"][kernel]["version"], driver["user_space"], driver["libcuda"]}
    assert seen == {version}, seen


@pytest.fixture(scope="module")
def bookworm() -> Iterator[Lab]:
    """Give a bare host of Debian 12 without NVSwitches, as the distribution has no fabric manager."""
    with own_lab("dkms", [HostSpec("n1", image="debian12", profile="t4-pcie1")]) as running:
        debian.wear(running, "n1")
        yield running


@pytest.fixture(scope="module")
def trixie() -> Iterator[Lab]:
    """Give a bare host of Debian 13."""
    with own_lab("dkms-trixie", [HostSpec("n1", image="debian13", profile="t4-pcie1")]) as running:
        debian.wear(running, "n1")
        yield running


@pytest.mark.parametrize("version", [FIRST, SECURITY])
def test_the_distributions_driver_and_its_security_update_are_built(bookworm: Lab, version: str) -> None:
    """The module of the running kernel comes from the archive's source package and has its version; the second run is quiet."""
    first, _ = site(bookworm, version)
    assert first.rc == 0, first.tail(60)
    wanted = plan(first, "n1")["components"]["driver"]["wanted"]
    assert (wanted["version"], wanted["source"]) == (version, "distro")
    whole(bookworm, first, version)
    kernel = observation(first, "n1")["host"]["kernel"]
    status = bookworm.run("n1", ["dkms", "status"]).stdout
    assert status.strip() == f"nvidia-current/{version}, {kernel}, x86_64: installed"
    # The genuine module, not a stand-in, is tens of megabytes of machine code.
    path = bookworm.run("n1", ["modinfo", "-k", kernel, "-F", "filename", "nvidia-current"]).stdout.strip()
    assert int(bookworm.run("n1", ["stat", "--format=%s", path]).stdout) > 10_000_000
    again, _ = site(bookworm, version, gpu_stack_disruption="never")
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()


def test_a_driver_that_the_kernel_has_left_behind_gives_the_former_one_back(trixie: Lab) -> None:
    """Debian 13's own driver may not compile against its current kernel: then the vendor's, which was at work, is there again."""
    before, _ = site(trixie, VENDOR, "nvidia")
    assert before.rc == 0, before.tail(60)
    whole(trixie, before, VENDOR)
    moved, seconds = site(trixie, TRIXIE, gpu_stack_takeover=["driver"])
    if moved.rc == 0:
        print(f"seen: {TRIXIE} builds against this kernel ({seconds:.0f} s)")
        whole(trixie, moved, TRIXIE)
        return
    failed = [event["event_data"]["res"] for event in moved.events if event["event"] == "runner_on_failed"]
    assert failed, moved.tail(60)
    said = str(failed[-1]["msg"])
    print(f"seen: {TRIXIE} does not build against this kernel ({seconds:.0f} s): {said}")
    assert f"driver {TRIXIE} could not be installed, and {VENDOR} is back" in said, said
    assert "error: " in said, "what the compiler said is not in the message"
    back, _ = site(trixie, VENDOR, "nvidia", gpu_stack_disruption="never")
    assert back.rc == 0, back.tail(60)
    whole(trixie, back, VENDOR)
    assert trixie.run("n1", ["dpkg-query", "-W", "-f", "${db:Status-Status}", "nvidia-alternative"]).stdout != "installed"
