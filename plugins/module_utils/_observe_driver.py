# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The group C(driver): the driver's packages, modules, libraries and services, and who uses it."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _driver, _jobs, _modprobe, _owners, _software

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System


# What driver_transaction has written; docs/transaction.md describes it.
RECORD = "/var/lib/gpu_fleet/driver/transaction.json"
RECORD_SCHEMA = 1
MOST_RECORD = 1 << 20


def start(seen: Observation) -> None:
    """Find the module files and ask modinfo about all of them at once."""
    with seen.probe("modules"):
        seen.module_files = _driver.module_files(seen.system)
    if seen.module_files:
        seen.ask("modinfo", ["modinfo", *sorted(seen.module_files.values())])
    seen.unit_names += [_driver.FABRIC_UNIT, _driver.PERSISTENCE_UNIT]


def collect(seen: Observation) -> None:
    """Fill in C(driver) and C(busy)."""
    system, packages, units = seen.system, seen.packages, seen.units
    driver: dict[str, t.Any] = dict.fromkeys((
        "packages", "owner", "flavour", "on_disk", "loaded", "loaded_modules", "user_space", "libcuda", "gsp_firmware", "nouveau_loaded", "rivals",
        "kept_out", "module_options", "kernel_options", "kernels", "next_boot", "dkms", "dkms_key", "fabric_manager", "persistence", "holders",
        "nic_settings", "reboot_reasons", "transaction",
    ))
    seen.facts["driver"] = driver
    with seen.probe("driver"):
        modinfo = seen.answer("modinfo")
        described = _driver.parse_modinfo(modinfo.out if modinfo else "")
        driver["on_disk"] = _driver.on_disk(seen.module_files, described)
        silent = sorted(set(seen.module_files.values()) - set(described)) if modinfo is not None and modinfo.rc == 0 else []
        if silent:
            system.problem("modinfo says nothing of %s" % ", ".join(silent), "modinfo")
        driver["loaded"] = _driver.loaded(system)
        names = system.names("/sys/module")
        driver["loaded_modules"] = [name for name in names if _driver.LOADED_MODULE.match(name)]
        driver["nouveau_loaded"] = "nouveau" in names
        driver["rivals"] = _modprobe.rivals(system)
        driver["user_space"] = _driver.user_space(system)
        driver["libcuda"] = _driver.library(system, "libcuda")
        disk = driver["on_disk"].get(seen.kernel) or {}
        driver["flavour"] = disk.get("flavour") or (driver["loaded"] or {}).get("flavour")
        driver["owner"] = _owners.driver(system, packages, driver["user_space"], bool(seen.module_files) or driver["loaded"] is not None)
    if packages is not None:
        driver["packages"] = [
            {"name": name, "version": package.version, "held": package.held}
            for name, package in sorted(packages.items()) if _software.is_driver(name)
        ]
        for name, package in packages.items():
            if package.version is None:
                system.problem("%s is %s" % (name, package.status), "packages")
    for key, unit in (("fabric_manager", _driver.FABRIC_UNIT), ("persistence", _driver.PERSISTENCE_UNIT)):
        known = (units or {}).get(unit, {})
        if known.get("LoadState") not in (None, "not-found"):
            driver[key] = {"active": known.get("ActiveState") == "active"}
    if packages is not None:
        version = next((package.version for name, package in packages.items() if _driver.FABRIC_PACKAGE.match(name)), None)
        if version:
            driver["fabric_manager"] = {"version": _software.upstream(version), "active": (driver["fabric_manager"] or {}).get("active")}
        elif driver["fabric_manager"]:
            driver["fabric_manager"]["version"] = None
    with seen.probe("transaction"):
        driver["transaction"] = transaction(system)
    with seen.probe("holders"):
        driver["holders"] = _driver.holders(system)
        if driver["holders"] is not None:
            _jobs.attribute(system, driver["holders"])
            jobs = [entry for entry in driver["holders"] if entry["unit"] not in _driver.OWN_UNITS]
            seen.facts["busy"] = {"jobs": jobs + _jobs.waiting(system, driver["holders"]), "holders": len(driver["holders"])}


def transaction(system: System) -> dict[str, t.Any] | None:
    """The last change of driver, as its record has it; None where there never was one, or its record cannot be understood."""
    text = system.read(RECORD, MOST_RECORD)
    if text is None:
        return None
    record = json.loads(text)
    if record["schema"] != RECORD_SCHEMA:
        system.problem("%s is of schema %s, and this release knows schema %d" % (RECORD, record["schema"], RECORD_SCHEMA))
        return None
    found = {name: record[name] for name in ("id", "status", "direction", "step", "reason", "waits_for")}
    return {**found, "from": record["before"]["version"], "to": record["wanted"]["version"]}
