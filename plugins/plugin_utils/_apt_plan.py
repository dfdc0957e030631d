# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What apt is told: where the vendor's packages come from and by which key, and what keeps them at their versions."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

Item = dict[str, Any]

SOURCES = "/etc/apt/sources.list.d/gpu-fleet-nvidia.sources"
KEYRING = "/etc/apt/keyrings/gpu-fleet-nvidia.asc"
PIN = "/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
# After the distribution's own 50unattended-upgrades; lists of apt's settings add up.
FENCE = "/etc/apt/apt.conf.d/51gpu-fleet-unattended-upgrades"
PROXY = "/etc/apt/apt.conf.d/51gpu-fleet-proxy"
VENDOR = "https://developer.download.nvidia.com"
FOLDER = "/compute/cuda/repos/"
# Driver packages whose names a plan does not hold, because a dependency brought them or an upgrade would: kept from unattended upgrades all the same.
# Containers, cuDNN, NCCL and others that are named alike have no version in common with the driver.
FAMILIES = (
    "^(lib)?nvidia-(?!container|docker|cuda-|cudnn|nccl|nsight|visual|mlnx|mig-manager).*$",
    "^(lib)?cuda-drivers.*$",
    "^libcuda1$",
    "^firmware-nvidia-.*$",
)


def place(base: str) -> str:
    """Return where the repository lies below a base address, without scheme and account: what gpu_facts looks for in apt's sources."""
    parts = urlsplit(base + FOLDER)
    return parts.netloc.rpartition("@")[2].lower() + parts.path


def places(mirror: str | None) -> list[str]:
    """Return the places of the vendor's repository that a host could have: the vendor's own, and its mirror."""
    return list(dict.fromkeys([place(VENDOR), *([place(mirror)] if mirror else [])]))


def keys(catalog: dict[str, Any], fingerprint: str | None) -> list[str]:
    """Return the fingerprints of all keys that the repository's packages are, or once were, signed with for apt."""
    current = [entry["key_fingerprint"] for entry in catalog["platforms"].values() if entry["package_manager"] == "apt"]
    revoked = [entry["key_fingerprint"] for entry in catalog["revoked_keys"]]
    return sorted({key for key in (*current, *revoked, fingerprint) if key})


def repository(header: str, platform: dict[str, Any], mirror: str | None, fingerprint: str | None, proxy: str | None) -> dict[str, Any]:
    """Return where the vendor's packages come from: {id, path, content, key_url, key_path, fingerprint, places, proxy, instead}."""
    folder = f"{FOLDER}{platform['directory']}/{platform['architecture']}/"
    base = f"{mirror or VENDOR}{folder}"
    architecture = {"x86_64": "amd64", "sbsa": "arm64"}[platform["architecture"]]
    content = f"{header}Types: deb\nURIs: {base}\nSuites: /\nArchitectures: {architecture}\nSigned-By: {KEYRING}\n"
    key = fingerprint or platform["key_fingerprint"]
    instead = "a mirror that is signed by a key of its own (gpu_stack_mirror and gpu_stack_mirror_key_fingerprint)"
    if key != platform["key_fingerprint"]:
        instead = f"{VENDOR}{folder}, signed by {platform['key_fingerprint']} (without gpu_stack_mirror), or have the mirror signed by another key"
    return {
        "id": "nvidia",
        "path": SOURCES,
        "content": content,
        "key_url": base + platform["key_file"],
        "key_path": KEYRING,
        "fingerprint": key,
        "places": places(mirror),
        "proxy": proxy,
        # What to use where the host's verifier does not accept the key.
        "instead": instead,
    }


def sources(role: str, catalog: dict[str, Any], source: dict[str, Any]) -> list[Item]:
    """Return that the repository is in one file only, and that its key is trusted for nothing that does not need it."""
    present = place(source["key_url"].partition(FOLDER)[0])
    found: list[Item] = [
        {"role": role, "kind": "source", "id": name, "desired": {"files": [SOURCES] if name == present else []}} for name in source["places"]
    ]
    known = keys(catalog, source["fingerprint"])
    return found + [{"role": role, "kind": "trusted_key", "id": key, "desired": {"spare": []}} for key in known]


def pin(header: str, packages: dict[str, str]) -> str:
    """Return apt preferences that hold every package at its exact version, whatever any repository offers."""
    versions: dict[str, list[str]] = {}
    for name, version in packages.items():
        versions.setdefault(version, []).append(name)
    blocks = [f"Package: {' '.join(sorted(names))}\nPin: version {version}\nPin-Priority: 1001\n" for version, names in sorted(versions.items())]
    return header + "\n".join(blocks)


def fence(header: str, names: list[str]) -> str:
    """Return apt settings that keep unattended-upgrades off packages; it takes each pattern as a regular expression from the name's start."""
    exact = ["^" + re.sub(r"[.+]", r"[\g<0>]", name) + "$" for name in sorted(names)]
    patterns = "".join(f'  "{pattern}";\n' for pattern in (*exact, *FAMILIES))
    return f"{_slashed(header)}Unattended-Upgrade::Package-Blacklist {{\n{patterns}}};\n"


def proxy(header: str, source: dict[str, Any]) -> str | None:
    """Return apt settings that reach the repository's host, and no other, through a proxy; None without one."""
    if not source["proxy"]:
        return None
    host = urlsplit(source["key_url"]).hostname
    return _slashed(header) + "".join(f'Acquire::{scheme}::Proxy::{host} "{source["proxy"]}";\n' for scheme in ("http", "https"))


def holds(role: str, names: list[str]) -> list[Item]:
    """Return that packages are on hold: a pin does not keep a package from being removed for the sake of another."""
    return [{"role": role, "kind": "hold", "id": name, "desired": {"held": True}} for name in sorted(names)]


def _slashed(header: str) -> str:
    """Return a header as a remark of apt's settings."""
    return header.replace("# ", "// ", 1)
