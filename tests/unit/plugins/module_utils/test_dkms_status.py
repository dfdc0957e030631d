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


def built(module: str, version: str, kernel: str | None, state: str, *notes: str) -> dict[str, object]:
    architecture = "x86_64" if kernel else None
    return {"module": module, "version": version, "kernel": kernel, "architecture": architecture, "state": state, "notes": list(notes)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nvidia/570.133.07, 5.15.0-94-generic, x86_64: installed", built("nvidia", "570.133.07", "5.15.0-94-generic", "installed")),
        ("nvidia, 570.133.07, 5.15.0-94-generic, x86_64: installed", built("nvidia", "570.133.07", "5.15.0-94-generic", "installed")),
        ("nvidia-current/535.309.01, 6.12.9+bpo-amd64, x86_64: built", built("nvidia-current", "535.309.01", "6.12.9+bpo-amd64", "built")),
        ("nvidia/580.178.04: added", built("nvidia", "580.178.04", None, "added")),
        ("gdrdrv, 2.5: added", built("gdrdrv", "2.5", None, "added")),
        ("nvidia/580.178.04: broken", built("nvidia", "580.178.04", None, "broken")),
        (
            "nvidia/580.178.04, 6.11.11-2-pve, x86_64: installed (WARNING! Diff between built and installed module!)",
            built("nvidia", "580.178.04", "6.11.11-2-pve", "installed", "WARNING! Diff between built and installed module!"),
        ),
        (
            "mlnx/24.10, 5.14.0-427.el9.x86_64, x86_64: installed (original_module exists) (WARNING! Missing some built modules!)",
            built("mlnx", "24.10", "5.14.0-427.el9.x86_64", "installed", "original_module exists", "WARNING! Missing some built modules!"),
        ),
        (
            "nvidia/580.178.04, 5.14.0-503.el9.x86_64, x86_64: installed-weak from 5.14.0-427.el9.x86_64",
            built("nvidia", "580.178.04", "5.14.0-503.el9.x86_64", "installed-weak"),
        ),
    ],
)
def test_lines_of_both_spellings(line: str, expected: dict[str, object]) -> None:
    assert _dkms_status.parse_status(f"Deprecated feature: REMAKE_INITRD (/etc/dkms/x.conf)\n{line}\n\n") == [expected]


@pytest.mark.parametrize("line", ["", "Error! Could not locate dkms.conf file.", "File: /var/lib/dkms/nvidia/580/dkms.conf is gone.", "x/"])
def test_lines_that_are_none(line: str) -> None:
    assert _dkms_status.parse_status(line) == []


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


@given(st.text(), st.binary(max_size=200))
def test_damaged_answers_never_raise(text: str, data: bytes) -> None:
    assert all(entry["state"] for entry in _dkms_status.parse_status(text))
    _dkms_status.parse_signatures(data)
    _dkms_status.parse_signatures(ATTRIBUTES + X509 + data)
    _dkms_status.certificate(data)
