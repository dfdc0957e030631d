# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _conda, _conf
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given, settings
from hypothesis import strategies as st

FORGE = '{"arch": "x86_64", "build": "x", "channel": "https://conda.anaconda.org/conda-forge/linux-64", "files": [' + '"a/b", ' * 20000


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def put(tree: Tree, prefix: str, *names: str, text: str = "{}") -> None:
    for name in names:
        tree.file(f"{prefix}/conda-meta/{name}.json", text)


def find(tree: Tree) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    system = System(str(tree.root))
    installations, environments = _conda.find(system, _conf.Mounts(system))
    return installations, environments, [entry["reason"] for entry in system.problems]


def pip_torch(tree: Tree, prefix: str, version: str, cuda: str | None, *packages: str) -> None:
    site = f"{prefix}/lib/python3.12/site-packages"
    tree.file(f"{prefix}/bin/python", "#!").chmod(0o755)
    tree.file(f"{site}/torch/__init__.py", "")
    tree.file(f"{site}/torch/version.py", f"__version__ = '{version}'\ncuda: Optional[str] = {cuda and repr(cuda)}\n")
    for name in (f"torch-{version}", *packages):
        tree.file(f"{site}/{name}.dist-info/METADATA", "")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0.json", {"pytorch": ("2.5.1", "py3.12_cuda12.4_cudnn9.1.0_0")}),
        ("cuda-version-12.9-h4f385c5_3.json", {"cuda-version": ("12.9", "h4f385c5_3")}),
        ("history", {}),
        ("short-1.json", {}),
        (".json", {}),
    ],
)
def test_records(name: str, expected: dict[str, tuple[str, str]]) -> None:
    assert _conda.records([name]) == expected


@pytest.mark.parametrize(
    ("build", "tag"),
    [
        ("cuda129_mkl_py312_h1234567_302", "cu129"),
        ("py3.12_cuda12.4_cudnn9.1.0_0", "cu124"),
        ("cuda126_generic_py311_h5", "cu126"),
        ("cpu_mkl_py312_h0f6f4ab_100", "cpu"),
        ("py3.12_cpu_0", "cpu"),
        ("py312h123_0", None),
        ("", None),
    ],
)
def test_builds(build: str, tag: str | None) -> None:
    assert _conda.build_tag(build) == tag


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (FORGE, "conda-forge"),
        ('{"channel": "https://repo.anaconda.com/pkgs/main/linux-64"}', "pkgs/main"),
        ('{"channel":"pytorch/linux-64"}', "pytorch"),
        ('{"channel": "conda-forge"}', "conda-forge"),
        # A token, a password and a host are nobody's business.
        ('{"channel": "https://conda.anaconda.org/t/ab-12/private/noarch/"}', "private"),
        ('{"channel": "https://me:secret@mirror.example/api/conda/forge/linux-aarch64"}', "api/conda/forge"),
        ('{"channel": "https:\\/\\/conda.anaconda.org\\/nvidia\\/linux-64"}', "nvidia"),
        ('{"channel": ""}', None),
        ('{"chan', None),
    ],
)
def test_channels(text: str, name: str | None) -> None:
    assert _conda.channel(text) == name


def test_an_installation_and_its_environments(tree: Tree) -> None:
    base = "/opt/miniforge3"
    put(tree, base, "conda-25.9.1-py312_0", "python-3.12.11-h9_0_cpython")
    put(tree, base + "/envs/a", "python-3.11.9-h9_0", "pytorch-2.13.0-cuda129_mkl_py311_h1_302", "libcudnn-9.10.2.21-h0_0", "nccl-2.28.9.1-h4_0",
        "cuda-version-12.9-h4_3", "zlib-1.3-h5_0", text=FORGE)  # fmt: skip
    put(tree, base + "/envs/b", "python-3.11.9-h9_0")
    installations, environments, problems = find(tree)
    assert installations == [{"path": base, "version": "25.9.1", "environments": [base + "/envs/a", base + "/envs/b"]}]
    assert environments == [{
        "path": base + "/envs/a", "kind": "conda", "owner": "conda", "channel": "conda-forge", "python": "3.11.9", "torch": "2.13.0", "tag": "cu129",
        "cuda": "12.9", "cudnn": "9.10.2.21", "nccl": "2.28.9.1",
        "packages": {"python": "3.11.9", "pytorch": "2.13.0", "libcudnn": "9.10.2.21", "nccl": "2.28.9.1", "cuda-version": "12.9"},
    }]  # fmt: skip
    assert problems == []


@pytest.mark.parametrize(
    ("records", "cuda", "tag"),
    [
        (("pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0",), "12.4", "cu124"),
        (("pytorch-2.5.1-py3.12_cuda11.8_cudnn9.1.0_0", "pytorch-cuda-11.8-h7_6"), "11.8", "cu118"),
        (("pytorch-2.13.0-cpu_mkl_py312_h1_100", "cuda-version-12.9-h4_3"), None, "cpu"),
        (("libtorch-2.13.0-cuda130_mkl_h1_302",), "13.0", "cu130"),
    ],
)
def test_what_a_conda_torch_was_built_for(tree: Tree, records: tuple[str, ...], cuda: str | None, tag: str) -> None:
    put(tree, "/opt/conda", *records)
    (found,) = find(tree)[1]
    assert (found["cuda"], found["tag"]) == (cuda, tag)


def test_pips_torch_in_a_conda_environment(tree: Tree) -> None:
    put(tree, "/opt/conda", "conda-25.9.1-py312_0", "python-3.12.11-h9_0")
    pip_torch(tree, "/opt/conda", "2.14.1+cu130", "13.0", "nvidia_cudnn_cu13-9.24.0.43", "nvidia_nccl_cu13-2.30.7", "requests-2.32")
    (found,) = find(tree)[1]
    assert {key: found[key] for key in ("kind", "owner", "torch", "tag", "cuda", "cudnn", "nccl", "channel")} == {
        "kind": "conda", "owner": "pip", "channel": None, "torch": "2.14.1+cu130", "tag": "cu130", "cuda": "13.0",
        "cudnn": "9.24.0.43", "nccl": "2.30.7",
    }  # fmt: skip
    assert set(found["packages"]) == {"torch", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"}


@pytest.mark.parametrize(
    ("version", "cuda", "tag", "owner"),
    [("2.14.1", "13.0", "cu130", "pip"), ("2.14.1+cpu", None, "cpu", "pip"), ("2.14.1", None, "cpu", "pip")],
)
def test_a_virtual_environment_is_described(version: str, cuda: str | None, tag: str, owner: str) -> None:
    found = _conda.described({"path": "/x", "python": "3.12", "torch": version, "cuda": cuda, "packages": {}})
    assert (found["tag"], found["owner"], found["kind"]) == (tag, owner, "venv")
    assert _conda.described({"torch": None, "cuda": None, "packages": {}})["owner"] is None


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/profile.d/conda.sh", "export CONDA_EXE='/srv/conda/bin/conda'\n"),
        ("/etc/profile.d/z.sh", ". /srv/conda/etc/profile.d/conda.sh\n"),
        ("/etc/profile.d/z.csh", "source /srv/conda/etc/profile.d/mamba.sh\n"),
        ("/root/.conda/environments.txt", "\n/srv/conda/envs/a/\nrelative\n"),
    ],
)
def test_installations_in_other_places(tree: Tree, path: str, text: str) -> None:
    put(tree, "/srv/conda", "conda-25.9.1-py312_0")
    put(tree, "/srv/conda/envs/a", "pytorch-2.13.0-cpu_py312_0")
    tree.file(path, text)
    installations, environments, _ = find(tree)
    assert [entry["path"] for entry in installations] == ["/srv/conda"]
    assert [entry["path"] for entry in environments] == ["/srv/conda/envs/a"]


def test_an_environment_of_its_own_is_found_in_the_list(tree: Tree) -> None:
    put(tree, "/data/env", "pytorch-2.13.0-cpu_py312_0")
    tree.file("/root/.conda/environments.txt", "/data/env\n/gone\n")
    assert [entry["path"] for entry in find(tree)[1]] == ["/data/env"]


def test_homes_and_other_machines_are_left_alone(tree: Tree) -> None:
    tree.file("/proc/self/mounts", "x / nfs4 rw 0 0\nstore:/x /shared nfs4 rw 0 0\nstore:/y /opt/conda lustre rw 0 0\n")
    for base in ("/home/a/miniconda3", "/shared/conda", "/opt/conda"):
        put(tree, base, "pytorch-2.13.0-cpu_py312_0")
    tree.file("/etc/profile.d/conda.sh", ". /shared/conda/etc/profile.d/conda.sh")
    tree.file("/root/.conda/environments.txt", "/shared/conda/envs/a\n")
    assert find(tree) == ([], [], [
        "/shared/conda lies on nfs4 and was not looked into", "/shared/conda/envs/a lies on nfs4 and was not looked into",
    ])  # fmt: skip


def test_too_many_environments_are_told(tree: Tree) -> None:
    for number in range(_conda.MOST + 1):
        put(tree, f"/opt/conda/envs/e{number:03}", "pytorch-2.13.0-cpu_py312_0")
    _, environments, problems = find(tree)
    assert len(environments) == _conda.MOST - 1
    assert problems == [f"there are {_conda.MOST + 2} conda environments; only {_conda.MOST} were looked into"]


@settings(deadline=None)
@given(st.text(), st.lists(st.text(max_size=20), max_size=5))
def test_any_record_is_read(text: str, names: list[str]) -> None:
    _conda.channel(text)
    _conda.records(names)
    _conda.build_tag(text)
