# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts out of the XML in which lstopo (hwloc 1, 2 and 3) keeps a host's topology."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import elements
from ansible_collections.gpu.fleet.plugins.module_utils._pci import address_of

DISPLAY = re.compile(r"03(?:00|02) \[10de:", re.I)
# hwloc 1 said Socket for what became Package.
PACKAGES = ("Package", "Socket")


def read(text: str) -> dict[str, t.Any]:
    """Read a dump; C(osdev) are the kernel's and libraries' names of devices in the order of the dump."""
    found, damage = elements(text, "topology")
    objects = [element.attributes for element in found if element.name == "object"]
    kinds = [attributes.get("type") for attributes in objects]
    hetero = {"distances2hetero": "(hetero)"}
    return {
        "version": found[0].attributes.get("version") if found else None,
        "packages": sum(kind in PACKAGES for kind in kinds),
        "numa": kinds.count("NUMANode"),
        "pus": kinds.count("PU"),
        "nvidia_display_pci": [
            address_of(attributes.get("pci_busid", ""))
            for attributes in objects
            if attributes.get("type") == "PCIDev" and DISPLAY.match(attributes.get("pci_type", ""))
        ],
        "osdev": [attributes["name"] for attributes in objects if attributes.get("type") == "OSDev" and attributes.get("name")],
        "distances": [
            element.attributes["name"] + hetero.get(element.name, "")
            for element in found
            if element.name.startswith("distances2") and "name" in element.attributes
        ],
        "problems": [damage] if damage else [],
    }
