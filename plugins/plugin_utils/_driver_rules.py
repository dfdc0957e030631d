# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Rules about what goes with which driver: small, pure, each with the id that its refusal carries."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import key

Entry = dict[str, Any]
# Of whose adapters they are; those of others say nothing about it.
MELLANOX = "15b3"


def fabrics_of(catalog: dict[str, Any], observed: dict[str, Any], gpus: list[Gpu]) -> list[Entry]:
    """Return what links the GPUs of a host, as far as the host has to do something for it.

    Switches up to the fourth generation are on the PCI bus. Those of the fifth are not, but the network functions that lead them are, and say so.
    Such GPUs of a physical host always have them; in a virtual machine whose adapters do not say, a whole board of GPUs counts, and fewer are a part
    of a board, whose fabric is led from outside.
    """
    present = {gpu.fabric for gpu in gpus if gpu.fabric}
    devices = {gpu.device_id: gpu.fabric for gpu in gpus}
    counted = [devices.get(str(gpu.get("device_id")).lower()) for gpu in observed.get("gpus") or []]
    virtual, leads = (observed.get("host") or {}).get("virtualization"), _leads(observed)
    found = []
    for entry in catalog["fabrics"] if gpus else ():
        if entry["name"] == "nvswitch":
            here = bool(observed.get("nvswitches"))
        elif entry["board"] is None:
            here = entry["name"] in present
        else:
            known = not virtual or (leads is None and counted.count(entry["name"]) >= entry["board"])
            here = bool(leads) or (entry["name"] in present and known)
        if here:
            found.append(entry)
    return found


def _leads(observed: dict[str, Any]) -> bool | None:
    """Tell whether a host has the functions that lead NVSwitches of the fifth generation; None where its adapters do not say."""
    said = [nic.get("nvlink_bridge") for nic in observed.get("nics") or [] if nic.get("vendor_id") == MELLANOX]
    return True if True in said else None if None in said or not said else False


def drives(order: list[str], entry: Entry, generations: list[str]) -> bool:
    """driver.generation: tell whether a branch drives all of these generations; `order` has all of them, oldest first."""
    oldest, newest = order.index(entry["oldest_architecture"]), order.index(entry["newest_architecture"])
    return all(oldest <= order.index(generation) <= newest for generation in generations)


def oldest_driver(gpus: list[Gpu], fabrics: list[Entry]) -> tuple[str, str] | None:
    """driver.gpu_minimum: return the oldest driver that GPUs and fabrics run with, and which of them asks for it; None where any will do."""
    asked = [(gpu.minimum_driver, gpu.model) for gpu in gpus if gpu.minimum_driver]
    asked += [(entry["minimum_driver"], f"the fabric of {gpu.model}") for gpu in gpus for entry in fabrics
              if entry["name"] == gpu.fabric and entry["minimum_driver"]]  # fmt: skip
    return max(asked, key=lambda one: key(one[0]), default=None)


def known_bad(catalog: dict[str, Any], component: str, version: str, gpus: list[Gpu], flavour: str | None = None) -> Entry | None:
    """<component>.known_bad: return the entry of a version that broke hosts such as this one, or None."""
    generations = {gpu.architecture for gpu in gpus}
    for entry in catalog["known_bad"]:
        if entry["component"] == component and key(entry["first"]) <= key(version) <= key(entry["last"]):
            here = generations & set(entry.get("architectures", generations)) or not generations
            if here and flavour in (None, *entry.get("flavours", (flavour,))):
                return dict(entry)
    return None


def has_signed_module(catalog: dict[str, Any], platform: dict[str, Any], branch: int, flavours: list[str]) -> bool:
    """driver.secure_boot: tell whether a platform has a prebuilt module of this branch that firmware and kernel trust as it comes."""
    return any(
        platform["id"] in entry["platforms"] and branch in entry["branches"] and entry["flavour"] in flavours for entry in catalog["signed_modules"]
    )


def weak_key(catalog: dict[str, Any], verifier: str | None, fingerprint: str, today: str) -> Entry | None:
    """repository.key_refused: return what is known of a key that the host's own verifier takes no signature of, or None."""
    for entry in catalog["weak_keys"]:
        if entry["key_fingerprint"] == fingerprint and entry["verifier"] == verifier and entry["since"] <= today:
            return dict(entry)
    return None
