# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Configuration spaces, whole, cut off, and damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _config_space
from ansible_collections.gpu.fleet.plugins.module_utils._config_space import UNKNOWN, Space, settings
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.config_space import ALL_ACS, DOWNSTREAM, ENDPOINT, ROOT_PORT, UPSTREAM, space
from hypothesis import given
from hypothesis import strategies as st

OFFERED = ["SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"]
NOTHING: dict[str, list[str]] = {"able": [], "on": []}


def of(data: bytes) -> Space:
    return Space(lambda offset, length: data[offset : offset + length])


def changed(data: bytes, offset: int, form: str, *values: int) -> bytes:
    bent = bytearray(data)
    struct.pack_into(form, bent, offset, *values)
    return bytes(bent)


@pytest.mark.parametrize(
    ("data", "role", "request_size", "ats", "acs"),
    [
        pytest.param(space(ENDPOINT), None, 512, None, NOTHING, id="a device without ATS"),
        pytest.param(space(ENDPOINT, request=5, ats=0x8000), None, 4096, True, NOTHING, id="a device with ATS on"),
        pytest.param(space(ENDPOINT, request=0, ats=0x001F), None, 128, False, NOTHING, id="a device with ATS off"),
        pytest.param(space(ENDPOINT, request=7), None, None, None, NOTHING, id="a reserved size"),
        pytest.param(space(ROOT_PORT, able=ALL_ACS), "root_port", 512, None, {"able": OFFERED, "on": []}, id="ACS off"),
        pytest.param(space(DOWNSTREAM, able=ALL_ACS, control=0x1D), "downstream", 512, None,
                     {"able": OFFERED, "on": ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]}, id="ACS on"),
        pytest.param(space(UPSTREAM), "upstream", 512, None, NOTHING, id="no ACS"),
        pytest.param(space(DOWNSTREAM, able=ALL_ACS)[:256], "downstream", 512, None, None, id="a host that hides the extended space"),
        pytest.param(space(ENDPOINT, ats=0x8000)[:256], None, 512, None, NOTHING, id="a device of such a host"),
        pytest.param(changed(space(ROOT_PORT, able=ALL_ACS), 0x9C, "<BB", 3, 0)[:256], None, None, None, NOTHING, id="a bridge without PCI Express"),
        pytest.param(changed(space(ENDPOINT), 6, "<H", 0), None, None, None, NOTHING, id="no list"),
        pytest.param(changed(space(ENDPOINT), 0x9C, "<BB", 3, 0x9C), None, None, None, NOTHING, id="a list in a circle"),
        pytest.param(changed(space(ENDPOINT), 0x34, "<B", 0x10), None, None, None, NOTHING, id="a list in the header"),
        pytest.param(changed(space(ENDPOINT), 0x9C, "<BB", 0xFF, 0xFF), None, None, None, NOTHING, id="a list of ones"),
        pytest.param(changed(space(ENDPOINT, ats=0x8000), 0x100, "<I", 1 | 0x100 << 20), None, 512, None, NOTHING, id="an extended list in a circle"),
        pytest.param(changed(space(ENDPOINT, ats=0x8000), 0x100, "<I", 1 | 0x40 << 20), None, 512, None, NOTHING, id="an extended list led back"),
        pytest.param(changed(space(ENDPOINT, ats=0x8000), 0x100, "<I", 0xFFFFFFFF), None, 512, None, NOTHING, id="an extended list of ones"),
        pytest.param(changed(space(DOWNSTREAM, able=ALL_ACS), 0x100, "<I", 1 | 0xFFC << 20)[:0xFFE], "downstream", 512, None, NOTHING, id="cut off"),
        pytest.param(changed(space(DOWNSTREAM), 0x100, "<I", 0xD | 1 << 16)[:0x106], "downstream", 512, None, None, id="ACS cut off"),
    ],
)  # fmt: skip
def test_settings(data: bytes, role: str | None, request_size: int | None, ats: bool | None, acs: dict[str, list[str]] | None) -> None:
    assert settings(of(data)) == {"role": role, "max_read_request": request_size, "ats": ats, "acs": acs}


@pytest.mark.parametrize("data", [space(DOWNSTREAM, able=ALL_ACS)[:64], space(ENDPOINT)[:30], b"", b"\xff" * 4096])
def test_nothing_is_known_of_a_header_alone_or_of_ones(data: bytes) -> None:
    assert settings(of(data)) == UNKNOWN
    assert of(data).dead is (data[:1] == b"\xff")


def test_a_virtual_function_is_not_dead() -> None:
    assert settings(of(changed(space(ENDPOINT, ats=0x8000), 0, "<HH", 0xFFFF, 0xFFFF)), virtual=True)["ats"] is True


def test_a_virtual_function_has_no_read_request_of_its_own() -> None:
    found = settings(of(space(ENDPOINT, request=0, ats=0x8000)), virtual=True)
    assert (found["max_read_request"], found["ats"]) == (None, True)


def test_only_what_is_asked_for_is_read_from_the_device() -> None:
    data, read = space(DOWNSTREAM, able=ALL_ACS), []

    def counted(offset: int, length: int) -> bytes:
        read.append(length)
        return data[offset : offset + length]

    settings(Space(counted))
    assert sum(read) < 100


def test_a_space_that_is_absent_or_fails(tmp_path: Path) -> None:
    with _config_space.opened(System(str(tmp_path)), "/sys/x") as found:
        assert found is None
    (tmp_path / "sys/x/config").mkdir(parents=True)
    with _config_space.opened(System(str(tmp_path)), "/sys/x") as found:
        assert found is not None
        assert settings(found) == UNKNOWN


@given(st.binary(max_size=300), st.integers(0, 4096), st.sampled_from([ROOT_PORT, UPSTREAM, DOWNSTREAM, ENDPOINT]), st.integers(0, 4096))
def test_damaged_spaces_are_survived(rubbish: bytes, at: int, kind: int, length: int) -> None:
    data = space(kind, able=ALL_ACS)
    found = settings(of((data[:at] + rubbish + data[at + len(rubbish) :])[:length]))
    assert set(found) == set(UNKNOWN)
    assert found["role"] in (None, "root_port", "upstream", "downstream")
    assert found["max_read_request"] in (None, 128, 256, 512, 1024, 2048, 4096)
    for names in (found["acs"] or NOTHING).values():
        assert set(names) <= set(_config_space.ACS_BITS)
