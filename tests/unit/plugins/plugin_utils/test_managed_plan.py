# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the managed things hold: files as their readers want them, hashes of them, and what counts as a difference."""

from __future__ import annotations

import configparser
import hashlib
import re
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _managed_plan, _resolve
from fixtures.stack import H100, V100, catalog, gpu, h100, observed, plan, resolve

FINGERPRINT = "ab" * 20


def content(path: str, request: dict[str, Any] | None = None, facts: dict[str, Any] | None = None) -> str:
    """Return the planned text of a file; its hash must be the text's."""
    made = plan({"driver": "580", **(request or {})}, facts or h100())
    desired: dict[str, Any] = next(item["desired"] for item in made["managed"] if item["id"] == path)
    assert desired["sha256"] == hashlib.sha256(desired["content"].encode()).hexdigest()
    assert (desired["mode"], desired["owner"], desired["group"], desired["state"]) == ("0644", "root", "root", "file")
    assert desired["content"].startswith((_managed_plan.HEADER, _managed_plan.HEADER.replace("#", "//"))) and desired["content"].endswith("\n")
    return str(desired["content"])


def deb822(text: str) -> dict[str, str]:
    """Return the fields of a stanza."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize(
    ("host", "folder", "key"),
    [
        ({"distribution": "debian", "version": "12"}, "debian12", "3bf863cc.pub"),
        ({"distribution": "debian", "version": "13"}, "debian13", "8793F200.pub"),
        ({"distribution": "ubuntu", "version": "24.04"}, "ubuntu2404", "3bf863cc.pub"),
    ],
)
@pytest.mark.parametrize(("machine", "part", "architecture"), [("x86_64", "x86_64", "amd64"), ("aarch64", "sbsa", "arm64")])
@pytest.mark.parametrize("mirror", [None, "http://mirror.example/nvidia/"])
def test_the_repository(host: dict[str, str], folder: str, key: str, machine: str, part: str, architecture: str, mirror: str | None) -> None:
    facts = observed([gpu(0, H100)])
    facts["host"] = {**facts["host"], **host, "architecture": machine}
    base = "http://mirror.example/nvidia" if mirror else "https://developer.download.nvidia.com"
    request = {"mirror": mirror, "mirror_key_fingerprint": FINGERPRINT if mirror else None}
    made = plan({"driver": "580", **request}, facts)
    source = made["repositories"][0]
    uri = f"{base}/compute/cuda/repos/{folder}/{part}/"
    assert deb822(content(source["path"], request, facts)) == {
        "Types": "deb", "URIs": uri, "Suites": "/", "Architectures": architecture, "Signed-By": source["key_path"],
    }  # fmt: skip
    assert source["content"] == content(source["path"], request, facts)
    assert source["key_url"] == uri + key
    keyring = next(item["desired"] for item in made["managed"] if item["kind"] == "keyring")
    assert keyring["fingerprints"] == [source["fingerprint"]]
    assert (source["fingerprint"] == FINGERPRINT.upper()) is bool(mirror) and len(source["fingerprint"]) == 40


def test_pins_hold_the_whole_closure_at_its_version() -> None:
    made = plan({"driver": "580"}, h100())
    pinned: dict[str, str] = {}
    for stanza in content("/etc/apt/preferences.d/gpu-fleet-nvidia.pref").split("\n\n"):
        fields = deb822(stanza)
        assert fields["Pin-Priority"] == "1001", "above a thousand also goes back"
        pinned |= dict.fromkeys(fields["Package"].split(), fields["Pin"].removeprefix("version "))
    assert pinned == made["packages"]["nvidia_driver"] and sorted(pinned) == made["closure"]
    assert not [name for name in pinned if set(name) & set("*?[/")], "no pattern that could mean more than it says"


def ids(made: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the desired states of a plan's things of a kind."""
    return {item["id"]: item["desired"] for item in made["managed"] if item["kind"] == kind}


def test_every_package_of_the_closure_is_on_hold() -> None:
    """A pin alone does not keep a package from being removed for another's sake."""
    made = plan({"driver": "580"}, h100())
    assert ids(made, "hold") == {name: {"held": True} for name in made["closure"]}
    assert "nvidia-persistenced" in ids(plan({"driver": "535", "driver_source": "distro"}, observed([gpu(0, V100)])), "hold")


def test_what_the_distribution_alone_answers_for_is_not_held() -> None:
    facts = observed([gpu(0, H100)])
    facts["host"] = {**facts["host"], "distribution": "ubuntu", "version": "26.04"}
    made = plan({"driver": "595"}, facts)
    assert "zstd" in made["packages"]["nvidia_driver"] and "zstd" not in made["closure"] and "zstd" not in ids(made, "hold")


@pytest.mark.parametrize(
    ("name", "fenced"),
    [
        ("libcuda1", True),
        ("libcuda1-dbg", False),
        ("nvidia-persistenced", True),
        ("nvidia-driver-590", True),
        ("libnvidia-compute-590-server", True),
        ("cuda-drivers-fabricmanager-590", True),
        ("firmware-nvidia-gsp", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("cuda-toolkit-13-0", False),
        ("xserver-xorg-video-nvidia-legacy", False),
        ("bash", False),
    ],
)
def test_unattended_upgrades_are_kept_from_the_driver_and_from_nothing_else(name: str, fenced: bool) -> None:
    """Its expressions begin at a name's start and have no end of their own; ours have one."""
    text = content("/etc/apt/apt.conf.d/51gpu-fleet-unattended-upgrades")
    patterns = re.findall(r'^  "(.*)";$', text, re.MULTILINE)
    assert text.splitlines()[1:2] == ["Unattended-Upgrade::Package-Blacklist {"] and text.endswith("};\n") and len(patterns) > 10
    assert all(pattern.startswith("^") and pattern.endswith("$") for pattern in patterns)
    assert any(re.match(pattern, name) for pattern in patterns) is fenced


VENDOR_PLACE = "developer.download.nvidia.com/compute/cuda/repos/"


@pytest.mark.parametrize(
    ("mirror", "sources"),
    [
        (None, {VENDOR_PLACE: True}),
        ("http://mirror.example:8080/nvidia/", {VENDOR_PLACE: False, "mirror.example:8080/nvidia/compute/cuda/repos/": True}),
        ("https://developer.download.nvidia.com", {VENDOR_PLACE: True}),
        ("file:///srv/nvidia", {VENDOR_PLACE: False, "/srv/nvidia/compute/cuda/repos/": True}),
    ],
)
def test_the_repository_is_in_one_file(mirror: str | None, sources: dict[str, bool]) -> None:
    """Beside a mirror, the vendor's own site is the same source once more."""
    request = {"driver": "580", "mirror": mirror, "mirror_key_fingerprint": FINGERPRINT}
    made = plan(request, h100())
    path = made["repositories"][0]["path"]
    assert ids(made, "source") == {place: {"files": [path] if here else []} for place, here in sources.items()}
    assert made["repositories"][0]["places"] == list(sources)
    asked = {(item["kind"], item["id"]) for item in _resolve.managed_ids(catalog(), request)}
    assert {(item["kind"], item["id"]) for item in made["managed"]} <= asked


def test_no_key_of_the_repository_is_trusted_for_what_does_not_need_it() -> None:
    made = plan({"driver": "580", "mirror": "http://m", "mirror_key_fingerprint": FINGERPRINT}, h100())
    known = {"AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80", "EB693B3035CD5710E231E123A4B469963BF863CC", FINGERPRINT.upper()}
    assert known < set(ids(made, "trusted_key")) and all(state == {"spare": []} for state in ids(made, "trusted_key").values())
    assert not ids(plan({"driver": "535", "driver_source": "distro"}, observed([gpu(0, V100)])), "trusted_key")


@pytest.mark.parametrize(("mirror", "host"), [(None, "developer.download.nvidia.com"), ("http://mirror.example:8080/x", "mirror.example")])
def test_a_proxy_is_for_the_repositorys_host_alone(mirror: str | None, host: str) -> None:
    request = {"driver": "580", "mirror": mirror, "proxy": "http://proxy.example:3128"}
    assert plan(request, h100())["repositories"][0]["proxy"] == "http://proxy.example:3128"
    assert content("/etc/apt/apt.conf.d/51gpu-fleet-proxy", request).splitlines()[1:] == [
        f'Acquire::{scheme}::Proxy::{host} "http://proxy.example:3128";' for scheme in ("http", "https")
    ]
    assert ids(plan({"driver": "580"}, h100()), "file")["/etc/apt/apt.conf.d/51gpu-fleet-proxy"] == {"state": "absent"}


@pytest.mark.parametrize("proxy", ["proxy:3128", "http://ann:secret@proxy:3128", 'http://p";}', "http://p/path", "socks5h://p:1"])
def test_a_proxy_that_is_none(proxy: str) -> None:
    refusal = resolve({"driver": "580", "proxy": proxy}, h100())["refusal"]
    assert (refusal["rule"], refusal["variable"]) == ("request.form", "gpu_stack_proxy")


@pytest.mark.parametrize(
    ("fingerprint", "said"), [(None, "a mirror that is signed by a key of its own"), (FINGERPRINT, "debian12/x86_64/, signed by EB69")]
)
def test_what_to_use_where_the_key_is_not_accepted(fingerprint: str | None, said: str) -> None:
    made = plan({"driver": "580", "mirror": "http://m", "mirror_key_fingerprint": fingerprint}, h100())
    assert said in made["repositories"][0]["instead"]


@pytest.mark.parametrize(
    ("asked", "shell", "manager"), [("unlimited", "unlimited", "infinity"), (65536, "65536", "65536K"), ("", "unlimited", "infinity")]
)
def test_locked_memory_for_sessions_and_services(asked: Any, shell: str, manager: str) -> None:
    request = {"baseline": {"memlock": asked}}
    lines = [line.split() for line in content(_managed_plan.LIMITS, request).splitlines() if not line.startswith("#")]
    assert ["*", "soft", "memlock", shell] in lines and ["root", "hard", "memlock", shell] in lines
    assert all(len(line) == 4 and line[2] in ("memlock", "nofile") for line in lines)
    for path in ("/etc/systemd/system.conf.d/90-gpu-fleet.conf", "/etc/systemd/user.conf.d/90-gpu-fleet.conf"):
        parsed = configparser.ConfigParser()
        parsed.read_string(content(path, request))
        assert parsed["Manager"]["DefaultLimitMEMLOCK"] == manager and parsed["Manager"]["DefaultLimitNOFILE"] == "1048576"


def test_stacks_stay_as_they_are() -> None:
    """NCCL's manual calls an unlimited stack a potentially serious misconfiguration."""
    assert "stack" not in content(_managed_plan.LIMITS)


def test_shared_memory_survives_a_logout() -> None:
    parsed = configparser.ConfigParser()
    parsed.read_string(content("/etc/systemd/logind.conf.d/90-gpu-fleet.conf"))
    assert parsed["Login"]["RemoveIPC"] == "no"


def test_nouveau_keeps_off() -> None:
    lines = content("/etc/modprobe.d/gpu-fleet-nouveau.conf").splitlines()
    assert lines[1:] == ["blacklist nouveau", "options nouveau modeset=0"]


def test_baseline_of_a_host_without_gpus() -> None:
    made = plan({"baseline": {"service_user": "trainer"}}, observed())
    kinds = sorted((item["kind"], item["id"]) for item in made["managed"])
    assert kinds == [
        ("directory", "/var/lib/gpu_fleet"),
        ("file", "/etc/security/limits.d/90-gpu-fleet.conf"),
        ("file", "/etc/systemd/logind.conf.d/90-gpu-fleet.conf"),
        ("file", "/etc/systemd/system.conf.d/90-gpu-fleet.conf"),
        ("file", "/etc/systemd/user.conf.d/90-gpu-fleet.conf"),
        ("user", "trainer"),
    ]
    assert {item["role"] for item in made["managed"]} == {"node_baseline"}


@pytest.mark.parametrize(
    ("state", "differs"),
    [
        ({"version": "1"}, False),
        ({"version": "1", "more": True}, False),
        ({"version": "2"}, True),
        ({"version": None}, True),
        ({}, True),
        (None, True),
    ],
)
def test_what_counts_as_a_difference(state: Any, differs: bool) -> None:
    """Every wanted field has to be as wanted; what is not known is not as wanted; content is compared by its hash."""
    item = {"role": "r", "kind": "package", "id": "p", "desired": {"version": "1", "content": "not compared"}}
    assert _managed_plan.differing([item], {"package:p": state}) == ({"r": ["package:p"]} if differs else {})
    assert _managed_plan.differing([item], {}) == {"r": ["package:p"]}
