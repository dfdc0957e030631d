# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _nic_settings
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Runner
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st

HEADER = "\nDevice #1:\n----------\n\nDevice type:    ConnectX7\nDevice:     0000:18:00.0\n\nConfigurations:        Default  Current  Next Boot\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("        SRIOV_EN        False(0)        False(0)        False(0)", []),
        ("*       SRIOV_EN        False(0)        False(0)        True(1)", [("SRIOV_EN", "False(0)", "True(1)")]),
        ("*       SRIOV_EN        False(0)        True(1)         True(1)", []),
        ("*       NUM_OF_VFS      0               16              0", [("NUM_OF_VFS", "16", "0")]),
        ("*       HOST_CHAINING_DESCRIPTORS[0..7]  0    0    1", [("HOST_CHAINING_DESCRIPTORS[0..7]", "0", "1")]),
        ("*       ESWITCH_HAIRPIN Array[0..7]     Array[0..7]     Array[0..7]", []),
        ("The '*' shows parameters with next value different from default/current value.", []),
        ("-W- A Warning That Counts", []),
        ("        SRIOV_EN        False(0)        True(1)", []),
    ],
)
def test_settings_that_wait(line: str, expected: list[tuple[str, str, str]]) -> None:
    found = _nic_settings.parse(f"{HEADER}{line}\n")
    assert [(entry["name"], entry["current"], entry["next_boot"]) for entry in found] == expected


@pytest.mark.parametrize("titles", ["Next Boot", "Default Next Boot", "Current Next Boot Default", ""])
def test_other_columns_say_nothing(titles: str) -> None:
    """Without -e there is one column; a row of another table must not be read as if it had three."""
    assert _nic_settings.parse(f"Configurations: {titles}\n* SRIOV_EN a b c\n") == []


def test_whom_to_ask(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    tree.hca("mlx5_0", "pci0000:10/0000:11:00.0")
    tree.hca("mlx5_1", "pci0000:10/0000:11:00.1")
    tree.hca("mlx5_2", "pci0000:10/0000:12:00.0")
    tree.file("/sys/devices/pci0000:10/0000:12:00.0/physfn", "")
    tree.pci("pci0000:10/0000:13:00.0", {"vendor": "0x1d0f", "device": "0xefa2", "class": "0x020000"})
    tree.link("/sys/class/infiniband/rdmap0/device", "/sys/devices/pci0000:10/0000:13:00.0")
    system = System(str(tree.root))
    (tmp_path / "bin").mkdir()
    runner = Runner(lambda: 1.0, search=str(tmp_path / "bin"))
    assert _nic_settings.questions(system, runner) == {}
    for name in ("mstconfig", "mlxconfig"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
        assert _nic_settings.questions(system, runner) == {"0000:11:00.0": [name, "-d", "0000:11:00.0", "-e", "q"]}


@given(st.text())
def test_damaged_answers_never_raise(text: str) -> None:
    _nic_settings.parse(text)
    assert all(entry["current"] != entry["next_boot"] for entry in _nic_settings.parse(HEADER + text))
