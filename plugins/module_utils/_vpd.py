# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""RDMA functions that are no way into the network: they manage the NVSwitches of machines whose switches are no PCI devices.

Only their vital product data tells (C(SMDL=SW_MNG)). A device gives that four bytes at a time and to root alone, so few are asked.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _pci

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

MARK = b"SMDL=SW_MNG"
# ConnectX-7, of which these functions are.
VENDOR, DEVICE = "15b3", "1021"
# The fields stand in the first few hundred bytes.
ENOUGH = 1024
BEHIND_A_SWITCH = ("PIX", "PXB")


def candidate(nic: dict[str, t.Any], paths: dict[str, dict[str, dict[str, t.Any]]]) -> bool:
    """Whether a NIC may be such a function. One behind the same PCIe switch as a GPU is that GPU's way into the network."""
    if (nic["vendor_id"], nic["device_id"], nic["link_layer"]) != (VENDOR, DEVICE, "InfiniBand") or nic["virtual_function"]:
        return False
    return not any((row.get(nic["name"]) or {}).get("path") in BEHIND_A_SWITCH for row in paths.values())


def mark(system: System, facts: dict[str, t.Any]) -> None:
    """Give each NIC C(nvlink_bridge); None where it may be one and does not say. Needs the paths in C(topology)."""
    asked: dict[str, bool | None] = {}
    possible = facts["gpus"] and not facts["nvswitches"]
    silent = 0
    for nic in facts["nics"]:
        if not possible or not nic["address"] or not candidate(nic, (facts["topology"] or {}).get("gpu_nic") or {}):
            nic["nvlink_bridge"] = False
            continue
        # The functions of a card share its data.
        card = nic["address"].rsplit(".", 1)[0]
        if card not in asked:
            path = "%s/%s/vpd" % (_pci.DEVICES, nic["address"])
            data = system.read_bytes(path, ENOUGH, True)
            # A device without such data has no file.
            asked[card] = MARK in data if data else None if system.exists(path) else False
        nic["nvlink_bridge"] = asked[card]
        silent += asked[card] is None
    if silent:
        system.problem("%d RDMA devices may be those that manage NVSwitches: their vital product data cannot be read (root may)" % silent)
