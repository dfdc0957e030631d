# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _conf, _cuda
from ansible_collections.gpu.fleet.plugins.module_utils._software import Package
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures import software_host
from fixtures.sysfs import Tree
from hypothesis import given, settings
from hypothesis import strategies as st

NVIDIA = "cudatools <cudatools@nvidia.com>"
DEBIAN = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
CUDNN_8 = "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n"
MULTIARCH = "/usr/lib/x86_64-linux-gnu/"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def packages(*rows: tuple[str, str, str]) -> dict[str, Package]:
    return {name: Package(version, False, "installed", maintainer) for name, version, maintainer in rows}


def toolkits(tree: Tree, known: dict[str, Package] | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    system = System(str(tree.root))
    found = _cuda.toolkits(system, known, _conf.Mounts(system))
    return found, [entry["reason"] for entry in system.problems]


def parts(tree: Tree, known: dict[str, Package] | None, *paths: str) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    system = System(str(tree.root))
    files = _cuda.Files(system, _conf.Mounts(system), list(paths))
    return _cuda.cudnn(files, known), _cuda.nccl(files, known), [entry["reason"] for entry in system.problems]


def library(tree: Tree, stem: str, version: str, folder: str = MULTIARCH) -> None:
    tree.file(f"{folder}lib{stem}.so.{version}", "")
    tree.link(f"{folder}lib{stem}.so.{version.partition('.')[0]}", f"{folder}lib{stem}.so.{version}")


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        (CUDNN_8, ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"), "8.9.7"),
        ("#  define  NCCL_MAJOR\t2 /* x */\n", ("NCCL_MAJOR",), "2"),
        ("#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9", ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"), None),
        ("#define CUDNN_MAJORITY 8\n", ("CUDNN_MAJOR",), None),
        ("/* #define CUDNN_MAJOR 8 */", ("CUDNN_MAJOR",), None),
        ("#define CUDNN_MAJOR ver(8)", ("CUDNN_MAJOR",), None),
        ("", ("CUDNN_MAJOR",), None),
    ],
)
def test_versions_that_headers_define(text: str, names: tuple[str, ...], expected: str | None) -> None:
    assert _conf.defines(text, *names) == expected


@pytest.mark.parametrize(
    ("files", "version", "nvcc"),
    [
        ({"version.json": '{"cuda": {"version": "13.0.2"}, "cuda_nvcc": {"version": "13.0.88"}}', "bin/nvcc": ""}, "13.0.2", "13.0.88"),
        ({"version.json": '{"cuda": {"version": "13.0.2"}}'}, "13.0.2", None),
        ({"version.txt": "CUDA Version 10.2.89", "bin/nvcc": ""}, "10.2.89", "10.2.89"),
        ({"include/cuda_runtime_api.h": "#define CUDART_VERSION  12090\n"}, "12.9", None),
        ({"bin/nvcc": ""}, "12.4", "12.4"),
        ({"version.json": "{}", "version.txt": "CUDA Version 10.2.89"}, "10.2.89", None),
    ],
)
def test_a_toolkit_tells_its_version(tree: Tree, files: dict[str, str], version: str, nvcc: str | None) -> None:
    for name, text in files.items():
        tree.file("/usr/local/cuda-12.4/" + name, text)
    found, problems = toolkits(tree)
    assert [(entry["path"], entry["version"], entry["nvcc"]) for entry in found] == [("/usr/local/cuda-12.4", version, nvcc)]
    assert problems == []


@pytest.mark.parametrize("text", ["{", "[]", '"13.0"', '{"cuda": "13.0.2"}', '{"cuda": null}', b"\xff\xfe{"])
def test_a_damaged_version_file_leaves_the_name_of_the_folder(tree: Tree, text: str | bytes) -> None:
    tree.file("/usr/local/cuda-12.4/version.json", text)
    assert toolkits(tree)[0][0]["version"] == "12.4"


def test_links_of_alternatives_are_followed_to_their_toolkit(tree: Tree) -> None:
    for name in ("12.9", "13.0"):
        tree.file(f"/usr/local/cuda-{name}/version.json", "{}")
    tree.link("/etc/alternatives/cuda", "/usr/local/cuda-13.0")
    tree.link("/etc/alternatives/cuda-12", "/usr/local/cuda-12.9")
    tree.link("/usr/local/cuda", "/etc/alternatives/cuda")
    tree.link("/usr/local/cuda-12", "/etc/alternatives/cuda-12")
    links = {entry["path"]: entry["links"] for entry in toolkits(tree)[0]}
    assert links == {"/usr/local/cuda-12.9": ["/usr/local/cuda-12"], "/usr/local/cuda-13.0": ["/usr/local/cuda"]}


def test_a_link_elsewhere_is_a_toolkit_and_one_to_nowhere_is_a_problem(tree: Tree) -> None:
    tree.file("/opt/cuda-12.1/version.json", '{"cuda": {"version": "12.1.1"}}')
    tree.link("/usr/local/cuda", "/opt/cuda-12.1")
    (tree.root / "usr/local/cuda-13").symlink_to("cuda-13.4")
    found, problems = toolkits(tree)
    assert [(entry["path"], entry["version"], entry["links"]) for entry in found] == [("/opt/cuda-12.1", "12.1.1", ["/usr/local/cuda"])]
    assert problems == ["/usr/local/cuda-13 leads to /usr/local/cuda-13.4, which is not there"]


def test_a_toolkit_on_another_machine_is_not_touched(tree: Tree) -> None:
    tree.file("/proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\nstore:/x /apps nfs4 rw 0 0\n")
    tree.file("/apps/cuda-12.1/version.json", "{}")
    tree.link("/usr/local/cuda", "/apps/cuda-12.1")
    assert toolkits(tree) == ([], ["/usr/local/cuda leads to /apps/cuda-12.1, which lies on nfs4 and was not looked into"])


@pytest.mark.parametrize(
    ("known", "owner"),
    [
        (None, None),
        ({}, "unpackaged"),
        (packages(("cuda-cudart-12-9", "12.9.79-1", NVIDIA)), "nvidia"),
        (packages(("cuda-cudart-12-9", "12.9.79-1", "NVIDIA")), "nvidia"),
        # Of another toolkit.
        (packages(("cuda-cudart-13-0", "13.0.96-1", NVIDIA)), "unpackaged"),
    ],
)
def test_who_made_a_toolkit(tree: Tree, known: dict[str, Package] | None, owner: str | None) -> None:
    tree.file("/usr/local/cuda-12.9/version.json", '{"cuda": {"version": "12.9.1"}}')
    assert toolkits(tree, known)[0][0]["owner"] == owner
    tree.file("/usr/local/cuda-12.9/bin/cuda-uninstaller", "")
    assert toolkits(tree, known)[0][0]["owner"] == ("runfile" if owner == "unpackaged" else owner)


def test_the_distributions_toolkit_is_in_usr(tree: Tree) -> None:
    whole = packages(("nvidia-cuda-toolkit", "11.8.89~11.8.0-5~deb12u1", DEBIAN), ("libcudart11.0", "11.8.89~11.8.0-5~deb12u1", DEBIAN))
    assert toolkits(tree, whole)[0] == [{"path": "/usr", "version": "11.8.0", "nvcc": "11.8.89", "links": [], "compat": None, "owner": "distro"}]
    run_time = packages(("libcudart12", "12.4.127~12.4.1-2", DEBIAN))
    assert [(entry["version"], entry["nvcc"]) for entry in toolkits(tree, run_time)[0]] == [("12.4.1", None)]


def test_forward_compatibility_is_found(tree: Tree) -> None:
    tree.file("/usr/local/cuda-13.4/compat/libcuda.so.615.71.09", "")
    assert toolkits(tree)[0][0]["compat"] == "615.71.09"


@pytest.mark.parametrize(
    ("owners", "expected"),
    [([], "absent"), (["nvidia", "nvidia"], "nvidia"), (["nvidia", "runfile"], "mixed"), (["nvidia", None], None), ([None], None)],
)
def test_one_owner_of_a_component(owners: list[str | None], expected: str | None) -> None:
    assert _cuda.owner(owners) == expected


def test_cudnn_of_a_package(tree: Tree) -> None:
    tree.file("/usr/include/x86_64-linux-gnu/cudnn_version_v9.h", software_host.CUDNN_VERSION)
    tree.link("/usr/include/cudnn_version.h", "/usr/include/x86_64-linux-gnu/cudnn_version_v9.h")
    for stem in ("cudnn", "cudnn_ops", "cudnn_graph"):
        library(tree, stem, "9.15.1")
    found, _, problems = parts(tree, packages(("libcudnn9-cuda-13", "9.15.1.9-1", NVIDIA)))
    assert found["headers"] == [{"path": "/usr/include/cudnn_version.h", "version": "9.15.1", "owner": "nvidia"}]
    assert found["libraries"] == [{"path": f"{MULTIARCH}libcudnn.so.9", "version": "9.15.1", "cuda": 13, "owner": "nvidia"}]
    assert problems == []


def test_cudnn_of_an_archive_lies_in_the_toolkit(tree: Tree) -> None:
    tree.file("/usr/local/cuda-12.2/include/cudnn_version.h", CUDNN_8)
    library(tree, "cudnn", "8.9.7", "/usr/local/cuda-12.2/lib64/")
    found, _, problems = parts(tree, packages(("libcudnn8", "8.9.6.50-1+cuda11.8", NVIDIA)), "/usr/local/cuda-12.2")
    assert [(entry["version"], entry["owner"]) for entry in found["headers"]] == [("8.9.7", "tarball")]
    assert [(entry["version"], entry["cuda"], entry["owner"]) for entry in found["libraries"]] == [("8.9.7", 12, "tarball")]
    assert problems == []


def test_cudnn_before_8_has_its_version_in_its_main_header(tree: Tree) -> None:
    tree.file("/usr/include/cudnn.h", CUDNN_8.replace("8", "7").replace("9", "6").replace("7\n", "5\n", 3))
    tree.file("/usr/local/include/cudnn_version.h", "// empty")
    found, _, problems = parts(tree, {})
    assert [entry["path"] for entry in found["headers"]] == ["/usr/include/cudnn.h"]
    assert problems == ["/usr/local/include/cudnn_version.h defines no version of cuDNN"]


def test_a_header_of_another_version_than_the_libraries_is_a_problem(tree: Tree) -> None:
    tree.file("/usr/include/cudnn_version.h", software_host.CUDNN_VERSION)
    library(tree, "cudnn", "9.10.2")
    tree.file("/usr/include/nccl.h", software_host.NCCL_HEADER)
    library(tree, "nccl", "2.22.3")
    problems = parts(tree, {})[2]
    assert problems == [
        "/usr/include/cudnn_version.h is of version 9.15.1, but the libraries of cuDNN are of 9.10.2",
        "/usr/include/nccl.h is of version 2.28.9, but the libraries of NCCL are of 2.22.3",
    ]


def test_half_an_upgrade_of_cudnn_is_a_problem(tree: Tree) -> None:
    library(tree, "cudnn", "9.15.1")
    library(tree, "cudnn_ops", "9.10.2")
    assert parts(tree, {})[2] == ["the libraries of cuDNN in /usr/lib/x86_64-linux-gnu are of different versions: 9.10.2, 9.15.1"]


@pytest.mark.parametrize(
    ("known", "owner", "cuda"),
    [
        (packages(("libnccl2", "2.28.9-1+cuda13.0", NVIDIA)), "nvidia", "13.0"),
        (packages(("libnccl2", "2.22.3-1-1", DEBIAN)), "distro", None),
        ({}, "tarball", None),
        (None, None, None),
    ],
)
def test_who_made_nccl(tree: Tree, known: dict[str, Package] | None, owner: str | None, cuda: str | None) -> None:
    library(tree, "nccl", "2.28.9")
    (entry,) = parts(tree, known)[1]["libraries"]
    assert (entry["owner"], entry["cuda"], entry["version"]) == (owner, cuda, "2.28.9")


def test_plugins_where_the_loader_looks(tree: Tree) -> None:
    tree.file("/etc/ld.so.conf.d/x.conf", "/opt/fabric/lib   # comment\ninclude /etc/other\n/apps/lib\n")
    tree.file("/proc/self/mounts", "store:/x /apps lustre rw 0 0\n")
    for name in ("fabric/lib/libnccl-net.so", "amazon/ofi-nccl/lib/libnccl-tuner-ofi.so", "x/libnccl-net.so"):
        tree.file("/opt/" + name, "")
    tree.file("/apps/lib/libnccl-net.so", "")
    tree.file("/opt/fabric/lib/libnccl-net.so.0.0.0", "")
    assert parts(tree, {})[1]["plugins"] == ["/opt/amazon/ofi-nccl/lib/libnccl-tuner-ofi.so", "/opt/fabric/lib/libnccl-net.so"]


def test_a_folder_under_two_names_is_looked_into_once(tree: Tree) -> None:
    toolkit = "/usr/local/cuda-12.2"
    library(tree, "cudnn", "8.9.7", toolkit + "/targets/x86_64-linux/lib/")
    tree.link(toolkit + "/lib64", toolkit + "/targets/x86_64-linux/lib")
    tree.file("/etc/ld.so.conf.d/cuda.conf", toolkit + "/targets/x86_64-linux/lib\n")
    assert [entry["path"] for entry in parts(tree, {}, toolkit)[0]["libraries"]] == [toolkit + "/lib64/libcudnn.so.8"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/apps", "nfs4"), ("/apps/x/y", "nfs4"), ("/application", None), ("/apps/local/x", "nfs4"), ("/opt/tools/bin", "nfs4"), ("/opt/near", None),
        ("/a b/c", "lustre"), ("/", None), ("/home/a", "autofs"), ("/mnt/s", "fuse.sshfs"), ("/tmp/x", None),
    ],
)  # fmt: skip
def test_what_lies_on_other_machines(tree: Tree, path: str, kind: str | None) -> None:
    rows = ["x / nfs4", "s:/x /apps nfs4", "/dev/sdb /apps/local ext4", "o:/y /a\\040b lustre", "auto /home autofs", "z /mnt/s fuse.sshfs"]
    tree.file("/proc/self/mounts", "\n".join(row + " rw 0 0" for row in [*rows, "t /tmp tmpfs", "short"]))
    tree.link("/opt/tools", "/apps/tools")
    assert _conf.Mounts(System(str(tree.root))).far(path) == kind


def test_a_ring_of_links_ends(tree: Tree) -> None:
    (tree.root / "usr/local").mkdir(parents=True)
    (tree.root / "usr/local/cuda").symlink_to("cuda-13")
    (tree.root / "usr/local/cuda-13").symlink_to("cuda")
    found, problems = toolkits(tree)
    assert found == []
    assert "not there" in problems[0]


@settings(deadline=None)
@given(st.text())
def test_any_header_is_read(text: str) -> None:
    assert _conf.defines(text, "NCCL_MAJOR") is None or "NCCL_MAJOR" in text
