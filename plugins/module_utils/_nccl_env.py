# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Variables of NCCL and of what it works with, wherever they are set for everybody: a forgotten one slows or breaks every job."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _conf
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

NAME = later(
    r"(?:(?:TORCH_|OFI_)?NCCL|TORCH_FR|FI_EFA|RDMAV|UCX|SHARP_COLL)_\w+$|NVIDIA_TF32_OVERRIDE$|(?:GLOO|TP)_SOCKET_IFNAME$|FI_PROVIDER$"
    r"|CUDA_VISIBLE_DEVICES$|LD_LIBRARY_PATH$|LD_PRELOAD$"
)
HINT = later(r"NCCL_|_FR_|TF32|_IFNAME|FI_|RDMAV_|UCX_|SHARP_|VISIBLE_DEV|LD_")
# Whole in quotes, as units have it, or only its value in quotes, as shells have it.
SET = later(r"""(?<!\w)"(\w+)=([^"]*)"|(?<!\w)'(\w+)=([^']*)'|(?<![\w$\{])(\w+)=("[^"]*"|'[^']*'|[^\s;&|#"']*)""")
SETENV = later(r"""\bsetenv[ \t]+(\w+)[ \t]+("[^"]*"|'[^']*'|[^\s;#]+)|^[ \t]*(\w+)[ \t]+DEFAULT=("[^"]*"|\S*)""")
# Lines that set something; a variable in any other line is read, compared or printed.
SETS = later(r"[ \t]*\w+=|.*\b(?:export|declare|typeset|env)\b")
UNIT_LINE = later(r"\s*(?:Default|Manager)?Environment=")
PLAIN = later(r"^(\w+)=(.*)$", re.M)
SECRET = later(r"(?i)secret|token|passw|credential|private|(?:^|_)(?:api_?)?key(?:$|_)|://[^/\s]*@")
FILES = (
    "/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/security/pam_env.conf", "/etc/containers/containers.conf",
    "/etc/systemd/system.conf", "/etc/systemd/user.conf", "/root/.bashrc", "/root/.profile", "/root/.bash_profile",
)
FOLDERS = (
    "/etc/environment.d", "/etc/profile.d", "/etc/enroot/environ.d", "/etc/systemd/system.conf.d", "/etc/systemd/user.conf.d",
    "/etc/containers/containers.conf.d",
)
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/etc/systemd/user")
NCCL_FILES = ("/etc/nccl.conf", "/root/.nccl.conf")
MOST_FILES = 300
LONGEST = 1000


def _value(name: str, text: str) -> str | None:
    """A value without its quotes; None for what looks like a secret."""
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        text = text[1:-1]
    return None if SECRET.search(name) or SECRET.search(text) else text[:LONGEST]


def settings(text: str) -> list[tuple[str, str | None]]:
    """(name, value) of what a shell script, a unit, an environment file or an engine's configuration sets, in the order of the text."""
    found: list[tuple[str, str]] = []
    if not HINT.search(text):
        return []
    for line in text.replace("\\\n", " ").splitlines():
        if not HINT.search(line) or line.lstrip()[:1] in ("#", ";"):
            continue
        found += [(match.group(1) or match.group(3), match.group(2) or match.group(4) or "") for match in SETENV.finditer(line)]
        unit = UNIT_LINE.match(line)
        if unit or SETS.match(line):
            sets = SET.finditer(line, unit.end() if unit else 0)
            found += [next((match.group(at), match.group(at + 1)) for at in (1, 3, 5) if match.group(at)) for match in sets]
    return [(name, _value(name, value)) for name, value in found if NAME.match(name)]


def plain(text: str) -> list[tuple[str, str | None]]:
    """(name, value) as NCCL itself reads its files: nothing is trimmed, quotes belong to the value."""
    return [
        (name, None if SECRET.search(name) or SECRET.search(value) else value[:LONGEST])
        for name, value in PLAIN.findall(text) if NAME.match(name)
    ]


def _places(system: System) -> t.Iterator[str]:
    yield from FILES
    for folder in FOLDERS:
        for name in system.names(folder):
            yield folder + "/" + name
    for folder in UNIT_FOLDERS:
        for name in system.names(folder):
            path = folder + "/" + name
            if name.endswith(".d"):
                for part in system.names(path):
                    if part.endswith(".conf"):
                        yield path + "/" + part
            elif name.endswith((".service", ".slice", ".scope")) and not os.path.islink(system.path(path)):
                yield path


def scan(system: System, mounts: _conf.Mounts, units: dict[str, dict[str, str]], more: t.Sequence[str]) -> list[dict[str, str | None]]:
    """C([{name, value, where}]); C(more) are files that something else of the host names, such as a prolog."""
    found: list[dict[str, str | None]] = []
    seen = set()
    places = [*_places(system), *more]
    for properties in units.values():
        # /etc/default/slurmd (ignore_errors=yes)
        places += [line.split(" (")[0] for line in properties.get("EnvironmentFiles", "").splitlines() if line.startswith("/")]
    for path in places:
        end = _conf.follow(system, path)
        if end in seen:
            continue
        seen.add(end)
        if len(seen) > MOST_FILES:
            system.problem("more than %d files may set variables; the others were not read" % MOST_FILES)
            break
        kind = mounts.far(path)
        if kind:
            system.problem("%s lies on %s and was not read" % (path, kind))
            continue
        text = system.read(path, 262144, True)
        found += [{"name": name, "value": value, "where": path} for name, value in settings(text or "")]
    for path in NCCL_FILES:
        found += [{"name": name, "value": value, "where": path} for name, value in plain(system.read(path, quiet=True) or "")]
    known = {(entry["name"], entry["value"]) for entry in found}
    for unit, properties in units.items():
        # What systemd says beyond the files is set where packages put their units, or while it runs.
        for name, value in settings("Environment=" + properties.get("Environment", "")):
            if (name, value) not in known:
                found.append({"name": name, "value": value, "where": "unit " + unit})
    return found
