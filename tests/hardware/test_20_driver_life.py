# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's life on a host: loaded, held, changed under load, reloaded, rebooted, removed; as on a real one."""

from __future__ import annotations

import pytest
from hardware.hosts import APT, NEW, OLD, PACKAGES, Node

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n\n"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
SERVICES = ("nvidia-persistenced", "nvidia-fabricmanager")


def short(version: str) -> str:
    return ".".join(version.split(".")[:2])


@pytest.fixture(scope="module")
def host(eight: Node) -> Node:
    """Give the host with the newer driver installed, freshly started."""
    eight.install(NEW, "nvidia-fabricmanager")
    eight("systemctl", "disable", *SERVICES)
    eight.reboot()
    return eight


def test_an_installed_driver_is_loaded_at_boot_by_the_gpus_alias(host: Node) -> None:
    assert host.modules()["nvidia"] == (0, [])
    assert host("cat", "/sys/module/nvidia/version").strip() == NEW
    assert f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {NEW}" in host("dmesg")
    assert host("cat", "/proc/driver/nvidia/version").startswith(f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {NEW}")


def test_dependencies_are_loaded_and_counted(host: Node) -> None:
    host("modprobe", "nvidia-uvm")
    assert host.modules()["nvidia"] == (1, ["nvidia_uvm"])
    done = host.run("rmmod", "nvidia")
    assert (done.returncode, done.stderr) == (1, "rmmod: ERROR: Module nvidia is in use by: nvidia_uvm\n")
    host("modprobe", "-r", "nvidia-uvm")
    assert "nvidia_uvm" not in host.modules()
    assert "nvidia-uvm" not in host.survey()["dev"]


def test_without_its_module_nvidia_smi_has_no_driver(host: Node) -> None:
    host("modprobe", "-r", "nvidia_uvm", "nvidia")
    assert "nvidia" not in host.modules()
    assert host.survey()["dev"] == []
    done = host.run("nvidia-smi")
    assert (done.returncode, done.stdout) == (9, NO_DRIVER)
    path = host("modinfo", "-F", "filename", "nvidia-uvm").strip()
    done = host.run("insmod", path)
    assert done.returncode == 1
    assert "Unknown symbol in module" in done.stderr
    host("modprobe", "nvidia")
    host("nvidia-smi")


def test_an_open_device_keeps_the_module_in(host: Node) -> None:
    host.fault("hold-gpu", "0", "3")
    count, users = host.modules()["nvidia"]
    assert count == 3
    assert host("cat", "/sys/module/nvidia/refcnt").strip() == "3"
    done = host.run("modprobe", "-r", "nvidia")
    assert (done.returncode, done.stderr) == (1, "modprobe: FATAL: Module nvidia is in use.\n")
    # Even asked directly, the kernel refuses.
    assert host.run("python3", "-c", "import ctypes, os; ctypes.CDLL(None).delete_module(b'nvidia', 0) and os._exit(7)").returncode == 7
    jobs = host("nvidia-smi", "--query-compute-apps=gpu_bus_id,pid", "--format=csv,noheader").splitlines()
    assert [job.split(", ")[0] for job in jobs] == ["00000000:1B:00.0", "00000000:61:00.0"]
    pid = jobs[0].split(", ")[1]
    assert "/dev/nvidia0" in host("sh", "-c", f"readlink /proc/{pid}/fd/*").split()
    host.fault("release-gpu")
    assert host.modules()["nvidia"] == (0, [])
    assert users == []


def test_the_drivers_services_hold_it_too(host: Node) -> None:
    host("systemctl", "start", *SERVICES)
    assert host.run("modprobe", "-r", "nvidia").returncode == 1
    assert host("nvidia-smi", "--query-gpu=persistence_mode,fabric.state", "--format=csv,noheader").splitlines() == ["Enabled, Completed"] * 8
    assert host("nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader") == ""
    host("systemctl", "stop", *SERVICES)
    assert host("nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader").splitlines() == ["Disabled"] * 8


def test_settings_last_until_the_driver_goes(host: Node) -> None:
    assert "All done." in host("nvidia-smi", "-i", "1", "-pl", "500")
    assert host("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits").splitlines()[:2] == ["700.00", "500.00"]
    host("modprobe", "-r", "nvidia")
    host("modprobe", "nvidia")
    assert host("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits").splitlines()[:2] == ["700.00", "700.00"]


def test_other_packages_under_a_loaded_module_are_a_mismatch_until_a_reload(host: Node) -> None:
    host(*APT, "remove", "nvidia-fabricmanager")
    host.install(OLD, "nvidia-fabricmanager-535")
    assert host("cat", "/sys/module/nvidia/version").strip() == NEW
    assert host("modinfo", "-F", "version", "nvidia").strip() == OLD
    for words in ((), ("-L",), ("topo", "-m"), ("-q", "-x")):
        done = host.run("nvidia-smi", *words)
        assert (done.returncode, done.stdout) == (18, MISMATCH.format(short=short(OLD)))
    log = host("dmesg")
    assert f"NVRM: API mismatch: the client has the version {OLD}, but" in log
    done = host.run("/usr/bin/nv-fabricmanager", "-c", "/dev/null")
    assert done.returncode == 1
    assert "don't match with driver version" in done.stderr
    host("modprobe", "-r", "nvidia")
    host("modprobe", "nvidia")
    assert host.xml().findtext("driver_version") == OLD
    host("/usr/bin/nv-fabricmanager", "-c", "/dev/null")
    assert host.xml().findtext("gpu/fabric/state") == "Completed"
    host("sh", "-c", "kill $(cat /run/nvidia-fabricmanager/nv-fabricmanager.pid)")


def test_a_reboot_clears_the_mismatch_as_well(host: Node) -> None:
    host(*APT, "remove", "nvidia-fabricmanager-535")
    host.install(NEW)
    assert host.run("nvidia-smi").returncode == 18
    host.reboot()
    assert host.xml().findtext("driver_version") == NEW


def test_a_blacklisted_driver_stays_out_at_boot(host: Node) -> None:
    host("sh", "-c", "echo 'blacklist nvidia' > /etc/modprobe.d/no.conf")
    host.reboot()
    assert "nvidia" not in host.modules()
    host("rm", "/etc/modprobe.d/no.conf")
    host("sh", "-c", "echo nvidia-uvm > /etc/modules-load.d/uvm.conf")
    host.reboot()
    assert host.modules()["nvidia"] == (1, ["nvidia_uvm"])
    host("rm", "/etc/modules-load.d/uvm.conf")


def test_the_file_that_lsmod_reads_is_as_the_kernels(host: Node) -> None:
    table = host("cat", "/proc/modules").splitlines()
    assert [line.split()[0] for line in table] == list(host.modules())
    assert next(line for line in table if line.startswith("nvidia ")).endswith(" 1 nvidia_uvm, Live 0x0000000000000000 (OE)")


def test_a_removed_driver_is_gone_with_the_next_boot(host: Node) -> None:
    host(*APT, "remove", *PACKAGES)
    assert host.run("sh", "-c", "nvidia-smi").returncode == 127
    assert "nvidia" in host.modules()
    host.reboot()
    assert not [name for name in host.modules() if name.startswith("nvidia")]
    assert host.survey()["dev"] == []


@pytest.mark.parametrize("profile", ["none", "amd"])
def test_a_machine_without_gpus_refuses_the_driver(worn: dict[str, Node], profile: str) -> None:
    plain = worn[profile]
    plain.install(NEW)
    assert plain.run("modprobe", "nvidia").stderr == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert "NVRM: No NVIDIA GPU found." in plain("dmesg")
    assert plain.run("nvidia-smi").returncode == 9
