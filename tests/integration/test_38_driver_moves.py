# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Idle hosts from driver to driver: each time the driver is whole, the next run finds nothing to do, and there is a way back.

Each host's tests tell one story, in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hardware.hosts import OLD, Node
from integration.harness import Outcome, observation, plan, play
from integration.poison import must
from lab import debian
from lab.client import HostSpec, Lab
from own_lab import own_lab

# The driver alone, and of the whole main job what belongs to it.
DRIVER_ONLY = "--tags nvidia_driver"
EARLIER, LATER, LAST = "580.159.04", "580.178.04", "620.10.01"
DISTRIBUTION = "535.309.01"
# What an operator set on the first GPU, and its division, which a driver that goes away takes along.
SET_UP = """
set -e
nvidia-smi -i 0 -pl 500 && nvidia-smi -i 0 -c EXCLUSIVE_PROCESS
nvidia-smi -i 1 -mig 1 && nvidia-smi mig -i 1 -cgi 9,14 -C
"""
KEPT = ("mig", "mig_geometry", "power_limit_w", "compute_mode")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Give a host with switches, on which somebody runs the proprietary flavour of the oldest branch, and two bare ones with one GPU."""
    profiles = {"n1": "h100-sxm8", "n2": "t4-pcie1", "n9": "t4-pcie1"}
    images = {"n9": "ubuntu2404"}
    with own_lab("moves", [HostSpec(name, image=images.get(name, "debian12"), profile=profile) for name, profile in profiles.items()]) as running:
        yield running


@pytest.fixture(scope="module")
def node(lab: Lab) -> Node:
    """Give the host with switches."""
    made = Node(lab, "n1", "h100-sxm8")
    made.install(OLD, "nvidia-fabricmanager-535", proprietary=True)
    made("rm", "/etc/apt/sources.list.d/vendor.list")
    made("modprobe", "nvidia")
    return made


@pytest.fixture(scope="module")
def archive(lab: Lab) -> str:
    """Give the host whose distribution has a driver of its own: Debian's packages, with a short module in place of the long build."""
    debian.wear(lab, "n2")
    debian.short_build(lab, "n2")
    return "n2"


def run(lab: Lab, host: str, playbook: str = "site.yml", **asked: Any) -> Outcome:
    """Run a playbook for one host; nothing runs on it."""
    extra = {"gpu_stack_pytorch": "", "gpu_stack_disruption": "idle", "gpu_stack_lock": {}, **asked}
    options = f"--limit {host}" + (f" {DRIVER_ONLY}" if playbook == "site.yml" else "")
    return play(playbook, lab.name, options=options, extra=extra)


def moved(lab: Lab, host: str, flavour: str, **asked: Any) -> Outcome:
    """Move a host's driver, see that it is whole, and that the next run has nothing to do and needs no consent."""
    outcome = run(lab, host, **asked)
    assert outcome.rc == 0, outcome.tail(60)
    made = plan(outcome, host)
    wanted = made["components"]["driver"]["wanted"]
    assert wanted["flavour"] == flavour and wanted["version"].startswith(str(asked["gpu_stack_driver"]))
    facts = whole(outcome, host, wanted["version"], flavour)
    exact = set(made["packages"]["nvidia_driver"].values())
    # All that is left of any driver is what is wanted; what bears no driver's version serves several.
    strange = [package for package in facts["driver"]["packages"] if package["version"] not in exact and package["version"][0] in "56"]
    assert strange == []
    again = run(lab, host, **{**asked, "gpu_stack_disruption": "never"})
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()
    return outcome


def whole(outcome: Outcome, host: str, version: str, flavour: str) -> dict[str, Any]:
    """See that loaded, on disk and in user space there is one driver; returns the facts."""
    facts = observation(outcome, host)
    driver = facts["driver"]
    kernel = driver["on_disk"][facts["host"]["kernel"]]
    assert {driver["loaded"]["version"], kernel["version"], driver["user_space"], driver["libcuda"]} == {version}
    assert {driver["loaded"]["flavour"], kernel["flavour"]} == {flavour}
    if facts["nvswitches"]:
        assert driver["fabric_manager"] == {"version": version, "active": True}
    return facts


def back(lab: Lab, host: str, version: str, flavour: str) -> Outcome:
    """Call the last move back, and see that the driver before it is whole; returns how it was called back."""
    outcome = run(lab, host, "playbooks/rollback_driver.yml")
    assert outcome.rc == 0, outcome.tail(60)
    stays(lab, host, [result["kept"] for _host, result in outcome.results("driver_transaction") if "kept" in result][-1])
    seen = run(lab, host, "playbooks/preflight.yml", gpu_stack_driver=version)
    whole(seen, host, version, flavour)
    return outcome


def stays(lab: Lab, host: str, packages: dict[str, str]) -> None:
    """See that a full upgrade leaves what came back where it is, by its holds and by its pins, names that only its branch has among it."""
    assert packages and set(packages) <= set(must(lab, host, "apt-mark showhold").split())
    for option in ("", "--ignore-hold"):
        said = must(lab, host, f"apt-get -q --simulate {option} dist-upgrade")
        moves = {line.split()[1] for line in said.splitlines() if line.startswith(("Inst ", "Remv "))}
        assert not moves & set(packages), option or "with holds"


def kept(outcome: Outcome, host: str) -> dict[str, Any]:
    """Return what operators set on GPUs, as it was last observed."""
    state = observation(outcome, host)["volatile"]
    return {address: {name: entry[name] for name in KEPT} for address, entry in sorted(state.items())}


def test_the_present_branch_in_the_other_flavour(node: Node) -> None:
    moved(node.lab, "n1", "open", gpu_stack_driver="535")


def test_to_a_newer_branch_back_under_other_names_and_on_within_it(node: Node) -> None:
    """The names of the former branch had lost their holds with their packages; all that comes back is kept where it is."""
    moved(node.lab, "n1", "open", gpu_stack_driver=EARLIER)
    outcome = back(node.lab, "n1", OLD, "open")
    kept_names = set(outcome.results("driver_transaction")[-1][1]["kept"])
    rows = [row.split() for row in node("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n").splitlines()]
    wants = {row[0]: row[2] for row in rows if len(row) == 4 and row[3] == "installed" and row[0] in kept_names}
    assert set(wants) == kept_names and "nvidia-fabricmanager-535" in kept_names and set(wants.values()) == {"hold"}
    # Without the holds it is the pins alone that keep them.
    for options in ("", "--ignore-hold"):
        said = must(node.lab, "n1", f"apt-get -q update >&2 && apt-get -q --simulate {options} dist-upgrade")
        assert [line for line in said.splitlines() if line.startswith(("Inst", "Remv")) and line.split()[1] in kept_names] == []
    listed = must(node.lab, "n1", "cat /var/lib/gpu_fleet/managed.json")
    assert [name for name in sorted(kept_names) if f'"{name}"' not in listed] == []
    moved(node.lab, "n1", "open", gpu_stack_driver=EARLIER)
    moved(node.lab, "n1", "open", gpu_stack_driver=LATER)


def test_to_proprietary_modules_by_wish_and_back(node: Node) -> None:
    moved(node.lab, "n1", "proprietary", gpu_stack_driver=LATER, nvidia_driver_flavour="proprietary")
    back(node.lab, "n1", LATER, "open")
    moved(node.lab, "n1", "open", gpu_stack_driver=LATER, nvidia_driver_flavour="open")


def test_settings_of_the_gpus_come_along_to_the_newest_branch_and_back(node: Node) -> None:
    node("sh", "-c", SET_UP)
    before = kept(run(node.lab, "n1", "playbooks/preflight.yml", gpu_stack_driver=LATER), "n1")
    assert [entry["mig"] for entry in before.values()].count("enabled") == 1
    outcome = moved(node.lab, "n1", "open", gpu_stack_driver="620")
    assert plan(outcome, "n1")["components"]["driver"]["wanted"]["version"] == LAST and kept(outcome, "n1") == before
    back(node.lab, "n1", LATER, "open")
    assert kept(run(node.lab, "n1", "playbooks/preflight.yml", gpu_stack_driver=LATER), "n1") == before


@pytest.mark.parametrize("branch", ["575", "580", "620"])
def test_through_every_naming_of_ubuntu(lab: Lab, branch: str) -> None:
    moved(lab, "n9", "open", gpu_stack_driver=branch)


def test_a_bare_host_gets_the_distributions_driver(lab: Lab, archive: str) -> None:
    moved(lab, archive, "proprietary", gpu_stack_driver="535", nvidia_driver_source="distro")


def test_from_the_distribution_to_the_vendor_and_back(lab: Lab, archive: str) -> None:
    """All of Debian's goes, with what leads paths to its files, and comes back as it was."""
    stays = run(lab, archive, gpu_stack_driver="580", nvidia_driver_source="nvidia")
    assert stays.rc == 0 and stays.changed_tasks() == [], "without gpu_stack_takeover it is Debian's, and stays"
    taken = {"gpu_stack_takeover": ["driver"]}
    moved(lab, archive, "open", gpu_stack_driver="580", nvidia_driver_source="nvidia", **taken)
    assert missing(lab, archive) == ""
    back(lab, archive, DISTRIBUTION, "proprietary")
    moved(lab, archive, "open", gpu_stack_driver="580", nvidia_driver_source="nvidia", **taken)
    moved(lab, archive, "proprietary", gpu_stack_driver="535", nvidia_driver_source="distro", **taken)
    assert missing(lab, archive) == ""


def missing(lab: Lab, host: str) -> str:
    """Return which files of the driver's packages are not there, but for papers, which hosts of the lab have none of."""
    script = "dpkg --verify $(dpkg-query -W -f '${Package} ${db:Status-Status}\\n' '*nvidia*' libcuda1 | awk '$2 == \"installed\" {print $1}')"
    done = lab.run(host, f"{script} | grep -v /usr/share/ || true")
    assert done.returncode == 0, done.stderr
    return done.stdout
