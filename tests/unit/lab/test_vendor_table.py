# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of the vendor's packages: well formed, closed under its own relations, and named as the vendor names things."""

from __future__ import annotations

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_packages
from fixtures.stack import catalog
from lab.vendor.contents import entries
from lab.vendor.site import Offer, SiteTree
from lab.vendor.table import RELATION, Package, Platform, Table, TableError, check_row, load

TABLE = load()
PLATFORMS = {platform.name: platform for platform in TABLE.platforms}
LOCKSTEP = ("libcuda1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "libnvidia-compute-580", "nvidia-utils-580", "nvidia-dkms-580-open")


def released(table: Table, platform: Platform) -> list[Package]:
    """Return the packages that are there on an ordinary day."""
    return [package for package in table.packages(platform) if not package.release.unreleased]


def compare(left: str, operator: str, right: str) -> bool:
    """Compare two versions of the plain kind that this site has."""

    def key(version: str) -> tuple[tuple[int, ...], str]:
        upstream, _, revision = version.rpartition(":")[2].partition("-")
        return tuple(int(part) for part in upstream.split(".")), revision

    # As dnf has it, a version without a revision means every revision.
    some = key(left) if "-" in right else (key(left)[0], "")
    return {"=": some == key(right), ">=": some >= key(right), "<=": some <= key(right)}[operator]


def satisfied(relation: str, package: Package, others: list[Package]) -> bool:
    """Tell whether one alternative of a dependency is met by the distribution or by packages of the same release."""
    match = RELATION.match(relation)
    assert match, relation
    name, operator, version = match["name"], match["operator"], match["version"]
    if name in TABLE.distribution:
        return True
    for other in others:
        if other.release != package.release:
            continue
        if other.name == name and (not operator or compare(other.version, operator, version)):
            return True
        for provided in other.relations.get("provides", []):
            offer = RELATION.match(provided)
            assert offer, provided
            if offer["name"] == name and (not operator or (offer["version"] and compare(offer["version"], operator, version))):
                return True
    return False


@pytest.mark.parametrize("name", PLATFORMS)
def test_every_dependency_can_be_met_within_its_release(name: str) -> None:
    packages = TABLE.packages(PLATFORMS[name])
    unmet = [
        f"{package.name} {package.version}: {item}"
        for package in packages
        for key in ("pre_depends", "depends", "recommends")
        for item in package.relations.get(key, [])
        if not any(satisfied(alternative, package, packages) for alternative in item.split(" | "))
    ]
    assert unmet == []


@pytest.mark.parametrize("name", PLATFORMS)
def test_two_releases_a_branch_where_two_are_known_and_one_to_come(name: str) -> None:
    packages = [package for package in TABLE.packages(PLATFORMS[name]) if not package.once]
    known = {entry["branch"]: entry["versions"] for entry in catalog()["driver_branches"]}
    for branch in PLATFORMS[name].branches:
        there = {package.release.version for package in packages if package.release.branch == branch and not package.release.unreleased}
        assert len(there) == min(2, len(known[branch])), branch
        assert there <= set(known[branch]) and known[branch][0] in there, branch
    assert {package.release.version for package in packages if package.release.unreleased} == {"580.195.03"}


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_has_every_branch_that_the_catalog_installs_there(name: str) -> None:
    known = catalog()
    platform = known["platforms"][name]
    installed = {entry["branch"] for entry in known["driver_branches"] if platform["family"] in entry["packaged"]}
    assert {branch for branch in installed if branch >= platform.get("minimum_driver_branch", 0)} <= set(PLATFORMS[name].branches)


@pytest.mark.parametrize("name", PLATFORMS)
def test_versions_are_those_of_the_catalog(name: str) -> None:
    known = catalog()
    platform = {**known["platforms"][name], "id": name}
    companions = ("nvidia-fabric", "libnvidia-nscq", "libnvsdm", "nvidia-imex", *(["cuda-drivers"] if platform["family"] == "el" else []))
    for package in TABLE.packages(PLATFORMS[name]):
        if not package.once:
            kind = "companion" if package.name.startswith(companions) else "package"
            assert package.version == _driver_packages.numbered(known, platform, package.release.version, kind), package.name


@pytest.mark.parametrize("name", [name for name, platform in PLATFORMS.items() if not platform.rpm])
def test_names_of_companions_lose_their_branch_at_580(name: str) -> None:
    for branch, names in names_of(name).items():
        old = {f"nvidia-fabricmanager-{branch}", f"libnvidia-nscq-{branch}"}
        new = {"nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm", "nvidia-imex", f"nvidia-driver-pinning-{branch}"}
        assert (new <= names, old & names) == (True, set()) if branch >= 580 else (old <= names, new & names) == (True, set()), branch
        assert (f"nvidia-imex-{branch}" in names) == (550 <= branch < 580)
        assert (f"libnvsdm-{branch}" in names) == (560 <= branch < 580)
        assert ("cuda-drivers" in names) == (branch <= 610)
    assert "nvidia-driver-pinning-580.178.04" in names_of(name)[580]


def test_names_of_ubuntu_lose_their_branch_at_590() -> None:
    for branch, names in names_of("ubuntu2404").items():
        old = {f"{name}-{branch}" for name in ("libnvidia-compute", "nvidia-utils", "nvidia-dkms", "cuda-drivers")} | {f"nvidia-dkms-{branch}-open"}
        new = {"libnvidia-compute", "libnvidia-gpucomp", "nvidia-dkms-open", "nvidia-kernel-source-open", "nvidia-firmware"}
        assert (new <= names, old & names) == (True, set()) if branch >= 590 else (old <= names, new & names) == (True, set()), branch
        assert ("nvidia-dkms" in names) == (590 <= branch <= 610)


def names_of(platform: str) -> dict[int, set[str]]:
    """Return the names of a platform's packages by branch."""
    names: dict[int, set[str]] = {}
    for package in TABLE.packages(PLATFORMS[platform]):
        if not package.once:
            names.setdefault(package.release.branch, set()).add(package.name)
    return names


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_subnet_manager_of_nvlinks_is_there_once(name: str, site: SiteTree) -> None:
    (package,) = [package for package in TABLE.packages(PLATFORMS[name]) if package.once]
    paths = {entry.path for entry in entries(package)}
    assert package.name == "nvlsm" and {"/opt/nvidia/nvlsm/sbin/nvlsm", "/usr/share/nvidia/nvlsm/nvlsm.conf"} <= paths
    (record,) = [one for one in site.records[name] if one["once"]]
    everything = frozenset(one["release"] for one in site.records[name])
    assert Offer(older=True, removed=everything).holds(record, site.records[name])


def test_for_dnf_the_fabric_manager_loses_a_hyphen_and_nvml_changes_its_package() -> None:
    names: dict[int, set[str]] = {}
    for package in TABLE.packages(PLATFORMS["rhel9"]):
        names.setdefault(package.release.branch, set()).add(package.name)
    assert {"nvidia-fabricmanager", "libnvidia-nscq", "libnvidia-ml", "libnvidia-gpucomp", "nvidia-imex"} <= names[580]
    assert not {"nvidia-fabric-manager", "nvidia-driver-NVML", "libnvidia-nscq-580"} & names[580]
    assert {"nvidia-fabric-manager", "libnvidia-nscq-535", "nvidia-driver-NVML"} <= names[535]
    assert not {"nvidia-fabricmanager", "libnvidia-ml", "nvidia-imex"} & names[535]


def test_trixie_starts_with_branch_580_and_has_a_key_of_its_own() -> None:
    assert min(PLATFORMS["debian13"].branches) == 580
    assert PLATFORMS["debian13"].key_file == "8793F200.pub"
    assert PLATFORMS["debian12"].key_file == PLATFORMS["ubuntu2404"].key_file == "3bf863cc.pub"


@pytest.mark.parametrize("name", PLATFORMS)
def test_no_file_is_in_two_packages_that_can_be_installed_together(name: str) -> None:
    packages = released(TABLE, PLATFORMS[name])
    for release in {package.release for package in packages}:
        owners: dict[str, list[Package]] = {}
        for package in packages:
            if package.release == release:
                for entry in entries(package):
                    owners.setdefault(entry.path, []).append(package)
        for path, several in owners.items():
            for package in several:
                others = {other.name for other in several} - {package.name}
                apart = {RELATION.match(item)["name"] for item in package.relations.get("conflicts", [])}  # type: ignore[index]
                offered = {
                    other.name
                    for other in several
                    for item in other.relations.get("provides", [])
                    if RELATION.match(item)["name"] in apart  # type: ignore[index]
                }
                assert others <= apart | offered, f"{path} is in {package.name} and {sorted(others)}"


@pytest.mark.parametrize("name", PLATFORMS)
def test_what_the_catalog_installs_is_on_the_site(name: str) -> None:
    """Of the releases that the site has: some of each of its branches."""
    known = catalog()
    platform = {**known["platforms"][name], "id": name}
    there = {(package.name, package.version) for package in released(TABLE, PLATFORMS[name])}
    releases = {package.release.version for package in released(TABLE, PLATFORMS[name])}
    checked = 0
    for entry in known["driver_branches"]:
        if entry["branch"] in PLATFORMS[name].branches:
            known_there = set(entry["versions"]) & releases
            assert known_there, f"the catalog knows no release of {entry['branch']} that the site has"
            for version in known_there:
                for flavour in entry["flavours"]:
                    wanted = {"version": version, "branch": entry["branch"], "flavour": flavour}
                    found = _driver_packages.packages(known, platform, wanted, known["fabrics"][:1])
                    # What has no version comes from the distribution.
                    assert {item for item in found.items() if item[1]} <= there
                    checked += 1
    assert checked >= 4


def test_the_site_has_the_folders_and_key_files_that_the_catalog_looks_for() -> None:
    platforms = catalog()["platforms"]
    for name, platform in PLATFORMS.items():
        assert platforms[name]["directory"] == name
        assert platforms[name]["key_file"] == platform.key_file
        assert platforms[name]["package_version"].replace("{version}", "{v}") == platform.version


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "a"}, "description"),
        ({"name": "a", "description": "x", "depend": ["b"]}, "unknown keys"),
        ({"name": "a", "description": "x", "depends": ["B (=> 1)"]}, "no package relation"),
        ({"name": "a", "description": "x", "files": [{"libary": "x.so"}]}, "no known kind"),
        ({"name": "a", "description": "x", "files": [{"path": "/a", "text": "x", "link": "/b"}]}, "needs one of"),
    ],
)
def test_a_row_that_means_nothing_is_refused(row: dict[str, object], message: str) -> None:
    with pytest.raises(TableError, match=message):
        check_row(row)


def test_the_set_for_compute_is_in_lockstep() -> None:
    found = {package.name: package for name in ("debian12", "ubuntu2404") for package in released(TABLE, PLATFORMS[name])}
    assert set(LOCKSTEP) <= set(found)
    for package in (found["nvidia-driver-cuda"], found["nvidia-kernel-open-dkms"], found["nvidia-utils-580"], found["nvidia-dkms-580-open"]):
        assert any(item.endswith(f"(= {package.version})") for item in package.relations["depends"]), package.name
