# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's apt sources are the machine's own, however they are written, and Debian's alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import sources
from lab.paths import LabError

DEB822 = """# the image's own
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb deb-src
Enabled: yes
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb-src
URIs: http://src.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm main contrib # comment
deb-src http://mirror.example/debian bookworm main
deb http://security.example/debian-security bookworm-security main
"""
FOREIGN = """deb [signed-by=/etc/apt/keyrings/other.gpg] http://other.example/linux bookworm stable
deb [signed-by=/etc/apt/keyrings/hashes.gpg] http://hashes.example bookworm main
deb http://pg.example bookworm-pgdg main
deb http://node.example nodistro main
"""


def test_deb822_entries_that_are_on_and_binary_are_read() -> None:
    """Disabled and source-only entries are no source of packages."""
    found = sources.parse_deb822(DEB822)
    assert [source.uris for source in found] == [("http://mirror.example/debian",), ("http://mirror.example/debian-security",)]
    assert found[0].suites == ("bookworm", "bookworm-updates")
    assert found[0].options == {"Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg"}


def test_one_line_entries_are_read_with_their_options() -> None:
    """Comments and sources of source packages are left out."""
    found = sources.parse_one_line(ONE_LINE)
    assert [source.suites for source in found] == [("bookworm",), ("bookworm-security",)]
    assert found[0].options == {"Architectures": "amd64", "Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg"}
    assert found[0].components == ("main", "contrib")


def test_a_key_in_the_text_survives() -> None:
    """A Signed-By of several lines is kept as it is."""
    text = "Types: deb\nURIs: http://a.example\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN\n .\n debian-archive\n"
    (found,) = sources.parse_deb822(text)
    assert "Signed-By: \n -----BEGIN\n .\n debian-archive\n" in found.text()


def test_other_publishers_are_left_out() -> None:
    """What others publish for Debian has no place in an image."""
    found = sources.for_suite(sources.parse_one_line(ONE_LINE + FOREIGN), "bookworm", "bookworm")
    assert {source.uris[0] for source in found} == {"http://mirror.example/debian", "http://security.example/debian-security"}


def test_a_mirror_with_its_own_key_counts_where_there_is_nothing_else() -> None:
    """A site's own mirror may sign for itself."""
    found = sources.for_suite(sources.parse_one_line(FOREIGN), "bookworm", "bookworm")
    assert [source.uris for source in found] == [("http://hashes.example",)]


def test_the_suite_is_exchanged_and_every_component_is_on() -> None:
    """A machine of one release builds images of another, with the parts that drivers are in."""
    found = sources.for_suite(sources.parse_deb822(DEB822), "bookworm", "trixie")
    assert [source.suites for source in found] == [("trixie", "trixie-updates"), ("trixie-security",)]
    assert all("Components: main contrib non-free non-free-firmware\n" in source.text() for source in found)


def test_a_written_entry_reads_the_same() -> None:
    """The text is what apt, and this parser, understand."""
    found = sources.for_suite(sources.parse_one_line(ONE_LINE), "bookworm", "bookworm")
    assert sources.parse_deb822("\n".join(source.text() for source in found)) == found


def test_all_files_of_apt_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that apt ignores are ignored."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://old.example bookworm main\n")
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d/off.sources.disabled").write_text(DEB822.replace("mirror", "disabled"))
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    monkeypatch.setattr(sources, "APT", tmp_path)
    monkeypatch.setattr(sources, "OS_RELEASE", tmp_path / "os-release")
    text = sources.sources("trixie")
    assert "http://old.example" in text
    assert "http://mirror.example/debian-security" in text
    assert "disabled" not in text
    assert "bookworm" not in text


def test_a_machine_without_sources_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No source, no image: the message names the place."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "os-release").write_text("VERSION_CODENAME=bookworm\n")
    monkeypatch.setattr(sources, "APT", tmp_path)
    monkeypatch.setattr(sources, "OS_RELEASE", tmp_path / "os-release")
    with pytest.raises(LabError, match=r"sources\.list"):
        sources.sources("bookworm")
