# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Distances in the PCI tree: of the eight-GPU machine worked out by hand, of small trees one rule each."""

from __future__ import annotations

from typing import Any

import pytest
from lab.hardware.guest.labhw.paths import between
from lab.hardware.guest.labhw.smi.readings import Driver
from lab.hardware.guest.labhw.smi.topology import matrix, nvlink_peers, nvlink_status
from unit.lab.hardware_machines import machine, small

# Read off the profile's drawing by hand. Socket 0: four GPUs a switch deeper than their HCA; socket 1: on the same switch.
# Columns mlx5_0 to mlx5_9, of which 1 and 6 are the Ethernet HCAs on root ports of their own.
GPU_NIC = """
PXB  NODE NODE NODE NODE SYS  SYS  SYS  SYS  SYS
NODE NODE PXB  NODE NODE SYS  SYS  SYS  SYS  SYS
NODE NODE NODE PXB  NODE SYS  SYS  SYS  SYS  SYS
NODE NODE NODE NODE PXB  SYS  SYS  SYS  SYS  SYS
SYS  SYS  SYS  SYS  SYS  PIX  NODE NODE NODE NODE
SYS  SYS  SYS  SYS  SYS  NODE NODE PIX  NODE NODE
SYS  SYS  SYS  SYS  SYS  NODE NODE NODE PIX  NODE
SYS  SYS  SYS  SYS  SYS  NODE NODE NODE NODE PIX
"""
EXPECTED = [row.split() for row in GPU_NIC.split("\n") if row]


def read_matrix(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return (titles, row label -> all cells) of a topo -m text; a reader of the tests' own."""
    lines = text.split("\n")
    titles = [title.strip("\x1b[0m4") if title.startswith("\x1b") else title.removesuffix("\x1b[0m") for title in lines[0].split("\t")[1:]]
    rows = {}
    for line in lines[1 : lines.index("")]:
        label, *cells = line.split("\t")
        rows[label] = [cell.strip() for cell in cells]
    return titles, rows


@pytest.mark.parametrize("gpu", range(8))
def test_gpu_to_adapter_distances_of_the_eight_gpu_machine(gpu: int) -> None:
    found = machine("h100-sxm8")
    address = found.gpus[gpu]["address"]
    assert [between(found, address, device["at"]) for device in found.rdma] == EXPECTED[gpu]
    assert [between(found, device["at"], address) for device in found.rdma] == EXPECTED[gpu]


def test_the_matrix_of_the_eight_gpu_machine() -> None:
    found = machine("h100-sxm8")
    for version in ("535.309.01", "580.178.04"):
        _, rows = read_matrix(matrix(found, Driver(version)))
        assert list(rows) == [f"GPU{n}" for n in range(8)] + [f"NIC{n}" for n in range(10)]
        for number in range(8):
            row = rows[f"GPU{number}"]
            assert row[:8] == ["NV18"] * number + ["X"] + ["NV18"] * (7 - number)
            assert row[8:18] == EXPECTED[number]
            assert row[18:] == (["0-55,112-167", "0", "", "N/A"] if number < 4 else ["56-111,168-223", "1", "", "N/A"])
        for number in range(10):
            assert rows[f"NIC{number}"][:8] == [EXPECTED[gpu][number] for gpu in range(8)]
            assert rows[f"NIC{number}"][8 + number] == "X"


def test_the_matrix_without_nvlink_shows_the_pci_distance() -> None:
    _, rows = read_matrix(matrix(machine("h100-sxm8"), Driver("580.178.04"), nvlink=False))
    assert rows["GPU0"][:8] == ["X", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]


def test_the_header_is_underlined_by_newer_drivers_only() -> None:
    found = machine("h100-sxm8")
    assert matrix(found, Driver("535.309.01")).startswith("\tGPU0\t")
    text = matrix(found, Driver("580.178.04"))
    assert text.startswith("\t\x1b[4mGPU0\t")
    assert "GPU NUMA ID\x1b[0m\n" in text
    assert text.endswith("  NIC9: mlx5_9\n\n")


# Of the DGX A100's topo -m, without its storage ports: node 3 has GPUs 0 and 1, node 1 has 2 and 3, node 7 has 4 and 5, node 5 has 6 and 7.
def test_adapters_of_the_a100_machine_are_at_several_switches_from_both_gpus_of_their_node() -> None:
    found = machine("a100-sxm8")
    for gpu in range(8):
        paths = [between(found, found.gpus[gpu]["address"], device["at"]) for device in found.rdma]
        near = gpu // 2 * 2
        # Four NUMA nodes of either socket: whatever is not near is on another one.
        assert paths == ["SYS"] * near + ["PXB"] * 2 + ["SYS"] * (6 - near)
    for near in range(0, 8, 2):
        assert between(found, found.rdma[near]["at"], found.rdma[near + 1]["at"]) == "PXB"


def test_adapters_of_the_b200_machine_and_those_of_its_switches() -> None:
    found = machine("b200-hgx8")
    for number, gpu in enumerate(found.gpus):
        paths = [between(found, gpu["address"], device["at"]) for device in found.rdma]
        beside = ["NODE"] * 4 + ["SYS"] * 4 if number < 4 else ["SYS"] * 4 + ["NODE"] * 4
        beside[number] = "PXB"
        assert paths == beside + ["SYS" if number < 4 else "NODE"] * 4


def test_flat_buses_tell_one_bridge_from_another_and_no_more() -> None:
    _, rows = read_matrix(matrix(machine("cloud-vm"), Driver("580.178.04")))
    assert rows["GPU0"][:6] == ["X", "PHB", "SYS", "SYS", "0-47", "N/A"]


def tree(*roots: tuple[str, int, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"root": root, "numa": node, "tree": below} for root, node, below in roots]


@pytest.mark.parametrize(
    ("pci", "path"),
    [
        (tree(("0000:10", 0, {"10:01.0 port": {"11:00.0 dev": None, "11:00.1 dev": None}})), "PIX"),
        (tree(("0000:10", 0, {"10:01.0 port": {"11:00.0 dev": None}, "10:02.0 port": {"12:00.0 dev": None}})), "PHB"),
        (tree(("0000:10", 0, {"10:05.0 dev": None, "10:06.0 dev": None})), "PHB"),
        (tree(("0000:10", 0, {"10:01.0 port": {"11:00.0 dev": None}}), ("0000:20", 0, {"20:01.0 port": {"21:00.0 dev": None}})), "NODE"),
        (tree(("0000:10", 0, {"10:01.0 port": {"11:00.0 dev": None}}), ("0000:20", 1, {"20:01.0 port": {"21:00.0 dev": None}})), "SYS"),
        (tree(("0000:10", -1, {"10:01.0 port": {"11:00.0 dev": None}}), ("0000:20", -1, {"20:01.0 port": {"21:00.0 dev": None}})), "SYS"),
        (
            tree(("0000:10", 0, {"10:01.0 port": {"11:00.0 up": {"12:00.0 down": {"13:00.0 dev": None}, "12:01.0 down": {"14:00.0 dev": None}}}})),
            "PIX",
        ),
        (
            tree(("0000:10", 0, {"10:01.0 port": {"11:00.0 up": {
                "12:00.0 down": {"13:00.0 dev": None}, "12:01.0 down": {"14:00.0 up": {"15:00.0 down": {"16:00.0 dev": None}}}}}})),
            "PXB",
        ),
    ],
)  # fmt: skip
def test_one_rule_each(pci: list[dict[str, Any]], path: str) -> None:
    found = small(pci, numa=2)
    one, other = (gpu["address"] for gpu in found.gpus)
    assert between(found, one, other) == between(found, other, one) == path
    assert between(found, one, one) == "X"
    _, rows = read_matrix(matrix(found, Driver("580.178.04")))
    assert rows["GPU0"][:2] == ["X", path]


def test_links_down_show_in_matrix_and_status() -> None:
    found = machine("h100-sxm8", {"kind": "link-down", "target": "0000:52:00.0", "more": [3, 4]})
    _, rows = read_matrix(matrix(found, Driver("580.178.04")))
    assert rows["GPU2"][:8] == ["NV16", "NV16", "X"] + ["NV16"] * 5
    assert rows["GPU0"][:8] == ["X", "NV18", "NV16"] + ["NV18"] * 5
    lines = nvlink_status(found, Driver("580.178.04"), [2]).splitlines()
    assert [line for line in lines if "inactive" in line] == ["\t Link 3: <inactive>", "\t Link 4: <inactive>"]
    assert sum("26.562 GB/s" in line for line in lines) == 16


def test_a_gpu_without_any_link_falls_back_to_the_pci_distance() -> None:
    found = machine("h100-sxm8", {"kind": "link-down", "target": "0000:52:00.0", "more": list(range(18))})
    _, rows = read_matrix(matrix(found, Driver("580.178.04")))
    assert rows["GPU2"][:8] == ["NODE", "NODE", "X", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert "all links are inActive" in nvlink_status(found, Driver("580.178.04"), [2])


def test_a_link_from_gpu_to_gpu_is_dead_at_both_its_ends() -> None:
    found = machine("v100x4", {"kind": "link-down", "target": "0000:1a:00.0", "more": [5]})
    _, rows = read_matrix(matrix(found, Driver("580.178.04")))
    assert rows["GPU0"][:4] == ["X", "NV2", "NV2", "NV1"]
    assert rows["GPU3"][:4] == ["NV1", "NV2", "NV2", "X"]
    last = nvlink_status(found, Driver("580.178.04"), [3]).splitlines()
    assert [line for line in last if "inactive" in line] == ["\t Link 1: <inactive>"]
    assert "\t Link 0: Remote Device 00000000:1A:00.0: Link 4\n" in nvlink_peers(found, [3])
    assert "Link 5" not in nvlink_peers(found, [0])


def test_links_in_pairs_count_for_the_pair_only() -> None:
    four = {f"10:0{n}.0 port": {f"1{n}:00.0 dev": None} for n in range(1, 5)}
    found = small(tree(("0000:10", 0, four)), nvlink={"rate": "25", "pairs": [[0, 1, 4], [2, 3, 4]]})
    _, rows = read_matrix(matrix(found, Driver("535.309.01")))
    assert rows["GPU0"][:4] == ["X", "NV4", "PHB", "PHB"]
    assert rows["GPU3"][:4] == ["PHB", "PHB", "NV4", "X"]
    assert nvlink_status(found, Driver("535.309.01"), [0]).count("25 GB/s") == 4
