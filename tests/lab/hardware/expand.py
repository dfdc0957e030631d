# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns a profile into the full description of one machine: every PCI function, with identifiers of its own."""

from __future__ import annotations

import hashlib
from typing import Any

Description = dict[str, Any]


def token(identity: str, what: str, digits: int) -> str:
    """Return hexadecimal digits that belong to one thing of one machine and stay the same."""
    return hashlib.sha256(f"{identity}/{what}".encode()).hexdigest()[:digits]


def uuid(identity: str, what: str) -> str:
    """Return a UUID's text that belongs to one thing of one machine."""
    text = token(identity, what, 32)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def full(address: str) -> str:
    """Return a PCI address with its domain."""
    return address if address.count(":") == 2 else f"0000:{address}"


def describe(profile: Description, name: str, identity: str) -> Description:
    """Return the description of the machine `identity` that wears a profile."""
    pci = _functions(profile)
    gpus = _gpus(profile, pci, identity)
    switches = [function["address"] for function in pci if function["vendor"] == "10de" and function["class"] == "068000"]
    return {
        "schema": 1,
        "profile": name,
        "identity": identity,
        "system": {"secure_boot": None, "virtualization": None, "iommu": None, **profile["system"]},
        "numa": profile["numa"],
        "pci": pci,
        "gpu_models": profile.get("gpu_models", {}),
        "gpus": gpus,
        "nvswitches": switches,
        "nvlink": _nvlink(profile.get("nvlink"), gpus, switches),
        "rdma": [_rdma(profile, entry, identity) for entry in profile.get("rdma", [])],
        "interfaces": [_interface(entry, identity) for entry in profile.get("interfaces", [])],
        "modules": [{"used_by": [], **entry} for entry in profile.get("modules", [])],
    }


def _functions(profile: Description) -> list[Description]:
    found: list[Description] = []

    def walk(tree: dict[str, Any] | None, parent: str | None, root: Description) -> list[int]:
        """Add what hangs below a bridge; returns the bus numbers seen there."""
        buses = []
        for key, below in (tree or {}).items():
            written, kind = key.split()
            part = profile["parts"][kind]
            address = full(written)
            function: Description = {
                "address": address, "parent": parent, "root": root["root"], "numa": root["numa"], "part": kind,
                "vendor": part["ids"][:4], "device": part["ids"][5:], "class": part["class"], "subsystem": part.get("subsystem", "0000:0000"),
                "revision": part.get("revision", "00"), "driver": part.get("driver"), "role": part.get("role", "endpoint"),
                "speed": part.get("speed"), "width": part.get("width"), "model": part.get("model"), "bars_mib": part.get("bars_mib", []),
                "vpd": part.get("vpd"), "acs": part.get("acs", 0), "ats": part.get("ats"), "sriov": part.get("sriov"),
                "virtual": part.get("virtual", False),
            }  # fmt: skip
            found.append(function)
            deeper = walk(below, address, root)
            if function["role"] != "endpoint":
                function["buses"] = [min(deeper), max(deeper)] if deeper else [0, 0]
            buses += [int(address[5:7], 16), *deeper]
        return buses

    for root in profile["pci"]:
        walk(root["tree"], None, root)
    return sorted(found, key=lambda function: function["address"])


def _gpus(profile: Description, pci: list[Description], identity: str) -> list[Description]:
    """GPUs in the order of their addresses, which is the order that the driver counts them in."""
    gpus: list[Description] = []
    # NUMA nodes without CPUs are the GPUs' memory, in the same order.
    nodes = iter([entry["id"] for entry in profile["numa"] if not entry["cpus"]])
    for function in pci:
        if function["model"]:
            address = function["address"]
            gpus.append(
                {
                    "address": address,
                    "model": function["model"],
                    "uuid": "GPU-" + uuid(identity, address),
                    "serial": str(1650000000000 + int(token(identity, f"serial {address}", 8), 16) % 1000000000),
                    "pdi": "0x" + token(identity, f"pdi {address}", 16),
                    "module_id": str(len(gpus) + 1),
                    "memory_numa": next(nodes) if profile["gpu_models"][function["model"]].get("memory_numa") else None,
                }
            )
    return gpus


def _nvlink(nvlink: Description | None, gpus: list[Description], switches: list[str]) -> Description | None:
    """Give each GPU a list of its links: the address at the other end, or None where that is a switch without a place on the PCI bus."""
    if nvlink is None:
        return None
    links: dict[str, list[str | None]] = {gpu["address"]: [] for gpu in gpus}
    for count, switch in zip(nvlink.get("switches", []), switches, strict=True) if nvlink.get("switches") else ():
        for ends in links.values():
            ends.extend([switch] * count)
    for one, other, count in nvlink.get("pairs", []):
        first, second = gpus[one]["address"], gpus[other]["address"]
        links[first] += [second] * count
        links[second] += [first] * count
    for ends in links.values():
        ends.extend([None] * nvlink.get("remote", 0))
    clique = nvlink.get("clique")
    # One rack for all machines of a lab: the cluster's number is no machine's own.
    return {"rate": nvlink["rate"], "links": links, "clique": clique, "cluster": None if clique is None else uuid("lab", "rack")}


def _guid(identity: str, what: str) -> str:
    digits = "a088c2" + token(identity, f"guid {what}", 10)
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))


def _rdma(profile: Description, entry: Description, identity: str) -> Description:
    address = full(entry["at"])
    bonds = {member: found["name"] for found in profile.get("interfaces", []) for member in found.get("members", [])}
    return {
        "more_ports": [],
        **entry,
        "at": address,
        "model": profile["rdma_models"][entry["model"]],
        "guid": _guid(identity, address),
        # All functions of a card have it of the first one.
        "card_guid": _guid(identity, address[:-1] + "0"),
        "bond": bonds.get(entry.get("interface", "")),
        "ipv4": "0a" + token(identity, f"ipv4 {address}", 6),
        "lid": 1 + int(token(identity, f"lid {address}", 4), 16) % 48000,
    }


def _interface(entry: Description, identity: str) -> Description:
    digits = "a088c2" + token(identity, f"mac {entry.get('at', entry['name'])}", 6)
    mac = ":".join(digits[start : start + 2] for start in range(0, 12, 2))
    at = full(entry["at"]) if "at" in entry else None
    return {"type": "ethernet", "cable": False, "mbps": None, "up": False, "members": [], **entry, "at": at, "mac": mac}
