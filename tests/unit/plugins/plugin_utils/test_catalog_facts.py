# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog says what the facts say that it was made from, but for the corrections that are named here."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import branch, key
from fixtures.stack import VARS, catalog

CATALOG = catalog()
FACTS = VARS.parents[4] / "shared" / "facts"
pytestmark = pytest.mark.skipif(not FACTS.is_dir(), reason="the facts that the catalog was made from are not beside this checkout")


@cache
def fact(name: str) -> Any:
    """Return a file of facts."""
    return yaml.safe_load((FACTS / name).read_text())


def test_drivers() -> None:
    facts = {entry["branch"]: entry for entry in fact("cuda_driver.yml")["driver_branches"] if entry["branch"] >= 535}
    assert {entry["branch"] for entry in CATALOG["driver_branches"]} == set(facts)
    for entry in CATALOG["driver_branches"]:
        known = facts[entry["branch"]]
        # The notes of CUDA 12.6 update 3 name a release that is newer than the latest of 560 in the other list.
        assert known["latest"] == entry["versions"][1 if entry["branch"] == 560 else 0]
        assert (entry["type"], entry["cuda"], entry["first"]) == (known["type"], known["cuda"], str(known["first"]))
        assert entry["end_of_life"] == (str(known["eol"]) if "eol" in known else None)
        assert entry["oldest_architecture"] == known.get("min_arch", "maxwell")
        assert ("proprietary" in entry["flavours"]) == (known["open_modules"] != "only")
        assert entry["default_flavour"] == ("proprietary" if known["open_modules"] == "optional" else "open")
        assert entry.get("unverified", False) == known.get("unverified", False)


def test_every_driver_that_a_toolkit_names_is_a_version_of_its_branch() -> None:
    versions = {version for entry in CATALOG["driver_branches"] for version in entry["versions"]}
    # Numbers of the notes for which no package was seen anywhere.
    never = {"570.26", "535.86.09"}
    named = {entry["min_driver"] for entry in fact("cuda_driver.yml")["cuda_toolkits"]}
    assert {one for one in named if branch(one) >= 535 and "." in one} - versions == never


def test_toolkits() -> None:
    facts = fact("cuda_driver.yml")
    known = {entry["cuda"]: entry for entry in facts["cuda_toolkits"] if key(entry["cuda"]) >= (11, 0, 2)}
    assert {entry["version"] for entry in CATALOG["cuda_toolkits"]} == set(known)
    for entry in CATALOG["cuda_toolkits"]:
        assert entry["full_driver"] == known[entry["version"]]["min_driver"]
        assert entry.get("unverified", False) == known[entry["version"]].get("unverified", False)
    majors = {str(entry["major"]): entry["minimum_driver"] for entry in CATALOG["cuda_majors"]}
    assert majors == {major: about["min"] for major, about in facts["minor_version_compatibility"].items() if major != "caveats"}


def test_generations() -> None:
    facts = {entry["arch"]: entry for entry in fact("cuda_driver.yml")["architectures"]}
    modules = fact("cuda_driver.yml")["kernel_module_flavour"]
    for entry in CATALOG["architectures"]:
        known = facts[entry["name"]]
        assert entry["compute_capability"] == known["cc"][0] and entry["first_cuda"] == known["first_cuda"]
        assert entry["last_branch"] == (known.get("last_driver_branch") if known.get("last_driver_branch") != "ongoing" else None)
        assert (entry["last_cuda"] is None) == (known["last_cuda"] == "ongoing")
        assert (entry["flavours"] == ["open"]) == (entry["name"] in modules["open"]["required_for"])


def test_builds_and_releases_of_pytorch() -> None:
    facts = fact("pytorch.yml")
    # Whether cu134 is published for a release is not confirmed.
    assert {build["tag"] for build in CATALOG["builds"]} == {*facts["driver_needed"], "cu117"} - {"cu134"}
    for build in CATALOG["builds"]:
        if build["tag"] in facts["driver_needed"]:
            needed = facts["driver_needed"][build["tag"]]
            assert (build["minimum_driver"], build["full_driver"]) == (needed["min_driver"], needed["full"])
    releases = {entry["torch"]: entry for entry in facts["releases"]}
    assert [entry["version"] for entry in CATALOG["pytorch"]] == list(releases)
    for release in CATALOG["pytorch"]:
        known = releases[release["version"]]
        assert (release["python"], set(release["builds"])) == (known["python"], {*known["tags"], "cpu"})
        assert next(iter(release["builds"])) == known["default_tag"]
        default = release["builds"][known["default_tag"]]
        assert (default["cudnn"], default["nccl"]) == (known["pypi"]["cudnn"], known["pypi"]["nccl"])
        for tag, about in known.get("per_tag", {}).items():
            assert release["builds"][tag]["cudnn"] == about["cudnn"]
            assert release["builds"][tag]["nccl"] == about.get("nccl", default["nccl"] if tag == known["default_tag"] else None)


def test_what_the_code_of_the_builds_was_made_for() -> None:
    lists = fact("pytorch.yml")["wheel_arch_lists"]
    for build in CATALOG["builds"]:
        known = lists[build["tag"]]
        if build["tag"] != "cu128":
            assert build["capabilities"] == known["sm"]
            assert build.get("capabilities_sbsa") == known.get("aarch64")
    old, volta, doubtful = lists["cu128"]
    assert next(build for build in CATALOG["builds"] if build["tag"] == "cu128")["capabilities"] == old["sm"] == doubtful["sm"][1:]
    with_volta = {release["version"] for release in CATALOG["pytorch"] if release.get("capabilities", {}).get("cu128") == volta["sm"]}
    assert with_volta == {"2.8.0", "2.9.0", "2.9.1", "2.10.0"} and volta["torch"] == "2.8-2.10"


def test_cudnn() -> None:
    facts = fact("cudnn.yml")
    known = {entry["version"]: entry for entry in CATALOG["cudnn"]}
    for version in facts["all_9x_builds_cu12"]:
        assert "12" in known[version]["cuda_majors"]
    for version in facts["all_9x_builds_cu13_extra"]:
        assert known[version]["cuda_majors"] == ["13"]
    assert {version for version in known if version.startswith("9.")} == {*facts["all_9x_builds_cu12"], *facts["all_9x_builds_cu13_extra"]}
    assert max((entry["version"] for entry in CATALOG["cudnn"] if "11" in entry["cuda_majors"]), key=key) == "9.10.2.21"
    assert min((entry["version"] for entry in CATALOG["cudnn"] if "13" in entry["cuda_majors"]), key=key) == "9.12.0.46"
    assert max((entry["version"] for entry in CATALOG["cudnn"] if entry["oldest_capability"] == "5.0"), key=key) == "9.10.2.21"
    for entry in CATALOG["cudnn_packages"]:
        names = facts["packages"][entry["package_manager"]]["v9"]
        for field, wanted in (("runtime", "runtime"), ("development", "dev"), ("headers", "headers")):
            assert entry[field].replace("{major}", "{12|13}") == names[wanted]


def test_gpus() -> None:
    for about in fact("gpu_arch.yml")["gpus"]:
        for device in about.get("pci_ids", []):
            found = CATALOG["gpus"][device]
            assert found["compute_capability"] == about["cc"]
            assert found["architecture"] == about["arch"].replace("blackwell_ultra", "blackwell")
            assert found.get("grace", False) == ("Grace" in about.get("cpu", ""))
            # Corrections: HGX B200 needs more than the first driver of its branch; B300 is said to run from 575 on, and 580 is what to use.
            minimum = {"B200 SXM": "570.133.20", "B300 SXM": "580"}.get(found["model"], about.get("driver_min"))
            assert found.get("minimum_driver") == (minimum and str(minimum))
            managed = str(about.get("fabricmanager", ""))
            expected = "nvlink5" if "nvlsm" in managed else "rack" if about.get("imex") else "nvswitch" if "SXM" in found["model"] else None
            assert found.get("fabric") == expected, found


def test_keys() -> None:
    """The folder of Ubuntu 26.04 has a key of its own, which the facts do not know; that of EL 10 is known by its name alone."""
    keys = fact("repos.yml")["cuda_network_repo"]["keys"]
    known = {about["fingerprint"]: about["file"] for about in keys.values()}
    for name, entry in CATALOG["platforms"].items():
        if name not in ("ubuntu2604", "rhel10"):
            assert known[entry["key_fingerprint"]] == entry["key_file"]
            assert (name == "debian13") == (entry["key_fingerprint"] == keys["debian13"]["fingerprint"])
            assert (entry["package_manager"] == "dnf") == (entry["key_fingerprint"] == keys["rpm_current"]["fingerprint"])
    assert [(entry["key_file"], entry["key_fingerprint"]) for entry in CATALOG["revoked_keys"]] == [
        (keys["old_revoked"]["file"], keys["old_revoked"]["fingerprint"])
    ]
    folders = {about["dir"]: about for about in fact("repos.yml")["cuda_network_repo"]["distros"].values() if isinstance(about, dict)}
    for name, entry in CATALOG["platforms"].items():
        assert entry.get("unverified", False) or not folders[name].get("unverified")
        assert entry.get("minimum_driver_branch", 0) >= folders[name].get("min_driver_branch", 0)
        assert ("streams" in entry) == folders[name].get("modularity", False)


def test_names_of_companions() -> None:
    facts = fact("repos.yml")["fabric_and_nvlink"]
    for manager, part in (("apt", "apt_nvidia_repo"), ("dnf", "rpm_nvidia_repo")):
        newest, oldest = CATALOG["driver_companions"][manager][0], CATALOG["driver_companions"][manager][-1]
        for rule, known in ((newest, facts[part]["branch >= 580"]), (oldest, facts[part]["branch < 580"])):
            for field, fact_name in (("fabric_manager", "fabricmanager"), ("nscq", "nscq")):
                assert rule[field] == known[fact_name].replace("{B}", "{branch}")
        assert newest["imex"] == facts[part]["branch >= 580"]["imex"]
    nvlink5 = next(entry for entry in CATALOG["fabrics"] if entry["name"] == "nvlink5")
    assert set(nvlink5["packages"]) == {"nvlsm", "infiniband-diags"} < set(facts["nvlink5"]["packages"])
    assert nvlink5["kernel_modules"] == facts["nvlink5"]["kernel_modules"]


def test_names_of_ubuntu_s_packages_since_590() -> None:
    listed = set(fact("repos.yml")["driver_packages"]["ubuntu_nvidia_repo"]["branchless_names_since_590"])
    newest = CATALOG["driver_packages"]["ubuntu"][0]
    names = {name for field in ("user_space", "kernel_open", "kernel_proprietary", "persistence") for name in newest[field]}
    assert names <= listed and newest["branches"] == [590, 620]


def test_container_toolkit_and_dcgm() -> None:
    facts = fact("repos.yml")
    toolkit = CATALOG["container_toolkit"]
    known = facts["container_toolkit"]
    assert CATALOG["container_toolkit_releases"][0]["version"] == known["current"].split()[0]
    for field in ("packages", "key_fingerprint", "obsolete"):
        assert toolkit[field] == known[field]
    assert toolkit["cdi_units"] == known["cdi"]["units"] and toolkit["cdi_since"].startswith(known["cdi"]["since"])
    four, three = CATALOG["dcgm_packages"]
    assert four["core"] == facts["dcgm"]["v4"]["core"] and three["core"] == facts["dcgm"]["v3"]["package"]
    for flavour in CATALOG["dcgm_flavours"]:
        assert four["flavour"].format(cuda=flavour["cuda"]) in facts["dcgm"]["v4"]["per_cuda"]
    assert {name.format(cuda="13") for name in four["proprietary"]} <= set(facts["dcgm"]["v4"]["proprietary"])
    versions = {entry["major"]: entry["version"] for entry in reversed(CATALOG["dcgm"])}
    assert versions == {3: facts["dcgm"]["v3"]["last"], 4: facts["dcgm"]["v4"]["current"].split()[0]}
    seen = {one.partition("-")[0] for one in facts["dcgm_exporter"]["package_versions_seen"]}
    assert {entry["version"] for entry in CATALOG["dcgm_exporter"]} == seen


def test_policy_of_nccl_s_variables() -> None:
    for name, about in fact("nccl_vars.yml")["vars"].items():
        listed = [kind for kind in ("fabric", "unwritten", "never", "tune", "removed") if name in CATALOG["nccl_policy"][kind]]
        assert listed == ([] if about["policy"] == "neutral" else ["unwritten"] if name in CATALOG["nccl_policy"]["unwritten"] else [about["policy"]])
