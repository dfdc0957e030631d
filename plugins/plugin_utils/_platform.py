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
        raise Refusal(
            "platform.unknown", "the host's distribution could not be observed (no os-release)", seen=host, allowed=sorted(catalog["platforms"])
        )
    name, version = host["distribution"], str(host.get("version") or "")
    for entry in catalog["unsupported_platforms"]:
        if entry["distribution"] == name and entry["version"] == version.partition(".")[0]:
            raise Refusal(
                "platform.refused", f"{name} {version} is not supported: {entry['reason']}",
                seen=f"{name} {version}", allowed=sorted(catalog["platforms"]),
            )  # fmt: skip
    for identifier, entry in catalog["platforms"].items():
        if entry["distribution"] == name and entry["version"] == version:
            architecture = entry["architectures"].get(host.get("architecture"))
            if architecture is None:
                raise Refusal(
                    "platform.architecture", f"{name} {version} on {host.get('architecture')} is not supported",
                    seen=host.get("architecture"), allowed=sorted(entry["architectures"]),
                )  # fmt: skip
            return {**entry, "id": identifier, "architecture": architecture}
    supported = sorted(f"{entry['distribution']} {entry['version']}" for entry in catalog["platforms"].values())
    raise Refusal(
        "platform.unsupported", f"{name} {version} is not supported; supported are {', '.join(supported)}",
        seen=f"{name} {version}", allowed=supported,
    )  # fmt: skip
