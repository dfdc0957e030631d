# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _kernels
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("6.1.0-9-amd64", "6.1.0-40-amd64"),
        ("6.1.0-40-cloud-amd64", "6.1.0-41-cloud-amd64"),
        ("6.1.0-40-amd64", "6.12.48+deb13-amd64"),
        ("6.12.9+bpo-amd64", "6.12.12+bpo-amd64"),
        ("6.1.0-0.deb11.7-amd64", "6.1.0-0.deb11.21-amd64"),
        ("6.12~rc4-amd64", "6.12-amd64"),
        ("6.8.0-9-generic", "6.8.0-45-generic"),
        ("6.8.0-1015-nvidia-64k", "6.8.0-1100-nvidia-64k"),
        ("6.4.0-150600.23.7-default", "6.4.0-150600.23.17-default"),
        ("5.14.0-427.el9.x86_64", "5.14.0-427.13.1.el9_4.x86_64"),
        ("5.14.0-70.13.1.el9_0.x86_64", "5.14.0-427.el9.x86_64"),
        ("5.14.0-427.el9.aarch64+64k", "5.14.0-503.el9.aarch64+64k"),
        ("6.1.112-122.189.amzn2023.x86_64", "6.1.112-124.190.amzn2023.x86_64"),
        ("6.11.0~rc1-1.fc41.x86_64", "6.11.0-1.fc41.x86_64"),
    ],
)
def test_the_order_of_releases(older: str, newer: str) -> None:
    assert _kernels.release(older).kind == _kernels.release(newer).kind
    assert _kernels.release(older).order < _kernels.release(newer).order
    assert _kernels.newest([newer, older], older) == newer


@pytest.mark.parametrize(
    ("running", "other"),
    [
        ("6.1.0-40-amd64", "6.1.0-41-rt-amd64"),
        ("6.1.0-40-amd64", "6.1.0-41-cloud-amd64"),
        ("6.8.0-45-generic", "6.8.0-1100-nvidia"),
        ("6.8.0-1015-nvidia", "6.8.0-1100-nvidia-64k"),
        ("5.14.0-427.el9.x86_64", "5.14.0-503.el9.x86_64+rt"),
        ("5.14.0-427.el9.x86_64", "6.1.0-40-amd64"),
        ("4.18.0-553.el8.x86_64", "4.18.0-600.rt7.342.el8.x86_64"),
        ("6.1.0-40-amd64", "a-kernel-of-ones-own"),
    ],
)
def test_other_kinds_are_never_newer(running: str, other: str) -> None:
    assert _kernels.newest([other, running], running) == running
    assert _kernels.newest([other], running) is None


def test_a_kernel_is_what_can_be_booted(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for path in (
        "/boot/vmlinuz-6.1.0-40-amd64", "/boot/vmlinuz-0-rescue-1234", "/boot/System.map-6.1.0-39-amd64",
        "/lib/modules/6.1.0-38-amd64/build/Makefile", "/lib/modules/5.14.0-427.el9.x86_64/vmlinuz",
    ):
        tree.file(path, "")
    assert _kernels.installed(System(str(tree.root))) == ["5.14.0-427.el9.x86_64", "6.1.0-40-amd64"]


@given(st.lists(st.text(max_size=30), max_size=5), st.text(max_size=30))
def test_any_names_have_an_order(names: list[str], like: str) -> None:
    assert _kernels.newest(names, like) in (None, *names)
    assert _kernels.newest(names, None) is None


@given(st.text(alphabet="0123456789.~^+-abc", max_size=12), st.text(alphabet="0123456789.~^+-abc", max_size=12))
def test_keys_of_two_versions_compare(one: str, other: str) -> None:
    for key in (_kernels.deb_order, _kernels.rpm_order):
        assert (key(one) < key(other)) + (key(other) < key(one)) <= 1
