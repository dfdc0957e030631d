# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A source of packages on a host that calls itself the distribution's security archive and would push the driver out, made by the real dpkg-deb."""

from __future__ import annotations

from lab.client import Lab

FOLDER = "/srv/poison"
LIST = "/etc/apt/sources.list.d/zz-poison.list"
RELEASE = "Origin: Debian\nLabel: Debian-Security\nSuite: stable-security\nCodename: bookworm-security\nArchitectures: amd64\n"
# What is on the host from the start, and innocent.
AGENT = "site-agent"
# Higher versions of what a driver is made of, another driver, and an agent whose next version will have none of the present one beside it.
PACKAGES = (
    {"Package": "libcuda1", "Version": "999.1-1"},
    {"Package": "libnvidia-ml1", "Version": "999.1-1"},
    {"Package": "nvidia-modprobe", "Version": "999.1-1"},
    {"Package": "nvidia-driver-999", "Version": "999.1-1", "Provides": "libcuda1", "Conflicts": "libcuda1", "Replaces": "libcuda1"},
    {
        "Package": AGENT, "Version": "2.0", "Depends": "nvidia-driver-999", "Conflicts": "libcuda1, libnvidia-ml1", "Replaces": "libcuda1",
        "Essential": "yes",
    },
)  # fmt: skip
INNOCENT = {"Package": AGENT, "Version": "1.0", "Essential": "yes"}


def build(package: dict[str, str]) -> str:
    """Return the shell commands that build a package."""
    fields = {"Architecture": "amd64", "Maintainer": "nobody <nobody@example.org>", "Priority": "required", "Description": "of a test", **package}
    control = "".join(f"{key}: {value}\n" for key, value in fields.items())
    root = f"{FOLDER}/build/{package['Package']}_{package['Version']}"
    return f"mkdir -p {root}/DEBIAN && printf '%s' '{control}' >{root}/DEBIAN/control && dpkg-deb --build {root} {FOLDER} >/dev/null\n"


def must(lab: Lab, host: str, script: str) -> str:
    """Run a script on a host, which must end well, and return what it printed."""
    done = lab.run(host, ["sh", "-ec", script])
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def prepare(lab: Lab, host: str) -> None:
    """Build the packages and install the innocent one; the source is not known to apt yet."""
    script = f"mkdir -p {FOLDER}\n{build(INNOCENT)}dpkg -i {FOLDER}/{AGENT}_1.0_amd64.deb >/dev/null\n" + "".join(map(build, PACKAGES))
    script += f"cd {FOLDER} && dpkg-scanpackages --multiversion . >Packages 2>/dev/null && printf '%s' '{RELEASE}' >Release"
    script += ' && printf "SHA256:\\n %s %s Packages\\n" "$(sha256sum Packages | cut -d" " -f1)" "$(stat -c %s Packages)" >>Release'
    must(lab, host, script)


def offer(lab: Lab, host: str, on: bool = True) -> None:
    """Let apt know the source, or forget it."""
    line = f"echo 'deb [trusted=yes] file:{FOLDER} ./' >{LIST}" if on else f"rm -f {LIST}"
    must(lab, host, f"{line}; apt-get -q update")
