# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware that lab hosts wear: described by profiles, shown by what is installed into the hosts' images."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.hardware import expand, schema
from lab.paths import LabError

GUEST = Path(__file__).parent / "guest"
HOME = "usr/local/lib/lab"
SHIM = f"{HOME}/liblabhw.so"
# Everything here is the same program under another name; it looks at the name.
PROGRAMS = (
    "nvidia-smi", "nvidia-persistenced", "nvidia-modprobe", "nv-fabricmanager", "nvidia-imex", "nvlsm",
    "lab-kernel", "lab-fault", "lab-hw", "hold-gpu", "mokutil", "mlxconfig", "grub-probe", "dracut", "grubby",
)  # fmt: skip
UNITS = "usr/local/lib/systemd/system"
WANTED = ("lab-hw.service", "lab-coldplug.service")

Run = Callable[[list[str]], subprocess.CompletedProcess[str]]


def profiles() -> list[str]:
    """Return the names of the hardware profiles."""
    return schema.names()


def content_key() -> str:
    """Return a name for everything that install() puts into an image."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(GUEST.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(str(path.relative_to(GUEST)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def install(root: Path) -> None:
    """Put the simulators, the library that every program loads, and the units into an image."""
    home = root / HOME
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(GUEST / "labhw", home / "labhw", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(GUEST / "program.py", home / "program")
    (home / "program").chmod(0o755)
    for name in PROGRAMS:
        (home / name).symlink_to("program")
    if (root / "usr/bin/python3").exists():
        # Once here and not at the first start of every host.
        subprocess.run(["chroot", str(root), "python3", "-m", "compileall", "-q", f"/{HOME}/labhw"], check=True)
    command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(root / SHIM), str(GUEST / "labhw.c"), "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise LabError(f"the lab's library does not build: {built.stderr.strip()[-300:]}")
    (root / "etc/ld.so.preload").write_text(f"/{SHIM}\n")
    _module_index(root)
    link = root / "usr/local/bin/mokutil"
    link.unlink(missing_ok=True)
    link.symlink_to(f"/{HOME}/mokutil")
    _disk_probe(root)
    units = root / UNITS
    shutil.copytree(GUEST / "units", units, dirs_exist_ok=True)
    wants = root / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for unit in WANTED:
        (wants / unit).unlink(missing_ok=True)
        (wants / unit).symlink_to(f"/{UNITS}/{unit}")


def _disk_probe(root: Path) -> None:
    """Let the host's disk answer grub-probe, also once GRUB's package brings its own: that one would look at the machine under the lab."""
    program = root / "usr/sbin/grub-probe"
    if not (root / "usr/bin/dpkg-divert").exists():
        return
    words = ["--local", "--rename", "--divert", f"/{program.relative_to(root)}.distrib", "--add", f"/{program.relative_to(root)}"]
    done = subprocess.run(["chroot", str(root), "dpkg-divert", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"dpkg-divert: {done.stderr.strip()[-300:]}")
    program.unlink(missing_ok=True)
    program.symlink_to(f"/{HOME}/grub-probe")


def _module_index(root: Path) -> None:
    """Give the reported kernel the files beside its modules that its own package would bring; kmod asks for them."""
    release = root / "etc/lab/kernel-release"
    if not release.exists():
        return
    folder = root / "lib/modules" / release.read_text().strip()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        (folder / name).touch()
    done = subprocess.run(["chroot", str(root), "depmod", folder.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"depmod: {done.stderr.strip()[-300:]}")


def wear(host_root: Path, profile: str, identity: str | None = None) -> None:
    """Give a host that is off the hardware of a profile, whole; `identity` makes its serial numbers its own (default: its name)."""
    if identity is None:
        identity = (host_root / "etc/hostname").read_text().strip()
    folder = host_root / "etc/lab"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        description = expand.describe(schema.load(profile), profile, identity)
    except schema.ProfileError as error:
        raise LabError(str(error)) from None
    (folder / "hw.json").write_text(json.dumps(description))
    (host_root / "var/lib/lab/faults.json").unlink(missing_ok=True)


def fault(run: Run, kind: str, args: Sequence[str]) -> None:
    """Break or mend hardware of a running host; `run` executes a program there."""
    done = run([f"/{HOME}/lab-fault", kind, *args])
    if done.returncode:
        raise LabError((done.stderr or done.stdout).strip() or f"fault {kind}: exit {done.returncode}")
