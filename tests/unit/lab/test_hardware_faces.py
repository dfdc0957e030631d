# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sysfs, /proc and /dev show of a machine, and that they follow its faults."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from lab.hardware import schema
from lab.hardware.guest.labhw import fabricmanager, faults, kernel, tree
from lab.hardware.guest.labhw import machine as machines
from lab.hardware.guest.labhw.faces import IMEX_CHANNEL, parameters, wanted_devices
from lab.hardware.guest.labhw.machine import Machine
from lab.hardware.guest.labhw.pciconfig import rewritten, space
from lab.hardware.guest.labhw.render import cpu_mask, modalias, sysfs, vpd
from lab.hardware.guest.labhw.render_rdma import interface_id
from lab.hardware.guest.labhw.state import State, fresh, module_table
from unit.lab.hardware_machines import machine

GPU = "0000:43:00.0"
NIC = "0000:18:00.0"


def loaded(*names: str) -> State:
    """Return a state with modules; those after the first need it."""
    state = fresh()
    for name in names:
        module = {"name": name, "size": 4096, "depends": [names[0]] if name != names[0] else [], "version": "580.178.04", "taint": "OE"}
        state["modules"].insert(0, module)
    return state


def text(drawn: tree.Tree, path: str) -> str:
    found = drawn[path]
    assert isinstance(found, str)
    return found


def home(of: Machine, address: str) -> str:
    return f"devices/{of.sysfs_path(address)}"


@pytest.mark.parametrize("name", schema.names())
@pytest.mark.parametrize("modules", [(), ("nvidia", "nvidia_uvm")])
def test_every_link_leads_somewhere(name: str, modules: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "REMEMBERED", str(tmp_path / "paths.json"))
    found = machine(name)
    (tmp_path / "sys").mkdir()
    tree.write(str(tmp_path / "sys"), sysfs(found, loaded(*modules)))
    cable = next(interface for interface in found.interfaces if interface["cable"])
    for path in (tmp_path / "sys").rglob("*"):
        if path.is_symlink() and path.name not in ("subsystem", cable["name"]):
            assert path.exists(), f"{path} leads to {os.readlink(path)}"
    for function in found.pci:
        real = (tmp_path / "sys/bus/pci/devices" / function["address"]).resolve()
        assert real == tmp_path / "sys" / home(found, function["address"])


def test_a_gpu_tells_who_and_where_it_is() -> None:
    found = machine("h100-sxm8")
    drawn = sysfs(found, loaded())
    assert home(found, GPU) == "devices/pci0000:3d/0000:3d:01.0/0000:3e:00.0/0000:3f:01.0/0000:41:00.0/0000:42:00.0/0000:43:00.0"
    for name, value in {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": "0", "local_cpulist": "0-55,112-167",
                        "max_link_width": "16", "current_link_width": "16", "max_link_speed": "32.0 GT/s PCIe"}.items():  # fmt: skip
        assert text(drawn, f"{home(found, GPU)}/{name}") == value
    assert modalias(found.by_address[GPU]) == "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"


def test_the_driver_is_bound_while_its_module_is_loaded() -> None:
    found = machine("h100-sxm8")
    assert f"bus/pci/drivers/nvidia/{GPU}" not in sysfs(found, loaded())
    drawn = sysfs(found, loaded("nvidia"))
    assert drawn[f"{home(found, GPU)}/driver"] == tree.Link("bus/pci/drivers/nvidia")
    assert text(drawn, "module/nvidia/version") == "580.178.04"
    assert drawn[f"{home(found, found.nvswitches[0])}/driver"] == tree.Link("bus/pci/drivers/nvidia-nvswitch")
    assert drawn[f"{home(found, NIC)}/driver"] == tree.Link("bus/pci/drivers/mlx5_core")


def test_dependents_hold_a_module() -> None:
    state = loaded("nvidia", "nvidia_uvm", "nvidia_modeset")
    drawn = sysfs(machine("h100-sxm8"), state)
    assert text(drawn, "module/nvidia/refcnt") == "2"
    assert drawn["module/nvidia/holders/nvidia_uvm"] == tree.Link("module/nvidia_uvm")
    assert isinstance(drawn["module/nvidia_uvm/holders"], tree.Folder)
    assert module_table(state).splitlines() == [
        "nvidia_modeset 4096 0 - Live 0x0000000000000000 (OE)",
        "nvidia_uvm 4096 0 - Live 0x0000000000000000 (OE)",
        "nvidia 4096 2 nvidia_modeset,nvidia_uvm, Live 0x0000000000000000 (OE)",
    ]


def test_configuration_space_says_the_same_as_the_files() -> None:
    found = machine("h100-sxm8")
    config = space(found, found.by_address[GPU])
    assert len(config) == 4096
    assert struct.unpack_from("<HH", config, 0) == (0x10DE, 0x2330)
    assert config[0x09:0x0C] == b"\x00\x02\x03"
    assert struct.unpack_from("<H", config, 0x52)[0] == 5 | 16 << 4
    bridge = found.by_address["0000:3e:00.0"]
    config = space(found, bridge)
    assert config[0x0E] == 1
    assert tuple(config[0x18:0x1B]) == (0x3E, 0x3F, 0x43)
    # An upstream port's kind is 5, and a root port offers access control with every part of it off.
    assert config[0x42] >> 4 == 5
    assert struct.unpack_from("<IHH", space(found, found.by_address["0000:3d:01.0"]), 0x100) == (0x0001000D, 0x5F, 0)


@pytest.mark.parametrize(
    ("cpus", "mask"), [("0-3", "0000000f"), ("0-3,32", "00000001,0000000f"), ("", "00000000"), ("64", "00000001,00000000,00000000")]
)
def test_cpu_masks(cpus: str, mask: str) -> None:
    assert cpu_mask(cpus) == mask


def test_vital_product_data_holds_its_fields() -> None:
    data = vpd({"name": "ConnectX-7", "PN": "P1", "V3": "SMDL=SW_MNG"})
    assert data[0] == 0x82
    assert data[3:13] == b"ConnectX-7"
    assert b"V3\x0bSMDL=SW_MNG" in data
    assert data[-1] == 0x78


def port(found: Machine, name: str) -> dict[str, str]:
    drawn = sysfs(found, loaded())
    device = next(device for device in found.rdma if device["name"] == name)
    folder = f"{home(found, device['at'])}/infiniband/{name}"
    assert drawn[f"class/infiniband/{name}"] == tree.Link(folder)
    names = ("state", "phys_state", "rate", "link_layer", "lid", "sm_lid")
    return {key: text(drawn, f"{folder}/ports/1/{key}") for key in names}


def test_ports_and_their_faults() -> None:
    well = port(machine("h100-sxm8"), "mlx5_0")
    assert (well["state"], well["phys_state"], well["rate"]) == ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)")
    assert port(machine("h100-sxm8"), "mlx5_1")["link_layer"] == "Ethernet"
    cases: list[tuple[dict[str, Any], tuple[str, str, str]]] = [
        ({"kind": "nic-half-rate"}, ("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)")),
        ({"kind": "ib-down", "more": "polling"}, ("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)")),
        ({"kind": "ib-down", "more": "disabled"}, ("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)")),
        ({"kind": "ib-down", "more": "no-subnet-manager"}, ("2: INIT", "5: LinkUp", "400 Gb/sec (4X NDR)")),
    ]
    for fault, (state, physical, rate) in cases:
        found = machine("h100-sxm8", {**fault, "target": "mlx5_0"})
        sick = port(found, "mlx5_0")
        assert (sick["state"], sick["phys_state"], sick["rate"]) == (state, physical, rate)
        assert (sick["sm_lid"] == "0x1") == (state == "4: ACTIVE")
        assert port(found, "mlx5_2") == port(machine("h100-sxm8"), "mlx5_2")


def below(drawn: tree.Tree, folder: str) -> dict[str, tree.Content]:
    return {path.removeprefix(folder + "/"): content for path, content in drawn.items() if path.startswith(folder + "/")}


def test_a_port_has_the_gids_of_its_kind() -> None:
    found = machine("h100-sxm8")
    drawn = sysfs(found, loaded())
    infiniband = below(drawn, f"{home(found, NIC)}/infiniband/mlx5_0/ports/1/gids")
    assert [infiniband[str(row)] for row in range(8)] == [f"fe80:0000:0000:0000:{found.rdma[0]['guid']}", *[":".join(["0000"] * 8)] * 7]
    folder = f"{home(found, '0000:29:00.0')}/infiniband/mlx5_1/ports/1"
    rows, attributes = below(drawn, f"{folder}/gids"), below(drawn, f"{folder}/gid_attrs")
    assert [attributes[f"types/{row}"] for row in range(4)] == ["IB/RoCE v1", "RoCE v2"] * 2
    assert {attributes[f"ndevs/{row}"] for row in range(4)} == {"eth0"}
    mac = found.interfaces[1]["mac"]
    assert rows["0"] == rows["1"] == f"fe80:0000:0000:0000:{interface_id(mac)}"
    assert rows["2"] == rows["3"] and str(rows["2"]).startswith("0000:0000:0000:0000:0000:ffff:0a")
    assert "types/4" not in attributes
    assert len(rows) == 16


def test_an_interface_id_has_the_address_with_its_universal_bit_turned() -> None:
    assert interface_id("a0:88:c2:01:02:03") == "a288:c2ff:fe01:0203"


def test_a_device_of_two_ports() -> None:
    found = machine("v100x4", {"kind": "ib-down", "target": "mlx4_0", "more": "polling"})
    ports = below(sysfs(found, loaded()), f"{home(found, '0000:60:00.0')}/infiniband/mlx4_0/ports")
    assert [ports[f"{number}/{key}"] for number in (1, 2) for key in ("link_layer", "state", "phys_state")] == [
        "InfiniBand", "1: DOWN", "2: Polling", "Ethernet", "1: DOWN", "3: Disabled",
    ]  # fmt: skip
    assert ports["2/gid_attrs/ndevs/0"] == "enp96s0d1"
    drawn = sysfs(machine("v100x4"), loaded())
    umad = {path: content for path, content in drawn.items() if "infiniband_mad/umad" in path and path.endswith(("/port", "/ibdev"))}
    assert [str(content) for content in umad.values()] == ["mlx5_0", "1", "mlx5_1", "1", "mlx4_0", "1", "mlx4_0", "2"]


def test_efa_is_a_device_without_interface_type_and_management() -> None:
    found = machine("h100-efa8")
    drawn = sysfs(found, loaded())
    device = below(drawn, f"{home(found, '0000:4f:00.0')}/infiniband/rdmap79s0")
    assert (device["ports/1/link_layer"], device["ports/1/gids/0"]) == ("Unknown", f"fe80:0000:0000:0000:{found.rdma[0]['guid']}")
    assert not {"hca_type", "board_id", "ports/1/gids/1"} & set(device)
    assert not [path for path in drawn if "umad" in path or path.startswith(home(found, "0000:4f:00.0") + "/net")]
    assert drawn[f"{home(found, '0000:4f:00.0')}/driver"] == tree.Link("bus/pci/drivers/efa")


def test_virtual_functions_and_their_card_name_each_other() -> None:
    found = machine("amd")
    drawn = sysfs(found, loaded())
    card, one, two = (home(found, f"0000:14:00.{number}") for number in range(3))
    assert (text(drawn, f"{card}/sriov_numvfs"), text(drawn, f"{card}/sriov_totalvfs")) == ("2", "16")
    assert (drawn[f"{card}/virtfn0"], drawn[f"{card}/virtfn1"]) == (tree.Link(one), tree.Link(two))
    assert drawn[f"{one}/physfn"] == drawn[f"{two}/physfn"] == tree.Link(card)
    assert (text(drawn, f"{one}/device"), text(drawn, f"{one}/current_link_speed")) == ("0x101e", "Unknown")
    # A virtual function leaves its ids to its card, and has PCI Express all the same.
    config = space(found, found.by_address["0000:14:00.1"])
    assert config[:4] == b"\xff" * 4
    assert config[config[0x34]] == 0x10
    assert text(drawn, f"{home(found, '0000:24:00.0')}/sriov_numvfs") == "0"


def test_a_bond_its_members_and_a_vlan_on_it() -> None:
    found = machine("gb200-tray")
    drawn = sysfs(found, loaded())
    bond = below(drawn, "devices/virtual/net/bond0")
    assert (bond["bonding/mode"], bond["bonding/slaves"], bond["bonding/active_slave"]) == ("802.3ad 4", "enP22p3s0f0np0 enP22p3s0f1np1", "")
    for number in range(2):
        name, place = f"enP22p3s0f{number}np{number}", f"{home(found, f'0016:03:00.{number}')}/net"
        assert bond[f"lower_{name}"] == tree.Link(f"{place}/{name}")
        assert drawn[f"{place}/{name}/master"] == tree.Link("devices/virtual/net/bond0")
    assert "DEVTYPE=vlan\n" in text(drawn, "devices/virtual/net/bond0.100/uevent")
    assert drawn["devices/virtual/net/bond0.100/lower_bond0"] == tree.Link("devices/virtual/net/bond0")
    assert text(drawn, "class/net/bonding_masters") == "bond0"
    # The device over the bond is at the first port alone, and its GIDs are the bond's.
    assert [device["name"] for device in found.rdma if device["at"].startswith("0016:")] == ["mlx5_bond_0"]
    assert text(drawn, f"{home(found, '0016:03:00.0')}/infiniband/mlx5_bond_0/ports/1/gid_attrs/ndevs/0") == "bond0"


def test_every_slot_has_a_group_of_the_iommu() -> None:
    found = machine("rtx4090x2")
    drawn = sysfs(found, loaded())
    group = drawn[f"{home(found, '0000:01:00.0')}/iommu_group"]
    assert isinstance(group, tree.Link)
    assert text(drawn, f"{group.target}/type") == "DMA-FQ"
    assert set(below(drawn, f"{group.target}/devices")) == {"0000:01:00.0", "0000:01:00.1"}
    assert not [path for path in sysfs(machine("cloud-vm"), loaded()) if "iommu" in path]


def test_access_control_is_on_where_the_profile_says_so() -> None:
    found = machine("rtx4090x2")
    assert struct.unpack_from("<IHH", space(found, found.by_address["0000:00:01.1"]), 0x100) == (0x0001000D, 0x5F, 0x1D)


def test_registers_that_were_written_to_stay_as_they_are() -> None:
    found = machine("h100-sxm8")
    drawn = space(found, found.by_address["0000:3d:01.0"])
    written = bytearray(drawn)
    struct.pack_into("<H", written, 0x106, 0x1D)
    struct.pack_into("<H", written, 0x48, 0x5930)
    written[0x00:0x02] = b"ab"
    kept = rewritten(drawn, bytes(written))
    assert (kept[0x106:0x108], kept[0x48:0x4A], kept[:2]) == (b"\x1d\x00", b"\x30\x59", drawn[:2])
    # A device that was dead, or is now, remembers nothing.
    assert rewritten(drawn, b"\xff" * 4096) == rewritten(drawn, b"") == drawn
    assert rewritten(b"\xff" * 256, bytes(written)) == b"\xff" * 256


def test_a_narrow_link_is_narrow_at_both_its_ends_and_nowhere_else() -> None:
    found = machine("h100-sxm8", {"kind": "pcie-x8", "target": GPU})
    narrow = {function["address"] for function in found.pci if function["width"] and found.width(function) == 8}
    assert narrow == {GPU, "0000:42:00.0"}
    assert struct.unpack_from("<H", space(found, found.by_address[GPU]), 0x52)[0] >> 4 & 0x3F == 8
    assert text(sysfs(found, loaded()), f"{home(found, GPU)}/current_link_width") == "8"
    assert text(sysfs(found, loaded()), f"{home(found, GPU)}/max_link_width") == "16"


def test_functions_of_one_card_share_its_link() -> None:
    found = machine("rtx4090x2", {"kind": "pcie-x8", "target": "0000:01:00.0"})
    assert {function["address"] for function in found.pci if found.width(function) == 8} == {"0000:00:01.1", "0000:01:00.0", "0000:01:00.1"}


def test_devices_of_no_node_are_near_all_cpus() -> None:
    drawn = sysfs(machine("cloud-vm"), loaded())
    for name, value in {"numa_node": "-1", "local_cpulist": "0-47", "local_cpus": "0000ffff,ffffffff"}.items():
        assert text(drawn, f"devices/pci0000:10/0000:10:1c.0/{name}") == value


def test_a_coherent_gpus_memory_is_a_node_without_cpus_that_the_driver_fills() -> None:
    found = machine("gb200-tray")
    assert [gpu["memory_numa"] for gpu in found.gpus] == [2, 10, 18, 26]
    nodes = "devices/system/node"
    before, after = sysfs(found, loaded()), sysfs(found, loaded("nvidia"))
    assert text(before, f"{nodes}/online") == text(after, f"{nodes}/online") == "0-2,10,18,26"
    assert (text(before, f"{nodes}/has_memory"), text(after, f"{nodes}/has_memory")) == ("0-1", "0-2,10,18,26")
    assert text(before, f"{nodes}/has_cpu") == "0-1"
    assert (text(after, f"{nodes}/node10/cpulist"), text(after, f"{nodes}/node10/distance")) == ("", "80 120 11 10 40 40")
    assert f"MemTotal:       {189471 << 10} kB" in text(after, f"{nodes}/node10/meminfo")


def test_a_gpu_that_fell_off_the_bus_is_dead_now_and_gone_after_the_next_boot() -> None:
    fault = {"kind": "gpu-off-bus", "target": GPU}
    now = machine("h100-sxm8", fault)
    assert len(now.gpus) == 8
    assert space(now, now.by_address[GPU]) == b"\xff" * 256
    assert "nvidia1" not in wanted_devices(now, loaded("nvidia"))
    later = machine("h100-sxm8", fault, boot="boot-2")
    assert GPU not in later.by_address
    assert [gpu["index"] for gpu in later.gpus] == list(range(7))
    assert not any(GPU in path for path in sysfs(later, loaded("nvidia")))


def test_device_files_follow_the_modules() -> None:
    found = machine("h100-sxm8")
    assert wanted_devices(found, loaded()) == set()
    core = {"nvidiactl", "nvidia-nvswitchctl"} | {f"nvidia{n}" for n in range(8)} | {f"nvidia-nvswitch{n}" for n in range(4)}
    assert wanted_devices(found, loaded("nvidia")) == core
    assert wanted_devices(found, loaded("nvidia", "nvidia_uvm")) == core | {"nvidia-uvm", "nvidia-uvm-tools"}


def test_imex_has_a_channel_in_a_rack_when_the_driver_is_told_to_make_it() -> None:
    asked = loaded("nvidia")
    asked["modules"][0]["options"] = "NVreg_CreateImexChannel0=1"
    assert IMEX_CHANNEL in wanted_devices(machine("gb200-tray"), asked)
    assert IMEX_CHANNEL not in wanted_devices(machine("gb200-tray"), loaded("nvidia"))
    assert IMEX_CHANNEL not in wanted_devices(machine("h100-sxm8"), asked)


def test_memory_that_is_not_checked_has_nothing_to_repair() -> None:
    with pytest.raises(faults.Refused, match="does not check its memory"):
        faults.make(machine("rtx4090x2"), "ecc-pending", ["1"])
    assert faults.make(machine("v100x4"), "ecc-pending", ["1"])["target"] == "0000:1b:00.0"


@pytest.mark.parametrize(
    ("name", "modules", "says"),
    [
        ("b200-hgx8", ("nvidia",), "check if ib_umad is loaded"),
        ("gb200-tray", ("nvidia",), "NV_WARN_NOTHING_TO_DO"),
        ("v100x4", ("nvidia", "ib_umad"), "NV_WARN_NOTHING_TO_DO"),
    ],
)
def test_where_a_fabric_manager_cannot_work(
    name: str, modules: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fabricmanager, "package_version", lambda _: "580.178.04")
    monkeypatch.setattr(fabricmanager, "module_version", lambda: "580.178.04")
    monkeypatch.setattr(fabricmanager, "read", lambda: loaded(*modules))
    monkeypatch.setattr(machines, "load", lambda: machine(name))
    assert fabricmanager.main([]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "license_text", "refused"),
    [
        ("v100x4", "Dual MIT/GPL", "is not supported by open nvidia.ko"),
        ("v100x4", "NVIDIA", None),
        ("b200-hgx8", "NVIDIA", "requires use of the NVIDIA open kernel modules"),
        ("b200-hgx8", "Dual MIT/GPL", None),
        ("amd", "Dual MIT/GPL", "No NVIDIA GPU found."),
    ],
)
def test_a_driver_of_the_wrong_kind_finds_no_gpu(name: str, license_text: str, refused: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(kernel, "log", lambda text, _level: said.append(text))
    info = {"license": license_text, "vermagic": "6.1.0 SMP"}
    assert kernel.why_not(machine(name), fresh(), info, "nvidia", "6.1.0") == (errno.ENODEV if refused else 0)
    assert bool(said) == bool(refused)
    assert (refused or "") in "".join(said)


def test_parameters_follow_the_options_of_modprobe() -> None:
    lines = dict(line.split(": ") for line in parameters('NVreg_RestrictProfilingToAdminUsers=0 NVreg_RegistryDwords="A=1"').splitlines())
    assert lines["RmProfilingAdminOnly"] == "0"
    assert lines["RegistryDwords"] == '"A=1"'
    assert lines["DeviceFileMode"] == "438"


def test_an_update_changes_what_differs_and_takes_back_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "REMEMBERED", str(tmp_path / "paths.json"))
    root = tmp_path / "sys"
    root.mkdir()
    tree.write(str(root), {"a/keep": "1", "a/change": "1", "b/holders": tree.Folder(), "b/holders/x": tree.Link("a/keep"), "c/only": "1"})
    (root / "a/foreign").write_text("theirs")
    untouched = (root / "a/keep").stat().st_mtime_ns
    tree.update(str(root), {"a/keep": "1", "a/change": "2", "b/holders": tree.Folder()})
    assert (root / "a/change").read_text() == "2\n"
    assert (root / "a/keep").stat().st_mtime_ns == untouched
    assert (root / "a/foreign").exists()
    assert list((root / "b/holders").iterdir()) == []
    assert not (root / "c").exists()
