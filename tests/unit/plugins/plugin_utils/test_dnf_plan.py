# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for hosts that dnf manages: packages, repository, module stream, and locks of versions."""

from __future__ import annotations

import configparser
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _dnf_plan, _managed_plan, _resolve
from fixtures.stack import H100, TODAY, V100, catalog, gpu, observed

KERNEL = "5.14.0-570.el9.x86_64"
CUDA = "3:580.178.04-1.el9"


def host(*ids: str, distribution: str = "rocky", version: str = "9.6", locks: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a host of the RHEL family."""
    facts = observed([gpu(number, device) for number, device in enumerate(ids)], distribution, version, **more)
    facts["host"] |= {"package_manager": "dnf", "kernel": KERNEL, "like": ["rhel", "centos", "fedora"]}
    facts["updates"] |= {"versionlock": locks or []}
    return facts


def plan(facts: dict[str, Any], **request: Any) -> dict[str, Any]:
    """Return the plan, or the refusal."""
    return _resolve.resolve_stack(catalog(), {"driver": "580", **request}, None, None, facts, None, TODAY)


def items(made: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Return what is desired of the driver's managed things of a kind, by id."""
    return {item["id"]: item["desired"] for item in made["managed"] if item["role"] == "nvidia_driver" and item["kind"] == kind}


@pytest.mark.parametrize(
    ("distribution", "version"), [("rocky", "9.6"), ("rhel", "9.4"), ("almalinux", "9.7"), ("centos", "9"), ("ol", "9.5")]
)
def test_a_whole_plan_for_el_9(distribution: str, version: str) -> None:
    made = plan(host(H100, distribution=distribution, version=version))
    assert made["platform"]["id"] == "rhel9"
    exact = {
        "nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml", "nvidia-kmod-common",
        "nvidia-modprobe", "kmod-nvidia-open-dkms", "nvidia-persistenced",
    }  # fmt: skip
    assert made["packages"]["nvidia_driver"] == {**dict.fromkeys(exact, CUDA), "python3-dnf-plugin-versionlock": ""}
    assert made["platform"]["kernel_headers"].replace("{kernel}", KERNEL) == f"kernel-devel-{KERNEL}"
    (source,) = made["repositories"]
    assert (source["path"], source["key_path"], source["stream"]) == (_dnf_plan.REPOSITORY, _dnf_plan.KEYRING, "nvidia-driver:580-open")
    assert source["key_url"] == "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/D42D0685.pub"
    assert items(made, "keyring")[_dnf_plan.KEYRING]["fingerprints"] == ["610C7B14E068A878070DA4E99CD0A493D42D0685"]
    assert set(items(made, "file")) == {_dnf_plan.REPOSITORY, _managed_plan.NOUVEAU}
    assert set(items(made, "package")) == exact
    # Stream and locks change with the packages, and go back with them.
    assert set(made["transaction"]["files"]) == {_dnf_plan.STREAM}
    assert set(made["transaction"]["locks"]) == set(items(made, "lock")) == exact
    assert made["transaction"]["headers"] == {f"kernel-devel-{KERNEL}": f"/lib/modules/{KERNEL}/build"}
    assert "nvidia_driver" in made["todo"] and made["components"]["driver"]["action"] == "install"


def test_packages_and_lists_both_have_to_be_signed() -> None:
    made = plan(host(H100), mirror="http://mirror.example/nvidia", mirror_key_fingerprint="ab" * 20)
    text = items(made, "file")[_dnf_plan.REPOSITORY]["content"]
    assert text == made["repositories"][0]["content"]
    parsed = configparser.ConfigParser()
    parsed.read_string(text)
    assert parsed.sections() == ["gpu-fleet-nvidia"]
    section = dict(parsed["gpu-fleet-nvidia"])
    assert (section["gpgcheck"], section["repo_gpgcheck"], section["enabled"]) == ("1", "1", "1")
    assert section["gpgkey"] == "file://" + made["repositories"][0]["key_path"] and int(section["priority"]) < 99
    assert section["baseurl"] == "http://mirror.example/nvidia/compute/cuda/repos/rhel9/x86_64/"


@pytest.mark.parametrize(("device", "stream", "module"), [(H100, "580-open", "kmod-nvidia-open-dkms"), (V100, "580-dkms", "kmod-nvidia-latest-dkms")])
def test_failure_06_the_stream_is_always_named_by_branch_and_flavour(device: str, stream: str, module: str) -> None:
    made = plan(host(device))
    assert made["repositories"][0]["stream"] == f"nvidia-driver:{stream}"
    state = items(made, "stream")["nvidia-driver"]
    assert state["stream"] == stream and made["transaction"]["files"][_dnf_plan.STREAM] == state["content"]
    assert state["content"] == f"[nvidia-driver]\nname=nvidia-driver\nstream={stream}\nprofiles=\nstate=enabled\n"
    assert module in made["packages"]["nvidia_driver"]


def test_a_stream_that_somebody_switched_differs() -> None:
    facts = host(H100, managed={"stream:nvidia-driver": {"stream": "580-dkms"}})
    assert "stream:nvidia-driver" in plan(facts)["differs"]["nvidia_driver"]
    facts["managed"]["stream:nvidia-driver"]["stream"] = "580-open"
    assert "stream:nvidia-driver" not in plan(facts)["differs"]["nvidia_driver"]


def test_a_repository_without_modules_has_no_stream() -> None:
    known = catalog()
    about = {**known["platforms"]["rhel10"], "id": "rhel10", "architecture": "x86_64", "key_fingerprint": "A" * 40}
    made = _resolve.resolve_stack(known, {"driver": "580"}, None, about, host(H100, version="10.1"), None, TODAY)
    assert "stream" not in made["repositories"][0] and not items(made, "stream") and made["transaction"]["files"] == {}
    assert made["packages"]["nvidia_driver"]["nvidia-driver-cuda"] == "3:580.178.04-1.el10"


def test_failure_03_locks_hold_the_whole_closure_at_its_version() -> None:
    made = plan(host(H100, nvswitches=4))
    locks = items(made, "lock")
    exact = {name: version for name, version in made["packages"]["nvidia_driver"].items() if version}
    assert "nvidia-fabricmanager" in exact and set(locks) == set(exact)
    for name, version in exact.items():
        nevra = f"{name}-{version if ':' in version else '0:' + version}.x86_64"
        assert locks[name]["lines"] == [nevra.removesuffix("x86_64") + "*"]


@pytest.mark.parametrize(
    ("lines", "differs"),
    [
        ([f"nvidia-modprobe-{CUDA}.*"], False),
        ([], True),
        # Each line of a name lets its own version in.
        ([f"nvidia-modprobe-{CUDA}.*", "nvidia-modprobe-3:570.195.03-1.el9.*"], True),
        (["!nvidia-modprobe-3:580.195.03-1.el9.*"], True),
    ],
)
def test_a_package_is_locked_by_its_one_line_and_no_other(lines: list[str], differs: bool) -> None:
    made = plan(host(H100, managed={"lock:nvidia-modprobe": {"lines": lines}}))
    assert ("lock:nvidia-modprobe" in made["differs"]["nvidia_driver"]) is differs


def test_every_lock_and_stream_is_looked_at() -> None:
    made = plan(host(H100, nvswitches=4))
    ids = {(item["kind"], item["id"]) for item in _resolve.managed_ids(catalog(), {"driver": "580"})}
    assert {(item["kind"], item["id"]) for item in made["managed"]} <= ids


def test_parts_of_other_branches_go_with_the_change() -> None:
    """No dependency says so where a branch simply has fewer packages."""
    there = {"nvidia-driver-cuda": "3:590.48.01-1.el9", "libnvidia-gpucomp": "3:590.48.01-1.el9", "kmod-nvidia-latest-dkms": "3:590.48.01-1.el9",
             "nvidia-driver-NVML": "3:535.309.01-1.el9", "nvidia-settings": "3:590.48.01-1.el9", "nvidia-container-toolkit": "1.18.2-1"}  # fmt: skip
    facts = host(H100)
    facts["driver"] |= {"owner": "nvidia", "packages": [{"name": name, "version": version} for name, version in there.items()]}
    change = plan(facts)["transaction"]
    # What is no part of a compute-only driver, somebody may have wanted.
    assert change["absent"] == ["kmod-nvidia-latest-dkms", "nvidia-driver-NVML"]
    assert set(change["absent"]) <= set(change["may_remove"])
