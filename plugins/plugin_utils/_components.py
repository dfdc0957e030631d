# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What a plan says of components that follow from others or stay with whoever installed them: wanted, present, owner, action, reasons."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import is_version

Component = dict[str, Any]

# What is observed and never touched: this collection installs none of it, so that each is its owner's.
LEFT = ("rdma", "cuda", "cudnn", "container_toolkit", "dcgm")
NOBODY = (None, "absent")


def _component(present: Any, owner: str | None, reasons: list[str]) -> Component:
    return {"wanted": None, "present": present, "owner": owner, "action": "none" if owner in NOBODY else "adopt", "reasons": reasons}


def left(observed: dict[str, Any]) -> dict[str, Component]:
    """Return the components that are reported and stay as they are."""
    owners = observed.get("owners") or {}
    present = {
        "cuda": _versions(observed.get("cuda") or []),
        "cudnn": _versions((observed.get("cudnn") or {}).get("libraries") or []),
        "container_toolkit": ((observed.get("containers") or {}).get("toolkit") or {}).get("version"),
        "dcgm": (observed.get("dcgm") or {}).get("version"),
    }
    return {name: _component(present.get(name), owners.get(name), _belongs(name, owners.get(name))) for name in LEFT}


def _belongs(name: str, owner: str | None) -> list[str]:
    if owner in NOBODY:
        return []
    word = "more than one" if owner == "mixed" else owner
    return [f"{name} belongs to {word} and stays as it is"]


def _versions(found: list[dict[str, Any]]) -> str | None:
    """Return the versions that are there, each once, as one text; None for none."""
    return ", ".join(sorted({str(entry["version"]) for entry in found if entry.get("version")})) or None


def fabric_manager(
    observed: dict[str, Any], fabrics: list[dict[str, Any]], wanted: dict[str, Any] | None, driver: Component, differs: list[str]
) -> Component:
    """Return what goes in lockstep with the driver on hosts whose GPUs are linked by switches; `differs` is what of the driver's does."""
    found = (observed.get("driver") or {}).get("fabric_manager") or {}
    present, owner = found.get("version"), (observed.get("owners") or {}).get("fabric_manager")
    component = _component(present, owner, [])
    if not any("fabric_manager" in fabric["companions"] for fabric in fabrics):
        component["reasons"] = [] if owner in NOBODY else ["no switch links the GPUs of this host, so that nothing here needs it"]
        return component
    if wanted is None:
        component["reasons"] = _lockstep(present, owner, driver["present"])
        return component
    component["wanted"] = {"version": wanted["version"]}
    component["reasons"] = ["switches link the GPUs, and it has to have the driver's version"]
    named = [name for name in differs if "fabric" in name]
    component["action"] = "none" if not named else "install" if present is None else "repair" if present == wanted["version"] else "change"
    return component


def _lockstep(present: str | None, owner: str | None, driver: str | None) -> list[str]:
    """Return what is wrong with a fabric manager that stays, beside a driver that stays."""
    if driver is None:
        return []
    if owner == "absent":
        return ["switches link the GPUs, and no fabric manager is there: no program can use them (CUDA error 802)"]
    if is_version(present) and present != driver:
        return [f"it is {present} and the driver {driver}: the two work in one version only"]
    return []


def environment(asked: dict[str, Any], observed: dict[str, Any]) -> str | None:
    """Return why the environment at the prefix is not ours to fill, or None."""
    found: dict[str, Any] = next((entry for entry in observed.get("pytorch") or [] if entry["path"] == asked["pytorch_prefix"]), {})
    if found.get("kind") != "conda" or "pytorch" in asked["takeover"]:
        return None
    advice = "gpu_stack_takeover names pytorch, or conda_pytorch_prefix another folder"
    return f"{asked['pytorch_prefix']} belongs to conda; it is left as it is unless {advice}"


def pytorch(asked: dict[str, Any], observed: dict[str, Any], torch: dict[str, Any] | None, theirs: str | None, differs: bool) -> Component:
    """Return what the plan says of PyTorch; `theirs` is why the environment is not ours."""
    found: dict[str, Any] = next((entry for entry in observed.get("pytorch") or [] if entry["path"] == asked["pytorch_prefix"]), {})
    return {
        "wanted": {name: value for name, value in torch.items() if name != "reasons"} if torch else None,
        "present": found.get("torch"),
        "owner": (found.get("owner") or found.get("kind")) if found else "absent",
        "action": ("change" if found.get("torch") else "install") if differs else "adopt" if theirs else "none",
        "reasons": torch["reasons"] if torch else [theirs or "gpu_stack_pytorch is not set"],
    }
