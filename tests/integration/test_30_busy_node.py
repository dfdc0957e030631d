# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A busy node keeps its driver: another version is wanted, and nothing that a job could see moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.harness import CHECKOUT, footprint, plan, play
from lab.client import Lab

OTHER_VERSION = "580.159.04"


@pytest.fixture
def busy_host(cluster: Lab) -> Iterator[str]:
    """Give a node, converged, on which a process holds a GPU's device file open."""
    converged = play("site.yml", cluster.name)
    assert converged.rc == 0, converged.tail()
    started = cluster.run("n1", ["systemd-run", "--unit=training-job", "sh", "-c", "exec sleep 600 < /dev/nvidia0"])
    assert started.returncode == 0, started.stderr
    yield "n1"
    cluster.run("n1", ["systemctl", "stop", "training-job"])


@pytest.mark.parametrize("disruption", ["never", "idle"])
def test_a_busy_node_is_left_alone_and_pending(cluster: Lab, busy_host: str, disruption: str) -> None:
    """Consent for idle nodes is not consent for this one."""
    before = footprint(cluster, busy_host)
    outcome = play(
        "site.yml", cluster.name, options=f"--limit {busy_host}", extra={"gpu_stack_driver": OTHER_VERSION, "gpu_stack_disruption": disruption}
    )
    assert outcome.rc != 0, "a pending host must not pass silently"
    assert footprint(cluster, busy_host) == before
    pending = [item for item in plan(outcome, busy_host)["pending"] if item["component"] == "driver"]
    assert len(pending) == 1
    assert pending[0]["variable"] == "gpu_stack_disruption"
    assert f"-i {CHECKOUT / 'inventories' / 'lab'} -e @" in pending[0]["command"], "another inventory has other hosts"
    assert f"--limit {busy_host} -e gpu_stack_disruption=idle" in pending[0]["command"]
    assert pending[0]["reason"] in outcome.stdout.replace("\n", " ") or pending[0]["reason"][:40] in outcome.stdout
    assert pending[0]["command"][:40] in outcome.stdout


def test_pending_can_be_accepted(cluster: Lab, busy_host: str) -> None:
    """`gpu_stack_pending_ok` turns the exit code, and nothing else."""
    before = footprint(cluster, busy_host)
    outcome = play(
        "site.yml", cluster.name, options=f"--limit {busy_host}", extra={"gpu_stack_driver": OTHER_VERSION, "gpu_stack_pending_ok": True}
    )
    assert outcome.rc == 0, outcome.tail()
    assert footprint(cluster, busy_host) == before


def test_an_idle_node_with_consent_moves_and_back(cluster: Lab) -> None:
    """With consent and nobody on the device, the driver is changed, reloaded and in lockstep; then it goes back."""
    for version in (OTHER_VERSION, None):
        extra = {"gpu_stack_disruption": "idle"} | ({"gpu_stack_driver": version} if version else {})
        outcome = play("site.yml", cluster.name, extra=extra)
        assert outcome.rc == 0, outcome.tail()
        loaded = cluster.run("n1", ["cat", "/sys/module/nvidia/version"]).stdout.strip()
        assert loaded == (version or plan(outcome, "n1")["components"]["driver"]["wanted"]["version"])
        assert cluster.run("n1", ["nvidia-smi", "-L"]).returncode == 0
