# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _conf, _dcgm, _limits, _software
from ansible_collections.gpu.fleet.plugins.module_utils._software import Package
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures import software_host
from fixtures.sysfs import Tree
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("infinity", "unlimited"), ("unlimited", "unlimited"), ("18446744073709551615", "unlimited"), ("8388608", 8388608), ("0", 0),
        ("", None), (None, None), ("-1", None), ("8M", None), ("[not set]", None), ("²", None), ("--1", None),
    ],
)  # fmt: skip
def test_values(text: str | None, expected: str | int | None) -> None:
    assert _limits.value(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (software_host.LIMITS, {"memlock": 8388608, "nofile": 131072, "stack": 8388608, "nproc": 2060571}),
        (software_host.LIMITS[:200], {"memlock": None, "nofile": None, "stack": 8388608, "nproc": None}),
        ("Max locked memory   unlimited   unlimited   bytes", {"memlock": "unlimited", "nofile": None, "stack": None, "nproc": None}),
        ("", {"memlock": None, "nofile": None, "stack": None, "nproc": None}),
    ],
)
def test_limits_of_a_process(text: str, expected: dict[str, Any]) -> None:
    assert _limits.of_process(text) == expected


@settings(deadline=None)
@given(st.text())
def test_any_limits_are_read(text: str) -> None:
    _limits.of_process(text)
    _limits.value(text)


def test_units_and_what_their_processes_were_given(tree: Tree) -> None:
    tree.file("/proc/78/limits", software_host.LIMITS)
    loaded = {"LoadState": "loaded", "LimitMEMLOCKSoft": "infinity", "LimitNOFILESoft": "1024"}
    known = {
        "slurmd.service": {**loaded, "Id": "slurmd.service", "ActiveState": "active", "MainPID": "78", "NeedDaemonReload": "yes"},
        "ssh.service": {**loaded, "Id": "ssh.service", "MainPID": "0"},
        # An alias of the one before.
        "sshd.service": {**loaded, "Id": "ssh.service", "MainPID": "0"},
        "docker.service": {"Id": "docker.service", "LoadState": "not-found"},
        "kubelet.service": {"Id": "kubelet.service", "LoadState": "masked"},
    }
    found = _limits.units(System(str(tree.root)), known)
    assert found is not None
    assert list(found) == ["slurmd.service", "ssh.service"]
    slurmd = found["slurmd.service"]
    assert (slurmd["memlock"], slurmd["nofile"], slurmd["stack"]) == ("unlimited", 1024, None)
    assert (slurmd["process"]["memlock"], slurmd["active"], slurmd["reload_needed"]) == (8388608, True, True)
    assert (found["ssh.service"]["process"], found["ssh.service"]["active"]) == (None, False)
    assert _limits.units(System(str(tree.root)), None) is None


def test_a_property_of_several_lines() -> None:
    lines = ("Id=a.service", "LoadState=loaded", "EnvironmentFiles=/a (ignore_errors=no)", "EnvironmentFiles=/b (ignore_errors=no)", "X=1=2")
    text = "\n".join([*lines, "", "Id=b.service", "LoadState=loaded", "broken", ""])
    assert _software.parse_units(text, ["a.service", "b.service"]) == {
        "a.service": {"Id": "a.service", "LoadState": "loaded", "EnvironmentFiles": "/a (ignore_errors=no)\n/b (ignore_errors=no)", "X": "1=2"},
        "b.service": {"Id": "b.service", "LoadState": "loaded"},
    }
    assert _software.parse_units(text, ["a.service"]) is None


@pytest.mark.parametrize(
    ("text", "propagate", "excepted", "prologs"),
    [
        ("PropagateResourceLimits=NONE\n", ["NONE"], None, []),
        ("propagateresourcelimitsexcept = MEMLOCK,NOFILE # all others\n", None, ["MEMLOCK", "NOFILE"], []),
        ("#PropagateResourceLimits=ALL\nTaskProlog=/a\nProlog=b\n", None, None, ["/a"]),
        ("Prolog=/p\nTaskProlog=/t\nEpilog=/e", None, None, ["/p", "/t"]),
        ("", None, None, []),
    ],
)
def test_slurm(tree: Tree, text: str, propagate: list[str] | None, excepted: list[str] | None, prologs: list[str]) -> None:
    tree.file("/etc/slurm/slurm.conf", text)
    system = System(str(tree.root))
    assert _limits.slurm(system, _conf.Mounts(system)) == {
        "config": "/etc/slurm/slurm.conf", "propagate": propagate, "propagate_except": excepted, "prologs": prologs,
    }  # fmt: skip


def test_slurms_configuration_elsewhere(tree: Tree) -> None:
    tree.file("/proc/self/mounts", "store:/x /shared nfs rw 0 0\n")
    system = System(str(tree.root))
    assert _limits.slurm(system, _conf.Mounts(system)) is None
    tree.link("/etc/slurm/slurm.conf", "/shared/slurm.conf")
    tree.file("/run/slurm/conf/slurm.conf", "")
    found = _limits.slurm(system, _conf.Mounts(system))
    assert found is not None
    assert found["config"] == "/run/slurm/conf/slurm.conf"
    assert [entry["reason"] for entry in system.problems] == ["/etc/slurm/slurm.conf lies on nfs and was not read"]


def test_settings_of_the_kernel(tree: Tree) -> None:
    software_host.limits(tree)
    tree.file("/sys/devices/system/cpu/cpufreq/policy2/scaling_governor", "powersave")
    tree.file("/sys/devices/system/cpu/cpufreq/policy2/affected_cpus", "2 3 4")
    tree.file("/sys/devices/system/cpu/cpufreq/boost", "1")
    system = System(str(tree.root))
    assert _limits.sysctls(system) == {"vm.swappiness": 60, "net.ipv4.ip_local_port_range": "32768 60999"}
    assert _limits.governors(system) == {"performance": 2, "powersave": 3}
    assert _limits.huge_pages(system) == "madvise"
    assert _limits.swap(system) == [{"path": "/dev/vda2", "size_mib": 2047}]


def test_a_machine_that_tells_nothing(tree: Tree) -> None:
    tree.file("/proc/swaps", "Filename Type\ngarbage\n/x file y\n")
    system = System(str(tree.root))
    found = (_limits.sysctls(system), _limits.governors(system), _limits.huge_pages(system), _limits.swap(system))
    assert found == ({}, {}, None, [])
    assert system.problems == []


def packages(**versions: str) -> dict[str, Package]:
    return {name.replace("_", "-"): Package(version, False, "installed", software_host.NVIDIA) for name, version in versions.items()}


COMMAND = "{ path=/usr/bin/x ; argv[]=/usr/bin/x %s ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ({"ExecStart": COMMAND % "-f /etc/x.csv"}, None),
        ({"ExecStart": COMMAND % "-f /etc/x.csv -a 127.0.0.1:9400"}, "127.0.0.1:9400"),
        ({"ExecStart": COMMAND % "--address=:9500", "Environment": "DCGM_EXPORTER_LISTEN=:9400"}, ":9500"),
        ({"ExecStart": COMMAND % "", "Environment": 'A=1 "DCGM_EXPORTER_LISTEN=:9401"'}, ":9401"),
        ({"ExecStart": "{ path=/usr/bin/x"}, None),
        ({}, None),
    ],
)
def test_where_the_exporter_listens(unit: dict[str, str], expected: str | None) -> None:
    assert _dcgm.listens(unit) == expected


def test_dcgm_4_with_its_exporter() -> None:
    parts = ("core", "cuda12", "cuda13", "proprietary_cuda13")
    known = packages(**{"datacenter_gpu_manager_4_" + part: "1:4.6.0-1" for part in parts}, datacenter_gpu_manager_exporter="4.8.2-1")
    units = {
        "dcgm.service": {"LoadState": "loaded", "ActiveState": "active", "ExecStart": COMMAND % "-n -b ALL -p 5556 --service-account nvidia-dcgm"},
        "nvidia-dcgm-exporter.service": {"LoadState": "loaded", "ActiveState": "failed"},
    }
    found = _dcgm.scan(known, units)
    assert (found["version"], found["flavours"], found["active"], found["listen"]) == ("4.6.0", ["cuda12", "cuda13"], True, "ALL:5556")
    assert found["exporter"] == {"version": "4.8.2", "active": False, "listen": None}
    assert set(found["packages"]) == set(known)
    assert _dcgm.owner(known) == "nvidia"


@pytest.mark.parametrize(
    ("known", "units", "version", "active", "exporter"),
    [
        (packages(datacenter_gpu_manager="1:3.3.9"), {}, "3.3.9", False, None),
        (packages(), {}, None, False, None),
        (None, None, None, None, None),
        (packages(), {"nvidia-dcgm-exporter.service": {"LoadState": "loaded", "ActiveState": "active"}}, None, False,
         {"version": None, "active": True, "listen": None}),
    ],
)  # fmt: skip
def test_dcgm(known: Any, units: Any, version: str | None, active: bool | None, exporter: Any) -> None:
    found = _dcgm.scan(known, units)
    assert (found["version"], found["active"], found["exporter"]) == (version, active, exporter)
