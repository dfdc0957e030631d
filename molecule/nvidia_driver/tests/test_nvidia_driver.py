# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia_driver promises, seen on the hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from lab.client import Lab
from lab.vendor.signing import gpg, gpg_home
from testinfra.host import Host

VERSION = "580.178.04"
KEYRING = "/etc/apt/keyrings/gpu-fleet-nvidia.asc"
SOURCES = "/etc/apt/sources.list.d/gpu-fleet-nvidia.sources"
PIN = "/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
FENCE = "/etc/apt/apt.conf.d/51gpu-fleet-unattended-upgrades"
NOUVEAU = "/etc/modprobe.d/gpu-fleet-nouveau.conf"
UNITS = ("nvidia-persistenced.service", "nvidia-fabricmanager.service")
COMPANIONS = ("nvidia-fabricmanager",)
DEBIAN = (
    *("nvidia-driver-cuda", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-opencl-icd", "nvidia-modprobe"),
    *("nvidia-kernel-open-dkms", "nvidia-kernel-support", "firmware-nvidia-gsp", "nvidia-persistenced", *COMPANIONS),
)
UBUNTU = (
    *("nvidia-utils-580", "libnvidia-compute-580", "libnvidia-decode-580", "libnvidia-cfg1-580", "nvidia-modprobe", "nvidia-dkms-580-open"),
    *("nvidia-kernel-source-580-open", "nvidia-kernel-common-580", "nvidia-firmware-580", "nvidia-persistenced", *COMPANIONS),
)


def platform(host: Host) -> str:
    """Return the name of the vendor's repository for the host."""
    release = str(host.check_output(". /etc/os-release && echo $ID$VERSION_ID"))
    return release.replace(".", "")


def packages(host: Host) -> dict[str, str]:
    """Return the exact version of each package that the role answers for."""
    names, ending = (UBUNTU, "-1ubuntu1") if platform(host).startswith("ubuntu") else (DEBIAN, "-1")
    return dict.fromkeys(names, VERSION + ending)


def policies(host: Host) -> dict[str, tuple[str, list[str]]]:
    """Return what apt would take of each package, and every version that it knows."""
    text = host.check_output("LC_ALL=C apt-cache policy " + " ".join(packages(host)))
    found = {}
    for name, body in re.findall(r"^(\S+):\n((?: .*\n?)+)", text, re.MULTILINE):
        candidate = re.search(r"Candidate: (\S+)", body)
        assert candidate is not None
        found[name] = (candidate.group(1), re.findall(r"^ (?:\*\*\*|   ) (\S+) -?\d+$", body, re.MULTILINE))
    return found


@pytest.mark.parametrize("path", [KEYRING, SOURCES, PIN, FENCE, NOUVEAU])
def test_files_are_roots_and_readable(host: Host, path: str) -> None:
    """Apt's own account must be able to read them, and only root may write them."""
    file = host.file(path)
    assert file.is_file and not file.is_symlink
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_one_key_is_trusted_for_one_repository(host: Host) -> None:
    """The key file holds the key that the site is known by and no other, and nothing is trusted for every repository."""
    wanted = Lab().status()["site"]["fingerprint"]
    with gpg_home() as home:
        listed = gpg(home, "--with-colons", "--show-keys", stdin=host.file(KEYRING).content).decode()
    primary = re.findall(r"^pub:.*\n(?:(?!fpr).*\n)*fpr:+([0-9A-F]{40}):", listed, re.MULTILINE)
    assert primary == [wanted]
    assert "gpu-fleet" not in host.check_output("ls /etc/apt/trusted.gpg.d")


def test_the_repository(host: Host) -> None:
    """The packages come from the site's folder for this distribution, signed by that key."""
    fields = dict(line.split(": ", 1) for line in host.file(SOURCES).content_string.splitlines() if not line.startswith("#"))
    url = f"http://vendor.lab/compute/cuda/repos/{platform(host)}/x86_64/"
    assert fields == {"Types": "deb", "URIs": url, "Suites": "/", "Architectures": "amd64", "Signed-By": KEYRING}
    assert url.rstrip("/") in host.check_output("apt-cache policy").replace("x86_64/ ", "x86_64 ")


def test_every_package_has_the_one_version(host: Host) -> None:
    """Kernel module, user space and companions come in lockstep, and nothing of another version is beside them."""
    for name, version in packages(host).items():
        package = host.package(name)
        assert package.is_installed, name
        assert package.version == version
    others = host.check_output("dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n' '*nvidia*' 'libcuda1'").splitlines()
    assert all(line.split()[1].startswith(VERSION) for line in others if line.endswith(" installed"))
    assert host.check_output("dpkg --audit") == ""


@pytest.fixture
def moved_on(host: Host) -> Iterator[None]:
    """Let the vendor's site offer a newer release, and the host hear of it."""
    lab = Lab()
    lab.fault("site", "newer")
    try:
        host.check_output("apt-get -q update")
        yield
    finally:
        lab.fault("site", "ok")
        host.check_output("apt-get -q update")


@pytest.mark.usefixtures("moved_on")
def test_pins_hold_against_a_newer_release(host: Host) -> None:
    """Apt knows newer versions and takes none of them, whoever asks it to upgrade."""
    pinned = policies(host)
    assert set(pinned) == set(packages(host))
    assert {name: candidate for name, (candidate, _known) in pinned.items()} == packages(host)
    newer = [name for name, (candidate, known) in pinned.items() if known and known[0] != candidate]
    assert {"nvidia-modprobe", "nvidia-persistenced", *COMPANIONS} <= set(newer), pinned
    upgrade = host.check_output("apt-get -q --simulate dist-upgrade")
    assert not re.search(r"^(Inst|Remv) \S*(nvidia|libcuda)", upgrade, re.MULTILINE), upgrade


def test_the_module_is_built_for_the_running_kernel(host: Host) -> None:
    """The build is dkms's, in the open flavour, and belongs to the kernel that runs."""
    kernel = host.check_output("uname -r")
    assert host.check_output("dkms status nvidia") == f"nvidia/{VERSION}, {kernel}, x86_64: installed"
    about = dict(re.findall(r"^(\w+):\s+(.*)", host.check_output("modinfo nvidia"), re.MULTILINE))
    assert about["version"] == VERSION
    assert about["license"] == "Dual MIT/GPL"
    assert about["vermagic"].split()[0] == kernel
    assert about["filename"].startswith(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko")


def test_the_driver_is_loaded_and_answers(host: Host) -> None:
    """Loaded module, its banner, its library and the management program are of one version and see every GPU."""
    assert host.file("/sys/module/nvidia/version").content_string.strip() == VERSION
    assert host.file("/sys/module/nvidia_uvm").is_directory
    banner = host.file("/proc/driver/nvidia/version").content_string
    assert "Open Kernel Module" in banner and VERSION in banner
    assert host.check_output("readlink -f /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").endswith(f".so.{VERSION}")
    rows = host.check_output("nvidia-smi --query-gpu=driver_version,name,persistence_mode --format=csv,noheader").splitlines()
    assert rows == [f"{VERSION}, NVIDIA H100 80GB HBM3, Enabled"] * 8
    assert all(host.file(f"/dev/nvidia{index}").exists for index in range(8))


@pytest.mark.parametrize("unit", UNITS)
def test_services_run_now_and_after_a_boot(host: Host, unit: str) -> None:
    """Both run and are enabled; their processes hold the driver's devices."""
    service = host.service(unit)
    assert service.is_running
    assert service.is_enabled
    process = int(host.check_output("systemctl show --value -p MainPID %s", unit))
    assert process > 0
    assert "/dev/nvidia" in host.check_output(f"ls -l /proc/{process}/fd")


def test_nouveau_stays_out(host: Host) -> None:
    """What modprobe really reads forbids nouveau to load by itself, and its mode setting."""
    rules = host.check_output("modprobe --showconfig").splitlines()
    assert "blacklist nouveau" in rules
    assert "options nouveau modeset=0" in rules
    assert not host.file("/sys/module/nouveau").exists
    assert host.file(NOUVEAU).content_string.splitlines()[1:] == ["blacklist nouveau", "options nouveau modeset=0"]

def test_what_is_managed_is_written_down(host: Host) -> None:
    """The host's own list has it, with what was there before; unmanage.yml lives on it."""
    listed = json.loads(host.file("/var/lib/gpu_fleet/managed.json").content)
    known = {(item["kind"], item["id"]) for item in listed["items"] if item["role"] == "nvidia_driver"}
    assert {("file", PIN), ("file", FENCE), ("keyring", KEYRING), *(("hold", name) for name in packages(host))} <= known


def test_every_package_is_on_hold_and_fenced_off(host: Host) -> None:
    """A pin does not keep a package from being removed, and unattended-upgrades has a list of its own."""
    assert set(packages(host)) <= set(host.check_output("apt-mark showhold").split())
    patterns = re.findall(r'^Unattended-Upgrade::Package-Blacklist:: "(.*)";$', host.check_output("apt-config dump"), re.MULTILINE)
    assert all(any(re.match(pattern, name) for pattern in patterns) for name in packages(host))
    assert not any(re.match(pattern, "bash") for pattern in patterns)
