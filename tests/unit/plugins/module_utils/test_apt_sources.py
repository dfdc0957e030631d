# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt_sources
from hypothesis import given
from hypothesis import strategies as st

PLACES = ["developer.download.nvidia.com/compute/cuda/repos/"]
URI = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
DEBIAN = "deb http://archive.example/debian bookworm main"
STANZA = "Types: deb\nURIs: http://archive.example/debian\nSuites: bookworm\nComponents: main\n"


@pytest.mark.parametrize(
    ("uri", "ours"),
    [
        (URI, True),
        (URI.replace("https", "http"), True),
        (URI.rstrip("/"), True),
        (URI.replace("debian12", "ubuntu2204"), True),
        ("https://developer.download.nvidia.com:443/compute//cuda/repos/debian12/x86_64", True),
        ("https://ann:secret@Developer.Download.NVIDIA.com/compute/cuda/repos/debian12/x86_64/", True),
        ("mirror+https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/", True),
        ("https://developer.download.nvidia.com/compute/cuda/repos", True),
        ("https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu2004/x86_64/", False),
        ("https://developer.download.nvidia.com.example/compute/cuda/repos/debian12/", False),
        ("https://mirror.example/developer.download.nvidia.com/compute/cuda/repos/debian12/", False),
        ("https://nvidia.github.io/libnvidia-container/stable/deb/amd64", False),
        ("http://archive.example/debian", False),
    ],
)
def test_whose_a_source_is(uri: str, ours: bool) -> None:
    assert _apt_sources.names(uri, PLACES) is ours


@pytest.mark.parametrize(
    ("text", "left", "taken"),
    [
        pytest.param(f"deb {URI} /\n", "", 1, id="alone"),
        pytest.param(f"{DEBIAN}\ndeb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg arch=amd64] {URI} /\n", f"{DEBIAN}\n", 1, id="options"),
        pytest.param(f"{DEBIAN}\n\tdeb-src [ trusted=yes ]{URI} /", f"{DEBIAN}\n", 1, id="odd blanks, no line end"),
        pytest.param(f"# deb {URI} /\n{DEBIAN}\n", f"# deb {URI} /\n{DEBIAN}\n", 0, id="a remark"),
        pytest.param(f"deb {URI} /\n# why\ndeb {URI} ./\n", "# why\n", 2, id="twice"),
        pytest.param(f"{DEBIAN}\n", f"{DEBIAN}\n", 0, id="somebody else's"),
        pytest.param("", "", 0, id="empty"),
    ],
)
def test_lines(text: str, left: str, taken: int) -> None:
    found = _apt_sources.without("/etc/apt/sources.list", text, PLACES)
    assert (found[0], len(found[1])) == (left, taken)
    assert _apt_sources.holds("/etc/apt/sources.list", text, PLACES) is bool(taken)


@pytest.mark.parametrize(
    ("text", "left", "taken"),
    [
        pytest.param(f"Types: deb\nURIs: {URI}\nSuites: /\n", "", 1, id="alone"),
        pytest.param(f"{STANZA}\nTypes: deb\nURIs: {URI}\nSuites: /\nSigned-By:\n -----BEGIN\n .\n mQ\n", f"{STANZA}\n", 1, id="last, with its key"),
        pytest.param(f"Types: deb\nuris: {URI}\nSuites: /\n\n{STANZA}", STANZA, 1, id="first, another case"),
        pytest.param(f"Types: deb\nURIs:\n {URI}\nSuites: /\n", "", 1, id="address on a line of its own"),
        pytest.param(f"Types: deb\nEnabled: no\nURIs: {URI}\nSuites: /\n", f"Types: deb\nEnabled: no\nURIs: {URI}\nSuites: /\n", 0, id="off"),
        pytest.param(f"# URIs: {URI}\n{STANZA}", f"# URIs: {URI}\n{STANZA}", 0, id="a remark"),
        pytest.param(f"Types: deb\nURIs: http://a/ {URI}\nSuites: /\n", "Types: deb\nURIs: http://a/ \nSuites: /\n", 1, id="one of two"),
    ],
)
def test_stanzas(text: str, left: str, taken: int) -> None:
    found = _apt_sources.without("/etc/apt/sources.list.d/a.sources", text, PLACES)
    assert (found[0], len(found[1])) == (left, taken)
    assert _apt_sources.holds("/etc/apt/sources.list.d/a.sources", text, PLACES) is bool(taken)


@given(st.text(alphabet="deb URIs:Types\n #[]/htp.a", max_size=80), st.sampled_from(["a.list", "a.sources"]))
def test_nothing_is_lost_of_what_is_not_ours(text: str, name: str) -> None:
    assert _apt_sources.without(name, text, PLACES) == (text, [])


def test_a_file_without_sources() -> None:
    assert _apt_sources.idle("# a\n\n  # b\n") and not _apt_sources.idle(f"# a\n{DEBIAN}\n")
