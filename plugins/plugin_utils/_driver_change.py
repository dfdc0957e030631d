# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What a change of the driver has to know of the host before it begins: kernels, services, settings of the GPUs, and how far the consent goes."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _dnf_plan, _managed_plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_component import parts

# Services that have the GPUs open without being anybody's job, users before what they use: the order in which they are stopped.
SERVICES = (
    "nvidia-dcgm-exporter.service", "nvidia-dcgm.service", "dcgm.service", "nvidia-cdi-refresh.service", "nvidia-topologyd.service",
    "nvidia-powerd.service", "nvidia-gridd.service", "nvidia-imex.service", "nvidia-fabricmanager.service", "nvlsm.service",
    "nvidia-persistenced.service",
)  # fmt: skip
# A change that is under way or was cut off, one that waits for a boot, and one whose way back failed.
UNFINISHED = ("running", "waiting_for_reboot", "needs_attention")
# Stands for it among what differs from the plan.
UNFINISHED_ID = "transaction:driver"
# Before a command, as in a unit of systemd: it may fail.
MAY_FAIL = "-"
Command = list[str]


def plan(
    asked: dict[str, Any],
    platform: dict[str, Any],
    observed: dict[str, Any],
    foreseen: dict[str, Any],
    managed: list[dict[str, Any]],
    leaving: dict[str, Any],
) -> dict[str, Any]:
    """Return what driver_transaction is told beside the driver and its packages; `leaving` is how the present ones go: {absent, afresh}."""
    driver = observed.get("driver") or {}
    kernel = (observed.get("host") or {}).get("kernel")
    kernels = sorted({str(name) for name in (kernel, (driver.get("next_boot") or {}).get("kernel")) if name})
    lost = foreseen["reload"] or foreseen["reboot"]
    return {
        "kernels": kernels,
        "headers": {platform["kernel_headers"].replace("{kernel}", name): f"/lib/modules/{name}/build" for name in kernels},
        **_with_packages(managed),
        "services": list(SERVICES),
        "settings": settings(observed) if lost else [],
        "may_remove": sorted(package["name"] for package in driver.get("packages") or []),
        **leaving,
        "reload": foreseen["reload"],
        # A module that nobody holds and that cannot be taken out all the same goes with a boot; who agreed to the one agreed to the other.
        "reboot": foreseen["reboot"] or (foreseen["reload"] and asked["disruption"] == "idle"),
        "way_back": "required" if len(set(parts(driver, kernel).values())) == 1 else "optional",
    }


def _with_packages(managed: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Return what belongs to the versions: it changes in the same step as the packages, and goes back with them."""
    desired = {(item["kind"], item["id"]): item["desired"] for item in managed if item["role"] == "nvidia_driver"}
    files = {_managed_plan.PIN: ("file", _managed_plan.PIN), _dnf_plan.STREAM: ("stream", _dnf_plan.MODULE)}
    return {
        "files": {path: desired[key]["content"] for path, key in files.items() if key in desired},
        "locks": {name: state["lines"][0] for (kind, name), state in desired.items() if kind == "lock"},
    }


def services_at_work(observed: dict[str, Any]) -> list[str]:
    """Return those of the services that have a GPU open now, such as an exporter of somebody else's."""
    holders = (observed.get("driver") or {}).get("holders") or []
    return sorted({holder["unit"] for holder in holders} & set(SERVICES))


def settings(observed: dict[str, Any]) -> list[Command]:
    """Return the programs that give every GPU back what it loses with the driver, as far as it can be read."""
    daemon = bool(((observed.get("driver") or {}).get("persistence") or {}).get("active"))
    found: list[Command] = []
    for address, state in sorted((observed.get("volatile") or {}).items()):
        found += [_smi(address, *words) for words in _switches(state, daemon)]
        found += _mig(address, state)
        found += [_smi(address, *words) for words in _limits(state)]
    return found


def _smi(address: str, *words: str) -> Command:
    return ["nvidia-smi", "-i", address, *words]


def _switches(state: dict[str, Any], daemon: bool) -> list[tuple[str, str]]:
    """Return the persistence mode where it is not what the daemon gives every GPU, or what it has without one."""
    mode = state.get("persistence_mode")
    return [] if mode is None or mode == daemon else [("-pm", str(int(mode)))]


def _limits(state: dict[str, Any]) -> list[tuple[str, str]]:
    """Return compute mode, power limit and clocks where they are not the GPU's own."""
    found = []
    if state.get("compute_mode") not in (None, "Default"):
        found.append(("-c", state["compute_mode"].upper()))
    # What was asked for and not what is in force: the module as a whole may allow less for now.
    power = state.get("power_limit_requested_w") or state.get("power_limit_w")
    if power is not None and power != state.get("power_limit_default_w"):
        found.append(("-pl", f"{power:g}"))
    clocks = state.get("application_clocks") or {}
    if clocks.get("memory_mhz") and clocks.get("graphics_mhz") and clocks != state.get("application_clocks_default"):
        found.append(("-ac", f"{clocks['memory_mhz']},{clocks['graphics_mhz']}"))
    if state.get("accounting_mode"):
        found.append(("-am", "1"))
    return found


def _mig(address: str, state: dict[str, Any]) -> list[Command]:
    """Return how a GPU is divided again; what a run that was cut off has made is taken away first."""
    if state.get("mig") != "enabled":
        return []
    found = [_smi(address, "-mig", "1")]
    geometry = sorted(state.get("mig_geometry") or [], key=lambda entry: entry["id"])
    if not geometry:
        return found
    found += [[MAY_FAIL, "nvidia-smi", "mig", "-i", address, word] for word in ("-dci", "-dgi")]
    places = ",".join(f"{entry['profile_id']}:{entry['start']}" for entry in geometry)
    found.append(["nvidia-smi", "mig", "-i", address, "-cgi", places])
    for entry in geometry:
        inner = sorted(entry["compute_instances"], key=lambda one: one["id"])
        if inner:
            profiles = ",".join(str(one["profile_id"]) for one in inner)
            found.append(["nvidia-smi", "mig", "-i", address, "-gi", str(entry["id"]), "-cci", profiles])
    return found


def next_boot(observed: dict[str, Any], wanted: dict[str, Any]) -> dict[str, str]:
    """Return what the next boot would lack, by the name under which it differs from the plan, each with the reason.

    Packages for a new kernel end well although the module was not built for it, and the image that it starts from holds the settings of the day it
    was made.
    """
    driver = observed.get("driver") or {}
    coming = driver.get("next_boot") or {}
    kernel = coming.get("kernel")
    if not kernel:
        return {}
    found = {}
    if coming.get("module") != wanted["version"]:
        there = f"only {coming['module']}" if coming.get("module") else "no module"
        found[f"kernel:{kernel}"] = f"the next boot is with kernel {kernel}, for which there is {there}"
    image = ((driver.get("kernels") or {}).get(kernel) or {}).get("initramfs") or {}
    if _managed_plan.NOUVEAU in (image.get("older_than") or ()):
        found[f"initramfs:{kernel}"] = f"the next boot is from {image['path']}, which is older than {_managed_plan.NOUVEAU}"
    return found


def unfinished(observed: dict[str, Any]) -> dict[str, Any] | None:
    """Return the change of driver that was begun on the host and has not ended, or None."""
    found: dict[str, Any] | None = (observed.get("driver") or {}).get("transaction")
    return found if found and found["status"] in UNFINISHED else None


def told(observed: dict[str, Any], as_planned: bool) -> list[str]:
    """Return what a change that did not end well, or not yet, means for the next run; nothing of one that somebody has since mended."""
    found = (observed.get("driver") or {}).get("transaction")
    if not found or as_planned:
        return []
    what = f"the change of driver from {found['from'] or 'none'} to {found['to'] or 'none'}"
    if found["status"] == "waiting_for_reboot":
        return [f"{what} waits for a boot: {found['waits_for']}"]
    if found["status"] == "running":
        return [f"{what} is not finished (step {found['step']}); the next run waits for it or finishes it"]
    if found["status"] == "rolled_back":
        return [f"{what} was undone: {found['reason']}"]
    if found["status"] == "needs_attention":
        return [f"{what} needs attention: {found['reason']}; once that is mended, the next run finishes it"]
    return []
