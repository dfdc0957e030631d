# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The things that a plan answers for, and the contents of the files among them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _managed_plan as managed
from ansible_collections.gpu.fleet.plugins.plugin_utils._request import normalize
from fixtures.nodes import bare, request, resolve
from fixtures.stack import catalog

BASELINE = normalize({})["baseline"]


def content(items: list[dict[str, Any]], path: str) -> str:
    return str(next(item["desired"]["content"] for item in items if item["id"] == path))


def test_a_file_is_known_by_its_digest() -> None:
    desired = managed.file("r", "/etc/x", "text\n")["desired"]
    assert desired["sha256"] == hashlib.sha256(b"text\n").hexdigest()
    assert (desired["state"], desired["mode"], desired["owner"], desired["group"]) == ("file", "0644", "root", "root")


def test_every_file_of_a_plan_says_whose_it_is() -> None:
    files = [item for item in resolve(request(), bare())["managed"] if item["kind"] == "file"]
    assert len(files) > 5
    for item in files:
        assert item["desired"]["content"].startswith(managed.HEADER) and item["desired"]["content"].endswith("\n"), item["id"]


def test_limits_hold_for_sessions_and_services_root_included() -> None:
    items = managed.baseline({**BASELINE, "memlock": "64", "nofile": 4096})
    lines = [line.split() for line in content(items, managed.LIMITS).splitlines() if not line.startswith("#")]
    assert sorted(lines) == sorted(
        [who, kind, what, value] for who in ("*", "root") for kind in ("soft", "hard") for what, value in (("memlock", "64"), ("nofile", "4096"))
    )
    for path in (managed.MANAGER_LIMITS, managed.USER_LIMITS):
        assert content(items, path).splitlines()[1:] == ["[Manager]", "DefaultLimitMEMLOCK=64K", "DefaultLimitNOFILE=4096"]
    assert "DefaultLimitMEMLOCK=infinity\n" in content(managed.baseline(BASELINE), managed.MANAGER_LIMITS)


def test_the_pin_holds_each_package_at_its_own_version() -> None:
    stanzas = managed.pin({"b": "2-1", "a": "2-1", "c": "2-2"}).removeprefix(managed.HEADER).split("\n\n")
    assert [stanza.strip().splitlines() for stanza in stanzas] == [
        ["Package: a b", "Pin: version 2-1", "Pin-Priority: 1001"],
        ["Package: c", "Pin: version 2-2", "Pin-Priority: 1001"],
    ]


@pytest.mark.parametrize(("platform", "architecture", "apt"), [("debian12", "x86_64", "amd64"), ("ubuntu2404", "sbsa", "arm64")])
def test_the_repository_is_signed_by_its_own_key_only(platform: str, architecture: str, apt: str) -> None:
    row = {**catalog()["platforms"][platform], "architecture": architecture}
    source = managed.repository(row, None, None)
    assert f"Signed-By: {source['key_path']}\n" in source["content"] and f"Architectures: {apt}\n" in source["content"]
    assert source["key_url"] == f"{managed.VENDOR}/compute/cuda/repos/{platform}/{architecture}/{row['key_file']}"
    assert source["fingerprint"] == row["key_fingerprint"]


def test_no_settings_make_no_file() -> None:
    assert managed.nccl({}) == []
    [item] = managed.nccl({"B": "2", "A": "1"})
    assert item["desired"]["content"] == managed.HEADER + "A=1\nB=2\n"


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
def test_an_unknown_state_differs(state: Any, differs: bool) -> None:
    items = [{"role": "r", "kind": "package", "id": "p", "desired": {"version": "1"}}]
    assert managed.differing(items, {"package:p": state}) == ({"r": ["package:p"]} if differs else {})
    assert managed.differing(items, {}) == {"r": ["package:p"]}


def test_content_is_compared_by_digest_only() -> None:
    item = managed.file("r", "/etc/x", "text\n")
    state = {name: value for name, value in item["desired"].items() if name != "content"}
    assert managed.differing([item], {"file:/etc/x": state}) == {}
    assert managed.differing([item], {"file:/etc/x": {**state, "mode": "0600"}}) == {"r": ["file:/etc/x"]}


def test_ids_are_asked_for_once() -> None:
    ids = [(item["kind"], item["id"]) for item in managed.every_id(catalog(), normalize({"baseline": {"service_user": "gpu"}}))]
    assert len(ids) == len(set(ids)) and ("user", "gpu") in ids
