# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the PCI and NUMA parts of sysfs for a machine."""

from __future__ import annotations

from . import render_net, render_rdma
from .machine import Entry, Machine, cpu_list, expand_cpus
from .pciconfig import resource_table, space
from .state import State, find, users_of
from .tree import Folder, Link, Tree

USED_KILOBYTES = 8 << 20


def cpu_mask(text: str) -> str:
    """Return a CPU list as the kernel prints a mask: groups of 32 bits, most significant first."""
    cpus = expand_cpus(text)
    bits = sum(1 << cpu for cpu in cpus)
    groups = max(cpus, default=0) // 32 + 1
    return ",".join(f"{bits >> 32 * group & 0xFFFFFFFF:08x}" for group in reversed(range(groups)))


def speed_text(speed: float) -> str:
    """Return a PCIe speed as the kernel prints it."""
    return f"{float(speed):.1f} GT/s PCIe"


def modalias(function: Entry) -> str:
    """Return the string by which drivers find a function."""
    vendor, device = function["subsystem"].upper().split(":")
    code = function["class"].upper()
    return f"pci:v0000{function['vendor'].upper()}d0000{function['device'].upper()}sv0000{vendor}sd0000{device}bc{code[:2]}sc{code[2:4]}i{code[4:]}"


def driver_of(machine: Machine, state: State, function: Entry) -> str | None:
    """Return the driver that is bound to a function."""
    driver: str | None = function["driver"]
    if driver is None or function["address"] in machine.dead:
        return None
    if driver in ("nvidia", "nvidia-nvswitch"):
        # The kernel's own driver takes what it draws on, when it comes first.
        other = "nouveau" if find(state, "nouveau") and function["class"].startswith("03") else None
        return driver if find(state, "nvidia") else other
    return driver


def pci(machine: Machine, state: State) -> Tree:
    """Draw the PCI tree: /sys/devices/pciDDDD:BB and /sys/bus/pci."""
    tree: Tree = {"bus/pci/drivers_autoprobe": "1"}
    for function in machine.pci:
        address = function["address"]
        home = f"devices/{machine.sysfs_path(address)}"
        tree.update({f"{home}/{name}": content for name, content in _files(machine, function).items()})
        tree[f"{home}/subsystem"] = Link("bus/pci")
        tree[f"bus/pci/devices/{address}"] = Link(home)
        driver = driver_of(machine, state, function)
        if driver:
            tree[f"{home}/driver"] = Link(f"bus/pci/drivers/{driver}")
            tree[f"bus/pci/drivers/{driver}/{address}"] = Link(home)
        if driver and find(state, driver.split("-")[0]):
            tree[f"bus/pci/drivers/{driver}/module"] = Link(f"module/{driver.split('-')[0]}")
    return tree


def _files(machine: Machine, function: Entry) -> Tree:
    vendor, device = function["subsystem"].split(":")
    cpus = machine.cpus_of(function["numa"])
    alias = modalias(function)
    tree: Tree = {
        "vendor": f"0x{function['vendor']}",
        "device": f"0x{function['device']}",
        "class": f"0x{function['class']}",
        "subsystem_vendor": f"0x{vendor}",
        "subsystem_device": f"0x{device}",
        "revision": f"0x{function['revision']}",
        "config": space(machine, function),
        "resource": resource_table(machine, function).removesuffix("\n"),
        "irq": "16",
        "enable": "1",
        "numa_node": str(function["numa"]),
        "local_cpulist": cpus,
        "local_cpus": cpu_mask(cpus),
        "modalias": alias,
        "uevent": f"PCI_CLASS={function['class'].lstrip('0').upper()}\nPCI_ID={function['vendor'].upper()}:{function['device'].upper()}\n"
        f"PCI_SUBSYS_ID={vendor.upper()}:{device.upper()}\nPCI_SLOT_NAME={function['address']}\nMODALIAS={alias}",
    }
    if function["width"]:
        tree.update(
            {
                "max_link_speed": speed_text(function["speed"]),
                "max_link_width": str(function["width"]),
                "current_link_speed": speed_text(function["speed"]) if function["address"] not in machine.dead else "Unknown",
                "current_link_width": str(machine.width(function)) if function["address"] not in machine.dead else "63",
            }
        )
    if function["virtual"]:
        tree.update({f"{when}_link_speed": "Unknown" for when in ("max", "current")})
        tree.update({f"{when}_link_width": "0" for when in ("max", "current")})
    if function["sriov"] is not None:
        virtual = [address for address, card in machine.physical.items() if card == function["address"]]
        tree.update({"sriov_totalvfs": str(function["sriov"]), "sriov_numvfs": str(len(virtual)), "sriov_drivers_autoprobe": "1"})
        tree.update({f"virtfn{number}": Link(f"devices/{machine.sysfs_path(address)}") for number, address in enumerate(virtual)})
    if function["virtual"]:
        tree["physfn"] = Link(f"devices/{machine.sysfs_path(machine.physical[function['address']])}")
    if function["vpd"]:
        tree["vpd"] = vpd(function["vpd"])
    return tree


def vpd(fields: dict[str, str]) -> bytes:
    """Return vital product data: the name, then keyword fields, as the device's own memory holds them."""
    name = fields.get("name", "").encode()
    body = b"".join(key.encode() + bytes([len(text)]) + text.encode() for key, text in fields.items() if key != "name")
    body += b"RV\x01\x00"
    return b"\x82" + len(name).to_bytes(2, "little") + name + b"\x90" + len(body).to_bytes(2, "little") + body + b"\x78"


def iommu(machine: Machine) -> Tree:
    """Draw the IOMMU's groups: one for each slot, and for each virtual function, which is what ACS at the start leads to."""
    kind = machine.system["iommu"]
    if kind is None:
        return {}
    tree: Tree = {"class/iommu/dmar0": Link("devices/virtual/iommu/dmar0"), "devices/virtual/iommu/dmar0/uevent": ""}
    groups: dict[str, list[str]] = {}
    for function in machine.pci:
        address = function["address"]
        groups.setdefault(address if function["virtual"] else address.rsplit(".", 1)[0], []).append(address)
    for number, members in enumerate(groups.values()):
        home = f"kernel/iommu_groups/{number}"
        tree[f"{home}/type"] = kind
        for address in members:
            path = f"devices/{machine.sysfs_path(address)}"
            tree[f"{home}/devices/{address}"] = Link(path)
            tree[f"{path}/iommu_group"] = Link(home)
    return tree


def numa(machine: Machine, state: State) -> Tree:
    """Draw /sys/devices/system/node. A GPU's own node is empty until the driver gives its memory to the kernel."""
    top = "devices/system/node"
    given = {gpu["memory_numa"]: gpu["spec"]["memory_mib"] << 10 for gpu in machine.gpus if find(state, "nvidia")}
    memory = {entry["id"]: given.get(entry["id"], entry["memory_gib"] << 20) for entry in machine.numa}
    tree: Tree = {f"{top}/{name}": cpu_list(set(memory)) for name in ("online", "possible")}
    tree.update({f"{top}/{name}": cpu_list({node for node in memory if memory[node]}) for name in ("has_memory", "has_normal_memory")})
    tree[f"{top}/has_cpu"] = cpu_list({entry["id"] for entry in machine.numa if entry["cpus"]})
    for entry in machine.numa:
        node = entry["id"]
        kilobytes, used = memory[node], USED_KILOBYTES if entry["memory_gib"] else 0
        tree[f"{top}/node{node}/cpulist"] = entry["cpus"]
        tree[f"{top}/node{node}/cpumap"] = cpu_mask(entry["cpus"])
        tree[f"{top}/node{node}/distance"] = " ".join(map(str, entry["distance"]))
        rows = (("MemTotal", kilobytes), ("MemFree", kilobytes - used), ("MemUsed", used))
        tree[f"{top}/node{node}/meminfo"] = "\n".join(f"Node {node} {name + ':':<15} {count} kB" for name, count in rows)
    return tree


def modules(state: State) -> Tree:
    """Draw /sys/module for what is loaded."""
    tree: Tree = {}
    for module in state["modules"]:
        home = f"module/{module['name']}"
        users = users_of(state, module["name"])
        tree.update({f"{home}/initstate": "live", f"{home}/refcnt": str(len(users)), f"{home}/coresize": str(module["size"])})
        tree[f"{home}/holders"] = Folder()
        tree.update({f"{home}/holders/{user}": Link(f"module/{user}") for user in users})
        for key in ("version", "srcversion", "taint"):
            if module.get(key):
                tree[f"{home}/{key}"] = module[key]
    return tree


def firmware(machine: Machine) -> Tree:
    """Draw what the machine says of itself."""
    system = machine.system
    home = "devices/virtual/dmi/id"
    return {
        f"{home}/sys_vendor": system["vendor"],
        f"{home}/product_name": system["product"],
        f"{home}/chassis_type": "23",
        f"{home}/bios_vendor": "Lab",
        f"{home}/bios_version": "1.0",
        "class/dmi/id": Link(home),
    }


def sysfs(machine: Machine, state: State) -> Tree:
    """Draw everything below /sys that a machine shows."""
    return {
        **pci(machine, state),
        **iommu(machine),
        **numa(machine, state),
        **modules(state),
        **firmware(machine),
        **render_rdma.rdma(machine),
        **render_net.interfaces(machine),
    }
