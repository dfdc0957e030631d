# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of the RHEL family goes through the main job like any other: installed, changed, kept, failed, given back.

The host is Debian with the real dnf, rpm and dkms; its tests run in order and hand it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from hardware.hosts import Node
from integration import rpm_poison
from integration.harness import CHECKOUT, Outcome, observation, plan, play
from lab.client import HostSpec
from own_lab import own_lab

EARLIER, WANTED = "580.159.04", "580.178.04"
LOCKS = "/etc/dnf/plugins/versionlock.list"
SWITCH = "/etc/dnf/plugins/versionlock.conf"
STREAM = "/etc/dnf/modules.d/nvidia-driver.module"
# As somebody had it: a remark, locks of other things, and one of a package that will be ours.
THEIRS = "# The site's.\nhtop-0:3.2-1.el9.*\n\n# Added lock on Mon Nov  2\nnvidia-modprobe-3:535.309.01-1.el9.*\n!kernel-core-0:9.9-1.el9.*\n"
AUTOMATIC = "import sys\nfrom dnf.automatic.main import main\nsys.exit(main(['/etc/dnf/automatic.conf', '--installupdates']))\n"
SETTINGS = "[commands]\napply_updates = yes\nrandom_sleep = 0\n[emitters]\nemit_via = stdio\n[base]\nexcludepkgs = kernel*, site-agent\n"
FORCE = "MAKE[0]=\"sh -c 'echo planted.c:1: error: no such function >&2; exit 2'\"\nCLEAN=\"true\"\n"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """Give the host, before this collection has seen it."""
    with own_lab("el-driver", [HostSpec("n1", image="el9", profile="h100-sxm8")]) as lab:
        made = Node(lab, "n1", "h100-sxm8")
        lab.run("n1", f"cat >{LOCKS}", THEIRS)
        lab.run("n1", "cat >/etc/dnf/automatic.conf", SETTINGS)
        lab.run("n1", "cat >/root/automatic.py", AUTOMATIC)
        rpm_poison.prepare(made)
        yield made


def site(node: Node, options: str = "", **extra: Any) -> Outcome:
    """Run the part of the main job that is about the driver."""
    asked = {"gpu_stack_driver": WANTED, "gpu_stack_pytorch": "", "gpu_stack_disruption": "idle", "gpu_stack_lock": {}, **extra}
    return play("site.yml", node.lab.name, options=f"--tags nvidia_driver {options}", extra=asked)


def change_set(outcome: Outcome) -> dict[str, list[Any]]:
    """Return the packages and the files that a run changed, or said it would change."""
    changed = {(c["name"], c["from"], c["to"]) for _, result in outcome.results("driver_transaction") for c in result.get("changes", [])}
    results = [result for action in ("managed_files", "dnf_locks") for _, result in outcome.results(action)]
    return {"packages": sorted(changed, key=repr), "files": sorted({path for result in results for path in result["changes"]})}


def settled(node: Node, version: str, flavour: str = "open", **extra: Any) -> dict[str, Any]:
    """See that the driver is one version everywhere, locked as a whole, and that another run has nothing to do; return its plan."""
    again = site(node, gpu_stack_driver=version, **{"gpu_stack_disruption": "never", **extra})
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()
    made, facts = plan(again, "n1"), observation(again, "n1")
    driver = facts["driver"]
    assert made["components"]["driver"]["wanted"]["version"] == version and made["differs"].get("nvidia_driver", []) == []
    disk = driver["on_disk"][facts["host"]["kernel"]]
    assert {driver["loaded"]["version"], disk["version"], driver["user_space"], driver["libcuda"]} == {version}
    assert {driver["loaded"]["flavour"], disk["flavour"]} == {flavour}
    assert driver["fabric_manager"] == {"version": version, "active": True}
    exact = {name: evr for name, evr in made["packages"]["nvidia_driver"].items() if evr}
    assert {package["name"]: package["version"] for package in driver["packages"]} == exact
    held = {f"{name}-{evr if ':' in evr else f'0:{evr}'}.*" for name, evr in exact.items()}
    assert set(facts["updates"]["versionlock"]) == held | {"htop-0:3.2-1.el9.*", "!kernel-core-0:9.9-1.el9.*"}
    return made


def versions(node: Node) -> dict[str, str]:
    """Return the installed packages of the driver."""
    rows = node("rpm", "-qa", "--qf", "%{NAME} %{EVR}\n", "*nvidia*").splitlines()
    return dict(row.split() for row in rows)


def proof(node: Node, options: str = "") -> str:
    """Return what the proof complains of; nothing where it passes."""
    asked = {"gpu_stack_driver": WANTED, "gpu_stack_pytorch": "", "gpu_stack_lock": {}}
    outcome = play(str(CHECKOUT / "tests/integration/proof.yml"), node.lab.name, extra=asked, options=options)
    if outcome.rc == 0:
        assert outcome.results("dnf_upgrade_info"), outcome.tail()
        return ""
    return str([event for event in outcome.events if event["event"] == "runner_on_failed"][-1]["event_data"]["res"]["msg"])


@contextmanager
def poisoned(node: Node) -> Iterator[None]:
    """Let the host know the repository that would push the driver out, and the vendor's newer release."""
    node.lab.fault("site", "newer")
    rpm_poison.offer(node)
    try:
        yield
    finally:
        node.lab.fault("site", "ok")
        rpm_poison.offer(node, on=False)


@contextmanager
def without(node: Node, layer: str) -> Iterator[None]:
    """Take away one of the things that keep the driver, and put it back."""
    away = {
        "lock": f"cp {LOCKS} /root/kept; sed -i '/^nvidia-modprobe/d' {LOCKS}",
        "switch": f"cp {SWITCH} /root/kept; sed -i 's/enabled = 1/enabled = 0/' {SWITCH}",
        "stream": f"cp {STREAM} /root/kept; dnf -y -q module reset nvidia-driver",
    }[layer]
    node("sh", "-ec", away)
    try:
        yield
    finally:
        node("cp", "/root/kept", {"lock": LOCKS, "switch": SWITCH, "stream": STREAM}[layer])


def test_check_mode_foresees_what_the_first_run_changes(node: Node) -> None:
    shown = play("playbooks/preflight.yml", node.lab.name, extra={"gpu_stack_driver": EARLIER, "gpu_stack_pytorch": "", "gpu_stack_lock": {}})
    assert shown.rc == 0 and shown.changed_tasks() == [] and EARLIER in shown.stdout, shown.tail()
    predicted = site(node, "--check", gpu_stack_driver=EARLIER)
    assert predicted.rc == 0, predicted.tail(60)
    assert versions(node) == {} and node("cat", LOCKS) == THEIRS and node("ls", "/etc/yum.repos.d").split() == ["baseos.repo"]
    made = site(node, gpu_stack_driver=EARLIER)
    assert made.rc == 0, made.tail(80)
    assert change_set(made) == change_set(predicted)
    # What the packages bring, check mode cannot look at yet.
    assert [task for task in made.changed_tasks() if task not in predicted.changed_tasks()] == ["n1: Run the driver's services"]
    settled(node, EARLIER)


def test_what_others_had_locked_is_put_aside_and_nothing_of_it_lost(node: Node) -> None:
    kept = node("cat", LOCKS)
    assert "# gpu.fleet put aside: nvidia-modprobe-3:535.309.01-1.el9.*\n" in kept
    assert set(THEIRS.splitlines()) - set(kept.splitlines()) == {"nvidia-modprobe-3:535.309.01-1.el9.*"}


def test_it_moves_within_a_branch_and_back_without_the_site(node: Node) -> None:
    moved = site(node)
    assert moved.rc == 0, moved.tail(80)
    settled(node, WANTED)
    node.lab.fault("site", "gone")
    try:
        back = play("playbooks/rollback_driver.yml", node.lab.name, extra={"gpu_stack_disruption": "idle"})
    finally:
        node.lab.fault("site", "ok")
    assert back.rc == 0, back.tail(80)
    settled(node, EARLIER)


def test_failure_06_flavours_and_branches_are_streams_and_change_with_the_packages(node: Node) -> None:
    """Across a rename, too: with 580 the fabric manager and NVML have other packages than before."""
    branches = yaml.safe_load((CHECKOUT / "roles/gpu_stack/vars/main/driver.yml").read_text())["__gpu_stack_driver_branches"]
    known = {"__gpu_stack_driver_branches": [{**entry, "packaged": [*entry["packaged"], "el"]} for entry in branches]}
    for version, flavour, stream in (
        (WANTED, "proprietary", "580-dkms"), ("535.309.01", "proprietary", "535-dkms"), (WANTED, "open", "580-open"),
    ):  # fmt: skip
        extra: dict[str, Any] = {"nvidia_driver_flavour": flavour, **known}
        moved = site(node, gpu_stack_driver=version, **extra)
        assert moved.rc == 0, moved.tail(80)
        settled(node, version, flavour, **extra)
        assert f"stream={stream}\n" in node("cat", STREAM)


@pytest.mark.parametrize("kind", ["gone", "half", "removed"])
def test_what_cannot_be_fetched_changes_nothing(node: Node, kind: str) -> None:
    before = versions(node), node("cat", LOCKS), node("cat", STREAM)
    node.lab.fault("site", kind, *{"half": ["path=*.rpm"], "removed": [EARLIER]}.get(kind, []))
    try:
        refused = site(node, gpu_stack_driver=EARLIER)
    finally:
        node.lab.fault("site", "ok")
    assert refused.rc != 0 and "n1: Change the driver and its companions as a whole" not in refused.changed_tasks(), refused.tail()
    assert (versions(node), node("cat", LOCKS), node("cat", STREAM)) == before
    assert WANTED in node("nvidia-smi")


def test_a_build_that_fails_brings_driver_stream_and_locks_back(node: Node) -> None:
    before = versions(node), node("cat", LOCKS), node("cat", STREAM)
    node.lab.run("n1", f"cat >/etc/dkms/nvidia-{EARLIER}.conf", FORCE)
    failed = site(node, gpu_stack_driver=EARLIER, nvidia_driver_flavour="proprietary")
    node("rm", f"/etc/dkms/nvidia-{EARLIER}.conf")
    assert failed.rc != 0 and "no such function" in failed.stdout and f"{WANTED} is back" in failed.stdout, failed.tail(60)
    assert (versions(node), node("cat", LOCKS), node("cat", STREAM)) == before
    settled(node, WANTED)


def test_an_rpm_that_is_killed_is_finished_by_the_next_run(node: Node) -> None:
    """With half of the packages in two versions, and scripts that have not run."""
    killer = "until pgrep -x dkms >/dev/null; do sleep 0.05; done; systemctl kill --signal=KILL --kill-whom=all gpu-fleet-driver.service"
    node("systemd-run", "--collect", "--unit=killer", "sh", "-c", killer)
    cut = site(node, gpu_stack_driver=EARLIER)
    assert cut.rc != 0 and "ended in the middle of packages" in cut.stdout, cut.tail(60)
    assert len(set(versions(node).values())) > 1
    made = site(node, gpu_stack_driver=EARLIER)
    assert made.rc == 0, made.tail(60)
    settled(node, EARLIER)
    back = site(node)
    assert back.rc == 0, back.tail(60)
    settled(node, WANTED)


def test_what_somebody_took_away_is_put_back(node: Node) -> None:
    node("sed", "-i", "/^libnvidia-ml/d", LOCKS)
    node("dnf", "-y", "-q", "module", "reset", "nvidia-driver")
    seen = site(node, gpu_stack_disruption="never")
    assert seen.rc == 0 and {"lock:libnvidia-ml", "stream:nvidia-driver"} == set(plan(seen, "n1")["differs"]["nvidia_driver"]), seen.tail()
    settled(node, WANTED)


def test_failure_01_02_03_no_upgrade_moves_the_driver(node: Node) -> None:
    """Neither by hand nor by dnf-automatic, with newer packages, ones that take the driver's place, and one that pushes it out."""
    before = versions(node)
    with poisoned(node):
        # What would have to push the driver out stops an upgrade, unless somebody does without it.
        assert "conflicts with nvidia-driver-cuda-libs" in node.run("dnf", "-y", "--refresh", "--exclude=kernel*", "upgrade").stderr
        assert versions(node) == before
        node("dnf", "-y", "--exclude=kernel*", "--exclude=site-agent", "upgrade")
        node("python3", "/root/automatic.py")
        assert versions(node) == before
        assert proof(node) == ""
        loose = ("dnf", "--assumeno", "--disableplugin=versionlock", "--exclude=site-agent", "upgrade")
        assert "580.195.03" in node.run(*loose).stdout, "the repositories are not poisonous: this test could not fail"
        # Ours comes first as long as it is there.
        assert "999.1" in node.run(*loose, "--disablerepo=gpu-fleet-nvidia").stdout
    settled(node, WANTED)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ("lock", "not locked: nvidia-modprobe"),
        ("switch", "versionlock, which keeps all locks, is switched off"),
        ("stream", "the enabled stream of the driver's module is another one: none"),
    ],
)
def test_the_proof_fails_without(node: Node, layer: str, said: str) -> None:
    with poisoned(node), without(node, layer):
        reason = proof(node)
        assert said in reason and "site.yml" in reason
        # One package alone may be kept by what others ask of it.
        assert layer != "switch" or "a full upgrade would " in reason
        # What a run is about to put back counts as there.
        assert layer == "switch" or proof(node, "--check") == ""


def test_failure_05_and_15_a_new_kernel_gets_its_module_before_it_starts(node: Node) -> None:
    """The upgrade brings a kernel without its headers, so that dkms builds nothing and says nothing."""
    node("dnf", "-y", "-q", "upgrade", "kernel*")
    made = site(node, gpu_stack_disruption="never")
    assert made.rc == 0, made.tail(60)
    following = observation(made, "n1")["driver"]["next_boot"]
    assert following["kernel"] != node("uname", "-r").strip() and following["module"] == WANTED
    assert len(node("rpm", "-q", "kernel-devel").split()) == 2
    settled(node, WANTED)
    node.reboot()
    assert node("uname", "-r").strip() == following["kernel"]
    settled(node, WANTED)


def test_unmanage_makes_the_host_what_it_was(node: Node) -> None:
    before = versions(node)
    predicted = play("playbooks/unmanage.yml", node.lab.name, options="--check")
    assert predicted.rc == 0 and "gpu.fleet: end" in node("cat", LOCKS), predicted.tail()
    outcome = play("playbooks/unmanage.yml", node.lab.name)
    assert outcome.rc == 0, outcome.tail()
    assert outcome.results("managed_release")[-1][1]["changes"] == predicted.results("managed_release")[-1][1]["changes"]
    assert node("cat", LOCKS) == THEIRS
    assert node("sh", "-c", "find /etc -name '*gpu[-_]fleet*'; ls /etc/dnf/modules.d; ls /var/lib/gpu_fleet | grep managed.json || true") == ""
    assert versions(node) == before
    again = play("playbooks/unmanage.yml", node.lab.name)
    assert again.rc == 0 and again.changed_tasks() == [], again.tail()
    with poisoned(node):
        node("dnf", "-y", "-q", "--exclude=site-agent", "upgrade")
        moved = versions(node)
        assert moved["nvidia-persistenced"] == "4:999.1-1", "it moves as before us"
        assert moved["nvidia-modprobe"] == f"3:{WANTED}-1.el9", "the lock that the site had of its own is theirs again"
