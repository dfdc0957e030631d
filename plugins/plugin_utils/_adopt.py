# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The variables that describe what is on a host, so that an inventory can begin with what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _components, _driver_component, _managed_plan, _nccl_policy, _request
from ansible_collections.gpu.fleet.plugins.plugin_utils._names import natural, ranges
from ansible_collections.gpu.fleet.plugins.plugin_utils._resolve import resolve_stack

Variables = dict[str, Any]
# Variable -> where the resolver's request has it.
FIELDS = {
    "gpu_stack_driver": ("driver",),
    "nvidia_driver_source": ("driver_source",),
    "nvidia_driver_flavour": ("driver_flavour",),
    "gpu_stack_pytorch": ("pytorch",),
    "conda_pytorch_prefix": ("pytorch_prefix",),
    "node_baseline_memlock": ("baseline", "memlock"),
    "nccl_tuning_socket_interface": ("nccl", "socket_interface"),
    "nccl_tuning_traffic_class": ("nccl", "traffic_class"),
    "nccl_tuning_service_level": ("nccl", "service_level"),
    "nccl_tuning_extra": ("nccl", "extra"),
}
NCCL = {
    "NCCL_SOCKET_IFNAME": "nccl_tuning_socket_interface",
    "NCCL_IB_TC": "nccl_tuning_traffic_class",
    "NCCL_IB_SL": "nccl_tuning_service_level",
}
# Made from the host's own topology, so that no variable holds it.
COMPUTED = ("NCCL_IB_HCA",)
SETTING = re.compile(r"\s*([A-Z][A-Z0-9_]*)\s*=\s*(.*?)\s*")


def describe(catalog: dict[str, Any], observed: dict[str, Any], today: str) -> tuple[Variables, list[str]]:
    """Return the variables for one host, and what they cannot say: who owns what, and why something is left out."""
    found: Variables = {}
    notes: list[str] = []
    for given, said in (_driver(catalog, observed, today), _pytorch(catalog, observed, today), _settings(catalog, observed)):
        found.update(given)
        notes += said
    for name, component in _components.left(observed).items():
        if component["action"] == "adopt":
            notes.append(f"{name}{' ' + component['present'] if component['present'] else ''} belongs to {component['owner']}")
    refused = resolve_stack(catalog, _asked(found), None, None, observed, None, today).get("refusal")
    return found, [*notes, *([f"refused even so: {refused['message']} [{refused['rule']}]"] if refused else [])]


def _asked(found: Variables) -> dict[str, Any]:
    """Return the request that these variables make."""
    request: dict[str, Any] = {}
    for name, value in found.items():
        *parents, last = FIELDS[name]
        inner = request
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return request


def _driver(catalog: dict[str, Any], observed: dict[str, Any], today: str) -> tuple[Variables, list[str]]:
    driver = observed.get("driver") or {}
    owner, present = driver.get("owner"), _driver_component.present_version(driver)
    manager = (observed.get("owners") or {}).get("fabric_manager")
    notes = [f"driver {present or 'of unknown version'} belongs to {owner or 'nobody knows whom'}"] if present or owner != "absent" else ["no driver"]
    if manager not in (*_components.NOBODY, owner):
        notes.append(f"the fabric manager belongs to {manager}")
    if owner == "gpu-operator":
        return {}, [*notes, "its cluster's GPU operator changes it: put the host into gpu_hold"]
    if present is None:
        return {}, notes
    asked = {"gpu_stack_driver": present, "nvidia_driver_source": "nvidia"}
    if owner != "nvidia":
        return {"nvidia_driver_source": "preinstalled"}, notes
    made = resolve_stack(catalog, _asked(asked), None, None, observed, None, today)
    wanted = (made.get("components") or {}).get("driver", {}).get("wanted")
    if wanted and driver.get("flavour") not in (None, wanted["flavour"]):
        asked["nvidia_driver_flavour"] = driver["flavour"]
        made = resolve_stack(catalog, _asked(asked), None, None, observed, None, today)
    if "refusal" in made or made["components"]["driver"]["wanted"] is None:
        reason = made["refusal"]["message"] if "refusal" in made else made["components"]["driver"]["reasons"][0]
        return {"nvidia_driver_source": "preinstalled"}, [*notes, f"it cannot be managed: {reason}"]
    there = {entry["name"]: entry["version"] for entry in driver.get("packages") or []}
    lacking = sorted(name for name, version in made["packages"]["nvidia_driver"].items() if version and there.get(name) != version)
    return asked, [*notes, *([f"site.yml would add {', '.join(lacking)}"] if lacking else [])]


def _pytorch(catalog: dict[str, Any], observed: dict[str, Any], today: str) -> tuple[Variables, list[str]]:
    default = _request.DEFAULTS["pytorch_prefix"]
    there = [entry for entry in observed.get("pytorch") or [] if entry.get("torch")]
    there.sort(key=lambda entry: (entry["path"] != default, entry["path"]))
    notes = [f"{entry['path']} has PyTorch {entry['torch']}, by {entry.get('owner') or 'nobody knows whom'}" for entry in there]
    for entry in there:
        asked: Variables = {"gpu_stack_pytorch": str(entry["torch"])}
        if entry["path"] != default:
            asked["conda_pytorch_prefix"] = entry["path"]
        made = resolve_stack(catalog, _asked({**asked, "nvidia_driver_source": "preinstalled"}), None, None, observed, None, today)
        wanted = (made.get("components") or {}).get("pytorch", {}).get("wanted")
        if wanted and f"{wanted['version']}+{wanted['tag']}" == entry["torch"]:
            return asked, notes
    return {}, notes


def _settings(catalog: dict[str, Any], observed: dict[str, Any]) -> tuple[Variables, list[str]]:
    found: Variables = {}
    notes: list[str] = []
    shell = ((observed.get("limits") or {}).get("memlock") or {}).get("shell")
    if shell is not None:
        found["node_baseline_memlock"] = shell if shell == "unlimited" else max(int(shell) // 1024, 1)
    text = ((observed.get("nccl") or {}).get("config") or {}).get(_managed_plan.NCCL) or ""
    extra: dict[str, str] = {}
    lines = [match.groups() for match in map(SETTING.fullmatch, text.splitlines()) if match]
    for name, value in lines:
        if name in NCCL:
            found[NCCL[name]] = int(value) if value.isdigit() else value
        elif name in catalog["nccl_policy"]["fabric"] and name not in COMPUTED and _request.SETTING_VALUE.fullmatch(value):
            extra[name] = value
        elif name not in COMPUTED:
            notes.append(f"{_managed_plan.NCCL} sets {name}, which no variable carries on")
    if extra:
        found["nccl_tuning_extra"] = extra
    if _nccl_policy.foreign(text, _managed_plan.HEADER):
        notes.append(f"{_managed_plan.NCCL} belongs to the site; gpu_stack_takeover: [nccl] would have it written anew from these variables")
    return found, notes


def lines(catalog: dict[str, Any], hosts: Mapping[str, dict[str, Any] | None], today: str) -> list[str]:
    """Return what to paste, once for hosts that are alike; a host without facts is named as such."""
    alike: dict[str, list[str]] = {}
    for host in sorted(hosts, key=natural):
        observed = hosts[host]
        block = _block(*describe(catalog, observed, today)) if observed else "# could not be observed"
        alike.setdefault(block, []).append(host)
    said: list[str] = []
    for block, names in alike.items():
        count = f" ({len(names)} hosts)" if len(names) > 1 else ""
        said += [*([""] if said else []), f"# {ranges(names)}{count}", *block.splitlines()]
    return said


def _block(found: Variables, notes: list[str]) -> str:
    """Return variables as YAML, and notes as comments before them."""
    rows = [f"{name}: {json.dumps(found[name])}" for name in FIELDS if name in found]
    return "\n".join([*(f"#   {note}" for note in notes), *rows])
