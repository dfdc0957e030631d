# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that others own: preflight names the owners, adopt describes them, and site.yml changes nothing of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._verification import node_checks
from integration.harness import Outcome, observation, plan, play
from lab import looks
from lab.client import HostSpec, Lab
from own_lab import own_lab

WORN = {"n1": "dgx-os", "n2": "runfile-ofed", "n3": "cloud-image", "n4": "gpu-operator"}
LEFT = ("n1", "n2", "n3")
OWNERS: dict[str, dict[str, str]] = {
    "n1": {"driver": "image", "fabric_manager": "nvidia", "rdma": "inbox"},
    "n2": {"driver": "runfile", "fabric_manager": "runfile", "rdma": "mlnx_ofed", "cuda": "runfile", "nccl": "site"},
    "n3": {"driver": "image", "nccl": "site"},
}
# As for an operator in a hurry: everything may be disturbed, and PyTorch is not what this is about.
ASKED = {"gpu_stack_driver": "580.178.04", "gpu_stack_pytorch": "", "gpu_stack_disruption": "idle"}
# Whatever is theirs: packages, units, modules that are loaded, and every file that has to do with GPUs or their adapters.
THEIRS = r"""
import glob, json, os, subprocess
def said(*words):
    return subprocess.run(words, capture_output=True, text=True).stdout
places = (
    "/usr/lib/x86_64-linux-gnu/*nvidia*", "/usr/lib/x86_64-linux-gnu/libcuda*", "/usr/bin/*nvidia*", "/usr/bin/nv-*", "/lib/modules/*/**/nvidia*",
    "/usr/src/nvidia*", "/var/lib/dkms/nvidia/*", "/usr/local/cuda*", "/usr/local/cuda*/*", "/usr/bin/ofed_info", "/opt/azurehpc/*",
    "/etc/dgx-release", "/etc/nvidia/*", "/etc/modprobe.d/*", "/etc/apt/sources.list.d/*", "/etc/apt/preferences.d/*",
    "/etc/nccl.conf", "/etc/containerd/**/*",
)
files = {}
for place in places:
    for path in glob.glob(place, recursive=True):
        state = os.lstat(path)
        files[path] = [state.st_mtime_ns, state.st_ino, state.st_size]
print(json.dumps({
    "boot": open("/proc/sys/kernel/random/boot_id").read(),
    "packages": said("dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n"),
    "units": said("systemctl", "show", "--property=Id,ActiveState,MainPID,ExecMainStartTimestampMonotonic", "nvidia*.service"),
    "modules": sorted(line.split()[0] for line in open("/proc/modules")),
    "files": files,
}))
"""


def theirs(lab: Lab) -> dict[str, Any]:
    """Return what of each host belongs to somebody else."""
    return {host: json.loads(lab.run(host, ["python3", "-c", THEIRS]).stdout) for host in WORN}


@pytest.fixture(scope="module")
def owned() -> Iterator[Lab]:
    """Give hosts that wear what others left on them."""
    images = {"n1": "ubuntu2404"}
    profiles = {"n3": "cloud-vm", "n4": "t4-pcie1"}
    hosts = [HostSpec(name, image=images.get(name, "debian12"), profile=profiles.get(name, "h100-sxm8")) for name in WORN]
    with own_lab("owners", hosts) as lab:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: looks.wear(lab, name, WORN[name]), WORN))
        yield lab


@pytest.fixture(scope="module")
def before(owned: Lab) -> dict[str, Any]:
    """Note what is theirs before any run."""
    return theirs(owned)


@pytest.fixture(scope="module")
def preflight(owned: Lab, before: dict[str, Any]) -> Outcome:
    """Show the plan of those who may stay."""
    assert before
    return play("playbooks/preflight.yml", owned.name, options=f"--limit {','.join(LEFT)}", extra=ASKED)


def test_failure_11_switches_that_let_no_gpu_in_are_seen(preflight: Outcome) -> None:
    """nvidia-smi works on both hosts; only where the fabric manager has been at work does CUDA."""
    checks = {host: {one["id"]: one for one in node_checks(observation(preflight, host), {}, {})} for host in ("n1", "n2")}
    assert checks["n1"]["inventory.fabric"]["verdict"] == "pass"
    assert checks["n2"]["inventory.fabric"]["verdict"] == "fail" and "In Progress" in checks["n2"]["inventory.fabric"]["evidence"]
    assert all(len([gpu for gpu in observation(preflight, host)["gpus"] if gpu["uuid"]]) == 8 for host in checks), "nvidia-smi answers"


@pytest.mark.parametrize("host", LEFT)
def test_preflight_names_the_owners(preflight: Outcome, host: str) -> None:
    assert preflight.rc == 0 and preflight.changed_tasks() == [], preflight.tail()
    made = plan(preflight, host)
    assert {name: made["components"][name]["owner"] for name in OWNERS[host]} == OWNERS[host]
    driver = made["components"]["driver"]
    assert (driver["action"], driver["present"], driver["wanted"]) == ("adopt", looks.VERSION, None)
    assert f"gpu_stack_driver is 580.178.04, and {looks.VERSION} is there" in driver["reasons"]
    assert "nvidia_driver" not in made["todo"] and made["packages"] == {} and made["repositories"] == []
    shown = " ".join(preflight.stdout.split())
    assert f"the driver belongs to {driver['owner']}" in shown and "left alone" in shown


def test_a_node_of_the_operator_refuses_the_run_for_all(owned: Lab, before: dict[str, Any]) -> None:
    outcome = play("site.yml", owned.name, extra=ASKED)
    assert outcome.rc != 0 and outcome.changed_tasks() == [], outcome.tail()
    assert "n4: the driver of this node belongs to the GPU operator" in " ".join(outcome.stdout.split()) and "gpu_hold" in outcome.stdout
    assert theirs(owned) == before
    seen = observation(outcome, "n4")["owners"]
    assert (seen["driver"], seen["container_toolkit"]) == ("gpu-operator", "gpu-operator")


def test_what_is_there_is_described(owned: Lab, before: dict[str, Any]) -> None:
    outcome = play("playbooks/adopt.yml", owned.name)
    assert outcome.rc == 0 and outcome.changed_tasks() == [], outcome.tail()
    (said,) = [result["msg"] for _, result in outcome.results("debug")]
    text = "\n".join(said)
    assert f"driver {looks.VERSION} belongs to runfile" in text and f"driver {looks.VERSION} belongs to image" in text
    assert "put the host into gpu_hold" in text and "rdma belongs to mlnx_ofed" in text
    assert said.count('nvidia_driver_source: "preinstalled"') == len(LEFT)
    assert theirs(owned) == before


def test_the_main_job_changes_nothing_of_theirs(owned: Lab, before: dict[str, Any], preflight: Outcome) -> None:
    assert preflight.rc == 0
    outcome = play("site.yml", owned.name, options=f"--limit {','.join(LEFT)} --skip-tags verification", extra=ASKED)
    assert outcome.rc == 0, outcome.tail()
    assert outcome.changed_tasks(), "what is nobody else's is done: limits, the account of the verification"
    after = theirs(owned)
    # Where nobody had settings of NCCL they are ours.
    assert after["n1"]["files"].pop("/etc/nccl.conf") and "/etc/nccl.conf" not in before["n1"]["files"]
    assert after == before
