# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf's list of locked versions: ours come and go, everything else stays byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _locks, _streams
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from hypothesis import given
from hypothesis import strategies as st

OURS = {name: _locks.line(name, "3:580.178.04-1.el9") for name in ("nvidia-driver-cuda", "nvidia-modprobe")}
THEIRS = "# The site's.\nhtop-0:3.2-1.el9.*\n\nnvidia-modprobe-3:535.309.01-1.el9.*\n!nvidia-driver-cuda-3:590.48.01-1.el9.*\n"
BEFORE = {"nvidia-driver-cuda": ["!nvidia-driver-cuda-3:590.48.01-1.el9.*"], "nvidia-modprobe": ["nvidia-modprobe-3:535.309.01-1.el9.*"]}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("nvidia-driver-cuda-3:580.178.04-1.el9.*", "nvidia-driver-cuda"),
        ("!kernel-core-0:5.14.0-570.el9.*", "kernel-core"),
        ("kernel-core-5.14.0-570.el9.x86_64", "kernel-core"),
        # Without a version, however many parts it has.
        ("nvidia-driver-cuda", "nvidia-driver-cuda"),
        ("nvidia-modprobe-*:580*-1.el9.*", "nvidia-modprobe"),
        ("nvidia-modprobe-580*-1.el9", "nvidia-modprobe"),
        ("*nvidia*580*", "*nvidia*580*"),
    ],
)
def test_the_package_of_a_line(line: str, name: str) -> None:
    assert _locks.name_of(line + "\n") == name


def test_a_lock_has_an_epoch() -> None:
    assert _locks.line("nvidia-fabricmanager", "580.178.04-1") == "nvidia-fabricmanager-0:580.178.04-1.*"


def test_ours_stand_between_marks_and_what_they_replace_is_put_aside() -> None:
    text = _locks.rewrite(THEIRS, OURS)
    assert _locks.active(text) == {"htop": ["htop-0:3.2-1.el9.*"], **{name: [line] for name, line in OURS.items()}}
    assert _locks.ours(text) == OURS
    assert _locks.rewrite(text, OURS) == text
    assert _locks.rewrite(text, {}) == _locks.released(text, BEFORE) == THEIRS


def test_another_version_takes_the_place_of_the_first() -> None:
    newer = {"nvidia-modprobe": _locks.line("nvidia-modprobe", "3:590.48.01-1.el9")}
    text = _locks.rewrite(_locks.rewrite(THEIRS, OURS), newer)
    assert _locks.ours(text) == newer
    # What is no longer ours has its own line again.
    assert _locks.active(text)["nvidia-driver-cuda"] == BEFORE["nvidia-driver-cuda"]
    assert _locks.released(text, BEFORE) == THEIRS


def test_a_line_of_theirs_that_says_for_a_while_what_ours_says_keeps_its_place() -> None:
    same = {"nvidia-modprobe": BEFORE["nvidia-modprobe"][0]}
    text = _locks.rewrite(_locks.rewrite(_locks.rewrite(THEIRS, OURS), same), OURS)
    assert _locks.ours(text) == OURS and _locks.released(text, BEFORE) == THEIRS


def test_lines_that_somebody_adds_later_stay() -> None:
    text = _locks.rewrite(THEIRS, OURS) + "\n# Added lock on a day\nglibc-0:2.34-1.el9.*\n"
    assert _locks.released(text, BEFORE) == THEIRS + "\n# Added lock on a day\nglibc-0:2.34-1.el9.*\n"


def test_a_list_whose_remarks_are_gone() -> None:
    """As dnf versionlock delete leaves it."""
    bare = "".join(line + "\n" for line in _locks.rewrite(THEIRS, OURS).splitlines() if line and not line.startswith("#"))
    again = _locks.rewrite(bare, OURS)
    assert _locks.active(again) == {"htop": ["htop-0:3.2-1.el9.*"], **{name: [line] for name, line in OURS.items()}}
    for text in (bare, again):
        assert _locks.active(_locks.released(text, BEFORE)) == _locks.active(THEIRS)
    # Ours of an older version, with their marks lost, are nobody's.
    newer = {name: _locks.line(name, "3:590.48.01-1.el9") for name in OURS}
    assert _locks.active(_locks.released(_locks.rewrite(bare, newer), {name: [] for name in OURS})) == {"htop": ["htop-0:3.2-1.el9.*"]}


FOREIGN = [line for lines in BEFORE.values() for line in lines]
LINE = st.sampled_from(["# a remark", "", "htop-0:3.2-1.el9.*", "!glibc-0:2-1.*", "nvidia-modprobe", *FOREIGN])


@given(st.lists(LINE), st.lists(st.sampled_from(sorted(OURS)), unique=True, min_size=1))
def test_whatever_was_there_comes_back(lines: list[str], names: list[str]) -> None:
    text = "".join(line + "\n" for line in lines)
    ours = {name: OURS[name] for name in names}
    made = _locks.rewrite(text, ours)
    assert {name: found for name, found in _locks.active(made).items() if name in ours} == {name: [line] for name, line in ours.items()}
    assert _locks.rewrite(made, {}) == text
    assert _locks.released(made, {name: _locks.active(text).get(name, []) for name in ours}) == text


@pytest.mark.parametrize(
    ("text", "stream"),
    [
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n", "580-open"),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=default\nstate=disabled\n", None),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=\nprofiles=\nstate=\n", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_what_gpu_facts_says_of_locks_and_streams(tmp_path: Path, text: str, stream: str | None) -> None:
    for path, content in ((_locks.PATH, THEIRS), (_streams.PATH % "nvidia-driver", text)):
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    system = System(str(tmp_path), 5)
    assert _locks.lock_state(system, "nvidia-modprobe") == {"lines": BEFORE["nvidia-modprobe"]}
    assert _locks.lock_state(system, "nvidia-driver") == {"lines": []}
    assert _streams.stream_state(system, "nvidia-driver") == {"stream": stream}
    assert _streams.stream_state(system, "other") == {"stream": None}
