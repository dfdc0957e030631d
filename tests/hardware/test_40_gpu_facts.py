# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On every profile gpu_facts finds the paths and the links that nvidia-smi shows, and says where a host does not tell them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hardware.hosts import DRIVEN, LINKED, PROFILES, Node
from integration import harness

PLAYBOOK = """
- name: Observe hosts
  hosts: all
  gather_facts: false
  tasks:
    - name: Observe
      gpu.fleet.gpu_facts:
        gather_subset: [hardware, driver]
"""


@dataclass(frozen=True)
class Seen:
    """A host in two pairs of eyes, in the same state."""

    facts: dict[str, Any]
    matrix: dict[str, dict[str, str]]
    nvlinks: list[list[bool]]

    def pairs(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return what topo -m has in a cell, what it has in a column, and the facts of that path; adapters by name, GPUs by number."""
        numbers = {gpu["address"]: f"GPU{gpu['index']}" for gpu in self.facts["gpus"]}
        topology = self.facts["topology"]
        return [
            (numbers[address], numbers.get(other, other), entry)
            for kind in ("gpu_gpu", "gpu_nic")
            for address, row in topology[kind].items()
            for other, entry in row.items()
        ]

    def reasons(self, probe: str) -> list[str]:
        """Return what a probe could not find out."""
        return [problem["reason"] for problem in self.facts["problems"] if problem["probe"] == probe]


def observe(worn: dict[str, Node], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the facts of all hosts, which one run of the module finds."""
    (folder / "observe.yml").write_text(PLAYBOOK)
    limit = ",".join(node.name for node in worn.values())
    outcome = harness.play(str(folder / "observe.yml"), next(iter(worn.values())).lab.name, options=f"--limit {limit}")
    assert outcome.rc == 0, outcome.tail()
    return {profile: harness.observation(outcome, node.name) for profile, node in worn.items()}


def look(worn: dict[str, Node], folder: Path) -> dict[str, Seen]:
    """Observe all hosts, and ask their nvidia-smi."""
    seen = {}
    for profile, facts in observe(worn, folder).items():
        node, told = worn[profile], profile in DRIVEN
        seen[profile] = Seen(facts, node.matrix() if told else {}, node.nvlinks() if profile in LINKED else [])
    return seen


@pytest.fixture(scope="module")
def well(worn: dict[str, Node], driving: dict[str, Node], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Give every host as it is with the driver where it has GPUs for one."""
    assert set(driving) == set(DRIVEN)
    return look(worn, tmp_path_factory.mktemp("well"))


def faults_of(profile: str, nvlinks: list[list[bool]]) -> Iterator[tuple[str, ...]]:
    """Name everything that can break on a machine and leave its nvidia-smi working."""
    described = PROFILES[profile]
    for kind, entry in zip(("ib-down", "nic-half-rate"), described.get("rdma", []), strict=False):
        yield kind, entry["name"]
    if profile in DRIVEN:
        yield "pcie-x8", "0"
        (model,) = described["gpu_models"].values()
        if model["ecc"] and model.get("ecc_on", True):
            yield "ecc-pending", "0"
    if nvlinks:
        # Two links of the first GPU and all of the second one's.
        yield "link-down", "0", "0", str(len(nvlinks[0]) - 1)
        yield "link-down", "1", "all"


BREAKABLE = [name for name, profile in PROFILES.items() if name in DRIVEN or "rdma" in profile]


@pytest.fixture(scope="module")
def broken(well: dict[str, Seen], worn: dict[str, Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Seen]]:
    """Give every host with all its faults at once."""
    for profile in BREAKABLE:
        for words in faults_of(profile, well[profile].nvlinks):
            worn[profile].fault(*words)
    yield look({profile: worn[profile] for profile in BREAKABLE}, tmp_path_factory.mktemp("broken"))
    for profile in BREAKABLE:
        worn[profile].fault("heal")


@pytest.fixture(scope="module")
def fallen(worn: dict[str, Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """Give the facts of every host whose first GPU fell off the bus."""
    for profile in DRIVEN:
        worn[profile].fault("gpu-off-bus", "0")
    yield observe({profile: worn[profile] for profile in DRIVEN}, tmp_path_factory.mktemp("fallen"))
    for profile in DRIVEN:
        worn[profile].fault("heal")


def agrees(seen: Seen) -> None:
    """Assert that the facts have what topo -m and nvlink -s say."""
    assert seen.pairs()
    for one, other, entry in seen.pairs():
        cell = seen.matrix[one][other]
        links = int(cell.removeprefix("NV")) if cell.startswith("NV") else 0
        if links:
            assert entry["nvlinks"] == links, f"{one} {other}"
        else:
            assert entry["path"] == cell, f"{one} {other}"
            assert not entry.get("nvlinks"), f"{one} {other}"
    active = [sum(link["active"] for link in gpu["nvlinks"]) for gpu in seen.facts["gpus"]]
    assert active == [sum(states) for states in seen.nvlinks or [[]] * len(active)]


@pytest.mark.parametrize("profile", [name for name in DRIVEN if name not in ("cloud-vm", "t4-pcie1")])
def test_paths_and_links_are_those_of_nvidia_smi(well: dict[str, Seen], profile: str) -> None:
    agrees(well[profile])
    assert well[profile].facts["problems"] == []


@pytest.mark.parametrize("profile", LINKED)
def test_dead_links_are_missed_by_both(broken: dict[str, Seen], profile: str) -> None:
    agrees(broken[profile])
    assert len(broken[profile].reasons("nvidia-smi nvlink")) == 1


@pytest.mark.parametrize("profile", DRIVEN)
def test_paths_under_the_links_are_known_as_well(well: dict[str, Seen], worn: dict[str, Node], profile: str) -> None:
    bare = worn[profile].matrix("-mp")
    for one, other, entry in well[profile].pairs():
        assert entry["path"] in (bare[one][other], None)


def test_a_single_gpu_without_rdma_has_no_paths(well: dict[str, Seen]) -> None:
    assert well["t4-pcie1"].pairs() == []
    assert well["t4-pcie1"].facts["problems"] == []


def test_without_a_topology_a_path_is_null_and_a_problem(well: dict[str, Seen]) -> None:
    seen = well["cloud-vm"]
    paths = {(one, other): entry["path"] for one, other, entry in seen.pairs()}
    # What shares a virtual host bridge is told by sysfs. Nothing tells how two bridges are connected: nvidia-smi calls it SYS.
    assert {pair for pair, path in paths.items() if path == "PHB"} == {("GPU0", "GPU1"), ("GPU1", "GPU0"), ("GPU2", "GPU3"), ("GPU3", "GPU2")}
    assert {seen.matrix[one][other] for (one, other), path in paths.items() if path is None} == {"SYS"}
    assert set(paths.values()) == {"PHB", None}
    assert seen.reasons("topology") == ["the host does not say where its PCI devices sit: 8 paths are unknown"]


def test_only_nvidias_gpus_are_gpus(well: dict[str, Seen]) -> None:
    amd = well["amd"].facts
    assert (amd["gpus"], amd["nvswitches"]) == ([], [])
    assert [(entry["vendor_id"], entry["device_id"]) for entry in amd["accelerators_other"]] == [("1002", "74a1")] * 8
    assert len(amd["nics"]) == 10
    for profile, count in (("none", 0), ("rtx4090x2", 2), ("gb200-tray", 4)):
        assert len(well[profile].facts["gpus"]) == count
        assert well[profile].facts["accelerators_other"] == []


def test_the_adapters_that_manage_switches_are_adapters_and_no_switches(well: dict[str, Seen]) -> None:
    facts = well["b200-hgx8"].facts
    assert facts["nvswitches"] == []
    assert [nic["name"] for nic in facts["nics"]] == [f"mlx5_{number}" for number in range(12)]
    # None of them is nearest to a GPU.
    nearest = [facts["topology"]["nearest_nics"][gpu["address"]] for gpu in facts["gpus"]]
    assert nearest == [[f"mlx5_{number}"] for number in range(8)]


def test_nodes_of_memory_are_told_from_nodes_of_cpus(well: dict[str, Seen], worn: dict[str, Node]) -> None:
    for profile, seen in well.items():
        assert {f"node{node['id']}": node["cpus"] for node in seen.facts["numa_nodes"]} == worn[profile].survey()["nodes"], profile
        assert [node["distances"] for node in seen.facts["numa_nodes"]] == [entry["distance"] for entry in PROFILES[profile]["numa"]]
    tray = well["gb200-tray"].facts
    assert [node["id"] for node in tray["numa_nodes"] if not node["cpus"]] == [gpu["memory_node"] for gpu in tray["gpus"]] == [2, 10, 18, 26]
    assert {gpu["memory_node"] for gpu in well["h100-sxm8"].facts["gpus"]} == {None}


def lspci_acs(node: Node) -> dict[str, dict[str, list[str]]]:
    """Return what the real lspci says of access control: address -> what is able and what is on."""
    found = {}
    for part in node("lspci", "-D", "-vvv").split("\n\n"):
        rows = dict(re.findall(r"ACS(Cap|Ctl):\t(.*)", part))
        words = {key: [word[:-1] for word in row.split() if word.endswith("+")] for key, row in rows.items()}
        found[part.split()[0] if part.split() else ""] = {"able": words.get("Cap", []), "on": words.get("Ctl", [])}
    return found


@pytest.mark.parametrize("profile", DRIVEN)
def test_bridges_are_what_lspci_says(well: dict[str, Seen], worn: dict[str, Node], profile: str) -> None:
    facts, seen = well[profile].facts, lspci_acs(worn[profile])
    places = worn[profile].survey()["pci"]
    above = {entry["address"]: entry for entry in facts["pcie_bridges"]}
    for address, entry in above.items():
        assert entry["acs"] == seen[address], address
    for device in [*facts["gpus"], *facts["nics"]]:
        way, here = [], device["parent"]
        while here:
            way.append(here)
            here = above[here]["parent"]
        assert way == places[device["address"]]["path"].split("/")[4:-1][::-1], device["address"]
    redirected = any(entry["acs"]["on"] for entry in above.values())
    assert redirected is (profile == "rtx4090x2")


def test_the_iommu_and_what_the_kernel_was_told_of_it(well: dict[str, Seen]) -> None:
    said = {profile: (seen.facts["iommu"], {gpu["iommu_type"] for gpu in seen.facts["gpus"]}) for profile, seen in well.items()}
    assert said["h100-sxm8"] == ({"present": True, "options": ["iommu=pt"]}, {"identity"})
    assert said["gb200-tray"] == ({"present": True, "options": ["iommu.passthrough=1"]}, {"identity"})
    assert said["rtx4090x2"] == ({"present": True, "options": []}, {"DMA-FQ"})
    assert said["cloud-vm"] == ({"present": False, "options": []}, {None})
    assert {gpu["ats"] for gpu in well["gb200-tray"].facts["gpus"]} == {True}
    assert {gpu["ats"] for gpu in well["h100-sxm8"].facts["gpus"]} == {False}
    assert {(gpu["ats"], gpu["max_read_request"]) for gpu in well["b200-hgx8"].facts["gpus"]} == {(None, 512)}


def named(facts: dict[str, Any], group: str) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in facts[group]}


def test_efa_is_an_adapter_without_an_interface(well: dict[str, Seen]) -> None:
    facts = well["h100-efa8"].facts
    assert len(facts["nics"]) == 16
    assert {(nic["kernel_driver"], nic["link_layer"], nic["hca_type"], len(nic["netdevs"])) for nic in facts["nics"]} == {("efa", "Unknown", None, 0)}
    assert {len(port["gids"]) for nic in facts["nics"] for port in nic["ports"]} == {1}
    assert facts["topology"]["nearest_nics"][facts["gpus"][0]["address"]] == ["rdmap79s0", "rdmap80s0"]
    # Two for each GPU are no rails of one each. The way up is a quarter of what the GPU could use.
    assert facts["topology"]["rails"] is None
    switch = next(entry for entry in facts["pcie_bridges"] if entry["role"] == "upstream")
    assert (switch["pcie"]["max_generation"], switch["pcie"]["max_width"]) == (4, 8)
    assert {(gpu["pcie"]["max_generation"], gpu["pcie"]["max_width"]) for gpu in facts["gpus"]} == {(5, 16)}


def test_a_device_over_a_bond(well: dict[str, Seen]) -> None:
    facts = well["gb200-tray"].facts
    nic, interfaces = named(facts, "nics")["mlx5_bond_0"], named(facts, "interfaces")
    assert (nic["bond"], nic["bond_addresses"]) == ("bond0", ["0016:03:00.0", "0016:03:00.1"])
    assert {gid["netdev"] for gid in nic["ports"][0]["gids"]} == {"bond0"}
    assert interfaces["bond0"]["bond"] == {"mode": "802.3ad", "members": ["enP22p3s0f0np0", "enP22p3s0f1np1"], "active": None}
    assert [interfaces[name]["master"] for name in interfaces["bond0"]["bond"]["members"]] == ["bond0", "bond0"]
    assert interfaces["bond0.100"]["vlan_parent"] == "bond0"
    assert {nic["bond"] for nic in facts["nics"]} == {"bond0", None}


def test_virtual_functions_name_their_card(well: dict[str, Seen]) -> None:
    facts = well["amd"].facts
    nics, interfaces = named(facts, "nics"), named(facts, "interfaces")
    assert [name for name, nic in nics.items() if nic["virtual_function"]] == ["mlx5_8", "mlx5_9"]
    assert {nics[name]["physical_function"] for name in ("mlx5_8", "mlx5_9")} == {nics["mlx5_0"]["address"]}
    assert [(nics[name]["virtual_functions"], nics[name]["virtual_functions_possible"]) for name in ("mlx5_0", "mlx5_1")] == [(2, 16), (0, 16)]
    assert interfaces["enp20s0v0"]["physical_function"] == interfaces["enp20s0np0"]["address"]


def test_a_device_of_two_ports(well: dict[str, Seen]) -> None:
    ports = named(well["v100x4"].facts, "nics")["mlx4_0"]["ports"]
    assert [(port["number"], port["link_layer"], port["state"], bool(port["lid"])) for port in ports] == [
        (1, "InfiniBand", "ACTIVE", True), (2, "Ethernet", "DOWN", False),
    ]  # fmt: skip
    assert [{gid["netdev"] for gid in port["gids"]} for port in ports] == [{None}, {"enp96s0d1"}]


def test_adapters_that_manage_switches_say_so(well: dict[str, Seen]) -> None:
    found = {profile: [nic["name"] for nic in seen.facts["nics"] if nic["nvlink_bridge"] is not False] for profile, seen in well.items()}
    assert {profile: names for profile, names in found.items() if names} == {"b200-hgx8": ["mlx5_8", "mlx5_9", "mlx5_10", "mlx5_11"]}


def test_rails_where_each_gpu_has_an_adapter_of_its_own(well: dict[str, Seen], broken: dict[str, Seen]) -> None:
    rails = {profile: seen.facts["topology"]["rails"] for profile, seen in well.items() if seen.facts["gpus"]}
    names = {profile: [rail["nic"] for rail in found] for profile, found in rails.items() if found}
    assert names == {
        "a100-sxm8": [f"mlx5_{number}" for number in range(8)],
        "b200-hgx8": [f"mlx5_{number}" for number in range(8)],
        "h100-sxm8": [f"mlx5_{number}" for number in (0, 2, 3, 4, 5, 7, 8, 9)],
    }
    assert [rail["gpu"] for rail in rails["h100-sxm8"]] == [gpu["address"] for gpu in well["h100-sxm8"].facts["gpus"]]
    assert {profile for profile, seen in broken.items() if seen.facts["gpus"] and seen.facts["topology"]["rails"]} == set()


@pytest.mark.parametrize("profile", BREAKABLE)
def test_a_port_that_is_down_and_one_at_half_its_rate(well: dict[str, Seen], broken: dict[str, Seen], profile: str) -> None:
    before, after = (named(seen[profile].facts, "nics") for seen in (well, broken))
    down, half, *_others = [entry["name"] for entry in PROFILES[profile].get("rdma", [])] or (None, None)
    for name, nic in after.items():
        expected = {key: before[name][key] for key in ("state", "physical_state", "rate_gbps")}
        if name == down:
            expected = {"state": "DOWN", "physical_state": "Polling", "rate_gbps": 10}
        elif name == half:
            expected["rate_gbps"] //= 2
        assert {key: nic[key] for key in expected} == {key: nic["ports"][0][key] for key in expected} == expected, name


@pytest.mark.parametrize("profile", DRIVEN)
def test_a_narrow_link_is_narrow_at_both_its_ends(broken: dict[str, Seen], profile: str) -> None:
    facts = broken[profile].facts
    first, *others = facts["gpus"]
    assert (first["pcie"]["width"], first["pcie"]["max_width"]) == (8, 16)
    assert {gpu["pcie"]["width"] for gpu in others} <= {16}
    narrow = [entry["address"] for entry in facts["pcie_bridges"] if (entry["pcie"]["width"] or 0) < (entry["pcie"]["max_width"] or 0)]
    assert narrow == ([first["parent"]] if first["parent"] else [])


@pytest.mark.parametrize("profile", DRIVEN)
def test_memory_that_waits_for_a_reset(well: dict[str, Seen], broken: dict[str, Seen], profile: str) -> None:
    (model,) = PROFILES[profile]["gpu_models"].values()
    waits = model["ecc"] and model.get("ecc_on", True)
    for seen, pending in ((well, False), (broken, waits)):
        first, *others = seen[profile].facts["gpus"]
        assert first["recovery_action"] == ("Reset" if pending else None)
        # What has no spare rows takes pages out of use.
        assert (first["row_remap"] or {}).get("pending") == (pending if "remap_banks" in model else None)
        assert {gpu["recovery_action"] for gpu in others} <= {None}


@pytest.mark.parametrize("profile", DRIVEN)
def test_a_gpu_that_fell_off_the_bus_stays_and_is_named(well: dict[str, Seen], fallen: dict[str, dict[str, Any]], profile: str) -> None:
    facts, before = fallen[profile], well[profile].facts
    assert [gpu["address"] for gpu in facts["gpus"]] == [gpu["address"] for gpu in before["gpus"]]
    first, *others = facts["gpus"]
    assert (first["pcie"]["width"], first["kernel_driver"], first["ats"], first["max_read_request"]) == (None, None, None, None)
    assert [gpu["pcie"] for gpu in others] == [gpu["pcie"] for gpu in before["gpus"][1:]]
    assert {"probe": "pci", "reason": f"{first['address']} does not answer on the PCI bus"} in facts["problems"]
    assert "nvidia-smi" in {problem["probe"] for problem in facts["problems"]}
    assert facts["topology"]["gpu_nic"] == before["topology"]["gpu_nic"]


def test_access_control_that_setpci_switches_on_is_seen_and_lost_with_the_boot(eight: Node, tmp_path: Path) -> None:
    port = observe({"": eight}, tmp_path)[""]["gpus"][0]["parent"]

    def on() -> list[str]:
        facts = observe({"": eight}, tmp_path)[""]
        return next(list(entry["acs"]["on"]) for entry in facts["pcie_bridges"] if entry["address"] == port)

    assert on() == []
    eight("setpci", "-s", port, "ECAP_ACS+0x6.w=001d")
    # What else changes on the machine leaves it alone.
    eight.fault("nic-half-rate", "mlx5_0")
    eight.fault("heal")
    assert on() == ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]
    eight.reboot()
    assert on() == []
