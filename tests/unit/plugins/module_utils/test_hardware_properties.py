# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever sysfs says, an observation of the hardware is whole, has the documented shape, and names no device that is not there."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._observe import observe
from ansible_collections.gpu.fleet.plugins.plugin_utils import _facts_schema
from fixtures.sysfs_host import Host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Those that say which devices there are: what has another vendor or class is another device.
IDENTITY = ("vendor", "class")
RUBBISH = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"", b"\0", b"\n", b"-1\n", "\u00b2".encode(), b"9" * 6000, b"0x\n", b"4: \n", b"\xff" * 4096, b"nan", b"1e999 Gb/sec"]),
)


class Made:
    """A host whose files can be damaged and mended."""

    def __init__(self, folder: Path) -> None:
        self.root = Host(folder).tree.root
        places = [self.root / "sys", self.root / "proc/driver", self.root / "proc/cmdline"]
        found = [path for place in places for path in ([place] if place.is_file() else place.rglob("*"))]
        self.files = sorted(path for path in found if path.is_file() and not path.is_symlink() and path.name not in IDENTITY)
        self.well = self.observe()

    def observe(self) -> dict[str, Any]:
        return observe({"hardware"}, [], 30, 10, str(self.root))


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    folder = tempfile.mkdtemp(prefix="gpu-fleet-properties-")
    yield Made(Path(folder))
    shutil.rmtree(folder)


def devices(facts: dict[str, Any]) -> dict[str, set[str]]:
    """The names of everything that was found."""
    found = {group: {entry["address"] for entry in facts[group]} for group in ("gpus", "nvswitches", "accelerators_other", "pcie_bridges")}
    found["nics"] = {entry["name"] for entry in facts["nics"]}
    found["interfaces"] = {entry["name"] for entry in facts["interfaces"]}
    found["numa_nodes"] = {str(entry["id"]) for entry in facts["numa_nodes"]}
    return found


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_neither_raise_nor_invent(made: Made, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(made.files), min_size=1, max_size=40, unique=True))
    before = {path: path.read_bytes() for path in chosen}
    try:
        for path in chosen:
            how = data.draw(st.sampled_from(["cut", "rubbish", "gone", "more"]))
            if how == "gone":
                path.unlink()
            else:
                rubbish = data.draw(RUBBISH)
                old = before[path]
                path.write_bytes({"cut": old[: len(rubbish) % (len(old) + 1)], "more": old + rubbish}.get(how, rubbish))
        facts = made.observe()
    finally:
        for path, old in before.items():
            path.write_bytes(old)
    assert _facts_schema.violations(facts) == []
    assert not [problem for problem in facts["problems"] if "Error: " in problem["reason"]]
    assert json.loads(json.dumps(facts)) == facts
    well = devices(made.well)
    for group, names in devices(facts).items():
        # An interface whose folder lost its number is none.
        assert names <= well[group] if group == "interfaces" else names == well[group], group
    for one in facts["topology"]["rails"] or []:
        assert one in made.well["topology"]["rails"]


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_identity_loses_a_device_and_makes_none(made: Made, data: st.DataObject) -> None:
    files = sorted(path for path in (made.root / "sys/devices").rglob("*") if path.name in IDENTITY)
    chosen = data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=6, unique=True))
    before = {path: path.read_bytes() for path in chosen}
    try:
        for path in chosen:
            path.write_bytes(data.draw(RUBBISH))
        facts = made.observe()
    finally:
        for path, old in before.items():
            path.write_bytes(old)
    assert _facts_schema.violations(facts) == []
    assert not [problem for problem in facts["problems"] if "Error: " in problem["reason"]]
    for group, names in devices(facts).items():
        assert names <= devices(made.well)[group], group
