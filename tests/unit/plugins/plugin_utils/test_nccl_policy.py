# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's settings: from the host's own hardware, only facts of the site, and never over somebody else's file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._managed_plan import HEADER
from fixtures.stack import gpu, h100, interface, nic, observed, plan

ALL = "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"
ASK = {"driver": "580"}


def settings(facts: dict[str, Any], **nccl: Any) -> dict[str, str]:
    """Return the variables that are planned."""
    found: dict[str, str] = plan({**ASK, "nccl": nccl}, facts)["nccl"]["variables"]
    return found


def paths(**by_nic: str) -> dict[str, Any]:
    """Return the topology of one GPU."""
    return {"gpu_nic": {"0000:10:00.0": {name: {"path": path, "source": "sysfs"} for name, path in by_nic.items()}}}


def one(*nics: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a host with one GPU and these adapters."""
    return observed([gpu(0)], nics=list(nics), **more)


def test_a_node_of_a_fabric() -> None:
    assert settings(h100()) == {"NCCL_IB_HCA": ALL, "NCCL_SOCKET_IFNAME": "=eno1"}


@pytest.mark.parametrize(
    ("nics", "wanted"),
    [
        ([], None),
        ([nic("mlx5_0", "Ethernet")], None),
        ([nic("mlx5_0", state="DOWN")], None),
        ([nic("mlx5_0", state="INIT")], None),
        ([nic("mlx5_0", virtual_function=True)], None),
        ([nic("mlx5_0"), {**nic("mlx5_1"), "nvlink_bridge": True}, {**nic("mlx5_2"), "nvlink_bridge": None}], "=mlx5_0,mlx5_2"),
        ([nic("mlx5_0")], "=mlx5_0"),
        ([nic("mlx5_10"), nic("mlx5_2"), nic("mlx5_1")], "=mlx5_1,mlx5_2,mlx5_10"),
        ([nic("mlx5_0"), nic("mlx5_1", "Ethernet"), nic("mlx5_2", state="DOWN"), nic("ibp7s0")], "=ibp7s0,mlx5_0"),
        ([nic("mlx5_0", link_layer="Unspecified")], None),
    ],
)
def test_which_adapters_count(nics: list[dict[str, Any]], wanted: str | None) -> None:
    assert settings(one(*nics)).get("NCCL_IB_HCA") == wanted


@pytest.mark.parametrize(
    ("topology", "wanted"),
    [
        (paths(mlx5_0="PIX", mlx5_1="SYS"), "=mlx5_0"),
        (paths(mlx5_0="NODE", mlx5_1="PXB"), "=mlx5_1"),
        (paths(mlx5_0="PHB", mlx5_1="PHB"), "=mlx5_0,mlx5_1"),
        (paths(mlx5_0="SYS"), "=mlx5_0"),
        (paths(mlx5_9="PIX"), "=mlx5_0,mlx5_1"),
        (paths(mlx5_0="?", mlx5_1="?"), "=mlx5_0,mlx5_1"),
        ({"gpu_nic": {"0000:10:00.0": {"mlx5_0": {"path": None, "source": "sysfs"}}}}, "=mlx5_0,mlx5_1"),
        ({"gpu_nic": {}}, "=mlx5_0,mlx5_1"),
        (None, "=mlx5_0,mlx5_1"),
    ],
)
def test_a_storage_adapter_further_away_is_left_out(topology: Any, wanted: str) -> None:
    assert settings(one(nic("mlx5_0"), nic("mlx5_1"), topology=topology))["NCCL_IB_HCA"] == wanted


def test_a_dead_adapter_does_not_take_its_neighbours_along() -> None:
    facts = h100()
    facts["nics"][3]["state"] = "DOWN"
    assert settings(facts)["NCCL_IB_HCA"] == ALL.replace(",mlx5_3", "")


@pytest.mark.parametrize(
    ("interfaces", "wanted"),
    [
        ([interface("lo", "loopback")], None),
        ([interface("eno1"), interface("eno2", default_route=True)], "=eno2"),
        ([interface("eno10"), interface("eno9")], "=eno9"),
        ([interface("docker0", "bridge", default_route=True), interface("eno1")], "=eno1"),
        ([interface("veth1", "virtual"), interface("br0", "bridge")], None),
        ([interface("bond0", "bond", default_route=True), interface("eno1", ipv4=())], "=bond0"),
        ([interface("eno1", up=False), interface("eno2")], "=eno2"),
        ([interface("eno1", ipv4=())], None),
        ([], None),
    ],
)
def test_the_interface_to_meet_on(interfaces: list[dict[str, Any]], wanted: str | None) -> None:
    assert settings(one(interfaces=interfaces)).get("NCCL_SOCKET_IFNAME") == wanted


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [("eno1", "=eno1"), ("=eno1", "=eno1"), ("^docker,lo", "^docker,lo"), ("eno1,ens9", "=eno1,ens9"), ("", "=eno1"), (None, "=eno1")],
)
def test_an_interface_that_is_asked_for(asked: str | None, wanted: str) -> None:
    assert settings(one(), socket_interface=asked)["NCCL_SOCKET_IFNAME"] == wanted


def test_the_fabric_owner_s_numbers_go_where_rdma_is() -> None:
    numbers = {"traffic_class": "106", "service_level": 0}
    wanted = {"NCCL_IB_TC": "106", "NCCL_IB_SL": "0"}
    assert wanted.items() <= settings(h100(), **numbers).items()
    assert wanted.items() <= settings(one(nic("mlx5_0", "Ethernet")), **numbers).items()
    assert not wanted.keys() & settings(one(nic("mlx5_0", "Ethernet", "DOWN")), **numbers).keys()
    assert not wanted.keys() & settings(one(), **numbers).keys()


def test_nothing_for_hosts_without_gpus_and_nothing_that_switches_off() -> None:
    bare = plan({"nccl": {"socket_interface": "eno1"}}, observed(nics=[nic("mlx5_0")]))
    assert bare["nccl"]["variables"] == {} and bare["components"]["nccl"]["reasons"] == ["NCCL is for hosts with GPUs"]
    assert not [item for item in bare["managed"] if item["role"] == "nccl_tuning"]
    passed_through = observed([gpu(0, kernel_driver="vfio-pci")], nics=[nic("mlx5_0")])
    assert plan(ASK, passed_through)["nccl"]["variables"] == {}
    assert set(settings(one(nic("mlx5_0", "Ethernet")))) == {"NCCL_SOCKET_IFNAME"}


def test_further_facts_of_the_site() -> None:
    found = settings(h100(), extra={"NCCL_CROSS_NIC": 0, "NCCL_IB_TIMEOUT": "22"})
    assert found["NCCL_CROSS_NIC"] == "0" and found["NCCL_IB_TIMEOUT"] == "22"


def with_file(text: str | None) -> dict[str, Any]:
    """Return a host with this /etc/nccl.conf."""
    return h100(nccl={"config": {"/etc/nccl.conf": text}})


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        (None, False),
        ("", False),
        ("# nothing set here\n\n", False),
        ("NCCL_SOCKET_IFNAME=eth0\n", True),
        ("# site\n  NCCL_DEBUG = WARN\n", True),
        (HEADER + "NCCL_SOCKET_IFNAME==eno1\n", False),
        (HEADER + "NCCL_SOCKET_IFNAME==eno1\nNCCL_ALGO=Ring\n", False),
    ],
)
def test_somebody_else_s_file_is_left(text: str | None, foreign: bool) -> None:
    made = plan(ASK, with_file(text))
    assert (made["components"]["nccl"]["action"] == "adopt") is foreign
    assert ("nccl_tuning" not in made["todo"]) is foreign
    assert (made["nccl"]["variables"] == {}) is foreign
    taken = plan({**ASK, "takeover": ["nccl"]}, with_file(text))
    assert taken["nccl"]["variables"]["NCCL_IB_HCA"] == ALL and "nccl_tuning" in taken["todo"]


def test_what_must_not_be_left_in_it_is_named() -> None:
    made = plan(ASK, with_file("NCCL_P2P_DISABLE=1\nNCCL_IB_GID_INDEX=3\nNCCL_NET=IB\nNCCL_LL_THRESHOLD=0\n#NCCL_ALGO=Ring\n"))
    assert made["components"]["nccl"]["reasons"][1].startswith("it sets NCCL_IB_GID_INDEX, NCCL_LL_THRESHOLD, NCCL_P2P_DISABLE, which")


def test_the_file() -> None:
    made = plan({**ASK, "nccl": {"traffic_class": 106}}, h100())
    item = next(item for item in made["managed"] if item["id"] == "/etc/nccl.conf")
    assert item["desired"]["content"] == f"{HEADER}NCCL_IB_HCA={ALL}\nNCCL_IB_TC=106\nNCCL_SOCKET_IFNAME==eno1\n"
    # The reader of NCCL knows neither quotes nor blanks, and comments only at the start of a line.
    assert all(line.startswith("#") or "=" in line for line in item["desired"]["content"].splitlines())
