# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the RDMA devices of a machine: /sys/class/infiniband and its relatives."""

from __future__ import annotations

from .machine import Entry, Machine
from .tree import Link, Tree

# Rate in Gbit/s -> (lanes, name), as the kernel prints a port's rate.
RATES = {10: "10 Gb/sec (4X SDR)", 25: "25 Gb/sec (1X EDR)", 40: "40 Gb/sec (4X QDR)", 56: "56 Gb/sec (4X FDR)", 100: "100 Gb/sec (4X EDR)",
         200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)", 800: "800 Gb/sec (4X XDR)"}  # fmt: skip
GID_ROWS = 4


def rdma(machine: Machine) -> Tree:
    """Draw every RDMA device."""
    tree: Tree = {}
    if machine.rdma:
        tree["class/infiniband_mad/abi_version"] = "5"
        tree["class/infiniband_verbs/abi_version"] = "6"
    for number, device in enumerate(machine.rdma):
        pci = f"devices/{machine.sysfs_path(device['at'])}"
        home = f"{pci}/infiniband/{device['name']}"
        tree.update({f"{home}/{name}": content for name, content in _device(machine, device).items()})
        tree.update({f"{home}/ports/1/{name}": content for name, content in _port(device).items()})
        tree[f"{home}/device"] = Link(pci)
        tree[f"{home}/subsystem"] = Link("class/infiniband")
        tree[f"class/infiniband/{device['name']}"] = Link(home)
        for kind, short in (("infiniband_verbs", "uverbs"), ("infiniband_mad", "umad")):
            tree[f"{pci}/{kind}/{short}{number}/ibdev"] = device["name"]
            tree[f"{pci}/{kind}/{short}{number}/device"] = Link(pci)
            tree[f"class/{kind}/{short}{number}"] = Link(f"{pci}/{kind}/{short}{number}")
        tree[f"{pci}/infiniband_mad/umad{number}/port"] = "1"
    return tree


def _device(machine: Machine, device: Entry) -> Tree:
    model = device["model"]
    return {
        "hca_type": model["hca_type"],
        "board_id": model["board_id"],
        "fw_ver": model["firmware"],
        "hw_rev": "0",
        "node_type": "1: CA",
        "node_guid": device["guid"],
        "sys_image_guid": device["guid"],
        "node_desc": f"{machine.description['identity']} {device['name']}",
    }


def _port(device: Entry) -> Tree:
    infiniband = device["link_layer"] == "InfiniBand"
    subnet_manager = infiniband and device["state"] == "4: ACTIVE"
    tree: Tree = {
        "state": device["state"],
        "phys_state": device["physical"],
        "link_layer": device["link_layer"],
        "rate": RATES.get(device["gbps"], f"{device['gbps']} Gb/sec"),
        "lid": hex(device["lid"]) if subnet_manager else ("0xffff" if infiniband else "0x0"),
        "lid_mask_count": "0",
        "sm_lid": "0x1" if subnet_manager else "0x0",
        "sm_sl": "0",
        "cap_mask": "0xa751e848" if infiniband else "0x00010000",
        "pkeys/0": "0xffff",
    }
    for name in ("port_xmit_data", "port_rcv_data", "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors"):
        tree[f"counters/{name}"] = "0"
    prefix = "fe80:0000:0000:0000"
    for row in range(GID_ROWS):
        empty = infiniband and row > 0
        tree[f"gids/{row}"] = f"{'0000:0000:0000:0000' if empty else prefix}:{'0000:0000:0000:0000' if empty else device['guid']}"
        if not empty:
            tree[f"gid_attrs/types/{row}"] = "IB/RoCE v1" if infiniband or row % 2 == 0 else "RoCE v2"
            if not infiniband:
                tree[f"gid_attrs/ndevs/{row}"] = device["interface"]
    return tree
