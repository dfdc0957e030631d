# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On every profile the faces of the hardware tell one story, and on a broken machine the same broken one."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hardware.hosts import ADAPTED, DRIVEN, LINKED, NEW, PROFILES, Node, cpus, distance, gpus
from lab.paths import LabError

SECOND = "0000:43:00.0"


@pytest.fixture(scope="module", params=list(PROFILES))
def node(request: pytest.FixtureRequest, worn: dict[str, Node]) -> Node:
    """Give each profile's host in turn."""
    return worn[request.param]


@pytest.fixture(scope="module", params=DRIVEN)
def driven(request: pytest.FixtureRequest, driving: dict[str, Node]) -> Node:
    """Give each profile's host that has GPUs in turn, with a working driver."""
    return driving[request.param]


@pytest.fixture
def broken(driven: Node) -> Iterator[Node]:
    """Give that host to be broken, and heal it after."""
    yield driven
    driven.fault("heal")


@pytest.fixture
def broken_eight(eight: Node) -> Iterator[Node]:
    """Give the host with eight GPUs to be broken."""
    eight.drive()
    yield eight
    eight.fault("heal")


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
        # Firmware that names no node leaves a device to all CPUs.
        owners = [entry["numa_node"]] if entry["numa_node"] != "-1" else [name.removeprefix("node") for name in survey["nodes"]]
        assert cpus(entry["local_cpulist"]) == set().union(*(cpus(survey["nodes"][f"node{owner}"]) for owner in owners)), address


def test_adapters_are_the_same_in_ibstat_and_sysfs(node: Node) -> None:
    survey = node.survey()
    seen = node.ibstat()
    # EFA has no management datagrams, by which ibstat asks.
    assert set(seen) == {name for name, port in survey["rdma"].items() if port["link_layer"] != "Unknown"}
    for name, said in seen.items():
        port = survey["rdma"][name]
        assert said["State"].lower() == port["state"].split(": ")[1].lower()
        assert said["Physical state"] == port["phys_state"].split(": ")[1]
        assert said["Rate"] == port["rate"].split()[0]
        assert said["Link layer"] == port["link_layer"]
        assert said["Node GUID"] == "0x" + port["node_guid"].replace(":", "")
        # Cards of both kinds, before ConnectX-4, are of neither class.
        kind = {"InfiniBand": "0x020700", "Ethernet": "0x020000"}[port["link_layer"]]
        assert survey["pci"][port["address"]]["class"] in (kind, "0x028000")


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
    assert len(addresses) == driven.count
    assert [gpu.get("id", "")[4:].lower() for gpu in report.findall("gpu")] == addresses == survey["proc"]
    assert uuids == listed
    assert len(set(uuids)) == len(addresses)
    for number, address in enumerate(addresses):
        card = driven("cat", f"/proc/driver/nvidia/gpus/{address}/information")
        assert f"GPU UUID: \t {uuids[number]}\n" in card
        assert f"Device Minor: \t {number}\n" in card
        assert f"nvidia{number}" in survey["dev"]
    query = driven("nvidia-smi", "--query-gpu=pci.bus_id,uuid,driver_version", "--format=csv,noheader").splitlines()
    assert [line.split(", ")[0][4:].lower() for line in query] == addresses
    assert report.findtext("driver_version") == driven("cat", "/sys/module/nvidia/version").strip() == NEW
    assert driven("lspci", "-D", "-k", "-s", addresses[0]).count("Kernel driver in use: nvidia\n") == 1


def test_the_matrix_is_the_pci_tree_and_the_links(driven: Node) -> None:
    survey = driven.survey()
    matrix, bare = driven.matrix(), driven.matrix("-mp")
    addresses = gpus(survey)
    places = {f"GPU{number}": address for number, address in enumerate(addresses)}
    places.update({name: port["address"] for name, port in survey["rdma"].items()})
    assert set(matrix) == set(bare) == set(places)
    for row, one in places.items():
        for column, other in places.items():
            path = distance(survey, one, other)
            both = row != column and {one, other} <= set(addresses)
            links = driven.bound(addresses.index(one), addresses.index(other)) if both else 0
            assert bare[row][column] == path, f"{row} {column}"
            assert matrix[row][column] == (f"NV{links}" if links else path), f"{row} {column}"
        if row.startswith("GPU"):
            node = survey["pci"][one]["numa_node"]
            assert matrix[row]["CPU Affinity"] == survey["pci"][one]["local_cpulist"]
            assert matrix[row]["NUMA Affinity"] == ("N/A" if node == "-1" else node)


def test_the_links_of_the_matrix_are_those_of_the_status(driven: Node) -> None:
    assert driven.nvlinks() == [[True] * (driven.switched or len(driven.straight(gpu))) for gpu in range(driven.count)]
    # GPUs speak of a fabric since Hopper, and only where there are switches.
    known = driven.switched and float(driven.model["compute_capability"]) >= 9
    assert {element.text for element in driven.xml().iter("state")} == {"Completed" if known else "N/A"}


@pytest.mark.parametrize("driven", LINKED, indirect=True, scope="module")
def test_dead_links_are_dead_everywhere(broken: Node) -> None:
    well = broken.nvlinks()
    broken.fault("link-down", "0", "0", str(len(well[0]) - 1))
    straight = broken.straight(0)
    # A link between two GPUs is dead for both of them.
    dead = Counter([0, 0, *([straight[0], straight[-1]] if straight else [])])
    assert [sum(states) for states in broken.nvlinks()] == [len(states) - dead[gpu] for gpu, states in enumerate(well)]
    matrix = broken.matrix()
    for one in range(broken.count):
        for other in range(one):
            # Only pairs with GPU 0 lost any: what the other one lost of its own, or two on the way to the switches.
            lost = 0 if other else dead[one] if straight else dead[0]
            left = broken.bound(one, other) - lost
            assert matrix[f"GPU{one}"][f"GPU{other}"] == matrix[f"GPU{other}"][f"GPU{one}"] == f"NV{left}"
    reports = broken.xml().findall("gpu/fabric")
    if reports[0].findtext("state") != "N/A":
        assert [number for number, fabric in enumerate(reports) if fabric.findtext("health/bandwidth") == "Degraded"] == [0]
    broken.fault("link-down", "0", "all")
    survey, matrix = broken.survey(), broken.matrix()
    addresses = gpus(survey)
    for other in range(1, broken.count):
        assert matrix["GPU0"][f"GPU{other}"] == distance(survey, addresses[0], addresses[other])
    assert f"Xid (PCI:{addresses[0][:-2]}): 74" in broken("dmesg")


@pytest.mark.parametrize("node", ADAPTED, indirect=True, scope="module")
def test_an_adapter_is_slow_or_down_on_every_profile(node: Node) -> None:
    name = node.described["rdma"][0]["name"]
    well = node.ibstat()
    for words, field, value in (
        (("nic-half-rate", name), "Rate", str(int(well[name]["Rate"]) // 2)),
        (("ib-down", name), "State", "Down"),
    ):
        node.fault(*words)
        sick, port = node.ibstat(), node.survey()["rdma"][name]
        assert sick[name][field] == value
        assert port["rate"].split()[0] == sick[name]["Rate"]
        assert {other: entry for other, entry in sick.items() if other != name} == {other: entry for other, entry in well.items() if other != name}
        node.fault("heal")
    assert node.ibstat() == well


@pytest.mark.parametrize(
    ("words", "state", "physical", "rate"),
    [
        (("ib-down", "mlx5_3"), "Down", "Polling", "10"),
        (("ib-down", "mlx5_3", "disabled"), "Down", "Disabled", "10"),
        (("ib-down", "mlx5_3", "no-subnet-manager"), "Initializing", "LinkUp", "400"),
        (("nic-half-rate", "mlx5_3"), "Active", "LinkUp", "200"),
    ],
)
def test_a_sick_port_is_sick_in_sysfs_and_ibstat(broken_eight: Node, words: tuple[str, ...], state: str, physical: str, rate: str) -> None:
    well = broken_eight.ibstat()
    broken_eight.fault(*words)
    sick = broken_eight.ibstat()
    assert (sick["mlx5_3"]["State"], sick["mlx5_3"]["Physical state"], sick["mlx5_3"]["Rate"]) == (state, physical, rate)
    port = broken_eight.survey()["rdma"]["mlx5_3"]
    assert (port["phys_state"].split(": ")[1], port["rate"].split()[0]) == (physical, rate)
    assert {name: entry for name, entry in sick.items() if name != "mlx5_3"} == {name: entry for name, entry in well.items() if name != "mlx5_3"}
    broken_eight.fault("heal", words[0], "mlx5_3")
    assert broken_eight.ibstat() == well


def test_a_narrow_link_is_narrow_everywhere(broken: Node) -> None:
    address = gpus(broken.survey())[0]
    broken.fault("pcie-x8", "0")
    pci = broken.survey()["pci"]
    above = pci[address]["path"].split("/")[-2]
    ends = [address, above] if above in pci else [address]
    # lspci compares what is with what could be at the device alone.
    assert "Width x8 (downgraded)" in broken("lspci", "-D", "-vv", "-s", address)
    for end in ends:
        assert re.search(r"LnkSta:.* Width x8\b", broken("lspci", "-D", "-vv", "-s", end))
        assert pci[end]["current_link_width"] == "8"
    widths = [gpu.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") for gpu in broken.xml().findall("gpu")]
    assert widths == ["8x", *["16x"] * (broken.count - 1)]


def test_memory_that_waits_for_a_reset(broken: Node) -> None:
    if not broken.model.get("ecc_on", True):
        with pytest.raises(LabError, match="does not check its memory"):
            broken.fault("ecc-pending", "0")
        return
    broken.fault("ecc-pending", "0")
    # GPUs without spare rows take pages out of use.
    kind, path = ("remapped_rows", "remapped_row_pending") if "remap_banks" in broken.model else ("retired_pages", "pending_retirement")
    said = broken("nvidia-smi", f"--query-gpu={kind}.pending,gpu_recovery_action", "--format=csv,noheader").splitlines()
    assert said == ["Yes, Reset", *["No, None"] * (broken.count - 1)]
    assert broken.xml().findtext(f"gpu/{kind}/{path}") == "Yes"
    assert f"Xid (PCI:{gpus(broken.survey())[0][:-2]}): 63" in broken("dmesg")


def test_a_gpu_that_falls_off_the_bus_is_lost_to_all(broken: Node) -> None:
    address = gpus(broken.survey())[0]
    broken.fault("gpu-off-bus", "0")
    done = broken.run("nvidia-smi")
    assert done.returncode != 0
    assert f"{address.upper()}: Unknown Error" in done.stdout
    assert "!!! Unknown header type 7f" in broken("lspci", "-D", "-vv", "-s", address)
    assert f"Xid (PCI:{address[:-2]}): 79" in broken("dmesg")
    assert address not in (broken.survey()["proc"] or [])
    broken.fault("heal")
    assert len(broken.xml().findall("gpu")) == broken.count


def test_a_hanging_nvidia_smi_hangs_until_it_is_killed(broken_eight: Node) -> None:
    broken_eight.fault("smi-hang")
    start = time.monotonic()
    done = broken_eight.run("timeout", "--kill-after=0.5", "0.5", "nvidia-smi")
    # timeout(1) ends itself by the signal that it had to send.
    assert done.returncode == -signal.SIGKILL
    assert time.monotonic() - start >= 1.0
    broken_eight.fault("heal", "smi-hang")
    broken_eight("nvidia-smi")


def test_a_request_that_makes_no_sense_is_refused(broken_eight: Node) -> None:
    for words, says in ((("link-down", "9"), "no GPU '9'"), (("ib-down", "mlx5_77"), "no RDMA device"), (("link-down", "0", "18"), "has 18 NVLinks")):
        with pytest.raises(LabError, match=says):
            broken_eight.fault(*words)
    assert broken_eight.nvlinks() == [[True] * 18] * 8


def test_a_coherent_gpus_memory_is_a_node_once_the_driver_runs(worn: dict[str, Node]) -> None:
    tray = worn["gb200-tray"]
    tray.drive()
    total = "awk '/MemTotal/ {print $4}' /sys/devices/system/node/node10/meminfo"
    assert int(tray("sh", "-c", total)) == tray.model["memory_mib"] << 10
    assert [row["GPU NUMA ID"] for name, row in sorted(tray.matrix().items()) if name.startswith("GPU")] == ["2", "10", "18", "26"]
    assert tray("cat", f"/proc/driver/nvidia/gpus/{gpus(tray.survey())[1]}/numa_status").splitlines()[0] == "Node: 10"
    tray("systemctl", "stop", "nvidia-persistenced")
    tray("modprobe", "-r", "nvidia")
    assert tray("sh", "-c", total).strip() == "0"
    tray("modprobe", "nvidia", "NVreg_CreateImexChannel0=1")
    tray("test", "-c", "/dev/nvidia-caps-imex-channels/channel0")
    tray("modprobe", "-r", "nvidia")
    assert tray.run("test", "-e", "/dev/nvidia-caps-imex-channels").returncode == 1


def test_a_gpu_off_the_bus_and_after_the_next_boot(eight: Node) -> None:
    eight.drive()
    try:
        eight.fault("gpu-off-bus", "1")
        assert eight("nvidia-smi", "-i", "0", "-L").startswith("GPU 0: ")
        eight.reboot()
        survey = eight.survey()
        assert SECOND not in survey["pci"]
        assert SECOND not in eight.lspci()
        assert [gpu.get("id", "")[4:].lower() for gpu in eight.xml().findall("gpu")] == gpus(survey)
        assert len(gpus(survey)) == 7
        assert "nvidia7" not in survey["dev"]
    finally:
        eight.fault("heal")
        eight.reboot()
    assert len(eight.xml().findall("gpu")) == 8
