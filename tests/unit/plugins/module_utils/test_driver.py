# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _driver, _jobs, _owners, _software
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree

KERNEL = "6.1.0-40-amd64"
NVIDIA, DEBIAN, UBUNTU = "cudatools <cudatools@nvidia.com>", "Debian NVIDIA <pkg-nvidia@lists.alioth.debian.org>", "Devs <d@lists.ubuntu.com>"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def system(tree: Tree) -> System:
    return System(str(tree.root))


def test_packages_held_half_installed_and_removed() -> None:
    text = (
        "nvidia-driver-cuda\t580.178.04-1\thold\tinstalled\tA <a@nvidia.com>\n"
        "nvidia-persistenced\t580.178.04-1\tinstall\thalf-configured\tA\n"
        "libcuda1\t580.178.04-1\tdeinstall\tconfig-files\tA\n"
        "junk\n"
    )
    assert _software.parse_packages(text) == {
        "nvidia-driver-cuda": ("580.178.04-1", True, "installed", "A <a@nvidia.com>"),
        "nvidia-persistenced": (None, False, "half-configured", "A"),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia-driver-cuda", True),
        ("nvidia-kernel-open-dkms", True),
        ("libnvidia-compute-580", True),
        ("libcuda1", True),
        ("cuda-drivers-580", True),
        ("nvidia-fabricmanager", True),
        ("firmware-nvidia-gsp", True),
        ("linux-modules-nvidia-580-server-open-generic", True),
        ("libnvidia-nscq-535", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("nvidia-cuda-toolkit", False),
        ("cuda-toolkit-13-0", False),
        ("libnccl2", False),
        ("bash", False),
    ],
)
def test_which_packages_belong_to_the_driver(name: str, expected: bool) -> None:
    assert _software.is_driver(name) is expected


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"bash": ("5.2-1", DEBIAN)}, None, id="none of the driver"),
        pytest.param({"libcuda1": ("580.178.04-1", NVIDIA)}, "nvidia", id="maintainer"),
        pytest.param({"nvidia-driver-cuda": ("580.178.04-1", "?"), "libcuda1": ("580.178.04-1", DEBIAN)}, "nvidia", id="a name of the vendor's"),
        pytest.param({"nvidia-alternative": ("535.261.03-1", DEBIAN)}, "distro", id="Debian"),
        pytest.param({"nvidia-kernel-dkms": ("535.261.03-1", DEBIAN)}, "distro", id="Debian, a name used by both"),
        pytest.param({"nvidia-utils-580-server": ("580.65.06-0ubuntu0.24.04.1", UBUNTU)}, "distro", id="Ubuntu server"),
        pytest.param({"libnvidia-compute-580": ("580.65.06-0ubuntu0.24.04.1", "x")}, "distro", id="Ubuntu revision"),
        pytest.param({"libnvidia-compute-580": ("580.178.04-1ubuntu1", "x")}, "nvidia", id="vendor's revision on Ubuntu"),
        pytest.param({"kmod-nvidia": ("3:580.178.04-1.el9", "NVIDIA")}, "nvidia", id="rpm vendor"),
    ],
)
def test_origin(packages: dict[str, tuple[str, str]], expected: str | None) -> None:
    found = {name: _software.Package(version, False, "installed", maker) for name, (version, maker) in packages.items()}
    assert _software.origin(found) == expected


@pytest.mark.parametrize(("text", "expected"), [("580.178.04-1", "580.178.04"), ("1:4.6.0-1", "4.6.0"), ("580.178.04", "580.178.04"), (None, None)])
def test_upstream(text: str | None, expected: str | None) -> None:
    assert _software.upstream(text) == expected


def test_units_answer_in_the_order_asked() -> None:
    text = "Id=a.service\nLoadState=loaded\n\nId=other.service\nLoadState=masked\n"
    found = _software.parse_units(text, ["a.service", "alias.service"])
    assert found is not None
    assert found["alias.service"] == {"Id": "other.service", "LoadState": "masked"}


@pytest.mark.parametrize("text", ["", "rubbish", "Id=a.service\nLoadState=loaded\n\nId=b.service\nLoadState=loaded\n", "Id=a.service\n"])
def test_what_is_no_answer_about_the_units_is_none(text: str) -> None:
    assert _software.parse_units(text, ["a.service"]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("libcuda1\t580.178.04-1\thold\tinstalled\tA <a@nvidia.com>\n", None),
        ("kmod-nvidia\t3:580-1.el9\tinstall\tinstalled\t(none)\nold_name\t\tdeinstall\tconfig-files\t\n", None),
        ("", "the list of packages is empty"),
        ("libcuda1\t580.178.04-1\thold\tinstalled\tA\nlibnvi", "1 of 2 lines of the list of packages are not understood"),
        ("\x00\xff\tx\ty\tz\tw\n", "1 of 1 lines of the list of packages are not understood"),
        ("libcuda1\t1\thold\tmelted\tA\n", "1 of 1 lines of the list of packages are not understood"),
    ],
)
def test_a_list_of_packages_that_cannot_be_relied_on(text: str, expected: str | None) -> None:
    assert _software.damage(text) == expected


def test_module_files(tree: Tree) -> None:
    lines = "updates/dkms/nvidia-drm.ko:\nkernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\nupdates/dkms/nvidia.ko.xz: kernel/x.ko\n"
    tree.file(f"/lib/modules/{KERNEL}/modules.dep", lines)
    tree.file("/lib/modules/6.1.0-39-amd64/modules.dep", "updates/dkms/nvidia-current-uvm.ko:\nupdates/dkms/nvidia-current.ko:\n")
    tree.file("/lib/modules/6.1.0-38-amd64/modules.dep", "kernel/drivers/net/e1000.ko:\n")
    tree.file("/lib/modules/6.1.0-37-amd64/kernel/x.ko", "")
    assert _driver.module_files(system(tree)) == {
        "6.1.0-39-amd64": "/lib/modules/6.1.0-39-amd64/updates/dkms/nvidia-current.ko",
        KERNEL: f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko.xz",
    }


def test_modinfo_of_several_files() -> None:
    text = (
        "filename:       /a/nvidia.ko\nversion:        580.178.04\nsupported:      external\nlicense:        Dual MIT/GPL\nname:           nvidia\n"
        "filename:       /b/nvidia.ko\nlicense:        NVIDIA\nsigner:         DKMS module signing key\n"
    )
    described = _driver.parse_modinfo(text)
    assert _driver.on_disk({"k1": "/a/nvidia.ko", "k2": "/b/nvidia.ko", "k3": "/c/nvidia.ko"}, described) == {
        "k1": {"version": "580.178.04", "flavour": "open", "path": "/a/nvidia.ko", "signer": None},
        "k2": {"version": None, "flavour": "proprietary", "path": "/b/nvidia.ko", "signer": "DKMS module signing key"},
        "k3": {"version": None, "flavour": None, "path": "/c/nvidia.ko", "signer": None},
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="not loaded"),
        pytest.param({"/sys/module/nvidiafb/version": "1"}, None, id="only the frame buffer"),
        pytest.param({"/sys/module/nvidia_uvm/refcnt": "1"}, None, id="only a part"),
        pytest.param(
            {
                "/sys/module/nvidia/version": "580.178.04",
                "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.178.04  Release Build\nGCC version: 12",
            },
            {"version": "580.178.04", "flavour": "open"},
            id="open",
        ),
        pytest.param(
            {
                "/sys/module/nvidia_current/refcnt": "1",
                "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Fri\n",
            },
            {"version": "535.261.03", "flavour": "proprietary"},
            id="Debian's name, version from the banner",
        ),
        pytest.param({"/sys/module/nvidia/version": "580.178.04"}, {"version": "580.178.04", "flavour": None}, id="no banner"),
    ],
)
def test_loaded(tree: Tree, files: dict[str, str], expected: dict[str, str] | None) -> None:
    for path, text in files.items():
        tree.file(path, text)
    assert _driver.loaded(system(tree)) == expected


def test_user_space_follows_links(tree: Tree) -> None:
    assert _driver.user_space(system(tree)) is None
    folder = "/usr/lib/x86_64-linux-gnu"
    tree.file(f"{folder}/nvidia/current/libnvidia-ml.so.535.261.03", "")
    tree.link("/etc/alternatives/glx--libnvidia-ml.so.1", f"{folder}/nvidia/current/libnvidia-ml.so.535.261.03")
    tree.link(f"{folder}/libnvidia-ml.so.1", "/etc/alternatives/glx--libnvidia-ml.so.1")
    assert _driver.user_space(system(tree)) == "535.261.03"
    (tree.root / f"{folder[1:]}/nvidia/current/libnvidia-ml.so.535.261.03").unlink()
    assert _driver.user_space(system(tree)) is None


def test_libraries_have_versions_of_their_own(tree: Tree) -> None:
    tree.file("/usr/lib64/libcuda.so.535.309.01", "")
    tree.link("/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so.535.309.01")
    assert (_driver.library(system(tree), "libcuda"), _driver.library(system(tree), "libnvidia-ml")) == ("535.309.01", None)


def test_firmware_is_that_of_driver_versions(tree: Tree) -> None:
    for path in ("580.178.04/gsp_ga10x.bin", "535.309.01/README", "ga102/gsp/booter.bin", "575.64/gsp.bin"):
        tree.file(f"/lib/firmware/nvidia/{path}", "")
    assert _driver.gsp_firmware(system(tree)) == ["575.64", "580.178.04"]


INSTALLED = {"nvidia-driver-cuda": _software.Package("580.178.04-1", False, "installed", NVIDIA)}
HALF = {"nvidia-driver-cuda": _software.Package(None, False, "half-installed", NVIDIA)}


@pytest.mark.parametrize(
    ("packages", "library", "modules", "expected"),
    [
        ({}, None, False, "absent"),
        (INSTALLED, "580.178.04", True, "nvidia"),
        (INSTALLED, None, False, "nvidia"),
        (HALF, None, False, "absent"),
        ({}, "580.178.04", False, "runfile"),
        ({}, None, True, "runfile"),
        (None, "580.178.04", True, None),
    ],
)
def test_owner(tree: Tree, packages: Any, library: str | None, modules: bool, expected: str | None) -> None:
    assert _owners.driver(system(tree), packages, library, modules) == expected


@pytest.mark.parametrize("mark", ["/etc/dgx-release", "/opt/azurehpc/component_versions.txt"])
def test_the_driver_of_an_image_is_the_images(tree: Tree, mark: str) -> None:
    tree.file(mark, "")
    assert _owners.driver(system(tree), INSTALLED, "580.178.04", True) == "image"
    assert _owners.driver(system(tree), {}, None, False) == "absent"


def packages(*names: str) -> dict[str, _software.Package]:
    return {name: _software.Package("1", False, "installed", NVIDIA) for name in names}


@pytest.mark.parametrize(
    ("names", "files", "expected"),
    [
        (("bash",), (), "absent"),
        (("rdma-core",), (), "inbox"),
        ((), ("/sys/module/mlx5_core/refcnt",), "inbox"),
        (("mlnx-ofed-kernel-dkms", "rdma-core"), ("/sys/module/mlx5_core/refcnt",), "mlnx_ofed"),
        (("doca-ofed", "mlnx-ofed-kernel-dkms"), (), "doca"),
        (("doca-host",), (), "absent"),
    ],
)
def test_who_owns_rdma(tree: Tree, names: tuple[str, ...], files: tuple[str, ...], expected: str) -> None:
    for path in files:
        tree.file(path, "")
    assert _owners.rdma(system(tree), packages(*names)) == expected
    assert _owners.rdma(system(tree), None) is None


def test_who_owns_the_fabric_manager(tree: Tree) -> None:
    assert _owners.fabric_manager(system(tree), None) is None
    assert _owners.fabric_manager(system(tree), {}) == "absent"
    tree.file("/usr/bin/nv-fabricmanager", "")
    assert _owners.fabric_manager(system(tree), {}) == "runfile"
    assert _owners.fabric_manager(system(tree), packages("nvidia-fabricmanager-535")) == "nvidia"


def test_the_operators_driver_is_the_operators(tree: Tree) -> None:
    tree.file("/run/nvidia/driver/usr/bin/nvidia-smi", "")
    assert _owners.driver(system(tree), {}, None, True) == "gpu-operator"


def test_holders(tree: Tree) -> None:
    assert _driver.holders(system(tree)) == []
    tree.file("/dev/nvidia0", "")
    (tree.root / "proc/77/fd").mkdir(parents=True)
    for number, target in enumerate(("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia0", "/dev/null")):
        (tree.root / f"proc/77/fd/{number}").symlink_to(target)
    tree.file("/proc/77/comm", "python3")
    tree.file("/proc/77/cgroup", "0::/system.slice/slurmd.service/job_5/step_0\n")
    (tree.root / "proc/78/fd").mkdir(parents=True)
    (tree.root / "proc/78/fd/0").symlink_to("/dev/null")
    (tree.root / "proc/79").mkdir()
    assert _driver.holders(system(tree)) == [
        {"pid": 77, "name": "python3", "unit": "slurmd.service", "devices": ["/dev/nvidia0", "/dev/nvidiactl"]},
    ]


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ("0::/system.slice/nvidia-persistenced.service", "nvidia-persistenced.service"),
        ("0::/user.slice/user-0.slice/session-3.scope", "session-3.scope"),
        ("12:pids:/\n1:name=systemd:/system.slice/ssh.service\n0::/", "ssh.service"),
        ("0::/", None),
        ("", None),
        ("rubbish", None),
    ],
)
def test_unit_of(cgroup: str, expected: str | None) -> None:
    assert _jobs.unit_of(cgroup) == expected
