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
    if not host or not host.get("distribution"):
        raise Refusal("platform.unknown", "the host's distribution could not be observed (no os-release)", seen=None, allowed=_supported(catalog))
    name, version = str(host["distribution"]), str(host.get("version") or "")
    seen = f"{name} {version}".strip()
    found = next((item for item in catalog["platforms"].items() if _is(item[1], name, version)), None)
    if found is None or found[1].get("unmanaged"):
        raise _refused(catalog, seen, found[1] if found else _unsupported(catalog, name, version, host.get("like") or []))
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


def _is(entry: dict[str, Any], name: str, version: str) -> bool:
    """Tell whether a row of the platform table speaks of this distribution and version."""
    if name != entry["distribution"] and name not in entry.get("relatives", ()):
        return False
    return version == entry["version"] or (bool(entry.get("any_minor")) and version.partition(".")[0] == entry["version"])


def _supported(catalog: dict[str, Any]) -> list[str]:
    return sorted(f"{entry['distribution']} {entry['version']}" for entry in catalog["platforms"].values() if not entry.get("unmanaged"))


def _refused(catalog: dict[str, Any], seen: str, known: dict[str, Any] | None) -> Refusal:
    """Return the refusal of a distribution that is not managed, with its reason where one is known."""
    supported = _supported(catalog)
    listed = ", ".join(supported)
    if known is None:
        return Refusal("platform.unsupported", f"{seen} is not supported; supported are {listed}", seen=seen, allowed=supported)
    reason = known.get("unmanaged") or known["reason"]
    return Refusal(
        "platform.refused", f"{seen} is not supported: {reason}; supported are {listed}", seen=seen, allowed=supported, source=known["source"]
    )


def _unsupported(catalog: dict[str, Any], name: str, version: str, like: list[str]) -> dict[str, Any] | None:
    return next((entry for entry in catalog["unsupported_platforms"] if _names(entry, name, version, like)), None)


def _names(entry: dict[str, Any], name: str, version: str, like: list[str]) -> bool:
    """Tell whether an entry speaks of this distribution, or of one that it calls its like."""
    versions = entry.get("versions")
    if versions and version not in versions and version.partition(".")[0] not in versions:
        return False
    return name in entry["distributions"] or bool(set(like) & set(entry.get("like") or []))
