# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What keeps packages where they are, and what would move them unasked: holds, pins, locks, unattended upgrades."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _software
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# Packages whose versions matter to GPU jobs, as far as their names tell.
GPU = later(r"nvidia|cuda|nccl|cudnn|libnvsdm|nvlsm|dcgm|gdrdrv|gdrcopy|doca|mlnx")
VENDOR = later(r"nvidia")
APT_FOLDER = "/etc/apt/apt.conf.d"
APT_FILE = "/etc/apt/apt.conf"
APT_TOKEN = later(r"//[^\n]*|/\*.*?(?:\*/|\Z)|^[ \t]*#[^\n]*|\"((?:[^\"\\\n]|\\.)*)\"|([{};])|([^\s{};\"]+)", re.S | re.M)
PREFERENCES = "/etc/apt/preferences"
# apt reads no other names in such folders.
PLAIN_NAME = later(r"[A-Za-z0-9_-]+(?:\.pref)?$")
LOCKS = "/etc/dnf/plugins/versionlock.list"
LOCKS_5 = "/etc/dnf/versionlock.toml"
DNF = "/etc/dnf/dnf.conf"
DNF_AUTOMATIC = ("/etc/dnf/automatic.conf", "/etc/dnf/dnf5-plugins/automatic.conf")
APT_TIMER = "apt-daily-upgrade.timer"
INSTALL_TIMER = "dnf-automatic-install.timer"
DNF_TIMERS = ("dnf-automatic.timer", "dnf5-automatic.timer", INSTALL_TIMER)
UNITS = (APT_TIMER, *DNF_TIMERS)
YES = ("1", "yes", "true", "on")

Units = t.Dict[str, t.Dict[str, str]]
Packages = t.Dict[str, _software.Package]


class AptSettings:
    """apt's configuration, names in lower case: C(values) by name, and C(lists) of what stands in a block without a name."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}

    def take(self, text: str) -> None:
        """Add one file; later files have the last word on values."""
        scope: list[str] = []
        name: str | None = None
        value: str | None = None
        for match in APT_TOKEN.finditer(text):
            string, mark, word = match.groups()
            if mark == "{":
                scope.append(name or "")
                name = None
            elif mark == "}":
                name = value = None
                del scope[-1:]
            elif mark == ";":
                self._keep(scope, name, value)
                name = value = None
            elif word is not None and name is None:
                name = word
            elif word is not None or string is not None:
                value = word if word is not None else re.sub(r"\\(.)", r"\1", string)

    def _keep(self, scope: list[str], name: str | None, value: str | None) -> None:
        full = "::".join(scope + ([name] if name else [])).lower()
        if value is not None and (name is None or full.endswith("::")):
            self.lists.setdefault(full[:-2] if full.endswith("::") else full, []).append(value)
        elif value is not None:
            self.values[full] = value


def apt_settings(system: System) -> AptSettings:
    """apt's configuration on this host."""
    settings = AptSettings()
    names = [name for name in system.names(APT_FOLDER) if re.match(r"[\w-]+(?:\.conf)?$", name)]
    for path in [APT_FOLDER + "/" + name for name in names] + [APT_FILE]:
        settings.take(system.read(path) or "")
    return settings


def parse_preferences(text: str) -> list[dict[str, str]]:
    """The stanzas of a file of preferences, each as its fields in lower case."""
    found = []
    for block in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        last = ""
        for line in block.splitlines():
            key, colon, value = line.partition(":")
            if line[:1] in (" ", "\t") and last:
                fields[last] += " " + line.strip()
            elif colon and not line.startswith("#"):
                last = key.strip().lower()
                fields[last] = value.strip()
        if "package" in fields and "pin" in fields:
            found.append(fields)
    return found


def pins(system: System) -> list[dict[str, t.Any]]:
    """C([{file, packages, pin, priority}]): preferences of apt that concern GPU packages, by name or by where they come from."""
    folder = PREFERENCES + ".d"
    files = [PREFERENCES] + [folder + "/" + name for name in system.names(folder) if PLAIN_NAME.match(name)]
    found = []
    for path in files:
        for fields in parse_preferences(system.read(path) or ""):
            every = "*" in fields["package"].split()
            if GPU.search(fields["package"]) or (every and VENDOR.search(fields["pin"])):
                priority = re.match(r"-?\d+$", fields.get("pin-priority", ""))
                found.append({
                    "file": path, "packages": fields["package"], "pin": fields["pin"], "priority": int(priority.group()) if priority else None,
                })
    return found


def versionlock(system: System) -> list[str]:
    """dnf's locks as they are written: a line each, or of its fifth version the names."""
    lines = [line.split("#", 1)[0].strip() for line in (system.read(LOCKS) or "").splitlines()]
    return [line for line in lines if line] + re.findall(r"^[ \t]*name[ \t]*=[ \t]*[\"']([^\"'\n]*)[\"']", system.read(LOCKS_5) or "", re.M)


def parse_ini(text: str) -> dict[str, str]:
    """C({section.key: value}) of a file of dnf's."""
    found: dict[str, str] = {}
    section = last = ""
    for line in text.splitlines():
        head = re.match(r"\s*\[([^\]]*)\]", line)
        key, equals, value = line.partition("=")
        if head:
            section, last = head.group(1), ""
        elif line[:1] in (" ", "\t") and last:
            found[last] += " " + line.strip()
        elif equals and not line.startswith(("#", ";")):
            last = section + "." + key.strip()
            found[last] = value.strip()
    return found


def _exposed(packages: Packages | None, spared: t.Callable[[str], bool]) -> list[str] | None:
    """The installed GPU packages that an automatic upgrade may change."""
    if packages is None:
        return None
    return sorted(name for name, package in packages.items() if package.version and GPU.search(name) and not package.held and not spared(name))


def _expression(pattern: str, name: str) -> bool:
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


def unattended_upgrades(settings: AptSettings, packages: Packages | None, units: Units | None) -> dict[str, t.Any] | None:
    """C({tool, enabled, excludes, origins, exposed}); None where it is not installed."""
    package = (packages or {}).get("unattended-upgrades")
    if package is None or package.version is None:
        return None
    timer = (units or {}).get(APT_TIMER, {}).get("UnitFileState")
    wanted = [settings.values.get("apt::periodic::" + name, default) for name, default in (("enable", "1"), ("unattended-upgrade", "0"))]
    on = "0" not in wanted
    excludes = settings.lists.get("unattended-upgrade::package-blacklist", [])
    return {
        "tool": "unattended-upgrades",
        "enabled": on and timer == "enabled" if timer or not on else None,
        "excludes": excludes,
        "origins": settings.lists.get("unattended-upgrade::origins-pattern", []) + settings.lists.get("unattended-upgrade::allowed-origins", []),
        "exposed": _exposed(packages, lambda name: any(_expression(pattern, name) for pattern in excludes)),
    }


def dnf_automatic(system: System, locks: list[str], packages: Packages | None, units: Units | None) -> dict[str, t.Any] | None:
    """The same of dnf's automatic updates; it has no origins of its own."""
    texts = [text for text in (system.read(path) for path in DNF_AUTOMATIC) if text is not None]
    if not texts:
        return None
    settings = parse_ini("\n".join(texts))
    states = {name: (units or {}).get(name, {}).get("UnitFileState") for name in DNF_TIMERS}
    applies = settings.get("commands.apply_updates", "no").lower() in YES
    whole = [settings.get("base." + key, "") for key in ("exclude", "excludepkgs")]
    main = parse_ini(system.read(DNF) or "")
    excludes = re.split(r"[,\s]+", " ".join(whole + [main.get("main." + key, "") for key in ("exclude", "excludepkgs")]).strip())
    excludes = [pattern for pattern in excludes if pattern]
    # A lock names a package, or a package with epoch, version and release; either may hold wildcards.
    fixed = [re.sub(r"-(?:\d+:)?[^-]+-[^-]+$", "", lock) for lock in locks if not lock.startswith("!")] + locks
    return {
        "tool": "dnf-automatic",
        "enabled": None if units is None else states[INSTALL_TIMER] == "enabled" or (applies and "enabled" in states.values()),
        "excludes": excludes,
        "origins": [],
        "exposed": _exposed(packages, lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in excludes + fixed)),
    }


def scan(system: System, packages: Packages | None, units: Units | None) -> dict[str, t.Any]:
    """The field C(updates)."""
    locks = versionlock(system)
    found = [unattended_upgrades(apt_settings(system), packages, units), dnf_automatic(system, locks, packages, units)]
    return {
        "holds": None if packages is None else sorted(name for name, package in packages.items() if package.held),
        "pins": pins(system),
        "versionlock": locks,
        "automatic": [one for one in found if one],
    }
