# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the driver knows of a made-up host: MIG, PCIe as it sees it, NVML beside nvidia-smi."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _nvml, _runner
from fixtures import smi
from fixtures.sysfs_host import Host, report

# A pynvml as far as it is asked. What is not set below is not supported, as by an older driver.
PYNVML = """
import collections
class NVMLError(Exception):
    pass
NVML_NVLINK_MAX_LINKS = 3
GPUS = {gpus!r}
Pci = collections.namedtuple("Pci", "busId")
def nvmlInit():
    {init}
def nvmlDeviceGetCount():
    return len(GPUS)
def nvmlDeviceGetHandleByIndex(number):
    if GPUS[number] is None:
        raise NVMLError("GPU is lost")
    return GPUS[number]
def nvmlDeviceGetPciInfo(gpu):
    return Pci(gpu["address"].encode())
def nvmlDeviceGetNumaNodeId(gpu):
    if "memory" not in gpu:
        raise NVMLError("Not Supported")
    return gpu["memory"]
def nvmlDeviceGetMemoryAffinity(gpu, size, scope):
    return [gpu.get("nodes", 0)] + [0] * (size - 1)
def nvmlDeviceGetNvLinkState(gpu, link):
    return link in gpu.get("links", {{}})
def nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link):
    return gpu["links"][link][0]
def nvmlDeviceGetNvLinkRemotePciInfo(gpu, link):
    return Pci(gpu["links"][link][1])
def nvmlDeviceGetTopologyCommonAncestor(one, two):
    if "level" not in one:
        raise NVMLError("Not Supported")
    return one["level"]
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(_runner, "SEARCH", str(made.bin))
    for name in ("sleep", "cat", "sh", "head", "yes", "python3"):
        (made.bin / name).symlink_to(Path(sys.executable) if name == "python3" else Path("/bin") / name)
    return made


def reasons(facts: dict[str, Any], probe: str) -> list[str]:
    return [entry["reason"] for entry in facts["problems"] if entry["probe"] == probe]


def in_mig_mode(host: Host) -> None:
    """Let the first GPU be in MIG mode; a report of it says nothing of its NVLinks."""
    text = report(host.addresses)
    host.says("xml", text.replace("<current_mig>Disabled", "<current_mig>Enabled", 1))
    links = (host.bin.parent / "links").read_text().partition("GPU 1:")
    host.says("links", "GPU 0: NVIDIA H100 (UUID: GPU-0)\nNvlink queries are not supported for Devices in MIG mode\nGPU 1:" + links[2])
    host.says("list", smi.listing(host.addresses, []))


def test_a_divided_gpu(host: Host) -> None:
    in_mig_mode(host)
    device = "<mig_device><index>{}</index><gpu_instance_id>{}</gpu_instance_id><compute_instance_id>0</compute_instance_id></mig_device>"
    text = (host.bin.parent / "xml").read_text()
    host.says("xml", text.replace("</mig_mode>", "</mig_mode>" + device.format(0, 1) + device.format(1, 2), 1))
    host.says("list", smi.listing(host.addresses, ["3g.40gb", "1c.3g.40gb"]))
    host.says("gpu_instances", smi.GPU_INSTANCES)
    host.says("compute_instances", smi.COMPUTE_INSTANCES)
    facts = host.observe()
    assert facts["problems"] == []
    first, second = facts["gpus"][:2]
    assert [(mig["profile"], mig["uuid"], mig["gpu_instance"]) for mig in first["mig"]] == [("3g.40gb", "MIG-0", 1), ("1c.3g.40gb", "MIG-1", 2)]
    assert (first["nvlinks"], second["mig"]) == ([], [])
    assert facts["volatile"][host.addresses[0]]["mig_geometry"] == [
        {"id": 1, "profile": "3g.40gb", "profile_id": 9, "start": 4, "size": 4,
         "compute_instances": [{"id": 0, "profile": "3g.40gb", "profile_id": 2, "start": 0, "size": 3}]},
        {"id": 2, "profile": "3g.40gb", "profile_id": 9, "start": 0, "size": 4,
         "compute_instances": [{"id": 0, "profile": "1c.3g.40gb", "profile_id": 0, "start": 0, "size": 1}]},
    ]  # fmt: skip
    assert facts["volatile"][host.addresses[1]]["mig_geometry"] == []
    assert facts["topology"]["gpu_gpu"][host.addresses[0]][host.addresses[1]]["nvlinks"] == 0


def test_a_gpu_in_mig_mode_that_is_whole_is_no_problem(host: Host) -> None:
    in_mig_mode(host)
    host.program("nvidia-smi", f'cd {host.bin.parent}; case "$*" in "mig -lgi") echo No GPU instances found: Not Found; exit 6;; '
                               '"mig -lci") echo No compute instances found: Not Found; exit 6;; '
                               '-L) cat list;; "nvlink -s") cat links;; *) cat xml;; esac')
    facts = host.observe()
    assert facts["problems"] == []
    assert facts["volatile"][host.addresses[0]]["mig_geometry"] == []


def test_a_geometry_that_may_not_be_seen_is_not_called_whole(host: Host) -> None:
    in_mig_mode(host)
    host.program("nvidia-smi", f'cd {host.bin.parent}; case "$*" in mig*) echo Insufficient Permissions; exit 4;; '
                               '-L) cat list;; "nvlink -s") cat links;; *) cat xml;; esac')
    facts = host.observe()
    assert facts["volatile"][host.addresses[0]]["mig_geometry"] is None
    assert reasons(facts, "nvidia-smi mig -lgi") == ["exit status 4: Insufficient Permissions"]


def test_nobody_is_asked_about_mig_without_mig(host: Host) -> None:
    host.program("nvidia-smi", f'echo "$*" >>{host.bin.parent}/asked; cd {host.bin.parent}; case "$1" in nvlink) cat links;; *) cat xml;; esac')
    assert host.observe()["problems"] == []
    assert sorted((host.bin.parent / "asked").read_text().splitlines()) == ["-q -x", "nvlink -s"]


def link_info(**values: object) -> str:
    generations = "".join(f"<{name}>{value}</{name}>" for name, value in values.items() if "gen" in name)
    widths = "".join(f"<{name}>{value}x</{name}>" for name, value in values.items() if "width" in name)
    return f"<pci><pci_gpu_link_info><pcie_gen>{generations}</pcie_gen><link_widths>{widths}</link_widths></pci_gpu_link_info></pci>"


@pytest.mark.parametrize(
    ("said", "clash"),
    [
        # The made-up kernel says: generation 1 of 5, 16 of 16 lanes.
        ({"current_link_gen": 1, "max_link_gen": 5, "max_device_link_gen": 5, "current_link_width": 16, "max_link_width": 16}, None),
        # A slot with less than the GPU has, and a link that has woken up since.
        ({"current_link_gen": 4, "max_link_gen": 4, "max_device_link_gen": 5, "current_link_width": 16, "max_link_width": 8}, None),
        ({"current_link_gen": "N/A", "current_link_width": "N/A"}, None),
        ({"current_link_width": 8}, "has 8 PCIe lanes for the driver and 16 for the kernel"),
        ({"max_link_width": 32}, "has 32 PCIe lanes at most for the driver and 16 for the kernel"),
        ({"max_link_gen": 6}, "has 6 PCIe as highest generation for the driver and 5 for the kernel"),
        ({"max_device_link_gen": 4}, "has 4 PCIe as highest generation of the GPU for the driver and 5 for the kernel"),
    ],
)
def test_pcie_of_driver_and_kernel(host: Host, said: dict[str, object], clash: str | None) -> None:
    host.says("xml", report(host.addresses).replace("<compute_mode>", link_info(**said) + "<compute_mode>", 1))
    facts = host.observe()
    assert reasons(facts, "nvidia-smi") == ([f"{host.addresses[0]} {clash}"] if clash else [])
    assert facts["gpus"][0]["pcie"] == {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16}


def test_the_memory_of_a_coherent_gpu_is_a_numa_node(host: Host) -> None:
    host.tree.file(f"/proc/driver/nvidia/gpus/{host.addresses[0]}/numa_status", "Node: 2\nStatus: online")
    assert [gpu["memory_numa_node"] for gpu in host.observe()["gpus"][:2]] == [2, None]


def pynvml(host: Host, monkeypatch: pytest.MonkeyPatch, gpus: list[dict[str, Any] | None], init: str = "pass") -> None:
    """Put a pynvml that knows these GPUs where this interpreter finds it."""
    put(host, monkeypatch, PYNVML.format(gpus=gpus, init=init))


def put(host: Host, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put a pynvml of this text where this interpreter finds it."""
    folder = host.bin.parent / "python"
    folder.mkdir(exist_ok=True)
    (folder / "pynvml.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def without_switches(host: Host) -> None:
    for number in range(0x93, 0x97):
        (host.tree.root / f"sys/bus/pci/devices/0000:{number:02x}:00.0").unlink()
    host.says("xml", report(host.addresses).replace("<state>Completed</state>", "<state>N/A</state>"))
    host.says("links", "".join(f"GPU {n}: NVIDIA V100 (UUID: GPU-{n})\n\t Link 0: 25.781 GB/s\n" for n in range(8)))


def test_nvml_knows_where_links_lead_that_nvidia_smi_does_not(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    without_switches(host)
    pairs = {n: n + 1 if n % 2 == 0 else n - 1 for n in range(8)}
    pynvml(host, monkeypatch, [
        {"address": f"0000{host.addresses[n].upper()}", "links": {0: (0, f"0000{host.addresses[m].upper()}")}} for n, m in pairs.items()
    ])  # fmt: skip
    facts = host.observe()
    assert facts["problems"] == []
    assert facts["gpus"][2]["nvlinks"] == [{"link": 0, "active": True, "rate_gbs": 25.781, "peer": host.addresses[3], "peer_type": "gpu"}]
    row = facts["topology"]["gpu_gpu"][host.addresses[2]]
    assert (row[host.addresses[3]]["nvlinks"], row[host.addresses[4]]["nvlinks"]) == (1, 0)


def test_nvml_knows_of_switches_that_the_host_does_not_see(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    without_switches(host)
    pynvml(host, monkeypatch, [{"address": address, "links": {0: (2, None)}} for address in host.addresses])
    facts = host.observe()
    assert facts["problems"] == []
    assert facts["gpus"][0]["nvlinks"][0]["peer_type"] == "switch"
    assert facts["topology"]["gpu_gpu"][host.addresses[0]][host.addresses[7]]["nvlinks"] == 1


def test_nvml_fills_nulls_and_clashes_are_problems(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = host.addresses[:3]
    for address, node in ((first, "-1"), (second, "-1")):
        (host.tree.root / f"sys/bus/pci/devices/{address}/numa_node").write_text(node)
    pynvml(host, monkeypatch, [
        {"address": first, "nodes": 2, "memory": 2, "level": 40}, {"address": second, "nodes": 6, "memory": 4, "level": 50}, None,
        {"address": third, "nodes": 8, "level": 10}, {"address": "0000:ff:00.0"},
    ])  # fmt: skip
    facts = host.observe()
    # One node is an answer, two are none; what the kernel said stays.
    assert [gpu["numa_node"] for gpu in facts["gpus"][:3]] == [1, None, 0]
    assert [gpu["memory_numa_node"] for gpu in facts["gpus"][:3]] == [2, 4, None]
    paths = facts["topology"]["gpu_gpu"]
    assert paths[first][second] == {"path": "NODE", "nvlinks": 18, "source": "sysfs, NVML, nvidia-smi"}
    # SYS is also what NVML says of what it does not know.
    assert paths[second][third] == {"path": None, "nvlinks": 18, "source": "sysfs, nvidia-smi"}
    assert reasons(facts, "NVML") == [f"NUMA node of {third} is 3 for NVML and 0 otherwise"]
    assert len(facts["gpus"]) == 8


def test_nvml_against_known_paths(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = host.addresses[:2]
    pynvml(host, monkeypatch, [{"address": one, "level": 10}, {"address": two}])
    facts = host.observe()
    assert facts["topology"]["gpu_gpu"][one][two]["path"] == "NODE"
    assert reasons(facts, "NVML") == [f"the path from {one} to {two} is PIX for NVML and NODE otherwise, and 1 more"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PYNVML.format(gpus=[], init="raise NVMLError('Driver Not Loaded')"), "exit status 1: NVMLError: Driver Not Loaded"),
        (PYNVML.format(gpus=[], init="import time; time.sleep(60)"), "no answer within 0.7 s"),
        (PYNVML.format(gpus=[], init="import os; os.abort()"), "exit status -6: no message"),
        (PYNVML.format(gpus=[], init="print('hello')"), "the answer is not what was asked for: hello"),
        ("raise SystemError('built for another Python')", "exit status 1: SystemError: built for another Python"),
        ("import sys; print('[[[1, 2]], 3]'); sys.exit(0)", "the answer is not what was asked for: [[[1, 2]], 3]"),
        ("import os; os.write(1, bytes(range(256)) * 4000); os._exit(0)", "the answer is not what was asked for: "),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "more than 8 MiB of output"),
    ],
    ids=["raises", "hangs", "aborts", "prints too much", "cannot be imported", "is another", "prints rubbish", "prints without end"],
)
def test_a_sick_nvml_costs_its_own_facts_only(host: Host, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    put(host, monkeypatch, text)
    facts = host.observe(probe_timeout=0.7 if "sleep" in text else 3)
    (problem,) = facts["problems"]
    assert problem["probe"] == "NVML"
    assert problem["reason"].startswith(reason)
    assert facts["gpus"][0]["uuid"] == "GPU-0"


def test_without_pynvml_nothing_is_asked_nor_missed(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not os.path.exists(os.path.join(path, "pynvml.py"))])
    assert _nvml.command() is None
    assert host.observe()["problems"] == []


def test_a_package_of_the_name_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml/__init__.py").write_text("raise ImportError('never here')")
    monkeypatch.syspath_prepend(tmp_path)
    command = _nvml.command()
    assert command is not None
    assert command[-1] == str(tmp_path)
    assert "pynvml" not in sys.modules
