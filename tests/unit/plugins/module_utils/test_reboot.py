# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _kernels, _reboot
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Result, Runner
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree

KERNEL = "6.1.0-40-amd64"


def driver(loaded: str | None = None, disk: str | None = None, library: str | None = None, libcuda: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "loaded": {"version": loaded, "flavour": "open"} if loaded else None,
        "on_disk": {KERNEL: {"version": disk, "flavour": "open", "path": "x"}} if disk else {},
        "user_space": library or disk,
        "libcuda": libcuda or library or disk,
        "rivals": [],
        "module_options": [],
        "kernel_options": {"running": [], "next_boot": None, "configured": None},
        "next_boot": {"kernel": None},
        "nic_settings": None,
        **more,
    }


def rival(module: str, *bound: str) -> dict[str, Any]:
    return {"rivals": [{"module": module, "bound": list(bound)}]}


NOT_OPEN = {"loaded": {"version": "580.178.04", "flavour": "proprietary"}}
OPTION = {"module": "nvidia", "option": "NVreg_X", "value": "1", "file": "/etc/modprobe.d/x.conf", "running": "0"}
KERNEL_OPTIONS = {"running": ["BOOT_IMAGE=/x", "ro"], "next_boot": ["ro", "iommu=pt"], "configured": None}
NIC = {"0000:18:00.0": [{"name": "SRIOV_EN", "current": "False(0)", "next_boot": "True(1)"}], "0000:19:00.0": []}


@pytest.mark.parametrize(
    ("files", "state", "expected"),
    [
        pytest.param((), driver(), {}, id="bare"),
        pytest.param((), driver("580.178.04", "580.178.04"), {}, id="in step"),
        pytest.param(
            (), driver("580.159.04", "580.178.04"),
            {"other_module_loaded": "loaded 580.159.04, on disk 580.178.04"}, id="changed below a loaded module",
        ),
        pytest.param(
            (), {**driver(None, "580.178.04"), **NOT_OPEN}, {"other_module_loaded": "loaded proprietary, on disk open"}, id="the other flavour loaded"
        ),
        pytest.param((), driver("580.159.04", None), {}, id="no module for this kernel: a boot would not help"),
        pytest.param((), driver(None, "580.178.04"), {}, id="only to be loaded"),
        pytest.param(
            (), driver("580.178.04", "580.178.04", "580.159.04", "580.178.04"),
            {"other_user_space": "on disk 580.178.04, libcuda 580.178.04, libnvidia-ml 580.159.04"}, id="another libnvidia-ml",
        ),
        pytest.param(
            (), driver("580.178.04", "580.178.04", "580.178.04", "580.159.04"),
            {"other_user_space": "on disk 580.178.04, libcuda 580.159.04, libnvidia-ml 580.178.04"}, id="another libcuda",
        ),
        pytest.param(
            (), driver("580.159.04", "580.178.04", "580.159.04"),
            {
                "other_module_loaded": "loaded 580.159.04, on disk 580.178.04",
                "other_user_space": "on disk 580.178.04, libcuda 580.159.04, libnvidia-ml 580.159.04",
            },
            id="a new module, old libraries",
        ),
        pytest.param((), driver(None, None, "580.178.04"), {}, id="libraries alone"),
        pytest.param(
            (), driver(None, "580.178.04", **rival("nouveau")), {"nouveau_loaded": "nouveau is loaded, nvidia 580.178.04 is on disk"}, id="nouveau"
        ),
        pytest.param(
            (), driver(None, "580.178.04", **rival("nova_core", "a", "b")),
            {"nova_core_loaded": "nova_core is bound to 2 devices, nvidia 580.178.04 is on disk"}, id="nova_core has the GPUs",
        ),
        pytest.param((), driver(**rival("nouveau", "a")), {}, id="nouveau and no driver"),
        pytest.param(("/run/reboot-required",), driver(), {"asked_by_packages": "no package named"}, id="asked for by nobody"),
        pytest.param(("/boot/vmlinuz-" + KERNEL, "/boot/vmlinuz-6.1.0-9-amd64"), driver(), {}, id="older kernel beside"),
        pytest.param(("/boot/vmlinuz-" + KERNEL, "/boot/vmlinuz-6.1.0-41-rt-amd64"), driver(), {}, id="a kernel of another kind beside"),
        pytest.param(
            ("/boot/vmlinuz-" + KERNEL, "/boot/vmlinuz-6.1.0-41-amd64"), driver(),
            {"newer_kernel": "running 6.1.0-40-amd64, installed 6.1.0-41-amd64"}, id="newer kernel",
        ),
        pytest.param(
            ("/boot/vmlinuz-" + KERNEL, "/boot/vmlinuz-6.1.0-41-amd64"), driver(next_boot={"kernel": KERNEL}),
            {"newer_kernel": "running 6.1.0-40-amd64, installed 6.1.0-41-amd64, the next boot is set to 6.1.0-40-amd64"}, id="newer, but not chosen",
        ),
        pytest.param(("/boot/vmlinuz-6.1.0-41-amd64",), driver(), {}, id="a kernel that is not from here"),
        pytest.param(
            (), driver(module_options=[OPTION]), {"pending_module_options": "nvidia NVreg_X is 0, /etc/modprobe.d/x.conf says 1"}, id="module options"
        ),
        pytest.param((), driver(module_options=[{**OPTION, "running": "1"}]), {}, id="module options in force"),
        pytest.param((), driver(kernel_options=KERNEL_OPTIONS), {"pending_kernel_options": "not in force: iommu=pt"}, id="kernel options"),
        pytest.param((), driver(nic_settings=NIC), {"pending_nic_settings": "0000:18:00.0 SRIOV_EN is False(0), next True(1)"}, id="adapters"),
    ],
)  # fmt: skip
def test_what_is_pending(tmp_path: Path, files: tuple[str, ...], state: dict[str, Any], expected: dict[str, str]) -> None:
    tree = Tree(tmp_path)
    for path in files:
        tree.file(path, "")
    system = System(str(tree.root))
    reasons = _reboot.reasons(system, KERNEL, _kernels.installed(system), state, None)
    assert {reason["id"]: reason["seen"] for reason in reasons} == expected
    assert len(reasons) == len(expected)


def test_packages_that_ask_are_named_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.file("/run/reboot-required", "*** System restart required ***")
    tree.file("/run/reboot-required.pkgs", "linux-base\nlibc6\nlinux-base")
    assert _reboot.asked_by_packages(System(str(tree.root))) == {"id": "asked_by_packages", "seen": "libc6 linux-base"}


YES = "Core libraries or services have been updated since boot-up:\n  * kernel\n  * glibc\n\nReboot is required to fully utilize these updates.\n"
NO = "No core libraries or services have been updated since boot-up.\nReboot should not be necessary.\n"


@pytest.mark.parametrize(
    ("answer", "seen", "problem"),
    [
        (None, None, None),
        (Result(1, YES, "", None), "glibc kernel", None),
        (Result(1, "Reboot is required\n", "", None), "Reboot is required", None),
        (Result(0, NO, "", None), None, None),
        (Result(1, "", "No such command: needs-restarting.\n", None), None, "exit status 1: No such command: needs-restarting."),
        (Result(2, "", 'Unknown argument "needs-restarting"', None), None, 'exit status 2: Unknown argument "needs-restarting"'),
        (Result(0, "", "", None), None, "exit status 0: no message"),
        (Result(None, "", "", "no answer within 3.0 s"), None, "no answer within 3.0 s"),
    ],
)  # fmt: skip
def test_the_answer_of_dnf(answer: Result | None, seen: str | None, problem: str | None) -> None:
    reason, wrong = _reboot.asked_by_dnf(answer)
    assert (reason["seen"] if reason else None, wrong) == (seen, problem)


def test_the_question_to_dnf(tmp_path: Path) -> None:
    (tmp_path / "dnf").write_text(f'#!/bin/sh\n[ "$*" = "needs-restarting -r" ] && cat <<END\n{YES}END\nexit 1\n')
    (tmp_path / "dnf").chmod(0o755)
    runner = Runner(lambda: 5.0, search=f"{tmp_path}:/bin:/usr/bin")
    assert _reboot.asked_by_dnf(runner.run(_reboot.DNF)) == ({"id": "asked_by_dnf", "seen": "glibc kernel"}, None)
