# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt_signers, _apt_sources, _managed
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st
from unit.plugins.module_utils.test_managed import BINARY, FINGERPRINTS

# Made for this test with GnuPG 2.2: a key that certifies, its subkey that signs, and two signatures.
PRIMARY, SUBKEY = "E6B5AA27844A76CAA7D5A10282A622920D5E7369", "D7B6D4F9CF762B0212B3F37E8DABC9746AE83455"
KEY = base64.b64decode("""
mDMEaw3W7xYJKwYBBAHaRw8BAQdA8yrxstOQ8wAVcqCKcL5fQgxuvlyu+mEg9kOwhuBORDq0HVRlc3QgVGhyZWUgPHRlc3RAZXhhbXBsZS5vcmc+iJAEExYI
ADgWIQTmtaonhEp2yqfVoQKCpiKSDV5zaQUCaw3W7wIbAQULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAKCRCCpiKSDV5zaZ5SAP9qfB4QhyM0vrks855VWZYv
BZL3Y6IveQ3PkvylVCw+5QEA8JUWA/BuZ9TjPhaib3exTlfj76GsLh9a8b1HGeR+VQK4MwRrDdbvFgkrBgEEAdpHDwEBB0Dq8MyE/IlUHTKDq9tUR/Yf2/VO
msJAExeaMu8bBF5kcIjvBBgWCAAgFiEE5rWqJ4RKdsqn1aECgqYikg1ec2kFAmsN1u8CGwIAgQkQgqYikg1ec2l2IAQZFggAHRYhBNe21PnPdisCErPzfo2r
yXRq6DRVBQJrDdbvAAoJEI2ryXRq6DRV+MQBAKsrlUa9emxlvm1fPbAnwQcnDJR6GgLUuNUDxWL1Q3huAQDdjGGAVDJDOAmNVLUqGp+Cqtt1ozDsJpGWWwS2
qOR8CEDGAP4ogOucNQuibWjx5BdEtSjtCz94f0uHqsdweEKKTctBqAD5AV+bOHbAJkghG+Qck6zvrEpyrVRNqrZ8Z7T+1XSO+wk=
""")
IN_RELEASE = b"""-----BEGIN PGP SIGNED MESSAGE-----
Hash: SHA256

Origin: test
Suite: stable
-----BEGIN PGP SIGNATURE-----

iHUEARYIAB0WIQTXttT5z3YrAhKz836Nq8l0aug0VQUCaw3W7wAKCRCNq8l0aug0
VdwrAP92V74bPDftjfw1lZVPfwZrGixDlTeDhYEGKU/y6S2UZwEA2t5Rjk970Eob
pbLmQR6WaYEaCwhvnMXyTPSvxHmTSQI=
=jQRp
-----END PGP SIGNATURE-----
"""
DETACHED = base64.b64decode("""
iHUEABYIAB0WIQTXttT5z3YrAhKz836Nq8l0aug0VQUCaw3W7wAKCRCNq8l0aug0VW/7AQCsXim88iK0ZtcFLjyB7q3DDmZ5OQGk5x2WLc/n5Rfy2QD/XJoC
34T47M/p6CRH0ipJ54qQm3vBAqXxrvm7b44m1w0=
""")
PLACE = "developer.download.nvidia.com/compute/cuda/repos/"
LISTS = "/var/lib/apt/lists/"
SITE = LISTS + "mirror.example:8080_site%5fwide_dists_stable_"


def old_signature(key_id: str) -> bytes:
    """Return a signature of version 3, as far as it tells its issuer."""
    body = b"\x03\x05\x00" + bytes(4) + bytes.fromhex(key_id) + b"\x01\x02" + bytes(6)
    return bytes((0x88, len(body))) + body


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(IN_RELEASE, {SUBKEY, SUBKEY[-16:]}, id="clear text"),
        pytest.param(DETACHED, {SUBKEY, SUBKEY[-16:]}, id="detached"),
        pytest.param(old_signature("0123456789ABCDEF"), {"0123456789ABCDEF"}, id="version 3"),
        pytest.param(DETACHED + old_signature("0123456789ABCDEF"), {SUBKEY, SUBKEY[-16:], "0123456789ABCDEF"}, id="two"),
        pytest.param(DETACHED[:40], set(), id="cut"),
        pytest.param(b"", set(), id="empty"),
        pytest.param(b"<html>404</html>", set(), id="an error page"),
    ],
)
def test_who_has_signed(data: bytes, expected: set[str]) -> None:
    assert _apt_signers.issuers(data) == expected


@given(st.binary(max_size=200), st.integers(0, len(DETACHED)))
def test_damage_never_raises(rubbish: bytes, at: int) -> None:
    for data in (rubbish, DETACHED[:at] + rubbish, b"\x88" + rubbish):
        assert all(isinstance(entry, str) for entry in _apt_signers.issuers(data))


def test_a_subkey_signs_for_its_key() -> None:
    assert _managed.keys(KEY) == {PRIMARY: [PRIMARY, SUBKEY]}
    assert _managed.keys(KEY + BINARY) == {PRIMARY: [PRIMARY, SUBKEY], **{name: [name] for name in FINGERPRINTS}}


@pytest.mark.parametrize(
    ("uri", "suite", "expected"),
    [
        ("http://archive.example/debian", "bookworm", "archive.example_debian_dists_bookworm_"),
        ("https://ann:secret@archive.example:8080/a_b/", "stable/updates", "archive.example:8080_a%5fb_dists_stable_updates_"),
        ("http://archive.example/x86_64", "/", "archive.example_x86%5f64_"),
        ("file:/srv/local", "./", "_srv_local_._"),
        ("file:///srv/local/", "/", "_srv_local_"),
    ],
)
def test_names_of_lists(uri: str, suite: str, expected: str) -> None:
    assert _apt_signers.listed(_apt_sources.Source(uri, suite, False, False)) == expected


# Sources of another owner, and whether they are checked by what is trusted for everything.
@pytest.mark.parametrize(
    ("entry", "needs"),
    [
        pytest.param("deb http://mirror.example:8080/site_wide stable main", True, id="one line"),
        pytest.param("deb [arch=amd64] http://mirror.example:8080/site_wide/ stable main", True, id="other options"),
        pytest.param("deb-src http://mirror.example:8080/site_wide stable main", True, id="sources"),
        pytest.param(f"deb [signed-by={PRIMARY}] http://mirror.example:8080/site_wide stable main", True, id="picks the key among those"),
        pytest.param("Types: deb\nURIs: http://none.example http://mirror.example:8080/site_wide\nSuites: sid stable\n", True, id="stanza"),
        pytest.param("deb [signed-by=/etc/apt/keyrings/a.asc] http://mirror.example:8080/site_wide stable main", False, id="key of its own"),
        pytest.param("deb [trusted=yes] http://mirror.example:8080/site_wide stable main", False, id="no key"),
        pytest.param("# deb http://mirror.example:8080/site_wide stable main", False, id="a remark"),
        pytest.param("URIs: http://mirror.example:8080/site_wide\nSuites: stable\nTrusted: yes\n", False, id="stanza without a key"),
        pytest.param("URIs: http://mirror.example:8080/site_wide\nSuites: stable\nEnabled: no\n", False, id="stanza that is off"),
        pytest.param(
            "URIs: http://mirror.example:8080/site_wide\nSuites: stable\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n", False,
            id="stanza with a key of its own",
        ),
        pytest.param(f"deb http://{PLACE} stable main", False, id="what is ours to set up"),
    ],
)  # fmt: skip
def test_which_sources_need_a_key(tree: Tree, entry: str, needs: bool) -> None:
    tree.file(SITE + "InRelease", IN_RELEASE)
    for suite in ("stable", "sid"):
        tree.file(LISTS + f"none.example_dists_{suite}_Release", b"unsigned")
    tree.file(LISTS + "mirror.example:8080_site%5fwide_dists_sid_Release", b"unsigned")
    name = "sources" if "URIs" in entry else "list"
    tree.file(f"/etc/apt/sources.list.d/site.{name}", entry)
    state = trusted(tree)
    assert state["files"] == ["/etc/apt/trusted.gpg.d/site.gpg"]
    assert [one.split()[-1] for one in state["needed_by"]] == (["stable"] if needs else [])
    assert (state["state"], state["spare"]) == (("needed", []) if needs else ("trusted", state["files"]))


@pytest.mark.parametrize(
    ("name", "data", "needs"),
    [
        pytest.param("InRelease", IN_RELEASE.replace(IN_RELEASE.split(b"\n\n")[-1], b"A"), True, id="a signature that cannot be read"),
        pytest.param("Release.gpg", DETACHED, True, id="a signature beside it"),
        pytest.param("Release.gpg", old_signature("0123456789ABCDEF"), False, id="signed by another key"),
        pytest.param("Release", b"Suite: stable", False, id="unsigned"),
        pytest.param("Packages", b"", True, id="not known who signs"),
    ],
)
def test_a_key_stays_when_unsure(tree: Tree, name: str, data: bytes, needs: bool) -> None:
    tree.file("/etc/apt/sources.list", "deb http://ann:secret@mirror.example:8080/site_wide stable main\n")
    tree.file(SITE + name, data)
    assert trusted(tree)["needed_by"] == (["http://mirror.example:8080/site_wide stable"] if needs else [])


@pytest.fixture
def tree(tmp_path: object) -> Tree:
    made = Tree(tmp_path)  # type: ignore[arg-type]
    made.file("/etc/apt/trusted.gpg.d/site.gpg", KEY)
    return made


def trusted(tree: Tree) -> dict[str, Any]:
    """Return what gpu_facts says of the key."""
    wanted = [{"kind": "source", "id": PLACE}, {"kind": "trusted_key", "id": PRIMARY}]
    found = _managed.states(System(str(tree.root)), wanted, None, None)["trusted_key:" + PRIMARY]
    assert found is not None
    return found
