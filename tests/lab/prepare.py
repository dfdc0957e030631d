# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns a bare tree into a lab host: ssh, registries through the proxy, nothing that disturbs, and another distribution's face."""

from __future__ import annotations

import configparser
import os
import shutil
from pathlib import Path

from lab import hardware, rhel
from lab.machine import call
from lab.paths import GATEWAY, PROXY_PORT, SITE_NAME, LabError

MASKED = (
    "systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer man-db.timer "
    "dpkg-db-backup.timer systemd-resolved.service console-getty.service systemd-networkd-wait-online.service "
    "systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket getty@tty1.service"
)
HEADERS = "linux-headers-*-cloud-amd64"
CERTIFICATES = Path("/usr/local/share/ca-certificates")
SSHD = "UseDNS no\nPermitRootLogin yes\nPasswordAuthentication no\nHostKey /etc/ssh/ssh_host_ed25519_key\nMaxStartups 64\n"
PROXY = f"http://{GATEWAY}:{PROXY_PORT}"
APT = (
    f'Acquire::http::Proxy "{PROXY}";\nAcquire::https::Proxy "{PROXY}";\n'
    f'Acquire::http::Proxy::{SITE_NAME} "DIRECT";\nAcquire::http::Proxy::{GATEWAY} "DIRECT";\n'
    'Acquire::Check-Valid-Until "false";\nAcquire::Check-Date "false";\nAcquire::Languages "none";\nAcquire::Retries "0";\n'
)


def certificates() -> list[Path]:
    """Return the machine's own certificate authorities, which its registries may be signed by."""
    return sorted(CERTIFICATES.rglob("*.crt"))


def pip_settings() -> dict[str, str]:
    """Return pip's settings for the hosts: the machine's index over http, where it has one, through the proxy."""
    said = configparser.RawConfigParser()
    said.read(["/etc/pip.conf", Path.home() / ".pip/pip.conf", Path.home() / ".config/pip/pip.conf"])
    given = dict(said["global"]) if said.has_section("global") else {}
    settings = {
        "proxy": PROXY,
        "cert": "/etc/ssl/certs/ca-certificates.crt",
        "timeout": "180",
        "disable-pip-version-check": "true",
        "trusted-host": SITE_NAME,
    }
    index = os.environ.get("PIP_INDEX_URL") or given.get("index-url", "")
    if index.startswith(("http://", "https://")):
        settings["index-url"] = index
    return settings


def prepare(root: Path, face: dict[str, str], family: str = "debian") -> None:
    """Change a mounted tree; `face` holds texts of files that name the distribution, `family` is that of its package manager."""
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()
    (root / "etc/ssh/sshd_config.d/lab.conf").write_text(SSHD)
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
    for certificate in certificates():
        shutil.copy(certificate, root / "usr/local/share/ca-certificates")
    call("chroot", root, "update-ca-certificates")
    (root / "etc/apt/apt.conf.d/99lab").write_text(APT)
    (root / "etc/pip.conf").write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in pip_settings().items()))
    (root / "etc/environment").write_text(f"no_proxy={SITE_NAME},{GATEWAY}\nNO_PROXY={SITE_NAME},{GATEWAY}\n")
    releases = sorted(path.name.removeprefix("linux-headers-") for path in (root / "usr/src").glob(HEADERS))
    if not releases:
        raise LabError(f"no kernel headers ({HEADERS}) in {root}/usr/src: the hosts would have no kernel to report")
    (root / "etc/lab").mkdir(mode=0o755, exist_ok=True)
    for path, text in face.items():
        target = root / path
        target.unlink(missing_ok=True)
        target.write_text(text)
    release = rhel.turn(root) if family == "rhel" else releases[-1]
    (root / "etc/lab/kernel-release").write_text(release + "\n")
    hardware.install(root)
