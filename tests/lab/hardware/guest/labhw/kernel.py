# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's kernel as far as modules go: load and unload, refused for the reasons of a real one. The exit status is an errno."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import Any

from . import machine as machines
from . import secureboot
from .faces import banner, flavour, show
from .machine import Machine
from .state import State, changing, find, holders, log, read, users_of

MODINFO = "/sbin/modinfo"


def main(words: list[str]) -> int:
    """Answer one request of the library that programs load: load PATH OPTIONS | unload NAME."""
    verb, subject, more = words
    if verb == "load":
        return load(subject, more)
    return unload(subject.replace("-", "_"))


def module_info(path: str) -> dict[str, str]:
    """Return what the real modinfo says of a file."""
    done = subprocess.run([MODINFO, path], capture_output=True, text=True, check=False)
    info: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            info.setdefault(key.strip(), value.strip())
    return info


def load(path: str, options: str) -> int:
    """Load a module file; returns 0 or an errno."""
    info = module_info(path)
    if "vermagic" not in info:
        return errno.ENOEXEC
    name = info["name"].replace("-", "_")
    release = os.uname().release
    machine = machines.load()
    with changing() as state:
        refused = why_not(machine, state, info, name, release)
        if refused:
            return refused
        taint = taint_of(machine, info)
        if taint and not any(module.get("taint") for module in state["modules"]):
            log(f"{name}: loading out-of-tree module taints kernel.", 4)
        depends = [word.replace("-", "_") for word in info.get("depends", "").split(",") if word]
        module = {
            "name": name, "size": os.stat(path).st_size // 4096 * 4096 + 4096, "depends": depends, "version": info.get("version"),
            "srcversion": info.get("srcversion"), "license": info.get("license", ""), "taint": taint, "path": path, "options": options,
        }  # fmt: skip
        state["modules"].insert(0, module)
        if name == "nvidia":
            # A driver that starts finds what the GPUs keep: their MIG mode, and the ECC mode that was pending.
            found = machines.kept()
            state["settings"] = {
                address: {**({"mig": own["mig"]} if "mig" in own else {}), **({"ecc_on": own["ecc"], "ecc": own["ecc"]} if "ecc" in own else {})}
                for address, own in found.items()
            }
        announce(machine, module)
    show(machine, read())
    return 0


def trusted(machine: Machine, info: dict[str, str]) -> bool:
    """Tell whether a module is signed by a key that the machine knows. The one that dkms makes for itself is not, until it is enrolled."""
    signer = info.get("signer")
    return signer is not None and (signer in machine.system.get("trusted_signers", []) or secureboot.trusts(signer))


def taint_of(machine: Machine, info: dict[str, str]) -> str:
    """Return the letters by which a module taints the kernel."""
    letters = "P" if info.get("license") == "NVIDIA" else ""
    return letters + ("O" if "intree" not in info else "") + ("" if trusted(machine, info) else "E")


def why_not(machine: Machine, state: State, info: dict[str, str], name: str, release: str) -> int:
    """Return the errno that a module is refused with, or 0."""
    if state.get("secure_boot", machine.system["secure_boot"]) and not trusted(machine, info):
        why = "module with unavailable key" if "signer" in info else "unsigned module"
        log(f"Loading of {why} is rejected", 5)
        return errno.EKEYREJECTED
    if info["vermagic"].split()[0] != release:
        log(f"{name}: version magic '{info['vermagic']}' should be '{release} SMP preempt mod_unload modversions '", 3)
        return errno.ENOEXEC
    if find(state, name):
        return errno.EEXIST
    missing = [word for word in info.get("depends", "").replace("-", "_").split(",") if word and not find(state, word)]
    if missing:
        log(f"{name}: Unknown symbol of {missing[0]} (err -2)", 4)
        return errno.ENOENT
    if name == "nvidia":
        if find(state, "nouveau"):
            for gpu in machine.gpus:
                log(f"NVRM: GPU {gpu['address']} is already bound to nouveau.", 3)
            log("NVRM: No NVIDIA devices probed.", 4)
            return errno.ENODEV
        kind = flavour(info.get("license", ""))
        usable = [gpu for gpu in machine.gpus if kind in gpu["spec"]["flavours"] and gpu["address"] not in machine.dead]
        for gpu in machine.gpus:
            if kind not in gpu["spec"]["flavours"]:
                device = machine.by_address[gpu["address"]]["device"]
                need = "requires use of the NVIDIA open kernel modules" if kind == "proprietary" else "is not supported by open nvidia.ko"
                log(f"NVRM: The NVIDIA GPU {gpu['address']} (PCI ID: 10de:{device})\nNVRM: installed in this system {need}.", 3)
        if not usable:
            log("NVRM: No NVIDIA GPU found." if not machine.gpus else "NVRM: None of the NVIDIA devices were initialized.", 4)
            return errno.ENODEV
    return 0


def announce(machine: Machine, module: dict[str, Any]) -> None:
    """Write what a module says when it starts."""
    if module["name"] == "nvidia":
        log("nvidia-nvlink: Nvlink Core is being initialized, major device number 511")
        for address in machine.dead:
            log(f"NVRM: The NVIDIA GPU {address}\nNVRM: fallen off the bus and is not responding to commands.", 3)
        log(f"NVRM: loading {banner(module)}")
    elif module["name"] == "nvidia_uvm":
        log("nvidia-uvm: Loaded the UVM driver, major device number 510.")


def module_of(device: str) -> str:
    """Return the module that an open device file keeps in use."""
    if device.startswith("/dev/nvidia-uvm"):
        return "nvidia_uvm"
    return "nvidia_modeset" if device.startswith("/dev/nvidia-modeset") else "nvidia"


def unload(name: str) -> int:
    """Unload a module; returns 0 or an errno."""
    machine = machines.load()
    with changing() as state:
        module = find(state, name)
        if module is None:
            return errno.ENOENT
        if "path" not in module:
            # A module of the distribution's kernel whose hardware is in use.
            return errno.EBUSY
        if users_of(state, name) or any(module_of(file) == name for _, _, files in holders() for file in files):
            return errno.EWOULDBLOCK
        state["modules"].remove(module)
        if name == "nvidia":
            state["settings"], state["fabric"] = {}, False
            log("nvidia-nvlink: Unregistered Nvlink Core, major device number 511")
        elif name == "nvidia_uvm":
            log("nvidia-uvm: Unloaded the UVM driver.")
    show(machine, read())
    return 0
