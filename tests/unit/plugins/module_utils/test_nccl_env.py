# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _conf, _nccl_env
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NCCL_DEBUG=INFO", [("NCCL_DEBUG", "INFO")]),
        ("export NCCL_ALGO=Ring NCCL_PROTO='Simple' FOO=1", [("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")]),
        ('  export NCCL_IB_HCA="=mlx5_0,mlx5_1"; export UCX_TLS=rc', [("NCCL_IB_HCA", "=mlx5_0,mlx5_1"), ("UCX_TLS", "rc")]),
        ("NCCL_IB_HCA==mlx5_0", [("NCCL_IB_HCA", "=mlx5_0")]),
        ("setenv NCCL_DEBUG INFO", [("NCCL_DEBUG", "INFO")]),
        ("NCCL_DEBUG DEFAULT=INFO OVERRIDE=x", [("NCCL_DEBUG", "INFO")]),
        ('[Service]\nEnvironment="NCCL_ALGO=Tree,Ring" NCCL_DEBUG=WARN "X=a b"', [("NCCL_ALGO", "Tree,Ring"), ("NCCL_DEBUG", "WARN")]),
        ("Environment=A=1 \\\n  NCCL_DEBUG=WARN", [("NCCL_DEBUG", "WARN")]),
        ("DefaultEnvironment=NCCL_DEBUG=WARN", [("NCCL_DEBUG", "WARN")]),
        ('env = ["NCCL_DEBUG=INFO", "A=1"]', [("NCCL_DEBUG", "INFO")]),
        ('echo "export NCCL_DEBUG=WARN"', [("NCCL_DEBUG", "WARN")]),
        ("[ -n \"$X\" ] && export NVIDIA_TF32_OVERRIDE=0", [("NVIDIA_TF32_OVERRIDE", "0")]),
        ("export TORCH_NCCL_BLOCKING_WAIT=1", [("TORCH_NCCL_BLOCKING_WAIT", "1")]),
        ('export LD_LIBRARY_PATH="/usr/local/cuda/lib64:$LD_LIBRARY_PATH"', [("LD_LIBRARY_PATH", "/usr/local/cuda/lib64:$LD_LIBRARY_PATH")]),
        ("NCCL_EMPTY=", [("NCCL_EMPTY", "")]),
        # Nothing is set by these.
        ("# export NCCL_DEBUG=INFO\n; NCCL_DEBUG=INFO", []),
        ('if [ "$NCCL_DEBUG" = INFO ]; then', []),
        ("unset NCCL_DEBUG", []),
        ('echo "NCCL_DEBUG=$NCCL_DEBUG"', []),
        ("MYNCCL_DEBUG=1\nexport XNCCL_A=2 NCCLDEBUG=3", []),
        ("PATH=/usr/bin", []),
        ("", []),
    ],
)
def test_settings(text: str, expected: list[tuple[str, str]]) -> None:
    assert _nccl_env.settings(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NCCL_DEBUG=WARN\n#NCCL_ALGO=Ring\nNCCL_IB_HCA==mlx5_0,mlx5_1\n", [("NCCL_DEBUG", "WARN"), ("NCCL_IB_HCA", "=mlx5_0,mlx5_1")]),
        # NCCL trims nothing and knows no quotes; a line that begins with a blank has another name.
        ('NCCL_DEBUG= "INFO" \n NCCL_ALGO=Ring\nexport NCCL_PROTO=LL', [("NCCL_DEBUG", ' "INFO" ')]),
    ],
)
def test_the_file_of_nccl_itself(text: str, expected: list[tuple[str, str]]) -> None:
    assert _nccl_env.plain(text) == expected


@pytest.mark.parametrize(
    "line",
    ["NCCL_API_TOKEN=abc", "NCCL_PASSWORD=x", "UCX_PRIVATE=1", "NCCL_NET_KEY=1", "NCCL_TOPO_FILE=https://user:pass@host/x", "NCCL_X=my-secret"],
)
def test_what_looks_like_a_secret_has_no_value(line: str) -> None:
    assert [value for _, value in _nccl_env.settings("export " + line)] == [None]
    assert [value for _, value in _nccl_env.plain(line)] == [None]


@pytest.mark.parametrize("line", ["NCCL_SOCKET_IFNAME=eth0", "NCCL_IB_PKEY=0x1", "NCCL_MONKEY=1"])
def test_what_only_reminds_of_a_secret_keeps_its_value(line: str) -> None:
    assert [value for _, value in _nccl_env.settings(line)] == [line.split("=")[1]]


Found = dict[tuple[str, str | None], str | None]


def scan(tree: Tree, units: dict[str, dict[str, str]] | None = None, more: tuple[str, ...] = ()) -> tuple[Found, list[str]]:
    system = System(str(tree.root))
    found = _nccl_env.scan(system, _conf.Mounts(system), units or {}, more)
    return {(str(entry["where"]), entry["name"]): entry["value"] for entry in found}, [entry["reason"] for entry in system.problems]


PLACES = [
    ("/etc/environment", "NCCL_DEBUG=INFO"),
    ("/etc/environment.d/90-nccl.conf", "NCCL_DEBUG=INFO"),
    ("/etc/profile.d/nccl.sh", "export NCCL_DEBUG=INFO"),
    ("/etc/profile.d/nccl.csh", "setenv NCCL_DEBUG INFO"),
    ("/etc/security/pam_env.conf", "NCCL_DEBUG DEFAULT=INFO"),
    ("/etc/nccl.conf", "NCCL_DEBUG=INFO"),
    ("/root/.nccl.conf", "NCCL_DEBUG=INFO"),
    ("/etc/systemd/system/slurmd.service.d/nccl.conf", "[Service]\nEnvironment=NCCL_DEBUG=INFO"),
    ("/etc/systemd/system/containerd.service.d/x.conf", "[Service]\nEnvironment=NCCL_DEBUG=INFO"),
    ("/etc/systemd/system/user@.service.d/x.conf", "[Service]\nEnvironment=NCCL_DEBUG=INFO"),
    ("/etc/systemd/system/own.service", "[Service]\nEnvironment=NCCL_DEBUG=INFO"),
    ("/etc/systemd/system.conf.d/x.conf", "[Manager]\nDefaultEnvironment=NCCL_DEBUG=INFO"),
    ("/run/systemd/system/slurmd.service.d/x.conf", "[Service]\nEnvironment=NCCL_DEBUG=INFO"),
    ("/etc/enroot/environ.d/50-nccl.env", "NCCL_DEBUG=INFO"),
    ("/etc/containers/containers.conf", '[containers]\nenv = ["NCCL_DEBUG=INFO"]'),
]


@pytest.mark.parametrize(("path", "text"), PLACES, ids=[path for path, _ in PLACES])
def test_each_hiding_place(tmp_path: Path, path: str, text: str) -> None:
    tree = Tree(tmp_path)
    tree.file(path, text)
    assert scan(tree) == ({(path, "NCCL_DEBUG"): "INFO"}, [])


def test_what_units_add(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/etc/default/slurmd", "NCCL_ALGO=Ring")
    tree.file("/etc/systemd/system/slurmd.service.d/x.conf", "[Service]\nEnvironment=NCCL_DEBUG=INFO")
    units = {
        "slurmd.service": {"Environment": 'NCCL_DEBUG=INFO NCCL_PROTO=LL "A=b c"', "EnvironmentFiles": "/etc/default/none (ignore_errors=yes)\n"
                           "/etc/default/slurmd (ignore_errors=yes)"},
        "docker.service": {},
    }  # fmt: skip
    assert scan(tree, units)[0] == {
        ("/etc/default/slurmd", "NCCL_ALGO"): "Ring",
        ("/etc/systemd/system/slurmd.service.d/x.conf", "NCCL_DEBUG"): "INFO",
        # Of a unit's file in a package.
        ("unit slurmd.service", "NCCL_PROTO"): "LL",
    }


def test_a_prolog_on_another_machine_is_not_touched(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\nstore:/x /shared nfs4 rw 0 0\n")
    tree.file("/shared/prolog", "export NCCL_DEBUG=INFO")
    tree.file("/etc/slurm/prolog", "print export NCCL_ALGO=Ring")
    found, problems = scan(tree, more=("/shared/prolog", "/etc/slurm/prolog"))
    assert found == {("/etc/slurm/prolog", "NCCL_ALGO"): "Ring"}
    assert problems == ["/shared/prolog lies on nfs4 and was not read"]


def test_a_file_is_read_once_whatever_its_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/opt/x/env.sh", "export NCCL_DEBUG=INFO")
    for name in ("a.sh", "b.sh"):
        tree.link("/etc/profile.d/" + name, "/opt/x/env.sh")
    assert list(scan(tree)[0]) == [("/etc/profile.d/a.sh", "NCCL_DEBUG")]


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for name, _ in [*_nccl_env.settings(text), *_nccl_env.plain(text)]:
        assert name in text


@settings(deadline=None)
@given(st.lists(st.sampled_from(["NCCL_A=1", '"', "'", " ", "export ", "\\\n", "\n", "#", "=", "Environment=", "$", ";"]), max_size=30).map("".join))
def test_damaged_settings_invent_no_name(text: str) -> None:
    assert {name for name, _ in _nccl_env.settings(text)} <= {"NCCL_A"}
