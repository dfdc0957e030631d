# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller is killed in the middle of a change of driver, and then something fails on the node: it ends whole, and the next run finishes."""

from __future__ import annotations

import json
import time
from typing import Any

from integration.harness import killed_when, play
from lab.client import Lab

OLD, NEW = "580.159.04", "580.178.04"
RECORD = "/var/lib/gpu_fleet/driver/transaction.json"
ENGINE = "gpu-fleet-driver.service"
IDLE = {"gpu_stack_disruption": "idle"}


def record(lab: Lab) -> dict[str, Any]:
    """Return the record of the node's last change; empty before the first one."""
    done = lab.run("n1", ["cat", RECORD])
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def killed_in(lab: Lab, step: str, version: str) -> None:
    """Ask for a version, and kill the controller once the node is at a step of its change."""
    def there() -> bool:
        seen = record(lab)
        return seen.get("status") == "running" and seen["wanted"]["version"] == version and seen["step"] == step

    words = ["--limit", "n1", "-e", f"gpu_stack_driver={version}", "-e", "gpu_stack_disruption=idle"]
    killed_when(there, "site.yml", lab.name, words)


def ended(lab: Lab, seconds: float = 120) -> dict[str, Any]:
    """Wait for the node to end its change without anybody, and return the record."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen, works = record(lab), lab.run("n1", ["systemctl", "is-active", ENGINE]).stdout.strip() == "active"
        if seen.get("status") not in ("running", "waiting_for_reboot") and not works:
            return seen
        time.sleep(0.3)
    raise AssertionError(f"still under way: {record(lab)}")


def loaded(lab: Lab) -> str:
    return lab.run("n1", ["cat", "/sys/module/nvidia/version"]).stdout.strip()


def converge(lab: Lab, version: str) -> None:
    """Run site.yml to its good end, and see that nothing is left to do."""
    outcome = play("site.yml", lab.name, options="--limit n1", extra={"gpu_stack_driver": version, **IDLE})
    assert outcome.rc == 0, outcome.tail()
    assert loaded(lab) == version
    assert lab.run("n1", ["dpkg", "--audit"]).stdout == ""


def test_a_node_goes_on_alone_and_the_next_run_finds_its_work_done(cluster: Lab) -> None:
    converge(cluster, OLD)
    killed_in(cluster, "packages", NEW)
    assert ended(cluster)["status"] == "done"
    assert loaded(cluster) == NEW
    converge(cluster, NEW)


def test_a_node_that_fails_alone_has_its_driver_back_and_the_next_run_finishes(cluster: Lab) -> None:
    planted = f"/etc/dkms/nvidia-{OLD}.conf"
    cluster.run("n1", f"cat >{planted}", "MAKE[0]=\"sh -c 'echo planted.c:1: error: no such function >&2; exit 2'\"\n")
    killed_in(cluster, "packages", OLD)
    seen = ended(cluster)
    cluster.run("n1", ["rm", planted])
    assert seen["status"] == "rolled_back" and "no such function" in seen["reason"]
    assert loaded(cluster) == NEW
    converge(cluster, OLD)
