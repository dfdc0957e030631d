# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog is well formed, in order, closed under its own references, and says where each entry comes from."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_packages
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, branch, is_version, key
from fixtures.stack import VARS, catalog

CATALOG = catalog()
DAY = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}")
FINGERPRINT = re.compile(r"[0-9A-F]{40}")
PACKAGE = re.compile(r"[a-z0-9][a-zA-Z0-9+.-]+")
FLAVOURS = {"open", "proprietary"}

# How deep a part's entries lie: 0 the part itself is one, 1 it is a list or a mapping of them, 2 a mapping of lists.
DEPTH = {
    "platforms": 1,
    "unsupported_platforms": 1,
    "revoked_keys": 1,
    "weak_keys": 1,
    "driver_branches": 1,
    "driver_packages": 2,
    "driver_companions": 2,
    "driver_numbering": 2,
    "distribution_drivers": 1,
    "signed_modules": 1,
    "architectures": 1,
    "gpus": 1,
    "gpu_ranges": 1,
    "fabrics": 1,
    "cuda_majors": 1,
    "cuda_toolkits": 1,
    "cudnn": 1,
    "cudnn_packages": 1,
    "nccl": 1,
    "nccl_packages": 1,
    "nccl_policy": 0,
    "builds": 1,
    "pytorch": 1,
    "conda_channels": 1,
    "container_toolkit": 0,
    "container_toolkit_releases": 1,
    "dcgm": 1,
    "dcgm_packages": 1,
    "dcgm_flavours": 1,
    "dcgm_also": 1,
    "dcgm_exporter": 1,
    "known_bad": 1,
}
NVSWITCH = [entry for entry in CATALOG["fabrics"] if entry["name"] == "nvswitch"]
BRANCHES = {entry["branch"]: entry for entry in CATALOG["driver_branches"]}
GENERATIONS = [entry["name"] for entry in CATALOG["architectures"]]


def entries(part: str) -> list[dict[str, Any]]:
    """Return the entries of a part."""
    found = [CATALOG[part]]
    for _ in range(DEPTH[part]):
        found = [item for group in found for item in (group.values() if isinstance(group, dict) else group)]
    return found


# ---- form


def text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def day(value: Any) -> bool:
    return isinstance(value, str) and DAY.fullmatch(value) is not None


def month(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"20[0-9]{2}-[0-9]{2}(-[0-9]{2})?", value) is not None


def number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def capability(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9]+\.[0-9]", value) is not None


def built_for(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9]+\.[0-9](\+PTX)?", value) is not None


def fingerprint(value: Any) -> bool:
    return isinstance(value, str) and FINGERPRINT.fullmatch(value) is not None


def device(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{4}", value) is not None


def true(value: Any) -> bool:
    """A mark is there or it is not: nothing is ever marked false."""
    return value is True


def name(value: Any) -> bool:
    """Tell whether something is the name of a package, with templates filled in."""
    return isinstance(value, str) and PACKAGE.fullmatch(re.sub(r"\{(branch|cuda|major|kernel)\}", "1", value)) is not None


def numbered(value: Any) -> bool:
    return isinstance(value, str) and value.count("{version}") == 1 and "{" not in re.sub(r"\{(version|cuda)\}", "", value)


def one_of(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: any(value == one and type(value) is type(one) for one in allowed)


def maybe(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def many(check: Callable[[Any], bool], least: int = 1) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) >= least and all(map(check, value)) and len(set(map(str, value))) == len(value)


def mapping(names: Callable[[Any], bool], values: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and bool(value) and all(names(one) and values(value[one]) for one in value)


def fields(**given: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check of a mapping with these fields; a name that ends with an underscore may be missing."""

    def check(value: Any) -> bool:
        return isinstance(value, dict) and not misfits(value, given)

    return check


def misfits(entry: dict[str, Any], form: dict[str, Callable[[Any], bool]]) -> list[str]:
    """Return what of an entry is missing, unknown or of the wrong form."""
    known = {one.rstrip("_"): check for one, check in form.items()}
    wrong = [f"{one} is missing" for one in form if not one.endswith("_") and one not in entry]
    wrong += [f"{one} is unknown" for one in entry if one not in known]
    return wrong + [f"{one} is {value!r}" for one, value in entry.items() if one in known and not known[one](value)]


ORIGIN: dict[str, Callable[[Any], bool]] = {"source": text, "date": day, "unverified_": true}
MACHINES = mapping(one_of("x86_64", "aarch64"), text)
BOUNDS = lambda value: many(number, 2)(value) or (isinstance(value, list) and len(value) == 2 and value[0] == value[1])  # noqa: E731
SOFTWARE = one_of("driver", "container_toolkit", "nccl", "cudnn", "dcgm", "pytorch")
FORMS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "platforms": {
        "distribution": text, "relatives_": many(text), "version": is_version, "any_minor_": true, "family": one_of("debian", "ubuntu", "el"),
        "package_manager": one_of("apt", "dnf"), "directory": text, "architectures": MACHINES,
        "key_file": lambda value: isinstance(value, str) and re.fullmatch(r"[0-9A-Fa-f]{8}\.pub", value) is not None,
        "key_fingerprint": maybe(fingerprint), "package_version": numbered, "kernel_headers": text, "kernel_headers_meta": MACHINES,
        "python_venv": name, "minimum_driver_branch_": number, "maximum_driver_branch_": number, "dkms_needs_": many(name), "lock_needs_": many(name),
        "streams_": mapping(one_of("open", "proprietary", "signed"), text), "unmanaged_": text,
    },
    "unsupported_platforms": {"distributions": many(text, 0), "like_": many(text), "versions_": many(text), "reason": text},
    "revoked_keys": {"key_file": text, "key_fingerprint": fingerprint, "revoked": day},
    "weak_keys": {"key_file": text, "key_fingerprint": fingerprint, "verifier": one_of("sqv"), "since": day, "reason": text},
    "driver_branches": {
        "branch": number, "type": one_of("LTSB", "PB", "NFB"), "first": day, "end_of_life": maybe(day), "cuda": capability,
        "flavours": many(one_of(*FLAVOURS)), "default_flavour": one_of(*FLAVOURS), "oldest_architecture": one_of(*GENERATIONS),
        "newest_architecture": one_of(*GENERATIONS), "versions": many(is_version), "packaged": many(one_of("debian", "ubuntu", "el"), 0),
    },
    "driver_packages": {
        "branches": BOUNDS, "user_space": many(name), "kernel_open": many(name), "kernel_proprietary": many(name), "persistence": many(name),
    },
    "driver_companions": {"branches": BOUNDS, "fabric_manager": name, "nscq": name, "imex_": name, "nvsdm_": name},
    "driver_numbering": {"first": is_version, "last": is_version, "package_": numbered, "companion_": numbered},
    "distribution_drivers": {
        "flavours": many(one_of(*FLAVOURS)), "releases": many(fields(version=is_version, package_version=text), 0), "branches_": many(number),
        "package_version_": numbered, "packages": many(name), "kernel_open_": many(name), "kernel_proprietary_": many(name),
        "others_": mapping(name, text),
    },
    "signed_modules": {
        "platforms": many(text), "supplier": one_of("distro", "nvidia"), "flavour": one_of(*FLAVOURS), "branches": many(number), "name": name,
        "stream_": text,
    },
    "architectures": {
        "name": text, "flavours": many(one_of(*FLAVOURS)), "compute_capability": capability, "last_branch": maybe(number),
        "first_cuda": capability, "last_cuda": maybe(is_version),
    },
    "gpus": {
        "model": text, "architecture": one_of(*GENERATIONS), "compute_capability": capability, "grace_": true, "minimum_driver_": is_version,
        "fabric_": one_of(*(entry["name"] for entry in CATALOG["fabrics"])),
    },
    "gpu_ranges": {"first": device, "last": device, "architecture": one_of(*GENERATIONS)},
    "fabrics": {
        "name": text, "board": maybe(number), "companions": many(one_of("fabric_manager", "imex")), "packages": many(name, 0),
        "kernel_modules": many(text, 0), "minimum_driver": maybe(is_version),
    },
    "cuda_majors": {"major": number, "minimum_driver": is_version, "oldest_capability": capability},
    "cuda_toolkits": {"version": is_version, "full_driver": is_version},
    "cudnn": {"version": is_version, "cuda_majors": many(one_of("11", "12", "13")), "oldest_capability": capability},
    "cudnn_packages": {
        "package_manager": one_of("apt", "dnf"), "runtime": name, "headers": name, "development": name, "package_version": numbered,
    },
    "nccl": {"version": is_version},
    "nccl_packages": {"package_manager": one_of("apt", "dnf"), "runtime": name, "development": name, "package_version": numbered},
    "nccl_policy": {kind: many(text) for kind in ("fabric", "unwritten", "never", "tune", "removed")},
    "builds": {
        "tag": lambda value: isinstance(value, str) and re.fullmatch(r"cu[0-9]{3}", value) is not None, "cuda": capability,
        "minimum_driver": is_version, "full_driver": is_version, "capabilities": many(built_for), "capabilities_sbsa_": many(built_for),
    },
    "pytorch": {
        "version": is_version, "released": day, "python": many(lambda value: re.fullmatch(r"3\.[0-9]+", str(value)) is not None),
        "builds": mapping(text, lambda value: value == {} or fields(cudnn=maybe(is_version), nccl=maybe(is_version))(value)),
        "capabilities_": mapping(text, many(built_for)),
    },
    "conda_channels": {
        "channel": text, "packages": mapping(text, name), "last": maybe(is_version),
        "builds": many(fields(cuda=capability, build=text, capabilities=many(built_for))),
    },
    "container_toolkit": {
        "packages": many(name, 4), "package_version": numbered, "obsolete": many(name), "key_url": text, "key_fingerprint": fingerprint,
        "repositories": mapping(one_of("apt", "dnf"), fields(url=text, suite_=text, architectures=mapping(one_of("x86_64", "sbsa"), text))),
        "cdi_units": many(text), "cdi_since": is_version,
    },
    "container_toolkit_releases": {"version": is_version, "released": maybe(month)},
    "dcgm": {"version": is_version, "major": number, "released": maybe(day)},
    "dcgm_packages": {
        "major": number, "core": name, "flavour_": name, "proprietary_": many(name), "conflicts": many(name), "package_version": numbered,
        "unit": text,
    },
    "dcgm_flavours": {"minimum_driver": is_version, "cuda": one_of("11", "12", "13")},
    "dcgm_also": {"architecture": one_of(*GENERATIONS), "cuda": one_of("11", "12", "13")},
    "dcgm_exporter": {"version": is_version, "package": name, "package_version": maybe(text), "host_label": one_of("Hostname", "hostname")},
    "known_bad": {
        "component": SOFTWARE, "first": is_version, "last": is_version, "first_good": maybe(is_version),
        "architectures_": many(one_of(*GENERATIONS)), "flavours_": many(one_of(*FLAVOURS)), "effect": text,
    },
}  # fmt: skip


class OneOfEachName(yaml.SafeLoader):
    """Refuses what YAML forgives: the second of two equal keys, which would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; raises ValueError where a key is there twice."""
        names = [self.construct_object(key_node, deep=deep) for key_node, _ in node.value]
        twice = {str(one) for one in names if names.count(one) > 1}
        if twice:
            raise ValueError(f"line {node.start_mark.line + 1}: {', '.join(sorted(twice))} twice")
        return dict(super().construct_mapping(node, deep=deep))


def test_every_part_is_assembled() -> None:
    """What the files of the folder hold is in the one mapping, under the same name or a shorter one."""
    names = {name for path in VARS.glob("*.yml") for name in yaml.safe_load(path.read_text())}
    used = set(re.findall(r"__gpu_stack_[a-z_]+", (VARS / "catalog.yml").read_text()))
    assert names - {"__gpu_stack_request", "__gpu_stack_lock_path"} == used
    assert set(CATALOG) == {*DEPTH, "schema"} and set(FORMS) == set(DEPTH)


def test_no_name_is_there_twice() -> None:
    """Neither in a mapping of a file, nor in two files, of which the later would replace the earlier."""
    seen: dict[str, str] = {}
    for path in sorted(VARS.glob("*.yml")):
        for one in yaml.load(path.read_text(), OneOfEachName):
            assert one not in seen, f"{one} is in {seen[one]} and {path.name}"
            seen[one] = path.name
    with pytest.raises(ValueError, match="line 2: b twice"):
        yaml.load("a:\n  b: 1\n  c: 2\n  b: 3\n", OneOfEachName)


@pytest.mark.parametrize("part", DEPTH)
def test_every_entry_has_its_form(part: str) -> None:
    assert entries(part)
    for entry in entries(part):
        assert misfits(entry, {**FORMS[part], **ORIGIN}) == [], entry


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ({"version": "1.2", "source": "a", "date": "2026-11-30"}, []),
        ({"version": "1.2", "date": "2026-11-30"}, ["source is missing"]),
        ({"version": "1.2", "source": " ", "date": "2026-11-30"}, ["source is ' '"]),
        ({"version": 1.2, "source": "a", "date": "30.11.2026"}, ["version is 1.2", "date is '30.11.2026'"]),
        ({"version": "1.2", "source": "a", "date": "2026-11-30", "unverified": False}, ["unverified is False"]),
        ({"version": "1.2", "source": "a", "date": "2026-11-30", "sorce": "b"}, ["sorce is unknown"]),
    ],
)
def test_a_form_is_told_from_another(entry: dict[str, Any], wrong: list[str]) -> None:
    assert misfits(entry, {"version": is_version, **ORIGIN}) == wrong


def plain(value: Any) -> bool:
    """Tell whether a value is what JSON can hold, and no template."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and plain(item) for name, item in value.items())
    if isinstance(value, list):
        return all(plain(item) for item in value)
    return value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and "{{" not in value)


def test_values_are_plain() -> None:
    """No date object, no number that YAML has rounded (2.10), no template inside."""
    assert plain(CATALOG)


def test_versions_are_compared_as_numbers() -> None:
    assert key("580.9.1") < key("580.10.1") < key("590")
    assert belongs("2.13.0", "2.13") and not belongs("2.13.0", "2.1") and not belongs("2.1.0", "2.13")
    with pytest.raises(ValueError, match="not a version"):
        key("580.x")


# ---- order


def falling(found: list[Any]) -> bool:
    """Tell whether a list falls from each item to the next."""
    return all(earlier > later for earlier, later in pairwise(found))


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ("pytorch", "version"),
        ("builds", "cuda"),
        ("cuda_toolkits", "version"),
        ("cudnn", "version"),
        ("nccl", "version"),
        ("container_toolkit_releases", "version"),
        ("dcgm", "version"),
        ("dcgm_flavours", "minimum_driver"),
        ("dcgm_exporter", "version"),
    ],
)
def test_newest_first(part: str, field: str) -> None:
    assert falling([key(entry[field]) for entry in entries(part)])


def test_newest_first_within_and_beside_versions() -> None:
    assert falling([entry["branch"] for entry in CATALOG["driver_branches"]])
    for entry in CATALOG["driver_branches"]:
        assert falling([key(version) for version in entry["versions"]])
        assert all(branch(version) == entry["branch"] for version in entry["versions"])
    assert falling([entry["major"] for entry in CATALOG["cuda_majors"]])
    released = [entry["released"] for entry in CATALOG["pytorch"]]
    assert released == sorted(released, reverse=True)
    first = [entry["first"] for entry in CATALOG["driver_branches"]]
    assert first == sorted(first, reverse=True)
    for archive in entries("distribution_drivers"):
        assert falling([key(release["version"]) for release in archive["releases"]])
    for component in {entry["component"] for entry in CATALOG["known_bad"]}:
        assert falling([key(entry["first"]) for entry in CATALOG["known_bad"] if entry["component"] == component])
    for group in (*CATALOG["driver_packages"].values(), *CATALOG["driver_companions"].values()):
        assert falling([rule["branches"] for rule in group]), "the first rule counts: the newest has to be the first"
        assert all(later["branches"][1] < earlier["branches"][0] for earlier, later in pairwise(group))


# ---- drivers, and what they drive


def test_branches_and_generations_agree() -> None:
    for entry in CATALOG["driver_branches"]:
        assert GENERATIONS.index(entry["oldest_architecture"]) <= GENERATIONS.index(entry["newest_architecture"])
        assert entry["default_flavour"] in entry["flavours"]
        assert entry["end_of_life"] is None or entry["first"] < entry["end_of_life"]
        assert entry["end_of_life"] or entry["type"] == "NFB", "only new-feature branches have no date"
    for generation in CATALOG["architectures"]:
        driven = {
            number
            for number, entry in BRANCHES.items()
            if GENERATIONS.index(entry["oldest_architecture"]) <= GENERATIONS.index(generation["name"])
            and GENERATIONS.index(generation["name"]) <= GENERATIONS.index(entry["newest_architecture"])
        }
        last = generation["last_branch"]
        assert driven == {number for number in driven if number <= (last or 9999)}, generation["name"]
        assert last is None or last < min(BRANCHES) or last in driven
        assert last is not None or max(BRANCHES) in driven


def test_a_gpu_s_first_driver_drives_its_generation() -> None:
    for about in CATALOG["gpus"].values():
        minimum = about.get("minimum_driver")
        if minimum:
            entry = BRANCHES[branch(minimum)]
            order = [GENERATIONS.index(one) for one in (entry["oldest_architecture"], about["architecture"], entry["newest_architecture"])]
            assert order == sorted(order)
        if about.get("fabric"):
            fabric = next(entry for entry in CATALOG["fabrics"] if entry["name"] == about["fabric"])
            assert key(minimum or "0") >= key(fabric["minimum_driver"] or "0") or branch(minimum) == branch(fabric["minimum_driver"])


def test_device_ids_are_in_one_generation() -> None:
    """Ranges do not overlap, and a device of the table lies in a range of its own generation."""
    ranges = CATALOG["gpu_ranges"]
    bounds = sorted((int(entry["first"], 16), int(entry["last"], 16)) for entry in ranges)
    assert all(low <= high for low, high in bounds)
    assert all(left[1] < right[0] for left, right in pairwise(bounds))
    for identifier, about in CATALOG["gpus"].items():
        assert device(identifier)
        inside = [entry["architecture"] for entry in ranges if entry["first"] <= identifier <= entry["last"]]
        assert inside == [about["architecture"]], identifier
        generation = next(entry for entry in CATALOG["architectures"] if entry["name"] == about["architecture"])
        assert key(about["compute_capability"]) >= key(generation["compute_capability"])


# ---- packages by platform and branch


CLAIMS = [
    (name, entry["branch"])
    for name, platform in CATALOG["platforms"].items()
    for entry in CATALOG["driver_branches"]
    if platform["family"] in entry["packaged"]
    and platform.get("minimum_driver_branch", 0) <= entry["branch"] <= platform.get("maximum_driver_branch", 9999)
]


@pytest.mark.parametrize(("platform", "number"), CLAIMS)
def test_a_platform_has_names_for_each_branch_that_it_claims(platform: str, number: int) -> None:
    about = {**CATALOG["platforms"][platform], "id": platform}
    for version in BRANCHES[number]["versions"]:
        for flavour in BRANCHES[number]["flavours"]:
            found = _driver_packages.packages(CATALOG, about, {"version": version, "branch": number, "flavour": flavour}, NVSWITCH)
            assert len(found) > 8 and any("fabric" in one for one in found)
            exact = {one: numbered for one, numbered in found.items() if one not in (*about.get("dkms_needs", ()), *about.get("lock_needs", ()))}
            assert all(PACKAGE.fullmatch(one) and numbered.rpartition(":")[2].startswith(version) for one, numbered in exact.items())
            assert set(exact) <= _driver_packages.every_package(CATALOG, str(number)) <= _driver_packages.every_package(CATALOG, "auto")


def test_every_managed_platform_claims_a_branch() -> None:
    managed = {name for name, entry in CATALOG["platforms"].items() if not entry.get("unmanaged")}
    assert {name for name, _ in CLAIMS} >= managed
    assert {entry["branch"] for entry in CATALOG["driver_branches"] if entry["packaged"]} == {number for _, number in CLAIMS}


@pytest.mark.parametrize(
    ("platform", "version", "expected"),
    [
        ("ubuntu2404", "570.211.01", {"nvidia-utils-570", "nvidia-dkms-570-open", "nvidia-compute-utils-570", "nvidia-fabricmanager-570"}),
        ("ubuntu2404", "580.178.04", {"nvidia-utils-580", "nvidia-dkms-580-open", "nvidia-persistenced", "nvidia-fabricmanager"}),
        ("ubuntu2404", "590.48.01", {"libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced", "nvidia-fabricmanager"}),
        ("ubuntu2604", "620.10.01", {"libnvidia-compute", "nvidia-dkms-open", "nvidia-firmware", "nvidia-fabricmanager"}),
        ("debian12", "535.309.01", {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "nvidia-fabricmanager-535"}),
        ("debian13", "620.10.01", {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "firmware-nvidia-gsp", "nvidia-fabricmanager"}),
        ("rhel9", "570.211.01", {"nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-fabric-manager"}),
        ("rhel9", "580.178.04", {"nvidia-driver-cuda", "kmod-nvidia-open-dkms", "nvidia-fabricmanager"}),
    ],
)
def test_names_across_the_renames(platform: str, version: str, expected: set[str]) -> None:
    about = {**CATALOG["platforms"][platform], "id": platform}
    found = _driver_packages.packages(CATALOG, about, {"version": version, "branch": branch(version), "flavour": "open"}, NVSWITCH)
    assert expected <= set(found)
    carries_branch = {one for one in found if str(branch(version)) in one}
    assert bool(carries_branch) == ((platform, branch(version)) in {("ubuntu2404", 570), ("ubuntu2404", 580), ("debian12", 535)})


@pytest.mark.parametrize(
    ("platform", "version", "package", "companion"),
    [
        ("debian12", "595.91.07", "595.91.07-1", "595.91.07-1"),
        ("ubuntu2404", "595.71.05", "595.71.05-1ubuntu1", "595.71.05-1ubuntu1"),
        ("ubuntu2404", "590.48.01", "590.48.01-0ubuntu1", "590.48.01-1"),
        ("ubuntu2404", "580.178.04", "580.178.04-1ubuntu1", "580.178.04-1ubuntu1"),
        ("ubuntu2404", "580.159.04", "580.159.04-1ubuntu1", "580.159.04-1ubuntu1"),
        ("ubuntu2204", "580.126.20", "580.126.20-1ubuntu1", "580.126.20-1"),
        ("ubuntu2204", "580.105.08", "580.105.08-0ubuntu1", "580.105.08-1"),
        ("ubuntu2404", "580.65.06", "580.65.06-0ubuntu1", "580.65.06-1"),
        ("ubuntu2004", "570.211.01", "570.211.01-0ubuntu1", "570.211.01-1"),
        ("ubuntu2204", "535.309.01", "535.309.01-0ubuntu1", "535.309.01-1"),
        ("rhel9", "580.178.04", "3:580.178.04-1.el9", "580.178.04-1"),
    ],
)
def test_how_packages_are_numbered(platform: str, version: str, package: str, companion: str) -> None:
    about = {**CATALOG["platforms"][platform], "id": platform}
    found = _driver_packages.packages(CATALOG, about, {"version": version, "branch": branch(version), "flavour": "open"}, NVSWITCH)
    assert {number for one, number in found.items() if "fabric" in one} == {companion}
    assert {number for one, number in found.items() if "fabric" not in one and number} == {package}


def test_a_rule_of_numbering_holds_a_version_of_its_family() -> None:
    for family, rules in CATALOG["driver_numbering"].items():
        assert family in CATALOG["driver_packages"]
        for rule in rules:
            first, last = key(rule["first"]), key(rule["last"])
            assert first[: len(last)] <= last and {"package", "companion"} & set(rule)


# ---- platforms and keys


def test_platforms_and_their_keys() -> None:
    files: dict[str, str] = {}
    for identifier, entry in CATALOG["platforms"].items():
        assert entry["directory"] == identifier and entry["family"] in CATALOG["driver_packages"]
        assert entry["package_manager"] in CATALOG["driver_companions"] and set(entry["architectures"]) == set(entry["kernel_headers_meta"])
        # A key that is not known for sure is not trusted, and its platform not managed.
        assert entry["key_fingerprint"] or (entry["unmanaged"] and entry["unverified"])
        if entry["key_fingerprint"]:
            assert entry["key_file"][:8].upper() == entry["key_fingerprint"][-8:]
            assert files.setdefault(entry["key_file"], entry["key_fingerprint"]) == entry["key_fingerprint"]
    revoked = {entry["key_fingerprint"] for entry in CATALOG["revoked_keys"]}
    assert not revoked & {*files.values(), CATALOG["container_toolkit"]["key_fingerprint"]}
    assert len({(entry["distribution"], entry["version"]) for entry in entries("platforms")}) == len(CATALOG["platforms"])


def test_what_verifies_with_sequoia_has_a_key_that_it_accepts() -> None:
    """Since 2026-02 sqv takes no key whose own signature is made with SHA-1; 3BF863CC is one."""
    for name in ("debian13", "ubuntu2604"):
        assert CATALOG["platforms"][name]["key_file"] != "3bf863cc.pub"


def test_refused_distributions_are_none_of_those_that_are_managed() -> None:
    for entry in CATALOG["unsupported_platforms"]:
        for platform in entries("platforms"):
            mine = {platform["distribution"], *platform.get("relatives", ())} & set(entry["distributions"])
            assert not mine or platform["version"] not in entry.get("versions", [platform["version"]])
        assert entry["distributions"] or entry.get("like")


def test_other_references_to_platforms_and_branches_resolve() -> None:
    assert set(CATALOG["distribution_drivers"]) <= set(CATALOG["platforms"])
    for archive in entries("distribution_drivers"):
        # Either its releases are known, or its branches and how it numbers them.
        assert bool(archive["releases"]) != ("branches" in archive and "package_version" in archive)
        assert set(archive.get("branches", ())) <= set(BRANCHES) and falling(archive.get("branches", []))
        assert not archive.get("branches") or all(archive[f"kernel_{flavour}"] for flavour in archive["flavours"])
        for release in archive["releases"]:
            assert branch(release["version"]) in BRANCHES and release["package_version"].startswith(release["version"] + "-")
    for entry in CATALOG["signed_modules"]:
        assert set(entry["platforms"]) <= set(CATALOG["platforms"]) and set(entry["branches"]) <= set(BRANCHES)
        assert falling(entry["branches"])
        assert all(entry["flavour"] in BRANCHES[number]["flavours"] for number in entry["branches"])
    for entry in CATALOG["fabrics"]:
        for rules in CATALOG["driver_companions"].values():
            newest = rules[0]
            assert set(entry["companions"]) <= set(newest)


# ---- CUDA, and what is built with it


def test_toolkits_and_branches_agree() -> None:
    majors = {entry["major"]: entry for entry in CATALOG["cuda_majors"]}
    for entry in CATALOG["cuda_toolkits"]:
        assert key(entry["full_driver"]) >= key(majors[key(entry["version"])[0]]["minimum_driver"])[:1]
        number = branch(entry["full_driver"])
        if number >= min(BRANCHES):
            assert belongs(entry["version"], BRANCHES[number]["cuda"]), entry
    drivers = [key(entry["full_driver"])[0] for entry in CATALOG["cuda_toolkits"]]
    assert drivers == sorted(drivers, reverse=True)
    toolkits = {".".join(entry["version"].split(".")[:2]) for entry in CATALOG["cuda_toolkits"]}
    assert {entry["cuda"] for entry in BRANCHES.values()} - toolkits == {"12.7"}, "there is a toolkit for each branch but 565"


def test_builds_and_toolkits_agree() -> None:
    majors = {entry["major"]: entry for entry in CATALOG["cuda_majors"]}
    for build in CATALOG["builds"]:
        assert build["tag"] == "cu" + build["cuda"].replace(".", "")
        assert build["minimum_driver"] == majors[key(build["cuda"])[0]]["minimum_driver"]
        first = [entry for entry in CATALOG["cuda_toolkits"] if belongs(entry["version"], build["cuda"])][-1]
        assert build["full_driver"] == first["full_driver"]
        for made_for in build["capabilities"]:
            # What a CUDA no longer compiles for cannot be in a build with it.
            assert key(made_for.partition("+")[0]) >= key(majors[key(build["cuda"])[0]]["oldest_capability"])


def test_releases_of_pytorch_and_what_is_in_them() -> None:
    tags = {entry["tag"] for entry in CATALOG["builds"]}
    cudnn = {entry["version"]: entry for entry in CATALOG["cudnn"]}
    nccl = {entry["version"] for entry in CATALOG["nccl"]}
    cuda = {entry["tag"]: entry["cuda"].partition(".")[0] for entry in CATALOG["builds"]}
    for release in CATALOG["pytorch"]:
        assert set(release["builds"]) <= tags | {"cpu"} and list(release["builds"])[-1] == "cpu" and release["builds"]["cpu"] == {}
        assert set(release.get("capabilities", {})) <= set(release["builds"])
        for tag, about in release["builds"].items():
            assert about.get("nccl") in {None, *nccl}
            if about.get("cudnn"):
                assert cuda[tag] in cudnn[about["cudnn"]]["cuda_majors"], (release["version"], tag)
    assert {tag for release in CATALOG["pytorch"] for tag in release["builds"]} == tags | {"cpu"}, "a build that is in no release is in nobody's way"


def test_flavours_of_dcgm() -> None:
    known = {str(entry["major"]) for entry in CATALOG["cuda_majors"]}
    assert {entry["cuda"] for entry in [*CATALOG["dcgm_flavours"], *CATALOG["dcgm_also"]]} <= known
    assert {entry["major"] for entry in CATALOG["dcgm"]} == {entry["major"] for entry in CATALOG["dcgm_packages"]}
    cores = {entry["core"] for entry in CATALOG["dcgm_packages"]}
    assert {one for entry in CATALOG["dcgm_packages"] for one in entry["conflicts"]} == cores, "each is in the way of the other"


def test_bad_versions_end_before_the_first_good_one() -> None:
    for entry in CATALOG["known_bad"]:
        assert key(entry["first"]) <= key(entry["last"]) < key(entry["first_good"] or "9999")
        assert entry["first_good"] or entry.get("unverified")


def test_policy_of_a_variable_is_one() -> None:
    policy = CATALOG["nccl_policy"]
    names = [name for kind in ("fabric", "unwritten", "never", "tune", "removed") for name in policy[kind]]
    assert len(names) == len(set(names)) > 50
    assert {"NCCL_IB_GID_INDEX", "NCCL_TOPO_FILE"} == set(policy["unwritten"])
    assert {"NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE"} <= set(policy["never"])
