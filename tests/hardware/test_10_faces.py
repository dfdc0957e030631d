# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On every profile the faces of the hardware tell one story, and on a broken machine the same broken one."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator

import pytest
from hardware.hosts import NEW, Node, distance, gpus
from lab import hardware
from lab.paths import LabError

GPU, SECOND = "0000:1b:00.0", "0000:43:00.0"


@pytest.fixture(scope="module", params=hardware.profiles())
def node(request: pytest.FixtureRequest, worn: dict[str, Node]) -> Node:
    """Give each profile's host in turn."""
    return worn[request.param]


@pytest.fixture(scope="module")
def driven(eight: Node) -> Node:
    """Give the host with eight GPUs and a working driver."""
    eight.install(NEW, "nvidia-fabricmanager")
    eight("modprobe", "nvidia")
    eight("systemctl", "reset-failed", "nvidia-persistenced")
    eight("systemctl", "start", "nvidia-persistenced", "nvidia-fabricmanager")
    return eight


@pytest.fixture
def broken(driven: Node) -> Iterator[Node]:
    """Give that host to be broken, and heal it after."""
    yield driven
    driven.fault("heal")


def test_a_bare_host_boots_whole_with_nothing_loaded(node: Node) -> None:
    node.settle()
    assert node("systemctl", "--failed", "--plain", "--no-legend") == ""
    assert not [name for name in node.modules() if name.startswith("nvidia")]
    assert node.run("sh", "-c", "command -v nvidia-smi").returncode == 127
    assert node.run("modprobe", "nvidia").stderr.startswith("modprobe: FATAL: Module nvidia not found in directory /lib/modules/")


def test_the_kernel_has_one_release(node: Node) -> None:
    survey = node.survey()
    release = node("uname", "-r").strip()
    assert {survey["uname"], survey["osrelease"], survey["version"]} == {release}
    assert node.run("test", "-d", f"/lib/modules/{release}/build").returncode == 0


def test_lspci_and_sysfs_see_the_same_machine(node: Node) -> None:
    survey = node.survey()
    seen = {address: (entry["class"][2:6], f"{entry['vendor'][2:]}:{entry['device'][2:]}") for address, entry in survey["pci"].items()}
    assert node.lspci() == seen
    # The tree that lspci draws comes from the bridges' registers; each function hangs below the bridge that sysfs has above it.
    tree = node("lspci", "-PP", "-D", "-n")
    for address, entry in survey["pci"].items():
        bridges = entry["path"].split("/")[4:]
        line = "/".join([bridges[0], *(part.removeprefix(address[:5]) for part in bridges[1:])])
        assert re.search(rf"^{re.escape(line)} ", tree, re.MULTILINE), f"{address}: {tree}"


def test_numa_nodes_own_their_devices(node: Node) -> None:
    survey = node.survey()
    for address, entry in survey["pci"].items():
        assert entry["local_cpulist"] == survey["nodes"][f"node{entry['numa_node']}"], address


def test_adapters_are_the_same_in_ibstat_and_sysfs(node: Node) -> None:
    survey = node.survey()
    seen = node.ibstat()
    assert set(seen) == set(survey["rdma"])
    for name, port in survey["rdma"].items():
        said = seen[name]
        assert said["State"].lower() == port["state"].split(": ")[1].lower()
        assert said["Physical state"] == port["phys_state"].split(": ")[1]
        assert said["Rate"] == port["rate"].split()[0]
        assert said["Link layer"] == port["link_layer"]
        assert said["Node GUID"] == "0x" + port["node_guid"].replace(":", "")
        kind = {"InfiniBand": "0x020700", "Ethernet": "0x020000"}[port["link_layer"]]
        assert survey["pci"][port["address"]]["class"] == kind


def test_the_cable_is_an_interface_of_an_adapter_and_alive(node: Node) -> None:
    survey = node.survey()
    for name, path in survey["net"].items():
        assert path in [entry["path"] for entry in survey["pci"].values()], name
    assert node("cat", "/sys/class/net/eth0/operstate").strip() == "up"
    mac = node("cat", "/sys/class/net/eth0/address").strip()
    assert mac in node("ip", "link", "show", "eth0")


def test_every_face_of_the_driver_counts_the_same_gpus(driven: Node) -> None:
    survey = driven.survey()
    addresses = gpus(survey)
    report = driven.xml()
    listed = re.findall(r"^GPU \d+: .* \(UUID: (\S+)\)$", driven("nvidia-smi", "-L"), re.MULTILINE)
    uuids = [gpu.findtext("uuid") for gpu in report.findall("gpu")]
    assert len(addresses) == 8
    assert [gpu.get("id", "")[4:].lower() for gpu in report.findall("gpu")] == addresses == survey["proc"]
    assert uuids == listed
    assert len(set(uuids)) == 8
    for number, address in enumerate(addresses):
        card = driven("cat", f"/proc/driver/nvidia/gpus/{address}/information")
        assert f"GPU UUID: \t {uuids[number]}\n" in card
        assert f"Device Minor: \t {number}\n" in card
        assert f"nvidia{number}" in survey["dev"]
    query = driven("nvidia-smi", "--query-gpu=pci.bus_id,uuid,driver_version", "--format=csv,noheader").splitlines()
    assert [line.split(", ")[0][4:].lower() for line in query] == addresses
    assert report.findtext("driver_version") == driven("cat", "/sys/module/nvidia/version").strip() == NEW
    assert driven("lspci", "-k", "-s", GPU).count("Kernel driver in use: nvidia\n") == 1


def test_the_matrix_is_the_pci_tree(driven: Node) -> None:
    survey = driven.survey()
    matrix = driven.matrix()
    addresses = gpus(survey)
    places = {f"GPU{number}": address for number, address in enumerate(addresses)}
    places.update({name: port["address"] for name, port in survey["rdma"].items()})
    assert set(matrix) == set(places)
    for row, one in places.items():
        for column, other in places.items():
            cell = matrix[row][column]
            if row.startswith("GPU") and column.startswith("GPU") and row != column:
                assert cell == "NV18"
            else:
                assert cell == distance(survey, one, other), f"{row} {column}"
        if row.startswith("GPU"):
            assert matrix[row]["CPU Affinity"] == survey["pci"][one]["local_cpulist"]
            assert matrix[row]["NUMA Affinity"] == survey["pci"][one]["numa_node"]


def test_the_links_of_the_matrix_are_those_of_the_status(driven: Node) -> None:
    assert driven.nvlinks() == [[True] * 18] * 8
    assert {element.text for element in driven.xml().iter("state")} == {"Completed"}


def test_dead_links_are_dead_everywhere(broken: Node) -> None:
    broken.fault("link-down", "2", "3", "17")
    up = [sum(links) for links in broken.nvlinks()]
    assert up == [18, 18, 16, 18, 18, 18, 18, 18]
    matrix = broken.matrix()
    for one in range(8):
        for other in range(8):
            if one != other:
                assert matrix[f"GPU{one}"][f"GPU{other}"] == f"NV{min(up[one], up[other])}"
    health = [gpu.findtext("fabric/health/bandwidth") for gpu in broken.xml().findall("gpu")]
    assert [number for number, text in enumerate(health) if text == "Degraded"] == [2]
    broken.fault("link-down", "2", "all")
    survey, matrix = broken.survey(), broken.matrix()
    addresses = gpus(survey)
    for other in (0, 1, 3, 4, 5, 6, 7):
        assert matrix["GPU2"][f"GPU{other}"] == distance(survey, addresses[2], addresses[other])
    assert "Xid (PCI:0000:52:00): 74" in broken("dmesg")


@pytest.mark.parametrize(
    ("words", "state", "physical", "rate"),
    [
        (("ib-down", "mlx5_3"), "Down", "Polling", "10"),
        (("ib-down", "mlx5_3", "disabled"), "Down", "Disabled", "10"),
        (("ib-down", "mlx5_3", "no-subnet-manager"), "Initializing", "LinkUp", "400"),
        (("nic-half-rate", "mlx5_3"), "Active", "LinkUp", "200"),
    ],
)
def test_a_sick_port_is_sick_in_sysfs_and_ibstat(broken: Node, words: tuple[str, ...], state: str, physical: str, rate: str) -> None:
    well = broken.ibstat()
    broken.fault(*words)
    sick = broken.ibstat()
    assert (sick["mlx5_3"]["State"], sick["mlx5_3"]["Physical state"], sick["mlx5_3"]["Rate"]) == (state, physical, rate)
    port = broken.survey()["rdma"]["mlx5_3"]
    assert (port["phys_state"].split(": ")[1], port["rate"].split()[0]) == (physical, rate)
    assert {name: entry for name, entry in sick.items() if name != "mlx5_3"} == {name: entry for name, entry in well.items() if name != "mlx5_3"}
    broken.fault("heal", words[0], "mlx5_3")
    assert broken.ibstat() == well


def test_a_narrow_link_is_narrow_everywhere(broken: Node) -> None:
    broken.fault("pcie-x8", "1")
    assert "Width x8 (downgraded)" in broken("lspci", "-vv", "-s", SECOND)
    assert broken.survey()["pci"][SECOND]["current_link_width"] == "8"
    widths = [gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") for gpu in broken.xml().findall("gpu")]
    assert widths == ["16x", "8x", *["16x"] * 6]


def test_a_row_that_waits_for_a_reset(broken: Node) -> None:
    broken.fault("ecc-pending", "5")
    said = broken("nvidia-smi", "--query-gpu=remapped_rows.pending,gpu_recovery_action", "--format=csv,noheader").splitlines()
    assert said == ["No, None"] * 5 + ["Yes, Reset"] + ["No, None"] * 2
    assert broken.xml().findall("gpu")[5].findtext("remapped_rows/remapped_row_pending") == "Yes"


def test_a_hanging_nvidia_smi_hangs_until_it_is_killed(broken: Node) -> None:
    broken.fault("smi-hang")
    start = time.monotonic()
    done = broken.run("timeout", "--kill-after=0.5", "0.5", "nvidia-smi")
    # timeout(1) ends itself by the signal that it had to send.
    assert done.returncode == -signal.SIGKILL
    assert time.monotonic() - start >= 1.0
    broken.fault("heal", "smi-hang")
    broken("nvidia-smi")


def test_a_request_that_makes_no_sense_is_refused(broken: Node) -> None:
    for words, says in ((("link-down", "9"), "no GPU '9'"), (("ib-down", "mlx5_77"), "no RDMA device"), (("link-down", "0", "18"), "has 18 NVLinks")):
        with pytest.raises(LabError, match=says):
            broken.fault(*words)
    assert broken.nvlinks() == [[True] * 18] * 8


def test_a_gpu_off_the_bus_and_after_the_next_boot(driven: Node) -> None:
    try:
        driven.fault("gpu-off-bus", "1")
        done = driven.run("nvidia-smi")
        assert done.returncode != 0
        assert "0000:43:00.0: Unknown Error" in done.stdout
        assert driven("nvidia-smi", "-i", "0", "-L").startswith("GPU 0: ")
        assert "!!! Unknown header type 7f" in driven("lspci", "-vv", "-s", SECOND)
        assert "Xid (PCI:0000:43:00): 79" in driven("dmesg")
        driven.reboot()
        survey = driven.survey()
        assert SECOND not in survey["pci"]
        assert SECOND not in driven.lspci()
        assert [gpu.get("id", "")[4:].lower() for gpu in driven.xml().findall("gpu")] == gpus(survey)
        assert len(gpus(survey)) == 7
        assert "nvidia7" not in survey["dev"]
    finally:
        driven.fault("heal")
        driven.reboot()
    assert len(driven.xml().findall("gpu")) == 8
