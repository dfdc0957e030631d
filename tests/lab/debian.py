# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets Debian's own NVIDIA packages live on a host of the lab: all of them are the archive's, but for what no host without a GPU can run.

The programs that speak to a GPU are the lab's, where dpkg then puts Debian's beside them. The module is built by the real dkms from the archive's
source, which takes minutes; `short_build` has it build the few lines of the lab's own instead, by dkms' own way of overriding what a package says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.paths import LabError
from lab.vendor.contents import kernel_source

if TYPE_CHECKING:
    from lab.client import Lab

DIVERT = """
set -e
for path in /usr/bin/nvidia-persistenced /usr/bin/nvidia-modprobe /usr/lib/nvidia/current/nvidia-smi; do
    mkdir -p "$(dirname "$path")"
    dpkg-divert --quiet --local --no-rename --divert "$path.debian" --add "$path"
    ln -s "/usr/local/lib/lab/$(basename "$path")" "$path"
done
"""
STAND_IN = "/usr/local/src/lab-nvidia"
# Beside the vendor's modules Debian's package has one for RDMA. Its own Kbuild would outweigh the Makefile.
BUILD = f"""\
#!/bin/sh
set -e
rm -f Kbuild
cp {STAND_IN}/*.c {STAND_IN}/Makefile .
cp nvidia-uvm.c nvidia-peermem.c
echo "obj-m += nvidia-peermem.o" >>Makefile
sed -i "s/@RELEASE@/$1/" nvidia.c nvidia-*.c
exec make KERNEL_UNAME="$2" modules
"""
# To dkms Debian's module is nvidia-current, and what is configured under that name outweighs the package.
OVERRIDE = f"""\
MAKE[0]="{STAND_IN}/build $PACKAGE_VERSION ${{kernelver}}"
CLEAN="true"
PATCH=()
"""


def wear(lab: Lab, host: str) -> None:
    """Put the lab's programs where Debian's packages would put theirs."""
    _must(lab, host, DIVERT)


def short_build(lab: Lab, host: str) -> None:
    """Have dkms build the lab's small modules under the names and versions of Debian's."""
    _must(lab, host, f"mkdir -p {STAND_IN} /etc/dkms")
    for name, data in kernel_source("@RELEASE@", "proprietary").items():
        _must(lab, host, f"cat >{STAND_IN}/{name}", data.decode())
    _must(lab, host, f"cat >{STAND_IN}/build && chmod 755 {STAND_IN}/build", BUILD)
    _must(lab, host, "cat >/etc/dkms/nvidia-current.conf", OVERRIDE)


def _must(lab: Lab, host: str, script: str, text: str = "") -> None:
    done = lab.run(host, ["sh", "-c", script], text)
    if done.returncode:
        raise LabError(f"{host}: {done.stderr or done.stdout}")
