# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What is to happen to a host's driver: install, change, repair, adopt, or nothing; and who owns what is there."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _dnf_plan, _driver_flavour, _driver_owner, _driver_plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_rules import has_signed_module
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu, flavours_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._managed_plan import PIN
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import is_version

VARIABLE = "gpu_stack_driver"


def present_version(driver: dict[str, Any]) -> str | None:
    """Return the version that a host runs: the loaded one, else that of the libraries."""
    return next((version for version in ((driver.get("loaded") or {}).get("version"), driver.get("user_space")) if is_version(version)), None)


def parts(driver: dict[str, Any], kernel: str | None) -> dict[str, str]:
    """Return the versions of a driver's parts that are known: loaded, on disk for the running kernel, libraries."""
    found = {
        "loaded": (driver.get("loaded") or {}).get("version"),
        "on disk": ((driver.get("on_disk") or {}).get(kernel) or {}).get("version"),
        "user space": driver.get("user_space"),
    }
    return {name: version for name, version in found.items() if is_version(version)}


def plan(
    catalog: dict[str, Any],
    asked: dict[str, Any],
    lock: dict[str, str],
    platform: dict[str, Any],
    observed: dict[str, Any],
    gpus: list[Gpu],
    fabrics: list[dict[str, Any]],
    today: str,
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the wanted driver (None: not ours to change) and what the plan says of the component."""
    driver = observed.get("driver") or {}
    owner, present = driver.get("owner"), present_version(driver)
    component: dict[str, Any] = {"wanted": None, "present": present, "owner": owner, "action": "none", "reasons": []}
    others = _others(observed)
    if not gpus:
        handed = len(observed.get("gpus") or [])
        component["reasons"] = [f"{handed} GPUs are handed to virtual machines" if handed else "no NVIDIA GPU on the PCI bus", *others]
        return None, component
    pinned = any(((observed.get("managed") or {}).get(f"file:{path}") or {}).get("state") == "file" for path in (PIN, _dnf_plan.REPOSITORY))
    source = _driver_owner.source_of(asked, owner, pinned)
    reason = _driver_owner.left_alone(asked, source, _owners(observed, owner, fabrics), driver, present, pinned)
    if reason is None and not asked["driver"]:
        if not present:
            _propose(catalog, asked, platform, gpus, fabrics, today, observed)
        reason = f"{VARIABLE} is not set: what is there stays"
    if reason is not None:
        against = _driver_owner.against(catalog, asked, present, driver.get("flavour"), gpus, today)
        component["reasons"] = [reason, *_disagreement(driver, observed), *against, *others]
        component["action"] = "adopt" if present else "none"
        return None, component
    locked = lock.get(asked["driver"])
    flavour = asked["driver_flavour"]
    if source == "distro":
        wanted = _driver_plan.choose_distribution(catalog, asked["driver"], platform, gpus, fabrics, locked, flavour)
    else:
        working = _working(driver, observed) if owner == "nvidia" else None
        wanted = _driver_plan.choose(catalog, asked["driver"], platform, gpus, fabrics, today, locked, working, flavour)
    _secure_boot(catalog, platform, _driver_flavour.wished(flavour, gpus), wanted, observed)
    component["reasons"] = [*wanted.pop("reasons"), *_driver_flavour.moved(driver.get("flavour"), wanted["flavour"]), *others]
    component["wanted"] = {**wanted, "source": source}
    return component["wanted"], component


def _owners(observed: dict[str, Any], owner: str | None, fabrics: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return who owns the driver, and the fabric manager where the host needs one that has the driver's version."""
    needed = any("fabric_manager" in fabric["companions"] for fabric in fabrics)
    return {"driver": owner, **({"fabric_manager": (observed.get("owners") or {}).get("fabric_manager")} if needed else {})}


def _propose(
    catalog: dict[str, Any],
    asked: dict[str, Any],
    platform: dict[str, Any],
    gpus: list[Gpu],
    fabrics: list[dict[str, Any]],
    today: str,
    observed: dict[str, Any],
) -> None:
    """Refuse a bare host that nothing is asked for, with a driver that would fit."""
    proposal = _driver_plan.choose(catalog, "auto", platform, gpus, fabrics, today, flavour=asked["driver_flavour"])
    count = len(observed.get("gpus") or [])
    raise Refusal(
        "driver.unset", f'the host has {count} GPUs and no driver, and {VARIABLE} is not set; "{proposal["branch"]}" would fit',
        seen=None, allowed='a branch, a version, or "auto"', variable=VARIABLE, nearest=str(proposal["branch"]),
    )  # fmt: skip


def _secure_boot(catalog: dict[str, Any], platform: dict[str, Any], gpus: list[Gpu], wanted: dict[str, Any], observed: dict[str, Any]) -> None:
    """Say what Secure Boot will ask for before a module of ours loads; raises Refusal where there is no way to one that it trusts.

    A module of ours that is loaded proves that the host's own key is enrolled.
    """
    if not (observed.get("host") or {}).get("secure_boot") or (observed.get("driver") or {}).get("loaded"):
        return
    flavours = flavours_of(gpus)
    if platform["family"] == "el" and not has_signed_module(catalog, platform, wanted["branch"], flavours):
        signed = [entry for entry in catalog["driver_branches"] if has_signed_module(catalog, platform, entry["branch"], flavours)]
        raise Refusal(
            "driver.secure_boot", f"Secure Boot is on, and no signed kernel module of branch {wanted['branch']} is known for {platform['id']}",
            seen=str(wanted["branch"]), allowed=[str(entry["branch"]) for entry in signed], variable=VARIABLE,
            source=catalog["signed_modules"][-1]["source"], nearest=str(signed[0]["branch"]) if signed else None,
        )  # fmt: skip
    wanted["reasons"].append(
        "Secure Boot is on: what dkms builds loads once its key is enrolled at the console (mokutil --import /var/lib/dkms/mok.pub, then reboot)"
    )


def _working(driver: dict[str, Any], observed: dict[str, Any]) -> str | None:
    """Return the version of a driver whose parts are all there and agree, else None."""
    found = parts(driver, (observed.get("host") or {}).get("kernel"))
    versions = set(found.values())
    return versions.pop() if len(found) == 3 and len(versions) == 1 else None


def _disagreement(driver: dict[str, Any], observed: dict[str, Any]) -> list[str]:
    found = parts(driver, (observed.get("host") or {}).get("kernel"))
    if len(set(found.values())) < 2:
        return []
    return ["its parts disagree: " + ", ".join(f"{name} {version}" for name, version in found.items())]


def _others(observed: dict[str, Any]) -> list[str]:
    others = observed.get("accelerators_other") or []
    return [f"{len(others)} accelerators of other makers are left alone"] if others else []


def action(component: dict[str, Any], wanted: dict[str, Any] | None, differs: list[str], flavour: str | None) -> str:
    """Return install, change, repair, adopt or none; `flavour` is that of the modules that are there."""
    if wanted is None:
        return str(component["action"])
    if not differs:
        return "none"
    if component["present"] is None:
        return "install"
    # Where the packages are the wanted ones already, only what came of them is behind: an old module still loaded, a service down.
    same = component["present"] == wanted["version"] and flavour in (None, wanted["flavour"])
    if same or not any(name.startswith("package:") for name in differs):
        return "repair"
    return "change"
