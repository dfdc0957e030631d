# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a hardware profile, and a check that says in one line where a profile departs from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "profiles"
SPEEDS = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}
FUNCTION = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
IDS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
CPU_LIST = re.compile(r"(?:\d+(?:-\d+)?)(?:,\d+(?:-\d+)?)*|")
GUEST_WORDS = {"open", "proprietary"}

# Key -> (type, required). A nested table describes each entry of a list or mapping.
Table = dict[str, tuple[Any, bool]]
NUMA: Table = {"id": (int, True), "cpus": (str, True), "memory_gib": (int, True), "distance": (list, True)}
PART: Table = {
    "ids": (str, True), "class": (str, True), "subsystem": (str, False), "revision": (str, False), "driver": (str, False), "role": (str, False),
    "speed": ((int, float), False), "width": (int, False), "model": (str, False), "bars_mib": (list, False), "vpd": (dict, False),
    "acs": (int, False), "ats": (bool, False), "sriov": (int, False), "virtual": (bool, False),
}  # fmt: skip
ROOT: Table = {"root": (str, True), "numa": (int, True), "tree": (dict, True)}
GPU_MODEL: Table = {
    "name": (str, True), "brand": (str, True), "architecture": (str, True), "compute_capability": (str, True), "memory_mib": (int, True),
    "reserved_mib": (int, True), "bar1_mib": (int, True), "remap_banks": (int, False), "ecc": (bool, True), "ecc_on": (bool, False),
    "mig": (bool, True), "flavours": (list, True), "vbios": (str, True), "board_part": (str, False), "gpu_part": (str, False),
    "inforom": (str, False), "power_w": (dict, True), "clocks_mhz": (dict, True), "memory_numa": (bool, False),
}  # fmt: skip
NVLINK: Table = {"rate": (str, True), "switches": (list, False), "pairs": (list, False), "remote": (int, False), "clique": (int, False)}
RDMA_MODEL: Table = {"hca_type": (str, False), "board_id": (str, False), "firmware": (str, True), "max_gbps": (int, True)}
PORT: Table = {"link_layer": (str, True), "gbps": (int, True), "interface": (str, False), "down": (bool, False)}
RDMA: Table = {
    "name": (str, True), "at": (str, True), "model": (str, True), "link_layer": (str, True), "gbps": (int, True), "interface": (str, False),
    "more_ports": (list, False),
}  # fmt: skip
INTERFACE: Table = {
    "name": (str, True), "at": (str, False), "type": (str, False), "cable": (bool, False), "mbps": (int, False), "up": (bool, False),
    "mode": (str, False), "members": (list, False), "on": (str, False),
}  # fmt: skip
MODULE: Table = {"name": (str, True), "size": (int, True), "used_by": (list, False)}
PROFILE: Table = {
    "schema": (int, True), "system": (dict, True), "numa": (list, True), "parts": (dict, True), "pci": (list, True), "gpu_models": (dict, False),
    "nvlink": (dict, False), "rdma_models": (dict, False), "rdma": (list, False), "interfaces": (list, False), "modules": (list, False),
}  # fmt: skip
LAYERS = ("InfiniBand", "Ethernet", "Unknown")
ROLES = ("root_port", "upstream", "downstream", "endpoint")


class ProfileError(Exception):
    """A profile that cannot be worn; its text names the place."""


def names() -> list[str]:
    """Return the names of the profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    """Return a profile as it is written, checked."""
    if name not in names():
        raise ProfileError(f"profile {name!r}: choose one of {', '.join(names())}")
    profile = yaml.safe_load((FOLDER / f"{name}.yml").read_text())
    check(profile, name)
    return profile  # type: ignore[no-any-return]


def _table(entry: Any, table: Table, where: str) -> None:
    if not isinstance(entry, dict):
        raise ProfileError(f"{where}: a mapping is needed, not {entry!r}")
    for key, (kind, required) in table.items():
        if key not in entry:
            if required:
                raise ProfileError(f"{where}: {key} is missing")
        elif not isinstance(entry[key], kind) or (isinstance(entry[key], bool) and kind is not bool):
            raise ProfileError(f"{where}: {key} is {entry[key]!r}")
    unknown = sorted(set(entry) - set(table))
    if unknown:
        raise ProfileError(f"{where}: unknown key {unknown[0]}")


def _match(pattern: re.Pattern[str], text: str, where: str) -> None:
    if not pattern.fullmatch(text):
        raise ProfileError(f"{where}: {text!r} does not fit {pattern.pattern}")


def check(profile: Any, name: str = "profile") -> None:
    """Raise ProfileError when a profile does not have the form, or refers to what it does not hold."""
    _table(profile, PROFILE, name)
    if profile["schema"] != 1:
        raise ProfileError(f"{name}: schema {profile['schema']} is not known")
    nodes = set()
    for number, entry in enumerate(profile["numa"]):
        where = f"{name}.numa[{number}]"
        _table(entry, NUMA, where)
        _match(CPU_LIST, entry["cpus"], where)
        if len(entry["distance"]) != len(profile["numa"]):
            raise ProfileError(f"{where}: distance needs {len(profile['numa'])} numbers")
        nodes.add(entry["id"])
    models = profile.get("gpu_models", {})
    for key, model in models.items():
        _table(model, GPU_MODEL, f"{name}.gpu_models.{key}")
        if not model["flavours"] or not set(model["flavours"]) <= GUEST_WORDS:
            raise ProfileError(f"{name}.gpu_models.{key}: flavours is {model['flavours']!r}")
    _check_parts(profile["parts"], models, name)
    places = _check_tree(profile, nodes, name)
    _check_devices(profile, places, name)
    own = sum(not entry["cpus"] for entry in profile["numa"])
    coherent = sum(bool(models.get(part.get("model"), {}).get("memory_numa")) for part in _hung(profile))
    if own != coherent:
        raise ProfileError(f"{name}.numa: {own} nodes without CPUs for {coherent} GPUs whose memory is a node")


def _hung(profile: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the part of each function in the PCI tree."""
    found: list[dict[str, Any]] = []

    def walk(tree: dict[str, Any] | None) -> None:
        for key, below in (tree or {}).items():
            found.append(profile["parts"][key.split()[1]])
            walk(below)

    for entry in profile["pci"]:
        walk(entry["tree"])
    return found


def _check_parts(parts: dict[str, Any], models: dict[str, Any], name: str) -> None:
    for key, part in parts.items():
        where = f"{name}.parts.{key}"
        _table(part, PART, where)
        _match(IDS, part["ids"], where)
        _match(re.compile(r"[0-9a-f]{6}"), part["class"], where)
        if part.get("speed", 32) not in SPEEDS:
            raise ProfileError(f"{where}: no PCIe generation has {part['speed']} GT/s")
        if part.get("role", "endpoint") not in ROLES:
            raise ProfileError(f"{where}: role is {part['role']!r}")
        if "model" in part and part["model"] not in models:
            raise ProfileError(f"{where}: model {part['model']} is not in gpu_models")


def _check_tree(profile: dict[str, Any], nodes: set[int], name: str) -> set[str]:
    """Check the PCI tree; returns the addresses in it as they are written."""
    places: set[str] = set()

    def walk(tree: Any, above: str, where: str) -> None:
        for key, below in (tree or {}).items():
            words = key.split()
            if len(words) != 2 or words[1] not in profile["parts"]:
                raise ProfileError(f"{where}: {key!r} is not 'BUS:DEVICE.FUNCTION part' with a part of this profile")
            address, part = words
            _match(FUNCTION, address, where)
            if address in places:
                raise ProfileError(f"{where}: {address} occurs twice")
            places.add(address)
            role = profile["parts"][part].get("role", "endpoint")
            if {"downstream": role == "downstream" and above != "upstream", "upstream": role == "upstream" and above == "upstream"}.get(role):
                raise ProfileError(f"{where}: {key!r} cannot hang below {above}")
            if below and role == "endpoint":
                raise ProfileError(f"{where}: {key!r} is no bridge")
            if profile["parts"][part].get("virtual") and not any(_carries(profile, other, address) for other in tree):
                raise ProfileError(f"{where}: {key!r} is a virtual function of nothing beside it")
            walk(below, role, f"{where}/{address}")

    for entry in profile["pci"]:
        _table(entry, ROOT, f"{name}.pci")
        if entry["numa"] not in nodes | {-1}:
            raise ProfileError(f"{name}.pci: root {entry['root']} is on NUMA node {entry['numa']}, which is not described")
        walk(entry["tree"], "root", f"{name}.pci.{entry['root']}")
    return places


def _carries(profile: dict[str, Any], key: str, address: str) -> bool:
    """Tell whether a function of the tree may have virtual ones, and is of the same slot as an address."""
    place, part = key.split()
    return "sriov" in profile["parts"][part] and place.rsplit(".", 1)[0] == address.rsplit(".", 1)[0]


def _check_devices(profile: dict[str, Any], places: set[str], name: str) -> None:
    if "nvlink" in profile:
        _table(profile["nvlink"], NVLINK, f"{name}.nvlink")
    rdma_models = profile.get("rdma_models", {})
    for key, model in rdma_models.items():
        _table(model, RDMA_MODEL, f"{name}.rdma_models.{key}")
    interfaces = profile.get("interfaces", [])
    for entry in interfaces:
        _table(entry, INTERFACE, f"{name}.interfaces")
    _check_stacked(interfaces, name)
    known = {entry["name"] for entry in interfaces}
    for entry in profile.get("rdma", []):
        where = f"{name}.rdma.{entry.get('name', '?')}"
        _table(entry, RDMA, where)
        if entry["model"] not in rdma_models:
            raise ProfileError(f"{where}: model {entry['model']} is not in rdma_models")
        for port in entry.get("more_ports", []):
            _table(port, PORT, where)
        for port in (entry, *entry.get("more_ports", [])):
            if port.get("interface") and port["interface"] not in known:
                raise ProfileError(f"{where}: interface {port['interface']} is not described")
            if port["link_layer"] not in LAYERS:
                raise ProfileError(f"{where}: link_layer is {port['link_layer']!r}")
    for entry in [*interfaces, *profile.get("rdma", [])]:
        if "at" in entry and entry["at"] not in places:
            raise ProfileError(f"{name}: {entry['name']} is at {entry['at']}, where no device is")
    if sum(bool(entry.get("cable")) for entry in interfaces) > 1:
        raise ProfileError(f"{name}.interfaces: a host has one cable")
    for entry in profile.get("modules", []):
        _table(entry, MODULE, f"{name}.modules")


def _check_stacked(interfaces: list[dict[str, Any]], name: str) -> None:
    """Check that bonds and VLANs are on interfaces, and everything else is on a device."""
    known = {entry["name"] for entry in interfaces}
    for entry in interfaces:
        where, kind = f"{name}.interfaces.{entry['name']}", entry.get("type", "ethernet")
        if kind not in ("ethernet", "infiniband", "bond", "vlan"):
            raise ProfileError(f"{where}: type is {kind!r}")
        below = {"bond": entry.get("members", []), "vlan": [entry.get("on")]}.get(kind)
        if below is None and "at" not in entry:
            raise ProfileError(f"{where}: at is missing")
        if below is not None and not set(below) <= known:
            raise ProfileError(f"{where}: it is on {below!r}, which are not described")
