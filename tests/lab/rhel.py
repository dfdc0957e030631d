# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns a Debian tree with dnf and rpm into a simulation of what a package manager of the RHEL family sees; it is none of that family.

Real are dnf, its solver, rpm and its database, dkms and the kernel's headers. The distribution's packages are stand-ins with names, versions and
relations; only those of the kernel hold files, made of the tree's own headers under a release that is written as EL writes it.
"""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

from lab.hardware import HOME
from lab.machine import call
from lab.vendor import repodata
from lab.vendor import rpm as rpm_module
from lab.vendor.contents import Entry
from lab.vendor.rpm import Rpm, build_rpm

PACKAGES = "dnf dnf-plugins-core python3-dnf rpm"
VERSION = "9.6"
FACE = {
    "etc/os-release": f'NAME="Rocky Linux"\nVERSION="{VERSION} (Blue Onyx)"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="{VERSION}"\n'
    f'PLATFORM_ID="platform:el9"\nPRETTY_NAME="Rocky Linux {VERSION} (Blue Onyx)"\nREDHAT_SUPPORT_PRODUCT="Rocky Linux"\n',
    "etc/redhat-release": f"Rocky Linux release {VERSION} (Blue Onyx)\n",
    "etc/dnf/dnf.conf": "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n",
    # Debian turns on a plugin that looks for packages where there are none.
    "etc/dnf/plugins/local.conf": "[main]\nenabled = false\n",
    "etc/ld.so.conf.d/lib64.conf": "/usr/lib64\n",
    # What is installed is off until somebody enables it.
    "usr/lib/systemd/system-preset/99-default-disable.preset": "disable *\n",
}
# Programs of the other family, and what would give it away.
FOREIGN = (
    "usr/bin/apt", "usr/bin/apt-get", "usr/bin/apt-cache", "usr/bin/apt-config", "usr/bin/apt-mark", "usr/bin/apt-cdrom", "usr/bin/dpkg",
    "usr/bin/dpkg-deb", "usr/bin/dpkg-query", "usr/bin/dpkg-split", "usr/bin/dpkg-divert", "usr/bin/dpkg-statoverride", "usr/bin/dpkg-trigger",
    "usr/bin/dpkg-maintscript-helper", "etc/debian_version", "etc/apt", "etc/dpkg",
)  # fmt: skip
REPOSITORY = "usr/share/lab/baseos"
BASEOS = f"[baseos]\nname=Stand-ins of the lab for the distribution\nbaseurl=file:///{REPOSITORY}\ngpgcheck=0\n"
HEADERS = re.compile(r"linux-headers-(?P<version>[\d.]+)-(?P<number>\d+)-cloud-amd64$")
# Name -> what it requires and provides. None of them holds anything: the tree has the programs.
BASE: dict[str, dict[str, list[str]]] = {
    "rocky-release": {"provides": [f"system-release (= {VERSION}-1.el9)", "system-release(releasever) (= 9)", "redhat-release"]},
    "dracut": {},
    "grubby": {},
    "dnf": {},
    "systemd": {},
}
OFFERED: dict[str, dict[str, list[str]]] = {
    "python3-dnf-plugin-versionlock": {},
    "ocl-icd": {},
    "opencl-filesystem": {},
    "infiniband-diags": {},
    "gcc": {},
    "make": {},
    "dkms": {"requires": ["gcc", "make", "kernel-devel"]},
}
ENTRY = """\
mkdir -p /boot/loader/entries /boot/grub2
cat >/boot/loader/entries/lab-{release}.conf <<'END'
title Rocky Linux ({release})
version {release}
linux /boot/vmlinuz-{release}
initrd /boot/initramfs-{release}.img
options root=/dev/vda1 ro quiet
grub_users $grub_users
END
[ -d /lib/modules/{release} ] && depmod {release} || :
[ -x /usr/bin/dracut ] && dracut --force /boot/initramfs-{release}.img {release} || :
printf '# GRUB Environment Block\\nsaved_entry=lab-{release}\\n' >/boot/grub2/grubenv
"""
FORGET = "rm -f /boot/loader/entries/lab-{release}.conf /boot/initramfs-{release}.img\n"


def turn(root: Path) -> str:
    """Change a mounted tree; returns the kernel release that its hosts report."""
    for path in FOREIGN:
        target = root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
    for name, program in (("dracut", "usr/bin/dracut"), ("grubby", "usr/sbin/grubby")):
        (root / program).unlink(missing_ok=True)
        (root / program).symlink_to(f"/{HOME}/{name}")
    headers = next(path for path in sorted((root / "usr/src").iterdir()) if HEADERS.match(path.name))
    running, following = releases(headers.name)
    installed = [stand_in(name, relations) for name, relations in BASE.items()] + kernel(running)
    offered = [stand_in(name, relations) for name, relations in OFFERED.items()]
    for release in (running, following):
        offered += [*development(release, headers), *(kernel(release) if release == following else [])]
    folder = root / REPOSITORY
    folder.mkdir(parents=True)
    entries = [add(folder, rpm) for rpm in (*installed, *offered)]
    for path, data in repodata.lists(entries, "", 0).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    (root / "etc/yum.repos.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/yum.repos.d/baseos.repo").write_text(BASEOS)
    # The kernel that Debian's headers were for is not on such a host.
    shutil.rmtree(headers)
    shutil.rmtree(root / "lib/modules" / headers.name.removeprefix("linux-headers-"), ignore_errors=True)
    call("chroot", root, "ldconfig")
    call("chroot", root, "rpm", "-i", *(f"/{REPOSITORY}/{rpm.filename}" for rpm in installed))
    return f"{running}.x86_64"


def content_key() -> str:
    """Return everything in this code that an image depends on."""
    return "".join(Path(module).read_text() for module in (__file__, repodata.__file__, rpm_module.__file__))


def releases(headers: str) -> tuple[str, str]:
    """Return version and release of the kernel that runs, and of a newer one that the distribution has: 6.1.0-57.el9."""
    match = HEADERS.match(headers)
    assert match
    number = int(match["number"])
    return f"{match['version']}-{number}.el9", f"{match['version']}-{number + 1}.el9"


def add(folder: Path, rpm: Rpm) -> dict[str, str]:
    """Write a package into a repository and return its part of the lists."""
    data, header = build_rpm(rpm)
    (folder / rpm.filename).write_bytes(data)
    return repodata.entry(rpm, data, header)


def stand_in(name: str, relations: dict[str, list[str]], evr: str = f"{VERSION}-1.el9") -> Rpm:
    """Return a package without files."""
    return Rpm(name, evr, "x86_64", f"{name} of the distribution", relations=relations)


def kernel(evr: str) -> list[Rpm]:
    """Return the packages of a kernel; one holds an image that nothing starts, and says to the boot loader that it is there."""
    release = f"{evr}.x86_64"
    image = f"stand-in for the kernel {release}\n".encode()
    modules = f"/lib/modules/{release}"
    files = [Entry(f"/boot/vmlinuz-{release}", image, 0o755), Entry(f"{modules}/vmlinuz", image, 0o755)]
    files += [Entry(f"{modules}/{name}", b"") for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo")]
    files += [Entry(f"{modules}/build", link=f"/usr/src/kernels/{release}")]
    scripts = {"post": ENTRY.format(release=release), "preun": FORGET.format(release=release)}
    multiple = {"provides": ["installonlypkg(kernel)"]}
    exact = f"(= {evr})"
    return [
        Rpm("kernel-core", evr, "x86_64", "The Linux kernel", files, {**multiple, "requires": [f"kernel-modules-core {exact}"]}, scripts),
        Rpm("kernel-modules-core", evr, "x86_64", "Core kernel modules", [], multiple),
        Rpm("kernel-modules", evr, "x86_64", "Kernel modules", [], {**multiple, "requires": [f"kernel-core {exact}"]}),
        Rpm("kernel", evr, "x86_64", "The Linux kernel", [], {**multiple, "requires": [f"kernel-core {exact}", f"kernel-modules {exact}"]}),
    ]


def development(evr: str, headers: Path) -> list[Rpm]:
    """Return what modules for a kernel are built with, made of Debian's headers."""
    release, exact = f"{evr}.x86_64", f"(= {evr})"
    multiple = {"provides": ["installonlypkg(kernel)"]}
    devel = Rpm("kernel-devel", evr, "x86_64", "Development package for building kernel modules", tree(headers, release), multiple)
    matched = {"requires": [f"kernel-devel {exact}", f"kernel-core {exact}"]}
    return [devel, Rpm("kernel-devel-matched", evr, "x86_64", "Kernel and its headers", [], matched), stand_in("kernel-headers", {}, evr)]


def tree(headers: Path, release: str) -> list[Entry]:
    """Return a kernel's build folder: that of Debian's flavour, under another release."""
    old = headers.name.removeprefix("linux-headers-").encode()
    home = f"/usr/src/kernels/{release}"
    found = [Entry(home, mode=0o755)]
    for path in sorted(headers.rglob("*")):
        mode, place = path.lstat().st_mode, f"{home}/{path.relative_to(headers)}"
        if stat.S_ISLNK(mode):
            # They lead out of the folder, which has moved.
            target = str(path.readlink())
            found.append(Entry(place, link=target.replace("../../lib/", "/usr/lib/", 1)))
        elif stat.S_ISDIR(mode):
            found.append(Entry(place, mode=0o755))
        else:
            data = path.read_bytes()
            found.append(Entry(place, data if path.name == "Makefile" else data.replace(old, release.encode()), stat.S_IMODE(mode)))
    return found
