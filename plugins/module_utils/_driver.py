# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""State of the NVIDIA driver: on disk, loaded, in user space, and who uses it."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _jobs
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

MODULE_FILE = later(rb"^([^\n:]*/nvidia[a-z0-9-]*\.ko(?:\.[a-z]+)?):", re.M)
# Debian's archive gives its builds a suffix; the driver's other modules are not the driver itself.
MAIN_MODULE = later(r"nvidia(?:-current|-tesla[a-z0-9-]*|-legacy[a-z0-9-]*)?$")
PART_MODULE = later(r"-(?:drm|modeset|uvm|peermem|fs)$")
LOADED_MODULE = later(r"(?:nvidia(?!fb|_wmi)\w*|gdrdrv)$")
LIBRARY_VERSION = later(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/aarch64-linux-gnu/nvidia/current",
)
FABRIC_PACKAGE = later(r"nvidia-fabric-?manager(?:-\d+)?$")
FABRIC_UNIT = "nvidia-fabricmanager.service"
PERSISTENCE_UNIT = "nvidia-persistenced.service"
# Services that belong to the driver or watch it: they hold the device but are nobody's job.
OWN_UNITS = (
    PERSISTENCE_UNIT, FABRIC_UNIT, "nvidia-imex.service", "nvidia-gridd.service", "nvidia-topologyd.service", "nvidia-powerd.service",
    "nvlsm.service", "nvidia-cdi-refresh.service", "nvidia-dcgm.service", "dcgm.service", "nvidia-dcgm-exporter.service",
)


def module_files(system: System) -> dict[str, str]:
    """The driver's module by kernel release, as depmod knows it (a module it does not know cannot be loaded)."""
    found: dict[str, str] = {}
    for kernel in system.names("/lib/modules"):
        data = system.read_bytes("/lib/modules/%s/modules.dep" % kernel, 8 << 20)
        for match in MODULE_FILE.finditer(data) if data and b"/nvidia" in data else ():
            path = match.group(1).decode("utf-8", "replace")
            stem = path.rsplit("/", 1)[1].split(".ko")[0]
            if kernel not in found and MAIN_MODULE.match(stem) and not PART_MODULE.search(stem):
                found[kernel] = path if path.startswith("/") else "/lib/modules/%s/%s" % (kernel, path)
    return found


def parse_modinfo(text: str) -> dict[str, dict[str, str | None]]:
    """C({file: {version, license, name, signer}}) from what modinfo says about any number of files."""
    found: dict[str, dict[str, str | None]] = {}
    now: dict[str, str | None] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if not colon:
            continue
        if key == "filename":
            now = found.setdefault(value.strip(), {"version": None, "license": None, "name": None, "signer": None})
        elif key in now and now[key] is None:
            now[key] = value.strip()
    return found


def flavour_of(license_text: str | None) -> str | None:
    """C(open) or C(proprietary), from a module's licence."""
    if not license_text:
        return None
    return "open" if "MIT" in license_text or "GPL" in license_text else "proprietary"


def on_disk(files: dict[str, str], described: dict[str, dict[str, str | None]]) -> dict[str, dict[str, str | None]]:
    found = {}
    for kernel, path in files.items():
        about = described.get(path, {})
        found[kernel] = {
            "version": about.get("version"), "flavour": flavour_of(about.get("license")), "path": path, "signer": about.get("signer"),
        }
    return found


def loaded(system: System) -> dict[str, str | None] | None:
    """The loaded driver; its banner tells the flavour apart."""
    for name in system.names("/sys/module"):
        if MAIN_MODULE.match(name.replace("_", "-")) and not PART_MODULE.search(name.replace("_", "-")):
            version = system.read("/sys/module/%s/version" % name, 64)
            banner = (system.read("/proc/driver/nvidia/version", 4096, True) or "").split("\n")[0]
            if version is None:
                match = re.search(r"\s(\d{3}\.\d+(?:\.\d+)?)\s", banner)
                version = match.group(1) if match else None
            flavour = "open" if "Open Kernel Module" in banner else "proprietary" if "Kernel Module" in banner else None
            return {"version": version, "flavour": flavour}
    return None


def library(system: System, name: str) -> str | None:
    """Version of a library of the driver, such as C(libcuda), that programs load."""
    for folder in LIBRARY_FOLDERS:
        path = "%s/%s.so.1" % (folder, name)
        match = LIBRARY_VERSION.search(system.real(path))
        if match and system.exists(path):
            return match.group(1)
    return None


def user_space(system: System) -> str | None:
    """Version of the library that nvidia-smi and programs that watch GPUs load."""
    return library(system, "libnvidia-ml")


def gsp_firmware(system: System) -> list[str]:
    """The driver versions whose firmware for the GPU's own processor is there; a module loads none but its own version's."""
    folder = "/lib/firmware/nvidia"
    names = [name for name in system.names(folder) if re.match(r"\d{3}\.\d+(?:\.\d+)?$", name)]
    return [name for name in names if any(part.startswith("gsp") for part in system.names("%s/%s" % (folder, name)))]


def holders(system: System) -> list[dict[str, t.Any]] | None:
    """Processes that have a device of the driver open: C([{pid, name, unit, devices}]); None without the right to look."""
    if not any(name.startswith("nvidia") for name in os.listdir(system.path("/dev"))):
        return []
    found = []
    closed = 0
    for pid in os.listdir(system.path("/proc")):
        if not pid.isdigit():
            continue
        folder = system.path("/proc/%s/fd" % pid)
        try:
            handles = os.listdir(folder)
        except PermissionError:
            closed += 1
            continue
        except OSError:
            continue
        devices = set()
        for handle in handles:
            try:
                target = os.readlink(folder + "/" + handle)
            except OSError:
                continue
            if target.startswith("/dev/nvidia"):
                devices.add(target.replace(" (deleted)", ""))
        if devices:
            found.append({
                "pid": int(pid),
                "name": system.read("/proc/%s/comm" % pid, 64, True),
                "unit": _jobs.unit_of(system.read("/proc/%s/cgroup" % pid, 8192, True) or ""),
                "devices": sorted(devices),
            })
    if closed:
        system.problem("%d processes of other users could not be looked into" % closed, "holders")
        return None
    return sorted(found, key=lambda entry: t.cast(int, entry["pid"]))
