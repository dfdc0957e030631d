# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _numa, _pci, _rdma
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import GPU, SPEEDS, Tree, eight_gpus

ROOT = ["pci0000:15", "0000:15:01.0"]


@pytest.mark.parametrize(
    ("one", "two", "nodes", "expected"),
    [
        pytest.param([*ROOT, "up", "d0", "gpu"], [*ROOT, "up", "d1", "nic"], (0, 0), "PIX", id="one switch"),
        pytest.param([*ROOT, "up", "d0", "gpu.0"], [*ROOT, "up", "d0", "gpu.1"], (0, 0), "PIX", id="two functions behind one port"),
        pytest.param([*ROOT, "card.0"], [*ROOT, "card.1"], (0, 0), "PIX", id="two functions at a root port"),
        pytest.param([*ROOT, "up", "d0", "up2", "d2", "gpu"], [*ROOT, "up", "d1", "nic"], (0, 0), "PXB", id="switch behind switch"),
        pytest.param([*ROOT, "up", "d0", "up2", "d2", "a"], [*ROOT, "up", "d1", "up3", "d3", "b"], (0, 0), "PXB", id="sister switches"),
        pytest.param([*ROOT, "up", "d0", "up2", "d2", "a"], [*ROOT, "up", "d0", "up2", "d3", "b"], (0, 0), "PIX", id="same inner switch"),
        pytest.param([*ROOT, "gpu"], ["pci0000:15", "0000:15:02.0", "nic"], (0, 0), "PHB", id="two root ports of one host bridge"),
        pytest.param(["pci0000:00", "0000:00:04.0"], ["pci0000:00", "0000:00:05.0"], (None, None), "PHB", id="flat virtual machine"),
        pytest.param(["pci0000:00", "0000:00:04.0"], ["pci0000:00", "0000:00:04.1"], (0, 0), "PIX", id="one card on the host bridge"),
        pytest.param([*ROOT, "gpu"], ["pci0000:37", "p", "nic"], (0, 0), "NODE", id="other host bridge, same node"),
        pytest.param([*ROOT, "gpu"], ["pci0000:97", "p", "nic"], (0, 1), "SYS", id="other node"),
        pytest.param(["pci0001:15", "0001:15:01.0", "a"], [*ROOT, "b"], (0, 1), "SYS", id="same bus number in another domain"),
        pytest.param([*ROOT, "gpu"], ["pci0000:97", "p", "nic"], (None, 1), None, id="firmware does not say"),
        pytest.param([], [*ROOT, "nic"], (0, 0), None, id="no place in the tree"),
    ],
)
def test_path_type(one: list[str], two: list[str], nodes: tuple[int | None, int | None], expected: str | None) -> None:
    assert _pci.path_type(one, two, *nodes) == expected
    assert _pci.path_type(two, one, nodes[1], nodes[0]) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("0000:AF:00.0", "0000:af:00.0"),
        ("18:00.0", "0000:18:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("rubbish", "0000:rubbish"),
        ("x:y:z", "x:y:z"),
    ],
)
def test_address_of(text: str, expected: str) -> None:
    assert _pci.address_of(text) == expected


def test_eight_gpus(tmp_path: Path) -> None:
    system = System(str(eight_gpus(Tree(tmp_path)).root))
    found = _pci.scan(system)
    nics = _rdma.scan(system)
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(8))
    assert found["gpus"][0] == {
        "index": 0,
        "address": "0000:13:00.0",
        "vendor_id": "10de",
        "device_id": "2330",
        "kernel_driver": "nvidia",
        "numa_node": 0,
        "cpus": "0-7",
        "pcie": {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16},
    }
    assert [switch["address"] for switch in found["nvswitches"]] == [f"0000:{number:02x}:00.0" for number in range(0x93, 0x97)]
    assert [nic["name"] for nic in nics] == [f"mlx5_{number}" for number in [*range(8), 10]]
    topology = _pci.topology(system, found["gpus"], nics, _numa.scan(system))
    addresses = [gpu["address"] for gpu in found["gpus"]]
    assert topology["nearest_nics"] == {address: [f"mlx5_{number}"] for number, address in enumerate(addresses)}
    assert {entry["path"] for entry in topology["gpu_gpu"][addresses[0]].values()} == {"NODE", "SYS"}
    assert topology["gpu_gpu"][addresses[0]][addresses[1]] == {"path": "NODE", "nvlinks": None, "source": "sysfs"}
    assert topology["gpu_nic"][addresses[7]]["mlx5_10"] == {"path": "SYS", "source": "sysfs"}
    assert system.problems == []


def test_other_devices_are_no_gpus(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("pci0000:00/0000:01:00.1", {**GPU, "class": "0x040300"})
    tree.pci("pci0000:00/0000:02:00.0", {"vendor": "0x1a03", "device": "0x2000", "class": "0x030000"})
    tree.pci("pci0000:00/0000:03:00.0", {"vendor": "0x8086", "device": "0x0412", "class": "0x030000"})
    tree.pci("pci0000:00/0000:04:00.0", {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000"})
    tree.pci("pci0000:00/0000:05:00.0", {**GPU, "device": "0x2684", "class": "0x030000"}, numa=-1)
    found = _pci.scan(System(str(tmp_path)))
    assert [(gpu["address"], gpu["device_id"], gpu["numa_node"]) for gpu in found["gpus"]] == [("0000:05:00.0", "2684", None)]
    assert found["nvswitches"] == []
    assert found["accelerators_other"] == [{"address": "0000:04:00.0", "vendor_id": "1002", "device_id": "74a1"}]


def test_one_node_stands_in_for_a_firmware_that_does_not_say(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.numa(0)
    tree.pci("pci0000:00/0000:00:01.0/0000:01:00.0", GPU, numa=-1)
    tree.pci("pci0000:40/0000:40:01.0/0000:41:00.0", GPU, numa=-1)
    system = System(str(tmp_path))
    topology = _pci.topology(system, _pci.scan(system)["gpus"], [], _numa.scan(system))
    assert topology["gpu_gpu"]["0000:01:00.0"]["0000:41:00.0"]["path"] == "NODE"


def test_unknown_places_are_null_and_a_problem(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.numa(0, 1)
    tree.pci("pci0000:00/0000:01:00.0", GPU, numa=-1)
    tree.pci("pci0000:40/0000:41:00.0", GPU, numa=-1)
    system = System(str(tmp_path))
    topology = _pci.topology(system, _pci.scan(system)["gpus"], [], _numa.scan(system))
    assert topology["gpu_gpu"]["0000:01:00.0"]["0000:41:00.0"]["path"] is None
    assert topology["nearest_nics"] == {"0000:01:00.0": [], "0000:41:00.0": []}
    assert len(system.problems) == 1
    assert "2 paths are unknown" in system.problems[0]["reason"]


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [
        ("16 GT/s", "8", (4, 8)),
        ("16.0 GT/s PCIe", "16", (4, 16)),
        ("64.0 GT/s PCIe", "16", (6, 16)),
        ("Unknown", "0", (None, None)),
        ("", "255", (None, None)),
    ],
)
def test_link(tmp_path: Path, speed: str, width: str, expected: tuple[int | None, int | None]) -> None:
    tree = Tree(tmp_path)
    for name in SPEEDS:
        tree.file(f"/dev1/{name}", speed if name.endswith("speed") else width)
    link = _pci.link(System(str(tmp_path)), "/dev1")
    assert (link["generation"], link["width"]) == (link["max_generation"], link["max_width"]) == expected


def test_a_gpu_that_fell_off_the_bus_is_kept_and_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    address = tree.pci("pci0000:00/0000:01:00.0", GPU)
    tree.file(f"/sys/devices/pci0000:00/{address}/current_link_width", "63")
    tree.file(f"/sys/devices/pci0000:00/{address}/current_link_speed", "Unknown")
    system = System(str(tmp_path))
    pcie = _pci.scan(system)["gpus"][0]["pcie"]
    assert pcie == {"generation": None, "width": None, "max_generation": 5, "max_width": 16}
    assert system.problems == [{"probe": "host", "reason": "0000:01:00.0 does not answer on the PCI bus"}]


def test_a_node_without_cpus_is_no_place_to_be_near_to(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.numa(0, 1)
    tree.pci("pci0000:00/0000:00:01.0/0000:01:00.0", GPU, numa=-1)
    tree.pci("pci0000:40/0000:40:01.0/0000:41:00.0", GPU, numa=-1)
    tree.file("/sys/devices/system/node/node1/cpulist", "")
    system = System(str(tmp_path))
    topology = _pci.topology(system, _pci.scan(system)["gpus"], [], _numa.scan(system))
    assert topology["gpu_gpu"]["0000:01:00.0"]["0000:41:00.0"]["path"] == "NODE"
