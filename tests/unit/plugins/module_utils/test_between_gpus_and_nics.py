# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What lies between GPUs and NICs: bridges, IOMMU, NUMA nodes, rails, and the functions that manage NVSwitches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _iommu, _numa, _pci, _pcie, _rails, _rdma, _vpd
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.config_space import ALL_ACS, DOWNSTREAM, space
from fixtures.sysfs import GPU, NVSWITCH, Tree, eight_gpus

PORT = "0000:12:00.0"
GPU_0, NIC_0 = "0000:13:00.0", "0000:14:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = eight_gpus(Tree(tmp_path))
    made.spaces()
    return made


def look(tree: Tree) -> tuple[System, dict[str, Any]]:
    """Observe as far as the bridges."""
    system = System(str(tree.root))
    facts: dict[str, Any] = {**_pci.scan(system), "nics": _rdma.scan(system)}
    facts["topology"] = _pci.topology(system, facts["gpus"], facts["nics"], _numa.scan(system))
    facts["pcie_bridges"] = _pcie.scan(system, facts["gpus"], facts["nics"])
    return system, facts


def bridges(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["address"]: entry for entry in facts["pcie_bridges"]}


def test_the_way_up_from_a_gpu(tree: Tree) -> None:
    system, facts = look(tree)
    assert (facts["gpus"][0]["parent"], facts["nics"][0]["parent"]) == (PORT, "0000:12:01.0")
    found = bridges(facts)
    assert (found[PORT]["role"], found[PORT]["parent"]) == ("downstream", "0000:11:00.0")
    assert (found["0000:11:00.0"]["role"], found["0000:11:00.0"]["parent"]) == ("upstream", "0000:10:01.0")
    assert (found["0000:10:01.0"]["role"], found["0000:10:01.0"]["parent"]) == ("root_port", None)
    # Four bridges for each GPU with its NIC, one for the NIC far away; those of the NVSwitches matter to nobody.
    assert len(found) == 8 * 4 + 1
    assert (facts["gpus"][0]["max_read_request"], facts["gpus"][0]["ats"]) == (512, True)
    assert system.problems == []


def test_one_port_with_acs_on_and_one_with_a_narrow_link(tree: Tree) -> None:
    tree.file(f"/sys/bus/pci/devices/{PORT}/config", space(DOWNSTREAM, able=ALL_ACS, control=0x1D))
    tree.file("/sys/bus/pci/devices/0000:11:00.0/current_link_width", "4")
    tree.file("/sys/bus/pci/devices/0000:11:00.0/max_link_speed", "16.0 GT/s PCIe")
    found = bridges(look(tree)[1])
    assert [address for address, entry in found.items() if entry["acs"]["on"]] == [PORT]
    assert found["0000:11:00.0"]["pcie"] == {"generation": 1, "width": 4, "max_generation": 4, "max_width": 16}


def test_who_is_not_root_knows_no_settings_and_says_so_once(tree: Tree) -> None:
    for path in (tree.root / "sys/devices").rglob("config"):
        path.write_bytes(path.read_bytes()[:64])
    system, facts = look(tree)
    assert {str(entry["acs"]) + str(entry["role"]) for entry in facts["pcie_bridges"]} == {"NoneNone"}
    assert {(gpu["max_read_request"], gpu["ats"]) for gpu in facts["gpus"]} == {(None, None)}
    assert [problem["reason"] for problem in system.problems] == [
        "50 PCI devices do not show their whole configuration space (root may see it): their settings are not known"
    ]
    assert facts["gpus"][0]["parent"] == PORT


def test_what_does_not_answer_is_named(tree: Tree) -> None:
    for address in (GPU_0, NIC_0, "0000:11:00.0"):
        tree.file(f"/sys/bus/pci/devices/{address}/config", b"\xff" * 256)
    system, facts = look(tree)
    # The GPU is named where it is found: by the width of its link.
    assert [problem["reason"] for problem in system.problems] == [f"{address} does not answer on the PCI bus" for address in (NIC_0, "0000:11:00.0")]
    assert facts["gpus"][0]["ats"] is None


def test_a_flat_bus_has_no_bridges(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("pci0000:00/0000:00:04.0", GPU)
    tree.file("/sys/class/infiniband/siw_eth0/ports/1/state", "4: ACTIVE")
    _system, facts = look(tree)
    assert (facts["pcie_bridges"], facts["gpus"][0]["parent"], facts["nics"][0]["parent"]) == ([], None, None)


def test_a_host_bridge_below_another_device_is_no_bridge(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0", GPU)
    _system, facts = look(tree)
    assert [(entry["address"], entry["parent"]) for entry in facts["pcie_bridges"]] == [("0000:64:00.5", None), ("10000:00:02.0", "0000:64:00.5")]
    assert facts["gpus"][0]["parent"] == "10000:00:02.0"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("BOOT_IMAGE=/vmlinuz ro iommu=pt intel_iommu=on quiet", ["iommu=pt", "intel_iommu=on"]),
        ("amd_iommu=off iommu.passthrough=1 iommu.strict=0", ["amd_iommu=off", "iommu.passthrough=1", "iommu.strict=0"]),
        ("root=/dev/iommu=pt noiommu noiommu=1 quiet", []),
        ("", []),
        (None, []),
    ],
)
def test_iommu_options(line: str | None, expected: list[str]) -> None:
    assert _iommu.options(line) == expected


def test_the_domain_of_each_gpu(tree: Tree) -> None:
    tree.iommu("DMA-FQ", GPU_0)
    tree.link("/sys/bus/pci/devices/0000:23:00.0/iommu_group", "/sys/kernel/iommu_groups/unnamed")
    tree.link("/sys/bus/pci/devices/0000:33:00.0/iommu_group", "/sys/kernel/iommu_groups/7")
    system, facts = look(tree)
    assert _iommu.scan(system, facts["gpus"]) == {"present": True, "options": []}
    assert [(gpu["iommu_group"], gpu["iommu_type"]) for gpu in facts["gpus"][:4]] == [(0, "DMA-FQ"), (None, None), (7, None), (None, None)]


@pytest.mark.parametrize(
    ("folder", "present"), [("kernel/iommu_groups/0", True), ("class/iommu/dmar0", True), ("kernel/iommu_groups", False), ("x", False)]
)
def test_whether_there_is_an_iommu(tmp_path: Path, folder: str, present: bool) -> None:
    (tmp_path / "sys" / folder).mkdir(parents=True)
    assert _iommu.scan(System(str(tmp_path)), [])["present"] is present


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Node 0 MemTotal:       65847712 kB\nNode 0 MemFree: 1 kB", 64304),
        ("Node 2 MemTotal:       0 kB", 0),
        ("Node 0 MemTotal: lots", None),
        ("Node 0 MemTotal: " + "9" * 5000 + " kB", None),
        (None, None),
    ],
)
def test_memory_of_a_node(text: str | None, expected: int | None) -> None:
    assert _numa.memory_mib(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10 21", [10, 21]), ("10", [10]), ("10 x", None), ("10 -1", None), ("\u00b2", None), ("9" * 5000, None), ("", None), (None, None)],
)
def test_distances(text: str | None, expected: list[int] | None) -> None:
    assert _numa.distances(text) == expected


def test_nodes_of_a_coherent_system(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.numa(0, 2, 10)
    tree.file("/sys/devices/system/node/node10/cpulist", "")
    tree.file("/sys/devices/system/node/nodes/cpulist", "")
    tree.file(f"/proc/driver/nvidia/gpus/{GPU_0}/numa_status", "Node: 10\nStatus: online")
    tree.file(f"/proc/driver/nvidia/gpus/{NIC_0}/numa_status", "Node: -1\nStatus: disabled")
    system = System(str(tree.root))
    nodes = _numa.scan(system)
    assert [(node["id"], node["cpus"], node["distances"]) for node in nodes] == [
        (0, "0-7", [10, 21, 21]), (2, "16-23", [21, 10, 21]), (10, "", [21, 21, 10]),
    ]  # fmt: skip
    assert [_numa.memory_node(system, address) for address in (GPU_0, NIC_0, "0000:99:00.0")] == [10, None, None]
    assert [_numa.only_node(nodes[:1]), _numa.only_node(nodes[:2]), _numa.only_node([nodes[0], nodes[2]]), _numa.only_node([])] == [0, None, 0, None]


def vpd(text: str) -> bytes:
    fields = b"PN\x0a920-9B36F-VA" + bytes([len(text)]) + text.encode()
    return b"\x82\x0a\x00ConnectX-7" + b"\x90" + len(fields).to_bytes(2, "little") + fields + b"\x78"


@pytest.fixture
def unseen(tree: Tree) -> Tree:
    """Give eight GPUs whose NVSwitches are no PCI devices, but managed through the two ports of a card far from all GPUs."""
    for number in range(4):
        (tree.root / f"sys/bus/pci/devices/0000:{0x93 + number:02x}:00.0").unlink()
    for number in range(2):
        place = f"pci0000:e7/0000:e7:01.0/0000:e8:00.{number}"
        tree.hca(f"mlx5_{number + 20}", place, 1)
        tree.file(f"/sys/devices/{place}/vpd", vpd("MLX:MN=MLNX:CSKU=V2:SMDL=SW_MNG"))
    return tree


def marked(tree: Tree) -> tuple[list[str], dict[str, bool | None]]:
    system, facts = look(tree)
    _vpd.mark(system, facts)
    return [problem["reason"] for problem in system.problems], {nic["name"]: nic["nvlink_bridge"] for nic in facts["nics"]}


def test_functions_that_manage_switches(unseen: Tree) -> None:
    ways = {f"mlx5_{number}": False for number in [*range(8), 10]}
    assert marked(unseen) == ([], {**ways, "mlx5_20": True, "mlx5_21": True})
    # What one function of a card says is true of the other.
    (unseen.root / "sys/bus/pci/devices/0000:e8:00.1/vpd").unlink()
    assert marked(unseen)[1]["mlx5_21"] is True
    unseen.file("/sys/bus/pci/devices/0000:e8:00.0/vpd", vpd("MLX:MN=MLNX:MODL=CX7"))
    assert marked(unseen) == ([], {**ways, "mlx5_20": False, "mlx5_21": False})


def test_a_function_that_keeps_silent_is_not_known(unseen: Tree) -> None:
    path = unseen.root / "sys/bus/pci/devices/0000:e8:00.0/vpd"
    path.write_bytes(b"")
    reasons, found = marked(unseen)
    assert reasons == ["2 RDMA devices may be those that manage NVSwitches: their vital product data cannot be read (root may)"]
    assert [name for name, answer in found.items() if answer is None] == ["mlx5_20", "mlx5_21"]
    # No such data at all is an answer.
    path.unlink()
    assert marked(unseen) == ([], dict.fromkeys(found, False))


def test_only_few_devices_are_asked(unseen: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read_bytes(_system: System, path: str, *_more: Any) -> bytes:
        asked.append(path)
        return _vpd.MARK

    monkeypatch.setattr(System, "read_bytes", read_bytes)
    nic = {"name": "a", "address": "0000:01:00.0", "vendor_id": "15b3", "device_id": "1021", "link_layer": "InfiniBand", "virtual_function": False}
    paths = {"gpu_nic": {"g": {"a": {"path": "NODE"}, "near": {"path": "PIX"}, "far": {"path": None}}}}
    others: list[dict[str, Any]] = [
        {"name": "near"}, {"link_layer": "Ethernet"}, {"vendor_id": "1d0f"}, {"device_id": "101b"}, {"virtual_function": True}, {"address": None},
    ]  # fmt: skip
    whole: dict[str, Any] = {"gpus": [1], "nvswitches": [], "nics": [dict(nic), *({**nic, **other} for other in others)], "topology": paths}
    _vpd.mark(System(str(unseen.root)), whole)
    assert asked == ["/sys/bus/pci/devices/0000:01:00.0/vpd"]
    assert [nic["nvlink_bridge"] for nic in whole["nics"]] == [True] + [False] * len(others)
    changes: list[dict[str, Any]] = [{"gpus": []}, {"nvswitches": [1]}]
    for change in changes:
        facts: dict[str, Any] = {**whole, **change, "nics": [dict(nic)]}
        _vpd.mark(System(str(unseen.root)), facts)
        assert facts["nics"][0]["nvlink_bridge"] is False
    assert len(asked) == 1


GPUS = [{"address": f"g{number}"} for number in range(4)]


def way(state: str = "ACTIVE", **more: Any) -> dict[str, Any]:
    return {"state": state, "virtual_function": False, "nvlink_bridge": False, **more}


@pytest.mark.parametrize(
    ("near", "path", "more", "expected"),
    [
        pytest.param(["a", "b", "c", "d"], "PIX", {}, "abcd", id="one each"),
        pytest.param(["d", "c", "b", "a"], "PXB", {}, "dcba", id="in the order of GPUs and not of names"),
        pytest.param(["ab", "ab", "cd", "cd"], "PIX", {}, "abcd", id="two share a switch with two"),
        pytest.param(["ab", "a", "dc", "d"], "PIX", {}, "bacd", id="who has a choice makes room"),
        pytest.param(["abe", "b", "c", "d"], "PIX", {"e": way("DOWN")}, "abcd", id="a port that is not used"),
        pytest.param(["abe", "b", "c", "d"], "PIX", {"e": way(virtual_function=True)}, "abcd", id="a virtual function beside it"),
        pytest.param(["abe", "b", "c", "d"], "PIX", {"e": way(nvlink_bridge=True)}, "abcd", id="a function that manages switches"),
        pytest.param(["ae", "b", "c", "d"], "PIX", {}, None, id="one NIC too many"),
        pytest.param(["a", "a", "c", "c"], "PIX", {}, None, id="two GPUs to a NIC"),
        pytest.param(["abcd", "a", "a", "a"], "PIX", {}, None, id="as many, but not one for each"),
        pytest.param(["a", "b", "c", "d"], "PIX", {"d": way("DOWN")}, None, id="one is down"),
        pytest.param(["abcd"] * 4, "PHB", {}, None, id="a flat virtual machine"),
        pytest.param(["a", "b", "c", "d"], "NODE", {}, None, id="no switch"),
        pytest.param(["", "", "", ""], "PIX", {}, None, id="no NICs"),
    ],
)
def test_rails(near: list[str], path: str, more: dict[str, dict[str, Any]], expected: str | None) -> None:
    nics = [{"name": name, **more.get(name, way())} for name in "abcde"]
    topology = {
        "nearest_nics": {gpu["address"]: list(names) for gpu, names in zip(GPUS, near, strict=True)},
        "gpu_nic": {gpu["address"]: {name: {"path": path} for name in "abcde"} for gpu in GPUS},
    }
    found = _rails.rails(GPUS, nics, topology)
    assert found == (None if expected is None else [{"gpu": f"g{number}", "nic": name} for number, name in enumerate(expected)])
    assert _rails.rails([], nics, {"nearest_nics": {}, "gpu_nic": {}}) is None


def test_rails_of_a_whole_machine(tree: Tree) -> None:
    _system, facts = look(tree)
    found = _rails.rails(facts["gpus"], facts["nics"], facts["topology"])
    assert found == [{"gpu": gpu["address"], "nic": f"mlx5_{number}"} for number, gpu in enumerate(facts["gpus"])]
    # Next to no GPU an adapter for management changes nothing; beside one it is as near as that GPU's own.
    tree.hca("mlx5_30", "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:02.0/0000:15:00.0", 0, "Ethernet")
    tree.pci("pci0000:90/0000:90:01.0/0000:91:00.0/0000:92:05.0/0000:99:00.0", NVSWITCH, 1)
    _system, facts = look(tree)
    assert _rails.rails(facts["gpus"], facts["nics"], facts["topology"]) is None
