# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog is well formed, in order, closed under its own references, and says where each entry comes from."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, branch, key
from fixtures.stack import VARS, catalog

CATALOG = catalog()
DAY = re.compile(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}")
FACTS = VARS.parents[4] / "shared" / "facts"
with_facts = pytest.mark.skipif(not FACTS.is_dir(), reason="the facts that the catalog was made from are not beside this checkout")

ENTRIES: dict[str, list[dict[str, Any]]] = {
    "platforms": list(CATALOG["platforms"].values()),
    "unsupported_platforms": CATALOG["unsupported_platforms"],
    "driver_branches": CATALOG["driver_branches"],
    "distribution_drivers": list(CATALOG["distribution_drivers"].values()),
    "architectures": CATALOG["architectures"],
    "gpus": list(CATALOG["gpus"].values()),
    "gpu_ranges": CATALOG["gpu_ranges"],
    "builds": CATALOG["builds"],
    "pytorch": CATALOG["pytorch"],
    "nccl_policy": [CATALOG["nccl_policy"]],
}


def test_every_part_is_assembled() -> None:
    """What the files of the folder hold is in the one mapping, under the same name or a shorter one."""
    names = {name for path in VARS.glob("*.yml") for name in yaml.safe_load(path.read_text())}
    used = set(re.findall(r"__gpu_stack_[a-z_]+", (VARS / "catalog.yml").read_text()))
    assert names - {"__gpu_stack_request"} == used
    assert set(CATALOG) == {*ENTRIES, "schema", "driver_packages"}


@pytest.mark.parametrize("part", ENTRIES)
def test_every_entry_says_where_it_comes_from(part: str) -> None:
    assert ENTRIES[part]
    for entry in ENTRIES[part]:
        assert isinstance(entry["source"], str) and entry["source"], entry
        assert DAY.fullmatch(entry["date"]), entry


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


def test_newest_first() -> None:
    branches = [entry["branch"] for entry in CATALOG["driver_branches"]]
    assert branches == sorted(set(branches), reverse=True)
    for entry in CATALOG["driver_branches"]:
        assert entry["versions"] == sorted(set(entry["versions"]), key=key, reverse=True)
        assert all(branch(version) == entry["branch"] for version in entry["versions"])
    releases = [entry["version"] for entry in CATALOG["pytorch"]]
    assert releases == sorted(set(releases), key=key, reverse=True)
    assert [entry["released"] for entry in CATALOG["pytorch"]] == sorted((entry["released"] for entry in CATALOG["pytorch"]), reverse=True)
    tags = [key(entry["cuda"]) for entry in CATALOG["builds"]]
    assert tags == sorted(set(tags), reverse=True)


def test_references_resolve() -> None:
    generations = [entry["name"] for entry in CATALOG["architectures"]]
    for entry in CATALOG["driver_branches"]:
        assert generations.index(entry["oldest_architecture"]) <= generations.index(entry["newest_architecture"])
        assert entry["type"] in ("LTSB", "PB", "NFB") and set(entry["flavours"]) <= {"open", "proprietary"}
    assert {entry["architecture"] for entry in [*CATALOG["gpus"].values(), *CATALOG["gpu_ranges"]]} <= set(generations)
    tags = {entry["tag"] for entry in CATALOG["builds"]}
    for release in CATALOG["pytorch"]:
        assert set(release["builds"]) <= tags | {"cpu"} and "cpu" in release["builds"]
    for identifier, entry in CATALOG["platforms"].items():
        assert entry["directory"] == identifier and entry["family"] in CATALOG["driver_packages"]
        assert re.fullmatch(r"[0-9A-F]{40}", entry["key_fingerprint"])
        assert entry["key_file"][:8].upper() == entry["key_fingerprint"][-8:]
    assert set(CATALOG["distribution_drivers"]) <= set(CATALOG["platforms"])


@pytest.mark.parametrize("platform", CATALOG["platforms"])
def test_an_installable_branch_has_package_names(platform: str) -> None:
    table, entry = CATALOG["driver_packages"], CATALOG["platforms"][platform]
    for found in CATALOG["driver_branches"]:
        if found["packaged"] and found["branch"] >= entry.get("minimum_driver_branch", 0):
            for rules in (table[entry["family"]], table["companions"]):
                assert [rule for rule in rules if rule["branches"][0] <= found["branch"] <= rule["branches"][1]]


def test_device_ids_are_in_one_generation() -> None:
    """Ranges do not overlap, and a device of the table lies in a range of its own generation."""
    ranges = CATALOG["gpu_ranges"]
    assert all(re.fullmatch(r"[0-9a-f]{4}", bound) for entry in ranges for bound in (entry["first"], entry["last"]))
    bounds = sorted((int(entry["first"], 16), int(entry["last"], 16)) for entry in ranges)
    assert all(low <= high for low, high in bounds)
    assert all(left[1] < right[0] for left, right in pairwise(bounds))
    for device, about in CATALOG["gpus"].items():
        inside = [entry["architecture"] for entry in ranges if entry["first"] <= device <= entry["last"]]
        assert inside == [about["architecture"]], device


def test_policy_of_a_variable_is_one() -> None:
    policy = CATALOG["nccl_policy"]
    names = [name for kind in ("fabric", "unwritten", "never", "tune", "removed") for name in policy[kind]]
    assert len(names) == len(set(names)) > 50
    assert {"NCCL_IB_GID_INDEX", "NCCL_TOPO_FILE"} == set(policy["unwritten"])
    assert {"NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_DISABLE", "NCCL_P2P_DISABLE"} <= set(policy["never"])


def fact(name: str) -> Any:
    """Return a file of facts."""
    return yaml.safe_load((FACTS / name).read_text())


@with_facts
def test_drivers_agree_with_the_facts() -> None:
    facts = {entry["branch"]: entry for entry in fact("cuda_driver.yml")["driver_branches"]}
    for entry in CATALOG["driver_branches"]:
        known = facts[entry["branch"]]
        assert entry["versions"][0] == known["latest"]
        assert (entry["type"], entry["cuda"]) == (known["type"], known["cuda"])
        assert (entry["first"], entry["end_of_life"]) == (str(known["first"]), str(known["eol"]))


@with_facts
def test_builds_agree_with_the_facts() -> None:
    facts = fact("pytorch.yml")
    for build in CATALOG["builds"]:
        needed = facts["driver_needed"][build["tag"]]
        assert (build["minimum_driver"], build["full_driver"]) == (needed["min_driver"], needed["full"])
    releases = {entry["torch"]: entry for entry in facts["releases"]}
    for release in CATALOG["pytorch"]:
        known = releases[release["version"]]
        assert (release["python"], set(release["builds"])) == (known["python"], {*known["tags"], "cpu"})
        assert next(iter(release["builds"])) == known["default_tag"]
        for tag, about in known.get("per_tag", {}).items():
            assert release["builds"][tag] == {"cudnn": about["cudnn"], "nccl": about.get("nccl")}


@with_facts
def test_gpus_and_keys_agree_with_the_facts() -> None:
    for about in fact("gpu_arch.yml")["gpus"]:
        for device in about.get("pci_ids", []):
            found = CATALOG["gpus"][device]
            assert found["compute_capability"] == about["cc"]
            assert found["architecture"] == about["arch"].replace("blackwell_ultra", "blackwell")
            assert found.get("grace", False) == ("Grace" in about.get("cpu", ""))
    keys = fact("repos.yml")["cuda_network_repo"]["keys"]
    for name, entry in CATALOG["platforms"].items():
        known = keys["debian13" if name == "debian13" else "apt_current"]
        assert (entry["key_file"], entry["key_fingerprint"]) == (known["file"], known["fingerprint"])


@with_facts
def test_policy_agrees_with_the_facts() -> None:
    for name, about in fact("nccl_vars.yml")["vars"].items():
        listed = [kind for kind in ("fabric", "unwritten", "never", "tune", "removed") if name in CATALOG["nccl_policy"][kind]]
        assert listed == ([] if about["policy"] == "neutral" else ["unwritten"] if name in CATALOG["nccl_policy"]["unwritten"] else [about["policy"]])


def test_versions_are_compared_as_numbers() -> None:
    assert key("580.9.1") < key("580.10.1") < key("590")
    assert belongs("2.13.0", "2.13") and not belongs("2.13.0", "2.1") and not belongs("2.1.0", "2.13")
    with pytest.raises(ValueError, match="not a version"):
        key("580.x")
