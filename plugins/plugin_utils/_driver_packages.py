# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which packages a driver consists of on a platform, in which versions."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import branch, key

PACKAGES = ("user_space", "kernel_open", "kernel_proprietary", "persistence")
KERNELS = ("kernel_open", "kernel_proprietary")
COMPANIONS = ("fabric_manager", "imex")
Entry = dict[str, Any]
DRIVER_NUMBER = re.compile(r"[1-9][0-9]{2}(\.[0-9]+){1,2}")
BRANCH_IN_NAME = re.compile(r"-([1-9][0-9]{2})(?=-|$)")


def distribution_packages(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any]) -> dict[str, str]:
    """Return name -> exact version of the packages of a driver in the distribution's archive."""
    archive = catalog["distribution_drivers"][platform["id"]]
    pattern = archive.get("package_version", "").format(version=wanted["version"])
    version = next((release["package_version"] for release in archive["releases"] if release["version"] == wanted["version"]), pattern)
    names = [name.format(branch=wanted["branch"]) for name in (*archive["packages"], *archive.get(f"kernel_{wanted['flavour']}", ()))]
    return {**dict.fromkeys(names, version), **archive.get("others", {})}


def packages(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any], fabrics: list[Entry]) -> dict[str, str]:
    """Return name -> exact version of all packages of a compute-only driver, companions included; an empty version is the archive's own."""
    rule = _rule(catalog["driver_packages"][platform["family"]], wanted["branch"])
    version = numbered(catalog, platform, wanted["version"], "package")
    names = [*rule["user_space"], *rule[f"kernel_{wanted['flavour']}"], *rule["persistence"]]
    found = {name.format(branch=wanted["branch"]): version for name in names}
    others = [*platform.get("dkms_needs", ()), *platform.get("lock_needs", ()), *(name for fabric in fabrics for name in fabric["packages"])]
    return {**found, **companions(catalog, platform, wanted, fabrics), **dict.fromkeys(others, "")}


def leaving(
    catalog: dict[str, Any], platform: dict[str, Any], observed: dict[str, Any], wanted: dict[str, Any], packages: dict[str, str]
) -> dict[str, Any]:
    """Return what of the present driver has no place beside the wanted one, though no dependency may say so: {absent, afresh}.

    Of another supplier that is all that has a version of a driver, and for apt the settings of those that come in other packages of the same names.
    Of the same one it is what has another branch in its name, as apt sees no more in it than a package that happens to be there; and where names have
    none, what is a part of the driver in other branches than the wanted one.
    """
    there = (observed.get("driver") or {}).get("packages") or []
    others = [entry for entry in there if entry["name"] not in packages and DRIVER_NUMBER.fullmatch(_upstream(entry["version"]))]
    by_dnf = platform["package_manager"] == "dnf"
    if of_another(observed, wanted):
        return {"absent": sorted(entry["name"] for entry in others), "afresh": not by_dnf}
    if by_dnf:
        parts = {name for rule in catalog["driver_packages"][platform["family"]] for field in PACKAGES for name in _listed(rule.get(field))}
        gone = [entry["name"] for entry in others if entry["name"] in parts and _upstream(entry["version"]) != wanted["version"]]
        return {"absent": sorted(gone), "afresh": False}
    known = every_package(catalog, "auto")
    gone = [entry["name"] for entry in others if entry["name"] in known and _other_branch(entry["name"], wanted["branch"])]
    return {"absent": sorted(gone), "afresh": False}


def of_another(observed: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Tell whether the present driver is of another supplier than the wanted one; that of an image is one of the two, set up by others."""
    return {(observed.get("driver") or {}).get("owner"), wanted["source"]} == {"distro", "nvidia"}


def _other_branch(name: str, number: int) -> bool:
    found = BRANCH_IN_NAME.search(name)
    return found is not None and int(found[1]) != number


def _upstream(version: str | None) -> str:
    return (version or "").rpartition(":")[2].partition("-")[0]


def closure(platform: dict[str, Any], packages: dict[str, str]) -> list[str]:
    """Return the names of the packages that are held together: all but what the distribution alone answers for."""
    return sorted(set(packages) - {*platform.get("dkms_needs", ()), *platform.get("lock_needs", ())})


def companions(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any], fabrics: list[Entry]) -> dict[str, str]:
    """Return name -> exact version of what has to have the driver's version to the last digit, for what links a host's GPUs."""
    needed = [name for name in COMPANIONS if any(name in fabric["companions"] for fabric in fabrics)]
    if not needed:
        return {}
    rule = _rule(catalog["driver_companions"][platform["package_manager"]], wanted["branch"])
    missing = [name for name in needed if name not in rule]
    if missing:
        raise Refusal(
            "driver.companion", f"branch {wanted['branch']} has no {', '.join(missing).replace('_', ' ')}, which the host's GPUs need",
            seen=str(wanted["branch"]), allowed="a newer branch", variable="gpu_stack_driver", source=rule["source"],
        )  # fmt: skip
    version = numbered(catalog, platform, wanted["version"], "companion")
    return {rule[name].format(branch=wanted["branch"]): version for name in needed}


def numbered(catalog: dict[str, Any], platform: dict[str, Any], version: str, kind: str) -> str:
    """Return the version of the packages of a driver; `kind` is package or companion."""
    pattern, numbers = platform["package_version"], key(version)
    for rule in catalog["driver_numbering"].get(platform["family"], ()):
        first, last = key(rule["first"]), key(rule["last"])
        if first <= numbers[: len(first)] and numbers[: len(last)] <= last:
            pattern = rule.get(kind) or pattern
            break
    return str(pattern.format(version=version))


def every_package(catalog: dict[str, Any], asked: str | None) -> set[str]:
    """Return the names of all driver packages that a request could ask for on any platform; without a request there are none."""
    if asked is None:
        return set()
    # A lock may hold `auto` to any branch.
    named = [entry["branch"] for entry in catalog["driver_branches"] if entry["packaged"]]
    branches = [number for number in named if asked == "auto" or number == branch(asked)]
    names: set[str] = {name for fabric in catalog["fabrics"] for name in fabric["packages"]}
    for archive in catalog["distribution_drivers"].values():
        names.update(archive.get("others", ()))
        listed = [*archive["packages"], *(name for part in KERNELS for name in archive.get(part, ()))]
        covered = [number for number in branches if number in archive["branches"]] if "branches" in archive else [0]
        names.update(name.format(branch=number) for number in covered for name in listed)
    for field, rules in ((PACKAGES, catalog["driver_packages"]), (COMPANIONS, catalog["driver_companions"])):
        for rule in (rule for group in rules.values() for rule in group):
            low, high = rule["branches"]
            covered = [number for number in branches if low <= number <= high]
            given = [name for part in field for name in _listed(rule.get(part))] if covered else []
            names.update(name.format(branch=number) for number in covered for name in given)
    return names


def _listed(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else given or []


def _rule(rules: list[Entry], number: int) -> Entry:
    for rule in rules:
        low, high = rule["branches"]
        if low <= number <= high:
            return rule
    raise Refusal("driver.names_unknown", f"the names of the packages of branch {number} are not known", seen=number, variable="gpu_stack_driver")
