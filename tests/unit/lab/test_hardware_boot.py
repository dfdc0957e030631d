# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated boot loader, the firmware's memory, and the settings of adapters."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from lab.hardware.guest.labhw import bootloader, kernel, nicsettings, secureboot
from lab.hardware.guest.labhw import machine as machines
from lab.hardware.guest.labhw.render import driver_of
from lab.hardware.guest.labhw.state import State, fresh
from unit.lab.hardware_machines import machine

MENU = """
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
   save_env next_entry
else
   set default="{default}"
fi
function savedefault {{
  if [ -z "${{boot_once}}" ]; then
    save_env saved_entry
  fi
}}
if loadfont $font ; then
  set default=9
fi
menuentry 'Debian' --class os $menuentry_id_option 'simple' {{
	if [ x$grub_platform = xxen ]; then insmod xzio; fi
	linux	/boot/vmlinuz-6.1.0-41-amd64 root=/dev/vda1 ro  quiet
}}
submenu 'More' $menuentry_id_option 'more' {{
	menuentry 'new' $menuentry_id_option 'new' {{
		linux	/boot/vmlinuz-6.1.0-41-amd64 root=/dev/vda1 ro
	}}
	menuentry 'old' $menuentry_id_option 'old' {{
		linux	/boot/vmlinuz-6.1.0-40-amd64 root=/dev/vda1 ro
	}}
}}
"""


def boot(folder: Path, default: str, environment: str | None = None) -> str | None:
    """Return the release that starts."""
    grub = folder / "boot/grub"
    grub.mkdir(parents=True, exist_ok=True)
    (grub / "grub.cfg").write_text(MENU.format(default=default))
    if environment is not None:
        (grub / "grubenv").write_text(f"# GRUB Environment Block\n{environment}".ljust(1024, "#"))
    found = bootloader.start(str(folder))
    return found[0] if found else None


@pytest.mark.parametrize(
    ("default", "environment", "release"),
    [
        ("0", None, "6.1.0-41-amd64"),
        ("1>1", None, "6.1.0-40-amd64"),
        ("more>old", None, "6.1.0-40-amd64"),
        ("more", None, "6.1.0-41-amd64"),
        ("gone", None, "6.1.0-41-amd64"),
        ("${saved_entry}", "saved_entry=more>old\n", "6.1.0-40-amd64"),
        ("${saved_entry}", "", "6.1.0-41-amd64"),
        ("0", "next_entry=more>old\n", "6.1.0-40-amd64"),
    ],
)
def test_the_boot_loader_starts_what_its_menu_says(tmp_path: Path, default: str, environment: str | None, release: str) -> None:
    assert boot(tmp_path, default, environment) == release


def test_an_entry_for_once_is_forgotten_and_the_block_keeps_its_size(tmp_path: Path) -> None:
    assert boot(tmp_path, "0", "next_entry=more>old\nsaved_entry=simple\n") == "6.1.0-40-amd64"
    assert len((tmp_path / "boot/grub/grubenv").read_bytes()) == 1024
    assert bootloader.environment(str(tmp_path)) == {"saved_entry": "simple"}
    assert bootloader.start(str(tmp_path)) == ("6.1.0-41-amd64", "BOOT_IMAGE=/boot/vmlinuz-6.1.0-41-amd64 root=/dev/vda1 ro quiet")


def test_without_a_menu_nothing_is_chosen(tmp_path: Path) -> None:
    assert bootloader.start(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--target=device", "/"], "/dev/vda1\n"),
        (["-t", "fs", "--device", "/dev/vda1"], "ext2\n"),
        (["--device", "/dev/vda1", "--target=abstraction"], ""),
        (["/"], "ext2\n"),
    ],
)
def test_the_disk_answers(words: list[str], answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bootloader.probe(words) == 0
    assert capsys.readouterr().out == answer


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the firmware's memory a place of its own."""
    for name in ("ENROLLED", "ASKED", "SWITCH", "FIRMWARE"):
        monkeypatch.setattr(secureboot, name, str(tmp_path / name.lower()))
    return tmp_path


def start(memory: Path, otherwise: bool | None) -> None:
    """Show the firmware's variables as a start does."""
    enabled = secureboot.switched(otherwise)
    (memory / "firmware").mkdir(exist_ok=True)
    for name, content in secureboot.variables(bool(enabled)).items() if enabled is not None else ():
        (memory / "firmware" / name).write_bytes(content)


def test_a_key_is_trusted_after_it_was_confirmed_and_the_machine_started(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = memory / "mok.pub"
    key.write_bytes(b"0\x82 a certificate of Somebody")
    start(memory, False)
    assert secureboot.main(["--test-key", str(key)]) == 0
    assert secureboot.main(["--import", str(key)]) == 0
    start(memory, False)
    assert not secureboot.trusts("Somebody")
    assert secureboot.confirm() == 1
    assert not secureboot.trusts("Somebody")
    start(memory, False)
    assert secureboot.trusts("Somebody") and not secureboot.trusts("Nobody")
    assert secureboot.main(["--test-key", str(key)]) == 1
    assert capsys.readouterr().out == f"{key} is not enrolled\n{key} is already enrolled\n"


def test_the_switch_in_the_setup(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert secureboot.main(["--sb-state"]) == 1
    secureboot.turn("on")
    assert secureboot.switched(None) is None
    start(memory, False)
    assert secureboot.main(["--sb-state"]) == 0
    assert capsys.readouterr().out == "SecureBoot enabled\n"


def state(*names: str) -> State:
    """Return a state with modules, the last one loaded last."""
    found = fresh()
    found["modules"] = [{"name": name, "depends": []} for name in reversed(names)]
    return found


def test_nouveau_takes_the_gpus_before_nvidia_comes() -> None:
    found = machine("h100-sxm8")
    gpu, switch = found.by_address[found.gpus[0]["address"]], found.by_address[found.nvswitches[0]]
    assert driver_of(found, state("nouveau"), gpu) == "nouveau"
    assert driver_of(found, state("nouveau"), switch) is None
    assert driver_of(found, state("nvidia"), gpu) == "nvidia"
    info = {"name": "nvidia", "vermagic": "6.1.0 SMP", "license": "Dual MIT/GPL"}
    log: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "log", lambda text, *_level: log.append(text))
        assert kernel.why_not(found, state("nouveau"), info, "nvidia", "6.1.0") == errno.ENODEV
        assert kernel.why_not(found, state(), info, "nvidia", "6.1.0") == 0
    assert f"NVRM: GPU {found.gpus[0]['address']} is already bound to nouveau." in log


def test_a_setting_of_an_adapter_is_in_force_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nicsettings, "STORE", str(tmp_path / "store/nic.json"))
    monkeypatch.setattr(machines, "load", lambda: machine("h100-sxm8"))

    def row() -> list[str]:
        capsys.readouterr()
        assert nicsettings.main(["-d", "0000:18:00.0", "-e", "q"]) == 0
        return next(line.split() for line in capsys.readouterr().out.splitlines() if "SRIOV_EN" in line)

    assert row() == ["SRIOV_EN", "False(0)", "False(0)", "False(0)"]
    assert nicsettings.main(["-d", "mlx5_0", "-y", "set", "SRIOV_EN=1"]) == 0
    assert row() == ["*", "SRIOV_EN", "False(0)", "False(0)", "True(1)"]
    nicsettings.started()
    assert row()[-2:] == ["True(1)", "True(1)"]
    assert nicsettings.main(["-d", "0000:18:00.0", "-y", "set", "NO_SUCH=1"]) == 3
    assert nicsettings.main(["-d", "0000:00:00.0", "-e", "q"]) == 3


ENTRY = "title Linux ({0})\nversion {0}\nlinux /boot/vmlinuz-{0}\ninitrd /boot/initramfs-{0}.img\noptions root=/dev/vda1 ro {1}\n"


@pytest.mark.parametrize(
    ("environment", "release"),
    [
        (None, "5.14.0-100.el9.x86_64"),
        ("saved_entry=one-5.14.0-9.el9.x86_64\n", "5.14.0-9.el9.x86_64"),
        ("saved_entry=gone\n", "5.14.0-100.el9.x86_64"),
    ],
)
def test_a_loader_with_a_file_for_each_kernel_starts_what_is_saved_else_the_newest(tmp_path: Path, environment: str | None, release: str) -> None:
    entries = tmp_path / "boot/loader/entries"
    entries.mkdir(parents=True)
    for number in ("9", "100"):
        name = f"5.14.0-{number}.el9.x86_64"
        (entries / f"one-{name}.conf").write_text(ENTRY.format(name, f"word={number}"))
    if environment is not None:
        (tmp_path / "boot/grub2").mkdir()
        (tmp_path / "boot/grub2/grubenv").write_text(f"# GRUB Environment Block\n{environment}")
    number = release.split("-")[1].split(".", maxsplit=1)[0]
    assert bootloader.start(str(tmp_path)) == (release, f"BOOT_IMAGE=/boot/vmlinuz-{release} root=/dev/vda1 ro word={number}")


def test_an_entry_that_starts_once_is_forgotten(tmp_path: Path) -> None:
    entries = tmp_path / "boot/loader/entries"
    entries.mkdir(parents=True)
    for name in ("1-1.el9", "1-2.el9"):
        (entries / f"{name}.conf").write_text(ENTRY.format(name, ""))
    (tmp_path / "boot/grub2").mkdir()
    (tmp_path / "boot/grub2/grubenv").write_text("saved_entry=1-2.el9\nnext_entry=1-1.el9\n")
    starts = [bootloader.start(str(tmp_path)) for _ in range(2)]
    assert [started[0] for started in starts if started] == ["1-1.el9", "1-2.el9"]
