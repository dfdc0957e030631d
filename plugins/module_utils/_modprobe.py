# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Rules of modprobe: the options that modules get and what is kept out, on disk and in force."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

# A file hides those of its name in later folders.
FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
OPTION = later(r"([\w-]+)(?:=(\"[^\"]*\"|\S*))?")
# Debian's archive gives its builds a suffix; what is loaded is the same module.
DRIVER = later(r"nvidia(?:_current|_tesla\w*|_legacy\w*)?$")
# A command in a module's place that loads nothing.
NOTHING = later(r"\S*/?(?:false|true)\b")
OURS = later(r"nvidia\w*$|gdrdrv$|nouveau$|nova_core$")
COMMAND_LINE = "/proc/cmdline"
KEEPS_OUT = later(r"(?:modprobe\.blacklist|module_blacklist|rd\.driver\.blacklist)=(\S*)$")
# Options that /proc/driver/nvidia/params shows under another name.
RENAMED = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
RIVALS = ("nouveau", "nova_core", "nova_drm")
ADDRESS = later(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


class Rules:
    """What the files say: C(options) as C({(module, option): (value, file)}) with the last word on each, and the modules kept out."""

    def __init__(self) -> None:
        self.options: dict[t.Tuple[str, str], t.Tuple[str, str]] = {}
        self.kept_out: set[str] = set()

    def take(self, text: str, path: str) -> None:
        """Add the rules of one file."""
        for line in text.replace("\\\n", " ").splitlines():
            words = line.split(None, 2)
            if len(words) < 2 or words[0].startswith("#"):
                continue
            module, rest = words[1].replace("-", "_"), words[2].strip() if len(words) == 3 else ""
            if words[0] == "options" and OURS.match(module):
                for name, value in OPTION.findall(rest):
                    self.options[module, name] = (value.strip('"'), path)
            elif words[0] == "blacklist" or (words[0] == "alias" and rest == "off") or (words[0] == "install" and NOTHING.match(rest)):
                self.kept_out.add(module)

    def take_command_line(self, text: str) -> None:
        """Add what the kernel's command line says; modprobe obeys it after all files."""
        for word in text.split():
            match = KEEPS_OUT.match(word)
            if match:
                self.kept_out.update(name.replace("-", "_") for name in match.group(1).split(","))
            module, dot, option = word.partition("=")[0].replace("-", "_").partition(".")
            if dot and OURS.match(module):
                self.options[module, option] = (word.partition("=")[2].strip('"'), COMMAND_LINE)


def rules(system: System) -> Rules:
    """The rules of the host, in modprobe's order: by the files' names, whichever folder they are in."""
    files: dict[str, str] = {}
    for folder in FOLDERS:
        for name in system.names(folder):
            if name.endswith(".conf"):
                files.setdefault(name, folder + "/" + name)
    found = Rules()
    for name in sorted(files):
        found.take(system.read(files[name]) or "", files[name])
    found.take_command_line(system.read(COMMAND_LINE, 65536) or "")
    return found


def parse_params(text: str) -> dict[str, str]:
    """The lines C(Name: value) of /proc/driver/nvidia/params."""
    lines = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip().strip('"') for name, colon, value in lines if colon}


def same(one: str, other: str) -> bool:
    """Whether two spellings mean one value: C(0660) is 432, C(Y) is 1, C(-1) is 4294967295."""
    return _plain(one) == _plain(other)


def _plain(value: str) -> t.Union[int, str]:
    text = value.strip().strip('"')
    if text.upper() in ("Y", "N"):
        return int(text.upper() == "Y")
    try:
        return (int(text, 8) if re.match(r"0[0-7]+$", text) else int(text, 0)) % (1 << 32)
    except ValueError:
        return text


def options(system: System, found: Rules) -> list[dict[str, str | None]]:
    """C([{module, option, value, file, running}]): what modules of the driver are to get, and what the loaded ones have."""
    params = parse_params(system.read("/proc/driver/nvidia/params", 65536, True) or "")
    listed = []
    for (module, option), (value, path) in sorted(found.options.items()):
        running = system.read("/sys/module/%s/parameters/%s" % (module, option), 4096, True)
        if DRIVER.match(module) and option.startswith("NVreg_"):
            running = params.get(RENAMED.get(option[6:], option[6:]))
        listed.append({"module": module, "option": option, "value": value, "file": path, "running": running})
    return listed


def pending(listed: list[dict[str, t.Any]]) -> list[str]:
    """The options that the loaded modules do not have yet, each as a phrase."""
    return [
        "%s %s is %s, %s says %s" % (entry["module"], entry["option"], entry["running"] or "empty", entry["file"], entry["value"] or "nothing")
        for entry in listed if entry["running"] is not None and not same(entry["value"], entry["running"])
    ]


def rivals(system: System) -> list[dict[str, t.Any]]:
    """Other drivers for NVIDIA's GPUs that are loaded, each with the devices that it has: C([{module, bound}])."""
    found = []
    for module in RIVALS:
        loaded = system.exists("/sys/module/" + module)
        # The driver's name on the bus is the author's choice; the module links to it.
        names = {name[4:] for name in system.names("/sys/module/%s/drivers" % module) if name.startswith("pci:")} | {module}
        bound = [address for name in sorted(names) for address in system.names("/sys/bus/pci/drivers/" + name) if ADDRESS.match(address)]
        if loaded or bound:
            found.append({"module": module, "bound": bound})
    return found
