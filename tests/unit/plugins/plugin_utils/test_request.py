# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests as they come from YAML files, surveys and command lines."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._request import DEFAULTS, normalize, normalize_lock


def test_an_empty_request_is_the_defaults() -> None:
    asked = normalize({})
    assert set(asked) == set(DEFAULTS)
    assert (asked["driver"], asked["pytorch"], asked["disruption"], asked["takeover"]) == (None, None, "never", [])
    assert asked["baseline"] == {"memlock": "unlimited", "nofile": 1048576, "service_user": "gpufleet"}


def test_an_empty_field_of_a_survey_is_no_answer() -> None:
    blank = {"driver": "", "pytorch": "", "mirror": "", "pytorch_prefix": "", "wheel_index": "", "takeover": "", "nccl": {"traffic_class": ""}}
    assert normalize({**blank, "baseline": {"nofile": "", "memlock": ""}}) == normalize({})
    assert normalize(dict.fromkeys(DEFAULTS)) == normalize({})


@pytest.mark.parametrize(
    ("field", "given", "read"),
    [
        ("driver", 580, "580"),
        ("driver", 580.178, "580.178"),
        ("pytorch", 2.14, "2.14"),
        ("pytorch", "2.14.1+cu130", "2.14.1+cu130"),
        ("takeover", "driver", ["driver"]),
        ("takeover", ["nccl", "driver", "nccl"], ["driver", "nccl"]),
        ("mirror", "http://mirror.lan/", "http://mirror.lan"),
        ("mirror_key_fingerprint", "ab" * 20, "AB" * 20),
        ("nccl", {"traffic_class": "106"}, {"socket_interface": None, "traffic_class": 106, "service_level": None, "extra": {}}),
    ],
)
def test_values_are_read_as_they_were_meant(field: str, given: Any, read: Any) -> None:
    assert normalize({field: given})[field] == read


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("driver", True),
        ("driver", "580; reboot"),
        ("driver", "\uff15\uff18\uff10"),
        ("driver", ["580"]),
        ("pytorch", "2"),
        ("pytorch", "2.14+rocm6"),
        ("mirror", "http://user:password@mirror.lan"),
        ("mirror", "ftp://mirror.lan"),
        ("mirror", "http://mirror.lan\nTrusted: yes"),
        ("mirror_key_fingerprint", "8793F200"),
        ("pytorch_prefix", "opt/torch"),
        ("pytorch_prefix", "/opt/a b"),
        ("pytorch_prefix", "/"),
        ("baseline", {"memlock": "-1"}),
        ("baseline", {"memlock": "64\n* - nofile 1"}),
        ("baseline", {"service_user": "Gpu Fleet"}),
        ("baseline", {"nofile": True}),
        ("nccl", {"traffic_class": 256}),
        ("nccl", {"traffic_class": "\u0663"}),
        ("nccl", {"socket_interface": "eth0\nNCCL_ALGO=Ring"}),
        ("nccl", {"extra": {"NCCL_IB_TIMEOUT": "22\nNCCL_ALGO=Ring"}}),
        ("relock", "perhaps"),
        ("disruption", "always"),
        ("disruption", ["never"]),
        ("takeover", {"driver": True}),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_variable(field: str, given: Any) -> None:
    with pytest.raises(Refusal) as caught:
        normalize({field: given})
    assert caught.value.fields["rule"].startswith("request.")
    assert caught.value.fields["variable"]
    assert caught.value.fields["allowed"]


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("verification_port", "29400", 29400),
        ("verification_deadline", 600, 600),
        ("gpu_stack_reboot_timeout", 3600, 3600),
        ("verification_force", "yes", True),
        ("gpu_stack_pending_ok", "False", False),
        ("verification_sizes_mib", [1, 0.5, "64"], [1.0, 0.5, 64.0]),
        ("verification_group", "gpu_fabric_a", "gpu_fabric_a"),
    ],
)
def test_settings_are_read_as_they_were_meant(name: str, given: Any, read: Any) -> None:
    assert normalize({"settings": {name: given}, "verification_members": 2})["settings"] == {name: read}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("verification_sizes_mib", "1,4"),
        ("verification_sizes_mib", []),
        ("verification_sizes_mib", [0]),
        ("verification_sizes_mib", [1, "lots"]),
        ("verification_sizes_mib", [True]),
        ("verification_sizes_mib", [float("nan")]),
        ("verification_sizes_mib", [1 << 20]),
        ("verification_sizes_mib", [1] * 65),
        ("verification_port", 80),
        ("verification_port", "http"),
        ("verification_deadline", -1),
        ("verification_iterations", 0),
        ("verification_steps", 2.5),
        ("verification_collective_timeout", "1m"),
        ("verification_start_timeout", 0),
        ("verification_group", ["gpu_nodes"]),
        ("verification_force", "perhaps"),
        ("conda_pytorch_install_timeout", "soon"),
        ("conda_pytorch_answer_timeout", 0),
        ("gpu_stack_reboot_timeout", True),
        ("gpu_stack_pending_ok", ["yes"]),
    ],
)
def test_settings_that_no_role_can_use_are_refused_with_their_variable(name: str, given: Any) -> None:
    with pytest.raises(Refusal) as caught:
        normalize({"settings": {name: given}, "verification_members": 2})
    assert caught.value.fields["variable"] == name and caught.value.fields["allowed"]
    assert name in str(caught.value) and (not isinstance(given, str) or given in str(caught.value))


@pytest.mark.parametrize("members", [0, None])
def test_a_group_without_a_host_verifies_nothing(members: int | None) -> None:
    with pytest.raises(Refusal, match="verification_group is 'nosuch'"):
        normalize({"settings": {"verification_group": "nosuch"}, "verification_members": members})


def test_a_request_is_left_as_it_was_given() -> None:
    given: dict[str, Any] = {"driver": 580, "nccl": {"extra": {"NCCL_IB_TIMEOUT": 22}}, "fabric": {"group": "gpu_fabric_a"}}
    asked = normalize(given)
    assert given["driver"] == 580 and given["fabric"] == {"group": "gpu_fabric_a"}
    assert asked["fabric"] == {"group": "gpu_fabric_a", "membership": None} and asked["nccl"]["extra"] == {"NCCL_IB_TIMEOUT": "22"}


@pytest.mark.parametrize(("lock", "relock"), [(None, False), ({}, False), ("", False), ({"driver": {"580": "580.159.04"}}, True)])
def test_no_lock_or_one_to_be_made_anew_holds_nothing(lock: Any, relock: bool) -> None:
    assert normalize_lock(lock, relock) == {"driver": {}, "pytorch": {}}


def test_a_lock_is_read_whatever_yaml_made_of_its_keys() -> None:
    read = normalize_lock({"driver": {580: "580.159.04", "auto": "580.178.04"}, "pytorch": {2.14: "2.14.0+cu126"}}, False)
    assert read == {"driver": {"580": "580.159.04", "auto": "580.178.04"}, "pytorch": {"2.14": "2.14.0+cu126"}}
