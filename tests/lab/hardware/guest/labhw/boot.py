# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the hardware in place when a host starts, and lets the drivers that are installed find it."""

from __future__ import annotations

import os
import stat
import subprocess

from . import bootloader, nicsettings, secureboot, tree
from . import machine as machines
from .faces import NULL_DEVICE, PROC_DRIVER, driver_files
from .machine import Machine
from .render import modalias, sysfs
from .render_net import home_of
from .render_rdma import rdma
from .state import DMESG, FOLDER, changing, log, read

MODPROBE = "/sbin/modprobe"
# Folders of which nothing of the machine under the lab may be seen. One that the host does not have itself is hidden: a class
# exists only once a driver made it.
OPAQUE = ("devices/system/node", "class/infiniband", "class/infiniband_verbs", "class/infiniband_mad", "class/dmi", "class/pci_bus",
          "class/nvme", "class/drm", "class/iommu", "kernel/iommu_groups")  # fmt: skip
# Overlays of sysfs. All of /sys in one would hide the control groups.
OVERLAYS = ("devices", "class", "module", "kernel")


def main(words: list[str]) -> int:
    """Run one step of the start: up | coldplug."""
    if words == ["up"]:
        up()
    else:
        coldplug(machines.load())
    return 0


def mount(*words: str) -> None:
    """Run mount, and fail with its words."""
    subprocess.run(["mount", *words], check=True)


def up() -> None:
    """Show the hardware in /sys, /proc and /dev."""
    os.makedirs(FOLDER, exist_ok=True)
    machine = machines.load()
    release, options = _kernel(machine)
    nicsettings.started()
    with open(f"{FOLDER}/kernel-release", "w") as file:
        file.write(release + "\n")
    with open(DMESG, "w"):
        log(f"Linux version {release} (lab@lab) #1 SMP PREEMPT_DYNAMIC\nDMI: {machine.system['vendor']} {machine.system['product']}", 5)
    with changing() as state:
        state["secure_boot"] = secureboot.switched(machine.system["secure_boot"])
        users = {entry["name"]: entry["used_by"] for entry in machine.modules}
        state["modules"] = [
            {"name": name, "size": entry["size"], "depends": [other for other in users if name in users[other]]}
            for name, entry in ((entry["name"], entry) for entry in machine.modules)
        ]
    _sysfs(machine)
    _cable(machine)
    _procfs(release, options)
    _firmware(read()["secure_boot"])
    driver_files(machine, read())
    _rdma_devices(machine)


def _kernel(machine: Machine) -> tuple[str, str]:
    """Return the release and the command line of the kernel that starts: the boot loader's choice, else what the image reports."""
    chosen = bootloader.start()
    if chosen:
        return chosen
    with open("/etc/lab/kernel-release") as file:
        release = file.read().strip()
    return release, f"BOOT_IMAGE=/boot/vmlinuz-{release} root=/dev/vda1 {machine.system.get('kernel_options', 'ro quiet')}"


def _opaque(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    os.setxattr(path, "trusted.overlay.opaque", b"y")


def _hide(path: str) -> None:
    """Make an overlay's lower entry vanish."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.lexists(path):
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def _sysfs(machine: Machine) -> None:
    drawn = sysfs(machine, read())
    # The lower layers of the mounts: "bus" is no overlay, so nothing real stays visible there.
    root = f"{FOLDER}/sys"
    tree.write(root, drawn)
    os.makedirs(f"{root}/module", exist_ok=True)
    os.makedirs(f"{root}/class", exist_ok=True)
    os.makedirs(f"{root}/kernel", exist_ok=True)
    for folder in OPAQUE:
        if os.path.isdir(f"{root}/{folder}"):
            _opaque(f"{root}/{folder}")
        elif os.path.isdir(f"/sys/{folder}"):
            _hide(f"{root}/{folder}")
    for entry in os.listdir("/sys/devices"):
        if entry.startswith("pci"):
            if os.path.isdir(f"{root}/devices/{entry}"):
                _opaque(f"{root}/devices/{entry}")
            else:
                _hide(f"{root}/devices/{entry}")
    _hide_real_devices(root)
    for folder in OVERLAYS:
        work = f"{FOLDER}/work/{folder}"
        os.makedirs(work)
        mount("-t", "overlay", "lab-hardware", "-o", f"lowerdir=/sys/{folder},upperdir={root}/{folder},workdir={work}", f"/sys/{folder}")
    mount("--bind", f"{root}/bus/pci", "/sys/bus/pci")


def _hide_real_devices(root: str) -> None:
    """Hide the links of classes that lead to the real machine's PCI devices."""
    for kind in os.listdir("/sys/class"):
        folder = f"/sys/class/{kind}"
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = f"{folder}/{name}"
            if os.path.islink(path) and "/devices/pci" in os.readlink(path) and f"class/{kind}" not in OPAQUE:
                _hide(f"{root}/class/{kind}/{name}")
    blocks = f"{FOLDER}/block"
    os.makedirs(blocks)
    for name in os.listdir("/sys/block"):
        text = os.readlink(f"/sys/block/{name}")
        if "devices/pci" not in text:
            os.symlink(text, f"{blocks}/{name}")
    mount("--bind", blocks, "/sys/block")


def _cable(machine: Machine) -> None:
    """Show the host's real interface as one of the machine's adapters."""
    for interface in machine.interfaces:
        real = f"/sys/devices/virtual/net/{interface['name']}"
        if not interface["cable"] or not os.path.isdir(real):
            continue
        home = f"/sys/{home_of(machine, interface)}"
        upper, work = f"{FOLDER}/cable", f"{FOLDER}/work/cable"
        os.makedirs(upper)
        os.makedirs(work)
        os.makedirs(home)
        os.symlink("../../../" + interface["at"], f"{upper}/device")
        mount("-t", "overlay", "lab-hardware", "-o", f"lowerdir={real},upperdir={upper},workdir={work}", home)


def _procfs(release: str, options: str) -> None:
    os.makedirs(PROC_DRIVER)
    mount("--bind", PROC_DRIVER, "/proc/driver")
    texts = {
        "/proc/sys/kernel/osrelease": release,
        "/proc/version": f"Linux version {release} (lab@lab) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0) #1 SMP PREEMPT_DYNAMIC",
        "/proc/cmdline": options,
    }
    for path, text in texts.items():
        source = f"{FOLDER}/proc-{os.path.basename(path)}"
        with open(source, "w") as file:
            file.write(text + "\n")
        mount("--bind", source, path)


def _firmware(enabled: bool | None) -> None:
    """Show EFI's variables; a machine whose profile says nothing of Secure Boot started without EFI."""
    folder = f"{FOLDER}/firmware"
    os.makedirs(folder)
    if enabled is not None:
        os.makedirs(f"{folder}/efi/efivars")
        for name, content in secureboot.variables(enabled).items():
            with open(f"{folder}/efi/efivars/{name}", "wb") as file:
                file.write(content)
    mount("--bind", folder, "/sys/firmware")


def _rdma_devices(machine: Machine) -> None:
    if not machine.rdma:
        return
    os.makedirs("/dev/infiniband", exist_ok=True)
    names = sorted(path.rsplit("/", 1)[1] for path in rdma(machine) if path.startswith(("class/infiniband_verbs/u", "class/infiniband_mad/u")))
    for name in [*names, "rdma_cm"]:
        os.mknod(f"/dev/infiniband/{name}", stat.S_IFCHR | 0o666, NULL_DEVICE)


def coldplug(machine: Machine) -> None:
    """Offer every device to modprobe by its alias, as udev does at the start. What is blacklisted or missing stays unloaded."""
    aliases = sorted({modalias(function) for function in machine.pci if function["address"] not in machine.dead})
    subprocess.run([MODPROBE, "--all", "--use-blacklist", "--quiet", "--", *aliases], check=False)
