# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What going back to the former driver would disturb on a host, and whether the operator has agreed to it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _consent, _driver_change, _request

PLAYBOOK = "gpu.fleet.rollback_driver"


def plan(request: dict[str, Any], observed: dict[str, Any]) -> dict[str, Any]:
    """Return {from, to, services, settings, reload, reboot, pending}; whether there is anything to go back to knows the host alone."""
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
    return {
        "from": last.get("to"),
        "to": last.get("from"),
        "services": list(_driver_change.SERVICES),
        "settings": _driver_change.settings(observed) if loaded else [],
        "reload": agreed,
        "reboot": agreed,
        "pending": [_consent.item("driver", "nvidia_driver", reason, asked, held, PLAYBOOK)] if reason else [],
    }
