# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils import _cdi, _conf, _containers
from ansible_collections.gpu.fleet.plugins.module_utils._software import Package
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures import software_host
from fixtures.sysfs import Tree
from hypothesis import given, settings
from hypothesis import strategies as st

DRIVER = software_host.DRIVER
V3 = """version = 3
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = false
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'nvidia'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
        runtime_type = 'io.containerd.runc.v2'
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def packages(**versions: str) -> dict[str, Package]:
    return {name.replace("_", "-"): Package(version, False, "installed", software_host.NVIDIA) for name, version in versions.items()}


@pytest.mark.parametrize(
    ("text", "tables", "strange"),
    [
        ("a = 1\n[b]\nc = 'x' # y\n[b.\"d.e\"]\nf = true", {(): {"a": "1"}, ("b",): {"c": "x"}, ("b", "d.e"): {"f": "true"}}, []),
        ("[a]\nb.c = 2", {("a",): {}, ("a", "b"): {"c": "2"}}, []),
        ('a = [\n "]", # x\n "c"\n]\nd = 1', {(): {"a": '[ "]", # x "c" ]', "d": "1"}}, []),
        ('a = """x\n[no]\nb = 1"""\nc = 1', {(): {"a": '"""x [no] b = 1"""', "c": "1"}}, []),
        ("[[a.b]]\nc = 1", {("a", "b"): {"c": "1"}}, []),
        ("a = {b = 1, c = [1, 2]}\nd = 1", {(): {"a": "{b = 1, c = [1, 2]}", "d": "1"}}, []),
        ("nonsense\n[broken\na = 1", {(): {"a": "1"}}, [1, 2]),
        ("a = [1,\n2", {}, [1]),
        ("", {}, []),
    ],
)
def test_toml(text: str, tables: dict[tuple[str, ...], dict[str, str]], strange: list[int]) -> None:
    assert _conf.toml(text) == (tables, strange)


@settings(deadline=None)
@given(st.text())
def test_any_toml_is_read(text: str) -> None:
    _conf.toml(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (software_host.DOCKER, (True, "nvidia", None)),
        ('{"features": {"cdi": true}}', (False, None, True)),
        ('{"runtimes": {"gpu": {"path": "/usr/bin/nvidia-container-runtime"}}}', (True, None, None)),
        ('{"runtimes": {"runsc": {"path": "/usr/bin/runsc"}}, "features": {"cdi": false}}', (False, None, False)),
        ('{"runtimes": [], "default-runtime": 1, "features": []}', (False, None, None)),
        ("", (False, None, None)),
        (None, (False, None, None)),
    ],
)
def test_docker(text: str | None, expected: tuple[bool, str | None, bool | None]) -> None:
    assert tuple(_containers.docker(text).values()) == expected


@pytest.mark.parametrize("text", ["{", "[]", "3", "{'a': 1}"])
def test_a_docker_that_would_not_start(tree: Tree, text: str) -> None:
    tree.file("/etc/docker/daemon.json", text)
    system = System(str(tree.root))
    assert set(_containers.settings(system, "docker").values()) == {None}
    assert "/etc/docker/daemon.json cannot be read" in system.problems[0]["reason"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (software_host.CONTAINERD, (False, "runc", True)),
        (software_host.CONTAINERD + software_host.CONTAINERD_NVIDIA, (True, "runc", True)),
        (V3, (True, "nvidia", False)),
        ('[plugins.cri.containerd.runtimes.gpu.options]\nBinaryName = "/usr/bin/nvidia-container-runtime"', (True, None, None)),
        ("[plugins.x.runtimes]\na = 1", (False, None, None)),
        ("", (False, None, None)),
    ],
)
def test_containerd(text: str, expected: tuple[bool, str | None, bool | None]) -> None:
    assert tuple(_containers.containerd(_conf.toml(text).tables).values()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[crio.runtime]\ndefault_runtime = "nvidia"\n[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/x"', (True, "nvidia", None)),
        ('[crio.runtime.runtimes.gpu]\nruntime_path = "/usr/local/nvidia/toolkit/nvidia-container-runtime"', (True, None, None)),
        ('[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"', (False, None, None)),
    ],
)
def test_crio(text: str, expected: tuple[bool, str | None, bool | None]) -> None:
    assert tuple(_containers.crio(_conf.toml(text).tables).values()) == expected


@pytest.mark.parametrize(
    ("name", "path", "text", "runtime"),
    [
        ("crio", "/etc/crio/crio.conf.d/99-nvidia.toml", "[crio.runtime.runtimes.nvidia]\nruntime_path = '/x'", True),
        ("podman", "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}", True),
        ("podman", "/etc/containers/containers.conf", "[engine]\n", False),
        ("enroot", "/etc/enroot/hooks.d/98-nvidia.sh", "", True),
        ("apptainer", "/etc/apptainer/apptainer.conf", "# c\nalways use nv = yes\n", True),
        ("apptainer", "/etc/singularity/singularity.conf", "always use nv = no", False),
        ("apptainer", "/etc/none", "", None),
    ],
)
def test_other_engines(tree: Tree, name: str, path: str, text: str, runtime: bool | None) -> None:
    tree.file(path, text)
    assert _containers.settings(System(str(tree.root)), name)["nvidia_runtime"] is runtime


def test_engines_by_package_program_and_unit(tree: Tree) -> None:
    tree.file("/usr/local/bin/enroot", "")
    known = packages(containerd="1.6.20", podman="4.3.1")
    units = {"containerd.service": {"ActiveState": "inactive"}}
    found = _containers.engines(System(str(tree.root)), known, units)
    assert {name: (entry["version"], entry["active"]) for name, entry in found.items()} == {
        "containerd": ("1.6.20", False), "podman": ("4.3.1", None), "enroot": (None, None),
    }  # fmt: skip
    assert _containers.engines(System(str(tree.root)), known, None)["containerd"]["active"] is None


def test_the_toolkit_and_what_it_replaces(tree: Tree) -> None:
    tree.file("/etc/nvidia-container-runtime/config.toml", software_host.TOOLKIT.replace('"auto"', '"cdi"'))
    known = packages(nvidia_container_toolkit="1.20.0-1", nvidia_container_toolkit_base="1.18.0-1", nvidia_docker2="2.14.0-1")
    system = System(str(tree.root))
    assert _containers.toolkit(system, known) == {
        "version": "1.20.0-1", "mode": "cdi", "config": "/etc/nvidia-container-runtime/config.toml", "owner": "nvidia",
        "obsolete": ["nvidia-docker2"],
    }  # fmt: skip
    assert [entry["reason"] for entry in system.problems] == [
        "parts of the container toolkit are of different versions: nvidia-container-toolkit 1.20.0-1, nvidia-container-toolkit-base 1.18.0-1"
    ]


def test_the_toolkit_of_the_operator_and_none(tree: Tree) -> None:
    assert _containers.toolkit(System(str(tree.root)), {}) is None
    tree.file("/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml", software_host.TOOLKIT)
    found = _containers.toolkit(System(str(tree.root)), {})
    assert found is not None
    assert (found["owner"], found["mode"], found["version"]) == ("gpu-operator", "auto", None)


OTHER_STYLE = """cdiVersion: "0.6.0"   # of the format
kind: 'nvidia.com/gpu'
annotations: {a: b}
devices:
    - name: "0"
      containerEdits:
        env:
            - name: no
    - containerEdits:
          mounts:
              - hostPath: /usr/lib64/libcuda.so.535.309.01
      name: GPU-1234
    # a comment
    - name: all
containerEdits:
    hooks: []
"""


@pytest.mark.parametrize("text", [software_host.specification(2), software_host.specification(1, parts=("1:0", "1:1")), OTHER_STYLE])
def test_the_line_reader_reads_what_yaml_reads(text: str) -> None:
    whole = yaml.safe_load(text)
    found, strange = _cdi.read_yaml(text)
    assert found == {"kind": whole["kind"], "version": whole["cdiVersion"], "devices": [device["name"] for device in whole["devices"]]}
    assert strange == []
    assert _cdi.read_json(json.dumps(whole)) == (found, [])


@pytest.mark.parametrize(
    ("text", "devices", "strange"),
    [
        ('kind: a/b\ndevices: [{name: "0"}]', [], "line 2: devices are not a list in block style"),
        ('kind: a/b\ndevices:\n- {name: "0"}\n- name: "1"', ["1"], "line 3: a device is not in block style"),
        ("kind: a/b\ndevices:\n- containerEdits:\n    env: []\n- name: x", ["x"], "a device before line 5 has no name"),
        ("kind: a/b\ndevices:\n- containerEdits:\n", [], "the last device has no name"),
        ("kind: a/b\nwhat is this", [], "line 2 is not understood"),
        ("kind: a/b\ndevices:\n- name: \"1\n- name: 2", ["2"], 'line 3: "1 is no name of a device'),
        ("kind: a/b\ndevices:\n- name: - 1\n", [], "line 3: - 1 is no name of a device"),
    ],
)
def test_what_is_no_block_style_is_told(text: str, devices: list[str], strange: str) -> None:
    found, told = _cdi.read_yaml(text)
    assert (found["devices"], told) == (devices, [strange])


@pytest.mark.parametrize("text", ["{", "{}", '{"devices": 1, "kind": 2}', '{"devices": [1, {"name": 3}, {}]}', "[" * 100])
def test_damaged_json(text: str) -> None:
    found, strange = _cdi.read_json(text)
    assert strange
    assert all(isinstance(name, str) for name in found["devices"])


@settings(deadline=None)
@given(st.integers(0, 4000), st.integers(0, 4000), st.sampled_from(["", "\t", "- ", "\0", "{", '"']))
def test_a_damaged_specification_invents_no_device(start: int, end: int, noise: str) -> None:
    text = software_host.specification(3)
    found, _ = _cdi.read_yaml(text[:start] + noise + text[start + end :])
    assert all(re.fullmatch("[012]{1,2}|a|al|all", name) for name in found["devices"]), found["devices"]


@settings(deadline=None)
@given(st.text())
def test_any_specification_is_read(text: str) -> None:
    _cdi.read_yaml(text)
    _cdi.read_json(text)


def gpus(count: int, mig: dict[int, int] | None = None, told: bool = True) -> list[dict[str, Any]]:
    divided = mig or {}
    return [
        {"uuid": f"GPU-{n}" if told else None, "mig_mode": ("enabled" if n in divided else "disabled") if told else None,
         "mig_devices": divided.get(n, 0) if told else None}
        for n in range(count)
    ]  # fmt: skip


def spec(count: int, driver: str = DRIVER, parts: tuple[str, ...] = (), more: tuple[str, ...] = ()) -> dict[str, Any]:
    text = software_host.specification(count, driver, parts)
    found, strange = _cdi.read_yaml(text)
    found["devices"] += more
    return {**found, "drivers": sorted(set(_cdi.LIBRARY.findall(text))), "readable": not strange}


@pytest.mark.parametrize(
    ("made", "library", "present", "expected"),
    [
        (spec(8), DRIVER, gpus(8), []),
        (spec(8, "535.309.01"), DRIVER, gpus(8), [("driver", f"mounts 535.309.01, user space {DRIVER}")]),
        (spec(8, "535.309.01"), None, gpus(8), []),
        (spec(8), DRIVER, gpus(7), [("gpus", "names 8, present 7")]),
        (spec(7), DRIVER, gpus(8), [("gpus", "names 7, present 8")]),
        (spec(7), DRIVER, None, []),
        # A GPU was divided, or put together again, after the specification was made.
        (spec(2), DRIVER, gpus(2, {1: 3}), [("gpus", "names 2, present 1"), ("mig", "names 0, present 3")]),
        (spec(1, parts=("1:0", "1:1")), DRIVER, gpus(2, {1: 2}), []),
        (spec(1, parts=("1:0", "1:1")), DRIVER, gpus(2, {1: 7}), [("mig", "names 2, present 7")]),
        (spec(1, parts=("1:0", "1:1")), DRIVER, gpus(2), [("gpus", "names 1, present 2"), ("mig", "names 2, present 0")]),
        # A driver that does not answer leaves what the bus knows.
        (spec(1, parts=("1:0", "1:1")), DRIVER, gpus(2, told=False), []),
        (spec(1, parts=("1:0", "1:1")), DRIVER, gpus(3, told=False), [("gpus", "names 2, present 3")]),
        (spec(2, more=("GPU-0", "GPU-1")), DRIVER, gpus(2), []),
        (spec(2, more=("GPU-0", "GPU-9")), DRIVER, gpus(2), [("uuids", "names GPU-9, present GPU-1")]),
        (dict(spec(7), readable=False), DRIVER, gpus(8), []),
        (dict(spec(0), devices=["all"]), DRIVER, gpus(8), []),
    ],
)
def test_specifications_that_are_not_of_this_host(
    made: dict[str, Any], library: str | None, present: list[dict[str, Any]] | None, expected: list[tuple[str, str]]
) -> None:
    assert [(entry["id"], entry["seen"]) for entry in _cdi.differences(made, library, present)] == expected


def test_damage_is_a_problem_and_the_drivers_are_found_all_the_same(tree: Tree) -> None:
    tree.file("/etc/cdi/nvidia.yaml", software_host.specification(2)[:-30])
    tree.file("/etc/cdi/notes.txt", "")
    tree.file("/var/run/cdi/x.json", "{")
    system = System(str(tree.root))
    found = _cdi.scan(system, ["/etc/cdi", "/var/run/cdi"])
    assert [(entry["path"], entry["readable"], entry["drivers"]) for entry in found] == [
        ("/etc/cdi/nvidia.yaml", False, [DRIVER]), ("/var/run/cdi/x.json", False, []),
    ]  # fmt: skip
    assert len(system.problems) == 2
