# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""RDMA devices: their ports, GIDs, functions and bonds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _net, _ports, _rdma
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree

SAMPLES = Path(__file__).parents[5] / "shared/cases/topology/samples/sysfs"
ZERO = ":".join(["0000"] * 8)
LOCAL = "fe80:0000:0000:0000:a288:c2ff:fe00:0001"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a00:0001"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def system(tree: Tree) -> System:
    return System(str(tree.root))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("200", 200),
        ("", None),
        (None, None),
        ("what", None),
    ],
)
def test_rate(text: str | None, expected: float | None) -> None:
    assert _ports.rate(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("4: ACTIVE", "ACTIVE"), ("5: LinkUp", "LinkUp"), ("ACTIVE", "ACTIVE"), ("4:", None), (None, None)])
def test_word(text: str | None, expected: str | None) -> None:
    assert _ports.word(text) == expected


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (49151, 49151), (0, None), (0xFFFF, None), (None, None)])
def test_lid(number: int | None, expected: int | None) -> None:
    assert _ports.lid(number) == expected


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        pytest.param({}, [], id="no table"),
        pytest.param({0: LOCAL}, [0], id="EFA has one row"),
        pytest.param({0: LOCAL, 1: LOCAL, 2: IPV4, 3: IPV4, 4: ZERO}, [0, 1, 2, 3], id="RoCE"),
        pytest.param({0: LOCAL, **dict.fromkeys(range(1, 8), ZERO), 8: IPV4}, [0, 8], id="a gap of seven"),
        pytest.param({0: LOCAL, **dict.fromkeys(range(1, 9), ZERO), 9: IPV4}, [0], id="a gap of eight ends it"),
        pytest.param({0: LOCAL, 6: IPV4, 12: IPV4}, [0, 6, 12], id="two gaps of five"),
        pytest.param({0: "", 1: "fe80::1", 2: "FE80" + LOCAL[4:], 3: LOCAL + ":0000", 4: LOCAL}, [4], id="damaged rows"),
    ],
)
def test_gids(tree: Tree, rows: dict[int, str], found: list[int]) -> None:
    for index, gid in rows.items():
        tree.gid("mlx5_0", index, gid, "IB/RoCE v1" if index % 2 == 0 else "RoCE v2", "eth1")
    seen = _ports.gids(system(tree), "/sys/class/infiniband/mlx5_0/ports/1")
    assert [row["index"] for row in seen] == found
    for row in seen:
        kind = "IB/RoCE v1" if row["index"] % 2 == 0 else "RoCE v2"
        assert row == {"index": row["index"], "gid": rows[row["index"]], "type": kind, "netdev": "eth1"}


def test_a_whole_table_is_not_read_past_its_filled_part(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(256):
        tree.gid("mlx5_0", index, LOCAL if index < 4 else ZERO)
    asked: list[str] = []
    host = system(tree)
    read = host.read

    def counted(path: str, limit: int = 1 << 20, quiet: bool = False) -> str | None:
        asked.append(path)
        return read(path, limit, quiet)

    monkeypatch.setattr(host, "read", counted)
    assert len(_ports.gids(host, "/sys/class/infiniband/mlx5_0/ports/1")) == 4
    assert sum("/gids/" in path for path in asked) == 12


def test_all_ports_of_a_device_and_the_first_ones_state(tree: Tree) -> None:
    tree.hca("mlx4_0", "pci0000:10/0000:10:00.0", lid="0x1a", sm_lid="0x1")
    folder = "/sys/class/infiniband/mlx4_0/ports"
    for number, values in {2: ("Ethernet", "1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)"), 10: ("InfiniBand", "2: INIT", "5: LinkUp", "")}.items():
        for key, text in zip(("link_layer", "state", "phys_state", "rate"), values, strict=True):
            tree.file(f"{folder}/{number}/{key}", text)
        for key in ("lid", "sm_lid"):
            tree.file(f"{folder}/{number}/{key}", "0xffff" if number == 10 else "0x5")
    tree.file(f"{folder}/x/state", "4: ACTIVE")
    (device,) = _rdma.scan(system(tree))
    rows = [[port[key] for key in ("number", "link_layer", "state", "physical_state", "rate_gbps", "lid", "sm_lid")] for port in device["ports"]]
    assert rows == [
        [1, "InfiniBand", "ACTIVE", "LinkUp", 400, 26, 1],
        [2, "Ethernet", "DOWN", "Disabled", 40, None, None],
        [10, "InfiniBand", "INIT", "LinkUp", None, None, None],
    ]
    assert [device[key] for key in ("link_layer", "state", "physical_state", "rate_gbps")] == ["InfiniBand", "ACTIVE", "LinkUp", 400]
    assert [device[key] for key in ("hca_type", "board_id", "sys_image_guid")] == ["MT4129", "MT_0000000838", "0000:0000:0000:0001"]


def test_devices_of_all_kinds(tree: Tree) -> None:
    tree.hca("rdmap16s0", "pci0000:10/0000:10:00.0", layer="Unspecified", state="1: DOWN", phys_state="3: Disabled")
    tree.file("/sys/devices/pci0000:10/0000:10:00.0/net/ibs1/ifindex", "3")
    tree.file("/sys/class/infiniband/siw_eth0/ports/1/state", "4: ACTIVE")
    host = system(tree)
    efa, software = _rdma.scan(host)
    assert (efa["state"], efa["physical_state"], efa["link_layer"], efa["kernel_driver"]) == ("DOWN", "Disabled", "Unspecified", "mlx5_core")
    assert (efa["virtual_function"], efa["netdevs"]) == (False, ["ibs1"])
    assert (software["name"], software["address"], software["state"], software["rate_gbps"]) == ("siw_eth0", None, "ACTIVE", None)
    assert (software["kernel_driver"], software["virtual_functions"], software["ports"][0]["gids"]) == (None, None, [])
    assert host.problems == []


def test_a_virtual_function_names_its_card(tree: Tree) -> None:
    tree.hca("mlx5_0", "pci0000:10/0000:11:00.0")
    tree.hca("mlx5_1", "pci0000:10/0000:11:00.1")
    tree.link("/sys/devices/pci0000:10/0000:11:00.1/physfn", "/sys/devices/pci0000:10/0000:11:00.0")
    for key, text in (("sriov_numvfs", "1"), ("sriov_totalvfs", "16")):
        tree.file(f"/sys/devices/pci0000:10/0000:11:00.0/{key}", text)
    card, function = _rdma.scan(system(tree))
    keys = ("virtual_function", "physical_function", "virtual_functions", "virtual_functions_possible")
    assert [card[key] for key in keys] == [False, None, 1, 16]
    assert [function[key] for key in keys] == [True, "0000:11:00.0", None, None]


def test_a_device_over_a_bond_names_the_ports_of_both(tree: Tree) -> None:
    """Only the first port's function has the RDMA device; the GIDs are the bond's."""
    tree.hca("mlx5_bond_0", "pci0000:10/0000:11:00.0", layer="Ethernet")
    tree.hca("mlx5_2", "pci0000:20/0000:21:00.0", layer="Ethernet")
    tree.pci("pci0000:10/0000:11:00.1", {"vendor": "0x15b3", "device": "0x1021", "class": "0x020000"})
    for number, (name, place) in enumerate((("eth0", "10/0000:11:00.0"), ("eth1", "10/0000:11:00.1"), ("eth2", "20/0000:21:00.0")), 2):
        tree.interface(name, number)
        tree.link(f"/sys/class/net/{name}/device", f"/sys/devices/pci0000:{place}")
    tree.interface("tap0", 8)
    tree.bond("bond0", 9, "eth0", "eth1", "tap0", "gone")
    tree.gid("mlx5_bond_0", 0, LOCAL, "RoCE v2", "bond0")
    tree.gid("mlx5_2", 0, LOCAL, "RoCE v2", "eth2")
    host = system(tree)
    nics = _rdma.scan(host)
    _rdma.join_bonds(nics, _net.scan(host, {}, nics))
    found: dict[str, Any] = {nic["name"]: (nic["bond"], nic["bond_addresses"]) for nic in nics}
    assert found == {"mlx5_bond_0": ("bond0", ["0000:11:00.0", "0000:11:00.1"]), "mlx5_2": (None, [])}
    # Without GIDs the interface of the function leads to the bond.
    for nic in nics:
        nic["ports"], nic["netdevs"] = [], ["eth0"] if nic["name"] == "mlx5_bond_0" else ["eth9"]
    _rdma.join_bonds(nics, _net.scan(host, {}, nics))
    assert {nic["name"]: (nic["bond"], nic["bond_addresses"]) for nic in nics} == found


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recordings are not beside the checkout")
def test_a_real_hosts_rdma_devices(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for line in (line for file in sorted(SAMPLES.glob("*")) for line in file.read_text().splitlines()):
        path, text = line.split("\t")
        tree.file(path, text)
    found = _rdma.scan(System(str(tmp_path)))
    layers = {nic["name"]: (nic["link_layer"], nic["rate_gbps"], nic["state"]) for nic in found}
    infiniband = [f"mlx5_{number}" for number in (0, 1, 4, 5, 6, 7, 8, 9)]
    assert layers == {**dict.fromkeys(infiniband, ("InfiniBand", 400, "ACTIVE")), "mlx5_bond_0": ("Ethernet", 200, "ACTIVE")}
