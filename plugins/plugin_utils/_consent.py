# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What a change of the driver would disturb, and whether the operator has agreed to it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._managed_plan import FABRIC_UNIT, PERSISTENCE_UNIT

VARIABLE = "gpu_stack_disruption"
# Changes of these no running job can see.
UNSEEN = ("directory", "file", "keyring")
RELOAD_SECONDS = 30
REBOOT_SECONDS = 600


def consequences(observed: dict[str, Any], wanted: dict[str, Any] | None, differs: list[str]) -> dict[str, Any]:
    """Return what applying the differences would do to a running host: {reload, reboot, restarts, holders, downtime_s}."""
    driver = observed.get("driver") or {}
    loaded = (driver.get("loaded") or {}).get("version")
    packages = any(name.startswith("package:") for name in differs)
    reload = bool(wanted and loaded and loaded != wanted["version"])
    # The graphics console may hold nouveau; only a reboot is sure to take it off the GPU.
    reboot = bool(wanted and driver.get("nouveau_loaded") and differs)
    restarts = [unit for unit in (FABRIC_UNIT, PERSISTENCE_UNIT) if reload or (packages and loaded)]
    return {
        "reload": reload,
        "reboot": reboot,
        "restarts": restarts if wanted else [],
        "holders": [f"{entry['name']} ({entry['pid']})" for entry in (observed.get("busy") or {}).get("jobs") or []],
        "downtime_s": REBOOT_SECONDS if reboot else RELOAD_SECONDS if reload else 0,
    }


def driver_pending(asked: dict[str, Any], wanted: dict[str, Any], foreseen: dict[str, Any], differs: list[str]) -> dict[str, Any] | None:
    """Return why the driver must wait, or None when it may be changed now."""
    if all(name.partition(":")[0] in UNSEEN for name in differs):
        return None
    disturbing = foreseen["reload"] or foreseen["reboot"]
    if foreseen["holders"]:
        reason = f"driver {wanted['version']} is wanted, but {', '.join(foreseen['holders'][:3])} holds the GPUs"
    elif disturbing and asked["disruption"] == "never":
        what = "a reboot" if foreseen["reboot"] else "a reload of the driver"
        reason = f"driver {wanted['version']} is wanted, which needs {what} (about {foreseen['downtime_s']} s), and {VARIABLE} is never"
    else:
        return None
    host = asked["host"] or "HOST"
    return {
        "component": "driver",
        "role": "nvidia_driver",
        "reason": reason,
        "variable": VARIABLE,
        "value": {"seen": asked["disruption"], "needed": "idle", "holders": foreseen["holders"]},
        "command": f"ansible-playbook gpu.fleet.site --limit {host} -e {VARIABLE}=idle"
        + (" (once no process holds the GPUs)" if foreseen["holders"] else ""),
    }
