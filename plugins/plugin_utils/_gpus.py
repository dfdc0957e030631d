# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What the GPUs of a host are: model, generation, compute capability, and which kernel module flavours drive them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FLAVOURS = ("open", "proprietary")


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU in a host; `architecture` and `compute_capability` are None where the catalog does not know the device."""

    device_id: str
    model: str
    architecture: str | None
    compute_capability: str | None
    flavours: tuple[str, ...]
    minimum_driver: str | None = None
    fabric: str | None = None


def is_ours(gpu: dict[str, Any]) -> bool:
    """Tell whether the host itself uses a GPU; one that is handed to a virtual machine has its driver there."""
    return gpu.get("kernel_driver") != "vfio-pci"


def kinds(catalog: dict[str, Any], gpus: list[dict[str, Any]]) -> list[Gpu]:
    """Return the different GPUs that the host itself uses, by device id."""
    found = sorted({str(gpu.get("device_id")).lower() for gpu in gpus if is_ours(gpu)})
    generations = {entry["name"]: entry for entry in catalog["architectures"]} if found else {}
    return [_kind(catalog, generations, device) for device in found]


def _kind(catalog: dict[str, Any], generations: dict[str, Any], device: str) -> Gpu:
    entry = catalog["gpus"].get(device)
    if entry is None:
        entry = next((found for found in catalog["gpu_ranges"] if len(device) == 4 and found["first"] <= device <= found["last"]), None)
    if entry is None:
        return Gpu(device, f"10de:{device}", None, None, ())
    generation = generations[entry["architecture"]]
    flavours = ("open",) if entry.get("grace") else tuple(generation["flavours"])
    capability = entry.get("compute_capability") or generation["compute_capability"]
    model = entry.get("model") or f"10de:{device}"
    return Gpu(device, model, entry["architecture"], capability, flavours, entry.get("minimum_driver"), entry.get("fabric"))


def generations_of(catalog: dict[str, Any], found: list[Gpu]) -> list[str]:
    """Return the generations of these GPUs, oldest first."""
    mine = {gpu.architecture for gpu in found}
    return [entry["name"] for entry in catalog["architectures"] if entry["name"] in mine] if mine else []


def flavours_of(found: list[Gpu]) -> list[str]:
    """Return the kernel module flavours that drive every one of these GPUs, the preferred one first."""
    return [flavour for flavour in FLAVOURS if all(flavour in gpu.flavours for gpu in found)]
