# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where Debian's packages come from: what the machine's own apt is told, turned to the suite of an image."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.paths import LabError

APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
# What follows a codename in the names of Debian's own suites; other publishers call theirs otherwise ("-pgdg").
POCKETS = ("", "-updates", "-security", "-backports", "-proposed-updates", "/updates")
COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
OPTIONS = {
    "arch": "Architectures",
    "signed-by": "Signed-By",
    "trusted": "Trusted",
    "check-valid-until": "Check-Valid-Until",
    "check-date": "Check-Date",
}
ONE_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
# Settings of the machine's apt without which its sources may not work from here.
SETTINGS = re.compile(r"Acquire::(?:Check-Valid-Until|Check-Date|ForceIPv4|https::(?:CaInfo|CAInfo|Verify-Peer)|https?::Proxy)$")


@dataclass(frozen=True)
class Source:
    """An entry of apt's sources; `options` are deb822 fields beside those that have a place of their own."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the entry in the deb822 format."""
        fields = {"Types": "deb", "URIs": " ".join(self.uris), "Suites": " ".join(self.suites), "Components": " ".join(self.components)}
        return "".join(f"{name}: {value}\n" for name, value in {**fields, **self.options}.items())


def parse_deb822(text: str) -> list[Source]:
    """Return the enabled binary entries of a .sources file."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0].isspace():
                fields[name] = f"{fields.get(name, '')}\n{line.rstrip()}"
            else:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        options = {title: fields[title.lower()] for title in OPTIONS.values() if title.lower() in fields}
        words = [tuple(fields.get(key, "").split()) for key in ("uris", "suites", "components")]
        found.append(Source(words[0], words[1], words[2], options))
    return found


def parse_one_line(text: str) -> list[Source]:
    """Return the binary entries of a sources.list file."""
    found = []
    for line in text.splitlines():
        match = ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if match:
            pairs = [word.partition("=") for word in (match["options"] or "").split()]
            options = {OPTIONS[key]: value.replace(",", " ") for key, _, value in pairs if key in OPTIONS}
            found.append(Source((match["uri"],), (match["suite"],), tuple(match["components"].split()), options))
    return found


def for_suite(found: list[Source], codename: str, suite: str) -> list[Source]:
    """Return Debian's own among a machine's sources, with another suite and every component of Debian."""
    chosen = []
    for source in found:
        own = tuple(suite + name.removeprefix(codename) for name in source.suites if name in {codename + pocket for pocket in POCKETS})
        if own and "main" in source.components:
            chosen.append(replace(source, suites=own, components=COMPONENTS))
    # Others publish for Debian's suites too, under keys of their own; a mirror with its own key still counts where there is nothing else.
    signed = [source for source in chosen if "debian-archive" in source.options.get("Signed-By", "debian-archive")]
    return signed or chosen


def machine_codename() -> str:
    """Return the codename of the machine's own suite."""
    match = re.search(r'^VERSION_CODENAME="?([a-z]+)', OS_RELEASE.read_text(), re.MULTILINE)
    if not match:
        raise LabError(f"{OS_RELEASE} names no VERSION_CODENAME: the lab needs Debian 12 or newer")
    return match[1]


def sources(suite: str) -> str:
    """Return a deb822 text with the machine's sources for a suite."""
    found = []
    for path in [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]:
        if path.suffix == ".sources":
            found += parse_deb822(path.read_text())
        elif path.suffix == ".list" and path.exists():
            found += parse_one_line(path.read_text())
    chosen = for_suite(found, machine_codename(), suite)
    if not chosen:
        raise LabError(f"no source of Debian's packages in {APT}/sources.list and {APT}/sources.list.d: the lab takes its sources from there")
    return "\n".join(source.text() for source in chosen)


def settings() -> dict[str, str]:
    """Return the settings of the machine's apt that its sources may need."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    pairs = (re.fullmatch(r'(\S+) "(.*)";', line) for line in dump.splitlines())
    return {pair[1]: pair[2] for pair in pairs if pair and SETTINGS.match(pair[1]) and pair[2]}
