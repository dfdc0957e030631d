# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back is asked of the real apt-get, with package files made here and a status that is not this machine's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_back, _apt_status, _driver_prepare
from ansible_collections.gpu.fleet.plugins.module_utils._archives import Archives
from ansible_collections.gpu.fleet.plugins.module_utils._transaction import Refused

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="no apt-get here")


def control(name: str, version: str, **more: str) -> str:
    fields = {
        "Package": name, "Version": version, "Architecture": "all", "Maintainer": "nobody <nobody@example.org>", "Description": "of a test", **more,
    }  # fmt: skip
    return "".join(f"{key}: {value}\n" for key, value in fields.items())


class Host:
    """What is installed, as dpkg would say it, and the files that are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status = folder / "status"
        self.archives = Archives(str(folder / "packages"))
        (folder / "packages").mkdir()
        self.installed: dict[str, str] = {}

    def install(self, name: str, version: str, **more: str) -> None:
        self.installed[name] = control(name, version, **more)
        text = "\n".join(text.replace("\n", "\nStatus: install ok installed\n", 1) for text in self.installed.values())
        self.status.write_text(text)

    def archive(self, name: str, version: str, **more: str) -> dict[str, str]:
        """Keep the file of a package; return its set."""
        root = self.folder / "build" / f"{name}_{version}"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN" / "control").write_text(control(name, version, **more))
        path = f"{self.archives.folder}/{name}_{version}_all.deb"
        subprocess.run(["dpkg-deb", "--build", str(root), path], check=True, stdout=subprocess.DEVNULL)
        return {Path(path).name: ""}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Give a host with driver 1, of two packages, and somebody's agent that uses it."""
    made = Host(tmp_path)
    made.install("libgpu", "1")
    made.install("gpu-tools", "1", Depends="libgpu (= 1)")
    made.install("agent", "7", Depends="libgpu")
    monkeypatch.setattr(_apt_status, "STATUS", str(made.status))
    monkeypatch.setattr(_apt, "rows", lambda: [[name, "", "installed", "install"] for name in made.installed])
    return made


@pytest.fixture
def apt(host: Host) -> _apt.Apt:
    made = _apt.Apt(1)
    made.options += ["-o", f"Dir::State::Status={host.status}", "-o", "APT::Architecture=amd64"]
    return made


@pytest.fixture
def states(host: Host) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give both ways of a change from driver 1 to driver 2, which has its tools under another name and a firmware beside them."""
    renamed = {"Provides": "gpu-tools", "Conflicts": "gpu-tools", "Replaces": "gpu-tools", "Depends": "libgpu (= 2), gpu-firmware"}
    new = {**host.archive("libgpu", "2"), **host.archive("nvidia-tools", "2", **renamed), **host.archive("gpu-firmware", "2")}
    old = {**host.archive("libgpu", "1"), **host.archive("gpu-tools", "1", Depends="libgpu (= 1)")}
    return {"archives": new, "absent": ["gpu-tools"]}, {"archives": old, "absent": ["gpu-firmware", "nvidia-tools"]}


def changed(host: Host) -> None:
    """Let driver 2 be at work."""
    del host.installed["gpu-tools"]
    host.install("libgpu", "2")
    host.install("gpu-firmware", "2")
    host.install("nvidia-tools", "2", Depends="libgpu (= 2), gpu-firmware", Conflicts="gpu-tools")


def test_a_way_back_without_any_repository_is_seen(host: Host, apt: _apt.Apt, states: tuple[dict[str, Any], dict[str, Any]]) -> None:
    before = host.status.read_text()
    _driver_prepare.way_back(host.archives, *states, apt)
    assert host.status.read_text() == before
    changed(host)
    _apt_back.see(host.archives, states[1], apt)


def test_files_that_do_not_suffice_are_no_way_back(host: Host, apt: _apt.Apt, states: tuple[dict[str, Any], dict[str, Any]]) -> None:
    wanted, before = states
    before["archives"] = {name: "" for name in before["archives"] if name != "libgpu_1_all.deb"}
    with pytest.raises(Refused, match=r"there would be no way back: apt-get install failed: .*libgpu"):
        _driver_prepare.way_back(host.archives, wanted, before, apt)


def test_a_way_back_that_would_take_a_strangers_package_away_is_none(
    host: Host, apt: _apt.Apt, states: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """It came since, and uses what only the new driver has."""
    changed(host)
    host.install("trainer", "3", Depends="gpu-firmware")
    with pytest.raises(_apt.Failed, match="it would also remove trainer"):
        _apt_back.see(host.archives, states[1], apt)
    with pytest.raises(_apt.Failed, match="it would also remove trainer"):
        # No --simulate: what is refused must not have begun.
        apt.exchange(host.archives.paths(states[1]["archives"]), states[1]["absent"])


def test_a_library_of_another_architecture_is_another_package(host: Host) -> None:
    stanza = "Package: libgpu\nStatus: install ok installed\nArchitecture: {}\nVersion: 1"
    stanzas = [stanza.format("amd64"), stanza.format("i386"), stanza.format("amd64").replace("libgpu", "tools")]
    coming = {"libgpu": "Package: libgpu\nVersion: 2\nArchitecture: amd64\n"}
    assert host.installed
    found = _apt_status.replaced(stanzas, coming, ["tools"])
    assert found == [stanzas[1], "Package: libgpu\nStatus: install ok installed\nVersion: 2\nArchitecture: amd64"]
