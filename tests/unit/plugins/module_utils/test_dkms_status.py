# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _dkms_status
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st

KERNEL, OTHER_KERNEL = "6.1.0-40-amd64", "5.14.0-427.el9.x86_64"


def entry(module: str, version: str, kernel: str | None, state: str, *notes: str) -> dict[str, object]:
    architecture = "x86_64" if kernel else None
    return {"module": module, "version": version, "kernel": kernel, "architecture": architecture, "state": state, "notes": list(notes)}


def scanned(tree: Tree) -> list[dict[str, object]]:
    return _dkms_status.scan(System(str(tree.root), 5))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_nothing_where_dkms_is_not(tree: Tree) -> None:
    assert scanned(tree) == []


def test_each_build_has_its_state(tree: Tree) -> None:
    tree.file("/var/lib/dkms/mok.pub", "")
    tree.built("nvidia", "580.178.04", KERNEL)
    tree.built("nvidia", "580.178.04", OTHER_KERNEL, place="extra")
    tree.built("nvidia", "535.309.01", KERNEL, installed=False)
    tree.file("/var/lib/dkms/gdrdrv/2.5/source/dkms.conf", "")
    tree.file("/var/lib/dkms/lost/1/6.1.0-9-amd64/x86_64/module/lost.ko", "")
    assert scanned(tree) == [
        entry("gdrdrv", "2.5", None, "added"),
        entry("lost", "1", None, "broken"),
        entry("nvidia", "535.309.01", KERNEL, "built"),
        entry("nvidia", "580.178.04", OTHER_KERNEL, "installed"),
        entry("nvidia", "580.178.04", KERNEL, "installed"),
    ]


def test_a_build_that_failed_is_none(tree: Tree) -> None:
    tree.file("/var/lib/dkms/nvidia/580.178.04/source/dkms.conf", "")
    tree.file("/var/lib/dkms/nvidia/580.178.04/build/make.log", "error")
    tree.file(f"/var/lib/dkms/nvidia/580.178.04/{KERNEL}/x86_64/log/make.log", "error")
    assert scanned(tree) == [entry("nvidia", "580.178.04", None, "added")]


def test_what_is_installed_is_held_against_what_was_built(tree: Tree) -> None:
    tree.built("nvidia", "580.178.04", KERNEL)
    installed = tree.file(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko", b"from elsewhere")
    tree.file(f"/var/lib/dkms/nvidia/original_module/{KERNEL}/x86_64/nvidia.ko", "")
    changed = "nvidia.ko is installed and is not the one that was built"
    assert scanned(tree) == [entry("nvidia", "580.178.04", KERNEL, "installed", "original_module exists", changed)]
    installed.unlink()
    assert scanned(tree)[0]["notes"] == ["original_module exists", "nvidia.ko is not installed"]


def test_a_link_to_another_version_installs_that_one_only(tree: Tree) -> None:
    tree.built("nvidia", "580.178.04", KERNEL)
    tree.built("nvidia", "580.159.04", KERNEL, installed=False)
    assert [found["state"] for found in scanned(tree)] == ["built", "installed"]


X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
SHA256 = bytes.fromhex("2616c4c14c509240aca941f936934328")
MINE, OTHER = b"0\x82mine", b"0\x82other key"


def signatures(*entries: bytes, kind: bytes = X509) -> bytes:
    size = 16 + len(entries[0])
    return kind + struct.pack("<III", 28 + size * len(entries), 0, size) + b"".join(b"\0" * 16 + entry for entry in entries)


ATTRIBUTES = b"\x06\0\0\0"
LIST = "/sys/firmware/efi/efivars/MokListRT{}-605dab50-e046-4300-abb6-3dd810dd8b23"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (signatures(MINE), [MINE]),
        (signatures(OTHER) + signatures(MINE), [OTHER, MINE]),
        (signatures(b"a" * 8, b"b" * 8), [b"a" * 8, b"b" * 8]),
        (signatures(b"h" * 32, kind=SHA256) + signatures(MINE), [MINE]),
        (signatures(OTHER) + signatures(MINE)[:-1], [OTHER]),
        (X509 + struct.pack("<III", 5, 0, 0), []),
        (X509 + struct.pack("<III", 28, 0, 0), []),
        (b"", []),
    ],
)
def test_signature_lists(data: bytes, expected: list[bytes]) -> None:
    assert _dkms_status.parse_signatures(ATTRIBUTES + data) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, None, id="dkms has no key"),
        pytest.param({"/var/lib/dkms/mok.pub": MINE}, None, id="no EFI"),
        pytest.param({"/var/lib/dkms/mok.pub": MINE, "/sys/firmware/efi/efivars/x": b""}, False, id="no key enrolled"),
        pytest.param({"/var/lib/dkms/mok.pub": MINE, LIST.format(""): ATTRIBUTES + signatures(OTHER)}, False, id="another key enrolled"),
        pytest.param({"/var/lib/dkms/mok.pub": MINE, LIST.format(""): ATTRIBUTES + signatures(OTHER) + signatures(MINE)}, True, id="enrolled"),
        pytest.param(
            {"/var/lib/dkms/mok.pub": MINE, LIST.format(""): ATTRIBUTES + signatures(OTHER), LIST.format(1): ATTRIBUTES + signatures(MINE)},
            True, id="in the second part",
        ),
        pytest.param({"/var/lib/dkms/mok.pub": b"", LIST.format(""): ATTRIBUTES}, None, id="an empty file"),
        pytest.param({"/var/lib/shim-signed/mok/MOK.der": MINE, LIST.format(""): ATTRIBUTES + signatures(MINE)}, True, id="Ubuntu's place"),
        pytest.param(
            {
                "/etc/dkms/framework.conf": b'# mok_certificate=/x\nmok_certificate="/root/own.pem"\n', "/var/lib/dkms/mok.pub": OTHER,
                "/root/own.pem": b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(MINE) + b"\n-----END CERTIFICATE-----\n",
                LIST.format(""): ATTRIBUTES + signatures(MINE),
            },
            True, id="a place of the admin's, as text",
        ),
    ],
)  # fmt: skip
def test_whether_the_key_is_enrolled(tmp_path: Path, files: dict[str, bytes], expected: bool | None) -> None:
    tree = Tree(tmp_path)
    for path, data in files.items():
        tree.file(path, data)
    found = _dkms_status.key(System(str(tree.root)))
    assert found is None if not files else found is not None and found["enrolled"] is expected


@given(st.binary(max_size=200))
def test_damaged_lists_never_raise(data: bytes) -> None:
    _dkms_status.parse_signatures(data)
    _dkms_status.parse_signatures(ATTRIBUTES + X509 + data)
    _dkms_status.certificate(data)
