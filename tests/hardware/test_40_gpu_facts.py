# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On every profile gpu_facts finds the paths and the links that nvidia-smi shows, and says where a host does not tell them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hardware.hosts import DRIVEN, LINKED, Node
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


def look(worn: dict[str, Node], folder: Path) -> dict[str, Seen]:
    """Observe all hosts with one run of the module, and ask their nvidia-smi."""
    (folder / "observe.yml").write_text(PLAYBOOK)
    outcome = harness.play(str(folder / "observe.yml"), next(iter(worn.values())).lab.name)
    assert outcome.rc == 0, outcome.tail()
    seen = {}
    for profile, node in worn.items():
        told = profile in DRIVEN
        seen[profile] = Seen(harness.observation(outcome, node.name), node.matrix() if told else {}, node.nvlinks() if profile in LINKED else [])
    return seen


@pytest.fixture(scope="module")
def well(worn: dict[str, Node], driving: dict[str, Node], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Give every host as it is with the driver where it has GPUs for one."""
    assert set(driving) == set(DRIVEN)
    return look(worn, tmp_path_factory.mktemp("well"))


@pytest.fixture(scope="module")
def broken(well: dict[str, Seen], worn: dict[str, Node], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Seen]]:
    """Give every host with two NVLinks of its first GPU down and all of its second one's."""
    for profile in LINKED:
        worn[profile].fault("link-down", "0", "0", str(len(well[profile].nvlinks[0]) - 1))
        worn[profile].fault("link-down", "1", "all")
    yield look({profile: worn[profile] for profile in LINKED}, tmp_path_factory.mktemp("broken"))
    for profile in LINKED:
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
    assert len(amd["nics"]) == 8
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
