# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _pins, _software
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def system(tree: Tree) -> System:
    return System(str(tree.root))


def packages(*names: str, held: tuple[str, ...] = (), half: tuple[str, ...] = ()) -> dict[str, _software.Package]:
    return {name: _software.Package(None if name in half else "1", name in held, "installed", "x") for name in names}


def settings(text: str) -> _pins.AptSettings:
    found = _pins.AptSettings()
    found.take(text)
    return found


LIST = "unattended-upgrade::package-blacklist"


@pytest.mark.parametrize(
    ("text", "values", "listed"),
    [
        ('APT::Periodic::Enable "0";', {"apt::periodic::enable": "0"}, {}),
        ("APT::Periodic::Enable 0;", {"apt::periodic::enable": "0"}, {}),
        ('APT { Periodic { Enable "1"; Unattended-Upgrade "2"; }; };', {"apt::periodic::enable": "1", "apt::periodic::unattended-upgrade": "2"}, {}),
        ('APT::Periodic::Enable "0";\napt::periodic::enable "1";', {"apt::periodic::enable": "1"}, {}),
        ('Unattended-Upgrade::Package-Blacklist { "nvidia"; "libc6$"; };', {}, {LIST: ["nvidia", "libc6$"]}),
        ('Unattended-Upgrade::Package-Blacklist { "a";\n// "b";\n# "c";\n/* "d"; */\n "e"; };', {}, {LIST: ["a", "e"]}),
        ('Unattended-Upgrade::Package-Blacklist { "a"; };\nAPT::Periodic::Enable "0";', {"apt::periodic::enable": "0"}, {LIST: ["a"]}),
        ('Unattended-Upgrade::Package-Blacklist:: "nvidia";', {}, {LIST: ["nvidia"]}),
        (r'Unattended-Upgrade::Package-Blacklist { "libstdc\\+\\+6$"; };', {}, {LIST: [r"libstdc\+\+6$"]}),
        ('DPkg::Post-Invoke { "rm -f /x/*.deb || true; // no comment"; };', {}, {"dpkg::post-invoke": ["rm -f /x/*.deb || true; // no comment"]}),
        ('Dir::Etc "x"\n', {}, {}),
        ("} } ; ; { \"", {}, {}),
    ],
)
def test_settings_of_apt(text: str, values: dict[str, str], listed: dict[str, list[str]]) -> None:
    found = settings(text)
    assert (found.values, found.lists) == (values, listed)


def test_files_of_apt_in_order(tree: Tree) -> None:
    for name, value in (("20auto-upgrades", "1"), ("52local", "0"), ("60x.disabled", "1"), ("70x~", "1")):
        tree.file(f"/etc/apt/apt.conf.d/{name}", f'APT::Periodic::Unattended-Upgrade "{value}";')
    assert _pins.apt_settings(system(tree)).values == {"apt::periodic::unattended-upgrade": "0"}
    tree.file("/etc/apt/apt.conf", 'APT::Periodic::Unattended-Upgrade "3";')
    assert _pins.apt_settings(system(tree)).values == {"apt::periodic::unattended-upgrade": "3"}


ON = 'APT::Periodic::Unattended-Upgrade "1";'
TIMER = {"apt-daily-upgrade.timer": {"UnitFileState": "enabled"}}


@pytest.mark.parametrize(
    ("text", "units", "enabled"),
    [
        (ON, TIMER, True),
        ("", TIMER, False),
        ('APT::Periodic::Unattended-Upgrade "0";', TIMER, False),
        (ON + 'APT::Periodic::Enable "0";', TIMER, False),
        (ON, {"apt-daily-upgrade.timer": {"UnitFileState": "masked"}}, False),
        (ON, None, None),
        ("", None, False),
    ],
)
def test_whether_upgrades_come_unasked(text: str, units: dict[str, dict[str, str]] | None, enabled: bool | None) -> None:
    found = _pins.unattended_upgrades(settings(text), packages("unattended-upgrades"), units)
    assert found is not None and found["enabled"] is enabled


def test_without_the_tool_there_is_none() -> None:
    assert _pins.unattended_upgrades(settings(ON), packages("bash"), TIMER) is None
    assert _pins.unattended_upgrades(settings(ON), packages("unattended-upgrades", half=("unattended-upgrades",)), TIMER) is None
    assert _pins.unattended_upgrades(settings(ON), None, TIMER) is None


@pytest.mark.parametrize(
    ("excludes", "exposed"),
    [
        ("", ["cuda-toolkit-13-0", "libnccl2", "libnvidia-ml1", "nvidia-driver-cuda"]),
        ('"nvidia";', ["cuda-toolkit-13-0", "libnccl2", "libnvidia-ml1"]),
        ('"nvidia"; "libnvidia"; "cuda"; "libnccl";', []),
        ('"libnvidia-ml1$"; "(";', ["cuda-toolkit-13-0", "libnccl2", "nvidia-driver-cuda"]),
    ],
)
def test_what_unattended_upgrades_may_change(excludes: str, exposed: list[str]) -> None:
    there = packages(
        "unattended-upgrades", "nvidia-driver-cuda", "libnvidia-ml1", "libcuda1", "libnccl2", "cuda-toolkit-13-0", "bash", "nvidia-modprobe",
        held=("libcuda1",), half=("nvidia-modprobe",),
    )  # fmt: skip
    found = _pins.unattended_upgrades(settings(f"Unattended-Upgrade::Package-Blacklist {{ {excludes} }};"), there, TIMER)
    assert found is not None and found["exposed"] == exposed


PIN = "Package: {}\nPin: {}\nPin-Priority: {}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PIN.format("nvidia-*", "version 580*", 1001), [("nvidia-*", "version 580*", 1001)]),
        (PIN.format("*", "origin developer.download.nvidia.com", 600), [("*", "origin developer.download.nvidia.com", 600)]),
        (PIN.format("*", "release o=NVIDIA,l=NVIDIA CUDA", 600), []),
        (PIN.format("*", "release a=backports", 100), []),
        (PIN.format("firefox", "version *", -1), []),
        (PIN.format("libcuda1\n libnvidia-ml1", "version 1", -1), [("libcuda1 libnvidia-ml1", "version 1", -1)]),
        (PIN.format("x", "version 1", 1) + "\n" + PIN.format("cuda-*", "version 2", 2), [("cuda-*", "version 2", 2)]),
        ("# why\nPackage: nvidia-smi\nPin: version 1\n", [("nvidia-smi", "version 1", None)]),
        ("Package: nvidia-smi\n", []),
        (" continued\nrubbish\n:\n", []),
    ],
)
def test_pins_of_gpu_packages(tree: Tree, text: str, expected: list[tuple[str, str, int | None]]) -> None:
    tree.file("/etc/apt/preferences.d/x.pref", text)
    tree.file("/etc/apt/preferences.d/x.bak", PIN.format("nvidia-*", "version 1", 1))
    assert [(pin["packages"], pin["pin"], pin["priority"]) for pin in _pins.pins(system(tree))] == expected


def test_locks_of_dnf(tree: Tree) -> None:
    assert _pins.versionlock(system(tree)) == []
    tree.file("/etc/dnf/plugins/versionlock.list", "# Added lock on Mon\nkernel-0:5.14.0-427.el9.*\n\n!nvidia-x-3:580*\n*nvidia*580*\n")
    tree.file("/etc/dnf/versionlock.toml", 'version = "1.0"\n[[packages]]\nname = "cuda-drivers"\n[[packages.conditions]]\nkey = "evr"\n')
    assert _pins.versionlock(system(tree)) == ["kernel-0:5.14.0-427.el9.*", "!nvidia-x-3:580*", "*nvidia*580*", "cuda-drivers"]


@pytest.mark.parametrize(
    ("automatic", "main", "locks", "timer", "enabled", "exposed"),
    [
        ("[commands]\napply_updates = yes\n", "", [], "dnf-automatic.timer", True, ["cuda-drivers", "nvidia-driver"]),
        ("[commands]\napply_updates = no\n", "", [], "dnf-automatic.timer", False, ["cuda-drivers", "nvidia-driver"]),
        ("[commands]\napply_updates = no\n", "", [], "dnf-automatic-install.timer", True, ["cuda-drivers", "nvidia-driver"]),
        ("[commands]\napply_updates = yes\n", "", [], None, False, ["cuda-drivers", "nvidia-driver"]),
        ("[base]\nexclude = kernel* nvidia*\n cuda*\n", "", [], None, False, []),
        ("[base]\n", "[main]\nexcludepkgs=kernel*,nvidia*\n", [], None, False, ["cuda-drivers"]),
        ("[base]\n# exclude = nvidia*\n[other]\nexclude=cuda*\n", "", [], None, False, ["cuda-drivers", "nvidia-driver"]),
        ("[base]\n", "", ["nvidia-driver-3:580.178.04-1.el9.*"], None, False, ["cuda-drivers"]),
        ("[base]\n", "", ["*nvidia*"], None, False, ["cuda-drivers"]),
        ("[base]\n", "", ["!nvidia-driver-3:590-1"], None, False, ["cuda-drivers", "nvidia-driver"]),
    ],
)
def test_automatic_updates_of_dnf(
    tree: Tree, automatic: str, main: str, locks: list[str], timer: str | None, enabled: bool, exposed: list[str]
) -> None:
    tree.file("/etc/dnf/automatic.conf", automatic)
    tree.file("/etc/dnf/dnf.conf", main)
    units = {timer: {"UnitFileState": "enabled"}} if timer else {}
    found = _pins.dnf_automatic(system(tree), locks, packages("nvidia-driver", "cuda-drivers", "bash"), units)
    assert found is not None
    assert (found["enabled"], found["exposed"]) == (enabled, exposed)
    assert _pins.dnf_automatic(system(tree), locks, None, None) == {**found, "enabled": None, "exposed": None}


def test_a_host_without_any_of_it(tree: Tree) -> None:
    found = _pins.scan(system(tree), packages("bash", "dash", held=("bash",)), {})
    assert found == {"holds": ["bash"], "pins": [], "versionlock": [], "automatic": []}
    assert _pins.scan(system(tree), None, None)["holds"] is None


PARTS = ["{", "}", ";", '"', "\\", "//", "/*", "*/", "#", "::", "APT", "\n", " ", "Package:", "Pin:", "=", "[", "]"]


@given(st.lists(st.sampled_from(PARTS), max_size=40))
def test_damaged_files_never_raise(parts: list[str]) -> None:
    text = "".join(parts)
    found: Any = settings(text)
    assert found is not None
    _pins.parse_preferences(text)
    _pins.parse_ini(text)
