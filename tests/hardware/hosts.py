# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of the lab as the tests of its hardware see it. Their readers are their own, so that they can disagree with the simulators."""

from __future__ import annotations

import json
import re
import subprocess
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from lab import hardware
from lab.client import Lab
from lab.hardware import schema

PROFILES = {name: schema.load(name) for name in hardware.profiles()}
# Those that NVIDIA's driver has something to do on, those with NVLinks, and those with RDMA that ibstat can ask.
DRIVEN = [name for name, profile in PROFILES.items() if "gpu_models" in profile]
LINKED = [name for name, profile in PROFILES.items() if "nvlink" in profile]
ADAPTED = [name for name, profile in PROFILES.items() if any(entry["link_layer"] != "Unknown" for entry in profile.get("rdma", []))]
OLD, NEW = "535.309.01", "580.178.04"
SITE = "http://vendor.lab/compute/cuda/repos/debian12/x86_64/"
APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q", "--no-install-recommends"]
PACKAGES = (
    "nvidia-driver-cuda", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-opencl-icd", "nvidia-modprobe",
    "nvidia-kernel-open-dkms", "nvidia-kernel-support", "firmware-nvidia-gsp", "nvidia-persistenced",
)  # fmt: skip
# Everything that sysfs says of PCI, RDMA and NUMA, in one visit.
SURVEY = """
import json, os
def read(path):
    try:
        return open(path).read().strip()
    except OSError:
        return None
keys = ("vendor", "device", "class", "numa_node", "local_cpulist", "current_link_width", "current_link_speed")
devices = "/sys/bus/pci/devices/"
pci = {name: {"path": os.path.realpath(devices + name), **{key: read(devices + name + "/" + key) for key in keys}} for name in os.listdir(devices)}
rdma = {}
if os.path.isdir("/sys/class/infiniband"):
    for name in os.listdir("/sys/class/infiniband"):
        home = "/sys/class/infiniband/" + name
        rdma[name] = {"address": os.path.basename(os.path.realpath(home + "/device")), "node_guid": read(home + "/node_guid"), **{
            key: read(home + "/ports/1/" + key) for key in ("state", "phys_state", "rate", "link_layer")}}
homes = {name: "/sys/class/net/" + name + "/device" for name in os.listdir("/sys/class/net")}
net = {name: os.path.realpath(path) for name, path in homes.items() if os.path.exists(path)}
nodes = {name: read("/sys/devices/system/node/" + name + "/cpulist") for name in os.listdir("/sys/devices/system/node") if name.startswith("node")}
print(json.dumps({"pci": pci, "rdma": rdma, "net": net, "nodes": nodes, "uname": os.uname().release, "osrelease": read("/proc/sys/kernel/osrelease"),
                  "version": read("/proc/version").split()[2], "dev": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
                  "proc": sorted(os.listdir("/proc/driver/nvidia/gpus")) if os.path.isdir("/proc/driver/nvidia/gpus") else None}))
"""


@dataclass
class Node:
    """One host."""

    lab: Lab
    name: str
    profile: str

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program, whatever comes of it."""
        return self.lab.run(self.name, list(words))

    def __call__(self, *words: str) -> str:
        """Run a program that must succeed and return what it printed."""
        done = self.run(*words)
        assert done.returncode == 0, f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def fault(self, kind: str, *words: str) -> None:
        """Break or mend something."""
        self.lab.fault(self.name, kind, *words)

    def survey(self) -> dict[str, Any]:
        """Return what sysfs says."""
        found: dict[str, Any] = json.loads(self("python3", "-c", SURVEY))
        return found

    def modules(self) -> dict[str, tuple[int, list[str]]]:
        """Return lsmod's table: name -> (use count, users)."""
        rows = [line.split() for line in self("lsmod").splitlines()[1:]]
        return {row[0]: (int(row[2]), row[3].split(",") if row[3:] else []) for row in rows}

    def lspci(self) -> dict[str, tuple[str, str]]:
        """Return what the real lspci sees: address -> (class, vendor:device)."""
        rows = [line.split() for line in self("lspci", "-Dn").splitlines()]
        return {row[0]: (row[1].rstrip(":"), row[2]) for row in rows}

    def xml(self) -> ET.Element:
        """Return nvidia-smi's XML report."""
        return ET.fromstring(self("nvidia-smi", "-q", "-x"))

    def matrix(self, option: str = "-m") -> dict[str, dict[str, str]]:
        """Return topo -m, or -mp which knows PCI alone: row -> column -> cell, the adapters by their names."""
        text = re.sub(r"\x1b\[\d*m", "", self("nvidia-smi", "topo", option))
        names = dict(re.findall(r"^  (NIC\d+): (\S+)$", text, re.MULTILINE))
        lines = text.split("\n")
        titles = [names.get(title, title) for title in lines[0].split("\t")[1:]]
        rows = {}
        for line in lines[1 : lines.index("")]:
            label, *cells = line.split("\t")
            if label.startswith("GPU"):
                # The column NUMA Affinity is wide: an empty cell fills it up.
                del cells[-2]
            rows[names.get(label, label)] = dict(zip(titles, (cell.strip() for cell in cells), strict=False))
        return rows

    def nvlinks(self) -> list[list[bool]]:
        """Return nvlink -s: for each GPU whether each of its links is up."""
        parts = re.split(r"^GPU \d+:.*\n", self("nvidia-smi", "nvlink", "-s"), flags=re.MULTILINE)[1:]
        return [["inactive" not in line for line in part.splitlines() if re.match(r"\s*Link \d+: ", line)] for part in parts]

    def ibstat(self) -> dict[str, dict[str, str]]:
        """Return what the real ibstat sees: adapter -> field -> value, of its first port."""
        found: dict[str, dict[str, str]] = {}
        for part in re.split(r"^CA '", self("ibstat"), flags=re.MULTILINE)[1:]:
            name, _, body = part.partition("'")
            found[name] = dict(re.findall(r"^\s+([^:\n]+): (.*)$", body.partition("Port 2:")[0], re.MULTILINE))
        return found

    @property
    def described(self) -> dict[str, Any]:
        """Return the profile that the host wears, as it is written."""
        return PROFILES[self.profile]

    @property
    def model(self) -> dict[str, Any]:
        """Return what its profile says of its GPUs, which are all of one model."""
        (found,) = self.described["gpu_models"].values()
        return dict(found)

    @property
    def count(self) -> int:
        """Return how many GPUs its profile has in its tree."""
        kinds = re.findall(r"'[0-9a-f:.]+ (\w+)'", str(self.described["pci"]))
        return sum("model" in self.described["parts"][kind] for kind in kinds)

    @property
    def nvlink(self) -> dict[str, Any]:
        """Return where its profile says that NVLinks lead."""
        return dict(self.described.get("nvlink", {}))

    @property
    def switched(self) -> int:
        """Return how many NVLinks lead from each GPU to switches."""
        return int(sum(self.nvlink.get("switches", [])) + self.nvlink.get("remote", 0))

    def straight(self, gpu: int) -> list[int]:
        """Return the GPU at the other end of each NVLink that leads from one GPU to another, in the links' order."""
        pairs = [(pair, count) for *pair, count in self.nvlink.get("pairs", []) if gpu in pair]
        return [pair[pair[0] == gpu] for pair, count in pairs for _ in range(count)]

    def bound(self, one: int, other: int) -> int:
        """Return how many NVLinks bind two GPUs while all is well."""
        return self.switched or self.straight(one).count(other)

    def drive(self) -> None:
        """Give the host the newer driver as its GPUs need it, running, with the services that such a machine has."""
        # The switches of a rack have their fabric manager elsewhere.
        managed = ["nvidia-fabricmanager"] if self.switched and "clique" not in self.nvlink else []
        if self.run("modinfo", "--field=version", "nvidia").stdout.strip() != NEW:
            self.install(NEW, *managed, proprietary="open" not in self.model["flavours"])
            if "SW_MNG" in str(self.described["parts"]):
                self(*APT, "install", "nvlsm")
        self("modprobe", "nvidia")
        # Its package started the daemon before there was a driver. Where that is long ago systemd does not know of it any more.
        self.run("systemctl", "reset-failed", "nvidia-persistenced")
        self("systemctl", "start", "nvidia-persistenced", *managed)

    def install(self, version: str, *companions: str, proprietary: bool = False) -> None:
        """Install one version of the driver from the vendor's site. Signatures are not what these tests are about."""
        self.lab.run(self.name, "cat >/etc/apt/sources.list.d/vendor.list", f"deb [trusted=yes] {SITE} /\n")
        only = ("-o", "Dir::Etc::sourcelist=/etc/apt/sources.list.d/vendor.list", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0")
        self("apt-get", "-q", "update", *only)
        names = [name.replace("-open-", "-") if proprietary else name for name in (*PACKAGES, *companions)]
        self(*APT, "--allow-downgrades", "install", *(f"{name}={version}-1" for name in names))

    def settle(self) -> None:
        """Wait until the host has finished starting."""
        for _ in range(200):
            if self.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"):
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.name} is still starting")

    def reboot(self) -> None:
        """Start the host anew."""
        self.fault("reboot")
        self.settle()


def gpus(survey: dict[str, Any]) -> list[str]:
    """Return the addresses of NVIDIA's display and 3D controllers."""
    return sorted(address for address, entry in survey["pci"].items() if entry["vendor"] == "0x10de" and entry["class"][:6] in ("0x0300", "0x0302"))


def cpus(text: str) -> set[int]:
    """Return the numbers of a CPU list such as 0-3,8."""
    ends = [part.split("-") for part in text.split(",") if part]
    return {cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}


def distance(survey: dict[str, Any], one: str, other: str) -> str:
    """Return how far apart two functions are, judged by their real paths alone."""
    first, second = survey["pci"][one], survey["pci"][other]
    if one == other:
        return "X"
    ways = [entry["path"].removeprefix("/sys/devices/").split("/") for entry in (first, second)]
    common = 0
    while ways[0][common] == ways[1][common]:
        common += 1
    if common == 0:
        same = first["numa_node"] == second["numa_node"] != "-1"
        return "NODE" if same else "SYS"
    if common == 1:
        return "PHB"
    # Two steps down from a shared upstream port are its own downstream port and the device: one switch.
    return "PIX" if max(len(way) - common for way in ways) <= 2 else "PXB"
