# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _host, _net
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def system(tree: Tree) -> System:
    return System(str(tree.root))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('ID=ubuntu\nVERSION_ID="24.04"\n# comment\n\nPRETTY_NAME="a=b"', {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "a=b"}),
        ("ID='rocky'\nID_LIKE=\"rhel centos fedora\"\n", {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}),
        ("", {}),
    ],
)
def test_os_release(text: str, expected: dict[str, str]) -> None:
    found = _host.os_release(text)
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"/run/systemd/container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"/sys/class/dmi/id/sys_vendor": "QEMU"}, "kvm"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "p5.48xlarge"}, "amazon"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "g4dn.metal"}, None),
        ({"/sys/class/dmi/id/sys_vendor": "Microsoft Corporation", "/sys/class/dmi/id/product_name": "Virtual Machine"}, "microsoft"),
        ({"/sys/class/dmi/id/sys_vendor": "NVIDIA", "/sys/class/dmi/id/product_name": "DGXH100"}, None),
    ],
)
def test_virtualization(tree: Tree, files: dict[str, str], expected: str | None) -> None:
    for path, text in files.items():
        tree.file(path, text)
    assert _host.virtualization(system(tree)) == expected


@pytest.mark.parametrize(("data", "expected"), [(b"\6\0\0\0\1", True), (b"\6\0\0\0\0", False), (b"\6\0", None), (None, None)])
def test_secure_boot_with_efi(tree: Tree, data: bytes | None, expected: bool | None) -> None:
    tree.file("/sys/firmware/efi/runtime", "")
    if data is not None:
        tree.file(_host.SECURE_BOOT, data)
    assert _host.secure_boot(system(tree)) is expected


def test_no_secure_boot_without_efi(tree: Tree) -> None:
    assert _host.secure_boot(system(tree)) is False


@pytest.mark.parametrize(
    ("files", "service", "expected"),
    [
        ({}, None, (None, None)),
        ({}, "8388608", (None, 8388608)),
        ({}, "infinity", (None, "unlimited")),
        ({}, "18446744073709551615", (None, "unlimited")),
        ({"/etc/security/limits.d/10-a.conf": "* soft memlock unlimited\n* hard memlock unlimited"}, None, ("unlimited", None)),
        ({"/etc/security/limits.conf": "* - memlock unlimited", "/etc/security/limits.d/9.conf": "*  soft  memlock 64 # KiB"}, None, (65536, None)),
        ({"/etc/security/limits.conf": "#* - memlock 1\n@hpc - memlock 1\n* hard memlock 1\n* soft nofile 1\n* soft memlock x"}, None, (None, None)),
    ],
)
def test_memlock(tree: Tree, files: dict[str, str], service: str | None, expected: tuple[Any, Any]) -> None:
    for path, text in files.items():
        tree.file(path, text)
    assert _host.memlock(system(tree), service) == {"memlock": {"shell": expected[0], "service": expected[1]}}


def answer(index: int, prefix: int, *attributes: tuple[int, bytes]) -> bytes:
    body = struct.pack("=BBBBI", 2, prefix, 0, 0, index)
    for kind, value in attributes:
        body += struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


DONE = struct.pack("=IHHIII", 20, 3, 2, 1, 0, 0)


def test_addresses() -> None:
    data = answer(2, 24, (1, b"\x0a\xd5\x07\x01"), (2, b"\x0a\xd5\x07\x01"), (3, b"eth0\0")) + answer(3, 32, (1, b"\x0a\0\0\2"), (2, b"\x0a\0\0\1"))
    assert _net.parse_addresses(data) == ({2: ["10.213.7.1/24"], 3: ["10.0.0.1/32"]}, False)
    assert _net.parse_addresses(data + DONE)[1] is True
    assert _net.parse_addresses(b"") == ({}, False)


@given(st.binary(max_size=120), st.integers(0, 40))
def test_damaged_answers_are_survived(rubbish: bytes, at: int) -> None:
    for data in (rubbish, answer(2, 24, (2, b"\x0a\xd5\x07\x01"))[:at] + rubbish):
        assert set(_net.parse_addresses(data)[0]) <= {2, *(struct.unpack("=I", data[i : i + 4])[0] for i in range(len(data) - 3))}


def test_own_addresses_hold_the_loopback() -> None:
    assert "127.0.0.1/8" in [address for addresses in _net.ask_addresses().values() for address in addresses]


def test_interfaces(tree: Tree) -> None:
    tree.interface("lo", 1, 772)
    tree.interface("eth0", 2, speed="25000")
    tree.link("/sys/class/net/eth0/device", "/sys/devices/pci0000:00/0000:5e:00.0")
    tree.file("/sys/devices/pci0000:00/0000:5e:00.0/vendor", "0x15b3")
    tree.interface("bond0", 3, speed="-1")
    tree.file("/sys/class/net/bond0/bonding/mode", "802.3ad 4")
    tree.interface("br0", 4, flags="0x1002")
    tree.file("/sys/class/net/br0/bridge/bridge_id", "8000")
    tree.interface("veth9", 5)
    tree.file("/sys/class/net/bonding_masters", "bond0")
    tree.file(
        "/proc/net/route",
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU\neth0 00000000 0107D50A 3 0 0 0 00000000 0\nbr0 0007D50A 0 1 0 0 0 00FFFFFF 0\n",
    )
    found = {entry["name"]: entry for entry in _net.scan(system(tree), {2: ["10.0.0.1/24"]}, [])}
    assert {name: entry["type"] for name, entry in found.items()} == {
        "lo": "loopback", "eth0": "physical", "bond0": "bond", "br0": "bridge", "veth9": "virtual",
    }
    assert found["eth0"] == {
        "name": "eth0", "type": "physical", "address": "0000:5e:00.0", "mac": "02:00:00:00:00:01", "ipv4": ["10.0.0.1/24"],
        "up": True, "default_route": True, "speed_mbps": 25000, "carrier": None, "operstate": None, "mtu": None, "master": None, "bond": None,
        "vlan_parent": None, "kernel_driver": None, "numa_node": None, "physical_function": None, "virtual_functions": None,
        "virtual_functions_possible": None, "pcie": {"generation": None, "width": None, "max_generation": None, "max_width": None},
    }
    assert (found["br0"]["up"], found["br0"]["default_route"], found["bond0"]["speed_mbps"]) == (False, False, None)


def test_the_state_of_an_interface(tree: Tree) -> None:
    tree.interface("eth0", 2, carrier="1", operstate="up", mtu="9000")
    tree.interface("eth1", 3, carrier="0", operstate="down", mtu="1500")
    tree.interface("eth2", 4, carrier="2", operstate="", mtu="many")
    found = {entry["name"]: (entry["carrier"], entry["operstate"], entry["mtu"]) for entry in _net.scan(system(tree), {}, [])}
    assert found == {"eth0": (True, "up", 9000), "eth1": (False, "down", 1500), "eth2": (None, None, None)}


@pytest.mark.parametrize(
    ("mode", "active", "expected"),
    [
        ("802.3ad 4", "", {"mode": "802.3ad", "members": ["eth0", "eth1"], "active": None}),
        ("active-backup 1", "eth1", {"mode": "active-backup", "members": ["eth0", "eth1"], "active": "eth1"}),
        ("", "", {"mode": None, "members": ["eth0", "eth1"], "active": None}),
    ],
)
def test_a_bond_and_its_members(tree: Tree, mode: str, active: str, expected: dict[str, Any]) -> None:
    tree.interface("eth0", 2)
    tree.interface("eth1", 3)
    tree.bond("bond0", 4, "eth0", "eth1", mode=mode, active=active)
    found = {entry["name"]: entry for entry in _net.scan(system(tree), {}, [])}
    assert found["bond0"]["bond"] == expected
    assert [found[name]["master"] for name in ("eth0", "eth1", "bond0")] == ["bond0", "bond0", None]
    assert [found[name]["bond"] for name in ("eth0", "eth1")] == [None, None]


def test_a_vlan_names_what_it_is_on(tree: Tree) -> None:
    tree.interface("eth0", 2)
    for name, kind in (("eth0.100", "vlan"), ("macvlan0", "macvlan"), ("odd", "vlan\nlower")):
        tree.interface(name, 3, uevent=f"DEVTYPE={kind}\nINTERFACE={name}")
        tree.link(f"/sys/class/net/{name}/lower_eth0", "/sys/class/net/eth0")
    tree.link("/sys/class/net/odd/lower_eth1", "/sys/class/net/eth0")
    tree.bond("bond0", 5, "eth0")
    tree.link("/sys/class/net/bond0/lower_eth0", "/sys/class/net/eth0")
    found = {entry["name"]: (entry["type"], entry["vlan_parent"]) for entry in _net.scan(system(tree), {}, [])}
    assert found == {
        "eth0": ("virtual", None), "eth0.100": ("virtual", "eth0"), "macvlan0": ("virtual", None), "odd": ("virtual", None), "bond0": ("bond", None),
    }  # fmt: skip


def test_an_interface_has_what_its_function_has(tree: Tree) -> None:
    tree.pci("pci0000:10/0000:11:00.1", {"vendor": "0x8086", "device": "0x1572", "class": "0x020000"}, 1, "iavf")
    tree.link("/sys/devices/pci0000:10/0000:11:00.1/physfn", "/sys/devices/pci0000:10/0000:11:00.0")
    tree.interface("eth0", 2)
    tree.link("/sys/class/net/eth0/device", "/sys/devices/pci0000:10/0000:11:00.1")
    tree.interface("eth1", 3)
    tree.link("/sys/class/net/eth1/device", "/sys/devices/pci0000:10/0000:12:00.0/virtio1")
    tree.link("/sys/devices/pci0000:10/0000:12:00.0/virtio1/driver", "/sys/bus/virtio/drivers/virtio_net")
    one, other = _net.scan(system(tree), {}, [])
    assert (one["kernel_driver"], one["numa_node"], one["physical_function"], one["pcie"]["max_generation"]) == ("iavf", 1, "0000:11:00.0", 5)
    assert (other["type"], other["address"], other["kernel_driver"], other["pcie"]) == ("physical", None, "virtio_net", None)
    nic = {"address": "0000:11:00.1", **{key: f"the RDMA device's {key}" for key in _net.FUNCTION}}
    assert _net.scan(system(tree), {}, [nic])[0]["pcie"] == "the RDMA device's pcie"
