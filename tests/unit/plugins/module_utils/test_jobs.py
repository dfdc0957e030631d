# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _jobs
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures import software_host
from fixtures.sysfs import Tree
from hypothesis import given, settings
from hypothesis import strategies as st

HEX = "0123456789abcdef" * 4
UID = "b6a1c8f2-1234-4abc-8def-0123456789ab"
BURSTABLE = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + UID.replace("-", "_") + ".slice"
KUBE = "/sys/fs/cgroup" + BURSTABLE


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", ("slurm", "123", "0")),
        ("0::/system.slice/node1_slurmstepd.scope/job_7/step_batch/slurm", ("slurm", "7", "batch")),
        ("0::/system.slice/slurmstepd.scope/job_9", ("slurm", "9", None)),
        ("5:memory:/slurm/uid_1000/job_55/step_extern/task_0\n1:name=systemd:/system.slice/slurmd.service", ("slurm", "55", "extern")),
        ("3:devices:/slurm_node1/uid_0/job_55/step_1", ("slurm", "55", "1")),
        (f"0::/system.slice/docker-{HEX}.scope", ("container", HEX[:12], None)),
        (f"12:pids:/docker/{HEX}", ("container", HEX[:12], None)),
        (f"0::/machine.slice/libpod-{HEX}.scope/container", ("container", HEX[:12], None)),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope", ("container", HEX[:12], None)),
        (f"0::/system.slice/containerd.service/k8s.io/{HEX}", ("container", HEX[:12], None)),
        (f"0::{BURSTABLE}/cri-containerd-{HEX}.scope", ("pod", UID, None)),
        (f"0::/kubepods/besteffort/pod{UID}/{HEX}", ("pod", UID, None)),
        (f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{HEX}.scope", ("pod", UID, None)),
        ("0::/user.slice/user-1000.slice/session-3.scope", ("session", "3", None)),
        ("0::/user.slice/user-1000.slice/session-c2.scope", ("session", "c2", None)),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope", ("session", "user@1000", None)),
        ("0::/system.slice/training.service", ("unit", "training.service", None)),
        ("0::/system.slice/slurmd.service", ("unit", "slurmd.service", None)),
        # None of these is what it looks like.
        ("0::/system.slice/job_12.service", ("unit", "job_12.service", None)),
        ("0::/system.slice/slurmstepd.scope/system", ("unit", "slurmstepd.scope", None)),
        ("0::/system.slice/x-0123456789ab.service", ("unit", "x-0123456789ab.service", None)),
        ("0::/", None),
        ("0::/init.scope", ("unit", "init.scope", None)),
        ("", None),
        ("garbage", None),
    ],
)
def test_whose_a_process_is(cgroup: str, expected: tuple[str, str, str | None] | None) -> None:
    found = _jobs.job_of(cgroup)
    assert (tuple(found.values()) if found else None) == expected


@settings(deadline=None)
@given(st.text())
def test_any_cgroup_is_read(text: str) -> None:
    found = _jobs.job_of(text)
    assert found is None or (found["kind"] in ("slurm", "pod", "container", "session", "unit") and found["id"])


def process(tree: Tree, pid: int, name: str, cgroup: str, title: str = "", parent: int = 1) -> None:
    tree.file(f"/proc/{pid}/comm", name)
    tree.file(f"/proc/{pid}/cgroup", cgroup)
    tree.file(f"/proc/{pid}/cmdline", title)
    tree.file(f"/proc/{pid}/status", f"Name:\t{name}\nPPid:\t{parent}")


def waiting(tree: Tree, holders: list[dict[str, Any]] | None = None) -> tuple[list[tuple[Any, ...]], list[str]]:
    system = System(str(tree.root))
    found = _jobs.waiting(system, holders or [])
    assert all(entry["devices"] == [] and isinstance(entry["uid"], int) for entry in found)
    return [(entry["pid"], entry["name"], *entry["job"].values()) for entry in found], [entry["reason"] for entry in system.problems]


def test_without_a_control_group_of_its_own_a_step_is_found_among_the_parents(tree: Tree) -> None:
    process(tree, 50, "slurmstepd", "0::/system.slice/slurmd.service", "slurmstepd: [77.batch]\0")
    process(tree, 51, "bash", "0::/system.slice/slurmd.service", "/bin/bash\0", 50)
    process(tree, 52, "python3", "0::/system.slice/slurmd.service", "python3\0", 51)
    process(tree, 60, "slurmd", "0::/system.slice/slurmd.service", "/usr/sbin/slurmd\0")
    holders: list[dict[str, Any]] = [{"pid": 52}, {"pid": 60}, {"pid": 99}]
    _jobs.attribute(System(str(tree.root)), holders)
    assert [entry["job"] for entry in holders] == [
        {"kind": "slurm", "id": "77", "step": "batch"}, {"kind": "unit", "id": "slurmd.service", "step": None}, None,
    ]  # fmt: skip
    assert holders[2]["uid"] is None


def test_a_step_without_a_gpu_is_work(tree: Tree) -> None:
    software_host.step(tree)
    assert waiting(tree) == ([(79, "slurmstepd", "slurm", "41", "batch")], [])


def test_a_job_that_holds_a_gpu_is_not_counted_twice(tree: Tree) -> None:
    software_host.step(tree)
    assert waiting(tree, [{"job": {"kind": "slurm", "id": "41", "step": "0"}}, {"job": None}])[0] == []


def test_a_job_that_ended_and_the_daemon_of_all_steps_are_no_work(tree: Tree) -> None:
    folder = "/sys/fs/cgroup/system.slice/slurmstepd.scope"
    for part in ("", "/system", "/job_5", "/job_5/step_0"):
        tree.file(f"{folder}{part}/cgroup.procs", "61" if part == "/system" else "")
    process(tree, 61, "slurmstepd", "0::/system.slice/slurmstepd.scope/system", "/usr/sbin/slurmstepd\0infinity\0")
    assert waiting(tree) == ([], [])


def test_control_groups_of_version_1(tree: Tree) -> None:
    for controller in ("freezer", "memory"):
        folder = f"/sys/fs/cgroup/{controller}/slurm/uid_1000/job_6"
        tree.file(folder + "/cgroup.procs", "")
        tree.file(folder + "/step_0/cgroup.procs", "71\n70")
    process(tree, 70, "slurmstepd", "4:memory:/slurm/uid_1000/job_6/step_0")
    process(tree, 71, "sleep", "4:memory:/slurm/uid_1000/job_6/step_0")
    assert waiting(tree) == ([(70, "slurmstepd", "slurm", "6", "0")], [])


def test_steps_in_the_service_of_slurmd(tree: Tree) -> None:
    tree.file("/sys/fs/cgroup/system.slice/slurmd.service/cgroup.procs", "60\n50")
    process(tree, 60, "slurmd", "0::/system.slice/slurmd.service", "/usr/sbin/slurmd\0-D\0")
    process(tree, 50, "slurmstepd", "0::/system.slice/slurmd.service", "slurmstepd: [77.0]\0")
    assert waiting(tree) == ([(50, "slurmstepd", "slurm", "77", "0")], [])


def checkpoint(*resources: tuple[str, str]) -> str:
    entries = [{"PodUID": uid, "ContainerName": "c", "ResourceName": name, "DeviceIDs": {"-1": ["GPU-1"]}} for uid, name in resources]
    return json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1})


@pytest.mark.parametrize(
    ("text", "procs", "expected"),
    [
        (checkpoint((UID, "nvidia.com/gpu")), "80", [(80, "python3", "pod", UID, None)]),
        (checkpoint((UID, "nvidia.com/mig-1g.10gb")), "80", [(80, "python3", "pod", UID, None)]),
        # Ended, of other devices, of another node's past.
        (checkpoint((UID, "nvidia.com/gpu")), "", []),
        (checkpoint((UID, "rdma/hca")), "80", []),
        (checkpoint(("other", "nvidia.com/gpu")), "80", []),
        ('{"Data": null}', "80", []),
    ],
)
def test_pods_with_gpus(tree: Tree, text: str, procs: str, expected: list[tuple[Any, ...]]) -> None:
    tree.file(_jobs.CHECKPOINT, text)
    tree.file(KUBE + "/cgroup.procs", "")
    tree.file(f"{KUBE}/cri-containerd-{HEX}.scope/cgroup.procs", procs)
    process(tree, 80, "python3", f"0::{BURSTABLE}/cri-containerd-{HEX}.scope")
    assert waiting(tree) == (expected, [])


@pytest.mark.parametrize("text", ["{", "[]", '{"Data": {"PodDeviceEntries": [{}]}}', '{"Data": {"PodDeviceEntries": 3}}'])
def test_a_damaged_checkpoint_is_a_problem(tree: Tree, text: str) -> None:
    tree.file(_jobs.CHECKPOINT, text)
    found, problems = waiting(tree)
    assert found == []
    assert "kubelet_internal_checkpoint cannot be read" in problems[0]
