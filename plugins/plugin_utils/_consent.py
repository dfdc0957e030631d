# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What a change of the driver would disturb, and whether the operator has agreed to it."""

from __future__ import annotations

from typing import Any

VARIABLE = "gpu_stack_disruption"
# What a holder belongs to, in the words of whoever runs it.
WORDS = {"slurm": "Slurm job", "pod": "pod", "container": "container"}
# Changes of these no running job can see.
UNSEEN = ("directory", "file", "hold", "initramfs", "keyring", "lock", "source", "stream", "trusted_key")
RELOAD_SECONDS = 30
REBOOT_SECONDS = 600


def holders(observed: dict[str, Any]) -> list[str]:
    """Return who would notice: the jobs on the GPUs. Where nobody could look, a loaded driver counts as in use."""
    busy = observed.get("busy")
    if busy is None:
        return ["a process that could not be looked for"] if (observed.get("driver") or {}).get("loaded") else []
    return [_name(entry) for entry in busy.get("jobs") or []]


def _name(entry: dict[str, Any]) -> str:
    """Return a holder as people know it: a job of a scheduler by its number, a process by its name."""
    job = entry.get("job") or {}
    process = f"{entry.get('name')} ({entry.get('pid')})"
    if job.get("kind") not in WORDS:
        return process
    number = f"{WORDS[job['kind']]} {job['id']}" + (f" step {job['step']}" if job.get("step") else "")
    return f"{number}, {process}" if entry.get("devices") else number


def consequences(observed: dict[str, Any], wanted: dict[str, Any] | None, differs: list[str], units: list[str]) -> dict[str, Any]:
    """Return what applying the differences would do to a running host: {reload, reboot, restarts, holders, downtime_s}."""
    driver = observed.get("driver") or {}
    loaded = driver.get("loaded") or {}
    packages = any(name.startswith("package:") for name in differs)
    other = bool(loaded.get("version")) and bool(wanted) and loaded["version"] != (wanted or {})["version"]
    # The other flavour of the same version is another module all the same.
    other_flavour = bool(wanted and packages and loaded.get("flavour")) and loaded["flavour"] != (wanted or {})["flavour"]
    reload = other or other_flavour
    # The graphics console may hold nouveau, or its successor; only a reboot is sure to take it off the GPU.
    bound = any(rival["bound"] for rival in driver.get("rivals") or [])
    waits = (driver.get("transaction") or {}).get("status") == "waiting_for_reboot"
    reboot = bool(wanted and (driver.get("nouveau_loaded") or bound or waits) and differs)
    return {
        "reload": reload,
        "reboot": reboot,
        "restarts": sorted(set(units)) if reload or (packages and loaded) else [],
        "holders": holders(observed),
        "downtime_s": REBOOT_SECONDS if reboot else RELOAD_SECONDS if reload else 0,
    }


def command(asked: dict[str, Any], playbook: str = "gpu.fleet.site") -> str:
    """Return the command that makes a waiting change once nothing is in its way."""
    options = f"{asked['run_options']} " if asked["run_options"] else ""
    return f"ansible-playbook {playbook} {options}--limit {asked['host'] or 'HOST'} -e {VARIABLE}=idle"


def item(component: str, role: str, reason: str, asked: dict[str, Any], held: list[str], playbook: str = "gpu.fleet.site") -> dict[str, Any]:
    """Return an entry of what waits for consent."""
    return {
        "component": component,
        "role": role,
        "reason": reason,
        "variable": VARIABLE,
        "value": {"seen": asked["disruption"], "needed": "idle", "holders": held},
        "command": command(asked, playbook) + (" (once no process holds the GPUs)" if held else ""),
    }


def driver_pending(asked: dict[str, Any], wanted: dict[str, Any], foreseen: dict[str, Any], differs: list[str]) -> dict[str, Any] | None:
    """Return why the driver must wait, or None when it may be changed now."""
    if all(name.partition(":")[0] in UNSEEN for name in differs):
        return None
    held = foreseen["holders"]
    drains = f"; {VARIABLE} drain waits as never does, as this release drains no node" if asked["disruption"] == "drain" else ""
    if held:
        reason = f"driver {wanted['version']} is wanted, but {', '.join(held[:3])} holds the GPUs{drains}"
    elif (foreseen["reload"] or foreseen["reboot"]) and asked["disruption"] != "idle":
        what = "a reboot" if foreseen["reboot"] else "a reload of the driver"
        cost = f"{what} (about {foreseen['downtime_s']} s)"
        reason = f"driver {wanted['version']} is wanted, which needs {cost}, and {VARIABLE} is {asked['disruption']}{drains}"
    else:
        return None
    return item("driver", "nvidia_driver", reason, asked, held)


def pytorch_pending(asked: dict[str, Any], torch: dict[str, Any], present: str | None, foreseen: dict[str, Any]) -> dict[str, Any]:
    """Return why PyTorch must wait: the driver that carries it is itself waiting."""
    build = f"{torch['version']}+{torch['tag']}"
    reason = f"PyTorch {build} needs driver {torch['minimum_driver']} or newer, and {present or 'none'} stays until it may be changed"
    return item("pytorch", "conda_pytorch", reason, asked, foreseen["holders"])
