# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that nvidia-smi changes. They last until the driver is unloaded; what the GPU itself keeps comes back with the driver."""

from __future__ import annotations

from typing import Any

from ..machine import keep
from ..state import changing
from .readings import smi_address, watts

COMPUTE_MODES = {"0": "Default", "DEFAULT": "Default", "2": "Prohibited", "PROHIBITED": "Prohibited", "3": "Exclusive_Process",
                 "EXCLUSIVE_PROCESS": "Exclusive_Process"}  # fmt: skip
# GPUs from this compute capability on keep no MIG mode without a driver.
FIRST_WITHOUT_KEPT_MIG = 9.0
ON_OFF = {"1": True, "ENABLED": True, "0": False, "DISABLED": False}


class BadValue(Exception):
    """A value that nvidia-smi refuses; its text is nvidia-smi's."""


def change(option: str, word: str, gpus: list[dict[str, Any]]) -> str:
    """Apply one option to GPUs; returns what nvidia-smi prints."""
    text = ""
    with changing() as state:
        for gpu in gpus:
            settings = state["settings"].setdefault(gpu["address"], {})
            text += ACTIONS[option](word, gpu, settings, "GPU " + smi_address(gpu["address"])) + "\n"
    return text + "All done.\n"


def _switch(word: str) -> bool:
    if word.upper() not in ON_OFF:
        raise BadValue(f"Invalid combination of input arguments. {word} is not a valid value.")
    return ON_OFF[word.upper()]


def _persistence(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    wanted, before = _switch(word), settings.get("persistence", False)
    settings["persistence"] = wanted
    said = "Enabled" if wanted else "Disabled"
    return f"Persistence mode is already {said} for {name}." if wanted == before else f"{said} persistence mode for {name}."


def _power_limit(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    power = gpu["spec"]["power_w"]
    try:
        wanted = float(word)
    except ValueError:
        raise BadValue(f"Provided power limit {word} is not a number.") from None
    if not power["min"] <= wanted <= power["max"]:
        raise BadValue(
            f"Provided power limit {watts(wanted)} is not a valid power limit which should be between "
            f"{watts(power['min'])} and {watts(power['max'])} for {name}"
        )
    before = settings.get("power_limit", power["default"])
    settings["power_limit"] = wanted
    return f"Power limit for {name} was set to {watts(wanted)} from {watts(before)}."


def _compute_mode(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    if word.upper() not in COMPUTE_MODES:
        raise BadValue(f"Invalid compute mode {word}.")
    settings["compute_mode"] = COMPUTE_MODES[word.upper()]
    return f"Set compute mode to {settings['compute_mode'].upper()} for {name}."


def _mig(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    if not gpu["spec"]["mig"]:
        raise BadValue(f"Unable to enable MIG Mode for {name}: Not Supported")
    wanted = "Enabled" if _switch(word) else "Disabled"
    if wanted == "Disabled" and settings.get("mig_instances"):
        raise BadValue(f"Unable to disable MIG Mode for {name}: In use by another client")
    settings["mig"] = wanted
    if float(gpu["spec"]["compute_capability"]) < FIRST_WITHOUT_KEPT_MIG:
        keep(gpu["address"], mig=wanted)
    return f"{settings['mig']} MIG Mode for {name}"


def _ecc(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    if not gpu["spec"]["ecc"]:
        raise BadValue(f"Unable to set ECC configuration for {name}: Not Supported")
    settings["ecc"] = _switch(word)
    keep(gpu["address"], ecc=settings["ecc"])
    return f"ECC support is {'now' if settings['ecc'] else 'not'} pending for {name}."


def _accounting(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    settings["accounting"] = "Enabled" if _switch(word) else "Disabled"
    return f"{settings['accounting']} Accounting Mode for {name}."


def _clocks(word: str, count: int) -> list[int]:
    parts = word.split(",")
    if not all(part.isdigit() for part in parts) or len(parts) > count:
        raise BadValue(f"Invalid clock values {word}.")
    return [int(part) for part in parts]


def _locked(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    low, high = (_clocks(word, 2) * 2)[:2]
    settings["locked_graphics"] = [low, high]
    return f'GPU clocks set to "(gpuClkMin {low}, gpuClkMax {high})" for {name}'


def _locked_memory(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    low, high = (_clocks(word, 2) * 2)[:2]
    settings["locked_memory"] = [low, high]
    return f'Memory clocks set to "(memClkMin {low}, memClkMax {high})" for {name}'


def _deferred(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    (settings["deferred_memory"],) = _clocks(word, 1)
    return f"Memory clocks deferred set to {settings['deferred_memory']} for {name}"


def _application(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    clocks, wanted = gpu["spec"]["clocks_mhz"], _clocks(word, 2)
    if len(wanted) != 2 or wanted[0] != clocks["memory"] or wanted[1] > clocks["graphics"]:
        raise BadValue(f"Specified clock combination \"(MEM {word.replace(',', ', SM ')})\" is not supported for {name}.")
    settings["application_clocks"] = wanted
    return f'Applications clocks set to "(MEM {wanted[0]}, SM {wanted[1]})" for {name}'


def reset(name: str, gpus: list[dict[str, Any]]) -> str:
    """Forget a setting of clocks."""
    with changing() as state:
        for gpu in gpus:
            state["settings"].get(gpu["address"], {}).pop(name, None)
    return "All done.\n"


ACTIONS = {
    "persistence": _persistence, "power_limit": _power_limit, "compute_mode": _compute_mode, "mig": _mig, "ecc": _ecc, "accounting": _accounting,
    "locked": _locked, "locked_memory": _locked_memory, "deferred": _deferred, "application": _application,
}  # fmt: skip
RESETS = {"reset_locked": "locked_graphics", "reset_locked_memory": "locked_memory", "reset_application": "application_clocks"}
