# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which driver a host can have: branch, version, flavour, and the packages of it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu, flavours_of, generations_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, branch, key

VARIABLE = "gpu_stack_driver"
PACKAGES = ("user_space", "kernel_open", "kernel_proprietary", "persistence")
COMPANIONS = ("fabric_manager",)
Entry = dict[str, Any]


def _drives(order: list[str], entry: Entry, generations: list[str]) -> bool:
    oldest, newest = order.index(entry["oldest_architecture"]), order.index(entry["newest_architecture"])
    return all(oldest <= order.index(generation) <= newest for generation in generations)


def _usable(catalog: dict[str, Any], platform: dict[str, Any], generations: list[str], flavours: list[str]) -> list[Entry]:
    """Return the branches that this platform has packages for and that drive these GPUs, newest first."""
    order = [entry["name"] for entry in catalog["architectures"]]
    return [
        entry
        for entry in catalog["driver_branches"]
        if _packaged(platform, entry) and set(entry["flavours"]) & set(flavours) and _drives(order, entry, generations)
    ]


def _packaged(platform: dict[str, Any], entry: Entry) -> bool:
    """Tell whether a branch has packages for a platform, under names that are known."""
    return platform["family"] in entry["packaged"] and _in_repository(platform, entry)


def _in_repository(platform: dict[str, Any], entry: Entry) -> bool:
    return bool(platform.get("minimum_driver_branch", 0) <= entry["branch"] <= platform.get("maximum_driver_branch", 9999))


def _default(usable: list[Entry], today: str) -> Entry | None:
    """Return the branch to take where nobody chooses: one in support, never a new-feature one.

    What the catalog is sure of goes before what it is not, long-term support before production, and the newer before the older.
    """
    supported = [entry for entry in usable if entry["type"] in ("LTSB", "PB") and str(entry.get("end_of_life") or "9999") >= today]
    return min(supported, key=lambda entry: (bool(entry.get("unverified")), entry["type"] != "LTSB", -entry["branch"]), default=None)


def choose(
    catalog: dict[str, Any],
    asked: str,
    platform: dict[str, Any],
    gpus: list[Gpu],
    today: str,
    locked: str | None = None,
    present: str | None = None,
) -> dict[str, Any]:
    """Return {version, branch, flavour, reasons} for a request; raises Refusal naming the nearest one that works.

    `locked` is the version that this request was resolved to before, `present` the one that our packages have on the host.
    """
    unknown = [gpu.model for gpu in gpus if gpu.architecture is None]
    if unknown:
        raise Refusal(
            "gpu.unknown", f"which driver drives {', '.join(unknown)} is not known to this release of the collection",
            seen=unknown, allowed="a GPU of the catalog, or a driver that is there already", variable="nvidia_driver_source", nearest="preinstalled",
        )  # fmt: skip
    generations, flavours = generations_of(catalog, gpus), flavours_of(gpus)
    if not flavours:
        raise Refusal(
            "gpu.mixed_generations", f"no flavour of the kernel module drives {' and '.join(generations)} in one host",
            seen=[gpu.model for gpu in gpus], allowed="GPUs that one flavour drives", variable="nvidia_driver_source",
            source=catalog["architectures"][0]["source"], nearest="preinstalled",
        )  # fmt: skip
    usable = _usable(catalog, platform, generations, flavours)
    nearest = _default(usable, today)
    reasons = [f"{VARIABLE} is {asked}"]
    if locked:
        reasons.append(f"gpu_stack_lock says {locked}")
    if asked == "auto" and not locked:
        if nearest is None:
            raise Refusal(
                "driver.none_usable", f"no supported driver branch drives {', '.join(generations)} on {platform['id']}",
                seen=generations, allowed=[str(entry["branch"]) for entry in usable], variable=VARIABLE,
            )  # fmt: skip
        entry, version = nearest, nearest["versions"][0]
    else:
        entry, version = _asked(catalog, locked or asked, platform, usable, generations, nearest, bool(locked))
    exact = locked or asked in entry["versions"]
    if present and not exact and branch(present) == entry["branch"] and key(present) > key(version):
        # Somebody installed a release that this catalog has not heard of; going back would be a downgrade that nobody asked for.
        reasons.append(f"the present {present} is newer than any release known here and stays")
        version = present
    if str(entry.get("end_of_life") or "9999") < today:
        reasons.append(f"branch {entry['branch']} has been out of support since {entry['end_of_life']}")
    flavour = next(flavour for flavour in flavours if flavour in entry["flavours"])
    return {"version": version, "branch": entry["branch"], "flavour": flavour, "reasons": reasons}


def _asked(
    catalog: dict[str, Any],
    asked: str,
    platform: dict[str, Any],
    usable: list[Entry],
    generations: list[str],
    nearest: Entry | None,
    is_lock: bool,
) -> tuple[Entry, str]:
    """Return the branch and the version that a branch, a version or a locked version means here."""
    variable = "gpu_stack_lock" if is_lock else VARIABLE
    proposal = str(nearest["branch"]) if nearest else None
    allowed = [str(entry["branch"]) for entry in usable]
    listed = ", ".join(allowed) or "none"
    entry = next((found for found in catalog["driver_branches"] if found["branch"] == branch(asked)), None)
    if entry is None:
        raise Refusal(
            "driver.branch_unknown", f"{variable} is {asked!r}; branches that this host can have: {listed}",
            seen=asked, allowed=allowed, variable=variable, nearest=proposal,
        )  # fmt: skip
    if not _in_repository(platform, entry):
        raise Refusal(
            "driver.not_packaged", f"NVIDIA has no packages of branch {entry['branch']} for {platform['id']}; there are {listed}",
            seen=asked, allowed=allowed, variable=variable, source=platform["source"], nearest=proposal,
        )  # fmt: skip
    if not _packaged(platform, entry):
        raise Refusal(
            "driver.branch_unmanaged",
            f"branch {entry['branch']} cannot be installed on {platform['id']} by this release of the collection; it installs {listed}",
            seen=asked, allowed=allowed, variable=variable, source=entry["source"], nearest=proposal,
        )  # fmt: skip
    if entry not in usable:
        raise Refusal(
            "driver.generation", f"branch {entry['branch']} does not drive {', '.join(generations)}; these do: {listed}",
            seen=asked, allowed=allowed, variable=variable, source=entry["source"], nearest=proposal,
        )  # fmt: skip
    if is_lock:
        # What was once resolved stays valid when the catalog moves on.
        return entry, asked
    version = next((version for version in entry["versions"] if belongs(version, asked)), None)
    if version is None:
        raise Refusal(
            "driver.version_unknown", f"{VARIABLE} is {asked!r}; of branch {entry['branch']} there are {', '.join(entry['versions'])}",
            seen=asked, allowed=list(entry["versions"]), variable=VARIABLE, source=entry["source"], nearest=entry["versions"][0],
        )  # fmt: skip
    return entry, version


def choose_distribution(
    catalog: dict[str, Any], asked: str, platform: dict[str, Any], gpus: list[Gpu], fabric_manager: bool, locked: str | None = None
) -> dict[str, Any]:
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
    known = [release["version"] for release in archive["releases"]]
    wanted = locked or asked
    version = next((version for version in known if wanted == "auto" or belongs(version, wanted)), None)
    if version is None:
        raise Refusal(
            "driver.version_unknown", f"{VARIABLE} is {wanted!r}; the archive of {platform['id']} has {', '.join(known)}",
            seen=wanted, allowed=known, variable=VARIABLE, source=archive["source"], nearest=known[0],
        )  # fmt: skip
    generations, order = generations_of(catalog, gpus), [entry["name"] for entry in catalog["architectures"]]
    flavour = next((flavour for flavour in flavours_of(gpus) if flavour in archive["flavours"]), None)
    entry = next((found for found in catalog["driver_branches"] if found["branch"] == branch(version)), None)
    unknown = any(gpu.architecture is None for gpu in gpus)
    if unknown or flavour is None or (entry is not None and not _drives(order, entry, generations)):
        models = [gpu.model for gpu in gpus]
        raise Refusal(
            "driver.generation", f"{version} ({', '.join(archive['flavours'])}) of {platform['id']} does not drive {', '.join(models)}",
            seen=models, allowed=["nvidia"], variable="nvidia_driver_source", source=archive["source"], nearest="nvidia",
        )  # fmt: skip
    reasons = [f"{VARIABLE} is {asked}, from {archive['source']}", *([f"gpu_stack_lock says {locked}"] if locked else [])]
    return {"version": version, "branch": branch(version), "flavour": flavour, "reasons": reasons}


def distribution_packages(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any]) -> dict[str, str]:
    """Return name -> exact version of the packages of a driver in the distribution's archive; an empty version is the archive's own."""
    archive = catalog["distribution_drivers"][platform["id"]]
    version = next(release["package_version"] for release in archive["releases"] if release["version"] == wanted["version"])
    return {**dict.fromkeys(archive["packages"], version), **dict.fromkeys(archive["others"], "")}


def packages(catalog: dict[str, Any], platform: dict[str, Any], wanted: dict[str, Any], fabric_manager: bool) -> dict[str, str]:
    """Return name -> exact version of all packages of a compute-only driver, companions included; an empty version is the archive's own."""
    rule = _rule(catalog["driver_packages"][platform["family"]], wanted["branch"])
    version = _numbered(catalog, platform, wanted["version"], "package")
    names = [*rule["user_space"], *rule[f"kernel_{wanted['flavour']}"], *rule["persistence"]]
    found = {name.format(branch=wanted["branch"]): version for name in names}
    if fabric_manager:
        name = _rule(catalog["driver_companions"][platform["package_manager"]], wanted["branch"])["fabric_manager"]
        found[name.format(branch=wanted["branch"])] = _numbered(catalog, platform, wanted["version"], "companion")
    return {**found, **dict.fromkeys(platform.get("dkms_needs", ()), "")}


def _numbered(catalog: dict[str, Any], platform: dict[str, Any], version: str, kind: str) -> str:
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
    names: set[str] = {name for archive in catalog["distribution_drivers"].values() for name in archive["packages"]}
    # A lock may hold `auto` to any branch.
    named = [entry["branch"] for entry in catalog["driver_branches"] if entry["packaged"]]
    branches = [number for number in named if asked == "auto" or number == branch(asked)]
    for field, rules in ((PACKAGES, catalog["driver_packages"]), (COMPANIONS, catalog["driver_companions"])):
        for rule in (rule for group in rules.values() for rule in group):
            low, high = rule["branches"]
            given = [name for part in field for name in _listed(rule.get(part))]
            names.update(name.format(branch=number) for number in branches if low <= number <= high for name in given)
    return names


def _listed(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else given or []


def _rule(rules: list[Entry], number: int) -> Entry:
    for rule in rules:
        low, high = rule["branches"]
        if low <= number <= high:
            return rule
    raise Refusal("driver.names_unknown", f"the names of the packages of branch {number} are not known", seen=number, variable=VARIABLE)
