# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which driver a host is to have: branch, version, flavour, source, and the packages of it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, branch

VARIABLE = "gpu_stack_driver"
NVIDIA = "10de"


def architectures_of(catalog: dict[str, Any], gpus: list[dict[str, Any]]) -> list[str]:
    """Return the generations of the host's GPUs that the catalog knows, oldest first."""
    order = [entry["name"] for entry in catalog["architectures"]]
    known = {catalog["gpus"][gpu["device_id"]]["architecture"] for gpu in gpus if gpu["device_id"] in catalog["gpus"]}
    return sorted(known, key=order.index)


def possible_flavours(catalog: dict[str, Any], generations: list[str]) -> list[str]:
    """Return the kernel module flavours that drive every one of these generations, the preferred one first."""
    flavours = ["open", "proprietary"]
    for entry in catalog["architectures"]:
        if entry["name"] in generations:
            flavours = [flavour for flavour in flavours if flavour in entry["flavours"]]
    return flavours


def _drives(catalog: dict[str, Any], candidate: dict[str, Any], generations: list[str]) -> bool:
    order = [entry["name"] for entry in catalog["architectures"]]
    oldest = order.index(candidate["oldest_architecture"])
    newest = order.index(candidate.get("newest_architecture", order[-1]))
    return all(oldest <= order.index(generation) <= newest for generation in generations)


def _usable(catalog: dict[str, Any], platform: dict[str, Any], generations: list[str]) -> list[dict[str, Any]]:
    """Return the branches that this platform has packages for and that drive these GPUs, newest first."""
    floor = platform.get("minimum_driver_branch", 0)
    wanted = possible_flavours(catalog, generations)
    return [
        entry
        for entry in catalog["driver_branches"]
        if entry["packaged"] and entry["branch"] >= floor and _drives(catalog, entry, generations) and set(entry["flavours"]) & set(wanted)
    ]


def choose(catalog: dict[str, Any], asked: str, platform: dict[str, Any], gpus: list[dict[str, Any]], today: str) -> dict[str, Any]:
    """Return {version, branch, flavour, reasons} for a request; raises Refusal naming the nearest one that works."""
    generations = architectures_of(catalog, gpus)
    flavours = possible_flavours(catalog, generations)
    if not flavours:
        raise Refusal(
            "driver.mixed_generations",
            f"no kernel module flavour drives {' and '.join(generations)} in one host",
            seen=generations,
            variable=VARIABLE,
        )
    usable = _usable(catalog, platform, generations)
    allowed = [str(entry["branch"]) for entry in usable]
    nearest = _default(usable, today)
    if asked == "auto":
        if nearest is None:
            raise Refusal("driver.none_usable", f"no driver branch drives {generations} on {platform['id']}", seen=generations, variable=VARIABLE)
        entry, version = nearest, nearest["versions"][0]
    else:
        entry, version = _asked(catalog, asked, platform, usable, allowed, generations, nearest)
    flavour = next(flavour for flavour in flavours if flavour in entry["flavours"])
    reasons = [f"{VARIABLE} is {asked}"]
    if entry.get("end_of_life") and str(entry["end_of_life"]) < today:
        reasons.append(f"branch {entry['branch']} has been out of support since {entry['end_of_life']}")
    return {"version": version, "branch": entry["branch"], "flavour": flavour, "reasons": reasons}


def _default(usable: list[dict[str, Any]], today: str) -> dict[str, Any] | None:
    """Return the newest branch with long-term or production support that is not over; never a new-feature branch."""
    for entry in usable:
        if entry["type"] in ("LTSB", "PB") and str(entry.get("end_of_life") or "9999") >= today:
            return entry
    return None


def _asked(
    catalog: dict[str, Any],
    asked: str,
    platform: dict[str, Any],
    usable: list[dict[str, Any]],
    allowed: list[str],
    generations: list[str],
    nearest: dict[str, Any] | None,
) -> tuple[dict[str, Any], str]:
    proposal = str(nearest["branch"]) if nearest else None
    known = {entry["branch"]: entry for entry in catalog["driver_branches"]}
    entry = known.get(branch(asked))
    if entry is None:
        raise Refusal(
            "driver.branch_unknown", f"{VARIABLE} is {asked!r}; this host can have branch {', '.join(allowed)}, or auto",
            seen=asked, allowed=allowed, variable=VARIABLE, nearest=proposal,
        )  # fmt: skip
    if entry not in usable:
        if not entry["packaged"] or entry["branch"] < platform.get("minimum_driver_branch", 0):
            raise Refusal(
                "driver.not_packaged", f"branch {entry['branch']} has no packages for {platform['id']}; there are {', '.join(allowed)}",
                seen=asked, allowed=allowed, variable=VARIABLE, source=platform["source"], nearest=proposal,
            )  # fmt: skip
        raise Refusal(
            "driver.generation", f"branch {entry['branch']} does not drive {', '.join(generations)}; these do: {', '.join(allowed) or 'none'}",
            seen=asked, allowed=allowed, variable=VARIABLE, source=entry["source"], nearest=proposal,
        )  # fmt: skip
    versions = [version for version in entry["versions"] if belongs(version, asked)]
    if not versions:
        raise Refusal(
            "driver.version_unknown", f"{VARIABLE} is {asked!r}; of branch {entry['branch']} there are {', '.join(entry['versions'])}",
            seen=asked, allowed=list(entry["versions"]), variable=VARIABLE, source=entry["source"], nearest=entry["versions"][0],
        )  # fmt: skip
    return entry, versions[0]


def choose_distribution(catalog: dict[str, Any], asked: str, platform: dict[str, Any], gpus: list[dict[str, Any]], fabric_manager: bool) -> dict[str, Any]:
    """Return {version, branch, flavour, reasons} of a driver in the distribution's own archive."""
    archive = catalog["distribution_drivers"].get(platform["id"])
    if archive is None:
        allowed = sorted(catalog["distribution_drivers"])
        raise Refusal(
            "driver.source", f"the archive of {platform['id']} has no driver that is known here; that of {', '.join(allowed)} has",
            seen="distro", allowed=allowed, variable="nvidia_driver_source", nearest="nvidia",
        )  # fmt: skip
    if fabric_manager:
        raise Refusal(
            "driver.fabric_manager", f"the host has NVSwitches, and the archive of {platform['id']} has no fabric manager for them",
            seen="distro", allowed=["nvidia"], variable="nvidia_driver_source", source=archive["source"], nearest="nvidia",
        )  # fmt: skip
    possible = [flavour for flavour in possible_flavours(catalog, architectures_of(catalog, gpus)) if flavour in archive["flavours"]]
    known = [release["version"] for release in archive["releases"]]
    fitting = known if asked == "auto" else [version for version in known if belongs(version, asked)]
    if not fitting or not possible:
        raise Refusal(
            "driver.version_unknown", f"{VARIABLE} is {asked!r}; the archive of {platform['id']} has {', '.join(known)}, {archive['flavours'][0]}",
            seen=asked, allowed=known, variable=VARIABLE, source=archive["source"], nearest=known[0],
        )  # fmt: skip
    return {"version": fitting[0], "branch": branch(fitting[0]), "flavour": possible[0], "reasons": [f"{VARIABLE} is {asked}, from {archive['source']}"]}


def distribution_packages(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any]) -> dict[str, str]:
    """Return name -> exact version of the packages of a driver in the distribution's archive; an empty version is the archive's own."""
    archive = catalog["distribution_drivers"][platform["id"]]
    version = next(release["package_version"] for release in archive["releases"] if release["version"] == wanted["version"])
    return {**dict.fromkeys(archive["packages"], version), **dict.fromkeys(archive["others"], "")}


def packages(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any], fabric_manager: bool) -> dict[str, str]:
    """Return name -> exact version of all packages of a compute-only driver, companions included."""
    table = catalog["driver_packages"]
    rule = _rule(table[platform["family"]], wanted["branch"])
    version = platform["package_version"].format(version=wanted["version"])
    names = [*rule["user_space"], *rule[f"kernel_{wanted['flavour']}"], *rule["persistence"]]
    found = {name.format(branch=wanted["branch"]): version for name in names}
    if fabric_manager:
        name = _rule(table["companions"], wanted["branch"])["fabric_manager"].format(branch=wanted["branch"])
        found[name] = table["companion_version"].format(version=wanted["version"])
    return found


def every_package(catalog: dict[str, Any]) -> set[str]:
    """Return the names of all driver packages that any platform and branch could ask for."""
    table = catalog["driver_packages"]
    branches = [entry["branch"] for entry in catalog["driver_branches"]]
    names: set[str] = {name for archive in catalog["distribution_drivers"].values() for name in [*archive["packages"], *archive["others"]]}
    for family in {entry["family"] for entry in catalog["platforms"].values()}:
        for rule in [*table[family], *table["companions"]]:
            low, high = rule["branches"]
            for given in rule.values():
                for name in [given] if isinstance(given, str) else given:
                    if isinstance(name, str):
                        names.update(name.format(branch=number) for number in branches if low <= number <= high)
    return names


def _rule(rules: list[dict[str, Any]], number: int) -> dict[str, Any]:
    for rule in rules:
        low, high = rule["branches"]
        if low <= number <= high:
            return rule
    raise Refusal("driver.names_unknown", f"the names of the packages of branch {number} are not known", seen=number, variable=VARIABLE)
