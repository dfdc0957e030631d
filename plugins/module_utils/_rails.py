# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The order of NICs that goes with the order of GPUs, where each GPU has one of its own behind its PCIe switch."""

from __future__ import annotations

import typing as t

BEHIND_A_SWITCH = ("PIX", "PXB")


def usable(nic: dict[str, t.Any]) -> bool:
    """Whether a NIC is up, a card's own function, and a way into the network."""
    return nic["state"] == "ACTIVE" and not nic["virtual_function"] and not nic.get("nvlink_bridge")


def rails(gpus: list[dict[str, t.Any]], nics: list[dict[str, t.Any]], topology: dict[str, t.Any]) -> list[dict[str, str]] | None:
    """C([{gpu, nic}]) in the order of GPUs; None where there is no such order.

    There is one where the nearest usable NICs of all GPUs together are as many as the GPUs, all behind PCIe switches (further away a NIC is
    as near to every GPU of its node), and each GPU can have one of its own. GPUs that share theirs take them in the order of names.
    """
    able = {nic["name"] for nic in nics if usable(nic)}
    near: list[list[str]] = []
    for gpu in gpus:
        paths = topology["gpu_nic"][gpu["address"]]
        names = topology["nearest_nics"][gpu["address"]]
        near.append([name for name in names if name in able and paths[name]["path"] in BEHIND_A_SWITCH])
    if not gpus or len({name for names in near for name in names}) != len(gpus):
        return None
    owner: dict[str, int] = {}
    for number in range(len(gpus)):
        if not _give(number, near, owner, set()):
            return None
    chosen = {number: name for name, number in owner.items()}
    return [{"gpu": gpu["address"], "nic": chosen[number]} for number, gpu in enumerate(gpus)]


def _give(number: int, near: list[list[str]], owner: dict[str, int], tried: set[str]) -> bool:
    """Give a GPU one of its NICs: a free one, or else one whose owner can take another of its own."""
    for name in sorted(near[number], key=lambda one: one in owner):
        if name not in tried:
            tried.add(name)
            if name not in owner or _give(owner[name], near, owner, tried):
                owner[name] = number
                return True
    return False
