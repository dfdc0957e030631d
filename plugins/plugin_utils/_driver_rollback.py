# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What going back to the former driver would disturb on a host, and whether the operator has agreed to it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _apt_plan, _consent, _driver_change, _managed_plan, _request

PLAYBOOK = "gpu.fleet.rollback_driver"
ROLE = "nvidia_driver"


def keeping(observed: dict[str, Any], kept: dict[str, str]) -> list[dict[str, Any]]:
    """Return what keeps these packages, by their versions, from every upgrade, as things of a plan; dnf's locks go with its packages."""
    if not kept or (observed.get("host") or {}).get("package_manager") != "apt":
        return []
    files = {_apt_plan.PIN: _apt_plan.pin(_managed_plan.HEADER, kept), _apt_plan.FENCE: _apt_plan.fence(_managed_plan.HEADER, list(kept))}
    return [*(_managed_plan.file(ROLE, path, text) for path, text in files.items()), *_apt_plan.holds(ROLE, list(kept))]


def plan(request: dict[str, Any], observed: dict[str, Any], kept: dict[str, str] | None = None) -> dict[str, Any]:
    """Return {from, to, services, settings, files, holds, managed, reload, reboot, pending}.

    Whether there is anything to go back to knows the host alone; C(kept) are the packages of the driver by then, with their versions.
    """
    asked = _request.normalize(request)
    driver = observed.get("driver") or {}
    last = driver.get("transaction") or {}
    loaded = bool(driver.get("loaded"))
    agreed = asked["disruption"] == "idle"
    held = _consent.holders(observed)
    what = f"driver {last.get('from')} is to come back in place of {last.get('to')}"
    reason = None
    if held:
        reason = f"{what}, but {', '.join(held[:3])} holds the GPUs"
    elif not agreed:
        reason = f"{what}, which needs a reload of the driver (about {_consent.RELOAD_SECONDS} s), and {_consent.VARIABLE} is {asked['disruption']}"
    managed = keeping(observed, kept or {})
    return {
        "from": last.get("to"),
        "to": last.get("from"),
        "services": list(_driver_change.SERVICES),
        "settings": _driver_change.settings(observed) if loaded else [],
        "files": {item["id"]: item["desired"]["content"] for item in managed if item["kind"] == "file"},
        "holds": [item["id"] for item in managed if item["kind"] == "hold"],
        "managed": managed,
        "reload": agreed,
        "reboot": agreed,
        "pending": [_consent.item("driver", ROLE, reason, asked, held, PLAYBOOK)] if reason else [],
    }
