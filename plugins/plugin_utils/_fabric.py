# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What the nodes of a fabric must have alike, as they share jobs: looked at when all of them have a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._names import ranges
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal

Plans = Mapping[str, Mapping[str, Any]]


def refusals(fabric: str, plans: Plans) -> list[dict[str, Any]]:
    """Return the refusals of a fabric whose members' plans do not go together; hosts without a plan, or with nothing planned, say nothing."""
    made = {host: plan for host, plan in plans.items() if plan.get("components")}
    found = []
    wanted = {host: plan["components"]["pytorch"]["wanted"] for host, plan in made.items() if plan["components"]["pytorch"]["wanted"]}
    versions = _alike({host: f"PyTorch {torch['version']}" for host, torch in wanted.items()})
    inside = _alike({host: _torch(torch) for host, torch in wanted.items() if torch["nccl"] or torch["tag"] == "cpu"})
    torch = versions if len(versions) > 1 else inside
    if len(torch) > 1:
        found.append(Refusal(
            "fabric.pytorch", f"{fabric}: {_told(torch)}; a job over these hosts would not start, as all of its processes need one",
            seen=torch, allowed="one version with one NCCL", variable="gpu_stack_pytorch",
        ))  # fmt: skip
    carrying = {host: plan["nccl"]["variables"] for host, plan in made.items() if "NCCL_IB_HCA" in plan["nccl"]["variables"]}
    for name, variable in (("NCCL_IB_TC", "nccl_tuning_traffic_class"), ("NCCL_IB_SL", "nccl_tuning_service_level")):
        numbers = _alike({host: f"{variable} {given.get(name, 'unset')}" for host, given in carrying.items()})
        if len(numbers) > 1:
            found.append(Refusal(
                "fabric.traffic", f"{fabric}: {_told(numbers)}; the fabric has one number for its jobs' traffic",
                seen=numbers, allowed="one number for the whole fabric", variable=variable,
            ))  # fmt: skip
    return [refusal.fields for refusal in found]


def _torch(wanted: Mapping[str, Any]) -> str:
    """Return what of a build has to be the same beside its version: what its processes talk to each other with."""
    build = f"PyTorch {wanted['version']}+{wanted['tag']}"
    return f"{build} without NCCL" if wanted["tag"] == "cpu" else f"PyTorch {wanted['version']} with NCCL {wanted['nccl']}"


def _alike(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts by what they have, the most common first."""
    found: dict[str, list[str]] = {}
    for host in sorted(values):
        found.setdefault(values[host], []).append(host)
    return dict(sorted(found.items(), key=lambda entry: (-len(entry[1]), entry[0])))


def _told(values: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{value} on {ranges(hosts)}" for value, hosts in values.items())
