# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of all packages (packages/*.yml), read, checked and expanded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).with_name("packages")
RELATIONS = ("pre_depends", "depends", "recommends", "suggests", "breaks", "conflicts", "replaces", "provides", "obsoletes")
ROW_KEYS = {
    *("name", "families", "since", "until", "once", "version", "architecture", "description", "files", "service", "user", "dkms", "flavour"),
    *RELATIONS,
}  # fmt: skip
# Whose packages a row without families makes.
DEB_FAMILIES = ("debian", "ubuntu")
FILE_KINDS = {
    "library": {"soname", "development"},
    "program": {"mode", "folder"},
    "kernel_source": set(),
    "firmware": set(),
    "path": {"text", "source", "link", "dir", "mode", "conffile", "values"},
}
# "name (>= version)" with an optional architecture.
RELATION = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9+.-]+)(?::\w+|\(x86-64\))?(?: \((?P<operator><<|<=|=|>=|>>) (?P<version>[^)]+)\))?$")


class TableError(Exception):
    """The table says something that cannot be."""


@dataclass(frozen=True)
class Platform:
    """A folder of the site, such as debian12."""

    name: str
    family: str
    key_file: str
    version: str
    branches: tuple[int, ...]
    # By branch, where the vendor numbers packages in another way than it does today.
    numbered: dict[int, str] = field(default_factory=dict, hash=False)
    companions_numbered: dict[int, str] = field(default_factory=dict, hash=False)
    # The module whose streams choose branch and flavour, for dnf.
    module: str | None = None

    @property
    def rpm(self) -> bool:
        """Tell whether the folder holds RPM packages."""
        return self.family == "el"


@dataclass(frozen=True)
class Release:
    """A driver release; an unreleased one appears when the site is told to have moved on."""

    version: str
    branch: int
    unreleased: bool = False


@dataclass(frozen=True)
class Package:
    """One package of one platform and release, all templates filled in."""

    platform: Platform
    release: Release
    name: str
    version: str
    architecture: str
    description: str
    relations: dict[str, list[str]]
    files: list[dict[str, Any]]
    service: str | None
    user: str | None
    dkms: str | None
    # Only of the streams of one flavour of the kernel modules; None is of all.
    flavour: str | None
    # Bound to no release of the driver.
    once: bool = False

    @property
    def filename(self) -> str:
        """Return the name of the package's file for apt."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


@dataclass(frozen=True)
class Table:
    """The whole site."""

    platforms: tuple[Platform, ...]
    releases: tuple[Release, ...]
    distribution: frozenset[str]
    rows: tuple[dict[str, Any], ...]

    def packages(self, platform: Platform) -> list[Package]:
        """Return all packages of a platform, those of unreleased releases included."""
        found: dict[tuple[str, str], Package] = {}
        for row in self.rows:
            if platform.family not in row.get("families", DEB_FAMILIES):
                continue
            low, high = row.get("since", 0), row.get("until", 9999)
            releases = [one for one in self.releases if one.branch in platform.branches and low <= one.branch <= high]
            for release in releases[:1] if row.get("once") else releases:
                package = expand(row, platform, release)
                if found.setdefault((package.name, package.version), package) is not package:
                    raise TableError(f"{platform.name}: two rows make {package.name} {package.version}")
        return [found[key] for key in sorted(found)]


def expand(row: dict[str, Any], platform: Platform, release: Release) -> Package:
    """Fill the templates of a row in for a platform and a release."""
    words = {"v": release.version, "b": str(release.branch)}
    words["cv"] = fill(platform.companions_numbered.get(release.branch, platform.version), words)
    words["pv"] = fill(row.get("version", platform.numbered.get(release.branch, platform.version)), words)
    words["ev"] = "3:" + release.version
    files = [{key: fill(value, words) for key, value in entry.items()} for entry in row.get("files", [])]
    return Package(
        platform=platform,
        release=release,
        name=fill(row["name"], words),
        version=words["pv"],
        architecture=row.get("architecture", "amd64"),
        description=row["description"],
        relations={key: fill(row[key], words) for key in RELATIONS if key in row},
        files=files,
        service=row.get("service"),
        user=row.get("user"),
        dkms=row.get("dkms"),
        flavour=row.get("flavour"),
        once=row.get("once", False),
    )


def fill(value: Any, words: dict[str, str]) -> Any:
    """Return a value with the templates in all of its strings filled in."""
    if isinstance(value, str):
        for key, word in words.items():
            value = value.replace("{" + key + "}", word)
        return value
    if isinstance(value, list):
        return [fill(item, words) for item in value]
    if isinstance(value, dict):
        return {key: fill(item, words) for key, item in value.items()}
    return value


def load(folder: Path = FOLDER) -> Table:
    """Read and check the table."""
    rows: list[dict[str, Any]] = []
    site: dict[str, Any] = {}
    for path in sorted(folder.glob("*.yml")):
        data = yaml.safe_load(path.read_text())
        rows += data.pop("packages", [])
        for key in data:
            if key not in ("platforms", "releases", "distribution") or key in site:
                raise TableError(f"{path.name}: {key} is unknown, or given twice")
        site.update(data)
    for row in rows:
        check_row(row)
    platforms = tuple(Platform(name, branches=tuple(fields.pop("branches")), **fields) for name, fields in site["platforms"].items())
    releases = tuple(Release(**fields) for fields in site["releases"])
    return Table(platforms, releases, frozenset(site["distribution"]), tuple(rows))


def check_row(row: dict[str, Any]) -> None:
    """Raise TableError for what would otherwise become a package that is silently wrong."""
    name = row.get("name", "a row without a name")
    if "name" not in row or "description" not in row:
        raise TableError(f"{name}: name and description are needed")
    if unknown := set(row) - ROW_KEYS:
        raise TableError(f"{name}: unknown keys {sorted(unknown)}")
    for key in RELATIONS:
        for item in row.get(key, []):
            for alternative in item.split(" | "):
                if not RELATION.match(fill(alternative, {"v": "580.1", "b": "580", "pv": "580.1-1", "ev": "3:580.1"})):
                    raise TableError(f"{name}: {key} {item!r} is no package relation")
    for entry in row.get("files", []):
        kind = next((kind for kind in FILE_KINDS if kind in entry), None)
        if kind is None or set(entry) - {kind} - FILE_KINDS[kind]:
            raise TableError(f"{name}: file {entry} is of no known kind")
        if kind == "path" and len({"text", "source", "link", "dir"} & set(entry)) != 1:
            raise TableError(f"{name}: {entry['path']} needs one of text, source, link and dir")
