# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Software above the driver on a host of its own: Debian's packages where there are any, else packages of the vendor's names by the real dpkg."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures import software_host
from hardware.hosts import APT, NEW, OLD, SITE, Node
from integration import harness
from lab.client import HostSpec
from own_lab import own_lab

PLAYBOOK = """
- name: Observe hosts
  hosts: all
  gather_facts: false
  tasks:
    - name: Observe
      gpu.fleet.gpu_facts:
        managed:
          - kind: python_environment
            id: /opt/gpu-env
"""
# Writes files and links, builds packages, and installs them all at once.
PUT = r"""
import json, os, pathlib, subprocess, sys
given = json.load(sys.stdin)
def write(root, files):
    for name, text in files.items():
        path = pathlib.Path(root + name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text[3:])
        else:
            path.write_text(text)
            path.chmod(0o755 if text.startswith("#!") else 0o644)
write("", given.get("files", {}))
built = []
for name, version, files in given.get("packages", []):
    root = "/tmp/built/" + name
    write(root, {"/DEBIAN/control": "Package: %s\nVersion: %s\nArchitecture: amd64\nMaintainer: cudatools <cudatools@nvidia.com>\n"
                                    "Description: x\n" % (name, version), **files})
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", root, root + ".deb"], check=True, stdout=subprocess.DEVNULL)
    built.append(root + ".deb")
if built:
    subprocess.run(["dpkg", "--install", *built], check=True, stdout=subprocess.DEVNULL)
subprocess.run(["rm", "-rf", "/tmp/built"], check=True)
"""
DEBIAN = ("containerd", "slurmd", "slurmctld", "munge", "libcudart11.0")
LIBRARIES = "/usr/lib/x86_64-linux-gnu/"
SLURM = """ClusterName=lab
SlurmctldHost=n1
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdSpoolDir=/var/lib/slurm/slurmd
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmUser=slurm
MpiDefault=none
ReturnToService=2
PropagateResourceLimitsExcept=MEMLOCK
TaskProlog=/etc/slurm/prolog
NodeName=n1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=n1 Default=YES State=UP
"""
HOLD = "import time; held = open('/dev/nvidia0'); time.sleep(600)"
CONTAINER = "0123456789abcdef" * 4
# What Slurm does with control groups of version 2, which it does not take here because the machine has some of version 1.
STEP = """#!/bin/sh
scope=/sys/fs/cgroup/system.slice/n1_slurmstepd.scope
mkdir -p $scope/job_4711/step_0/user/task_0 && echo $$ >$scope/job_4711/step_0/user/task_0/cgroup.procs && exec sleep 600
"""


def libraries(version: str) -> dict[str, str]:
    """Return the files of a package of cuDNN 9."""
    names = {f"{LIBRARIES}{stem}.so.{version}": "" for stem in ("libcudnn", "libcudnn_ops", "libcudnn_graph")}
    return names | {name.rsplit(".", 2)[0]: f"-> {name.rsplit('/', 1)[1]}" for name in names}


PACKAGES: list[tuple[str, str, dict[str, str]]] = [
    ("cuda-cudart-13-0", "13.0.96-1", {"/usr/local/cuda-13.0/version.json": '{"cuda": {"version": "13.0.2"}, "cuda_nvcc": {"version": "13.0.88"}}'}),
    ("cuda-nvcc-13-0", "13.0.88-1", {"/usr/local/cuda-13.0/bin/nvcc": "#!/bin/sh\n"}),
    ("libcudnn9-cuda-13", "9.15.1.9-1", libraries("9.15.1")),
    ("libcudnn9-headers-cuda-13", "9.15.1.9-1", {"/usr/include/x86_64-linux-gnu/cudnn_version_v9.h": software_host.CUDNN_VERSION}),
    ("libnccl2", "2.28.9-1+cuda13.0", {LIBRARIES + "libnccl.so.2.28.9": "", LIBRARIES + "libnccl.so.2": "-> libnccl.so.2.28.9"}),
    ("libnccl-dev", "2.28.9-1+cuda13.0", {"/usr/include/nccl.h": software_host.NCCL_HEADER}),
    ("nvidia-container-toolkit", "1.20.0-1", {"/usr/bin/nvidia-container-runtime": "#!/bin/sh\n"}),
    ("nvidia-container-toolkit-base", "1.20.0-1", {"/etc/nvidia-container-runtime/config.toml": software_host.TOOLKIT}),
    ("datacenter-gpu-manager-4-core", "1:4.6.0-1", {"/usr/lib/systemd/system/nvidia-dcgm.service": "[Service]\nExecStart=sleep infinity\n"}),
    ("datacenter-gpu-manager-4-cuda13", "1:4.6.0-1", {}),
    ("datacenter-gpu-manager-exporter", "4.8.2-1", {
        "/usr/lib/systemd/system/nvidia-dcgm-exporter.service": "[Service]\nExecStart=sh -c 'exec sleep infinity' dcgm-exporter -a 127.0.0.1:9400\n",
    }),
]  # fmt: skip
CONDA = "/opt/miniforge3"
RECORDS = (
    "pytorch-2.13.0-cuda129_mkl_py312_h1_302", "libcudnn-9.10.2.21-h0_0", "nccl-2.28.9.1-h4_0", "cuda-version-12.9-h4_3", "python-3.12.11-h9_0",
)  # fmt: skip
FILES = {
    # As the runfile leaves it, and as somebody has unpacked another.
    "/usr/local/cuda-12.9/version.json": '{"cuda": {"version": "12.9.1"}}',
    "/usr/local/cuda-12.9/bin/cuda-uninstaller": "#!/bin/sh\n",
    "/usr/local/cuda-10.2/version.txt": "CUDA Version 10.2.89\n",
    "/etc/environment": "NCCL_DEBUG=INFO\n",
    "/etc/profile.d/nccl.sh": "export NCCL_SOCKET_IFNAME=eth0 NCCL_AUTH_TOKEN=abc\n",
    "/etc/slurm/prolog": "#!/bin/sh\necho export NCCL_ALGO=Ring\n",
    "/etc/slurm/slurm.conf": SLURM,
    "/etc/slurm/cgroup.conf": "CgroupPlugin=cgroup/v1\n",
    "/etc/containerd/config.toml": software_host.CONTAINERD,
    "/etc/containerd/conf.d/99-nvidia.toml": software_host.CONTAINERD_NVIDIA,
    "/etc/cdi/nvidia.yaml": software_host.specification(8, OLD),
    "/etc/ld.so.conf.d/fabric.conf": "/opt/fabric/lib\n",
    "/opt/fabric/lib/libnccl-net-fabric.so": "",
    "/etc/profile.d/conda.sh": f". {CONDA}/etc/profile.d/conda.sh\n",
    f"{CONDA}/conda-meta/conda-25.9.1-py312_0.json": "{}",
    **{f"{CONDA}/envs/train/conda-meta/{name}.json": '{"channel": "https://conda.anaconda.org/conda-forge/linux-64"}' for name in RECORDS},
    "/opt/gpu-env/lib/python3.11/site-packages/torch/__init__.py": "",
    "/opt/gpu-env/lib/python3.11/site-packages/torch/version.py": "__version__ = '2.14.1+cu130'\ncuda = '13.0'\n",
    "/opt/gpu-env/lib/python3.11/site-packages/torch-2.14.1+cu130.dist-info/METADATA": "",
    "/opt/gpu-env/lib/python3.11/site-packages/nvidia_cudnn_cu13-9.24.0.43.dist-info/METADATA": "",
    "/opt/step": STEP,
    # What a driver would have made; no driver is loaded here.
    "/dev/nvidia0": "",
}


class Host(Node):
    """The host, changed and observed."""

    def put(self, **given: Any) -> None:
        """Write files, and build and install packages."""
        done = self.lab.run(self.name, ["python3", "-c", PUT], json.dumps(given))
        assert done.returncode == 0, done.stdout + done.stderr

    def observe(self, folder: Path) -> dict[str, Any]:
        """Return the facts of this moment."""
        (folder / "observe.yml").write_text(PLAYBOOK)
        outcome = harness.play(str(folder / "observe.yml"), self.lab.name)
        assert outcome.rc == 0, outcome.tail()
        return harness.observation(outcome, self.name)

    def library(self, version: str) -> None:
        """Give the host the driver's library in one version, as the first step of an upgrade does."""
        self(*APT, "--allow-downgrades", "install", f"libnvidia-ml1={version}-1")

    def submit(self, command: str) -> str:
        """Start a batch job and wait until it runs; return its number."""
        number = self("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", "--wrap", command).strip()
        for _ in range(100):
            if self("squeue", "--noheader", "--format=%t", "--job", number).strip() == "R":
                return number
            time.sleep(0.2)
        raise AssertionError(f"job {number} does not run: {self('squeue')}{self('sinfo')}")


@pytest.fixture(scope="module")
def node() -> Iterator[Host]:
    """Give a bare host with eight GPUs and no driver."""
    with own_lab("hardware-software", [HostSpec("n1", image="debian12", profile="h100-sxm8")]) as lab:
        yield Host(lab, "n1", "h100-sxm8")


@pytest.fixture(scope="module")
def bare(node: Host, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give the facts of the host as it was booted."""
    return node.observe(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def jobs(node: Host, bare: dict[str, Any]) -> dict[str, str]:
    """Furnish the host and start work; give the numbers of its Slurm jobs, one with a GPU and one without."""
    node.lab.run(node.name, "cat >/etc/apt/sources.list.d/vendor.list", f"deb [trusted=yes] {SITE} /\n")
    node("apt-get", "-q", "update")
    node(*APT, "install", *DEBIAN, f"libnvidia-ml1={OLD}-1")
    node("python3", "-m", "venv", "--without-pip", "/opt/gpu-env")
    node.put(files=FILES, packages=PACKAGES)
    for version in ("12.9", "13.0"):
        node("update-alternatives", "--install", "/usr/local/cuda", "cuda", f"/usr/local/cuda-{version}", version.replace(".", ""))
    node("update-alternatives", "--install", "/usr/include/cudnn_version.h", "cudnn", "/usr/include/x86_64-linux-gnu/cudnn_version_v9.h", "90")
    node("install", "--directory", "--owner=slurm", "/var/lib/slurm/slurmctld", "/var/lib/slurm/slurmd")
    node("systemctl", "daemon-reload")
    node("systemctl", "restart", "containerd", "munge", "slurmctld", "slurmd", "nvidia-dcgm", "nvidia-dcgm-exporter")
    node("systemd-run", "--unit=training", "python3", "-c", HOLD)
    # The name that an engine gives to a container's scope; systemd makes it for this one as for that one.
    node("systemd-run", "--unit=container", "systemd-run", "--scope", f"--unit=docker-{CONTAINER}", "python3", "-c", HOLD)
    node("systemd-run", "--unit=step", "systemd-run", "--scope", "--unit=n1_slurmstepd", "--property=Delegate=yes", "/opt/step")
    return {"held": node.submit(f'python3 -c "{HOLD}"'), "waiting": node.submit("sleep 600")}


@pytest.fixture(scope="module")
def furnished(node: Host, jobs: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give the facts of the furnished host at work."""
    return node.observe(tmp_path_factory.mktemp("furnished"))


@pytest.fixture(scope="module")
def changed(node: Host, jobs: dict[str, str], furnished: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give the facts after one change to each thing."""
    node.library(NEW)
    node("update-alternatives", "--set", "cuda", "/usr/local/cuda-12.9")
    node("systemctl", "stop", "nvidia-dcgm")
    limits = "[Service]\nLimitMEMLOCK=65536\nLimitNOFILE=4096\n"
    node.put(
        files={"/etc/systemd/system/containerd.service.d/limits.conf": limits, "/etc/cdi/nvidia.yaml": software_host.specification(7, OLD),
               "/etc/environment": "", "/etc/slurm/slurm.conf": SLURM.replace("Except=MEMLOCK", "=ALL")},
        packages=[("libcudnn9-cuda-13", "9.20.0.48-1", libraries("9.20.0"))],
    )  # fmt: skip
    node("systemctl", "daemon-reload")
    node.put(files={"/etc/systemd/system/slurmd.service.d/nccl.conf": "[Service]\nEnvironment=NCCL_PROTO=LL\nLimitMEMLOCK=1048576\n"})
    node("scancel", *jobs.values())
    node("systemctl", "stop", "training", "n1_slurmstepd.scope")
    for _ in range(100):
        if not node("squeue", "--noheader"):
            break
        time.sleep(0.2)
    return node.observe(tmp_path_factory.mktemp("changed"))


def reasons(facts: dict[str, Any], probe: str) -> list[str]:
    return [entry["reason"] for entry in facts["problems"] if entry["probe"] == probe]


OWNED = ("cuda", "cudnn", "nccl", "container_toolkit", "pytorch", "dcgm")


def test_a_bare_host_has_none_of_it(bare: dict[str, Any]) -> None:
    assert bare["problems"] == []
    assert {key: bare["owners"][key] for key in OWNED} == dict.fromkeys(OWNED, "absent")
    assert (bare["cuda"], bare["pytorch"], bare["conda"]) == ([], [], [])
    assert bare["containers"] == {"engines": {}, "toolkit": None, "cdi": []}
    assert bare["nccl"]["libraries"] == bare["nccl"]["variables"] == []
    assert bare["limits"]["units"]["ssh.service"]["active"] is True
    assert bare["limits"]["slurm"] is None


def test_a_furnished_host_has_no_problems_above_the_driver(furnished: dict[str, Any]) -> None:
    assert [entry for entry in furnished["problems"] if entry["probe"] != "nvidia-smi"] == []
    assert {key: furnished["owners"][key] for key in OWNED} == {
        "cuda": "mixed", "cudnn": "nvidia", "nccl": "nvidia", "container_toolkit": "nvidia", "pytorch": "mixed", "dcgm": "nvidia",
    }  # fmt: skip


def test_toolkits_of_four_makers(furnished: dict[str, Any]) -> None:
    assert [(entry["path"], entry["version"], entry["nvcc"], entry["links"], entry["owner"]) for entry in furnished["cuda"]] == [
        ("/usr/local/cuda-10.2", "10.2.89", None, [], "unpackaged"),
        ("/usr/local/cuda-12.9", "12.9.1", None, [], "runfile"),
        ("/usr/local/cuda-13.0", "13.0.2", "13.0.88", ["/usr/local/cuda"], "nvidia"),
        ("/usr", "11.8.0", None, [], "distro"),
    ]


def test_the_link_of_the_alternatives_moved(changed: dict[str, Any]) -> None:
    assert {entry["path"]: entry["links"] for entry in changed["cuda"] if entry["links"]} == {"/usr/local/cuda-12.9": ["/usr/local/cuda"]}


def test_cudnn_and_nccl_of_packages(furnished: dict[str, Any]) -> None:
    (header,), (library,) = furnished["cudnn"]["headers"], furnished["cudnn"]["libraries"]
    assert (header["path"], header["version"]) == ("/usr/include/cudnn_version.h", "9.15.1")
    assert library == {"path": LIBRARIES + "libcudnn.so.9", "version": "9.15.1", "cuda": 13, "owner": "nvidia"}
    nccl = furnished["nccl"]
    assert nccl["libraries"] == [{"path": LIBRARIES + "libnccl.so.2", "version": "2.28.9", "cuda": "13.0", "owner": "nvidia"}]
    assert [entry["version"] for entry in nccl["headers"]] == ["2.28.9"]
    assert nccl["plugins"] == ["/opt/fabric/lib/libnccl-net-fabric.so"]


def test_libraries_of_cudnn_went_on_without_their_headers(changed: dict[str, Any]) -> None:
    assert changed["cudnn"]["libraries"][0]["version"] == "9.20.0"
    assert reasons(changed, "cudnn") == ["/usr/include/cudnn_version.h is of version 9.15.1, but the libraries of cuDNN are of 9.20.0"]


def test_forgotten_variables(furnished: dict[str, Any], changed: dict[str, Any]) -> None:
    def of_nccl(facts: dict[str, Any]) -> set[tuple[str, str | None, str]]:
        return {(entry["name"], entry["value"], entry["where"]) for entry in facts["nccl"]["variables"] if entry["name"].startswith("NCCL_")}

    kept = {
        ("NCCL_SOCKET_IFNAME", "eth0", "/etc/profile.d/nccl.sh"), ("NCCL_AUTH_TOKEN", None, "/etc/profile.d/nccl.sh"),
        ("NCCL_ALGO", "Ring", "/etc/slurm/prolog"),
    }  # fmt: skip
    assert of_nccl(furnished) == kept | {("NCCL_DEBUG", "INFO", "/etc/environment")}
    assert of_nccl(changed) == kept | {("NCCL_PROTO", "LL", "/etc/systemd/system/slurmd.service.d/nccl.conf")}


def test_a_real_containerd_with_the_runtime(furnished: dict[str, Any]) -> None:
    (engine,) = furnished["containers"]["engines"].values()
    assert engine.pop("version").startswith("1.6.20")
    assert engine == {"active": True, "nvidia_runtime": True, "default_runtime": "runc", "cdi": True}
    toolkit = furnished["containers"]["toolkit"]
    assert (toolkit["version"], toolkit["mode"], toolkit["owner"]) == ("1.20.0-1", "auto", "nvidia")


def test_a_specification_fits_until_the_driver_is_upgraded(furnished: dict[str, Any], changed: dict[str, Any]) -> None:
    (before,), (after,) = furnished["containers"]["cdi"], changed["containers"]["cdi"]
    assert (before["kind"], before["drivers"], before["readable"], before["differs"]) == ("nvidia.com/gpu", [OLD], True, [])
    assert after["differs"] == [
        {"id": "driver", "seen": f"mounts {OLD}, user space {NEW}"}, {"id": "gpus", "seen": "names 7, present 8"},
    ]  # fmt: skip
    assert after["mtime"] > before["mtime"]


def test_torch_of_pip_and_of_conda(furnished: dict[str, Any]) -> None:
    asked, found = furnished["pytorch"]
    keys = ("path", "kind", "owner", "torch", "tag", "cuda", "cudnn", "nccl", "channel")
    assert [asked[key] for key in keys] == ["/opt/gpu-env", "venv", "pip", "2.14.1+cu130", "cu130", "13.0", "9.24.0.43", None, None]
    assert [found[key] for key in keys] == [
        f"{CONDA}/envs/train", "conda", "conda", "2.13.0", "cu129", "12.9", "9.10.2.21", "2.28.9.1", "conda-forge",
    ]  # fmt: skip
    assert furnished["conda"] == [{"path": CONDA, "version": "25.9.1", "environments": [f"{CONDA}/envs/train"]}]


def test_dcgm_and_a_unit_that_was_stopped(furnished: dict[str, Any], changed: dict[str, Any]) -> None:
    dcgm = furnished["dcgm"]
    assert (dcgm["version"], dcgm["flavours"], dcgm["active"]) == ("4.6.0", ["cuda13"], True)
    assert dcgm["exporter"] == {"version": "4.8.2", "active": True, "listen": "127.0.0.1:9400"}
    assert changed["dcgm"] == {**dcgm, "active": False}


def test_limits_of_units_and_of_their_processes(furnished: dict[str, Any], changed: dict[str, Any]) -> None:
    before, after = furnished["limits"]["units"]["containerd.service"], changed["limits"]["units"]["containerd.service"]
    # The drop-in is read, the daemon runs on with what it had.
    assert (after["memlock"], after["nofile"], after["reload_needed"]) == (65536, 4096, False)
    assert after["process"] == before["process"]
    assert before["process"]["nofile"] != 4096
    slurmd = changed["limits"]["units"]["slurmd.service"]
    assert (slurmd["memlock"], slurmd["reload_needed"]) == (furnished["limits"]["units"]["slurmd.service"]["memlock"], True)
    assert furnished["limits"]["slurm"] == {
        "config": "/etc/slurm/slurm.conf", "propagate": None, "propagate_except": ["MEMLOCK"], "prologs": ["/etc/slurm/prolog"],
    }  # fmt: skip
    assert (changed["limits"]["slurm"]["propagate"], changed["limits"]["slurm"]["propagate_except"]) == (["ALL"], None)


def test_whose_jobs_are_on_the_host(jobs: dict[str, str], furnished: dict[str, Any]) -> None:
    busy = furnished["busy"]
    assert busy["holders"] == 3
    assert {(entry["job"]["kind"], entry["job"]["id"], entry["job"]["step"], bool(entry["devices"])) for entry in busy["jobs"]} == {
        ("slurm", jobs["held"], "batch", True), ("slurm", jobs["waiting"], "batch", False), ("slurm", "4711", "0", False),
        ("unit", "training.service", None, True), ("container", CONTAINER[:12], None, True),
    }  # fmt: skip
    assert {entry["name"] for entry in busy["jobs"]} == {"python3", "slurmstepd", "sleep"}


def test_jobs_that_ended_are_gone(changed: dict[str, Any]) -> None:
    assert [(entry["job"]["kind"], entry["job"]["id"]) for entry in changed["busy"]["jobs"]] == [("container", CONTAINER[:12])]
