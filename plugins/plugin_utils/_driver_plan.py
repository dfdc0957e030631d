# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which driver a host can have: branch, version and flavour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_flavour
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_rules import drives, known_bad, oldest_driver
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu, flavours_of, generations_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, branch, key

VARIABLE = "gpu_stack_driver"
Entry = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What the choice of a driver depends on beside the request."""

    catalog: dict[str, Any]
    platform: dict[str, Any]
    gpus: list[Gpu]
    generations: list[str]
    flavours: list[str]
    order: list[str]
    minimum: tuple[str, str] | None
    today: str
    # As it is asked for; `flavours` are those that then remain.
    flavour_asked: str

    def packaged(self, entry: Entry) -> bool:
        """Tell whether a branch has packages for the platform, under names that are known."""
        return self.platform["family"] in entry["packaged"] and self.in_repository(entry)

    def in_repository(self, entry: Entry) -> bool:
        """Tell whether the platform's folder of the repository has this branch at all."""
        return bool(self.platform.get("minimum_driver_branch", 0) <= entry["branch"] <= self.platform.get("maximum_driver_branch", 9999))

    def drives(self, entry: Entry) -> bool:
        """Tell whether a branch drives all GPUs of the host, by generation and flavour."""
        return bool(set(entry["flavours"]) & set(self.flavours)) and drives(self.order, entry, self.generations)

    def new_enough(self, version: str) -> bool:
        """Tell whether a version is one that all GPUs of the host run with."""
        return self.minimum is None or key(version) >= key(self.minimum[0])

    def usable(self) -> list[Entry]:
        """Return the branches that the platform has packages for and that drive these GPUs, newest first."""
        branches = self.catalog["driver_branches"]
        return [entry for entry in branches if self.packaged(entry) and self.drives(entry) and self.new_enough(entry["versions"][0])]

    def flavour(self, entry: Entry) -> str:
        """Return the preferred flavour of a branch."""
        return next(flavour for flavour in self.flavours if flavour in entry["flavours"])

    def bad(self, entry: Entry, version: str) -> Entry | None:
        """Return what is known against a version on this host."""
        return known_bad(self.catalog, "driver", version, self.gpus, self.flavour(entry))


def _default(usable: list[Entry], today: str) -> Entry | None:
    """Return the branch to take where nobody chooses: one in support, never a new-feature one.

    What the catalog is sure of goes before what it is not, long-term support before production, and the newer before the older.
    """
    supported = [entry for entry in usable if entry["type"] in ("LTSB", "PB") and str(entry.get("end_of_life") or "9999") >= today]
    return min(supported, key=lambda entry: (bool(entry.get("unverified")), entry["type"] != "LTSB", -entry["branch"]), default=None)


def _case(catalog: dict[str, Any], platform: dict[str, Any], gpus: list[Gpu], fabrics: list[Entry], today: str, flavour: str) -> Case:
    """Return what the choice depends on; raises Refusal for GPUs that nothing drives together."""
    gpus = _driver_flavour.wished(flavour, gpus)
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
    order = [entry["name"] for entry in catalog["architectures"]]
    return Case(catalog, platform, gpus, generations, flavours, order, oldest_driver(gpus, fabrics), today, flavour)


def choose(
    catalog: dict[str, Any],
    asked: str,
    platform: dict[str, Any],
    gpus: list[Gpu],
    fabrics: list[Entry],
    today: str,
    locked: str | None = None,
    present: str | None = None,
    flavour: str = _driver_flavour.AUTO,
) -> dict[str, Any]:
    """Return {version, branch, flavour, reasons} for a request; raises Refusal naming the nearest one that works.

    `locked` is the version that this request was resolved to before, `present` the one that our packages have on the host.
    """
    case = _case(catalog, platform, gpus, fabrics, today, flavour)
    reasons = [f"{VARIABLE} is {asked}"]
    if locked:
        reasons.append(f"gpu_stack_lock says {locked}")
    if asked == "auto" and not locked:
        usable = case.usable()
        nearest = _default(usable, today)
        if nearest is None:
            raise Refusal(
                "driver.none_usable", f"no supported driver branch drives {', '.join(case.generations)} on {platform['id']}",
                seen=case.generations, allowed=[str(entry["branch"]) for entry in usable], variable=VARIABLE,
            )  # fmt: skip
        entry, version = nearest, _newest(case, nearest, str(nearest["branch"]))
    else:
        entry = _branch(case, locked or asked, bool(locked))
        # What was once resolved stays valid when the catalog moves on.
        version = locked or _newest(case, entry, asked)
    exact = locked or asked in entry["versions"]
    if present and not exact and branch(present) == entry["branch"] and key(present) > key(version):
        # Somebody installed a release that this catalog has not heard of; going back would be a downgrade that nobody asked for.
        reasons.append(f"the present {present} is newer than any release known here and stays")
        version = present
    bad = case.bad(entry, version)
    if bad:
        reasons.append(f"{version} is known to be bad: {bad['effect']}; first good: {bad['first_good'] or 'not known'}")
    if str(entry.get("end_of_life") or "9999") < today:
        reasons.append(f"branch {entry['branch']} has been out of support since {entry['end_of_life']}")
    return {"version": version, "branch": entry["branch"], "flavour": case.flavour(entry), "reasons": reasons}


def _branch(case: Case, asked: str, is_lock: bool) -> Entry:
    """Return the branch that a branch, a version or a locked version means here."""
    number, platform = branch(asked), case.platform
    entry: Entry | None = next((found for found in case.catalog["driver_branches"] if found["branch"] == number), None)
    if entry and case.packaged(entry) and case.drives(entry) and case.new_enough(asked if is_lock else entry["versions"][0]):
        return entry
    variable = "gpu_stack_lock" if is_lock else VARIABLE
    usable = case.usable()
    nearest = _default(usable, case.today)
    proposal = str(nearest["branch"]) if nearest else None
    allowed = [str(found["branch"]) for found in usable]
    listed = ", ".join(allowed) or "none"
    if entry is None:
        raise Refusal(
            "driver.branch_unknown", f"{variable} is {asked!r}; branches that this host can have: {listed}",
            seen=asked, allowed=allowed, variable=variable, nearest=proposal,
        )  # fmt: skip
    if not case.in_repository(entry):
        raise Refusal(
            "driver.not_packaged", f"NVIDIA has no packages of branch {entry['branch']} for {platform['id']}; there are {listed}",
            seen=asked, allowed=allowed, variable=variable, source=platform["source"], nearest=proposal,
        )  # fmt: skip
    if not case.packaged(entry):
        raise Refusal(
            "driver.branch_unmanaged",
            f"branch {entry['branch']} cannot be installed on {platform['id']} by this release of the collection; it installs {listed}",
            seen=asked, allowed=allowed, variable=variable, source=entry["source"], nearest=proposal,
        )  # fmt: skip
    if drives(case.order, entry, case.generations):
        _driver_flavour.offered(case.flavour_asked, entry["flavours"], f"branch {entry['branch']}", entry["source"])
    if not case.drives(entry):
        raise Refusal(
            "driver.generation", f"branch {entry['branch']} does not drive {', '.join(case.generations)}; these do: {listed}",
            seen=asked, allowed=allowed, variable=variable, source=entry["source"], nearest=proposal,
        )  # fmt: skip
    raise _too_old(case, asked, variable, allowed, proposal)


def _newest(case: Case, entry: Entry, asked: str) -> str:
    """Return the newest release that a branch or version means, that these GPUs run with and that nothing is known against."""
    meant: list[str] = [version for version in entry["versions"] if belongs(version, asked)]
    if not meant:
        raise Refusal(
            "driver.version_unknown", f"{VARIABLE} is {asked!r}; of branch {entry['branch']} there are {', '.join(entry['versions'])}",
            seen=asked, allowed=list(entry["versions"]), variable=VARIABLE, source=entry["source"], nearest=entry["versions"][0],
        )  # fmt: skip
    running = [version for version in meant if case.new_enough(version)]
    if not running:
        allowed = [version for version in entry["versions"] if case.new_enough(version)]
        raise _too_old(case, asked, VARIABLE, allowed, allowed[0])
    version = next((version for version in running if case.bad(entry, version) is None), running[0])
    bad = case.bad(entry, version)
    if bad and not bad.get("unverified"):
        good = [version for version in entry["versions"] if case.new_enough(version) and case.bad(entry, version) is None]
        raise Refusal(
            "driver.known_bad", f"{version} is known to be bad: {bad['effect']}; the first good one is {bad['first_good']}",
            seen=asked, allowed=good, variable=VARIABLE, source=bad["source"], nearest=next(iter(good), None),
        )  # fmt: skip
    return version


def _too_old(case: Case, asked: str, variable: str, allowed: list[str], nearest: str | None) -> Refusal:
    minimum, model = case.minimum or ("", "")
    return Refusal(
        "driver.gpu_minimum", f"{model} needs driver {minimum} or newer, and {variable} is {asked!r}; these would do: {', '.join(allowed) or 'none'}",
        seen=asked, allowed=allowed, variable=variable, source=case.catalog["gpus"].get(case.gpus[0].device_id, {}).get("source"), nearest=nearest,
    )  # fmt: skip


def _archived(archive: Entry, platform: dict[str, Any], wanted: str) -> str:
    """Return the release of a distribution's archive that is meant.

    An archive that moves with every security update is known by its branches alone; what it has on a day, only the host can tell.
    """
    known = [release["version"] for release in archive["releases"]]
    version: str | None = next((version for version in known if wanted == "auto" or belongs(version, wanted)), None)
    if version is not None:
        return version
    branches = [str(number) for number in archive.get("branches", ())]
    if wanted.partition(".")[0] in branches or (wanted == "auto" and branches):
        if len(key(wanted) if wanted != "auto" else ()) == 3:
            return wanted
        raise Refusal(
            "driver.version_needed",
            f"{VARIABLE} is {wanted!r}, and which release of it the archive of {platform['id']} has today is not known here; give the version "
            "that apt-cache policy shows on the host",
            seen=wanted, allowed="a version of three numbers", variable=VARIABLE, source=archive["source"],
        )  # fmt: skip
    allowed = known or branches
    raise Refusal(
        "driver.version_unknown", f"{VARIABLE} is {wanted!r}; the archive of {platform['id']} has {', '.join(allowed)}",
        seen=wanted, allowed=allowed, variable=VARIABLE, source=archive["source"], nearest=known[0] if known else None,
    )  # fmt: skip


def choose_distribution(
    catalog: dict[str, Any],
    asked: str,
    platform: dict[str, Any],
    gpus: list[Gpu],
    fabrics: list[Entry],
    locked: str | None = None,
    wish: str = _driver_flavour.AUTO,
) -> dict[str, Any]:
    """Return {version, branch, flavour, reasons} of a driver in the distribution's own archive."""
    archive = catalog["distribution_drivers"].get(platform["id"])
    if archive is None:
        allowed = sorted(catalog["distribution_drivers"])
        raise Refusal(
            "driver.source", f"the archive of {platform['id']} has no driver that is known here; that of {', '.join(allowed)} has",
            seen="distro", allowed=allowed, variable="nvidia_driver_source", nearest="nvidia",
        )  # fmt: skip
    if any("fabric_manager" in fabric["companions"] for fabric in fabrics):
        raise Refusal(
            "driver.fabric_manager", f"the host's GPUs are linked by switches, and the archive of {platform['id']} has no fabric manager for them",
            seen="distro", allowed=["nvidia"], variable="nvidia_driver_source", source=archive["source"], nearest="nvidia",
        )  # fmt: skip
    gpus = _driver_flavour.wished(wish, gpus)
    _driver_flavour.offered(wish, archive["flavours"], f"the archive of {platform['id']}", archive["source"])
    version = _archived(archive, platform, locked or asked)
    generations, order = generations_of(catalog, gpus), [entry["name"] for entry in catalog["architectures"]]
    flavour = next((flavour for flavour in flavours_of(gpus) if flavour in archive["flavours"]), None)
    entry = next((found for found in catalog["driver_branches"] if found["branch"] == branch(version)), None)
    unknown = any(gpu.architecture is None for gpu in gpus)
    if unknown or flavour is None or (entry is not None and not drives(order, entry, generations)):
        models = [gpu.model for gpu in gpus]
        raise Refusal(
            "driver.generation", f"{version} ({', '.join(archive['flavours'])}) of {platform['id']} does not drive {', '.join(models)}",
            seen=models, allowed=["nvidia"], variable="nvidia_driver_source", source=archive["source"], nearest="nvidia",
        )  # fmt: skip
    reasons = [f"{VARIABLE} is {asked}, from {archive['source']}", *([f"gpu_stack_lock says {locked}"] if locked else [])]
    return {"version": version, "branch": branch(version), "flavour": flavour, "reasons": reasons}
