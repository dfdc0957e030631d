# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles have the form, become whole machines, and are put into images and hosts."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import hardware
from lab.hardware import expand, schema
from lab.paths import LabError
from unit.lab.hardware_machines import machine

GPUS = ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]
INFINIBAND = {"mlx5_0": "18", "mlx5_2": "40", "mlx5_3": "4f", "mlx5_4": "5e", "mlx5_5": "9a", "mlx5_7": "c0", "mlx5_8": "ce", "mlx5_9": "dc"}
ETHERNET = {"mlx5_1": "29", "mlx5_6": "aa"}


@pytest.mark.parametrize("name", schema.names())
def test_every_profile_becomes_a_whole_machine(name: str) -> None:
    found = machine(name)
    assert {"none", "h100-sxm8"} <= set(hardware.profiles())
    for function in found.pci:
        assert found.sysfs_path(function["address"]).startswith(f"pci{function['root']}/")
        if function["role"] != "endpoint":
            first, last = function["buses"]
            below = [other for other in found.pci if function["address"] in found.ancestors(other["address"])]
            assert {int(other["address"][5:7], 16) for other in below} <= set(range(first, last + 1))
    assert len({function["address"] for function in found.pci}) == len(found.pci)
    assert sum(interface["cable"] for interface in found.interfaces) == 1


def test_the_eight_gpu_machine_is_what_its_name_says() -> None:
    found = machine("h100-sxm8")
    assert [gpu["address"] for gpu in found.gpus] == [f"0000:{bus}:00.0" for bus in GPUS]
    assert len(found.nvswitches) == 4
    for gpu in found.gpus:
        ends = [end for end, up in found.links(gpu["address"]) if up]
        assert len(ends) == 18
        assert set(ends) == set(found.nvswitches)
    places = {device["name"]: device["at"][5:7] for device in found.rdma}
    assert places == {**INFINIBAND, **ETHERNET}
    assert {device["name"] for device in found.rdma if device["link_layer"] == "InfiniBand" and device["gbps"] == 400} == set(INFINIBAND)
    assert [found.by_address[gpu["address"]]["numa"] for gpu in found.gpus] == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("name", "gpus", "switches", "links"),
    [
        ("a100-sxm8", 8, 6, 12),
        ("amd", 0, 0, 0),
        ("b200-hgx8", 8, 0, 18),
        ("cloud-vm", 4, 0, 0),
        ("gb200-tray", 4, 0, 18),
        ("h100-efa8", 8, 4, 18),
        ("h100-sxm8", 8, 4, 18),
        ("none", 0, 0, 0),
        ("rtx4090x2", 2, 0, 0),
        ("t4-pcie1", 1, 0, 0),
        ("v100x4", 4, 0, 6),
    ],
)
def test_every_machine_has_the_gpus_switches_and_links_of_its_kind(name: str, gpus: int, switches: int, links: int) -> None:
    found = machine(name)
    assert (len(found.gpus), len(found.nvswitches)) == (gpus, switches)
    assert [len(found.links(gpu["address"])) for gpu in found.gpus] == [links] * gpus


def test_switches_without_a_place_on_pci_are_managed_through_adapters_of_their_own() -> None:
    found = machine("b200-hgx8")
    assert found.switch_managers == [device["at"] for device in found.rdma[8:]]
    assert not any(machine(name).switch_managers for name in schema.names() if name != "b200-hgx8")


def test_two_hosts_are_two_machines_and_one_host_stays_itself() -> None:
    one, same, other = machine("h100-sxm8"), machine("h100-sxm8"), machine("h100-sxm8", identity="n2")
    assert one.description == same.description

    def numbers(of: Any) -> set[str]:
        return {gpu[key] for gpu in of.gpus for key in ("uuid", "serial", "pdi")} | {device["guid"] for device in of.rdma}

    assert len(numbers(one)) == 8 * 3 + 10
    assert not numbers(one) & numbers(other)


Damage = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda profile: profile.pop("numa"), "numa is missing"),
        (lambda profile: profile.update(colour="green"), "unknown key colour"),
        (lambda profile: profile.update(schema=2), "schema 2"),
        (lambda profile: profile["numa"][0].update(cpus="0-x"), "'0-x' does not fit"),
        (lambda profile: profile["numa"][0].update(distance=[10]), "distance needs 2"),
        (lambda profile: profile["parts"]["gpu"].update(speed=33), "no PCIe generation has 33"),
        (lambda profile: profile["parts"]["gpu"].update(model="b200"), "b200 is not in gpu_models"),
        (lambda profile: profile["pci"][0].update(numa=7), "NUMA node 7"),
        (lambda profile: profile["pci"][0]["tree"].update({"00:1c.0 gpu": None}), "occurs twice"),
        (lambda profile: profile["pci"][0]["tree"].update({"00:1e.0 gpu": {"77:00.0 nvme": None}}), "is no bridge"),
        (lambda profile: profile["pci"][0]["tree"].update({"00:1e.0 downstream": None}), "cannot hang below root"),
        (lambda profile: profile["pci"][0]["tree"].update({"00:1e.0 sound": None}), "with a part of this profile"),
        (lambda profile: profile["rdma"][0].update(at="01:02.0"), "where no device is"),
        (lambda profile: profile["rdma"][0].update(interface="eth9"), "eth9 is not described"),
        (lambda profile: profile["rdma"][0].update(link_layer="Token Ring"), "Token Ring"),
        (lambda profile: profile["rdma"][0].update(more_ports=[{"link_layer": "Fast", "gbps": 1}]), "Fast"),
        (lambda profile: profile["rdma"][0].update(more_ports=[{"link_layer": "Ethernet"}]), "gbps is missing"),
        (lambda profile: profile["interfaces"][0].pop("at"), "at is missing"),
        (lambda profile: profile["interfaces"][0].update(type="tunnel"), "type is 'tunnel'"),
        (lambda profile: profile["interfaces"].append({"name": "bond0", "type": "bond", "members": ["eth0", "eth9"]}), "'eth9'"),
        (lambda profile: profile["interfaces"].append({"name": "vlan9", "type": "vlan"}), "not described"),
        (lambda profile: profile["parts"]["cx7_ib"].update(virtual=True), "virtual function of nothing"),
        (lambda profile: profile["interfaces"][0].update(cable=True), "one cable"),
        (lambda profile: profile["gpu_models"]["h100"].update(flavours=["nouveau"]), "flavours"),
        (lambda profile: profile["gpu_models"]["h100"].update(ecc="yes"), "ecc is 'yes'"),
        (lambda profile: profile["gpu_models"]["h100"].update(memory_numa=True), "0 nodes without CPUs for 8 GPUs"),
    ],
)
def test_a_damaged_profile_is_refused_by_name(damage: Damage, says: str) -> None:
    profile = copy.deepcopy(schema.load("h100-sxm8"))
    damage(profile)
    with pytest.raises(schema.ProfileError, match=says):
        schema.check(profile, "h100-sxm8")


def test_wearing_writes_the_machine_and_forgets_old_faults(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hostname").write_text("n7\n")
    (tmp_path / "var/lib/lab").mkdir(parents=True)
    (tmp_path / "var/lib/lab/faults.json").write_text("[]")
    hardware.wear(tmp_path, "h100-sxm8")
    worn = json.loads((tmp_path / "etc/lab/hw.json").read_text())
    assert worn == expand.describe(schema.load("h100-sxm8"), "h100-sxm8", "n7")
    assert not (tmp_path / "var/lib/lab/faults.json").exists()
    with pytest.raises(LabError, match=r"choose one of .*none"):
        hardware.wear(tmp_path, "h900")


def test_installing_gives_an_image_programs_library_and_units(tmp_path: Path) -> None:
    for folder in ("etc/systemd/system", "usr/local/lib", "usr/local/bin"):
        (tmp_path / folder).mkdir(parents=True)
    hardware.install(tmp_path)
    hardware.install(tmp_path)
    home = tmp_path / "usr/local/lib/lab"
    for name in hardware.PROGRAMS:
        assert (home / name).resolve() == home / "program"
    assert not list(home.rglob("__pycache__"))
    assert (tmp_path / "etc/ld.so.preload").read_text() == "/usr/local/lib/lab/liblabhw.so\n"
    assert (home / "liblabhw.so").read_bytes().startswith(b"\x7fELF")
    for link in (tmp_path / "etc/systemd/system/sysinit.target.wants").iterdir():
        assert (tmp_path / str(link.readlink()).lstrip("/")).is_file()


def test_the_key_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = tmp_path / "guest"
    guest.mkdir()
    monkeypatch.setattr(hardware, "GUEST", guest)
    (guest / "one.py").write_text("1\n")
    before = hardware.content_key()
    assert hardware.content_key() == before
    (guest / "one.py").write_text("2\n")
    assert hardware.content_key() != before


def test_a_refused_fault_is_told_in_the_hosts_words() -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 2, "", "no GPU '9' in this machine; it has 8\n")

    with pytest.raises(LabError, match="no GPU '9'"):
        hardware.fault(run, "link-down", ["9"])
    assert asked == [["/usr/local/lib/lab/lab-fault", "link-down", "9"]]
