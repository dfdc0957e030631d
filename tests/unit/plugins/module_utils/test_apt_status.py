# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_status

STATUS = """Package: libcuda1
Status: hold ok installed
Description: says Status: hold ok installed
 and Package: other

Package: zstd
Status: install ok installed

Package: gone
Status: deinstall ok config-files
"""


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "status"
    path.write_text(STATUS)
    monkeypatch.setattr(_apt_status, "STATUS", str(path))
    return path


def test_marks_are_changed_in_a_copy_and_only_those_that_are_named(status: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    _apt_status.write(str(copy), {"libcuda1": False, "zstd": True, "gone": True})
    marked = STATUS.replace("Status: install ok", "Status: hold ok", 1).replace("Status: hold ok", "Status: install ok", 1)
    assert copy.read_text() == marked
    assert status.read_text() == STATUS


def test_apt_is_told_of_the_copy_while_it_is_there(status: Path) -> None:
    with _apt_status.freed({"libcuda1"}) as options:
        path = Path(options[1].partition("=")[2])
        assert options == ["-o", f"Dir::State::Status={path}"]
        assert "hold ok installed\nDescription" not in path.read_text()
    assert not path.exists()
    with _apt_status.freed(set()) as options:
        assert options == []


def test_what_is_half_installed_is_here_and_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "a 1 unpacked install,b 1 config-files deinstall,c 1 installed hold,d 0 not-installed unknown,"
    monkeypatch.setattr(_apt, "rows", lambda: [line.split(" ") for line in told.split(",")])
    assert (_apt.unpacked(), _apt.installed()) == ({"a", "c"}, {"c": "1"})


@pytest.mark.parametrize(
    ("afresh", "purged", "words"),
    [
        (None, [], ["/new.deb", "old-", "older-"]),
        # Also where a run that was cut off has left none of the same name.
        ([], ["old", "older"], ["/new.deb"]),
        (["libcuda1"], ["libcuda1", "old", "older"], ["/new.deb"]),
    ],
)
def test_another_suppliers_packages_go_before_anything_comes(
    monkeypatch: pytest.MonkeyPatch, afresh: list[str] | None, purged: list[str], words: list[str]
) -> None:
    done: list[list[str]] = []

    def run(command: list[str], _seconds: int, **_: object) -> tuple[int, str]:
        done.append(command)
        return 0, ""

    monkeypatch.setattr(_apt, "run", run)
    _apt.Apt(5).exchange(["/new.deb"], ["old", "older"], afresh)
    assert [command[command.index("--purge") + 1:] for command in done if command[0] == "dpkg"] == ([purged] if purged else [])
    last = done[-1]
    assert last[0] == "apt-get" and "--simulate" not in last and [word for word in last if word in words] == words
    assert [word for word in last if word.endswith("-")] == [word for word in words if word.endswith("-")]
