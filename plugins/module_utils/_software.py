# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What the package manager and systemd say, each asked once for everything."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

DPKG = ("dpkg-query", "-W", "-f", "${Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\t${Maintainer}\\n")
RPM = ("rpm", "-qa", "--qf", "%{NAME}\\t%{EVR}\\tinstall\\tinstalled\\t%{VENDOR}\\n")
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "UnitFileState", "LimitMEMLOCK", "LimitMEMLOCKSoft", "LimitNOFILESoft", "LimitSTACKSoft",
    "LimitNPROCSoft", "MainPID", "NeedDaemonReload", "ExecStart", "Environment", "EnvironmentFiles",
)
UNIT_NAME = later(r"[A-Za-z0-9:_.@\\-]+\.(service|socket|timer|path|target|mount|slice)$")
STATUSES = "not-installed|config-files|half-installed|unpacked|half-configured|triggers-awaited|triggers-pending|installed"
PACKAGE_LINE = later(r"[A-Za-z0-9][\w.+:~-]*\t[^\t]*\t[a-z]*\t(?:%s)\t[^\t]*$" % STATUSES)
DRIVER_PACKAGE = later(
    r"(?:lib)?nvidia-|libnvsdm|nvlsm|cuda-drivers|libcuda1|libnvcuvid|libnvoptix|firmware-nvidia|kmod-nvidia"
    r"|xserver-xorg-video-nvidia|linux-(?:modules|objects|signatures)-nvidia"
)
OTHER_PACKAGE = later(r"(?:lib)?nvidia-(?:container|docker|cuda-|cudnn|nccl|nsight|visual|mlnx|mig-manager)")
# Names that only NVIDIA's own repositories use, and names that only Debian's archive uses.
VENDOR_NAME = later(r"cuda-drivers|nvidia-open(-\d|$)|nvidia-driver-(cuda|pinning)|nvidia-kernel-open-dkms|nvidia-dkms(-open)?$")
ARCHIVE_NAME = later(
    r"nvidia-(tesla|alternative|legacy-check|driver-bin|smi$|open-kernel)|linux-(modules|objects)-nvidia|.*-server(-open)?$"
)


class Package(t.NamedTuple):
    version: t.Optional[str]
    held: bool
    status: str
    maintainer: str


def damage(text: str) -> str | None:
    """What is wrong with an answer to DPKG or RPM; an empty or garbled one is no list without packages."""
    lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")
    strange = sum(1 for line in lines if not PACKAGE_LINE.match(line))
    if text and not strange:
        return None
    return "%d of %d lines of the list of packages are not understood" % (strange, len(lines)) if text else "the list of packages is empty"


def parse_packages(text: str) -> dict[str, Package]:
    """Packages by name from the lines of DPKG or RPM; C(version) is None unless wholly installed."""
    found = {}
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 5 and parts[3] not in ("not-installed", "config-files"):
            found[parts[0]] = Package(parts[1] if parts[3] == "installed" else None, parts[2] == "hold", parts[3], parts[4])
    return found


def is_driver(name: str) -> bool:
    """Whether a package is part of a driver or of what must have the driver's version."""
    return DRIVER_PACKAGE.match(name) is not None and OTHER_PACKAGE.match(name) is None


def origin(packages: dict[str, Package]) -> str | None:
    """Who made the installed driver packages: C(nvidia), C(distro), or None when there are none."""
    mine = {name: package for name, package in packages.items() if is_driver(name)}
    if not mine:
        return None
    if any("@nvidia.com" in package.maintainer or package.maintainer == "NVIDIA" for package in mine.values()):
        return "nvidia"
    if any(VENDOR_NAME.match(name) for name in mine):
        return "nvidia"
    if any(ARCHIVE_NAME.match(name) or "~deb" in (package.version or "") for name, package in mine.items()):
        return "distro"
    # Ubuntu's archive counts its releases in the revision (0ubuntu0.24.04.1), NVIDIA's repository does not.
    if any(re.search(r"-0ubuntu0\.\d", package.version or "") for package in mine.values()):
        return "distro"
    maintainers = " ".join(package.maintainer for package in mine.values())
    return "distro" if re.search(r"@(lists\.)?(\w+\.)*(debian|ubuntu|canonical)\.", maintainers) else "nvidia"


def upstream(version: str | None) -> str | None:
    """C(1:580.178.04-1ubuntu1) is 580.178.04."""
    return version.split(":")[-1].split("-")[0] if version else None


def systemctl(units: t.Sequence[str]) -> list[str]:
    """The one question about all units; the order of the answer is the order of the names."""
    return ["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--", *units]


def parse_units(text: str, units: t.Sequence[str]) -> dict[str, dict[str, str]] | None:
    """Properties by the unit's name as it was asked for (an alias answers with another Id); None for what is no answer about them."""
    blocks = [_properties(block) for block in text.split("\n\n") if block.strip()]
    if len(blocks) != len(units) or any("LoadState" not in block for block in blocks):
        return None
    return dict(zip(units, blocks))


def _properties(block: str) -> dict[str, str]:
    """Properties of one unit; the values of one that has several lines stay on lines of their own."""
    found: dict[str, str] = {}
    for line in block.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found[key] = found[key] + "\n" + value if key in found else value
    return found
