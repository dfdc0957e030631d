# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _modprobe
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def system(tree: Tree) -> System:
    return System(str(tree.root))


@pytest.mark.parametrize(
    ("text", "options", "kept_out"),
    [
        pytest.param("options nvidia NVreg_A=1 NVreg_B=2", {("nvidia", "NVreg_A"): "1", ("nvidia", "NVreg_B"): "2"}, set(), id="several"),
        pytest.param('options nvidia NVreg_RegistryDwords="P=1;Q=2 3"', {("nvidia", "NVreg_RegistryDwords"): "P=1;Q=2 3"}, set(), id="quoted"),
        pytest.param("options nvidia-drm modeset=1\n", {("nvidia_drm", "modeset"): "1"}, set(), id="a dash in the name"),
        pytest.param("options nvidia \\\n NVreg_A=1", {("nvidia", "NVreg_A"): "1"}, set(), id="two lines"),
        pytest.param("options nvidia NVreg_A=1\noptions nvidia NVreg_A=2", {("nvidia", "NVreg_A"): "2"}, set(), id="the last word counts"),
        pytest.param("# options nvidia NVreg_A=1\noptions snd x=1\noptions\n\nblacklist", {}, set(), id="comments, others, damaged"),
        pytest.param("blacklist nouveau\nblacklist nova-core", {}, {"nouveau", "nova_core"}, id="blacklisted"),
        pytest.param("alias nouveau off", {}, {"nouveau"}, id="no alias"),
        pytest.param("install nouveau /bin/false\ninstall nvidia /sbin/modprobe --ignore-install nvidia", {}, {"nouveau"}, id="installed as nothing"),
        pytest.param("options nouveau modeset=0", {("nouveau", "modeset"): "0"}, set(), id="an option is no blacklist"),
    ],
)
def test_rules_of_a_file(text: str, options: dict[tuple[str, str], str], kept_out: set[str]) -> None:
    rules = _modprobe.Rules()
    rules.take(text, "/x")
    assert ({key: value for key, (value, _) in rules.options.items()}, rules.kept_out) == (options, kept_out)


def test_files_are_read_by_name_and_hide_each_other(tree: Tree) -> None:
    tree.file("/usr/lib/modprobe.d/a.conf", "options nvidia NVreg_A=hidden\nblacklist nouveau")
    tree.file("/etc/modprobe.d/a.conf", "options nvidia NVreg_A=1")
    tree.file("/usr/lib/modprobe.d/z.conf", "options nvidia NVreg_B=package")
    tree.file("/etc/modprobe.d/b.conf", "options nvidia NVreg_B=admin")
    tree.file("/etc/modprobe.d/c.conf.dpkg-old", "options nvidia NVreg_C=1")
    tree.file("/proc/cmdline", "ro modprobe.blacklist=nova-core,other nvidia.NVreg_A=7 nvidia-drm.modeset=1 a.b=c quiet")
    rules = _modprobe.rules(system(tree))
    assert rules.options == {
        ("nvidia", "NVreg_A"): ("7", "/proc/cmdline"),
        ("nvidia", "NVreg_B"): ("package", "/usr/lib/modprobe.d/z.conf"),
        ("nvidia_drm", "modeset"): ("1", "/proc/cmdline"),
    }
    assert rules.kept_out == {"nova_core", "other"}


def test_an_empty_file_hides_as_well(tree: Tree) -> None:
    tree.file("/usr/lib/modprobe.d/nvidia.conf", "blacklist nouveau")
    tree.file("/etc/modprobe.d/nvidia.conf", "")
    assert _modprobe.rules(system(tree)).kept_out == set()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("1", "1", True), ("0x1", "1", True), ("0660", "432", True), ("-1", "4294967295", True), ("Y", "1", True), ("0", "N", True),
        ('"a b"', "a b", True), ("1", "2", False), ("a", "b", False), ("", "", True), ("", "0", False), ("08", "8", False),
    ],
)  # fmt: skip
def test_values_in_two_spellings(one: str, other: str, expected: bool) -> None:
    assert _modprobe.same(one, other) is expected


PARAMS = "EnableStreamMemOPs: 0\nRmProfilingAdminOnly: 1\nDeviceFileMode: 432\nRegistryDwords: \"\"\nnot a line\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("options nvidia NVreg_EnableStreamMemOPs=0", []),
        ("options nvidia NVreg_EnableStreamMemOPs=1", ["nvidia NVreg_EnableStreamMemOPs is 0, /etc/modprobe.d/x.conf says 1"]),
        ("options nvidia-current NVreg_EnableStreamMemOPs=1", ["nvidia_current NVreg_EnableStreamMemOPs is 0, /etc/modprobe.d/x.conf says 1"]),
        ("options nvidia NVreg_RestrictProfilingToAdminUsers=0", ["nvidia NVreg_RestrictProfilingToAdminUsers is 1, /etc/modprobe.d/x.conf says 0"]),
        ("options nvidia NVreg_DeviceFileMode=0660", []),
        ('options nvidia NVreg_RegistryDwords="A=1"', ["nvidia NVreg_RegistryDwords is empty, /etc/modprobe.d/x.conf says A=1"]),
        ("options nvidia NVreg_OfAnotherRelease=1", []),
        ("options nvidia-drm modeset=1", []),
        ("options nvidia-drm modeset=0", ["nvidia_drm modeset is Y, /etc/modprobe.d/x.conf says 0"]),
        ("options nvidia-uvm uvm_x=1", []),
    ],
)
def test_options_that_are_not_in_force(tree: Tree, text: str, expected: list[str]) -> None:
    tree.file("/etc/modprobe.d/x.conf", text)
    tree.file("/proc/driver/nvidia/params", PARAMS)
    tree.file("/sys/module/nvidia_drm/parameters/modeset", "Y")
    listed = _modprobe.options(system(tree), _modprobe.rules(system(tree)))
    assert len(listed) == 1
    assert _modprobe.pending(listed) == expected


def test_what_is_not_loaded_waits_for_nothing(tree: Tree) -> None:
    tree.file("/etc/modprobe.d/x.conf", "options nvidia NVreg_EnableStreamMemOPs=1")
    (option,) = listed = _modprobe.options(system(tree), _modprobe.rules(system(tree)))
    assert option["running"] is None
    assert _modprobe.pending(listed) == []


def test_rivals_and_what_they_have(tree: Tree) -> None:
    assert _modprobe.rivals(system(tree)) == []
    tree.file("/sys/module/nova_core/drivers/pci:NovaCore", "")
    tree.file("/sys/bus/pci/drivers/NovaCore/0000:17:00.0", "")
    tree.file("/sys/bus/pci/drivers/NovaCore/new_id", "")
    # Built into the kernel, nouveau is no module that could be listed.
    tree.file("/sys/bus/pci/drivers/nouveau/0000:65:00.0", "")
    tree.file("/sys/module/nova_drm/refcnt", "0")
    assert _modprobe.rivals(system(tree)) == [
        {"module": "nouveau", "bound": ["0000:65:00.0"]}, {"module": "nova_core", "bound": ["0000:17:00.0"]}, {"module": "nova_drm", "bound": []},
    ]  # fmt: skip


@given(st.text(), st.text())
def test_damaged_files_never_raise(text: str, more: str) -> None:
    rules = _modprobe.Rules()
    rules.take(text, "/x")
    rules.take("options nvidia " + text, "/x")
    rules.take_command_line(more)
    _modprobe.parse_params(text)
    assert _modprobe.same(text, text)
