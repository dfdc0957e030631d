# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which row of the platform table a host belongs to."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal


def find_platform(catalog: dict[str, Any], host: dict[str, Any] | None) -> dict[str, Any]:
    """Return {id, family, directory, architecture, ...} for gpu_facts' `host`; raises Refusal where we do not work."""
    supported = sorted(f"{entry['distribution']} {entry['version']}" for entry in catalog["platforms"].values())
    listed = ", ".join(supported)
    if not host or not host.get("distribution"):
        raise Refusal("platform.unknown", "the host's distribution could not be observed (no os-release)", seen=None, allowed=supported)
    name, version = str(host["distribution"]), str(host.get("version") or "")
    seen = f"{name} {version}".strip()
    found = next((item for item in catalog["platforms"].items() if item[1]["distribution"] == name and item[1]["version"] == version), None)
    if found is None:
        known = next((entry for entry in catalog["unsupported_platforms"] if _names(entry, name, version, host.get("like") or [])), None)
        if known is None:
            raise Refusal("platform.unsupported", f"{seen} is not supported; supported are {listed}", seen=seen, allowed=supported)
        raise Refusal(
            "platform.refused", f"{seen} is not supported: {known['reason']}; supported are {listed}",
            seen=seen, allowed=supported, source=known["source"],
        )  # fmt: skip
    identifier, entry = found
    architecture = entry["architectures"].get(host.get("architecture"))
    if architecture is None:
        raise Refusal(
            "platform.architecture", f"{seen} on {host.get('architecture')} is not supported; supported are {', '.join(entry['architectures'])}",
            seen=host.get("architecture"), allowed=sorted(entry["architectures"]), source=entry["source"],
        )  # fmt: skip
    if host.get("init") != "systemd":
        raise Refusal(
            "platform.init", "the host does not run systemd, which the driver's services and the limits of a training node need",
            seen=host.get("init"), allowed=["systemd"],
        )  # fmt: skip
    return {**entry, "id": identifier, "architecture": architecture}


def _names(entry: dict[str, Any], name: str, version: str, like: list[str]) -> bool:
    """Tell whether an entry speaks of this distribution, or of one that it calls its like."""
    versions = entry.get("versions")
    if versions and version not in versions and version.partition(".")[0] not in versions:
        return False
    return name in entry["distributions"] or bool(set(like) & set(entry.get("like") or []))
