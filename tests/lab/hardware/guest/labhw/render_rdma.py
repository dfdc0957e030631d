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
# Rows of a port's table of GIDs. A real RoCE table has 256, nearly all of them empty.
GID_ROWS = {"InfiniBand": 8, "Ethernet": 16}
NO_GID = ":".join(["0000"] * 8)
LOCAL = "fe80:0000:0000:0000"


def ports(device: Entry) -> list[Entry]:
    """Return the ports of a device; what distinguishes the first one is the device's own."""
    first = {key: device.get(key) for key in ("link_layer", "state", "physical", "gbps", "interface")}
    return [{"interface": None, **port, "number": number} for number, port in enumerate([first, *device["more_ports"]], 1)]


def rdma(machine: Machine) -> Tree:
    """Draw every RDMA device. What speaks no InfiniBand, not even over Ethernet, has no management datagrams."""
    tree: Tree = {}
    if machine.rdma:
        tree["class/infiniband_mad/abi_version"] = "5"
        tree["class/infiniband_verbs/abi_version"] = "6"
    managed = 0
    for number, device in enumerate(machine.rdma):
        pci = f"devices/{machine.sysfs_path(device['at'])}"
        home = f"{pci}/infiniband/{device['name']}"
        tree.update({f"{home}/{name}": content for name, content in _device(machine, device).items()})
        tree[f"{home}/device"] = Link(pci)
        tree[f"{home}/subsystem"] = Link("class/infiniband")
        tree[f"class/infiniband/{device['name']}"] = Link(home)
        tree.update(_character(pci, "infiniband_verbs", f"uverbs{number}", device["name"]))
        for port in ports(device):
            tree.update({f"{home}/ports/{port['number']}/{name}": content for name, content in _port(machine, device, port).items()})
            if port["link_layer"] != "Unknown":
                tree.update(_character(pci, "infiniband_mad", f"umad{managed}", device["name"]))
                tree[f"{pci}/infiniband_mad/umad{managed}/port"] = str(port["number"])
                managed += 1
    return tree


def _character(pci: str, kind: str, name: str, device: str) -> Tree:
    """Draw a device file's entry."""
    return {f"{pci}/{kind}/{name}/ibdev": device, f"{pci}/{kind}/{name}/device": Link(pci), f"class/{kind}/{name}": Link(f"{pci}/{kind}/{name}")}


def _device(machine: Machine, device: Entry) -> Tree:
    model = device["model"]
    told = {key: model[key] for key in ("hca_type", "board_id") if key in model}
    return {
        **told,
        "fw_ver": model["firmware"],
        "hw_rev": "0",
        "node_type": "1: CA" if told else "7: unspecified",
        "node_guid": device["guid"],
        "sys_image_guid": device["card_guid"] if told else "0000:0000:0000:0000",
        "node_desc": f"{machine.description['identity']} {device['name']}",
    }


def port_guid(device: Entry, number: int) -> str:
    """Return the GUID of a port: the device's own for the first one, then counted on."""
    digits = f"{int(device['guid'].replace(':', ''), 16) + number - 1:016x}"
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))


def interface_id(mac: str) -> str:
    """Return the second half of a link-local address: the hardware address with its universal bit turned and ff:fe in the middle."""
    octets = [int(part, 16) for part in mac.split(":")]
    digits = "".join(f"{octet:02x}" for octet in (octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]))
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))


def gids(machine: Machine, device: Entry, port: Entry) -> list[tuple[str, str, str | None]]:
    """Return the filled rows of a port's table: GID, type and interface. Over Ethernet each address is there for both versions of RoCE."""
    layer, owner = port["link_layer"], device["bond"] or port["interface"]
    if layer != "Ethernet":
        return [(f"{LOCAL}:{port_guid(device, port['number'])}", "IB/RoCE v1", None)]
    mac = next((interface["mac"] for interface in machine.interfaces if interface["name"] == owner), None)
    own = interface_id(mac) if mac else port_guid(device, port["number"])
    mapped = f"0000:0000:0000:0000:0000:ffff:{device['ipv4'][:4]}:{device['ipv4'][4:]}"
    # A port without an interface of the host's has no address of IP.
    addresses = [f"{LOCAL}:{own}", mapped] if owner else [f"{LOCAL}:{own}"]
    return [(address, kind, owner) for address in addresses for kind in ("IB/RoCE v1", "RoCE v2")]


def _port(machine: Machine, device: Entry, port: Entry) -> Tree:
    infiniband = port["link_layer"] == "InfiniBand"
    subnet_manager = infiniband and port["state"] == "4: ACTIVE"
    tree: Tree = {
        "state": port["state"],
        "phys_state": port["physical"],
        "link_layer": port["link_layer"],
        "rate": RATES.get(port["gbps"], f"{port['gbps']} Gb/sec"),
        "lid": hex(device["lid"] + port["number"] - 1) if subnet_manager else ("0xffff" if infiniband else "0x0"),
        "lid_mask_count": "0",
        "sm_lid": "0x1" if subnet_manager else "0x0",
        "sm_sl": "0",
        "cap_mask": "0xa751e848" if infiniband else "0x00010000",
        "pkeys/0": "0xffff",
    }
    for name in ("port_xmit_data", "port_rcv_data", "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors"):
        tree[f"counters/{name}"] = "0"
    filled = gids(machine, device, port)
    for row in range(max(GID_ROWS.get(port["link_layer"], 1), len(filled))):
        gid, kind, owner = filled[row] if row < len(filled) else (NO_GID, None, None)
        tree[f"gids/{row}"] = gid
        if kind:
            tree[f"gid_attrs/types/{row}"] = kind
        if owner:
            tree[f"gid_attrs/ndevs/{row}"] = owner
    return tree
