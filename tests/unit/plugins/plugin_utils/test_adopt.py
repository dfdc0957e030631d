# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that describe what is on a host: pasted, they make a plan that leaves it as it is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils import _adopt, _variables
from fixtures.nodes import NEW, OLD, bare, host, installed, resolve
from fixtures.stack import TODAY, catalog, driver

CATALOG = catalog()
VENV = {"path": "/opt/gpu_fleet/pytorch", "kind": "venv", "owner": "pip", "python": "3.11.2", "torch": "2.14.1+cu130", "cuda": "13.0"}
CONDA = {"path": "/opt/miniforge3/envs/train", "kind": "conda", "owner": "conda", "python": "3.12.4", "torch": "2.13.0", "cuda": "12.9"}
THEIRS = "NCCL_SOCKET_IFNAME=eth0\nNCCL_IB_TC = 104\nNCCL_IB_HCA=mlx5_2\n# NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n"


def described(facts: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    return _adopt.describe(CATALOG, facts, TODAY)


HOSTS = {
    "bare": bare(),
    "nvidia": installed(),
    "distro": bare(driver=driver("535.261.03", "distro")),
    "runfile": bare(driver=driver("550.163.01", "runfile"), owners={"rdma": "mlnx_ofed", "fabric_manager": "runfile"}),
    "image": bare(driver=driver(NEW, "image"), pytorch=[VENV]),
    "proprietary": installed(driver=driver(OLD, flavour="proprietary")),
    "unknown release": installed("580.200.01"),
    "operator": bare(driver=driver(NEW, "gpu-operator")),
    "conda": installed(pytorch=[CONDA]),
    "settings": installed(nccl={"config": {"/etc/nccl.conf": THEIRS}}, limits={"memlock": {"shell": 8388608, "service": None}}),
    "cpu": bare(gpus=0, switches=False, nics=[]),
    "unread packages": bare(driver={**driver(NEW), "owner": None, "packages": None}),
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bare", {}),
        ("nvidia", {"gpu_stack_driver": OLD, "nvidia_driver_source": "nvidia"}),
        ("distro", {"nvidia_driver_source": "preinstalled"}),
        ("runfile", {"nvidia_driver_source": "preinstalled"}),
        ("image", {"nvidia_driver_source": "preinstalled", "gpu_stack_pytorch": "2.14.1+cu130"}),
        ("proprietary", {"gpu_stack_driver": OLD, "nvidia_driver_source": "nvidia", "nvidia_driver_flavour": "proprietary"}),
        ("unknown release", {"nvidia_driver_source": "preinstalled"}),
        ("operator", {}),
        ("conda", {"gpu_stack_driver": OLD, "nvidia_driver_source": "nvidia"}),
        (
            "settings",
            {
                "gpu_stack_driver": OLD, "nvidia_driver_source": "nvidia", "node_baseline_memlock": 8192, "nccl_tuning_socket_interface": "eth0",
                "nccl_tuning_traffic_class": 104,
            },
        ),
        ("cpu", {}),
        ("unread packages", {"nvidia_driver_source": "preinstalled"}),
    ],
)  # fmt: skip
def test_variables_describe_what_is_there(name: str, expected: dict[str, Any]) -> None:
    assert described(HOSTS[name])[0] == expected


@pytest.mark.parametrize("name", [name for name in HOSTS if name not in ("bare", "operator")])
def test_pasted_they_leave_the_driver_and_pytorch_as_they_are(name: str) -> None:
    facts = HOSTS[name]
    found = described(facts)[0]
    assert set(found) <= set(_variables.KNOWN) and set(found) <= set(_adopt.FIELDS)
    made = resolve(_adopt._asked(found), facts)
    assert "refusal" not in made, made["refusal"]["message"]
    component = made["components"]["driver"]
    assert component["action"] == "adopt" or component["present"] is None or component["wanted"]["version"] == component["present"]
    assert not any(made["consequences"][what] for what in ("reload", "reboot", "downtime_s"))
    torch = made["components"]["pytorch"]
    assert torch["wanted"] is None or f"{torch['wanted']['version']}+{torch['wanted']['tag']}" == torch["present"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bare", ["no driver", "refused even so: the host has 8 GPUs and no driver"]),
        ("nvidia", [f"driver {OLD} belongs to nvidia", "site.yml would add "]),
        ("runfile", ["driver 550.163.01 belongs to runfile", "rdma belongs to mlnx_ofed"]),
        ("unknown release", ["it cannot be managed: ", "580.200.01"]),
        ("operator", ["put the host into gpu_hold", "[driver.gpu_operator]"]),
        ("conda", ["/opt/miniforge3/envs/train has PyTorch 2.13.0, by conda"]),
        ("settings", ["sets NCCL_ALGO, which no variable carries on", "belongs to the site"]),
        ("unread packages", ["belongs to nobody knows whom"]),
    ],
)
def test_what_variables_cannot_say_is_said(name: str, words: list[str]) -> None:
    notes = "\n".join(described(HOSTS[name])[1])
    assert all(word in notes for word in words), notes


def test_a_driver_whose_packages_are_all_there_gets_none() -> None:
    made = resolve({"driver": OLD}, installed())
    packages = [{"name": name, "version": version, "held": False} for name, version in made["packages"]["nvidia_driver"].items()]
    assert not [note for note in described(installed(driver=driver(OLD, packages=packages)))[1] if "would add" in note]


def test_settings_of_the_fabric_are_carried_on() -> None:
    name = next(name for name in CATALOG["nccl_policy"]["fabric"] if name not in (*_adopt.NCCL, *_adopt.COMPUTED))
    found, _notes = described(installed(nccl={"config": {"/etc/nccl.conf": f"{name}=1\n"}}))
    assert found["nccl_tuning_extra"] == {name: "1"}


def test_hosts_that_are_alike_are_told_once_and_the_text_is_yaml() -> None:
    hosts: dict[str, Any] = {f"n{number}": installed() for number in range(1, 1001)}
    hosts |= {"n1001": HOSTS["settings"], "n1002": None, "n1003": bare(host=host("debian", "11"))}
    said = _adopt.lines(CATALOG, hosts, TODAY)
    assert said[0] == "# n1 to n1000 (1000 hosts)" and "# n1001" in said and "# could not be observed" in said
    assert any("[platform.refused]" in line for line in said)
    first, *rest = "\n".join(said).split("\n\n")
    assert yaml.safe_load(first) == described(installed())[0]
    assert yaml.safe_load(rest[0]) == described(HOSTS["settings"])[0]
    assert len(said) < 40
