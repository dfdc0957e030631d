# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings that nvidia-smi changes. They last until the driver is unloaded."""

from __future__ import annotations

from typing import Any

from ..state import changing
from .readings import smi_address, watts

COMPUTE_MODES = {"0": "Default", "DEFAULT": "Default", "2": "Prohibited", "PROHIBITED": "Prohibited", "3": "Exclusive_Process",
                 "EXCLUSIVE_PROCESS": "Exclusive_Process"}  # fmt: skip
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
    settings["mig"] = "Enabled" if _switch(word) else "Disabled"
    return f"{settings['mig']} MIG Mode for {name}"


def _ecc(word: str, gpu: dict[str, Any], settings: dict[str, Any], name: str) -> str:
    if not gpu["spec"]["ecc"]:
        raise BadValue(f"Unable to set ECC configuration for {name}: Not Supported")
    settings["ecc"] = _switch(word)
    return f"ECC support is {'now' if settings['ecc'] else 'not'} pending for {name}."


ACTIONS = {"persistence": _persistence, "power_limit": _power_limit, "compute_mode": _compute_mode, "mig": _mig, "ecc": _ecc}
