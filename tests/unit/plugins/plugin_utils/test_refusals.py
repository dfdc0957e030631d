# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every refusal of the resolver: its rule, the variable that it names, and that the request it proposes is met."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from fixtures.nodes import NEW, OLD, bare, host, request, resolve
from fixtures.stack import B200, B300, KEPLER, V100, catalog, driver, gpu

PLUGINS = Path(__file__).resolve().parents[4] / "plugins" / "plugin_utils"


def unpackaged(branch: int) -> dict[str, Any]:
    """Return a catalog whose branch has no known package names."""
    known = catalog()
    for rule in known["driver_packages"]["debian"]:
        rule["branches"] = [branch + 1, branch + 2]
    return known


def without_companion() -> dict[str, Any]:
    """Return a catalog that knows no fabric manager for any branch."""
    known = catalog()
    for rule in known["driver_companions"]["apt"]:
        del rule["fabric_manager"]
    return known


def enterprise() -> dict[str, Any]:
    """Return the catalog and the platform of EL 9, as if its packages could be installed."""
    known = catalog()
    for entry in known["driver_branches"]:
        entry["packaged"].append("el")
    return {"catalog": known, "platform": {**known["platforms"]["rhel9"], "id": "rhel9", "architecture": "x86_64"}}


UBUNTU = host("ubuntu", "24.04", python="3.12.3")
NOBLE = bare(host=UBUNTU, switches=False)
ARCHIVE = {"driver_source": "distro"}
SECURE = host("rhel", "9.6", secure_boot=True)

# rule, variable, request, observed, further arguments of the resolver
REFUSED: list[tuple[str, str | None, Any, Any, dict[str, Any]]] = [
    ("request.type", None, "580", bare(), {}),
    ("request.unknown", None, request(drivers="580"), bare(), {}),
    ("request.type", "nccl_tuning_*", request(nccl=["eth0"]), bare(), {}),
    ("request.type", "gpu_stack_takeover", request(takeover=5), bare(), {}),
    ("request.type", "gpu_fabric_*", request(fabric=["n1"]), bare(), {}),
    ("request.form", "gpu_stack_driver", request(driver="latest"), bare(), {}),
    ("request.form", "gpu_stack_mirror", request(mirror="http://a b"), bare(), {}),
    ("request.form", "nccl_tuning_extra", request(nccl={"extra": {"PATH": "/"}}), bare(), {}),
    ("request.form", "node_baseline_memlock", request(baseline={"memlock": "lots"}), bare(), {}),
    ("request.form", "node_baseline_service_user", request(baseline={"service_user": "root"}), bare(), {}),
    ("request.form", "nccl_tuning_socket_interface", request(nccl={"socket_interface": "eth0;id"}), bare(), {}),
    ("request.choice", "nvidia_driver_source", request(driver_source="usb"), bare(), {}),
    ("request.choice", "nvidia_driver_flavour", request(driver_flavour="closed"), bare(), {}),
    ("request.choice", "gpu_stack_takeover", request(takeover=["kernel"]), bare(), {}),
    ("request.range", "nccl_tuning_service_level", request(nccl={"service_level": 16}), bare(), {}),
    ("request.range", "node_baseline_nofile", request(baseline={"nofile": 3}), bare(), {}),
    ("request.range", "verification_port", request(settings={"verification_port": 80}), bare(), {}),
    ("request.choice", "gpu_stack_relock", request(relock="perhaps"), bare(), {}),
    ("request.unknown", None, request(settings={"verification_colour": "red"}), bare(), {}),
    ("request.form", "gpu_stack_lock_file", request(settings={"gpu_stack_lock_file": "lock.txt"}), bare(), {}),
    ("request.sizes", "verification_sizes_mib", request(settings={"verification_sizes_mib": [0]}), bare(), {}),
    ("request.group", "verification_group", request(settings={"verification_group": "nosuch"}, verification_members=0), bare(), {}),
    ("cuda.unmanaged", "gpu_stack_cuda", request(cuda=["13.0"]), bare(), {}),
    ("lock.form", "gpu_stack_lock", request(), bare(), {"lock": {"driver": {"580": "newest"}}}),
    ("lock.form", "gpu_stack_lock", request(), bare(), {"lock": ["580"]}),
    ("lock.form", "gpu_stack_lock", request(), bare(), {"lock": {"driver": ["580"]}}),
    ("lock.mismatch", "gpu_stack_lock", request(), bare(), {"lock": {"driver": {"580": "535.309.01"}}}),
    ("observed.schema", None, request(), {**bare(), "schema": 2}, {}),
    ("fleet.form", None, request(), bare(), {"fleet": ["n1"]}),
    ("today.form", None, request(), bare(), {"today": "30.11.2026"}),
    ("platform.unknown", None, request(), bare(host={}), {}),
    ("platform.unsupported", None, request(), bare(host=host("plan9", "4")), {}),
    ("platform.refused", None, request(), bare(host=host("debian", "11")), {}),
    ("platform.refused", None, request(), bare(host=host("rocky", "8.10", like=["rhel", "centos", "fedora"])), {}),
    ("platform.refused", None, request(), bare(host=host("almalinux", "10.1", like=["rhel", "centos", "fedora"])), {}),
    ("platform.architecture", None, request(), bare(host=host(architecture="riscv64")), {}),
    ("platform.init", None, request(), bare(host=host(init=None)), {}),
    ("gpu.unknown", "nvidia_driver_source", request(), bare(device="ffff"), {}),
    ("gpu.mixed_generations", "nvidia_driver_source", request(), {**bare(), "gpus": [gpu(0, V100), gpu(1, B200)]}, {}),
    ("driver.none_usable", "gpu_stack_driver", request(driver="auto"), bare(), {"today": "2035-01-01"}),
    ("driver.unset", "gpu_stack_driver", request(driver=None), bare(), {}),
    ("driver.branch_unknown", "gpu_stack_driver", request(driver="999"), bare(), {}),
    ("driver.branch_unmanaged", "gpu_stack_driver", request(driver="615"), bare(), {}),
    ("driver.branch_unmanaged", "gpu_stack_driver", request(driver="570"), bare(), {}),
    ("driver.not_packaged", "gpu_stack_driver", request(driver="535"), bare(host=host(version="13", python="3.13.5")), {}),
    ("driver.not_packaged", "gpu_stack_driver", request(driver="580"), bare(host=host("ubuntu", "20.04", python="3.8.10")), {}),
    ("driver.not_packaged", "gpu_stack_driver", request(driver="580"), bare(host=host("ubuntu", "26.04", python="3.14.1")), {}),
    ("driver.generation", "gpu_stack_driver", request(driver="535"), bare(device=B200), {}),
    ("driver.flavour", "nvidia_driver_flavour", request(driver_flavour="proprietary"), bare(device=B200), {}),
    ("driver.flavour", "nvidia_driver_flavour", request(driver_flavour="open"), bare(device=V100, switches=False), {}),
    ("driver.flavour_gone", "nvidia_driver_flavour", request(driver="620", driver_flavour="proprietary"), bare(), {}),
    ("driver.flavour_gone", "nvidia_driver_flavour", request(driver="535", driver_flavour="open", **ARCHIVE), bare(switches=False), {}),
    ("driver.version_unknown", "gpu_stack_driver", request(driver="580.1.1"), bare(), {}),
    ("driver.gpu_minimum", "gpu_stack_driver", request(driver="570.124.06"), bare(device=B200, host=UBUNTU), {}),
    ("driver.gpu_minimum", "gpu_stack_driver", request(driver="575"), bare(device=B300, host=UBUNTU), {}),
    ("driver.gpu_minimum", "gpu_stack_lock", request(driver="570"), bare(device=B200, host=UBUNTU), {"lock": {"driver": {"570": "570.124.06"}}}),
    ("driver.known_bad", "gpu_stack_driver", request(driver="570.124.06"), bare(host=UBUNTU), {}),
    ("driver.known_bad", "gpu_stack_driver", request(driver="550.54"), bare(host=UBUNTU), {}),
    ("driver.companion", "gpu_stack_driver", request(), bare(), {"catalog": without_companion()}),
    ("driver.secure_boot", "gpu_stack_driver", request(driver="620"), bare(host=SECURE), enterprise()),
    ("driver.secure_boot", "gpu_stack_driver", request(driver="580"), bare(device=B200, host=SECURE), enterprise()),
    ("driver.names_unknown", "gpu_stack_driver", request(), bare(), {"catalog": unpackaged(580)}),
    ("driver.gpu_operator", "the group gpu_nodes", request(), bare(driver=driver(NEW, "gpu-operator")), {}),
    ("driver.owner_unknown", "nvidia_driver_source", request(), bare(driver=driver(NEW, owner=None)), {}),  # type: ignore[arg-type]
    ("driver.takeover", "gpu_stack_takeover", request(takeover=["driver"]), bare(driver=driver(NEW, "runfile")), {}),
    ("driver.takeover", "gpu_stack_takeover", request(takeover=["driver"]), bare(driver=driver(NEW, "image")), {}),
    ("driver.runfile", "nvidia_driver_source", request(driver_source="runfile"), bare(), {}),
    ("driver.runfile", "nvidia_driver_source", request(driver="595", driver_source="runfile"), bare(driver=driver(OLD, "runfile")), {}),
    ("driver.companion_owner", "gpu_stack_takeover", request(), bare(owners={"fabric_manager": "runfile"}), {}),
    ("driver.source", "nvidia_driver_source", request(**ARCHIVE), bare(host=host("ubuntu", "20.04"), switches=False), {}),
    ("driver.version_needed", "gpu_stack_driver", request(**ARCHIVE), NOBLE, {}),
    ("driver.version_needed", "gpu_stack_driver", request(driver="auto", **ARCHIVE), NOBLE, {}),
    ("driver.version_unknown", "gpu_stack_driver", request(driver="620.10.01", **ARCHIVE), NOBLE, {}),
    ("driver.generation", "nvidia_driver_source", request(driver="535.309.01", **ARCHIVE), {**NOBLE, "gpus": [gpu(0, "2b85")]}, {}),
    ("driver.generation", "gpu_stack_driver", request(), bare(device=KEPLER), {}),
    ("driver.none_usable", "gpu_stack_driver", request(driver="auto"), bare(device=KEPLER), {}),
    ("takeover.unmanaged", "gpu_stack_takeover", request(takeover=["rdma", "driver"]), bare(), {}),
    ("repository.key_refused", "gpu_stack_mirror_key_fingerprint", request(), bare(host=host(signature_verifier="sqv")), {}),
    ("driver.fabric_manager", "nvidia_driver_source", request(driver_source="distro", driver="535"), bare(), {}),
    ("pytorch.version_unknown", "gpu_stack_pytorch", request(pytorch="1.13"), bare(), {}),
    ("pytorch.python", "conda_pytorch_python", request(), bare(host=host(python="3.9.2")), {}),
    ("pytorch.build_unknown", "gpu_stack_pytorch", request(pytorch="2.14+cu999"), bare(), {}),
    ("pytorch.gpu", "gpu_stack_pytorch", request(pytorch="2.14+cu130"), bare(device=V100, switches=False), {}),
    ("pytorch.driver", "gpu_stack_pytorch", request(driver="535", pytorch="2.14+cu130"), bare(), {}),
    ("nccl.policy", "nccl_tuning_extra", request(nccl={"extra": {"NCCL_ALGO": "Ring"}}), bare(), {}),
    ("nccl.interface_unknown", "nccl_tuning_socket_interface", request(nccl={"socket_interface": "ib9"}), bare(), {}),
]


@pytest.mark.parametrize(
    ("rule", "variable", "asked", "observed", "given"), REFUSED, ids=[f"{row[0]}-{number}" for number, row in enumerate(REFUSED)]
)
def test_refusal_names_the_rule_and_the_variable_to_set(rule: str, variable: str | None, asked: Any, observed: Any, given: dict[str, Any]) -> None:
    refusal = resolve(asked, observed, **given)["refusal"]
    assert (refusal["rule"], refusal["variable"]) == (rule, variable), refusal["message"]
    assert len(refusal["message"]) > 20
    json.dumps(refusal)


def test_every_rule_of_the_resolver_is_in_the_table() -> None:
    """A rule that no row triggers is one whose message nobody has seen."""
    written: set[str] = set()
    for path in PLUGINS.glob("_*.py"):
        written |= set(re.findall(r"""Refusal\(\s*f?["']([a-z_]+\.[a-z_]+)["']""", path.read_text()))
    # What speaks of several hosts is no answer about one; test_fabric_and_lock.py has it.
    assert written == {row[0] for row in REFUSED} | {"fabric.pytorch", "fabric.traffic"}


@pytest.mark.parametrize(
    ("asked", "observed", "again"),
    [
        (request(driver="535"), bare(host=host(version="13", python="3.13.5")), "driver"),
        (request(driver="999"), bare(), "driver"),
        (request(driver="580.1.1"), bare(), "driver"),
        (request(driver=None), bare(), "driver"),
        (request(pytorch="1.13"), bare(), "pytorch"),
        (request(pytorch="2.14+cu999"), bare(), "pytorch"),
        (request(pytorch="2.14+cu130"), bare(device=V100, switches=False), "pytorch"),
        (request(driver="535", pytorch="2.14+cu130"), bare(), "pytorch"),
        (request(driver_source="runfile"), bare(), "driver_source"),
        (request(driver="595", driver_source="runfile"), bare(driver=driver(OLD, "runfile")), "driver_source"),
        (request(), bare(owners={"fabric_manager": "distro"}), "takeover"),
        (request(takeover=["driver"]), bare(driver=driver(NEW, "runfile")), "takeover"),
        (request(takeover=["rdma", "driver"]), bare(), "takeover"),
        (request(driver="570.124.06", pytorch=None), bare(device=B200, host=UBUNTU), "driver"),
        (request(driver="575", pytorch=None), bare(device=B300, host=UBUNTU), "driver"),
        (request(driver="550.54", pytorch=None), bare(host=UBUNTU), "driver"),
        (request(driver="615"), bare(), "driver"),
        (request(driver_flavour="proprietary", pytorch=None), bare(device=B200), "driver_flavour"),
        (request(driver_flavour="open", pytorch=None), bare(device=V100, switches=False), "driver_flavour"),
        (request(driver="620", driver_flavour="proprietary"), bare(), "driver_flavour"),
        (request(driver="535", driver_flavour="open", pytorch=None, **ARCHIVE), bare(switches=False), "driver_flavour"),
        (request(driver=None, driver_flavour="proprietary"), bare(), "driver"),
    ],
)
def test_the_nearest_request_of_a_refusal_is_met(asked: dict[str, Any], observed: dict[str, Any], again: str) -> None:
    nearest = resolve(asked, observed)["refusal"]["nearest"]
    assert "refusal" not in resolve({**asked, again: nearest}, observed)
