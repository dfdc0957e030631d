# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for hosts that dnf manages: packages, repository, module stream, and locks of versions."""

from __future__ import annotations

import configparser
import fnmatch
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
    """Return the plan, or the refusal, as if the platform were managed already."""
    known = catalog()
    known["platforms"]["rhel9"].pop("unmanaged", None)
    return _resolve.resolve_stack(known, {"driver": "580", **request}, None, None, facts, None, TODAY)


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
    assert set(items(made, "file")) == {_dnf_plan.REPOSITORY, _dnf_plan.STREAM, _dnf_plan.LOCKS, _managed_plan.NOUVEAU}
    assert set(items(made, "package")) == exact
    # Stream and locks change with the packages, and go back with them.
    assert set(made["transaction"]["files"]) == {_dnf_plan.STREAM, _dnf_plan.LOCKS}
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
    state = items(made, "file")[_dnf_plan.STREAM]
    assert state["content"] == f"[nvidia-driver]\nname=nvidia-driver\nstream={stream}\nprofiles=\nstate=enabled\n"
    assert module in made["packages"]["nvidia_driver"]


def test_a_stream_that_somebody_switched_differs() -> None:
    made = plan(host(H100))
    name = f"file:{_dnf_plan.STREAM}"
    facts = host(H100, managed={name: {**items(made, "file")[_dnf_plan.STREAM], "sha256": "0" * 64}})
    assert name in plan(facts)["differs"]["nvidia_driver"]
    facts["managed"][name]["sha256"] = items(made, "file")[_dnf_plan.STREAM]["sha256"]
    assert name not in plan(facts)["differs"]["nvidia_driver"]


def test_a_repository_without_modules_has_no_stream() -> None:
    known = catalog()
    about = {**known["platforms"]["rhel10"], "id": "rhel10", "architecture": "x86_64", "key_fingerprint": "A" * 40}
    made = _resolve.resolve_stack(known, {"driver": "580"}, None, about, host(H100, version="10.1"), None, TODAY)
    assert "stream" not in made["repositories"][0] and _dnf_plan.STREAM not in items(made, "file")
    assert made["packages"]["nvidia_driver"]["nvidia-driver-cuda"] == "3:580.178.04-1.el10"


def test_locks_hold_the_whole_closure_at_its_version() -> None:
    made = plan(host(H100, nvswitches=4))
    lines = [line for line in items(made, "file")[_dnf_plan.LOCKS]["content"].splitlines() if not line.startswith("#")]
    exact = {name: version for name, version in made["packages"]["nvidia_driver"].items() if version}
    assert "nvidia-fabricmanager" in exact and len(lines) == len(exact)
    for name, version in exact.items():
        nevra = f"{name}-{version if ':' in version else '0:' + version}.x86_64"
        assert [line for line in lines if fnmatch.fnmatchcase(nevra, line)] == [nevra.removesuffix("x86_64") + "*"]


@pytest.mark.parametrize(
    ("present", "kept"),
    [
        ([], []),
        (["kernel-core-0:5.14.0-570.el9.*"], ["kernel-core-0:5.14.0-570.el9.*"]),
        (["!kernel-core-0:5.14.0-580.el9.*", "glibc-0:2.34-1.el9.*"], ["!kernel-core-0:5.14.0-580.el9.*", "glibc-0:2.34-1.el9.*"]),
        (["htop"], ["htop"]),
        # Ours of another day: another version, another branch's name for the same thing, a package of the other flavour.
        (["nvidia-driver-cuda-3:570.195.03-1.el9.*", "nvidia-fabric-manager-0:570.195.03-1.*", "kmod-nvidia-latest-dkms-3:580.1-1.el9.*"], []),
        (["!nvidia-modprobe-3:580.178.04-1.el9.*", "nvidia-modprobe"], []),
    ],
)
def test_other_locks_stay_and_older_ones_of_ours_go(present: list[str], kept: list[str]) -> None:
    def lines(locks: list[str]) -> list[str]:
        text = items(plan(host(H100, locks=locks)), "file")[_dnf_plan.LOCKS]["content"]
        return [line for line in str(text).splitlines() if not line.startswith("#")]

    ours = lines([])
    assert lines(present) == [*kept, *ours]
    assert lines(lines(present)) == [*kept, *ours], "a second look finds nothing to write"
