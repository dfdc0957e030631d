# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Software above the driver in the whole observation of a made-up host: what is seen, and what is seen otherwise after a change."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _runner
from ansible_collections.gpu.fleet.plugins.plugin_utils import _facts_schema
from fixtures import software_host
from fixtures.sysfs_host import Host, report

GROUP = ("cuda", "cudnn", "nccl", "containers", "pytorch", "conda", "dcgm", "limits", "owners")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(_runner, "SEARCH", str(made.bin))
    for name in ("sleep", "cat", "sh", "head"):
        (made.bin / name).symlink_to(f"/bin/{name}")
    return made


def reasons(facts: dict[str, Any], probe: str) -> list[str]:
    return [entry["reason"] for entry in facts["problems"] if entry["probe"] == probe]


def move(host: Host, link: str, to: str) -> None:
    (host.tree.root / link.lstrip("/")).unlink()
    host.tree.link(link, to)


def test_a_furnished_host(host: Host) -> None:
    facts = host.observe()
    assert facts["problems"] == []
    assert {key: facts["owners"][key] for key in ("cuda", "cudnn", "nccl", "container_toolkit", "pytorch", "dcgm")} == {
        "cuda": "nvidia", "cudnn": "nvidia", "nccl": "nvidia", "container_toolkit": "nvidia", "pytorch": "mixed", "dcgm": "nvidia",
    }  # fmt: skip
    (toolkit,) = facts["cuda"]
    assert toolkit == {
        "path": "/usr/local/cuda-13.0", "version": "13.0.2", "nvcc": "13.0.88", "links": ["/usr/local/cuda"], "compat": "580.95.05",
        "owner": "nvidia",
    }  # fmt: skip
    assert [entry["version"] for part in facts["cudnn"].values() for entry in part] == ["9.15.1", "9.15.1"]
    assert facts["nccl"]["plugins"] == ["/opt/fabric/lib/libnccl-net-fabric.so"]
    assert {(entry["name"], entry["value"]) for entry in facts["nccl"]["variables"]} == {
        ("NCCL_DEBUG", "WARN"), ("NCCL_API_TOKEN", None), ("NCCL_SOCKET_IFNAME", "eth0"),
    }  # fmt: skip
    engines = facts["containers"]["engines"]
    assert {name: (entry["active"], entry["nvidia_runtime"], entry["default_runtime"]) for name, entry in engines.items()} == {
        "docker": (True, True, "nvidia"), "containerd": (True, True, "runc"),
    }  # fmt: skip
    assert [(spec["path"], spec["differs"]) for spec in facts["containers"]["cdi"]] == [("/var/run/cdi/nvidia.yaml", [])]
    assert [(entry["path"], entry["kind"], entry["asked"]) for entry in facts["pytorch"]] == [
        ("/opt/env", "venv", True), ("/opt/miniforge3/envs/train", "conda", False),
    ]  # fmt: skip
    assert facts["limits"]["units"]["slurmd.service"]["process"]["memlock"] == 8388608
    assert facts["limits"]["slurm"]["propagate_except"] == ["MEMLOCK"]


def test_the_same_without_the_groups_that_it_leans_on(host: Host) -> None:
    facts = host.observe({"software"})
    assert {key for key in GROUP if facts[key] is None} == set()
    assert facts["problems"] == []
    # No GPUs to compare with, but the library of the driver.
    host.tree.file("/var/run/cdi/nvidia.yaml", software_host.specification(3, "535.309.01"))
    assert [entry["id"] for entry in host.observe({"software"})["containers"]["cdi"][0]["differs"]] == ["driver"]


def test_a_specification_older_than_the_driver(host: Host) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so."
    host.tree.file(library + "595.91.07", "")
    move(host, library + "1", library + "595.91.07")
    (spec,) = host.observe()["containers"]["cdi"]
    assert spec["differs"] == [{"id": "driver", "seen": "mounts 580.178.04, user space 595.91.07"}]


def test_a_specification_from_before_a_gpu_was_divided(host: Host) -> None:
    part = "<mig_devices><mig_device><index>0</index></mig_device><mig_device><index>1</index></mig_device></mig_devices>"
    text = report(host.addresses).replace("<current_mig>Disabled</current_mig></mig_mode>", f"<current_mig>Enabled</current_mig></mig_mode>{part}", 1)
    host.says("xml", text)
    (spec,) = host.observe()["containers"]["cdi"]
    assert [entry["id"] for entry in spec["differs"]] == ["gpus", "mig"]
    host.tree.file("/var/run/cdi/nvidia.yaml", software_host.specification(7, parts=("0:0", "0:1")))
    assert host.observe()["containers"]["cdi"][0]["differs"] == []


def test_a_specification_of_another_maker_is_not_compared(host: Host) -> None:
    host.tree.file("/etc/cdi/hca.json", '{"cdiVersion": "0.5.0", "kind": "nvidia.com/hca", "devices": [{"name": "0"}]}')
    found = {spec["path"]: spec for spec in host.observe()["containers"]["cdi"]}
    assert found["/etc/cdi/hca.json"]["differs"] is None
    assert found["/etc/cdi/hca.json"]["readable"] is True


def test_the_link_to_the_toolkit_moves(host: Host) -> None:
    host.tree.file("/usr/local/cuda-12.9/version.json", '{"cuda": {"version": "12.9.1"}}')
    move(host, "/etc/alternatives/cuda", "/usr/local/cuda-12.9")
    facts = host.observe()
    assert {entry["path"]: entry["links"] for entry in facts["cuda"]} == {"/usr/local/cuda-12.9": ["/usr/local/cuda"], "/usr/local/cuda-13.0": []}
    assert {entry["path"]: entry["owner"] for entry in facts["cuda"]} == {"/usr/local/cuda-12.9": "unpackaged", "/usr/local/cuda-13.0": "nvidia"}
    assert facts["owners"]["cuda"] == "mixed"
    move(host, "/etc/alternatives/cuda", "/usr/local/cuda-12.4")
    assert reasons(host.observe(), "cuda") == ["/usr/local/cuda leads to /usr/local/cuda-12.4, which is not there"]


def test_libraries_of_cudnn_without_their_headers(host: Host) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libcudnn"
    for stem in (library, library + "_ops"):
        host.tree.file(stem + ".so.9.10.2", "")
        move(host, stem + ".so.9", stem + ".so.9.10.2")
    assert reasons(host.observe(), "cudnn") == ["/usr/include/cudnn_version.h is of version 9.15.1, but the libraries of cuDNN are of 9.10.2"]


def test_a_drop_in_and_a_stopped_unit(host: Host) -> None:
    before = host.observe()["limits"]["units"]["slurmd.service"]
    host.says("unit-slurmd.service", software_host.UNIT.replace("LimitMEMLOCKSoft=infinity", "LimitMEMLOCKSoft=65536").replace("=no", "=yes"))
    host.says("unit-docker.service", software_host.UNIT.replace("ActiveState=active", "ActiveState=inactive"))
    facts = host.observe()
    after = facts["limits"]["units"]["slurmd.service"]
    assert (before["memlock"], after["memlock"]) == ("unlimited", 65536)
    assert (before["reload_needed"], after["reload_needed"]) == (False, True)
    assert facts["containers"]["engines"]["docker"]["active"] is False
    assert facts["containers"]["engines"]["containerd"]["active"] is True


def test_a_job_of_slurm_without_a_gpu_is_busy(host: Host) -> None:
    software_host.step(host.tree)
    facts = host.observe()
    held, waits = facts["busy"]["jobs"]
    assert held["job"] == {"kind": "session", "id": "3", "step": None}
    assert (waits["job"], waits["devices"]) == ({"kind": "slurm", "id": "41", "step": "batch"}, [])
    assert facts["busy"]["holders"] == 1
    assert _facts_schema.violations(facts) == []


def test_a_host_without_a_driver_can_be_busy_too(host: Host) -> None:
    software_host.step(host.tree)
    (host.tree.root / "dev/nvidia0").unlink()
    busy = host.observe()["busy"]
    assert (busy["holders"], [entry["job"]["id"] for entry in busy["jobs"]]) == (0, ["41"])


def test_without_a_package_manager_nobody_is_called_the_owner(host: Host) -> None:
    (host.bin / "dpkg-query").unlink()
    facts = host.observe()
    owners = {key: facts["owners"][key] for key in ("cuda", "cudnn", "nccl", "container_toolkit", "dcgm")}
    assert set(owners.values()) == {None}
    assert facts["cuda"][0]["version"] == "13.0.2"
    assert _facts_schema.violations(facts) == []


def test_without_systemd_activity_is_not_known(host: Host) -> None:
    (host.bin / "systemctl").unlink()
    facts = host.observe()
    assert facts["limits"]["units"] is None
    assert (facts["dcgm"]["active"], facts["containers"]["engines"]["docker"]["active"]) == (None, None)
    assert _facts_schema.violations(facts) == []


def test_a_host_with_nothing_is_an_answer(host: Host) -> None:
    for path in sorted((host.tree.root).glob("*/*")):
        if path.parent.name in ("usr", "opt", "etc", "var") and path.name != "os-release":
            path.rename(host.bin.parent / f"gone-{path.parent.name}-{path.name}")
    host.says("dpkg-query", "bash\t5.2\tinstall\tinstalled\tx\n")
    host.says("unit", "LoadState=not-found\n")
    facts = host.observe({"software"})
    assert facts["problems"] == []
    assert set(facts["owners"].values()) == {"absent"}
    assert (facts["cuda"], facts["pytorch"], facts["conda"]) == ([], [], [])
    assert facts["containers"] == {"engines": {}, "toolkit": None, "cdi": []}
    assert facts["nccl"]["libraries"] == facts["nccl"]["variables"] == []


NOISE = {"zeros": b"\0" * 100_000, "signs": b"{[\xff\"'=<" * 5_000, "dashes": b"-\n" * 100_000, "blanks": b" " * 200_000}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_every_file_is_garbage(host: Host, noise: bytes) -> None:
    root = host.tree.root
    for path in [path for folder in ("etc", "opt", "usr", "var") for path in (root / folder).rglob("*")]:
        if path.is_file() and not path.is_symlink() and path.name != "os-release":
            path.write_bytes(noise)
    for name in ("dpkg-query", "unit"):
        (host.bin.parent / name).write_bytes(noise[:10_000])
    begin = time.monotonic()
    facts = host.observe({"software"})
    assert time.monotonic() - begin < 5
    assert _facts_schema.violations(facts) == []
    assert {key for key in GROUP if facts[key] is None} == set()
    assert facts["nccl"]["variables"] == []
    assert all(spec["devices"] == [] and spec["readable"] is False for spec in facts["containers"]["cdi"])
    assert not [entry for entry in facts["problems"] if "Error" in entry["reason"]]


def test_pipes_in_the_place_of_files_hold_nobody(host: Host) -> None:
    for path in ("etc/docker/daemon.json", "var/run/cdi/nvidia.yaml", "etc/environment", "usr/local/cuda-13.0/version.json"):
        target = host.tree.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        os.mkfifo(target)
    begin = time.monotonic()
    facts = host.observe({"software"})
    assert time.monotonic() - begin < 2
    assert facts["cuda"][0]["version"] == "13.0"
