# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows a machine and the state of its modules everywhere: sysfs, /proc/driver, /dev."""

from __future__ import annotations

import glob
import os
import shutil
import stat

from . import tree
from .machine import Machine
from .pciconfig import rewritten
from .render import sysfs
from .state import FOLDER, State, find

PROC_DRIVER = f"{FOLDER}/proc-driver"
# Nothing can be read from or broken through these; they stand for the driver's own devices.
NULL_DEVICE = os.makedev(1, 3)
# Where the GPUs of a rack share memory; there when the driver was told to make it.
IMEX_CHANNEL = "nvidia-caps-imex-channels/channel0"


def show(machine: Machine, state: State) -> None:
    """Make every face agree with the machine and the state."""
    tree.update("/sys", _written(sysfs(machine, state)))
    driver_files(machine, state)
    device_files(machine, state)


def _written(drawn: tree.Tree) -> tree.Tree:
    """Keep what setpci wrote: the hardware forgets it when it starts anew, and not because something else changes."""
    found = dict(drawn)
    for path, content in drawn.items():
        if isinstance(content, bytes) and path.endswith("/config"):
            try:
                with open(f"/sys/{path}", "rb") as file:
                    found[path] = rewritten(content, file.read())
            except FileNotFoundError:
                continue
    return found


def flavour(license_text: str) -> str:
    """Return open or proprietary for a module's licence."""
    return "proprietary" if license_text == "NVIDIA" else "open"


def banner(module: dict[str, str]) -> str:
    """Return the driver's line in /proc/driver/nvidia/version and in the kernel's log."""
    if flavour(module["license"]) == "open":
        return f"NVIDIA UNIX Open Kernel Module for x86_64  {module['version']}  Release Build  (lab@lab)"
    return f"NVIDIA UNIX x86_64 Kernel Module  {module['version']}  (lab@lab)"


def driver_files(machine: Machine, state: State) -> None:
    """Write /proc/driver/nvidia, or take it away."""
    home = f"{PROC_DRIVER}/nvidia"
    shutil.rmtree(home, ignore_errors=True)
    module = find(state, "nvidia")
    if module is None:
        return
    files: tree.Tree = {
        "version": f"NVRM version: {banner(module)}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)",
        "params": parameters(module.get("options", "")),
        "registry": 'Binary: ""',
    }
    for gpu in machine.gpus:
        address, spec = gpu["address"], gpu["spec"]
        if address in machine.dead:
            continue
        files[f"gpus/{address}/information"] = (
            f"Model: \t\t {spec['name']}\nIRQ:   \t\t 16\nGPU UUID: \t {gpu['uuid']}\nVideo BIOS: \t {spec['vbios']}\nBus Type: \t PCIe\n"
            f"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {address}\nDevice Minor: \t {gpu['index']}\n"
            f"GPU Firmware: \t {module['version']}\nGPU Excluded:\t No"
        )
        files[f"gpus/{address}/power"] = "Runtime D3 status:          Disabled by default\nVideo Memory:               Active"
        if gpu["memory_numa"] is not None:
            files[f"gpus/{address}/numa_status"] = f"Node: {gpu['memory_numa']}\nStatus: online"
    for path, content in files.items():
        tree.put(home, path, content)


PARAMETERS = {
    "ResmanDebugLevel": "4294967295", "RmLogonRC": "1", "ModifyDeviceFiles": "1", "DeviceFileUID": "0", "DeviceFileGID": "0",
    "DeviceFileMode": "438", "InitializeSystemMemoryAllocations": "1", "UsePageAttributeTable": "4294967295", "EnableMSI": "1",
    "EnablePCIeGen3": "0", "MemoryPoolSize": "0", "EnableStreamMemOPs": "0", "EnableUserNUMAManagement": "1", "NvLinkDisable": "0",
    "RmProfilingAdminOnly": "1", "PreserveVideoMemoryAllocations": "0", "EnableGpuFirmware": "18", "EnableResizableBar": "0",
    "GrdmaPciTopoCheckOverride": "0", "CreateImexChannel0": "0", "ImexChannelCount": "2048",
}  # fmt: skip
# Options whose name in the params file is another.
RENAMED = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
STRINGS = ("RegistryDwords", "RegistryDwordsPerDevice", "CoherentGPUMemoryMode")


def parameters(options: str) -> str:
    """Return /proc/driver/nvidia/params for the options that the module was loaded with."""
    values = dict(PARAMETERS)
    texts = dict.fromkeys(STRINGS, '""')
    for word in options.split():
        name, _, value = word.partition("=")
        name = RENAMED.get(name.removeprefix("NVreg_"), name.removeprefix("NVreg_"))
        if name in texts:
            quoted = value.strip('"')
            texts[name] = f'"{quoted}"'
        else:
            values[name] = value
    return "\n".join(f"{name}: {value}" for name, value in {**values, **texts}.items())


def wanted_devices(machine: Machine, state: State) -> set[str]:
    """Return the device files that exist in a state."""
    names: set[str] = set()
    driver = find(state, "nvidia")
    if driver:
        names |= {f"nvidia{gpu['index']}" for gpu in machine.gpus if gpu["address"] not in machine.dead}
        names.add("nvidiactl")
        if machine.nvswitches:
            names |= {"nvidia-nvswitchctl", *(f"nvidia-nvswitch{number}" for number in range(len(machine.nvswitches)))}
        if machine.nvlink and machine.nvlink["cluster"] and "NVreg_CreateImexChannel0=1" in driver.get("options", "").split():
            names.add(IMEX_CHANNEL)
    if find(state, "nvidia_uvm"):
        names |= {"nvidia-uvm", "nvidia-uvm-tools"}
    if find(state, "nvidia_modeset"):
        names.add("nvidia-modeset")
    return names


def device_files(machine: Machine, state: State) -> None:
    """Make the driver's device files appear and vanish."""
    wanted = wanted_devices(machine, state)
    for path in [*glob.glob("/dev/nvidia*/*"), *glob.glob("/dev/nvidia*")]:
        if os.path.isdir(path):
            if not os.listdir(path):
                os.rmdir(path)
        elif os.path.relpath(path, "/dev") not in wanted:
            os.unlink(path)
    for name in sorted(wanted):
        if not os.path.exists(f"/dev/{name}"):
            os.makedirs(os.path.dirname(f"/dev/{name}"), exist_ok=True)
            os.mknod(f"/dev/{name}", stat.S_IFCHR, NULL_DEVICE)
            os.chmod(f"/dev/{name}", 0o666)
