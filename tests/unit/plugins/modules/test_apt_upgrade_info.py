# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_status, _dkms
from ansible_collections.gpu.fleet.plugins.modules import apt_upgrade_info
from ansible_collections.gpu.fleet.plugins.plugin_utils import _apt_plan
from fixtures.module_run import ModuleRun

VERSION = "580.178.04-1"
NEWER = "Inst libcuda1 [580.178.04-1] (590.48.01-1 x [amd64])\n"
NAMES = ["libcuda1", "nvidia-smi"]


class Host:
    """Programs in the place of apt's and dpkg's; what they print lies in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state(upgrade="", unheld="")
        self.marks("hold")
        self.fence(_apt_plan.fence("# x\n", NAMES))
        self.program("dpkg-query", f"cat {folder}/marks")
        self.program("apt-config", f"cat {folder}/fence")
        self.program("apt-get", f'echo "$*" >>{folder}/calls\ncase "$*" in *--ignore-hold*) cat {folder}/unheld;; *) cat {folder}/upgrade;; esac')

    def program(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / name).chmod(0o755)

    def marks(self, mark: str) -> None:
        (self.folder / "marks").write_text("".join(f"{name}\t{VERSION}\tinstalled\t{mark}\n" for name in NAMES))

    def fence(self, text: str) -> None:
        """Write apt's settings as apt-config prints them."""
        patterns = [line.strip(' ";') for line in text.splitlines() if line.startswith("  ")]
        dumped = "".join(f'Unattended-Upgrade::Package-Blacklist:: "{pattern}";\n' for pattern in patterns)
        (self.folder / "fence").write_text('APT "";\nUnattended-Upgrade::Package-Blacklist "";\n' + dumped)

    def state(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.folder / name).write_text(text)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setitem(_apt.ENVIRONMENT, "PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(_dkms, "LOGS", str(tmp_path / "none"))
    return Host(folder)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> ModuleRun:
    return ModuleRun(apt_upgrade_info, capsys)


def items() -> list[dict[str, Any]]:
    held = [{"role": "r", "kind": "hold", "id": name, "desired": {"held": True}} for name in NAMES]
    return held + [{"role": "r", "kind": "package", "id": name, "desired": {"version": VERSION}} for name in NAMES]


def test_a_host_whose_driver_stays(host: Host, run: ModuleRun) -> None:
    host.state(upgrade="Inst bash [5.2-1] (5.2-2 x [amd64])\n", unheld="Inst nvidia-container-toolkit [1.18.2-1] (1.20.0-1 x [amd64])\n")
    found = run(items=items())
    assert (found["findings"], found["moves"], found["changed"]) == ([], [], False)
    assert all("dist-upgrade" in call and "--simulate" in call for call in (host.folder / "calls").read_text().splitlines())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(NEWER, "change libcuda1 580.178.04-1 to 590.48.01-1", id="an upgrade"),
        pytest.param("Remv nvidia-smi [580.178.04-1]\n", "remove nvidia-smi 580.178.04-1", id="a removal"),
        pytest.param("Inst nvidia-driver-590 (590.48.01-1 x [amd64])\n", "install nvidia-driver-590 590.48.01-1", id="another driver"),
    ],
)
def test_what_a_full_upgrade_would_do(host: Host, run: ModuleRun, line: str, said: str) -> None:
    host.state(upgrade=line)
    assert run(items=items())["findings"] == [f"a full upgrade would {said}"]


def test_each_thing_that_keeps_them_is_looked_at(host: Host, run: ModuleRun) -> None:
    host.marks("install")
    host.state(unheld=NEWER)
    host.fence("")
    found = run(items=items())
    assert (found["unheld"], found["unpinned"], found["unfenced"]) == (NAMES, ["libcuda1"], NAMES)
    assert found["findings"] == ["not on hold: libcuda1, nvidia-smi", "not pinned: libcuda1", "open to unattended-upgrades: libcuda1, nvidia-smi"]


def test_a_pattern_that_only_looks_like_it_is_no_fence(host: Host, run: ModuleRun) -> None:
    host.fence('  "libcuda$";\n  "smi";\n')
    assert run(items=items())["unfenced"] == NAMES


def test_before_the_plan_is_carried_out(host: Host, run: ModuleRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check mode asks of a host as it will be; nothing of it is written where apt would find it."""
    status, preferences = tmp_path / "status", tmp_path / "preferences.d"
    status.write_text("Package: libcuda1\nStatus: install ok installed\n\nPackage: bash\nStatus: install ok installed\n")
    preferences.mkdir()
    (preferences / "theirs").write_text("theirs")
    monkeypatch.setattr(_apt_status, "STATUS", str(status))
    monkeypatch.setattr(apt_upgrade_info, "PREFERENCES", str(preferences))
    monkeypatch.setattr(apt_upgrade_info, "SETTINGS", str(tmp_path / "apt.conf.d"))
    host.program("apt-get", f"for word; do case $word in Dir::*) cp -rT ${{word#*=}} {tmp_path}/seen-$(basename $word);; esac; done")
    host.marks("install")
    host.fence("")
    files = {preferences / "ours": "ours", tmp_path / "apt.conf.d" / "fence": _apt_plan.fence("# x\n", NAMES)}
    planned = [{"role": "r", "kind": "file", "id": str(path), "desired": {"state": "file", "content": text}} for path, text in files.items()]
    assert run(items=items() + planned, planned=True)["findings"] == []
    assert (tmp_path / "seen-status").read_text() == status.read_text().replace("install ok", "hold ok", 1)
    assert {path.name: path.read_text() for path in (tmp_path / "seen-preferences").iterdir()} == {"ours": "ours", "theirs": "theirs"}
    assert [path.name for path in preferences.iterdir()] == ["theirs"]


def test_apts_complaint_is_passed_on(host: Host, run: ModuleRun) -> None:
    host.program("apt-get", "echo 'E: Unmet dependencies.'; exit 100")
    assert "E: Unmet dependencies." in run(items=items())["msg"]
