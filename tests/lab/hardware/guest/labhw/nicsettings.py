# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mlxconfig: settings in the firmware of the machine's adapters. A changed one is in force after the next start."""

from __future__ import annotations

import json
import os
import sys

from . import machine as machines
from .machine import Machine

STORE = "/var/lib/lab/nic-settings.json"
DEFAULTS = {
    "MEMIC_BAR_SIZE": "0", "NUM_OF_VFS": "16", "SRIOV_EN": "False(0)", "ATS_ENABLED": "False(0)", "PCI_WR_ORDERING": "per_mkey(0)",
    "MAX_ACC_OUT_READ": "0", "LINK_TYPE_P1": "IB(1)", "NUM_PF_MSIX_VALID": "True(1)",
}  # fmt: skip
# Adapter -> setting -> [in force, from the next start on].
Settings = dict[str, dict[str, list[str]]]


def load() -> Settings:
    """Return the settings that differ from the defaults, or will."""
    try:
        with open(STORE) as file:
            settings: Settings = json.load(file)
            return settings
    except FileNotFoundError:
        return {}


def save(settings: Settings) -> None:
    """Keep settings, as the adapters' memory does."""
    os.makedirs(os.path.dirname(STORE), exist_ok=True)
    with open(STORE + ".part", "w") as file:
        json.dump(settings, file)
    os.replace(STORE + ".part", STORE)


def started() -> None:
    """Put what was set in force: the machine starts."""
    settings = load()
    if settings:
        save({device: {name: [values[1]] * 2 for name, values in own.items()} for device, own in settings.items()})


def spelled(name: str, value: str) -> str:
    """Return a value as the tool prints it."""
    if value in ("0", "1") and DEFAULTS[name].endswith(")"):
        words = {"0": "False(0)", "1": "True(1)"}
        return words[value]
    return value


def table(own: dict[str, list[str]]) -> str:
    """Return all settings of an adapter, those with a star whose next value differs."""
    lines = [f"{'Configurations:':<52}{'Default':<20}{'Current':<20}{'Next Boot':<20}"]
    for name, default in DEFAULTS.items():
        now, later = own.get(name, [default, default])
        star = "*" if later not in (now, default) or now != later else " "
        lines.append(f"{star}{'':7}{name:<44}{default:<20}{now:<20}{later:<20}")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Answer -d DEVICE [-e] q | -d DEVICE -y set NAME=VALUE ..."""
    machine = machines.load()
    device = address_of(machine, words[words.index("-d") + 1]) if "-d" in words[:-1] else None
    if device is None:
        print("-E- Failed to open the device", file=sys.stderr)
        return 3
    settings = load()
    own = settings.setdefault(device, {})
    if "set" in words:
        for word in words[words.index("set") + 1 :]:
            name, _, value = word.partition("=")
            if name not in DEFAULTS:
                print(f"-E- Unknown Parameter: {name}", file=sys.stderr)
                return 3
            own[name] = [own.get(name, [DEFAULTS[name]])[0], spelled(name, value)]
        save(settings)
        print("Applying... Done!\n-I- Please reboot machine to load new configurations.")
        return 0
    print(f"\nDevice #1:\n----------\n\nDevice type:    ConnectX7\nName:           Lab\nDevice:         {device}\n\n{table(own)}")
    print("The '*' shows parameters with next value different from default/current value.")
    return 0


def address_of(machine: Machine, word: str) -> str | None:
    """Return the PCI address of an adapter that is given by address or by name."""
    return next((str(entry["at"]) for entry in machine.rdma if word in (entry["at"], entry["name"])), None)
