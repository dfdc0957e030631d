# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shortcut of a no-op run is honest: each managed thing, changed behind our back, is seen and repaired."""

from __future__ import annotations

import json
from typing import Any

import pytest
from integration.harness import Outcome, observation, plan, play
from lab.client import Lab

HOST = "n1"

# How a thing of each kind is changed, as a script that gets the id. Nothing here knows which ids exist.
TAMPER = {
    "file": "printf '\\n# changed\\n' >> {id}",
    "directory": "chmod 0700 {id}",
    "keyring": "rm {id}",
    "hold": "apt-mark unhold {id}",
    # Another entry for the same place, under another key: apt refuses everything until one of them is gone.
    "source": "echo 'deb [signed-by=/usr/share/keyrings/other.gpg] http://{id}debian12/x86_64/ /' >> /etc/apt/sources.list.d/again.list",
    # A key cannot be made from its fingerprint; test_35_upgrades.py has one.
    "trusted_key": "false {id}",
    "package": "dpkg --force-all --remove {id}",
    "unit": "systemctl disable --now {id}",
    # What uses the module goes first, as with a real one.
    "module": "systemctl stop nvidia-fabricmanager nvidia-persistenced; for name in nvidia_uvm nvidia_drm nvidia_modeset {id}; do "
    "if [ -d /sys/module/$name ]; then modprobe -r $name || exit 1; fi; done; test ! -d /sys/module/{id}",
    "user": "usermod --shell /bin/sh {id}",
    "python_environment": "rm -r {id}/lib/python3*/site-packages/torch-*.dist-info",
    "link": "ln -sfn /nonexistent {id}",
}
# What is to be nowhere cannot be taken away.
NOWHERE: tuple[dict[str, Any], ...] = ({"state": "absent"}, {"spare": []})
# Each batch is one run of site.yml; things that undo each other's damage stand apart.
BATCHES: tuple[tuple[str, ...], ...] = (
    ("source", "trusted_key"),
    ("file", "directory", "keyring", "user", "link", "unit", "hold"),
    ("python_environment", "module"),
    ("package",),
)


def differs(outcome: Outcome) -> list[str]:
    """Return the managed things that a run found changed on the host."""
    seen: dict[str, dict[str, Any]] = observation(outcome, HOST)["managed"]
    wanted = {f"{item['kind']}:{item['id']}": item["desired"] for item in plan(outcome, HOST)["managed"]}
    return sorted(
        key
        for key, desired in wanted.items()
        if any(seen.get(key, {}).get(name) != value for name, value in desired.items() if name != "content")
    )


@pytest.fixture(scope="module")
def converged(cluster: Lab) -> Outcome:
    """Give the converged fleet."""
    outcome = play("site.yml", cluster.name)
    assert outcome.rc == 0, outcome.tail()
    return outcome


def test_every_managed_kind_can_be_tampered_with(converged: Outcome) -> None:
    """The walk below leaves no kind out."""
    kinds = {item["kind"] for item in plan(converged, HOST)["managed"]}
    assert kinds <= set(TAMPER)
    assert kinds <= {kind for batch in BATCHES for kind in batch}


@pytest.mark.parametrize("kinds", BATCHES, ids="+".join)
def test_a_change_behind_our_back_is_seen_and_repaired(cluster: Lab, converged: Outcome, kinds: tuple[str, ...]) -> None:
    """Every managed thing of these kinds is changed; one run repairs all; the next finds nothing."""
    items = [item for item in plan(converged, HOST)["managed"] if item["kind"] in kinds and item["desired"] not in NOWHERE]
    for item in items:
        done = cluster.run(HOST, ["sh", "-c", TAMPER[item["kind"]].format(id=item["id"])])
        assert done.returncode == 0, f"{item['kind']} {item['id']}: {done.stderr}"
    seen = play("site.yml", cluster.name, options=f"--tags check --limit {HOST}")
    assert seen.rc != 0 and seen.changed_tasks() == [], seen.tail()
    missed = {f"{item['kind']}:{item['id']}" for item in items} - set(differs(seen))
    assert not missed, f"changed but not seen: {sorted(missed)}"

    # A module taken out by hand holds no job, so loading it again needs no consent; a package changed under it does.
    repaired = play("site.yml", cluster.name, extra={"gpu_stack_disruption": "idle"})
    assert repaired.rc == 0, repaired.tail(80)
    again = play("site.yml", cluster.name)
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()
    assert differs(again) == []


def test_the_report_of_what_differs_is_data(converged: Outcome) -> None:
    """The plan can be stored and read back as JSON."""
    made = plan(converged, HOST)
    assert json.loads(json.dumps(made)) == made
