# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _boot
from ansible_collections.gpu.fleet.plugins.module_utils._system import System
from fixtures.sysfs import Tree
from hypothesis import given
from hypothesis import strategies as st

NEW, OLD = "6.1.0-41-amd64", "6.1.0-40-amd64"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def system(tree: Tree) -> System:
    return System(str(tree.root))


def entry(title: str, name: str, kernel: str, options: str = "root=/dev/vda1 ro quiet", command: str = "linux\t") -> str:
    return (
        f"menuentry '{title}' --class debian $menuentry_id_option '{name}' {{\n\tinsmod gzio\n\tif [ x$grub_platform = xxen ]; then insmod xzio; fi\n"
        f"\t{command}/boot/vmlinuz-{kernel} {options}\n\tinitrd\t/boot/initrd.img-{kernel}\n}}\n"
    )


def menu(default: str) -> str:
    return (
        'if [ -s $prefix/grubenv ]; then\n  load_env\nfi\nif [ "${next_entry}" ] ; then\n   set default="${next_entry}"\n   set next_entry=\n'
        f'   save_env next_entry\nelse\n   set default="{default}"\nfi\nfunction savedefault {{\n  saved_entry="${{chosen}}"\n}}\n'
        + entry("Debian", "simple", NEW)
        + "submenu 'Advanced options' $menuentry_id_option 'advanced' {\n"
        + entry(f"Debian, with Linux {NEW}", "new", NEW)
        + entry(f"Debian, with Linux {NEW} (recovery mode)", "recovery", NEW, "root=/dev/vda1 ro single")
        + entry(f"Debian, with Linux {OLD}", "old", OLD)
        + "}\nmenuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi' {\n\tfwsetup\n}\n"
    )


@pytest.mark.parametrize(
    ("default", "environment", "expected"),
    [
        pytest.param("0", "", (NEW, False), id="the first"),
        pytest.param("1>2", "", (OLD, False), id="by numbers, into a submenu"),
        pytest.param("1", "", (NEW, False), id="a submenu: its first"),
        pytest.param("7", "", (NEW, False), id="a number that is not there"),
        pytest.param("gone", "", (NEW, False), id="a name that is not there"),
        pytest.param("advanced>old", "", (OLD, False), id="by names"),
        pytest.param("advanced>gone", "", (NEW, False), id="a submenu without such an entry"),
        pytest.param(f"Advanced options>Debian, with Linux {OLD}", "", (OLD, False), id="by titles"),
        pytest.param("${saved_entry}", "saved_entry=advanced>old\n", (OLD, False), id="saved"),
        pytest.param("${saved_entry}", "", (NEW, False), id="saved, but nothing is"),
        pytest.param("${saved_entry}", "saved_entry=0\nprev_saved_entry=advanced>old\n", (OLD, False), id="saved before it was overridden once"),
        pytest.param("0", "next_entry=advanced>old\n", (OLD, True), id="once"),
        pytest.param("uefi", "", (None, False), id="no kernel at all"),
    ],
)
def test_which_entry_starts(tree: Tree, default: str, environment: str, expected: tuple[str | None, bool]) -> None:
    tree.file("/boot/grub/grub.cfg", menu(default))
    tree.file("/boot/grub/grubenv", "# GRUB Environment Block\n" + environment + "#" * 900)
    seen = system(tree)
    found = _boot.next_boot(seen, OLD, [OLD, NEW])
    assert (found["kernel"], found["once"], found["source"], seen.problems) == (*expected, "/boot/grub/grub.cfg", [])


@pytest.mark.parametrize("command", ["linux\t", "linux16 ", "linuxefi "])
def test_options_of_the_entry(tree: Tree, command: str) -> None:
    tree.file("/boot/grub2/grub.cfg", entry("x", "x", NEW, "root=UUID=1 ro iommu=pt $vt_handoff", command))
    found = _boot.next_boot(system(tree), OLD, [])
    assert (found["kernel"], found["options"]) == (NEW, ["root=UUID=1", "ro", "iommu=pt", "$vt_handoff"])


def test_an_entry_with_a_way_out_for_starts_that_failed(tree: Tree) -> None:
    lines = (f"linux /boot/vmlinuz-{NEW} root=PARTUUID=1 ro", "initrd /x", "else", f"linux /boot/vmlinuz-{NEW} root=PARTUUID=1 ro panic=-1", "fi")
    tree.file("/boot/grub/grub.cfg", "menuentry 'Ubuntu' {\nif [ \"${initrdfail}\" = 1 ]; then\n" + "\n".join(lines) + "\n}\n")
    assert _boot.next_boot(system(tree), OLD, [])["options"] == ["root=PARTUUID=1", "ro", "panic=-1"]


def test_a_link_to_a_kernel(tree: Tree) -> None:
    tree.file(f"/boot/vmlinuz-{NEW}", "")
    tree.link("/vmlinuz", f"/boot/vmlinuz-{NEW}")
    tree.file("/boot/grub/grub.cfg", "menuentry x {\n linux /vmlinuz root=/dev/sda1\n}")
    assert _boot.next_boot(system(tree), OLD, [])["kernel"] == NEW


EL = "5.14.0-427.el9.x86_64"
BLS = {
    f"1f2e-{EL}": f"title Rocky 9 ({EL})\nlinux /vmlinuz-{EL}\ninitrd /initramfs-{EL}.img\noptions root=/dev/vda1 ro iommu=pt $tuned_params\n",
    "1f2e-5.14.0-70.el9.x86_64": "title Rocky 9 (old)\nlinux /vmlinuz-5.14.0-70.el9.x86_64\noptions $kernelopts\n",
    "1f2e-0-rescue": "title Rescue\nlinux /vmlinuz-0-rescue-1f2e\n",
}


@pytest.mark.parametrize(
    ("environment", "kernel", "options"),
    [
        ("", EL, ["root=/dev/vda1", "ro", "iommu=pt"]),
        (f"saved_entry=1f2e-{EL}", EL, ["root=/dev/vda1", "ro", "iommu=pt"]),
        ("saved_entry=1f2e-5.14.0-70.el9.x86_64\nkernelopts=root=/dev/vda1 ro quiet", "5.14.0-70.el9.x86_64", ["root=/dev/vda1", "ro", "quiet"]),
        ("saved_entry=Rocky 9 (old)", "5.14.0-70.el9.x86_64", []),
        ("saved_entry=1", "5.14.0-70.el9.x86_64", []),
        ("saved_entry=gone", EL, ["root=/dev/vda1", "ro", "iommu=pt"]),
    ],
)
@pytest.mark.parametrize("config", ['set default="${saved_entry}"\ninsmod blscfg\nblscfg\n', None])
def test_entries_in_files(tree: Tree, config: str | None, environment: str, kernel: str, options: list[str]) -> None:
    for name, text in BLS.items():
        tree.file(f"/boot/loader/entries/{name}.conf", text)
    if config:
        tree.file("/boot/grub2/grub.cfg", config)
    tree.file("/boot/grub2/grubenv", environment)
    tree.file("/etc/default/grub", 'GRUB_CMDLINE_LINUX="other"')
    found = _boot.next_boot(system(tree), EL, [])
    assert (found["kernel"], found["source"], found["options"]) == (kernel, "/boot/loader/entries", options)
    assert _boot.kernel_options(system(tree), found)["configured"] is None


def test_without_a_boot_loader_it_is_the_newest_of_the_kind(tree: Tree) -> None:
    assert _boot.next_boot(system(tree), OLD, [OLD, NEW, "6.1.0-42-rt-amd64"]) == {"kernel": NEW, "source": "newest", "once": False, "options": None}
    assert _boot.next_boot(system(tree), OLD, []) == {"kernel": None, "source": None, "once": False, "options": None}


def test_a_menu_that_names_no_kernel_is_a_problem(tree: Tree) -> None:
    tree.file("/boot/grub/grub.cfg", "\x00\x01 rubbish {{{")
    seen = system(tree)
    assert _boot.next_boot(seen, OLD, [OLD])["kernel"] is None
    assert [problem["reason"] for problem in seen.problems] == ["/boot/grub/grub.cfg names no kernel"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(['GRUB_CMDLINE_LINUX="a b"\nGRUB_CMDLINE_LINUX_DEFAULT=quiet'], ["a", "b", "quiet"], id="both"),
        pytest.param(["GRUB_CMDLINE_LINUX='a=1 b' # why"], ["a=1", "b"], id="single quotes, a comment"),
        pytest.param(['GRUB_CMDLINE_LINUX="a"', 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX b"'], ["a", "b"], id="a later file adds"),
        pytest.param(['GRUB_CMDLINE_LINUX="a"', 'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} b"'], ["a", "b"], id="braces"),
        pytest.param(['GRUB_CMDLINE_LINUX="a"', 'GRUB_CMDLINE_LINUX="b"'], ["b"], id="a later file replaces"),
        pytest.param(['GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX+=" b"'], ["a", "b"], id="appended"),
        pytest.param(['#GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX_RECOVERY="b"\nGRUB_TIMEOUT=5'], [], id="others"),
        pytest.param(['GRUB_CMDLINE_LINUX="a \\\n b"'], ["a", "b"], id="two lines"),
        pytest.param(['GRUB_CMDLINE_LINUX="a b'], ["a", "b"], id="a quote that does not end"),
        pytest.param(["GRUB_CMDLINE_LINUX="], [], id="nothing"),
    ],
)
def test_default_grub(texts: list[str], expected: list[str]) -> None:
    assert _boot.parse_default_grub(texts) == expected


@pytest.mark.parametrize(
    ("running", "next_boot", "configured", "expected"),
    [
        pytest.param("ro quiet", "ro quiet", "quiet", [], id="in step"),
        pytest.param("ro quiet", "ro quiet iommu=pt", "iommu=pt quiet", ["not in force: iommu=pt"], id="in the menu"),
        pytest.param("ro quiet", "ro quiet", "iommu=pt", ["asked for, but not in the boot loader's menu: iommu=pt"], id="not yet in the menu"),
        pytest.param("ro quiet a=1", "ro quiet", "quiet", ["still in force: a=1"], id="taken out"),
        pytest.param("ro a=1", "rw a=2", "", ["not in force: a=2", "still in force: a=1"], id="another value"),
        pytest.param("ro vt.handoff=7 initrd=/i root=/dev/vda", "ro root=UUID=1 $vt_handoff", "", [], id="what loader and firmware add"),
        pytest.param("ro", None, "iommu=pt", ["asked for, but not in the boot loader's menu: iommu=pt"], id="no menu"),
        pytest.param("ro", None, None, [], id="nothing known"),
    ],
)
def test_pending_kernel_options(running: str, next_boot: str | None, configured: str | None, expected: list[str]) -> None:
    def words(text: str | None) -> list[str] | None:
        return None if text is None else text.split()

    options = {"running": words("BOOT_IMAGE=/vmlinuz " + running), "next_boot": words(next_boot), "configured": words(configured)}
    assert _boot.pending_options(options) == expected
    # A hypervisor that brings its own kernel and command line does not ask GRUB.
    assert _boot.pending_options({**options, "running": words(running)}) == []


def test_an_initramfs_and_what_it_would_hold(tree: Tree) -> None:
    module = f"/lib/modules/{NEW}/updates/dkms/nvidia.ko"
    seen = system(tree)
    assert _boot.initramfs(seen, NEW, module) is None
    times = {f"/boot/initrd.img-{NEW}": 100, "/etc/modprobe.d/a.conf": 200, "/etc/modprobe.d/b.conf": 50, "/etc/modprobe.d/c.old": 200, module: 300}
    for path, changed in times.items():
        os.utime(tree.file(path, ""), (changed, changed))
    os.utime(tree.root / "etc/modprobe.d", (50, 50))
    assert _boot.initramfs(seen, NEW, module) == {"path": f"/boot/initrd.img-{NEW}", "older_than": ["/etc/modprobe.d/a.conf"]}
    os.utime(tree.root / "etc/modprobe.d", (150, 150))
    tree.file("/etc/initramfs-tools/modules", "# nvidia\n")
    newer = ["/etc/modprobe.d", "/etc/modprobe.d/a.conf"]
    assert _boot.initramfs(seen, NEW, module) == {"path": f"/boot/initrd.img-{NEW}", "older_than": newer}
    tree.file("/etc/initramfs-tools/modules", "nvidia\n")
    found: dict[str, Any] | None = _boot.initramfs(seen, NEW, module)
    assert found and found["older_than"] == [*newer, module]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("/etc/dracut.conf.d/x.conf", 'force_drivers+=" nvidia nvidia_uvm "', True),
        ("/etc/dracut.conf.d/x.conf", 'omit_drivers+=" nvidia "', False),
        ("/etc/initramfs-tools/modules", "xnvidia", False),
    ],
)
def test_whether_the_driver_was_asked_for(tree: Tree, path: str, text: str, expected: bool) -> None:
    tree.file(path, text)
    assert _boot.asks_for_driver(system(tree)) is expected


PARTS = [*menu("${saved_entry}").splitlines(), "}", "menuentry", "submenu '' {", "linux", "function {", "set default="]
LINES = st.lists(st.sampled_from(PARTS) | st.text(max_size=20), max_size=40)


@given(LINES, st.dictionaries(st.sampled_from(["saved_entry", "next_entry"]), st.text(max_size=20)))
def test_damaged_menus_never_raise(lines: list[str], environment: dict[str, str]) -> None:
    text = "\n".join(lines)
    found = _boot.pick(_boot.parse_menu(text), _boot.choice(text, environment)[0])
    assert found is None or found.linux is None or found.linux in text
    _boot.parse_environment(text)
    _boot.parse_default_grub(lines)
    _boot.pick(_boot.parse_bls({str(number): line for number, line in enumerate(lines)}, environment), "0")
