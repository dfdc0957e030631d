# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Base images, built once from the machine's own apt sources and kept by content."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import hardware
from lab.machine import call, say
from lab.paths import CACHE, GATEWAY, PROXY_PORT, SITE_NAME, LabError

COMMON = (
    "systemd systemd-sysv dbus openssh-server python3 sudo iproute2 iputils-ping nftables iperf3 ca-certificates curl procps "
    "kmod pciutils tzdata less dkms gcc make libc6-dev linux-headers-cloud-amd64 infiniband-diags"
)
MASKED = (
    "systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer man-db.timer "
    "dpkg-db-backup.timer systemd-resolved.service console-getty.service systemd-networkd-wait-online.service "
    "systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket getty@tty1.service"
)
KEPT_SECONDS = 86400.0
# The kernel that a host reports must have headers that can be had, or dkms could build nothing.
HEADERS = "linux-headers-*-cloud-amd64"


@dataclass(frozen=True)
class Image:
    """A base image: a suite of Debian, and what makes it look like another distribution."""

    name: str
    suite: str
    face: dict[str, str]


UBUNTU = {
    "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION="24.04.3 LTS (Noble Numbat)"\n'
    "VERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=noble\n",
    "etc/lsb-release": 'DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE=24.04\nDISTRIB_CODENAME=noble\nDISTRIB_DESCRIPTION="Ubuntu 24.04.3 LTS"\n',
}
IMAGES = {
    image.name: image
    for image in (
        Image("debian12", "bookworm", {}),
        Image("debian13", "trixie", {}),
        # Debian's userland under Ubuntu's name: a simulation of the package manager's view, not Ubuntu.
        Image("ubuntu2404", "bookworm", UBUNTU),
    )
}


def sources(suite: str) -> list[str]:
    """Return the machine's own apt sources, with the suite exchanged and every component of Debian switched on."""
    texts = []
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        text = path.read_text()
        for here in ("bookworm", "trixie"):
            text = text.replace(here, suite)
        lines = [
            "Components: main contrib non-free non-free-firmware" if line.startswith("Components:") else line for line in text.splitlines()
        ]
        texts.append("\n".join(lines) + "\n")
    if not texts:
        raise LabError("no deb822 file in /etc/apt/sources.list.d: the lab takes its apt sources from there")
    return texts


def key(image: Image) -> str:
    """Return a name for everything that goes into an image."""
    parts = [Path(__file__).read_text(), *sources(image.suite), hardware.content_key(), image.name]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let one process at a time build a thing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def bootstrap(suite: str) -> Path:
    """Return the bare tree of a suite: the slow part, which changes of the simulators do not touch."""
    texts = sources(suite)
    content = hashlib.sha256("\0".join([COMMON, suite, *texts]).encode()).hexdigest()[:16]
    tree = CACHE / f"tree-{suite}-{content}"
    with locked(f"tree-{suite}"):
        if tree.exists():
            return tree
        say(f"building the {suite} tree (1-3 minutes, once)")
        building = CACHE / f"building-tree-{suite}"
        remove(building)
        source_file = CACHE / f"{suite}.sources"
        source_file.write_text("\n".join(texts))
        call(
            "mmdebstrap", "--variant=minbase", "--format=directory", f"--include={COMMON.replace(' ', ',')}",
            "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            "--aptopt=Acquire::Languages \"none\"", "--skip=cleanup/apt/lists", suite, building, source_file,
        )  # fmt: skip
        building.rename(tree)
    return tree


def remove(tree: Path) -> None:
    """Remove a tree that no mount stands in."""
    if tree.exists():
        shutil.rmtree(tree)


def lowers(name: str) -> list[Path]:
    """Return the layers of an image, top first, built when they are missing."""
    if name not in IMAGES:
        raise LabError(f"image {name!r}: choose one of {', '.join(sorted(IMAGES))}")
    image = IMAGES[name]
    tree = bootstrap(image.suite)
    layer = CACHE / f"image-{name}-{key(image)}"
    with locked(f"image-{name}"):
        if not layer.exists():
            say(f"preparing image {name}")
            prepare(image, tree, layer)
    return [layer, tree]


def prepare(image: Image, tree: Path, layer: Path) -> None:
    """Make the layer that turns a bare tree into a lab host."""
    work = CACHE / f"building-image-{image.name}"
    subprocess.run(["umount", "--recursive", "--quiet", str(work / "root")], check=False)
    remove(work)
    for folder in ("upper", "work", "root"):
        (work / folder).mkdir(parents=True)
    root = work / "root"
    call("mount", "-t", "overlay", "gpu-fleet-image", "-o", f"lowerdir={tree},upperdir={work}/upper,workdir={work}/work", root)
    try:
        configure(root)
        for path, text in image.face.items():
            target = root / path
            target.unlink(missing_ok=True)
            target.write_text(text)
        hardware.install(root)
    finally:
        call("umount", root)
    for old in CACHE.glob(f"image-{image.name}-*"):
        # From within a daemon the mounts of other labs are out of sight: only what has been left alone for long goes.
        if old != layer and time.time() - old.stat().st_mtime > KEPT_SECONDS and not in_use(old):
            remove(old)
    (work / "upper").rename(layer)
    remove(work)


def in_use(layer: Path) -> bool:
    """Tell whether any process's mounts name a layer."""
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if str(layer) in mounts.read_text():
                return True
        except OSError:
            continue
    return False


def configure(root: Path) -> None:
    """Set up what every host gets: ssh, the way out through the proxy, the kernel it reports."""
    chroot = ["chroot", str(root)]
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()
    ssh_settings = root / "etc/ssh/sshd_config.d/lab.conf"
    ssh_settings.write_text("UseDNS no\nPermitRootLogin yes\nPasswordAuthentication no\nHostKey /etc/ssh/ssh_host_ed25519_key\nMaxStartups 64\n")
    for unit in MASKED.split():
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    (root / "etc/machine-id").write_text("")
    (root / "var/log/journal").mkdir(parents=True, exist_ok=True)
    for kind in ("system", "user"):
        folder = root / f"etc/systemd/{kind}.conf.d"
        folder.mkdir(exist_ok=True)
        # A hung unit would hold up a halt for a minute and a half.
        (folder / "lab.conf").write_text("[Manager]\nDefaultTimeoutStopSec=8s\n")
    for certificate in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(certificate, root / "usr/local/share/ca-certificates")
    call(*chroot, "update-ca-certificates")
    proxy = f"http://{GATEWAY}:{PROXY_PORT}"
    (root / "etc/apt/apt.conf.d/99lab").write_text(
        f'Acquire::http::Proxy "{proxy}";\nAcquire::https::Proxy "{proxy}";\nAcquire::http::Proxy::{SITE_NAME} "DIRECT";\n'
        f'Acquire::http::Proxy::{GATEWAY} "DIRECT";\nAcquire::Check-Valid-Until "false";\nAcquire::Check-Date "false";\nAcquire::Languages "none";\n'
        'Acquire::Retries "0";\n'
    )
    (root / "etc/pip.conf").write_text(
        f"[global]\nproxy = {proxy}\ncert = /etc/ssl/certs/ca-certificates.crt\ntimeout = 180\ndisable-pip-version-check = true\n"
        f"trusted-host = {SITE_NAME}\n"
    )
    (root / "etc/environment").write_text(f"no_proxy={SITE_NAME},{GATEWAY}\nNO_PROXY={SITE_NAME},{GATEWAY}\n")
    releases = sorted(path.name.removeprefix("linux-headers-") for path in (root / "usr/src").glob(HEADERS))
    (root / "etc/lab").mkdir(exist_ok=True)
    (root / "etc/lab/kernel-release").write_text(releases[-1] + "\n")
    os.chmod(root / "etc/lab", 0o755)
