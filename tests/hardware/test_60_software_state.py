# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's state, what waits for a boot and what the next one brings: made by real packages, kernels, GRUB and dkms, and observed right."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from hardware.hosts import APT, NEW, PACKAGES, Node
from integration.harness import CHECKOUT
from lab.client import HostSpec
from own_lab import own_lab

OLD = "580.159.04"
HOME = "/opt/observer"
OBSERVE = f"""
import json, sys
sys.path.insert(0, "{HOME}")
from ansible_collections.gpu.fleet.plugins.module_utils._observe import observe
print(json.dumps(observe({{"driver"}}, [], 20, 10)))
"""
GRUB = 'GRUB_DEFAULT=saved\nGRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="iommu=pt"\n'
BOOTING = ("grub2-common", "initramfs-tools", "unattended-upgrades")
PROFILES = {"n1": "h100-sxm8", "n2": "b200-hgx8"}


class Host(Node):
    """A host of these tests."""

    def observe(self) -> dict[str, Any]:
        """Return what the observation finds, run by the host's own Python. Only nvidia-smi has a right to complain here."""
        facts: dict[str, Any] = json.loads(self("python3", "-c", OBSERVE))
        assert [problem for problem in facts["problems"] if not problem["probe"].startswith("nvidia-smi")] == []
        return facts

    def driver(self) -> dict[str, Any]:
        """Return the group of the driver."""
        found: dict[str, Any] = self.observe()["driver"]
        return found

    def reasons(self) -> dict[str, str]:
        """Return what is pending, by its id."""
        return {reason["id"]: reason["seen"] for reason in self.driver()["reboot_reasons"]}

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        self.lab.run(self.name, f"mkdir -p $(dirname {path}) && cat >{path}", text)

    def apt(self, *words: str) -> None:
        """Run apt-get."""
        self(*APT, *words)

    def take(self, version: str) -> None:
        """Install a version of the driver, and no service that would hold it."""
        self.install(version)
        self("systemctl", "disable", "--now", "nvidia-persistenced")

    def reload(self) -> None:
        """Load the driver anew."""
        self("modprobe", "-r", "nvidia")
        self("modprobe", "nvidia")

    @property
    def kernel(self) -> str:
        """Return the release that runs."""
        return self("uname", "-r").strip()

    def states(self) -> tuple[str | None, str | None, str | None, str | None]:
        """Return the versions of the module that is loaded, of the one on disk for this kernel, of libnvidia-ml, and of libcuda."""
        found = self.driver()
        disk = found["on_disk"].get(self.kernel) or {}
        return (found["loaded"] or {}).get("version"), disk.get("version"), found["user_space"], found["libcuda"]


def carry(host: Host) -> None:
    """Put the observing code on a host, as Ansible would."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(CHECKOUT / "plugins" / "module_utils", "ansible_collections/gpu/fleet/plugins/module_utils")
    host.lab.run(host.name, f"mkdir -p {HOME} && base64 -d | tar -xz -C {HOME}", base64.b64encode(packed.getvalue()).decode())


@pytest.fixture(scope="module")
def hosts() -> Iterator[dict[str, Host]]:
    """Give bare hosts that can look at themselves."""
    with own_lab("software-state", [HostSpec(name, "debian12", profile) for name, profile in PROFILES.items()]) as lab:
        found = {name: Host(lab, name, profile) for name, profile in PROFILES.items()}
        for host in found.values():
            carry(host)
            host("apt-get", "-q", "update")
        yield found


def flavoured(host: Host, flavour: str) -> list[str]:
    """Return the releases of one flavour that can be had, oldest first."""
    names = re.findall(rf"^linux-image-(\d[\d.]*-(\d+)-{flavour})$", host("apt-cache", "pkgnames", "linux-image-"), re.MULTILINE)
    return [name for name, _ in sorted(names, key=lambda pair: int(pair[1]))]


@pytest.fixture(scope="module")
def host(hosts: dict[str, Host]) -> Host:
    """Give a host with a kernel of its own, GRUB, and a driver. Its tests tell one story, in order."""
    first = hosts["n1"]
    # Nothing starts from an initramfs here: a small one is made in a fraction of the time.
    first.write("/etc/initramfs-tools/conf.d/small", "MODULES=list\n")
    first.apt("install", *BOOTING)
    first.write("/etc/default/grub", GRUB)
    first("mkdir", "-p", "/boot/grub")
    first.apt("install", f"linux-image-{first.kernel}")
    first("update-grub")
    first.take(OLD)
    return first


def test_a_new_kernel_asks_for_a_reboot(host: Host) -> None:
    assert host.reasons() == {"asked_by_packages": f"linux-image-{host.kernel}"}
    host.reboot()
    assert host.reasons() == {}


def test_in_step(host: Host) -> None:
    found, kernel = host.driver(), host.kernel
    assert host.states() == (OLD, OLD, OLD, OLD)
    assert found["on_disk"][kernel]["signer"] == "DKMS module signing key"
    assert found["next_boot"] == {"kernel": kernel, "source": "/boot/grub/grub.cfg", "once": False, "module": OLD}
    assert {(entry["module"], entry["version"], entry["kernel"], entry["state"]) for entry in found["dkms"]} == {("nvidia", OLD, kernel, "installed")}
    assert found["dkms_key"] == {"path": "/var/lib/dkms/mok.pub", "enrolled": False}
    assert found["gsp_firmware"] == [OLD]
    assert found["kernels"][kernel]["installed"] and found["kernels"][kernel]["headers"]
    assert "nouveau" in found["kept_out"]


def test_an_initramfs_is_older_than_what_it_would_hold_until_it_is_made_anew(host: Host) -> None:
    host("update-initramfs", "-u")
    found = host.driver()["kernels"][host.kernel]["initramfs"]
    assert found == {"path": f"/boot/initrd.img-{host.kernel}", "older_than": []}
    host.write("/etc/modprobe.d/x.conf", "options nvidia NVreg_EnableStreamMemOPs=1\n")
    assert host.driver()["kernels"][host.kernel]["initramfs"]["older_than"] == ["/etc/modprobe.d", "/etc/modprobe.d/x.conf"]
    host("update-initramfs", "-u")
    assert host.driver()["kernels"][host.kernel]["initramfs"]["older_than"] == []


def test_options_of_the_module_wait_for_a_reload(host: Host) -> None:
    (option,) = [entry for entry in host.driver()["module_options"] if entry["file"] == "/etc/modprobe.d/x.conf"]
    assert option == {"module": "nvidia", "option": "NVreg_EnableStreamMemOPs", "value": "1", "file": "/etc/modprobe.d/x.conf", "running": "0"}
    assert host.reasons() == {"pending_module_options": "nvidia NVreg_EnableStreamMemOPs is 0, /etc/modprobe.d/x.conf says 1"}
    host.reload()
    assert host.reasons() == {}


def test_new_packages_under_a_loaded_module(host: Host) -> None:
    host.take(NEW)
    assert host.states() == (OLD, NEW, NEW, NEW)
    assert host.reasons() == {"other_module_loaded": f"loaded {OLD}, on disk {NEW}"}
    host.reload()
    assert host.states() == (NEW, NEW, NEW, NEW)
    assert host.reasons() == {}


def test_a_library_of_another_version(host: Host) -> None:
    host("sh", "-c", f"cd /tmp && apt-get -q download libcuda1={OLD}-1 libcuda1={NEW}-1 libnvidia-ml1={NEW}-1")
    host("dpkg", "--force-depends", "--install", f"/tmp/libcuda1_{OLD}-1_amd64.deb")
    assert host.states() == (NEW, NEW, NEW, OLD)
    assert host.reasons() == {"other_user_space": f"on disk {NEW}, libcuda {OLD}, libnvidia-ml {NEW}"}
    host("dpkg", "--install", f"/tmp/libcuda1_{NEW}-1_amd64.deb")
    assert host.reasons() == {}


def test_a_library_that_is_gone(host: Host) -> None:
    host("sh", "-c", "rm /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    assert host.states() == (NEW, NEW, None, NEW)
    host("dpkg", "--install", f"/tmp/libnvidia-ml1_{NEW}-1_amd64.deb")
    assert host.states() == (NEW, NEW, NEW, NEW)


def test_a_module_that_is_only_to_be_loaded(host: Host) -> None:
    host("modprobe", "-r", "nvidia")
    assert host.states() == (None, NEW, NEW, NEW)
    assert host.reasons() == {}
    host("modprobe", "nvidia")


def test_options_of_the_kernel_wait_for_grub_and_then_for_a_boot(host: Host) -> None:
    host.write("/etc/default/grub.d/pci.cfg", 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX pci=realloc"\n')
    assert host.reasons() == {"pending_kernel_options": "asked for, but not in the boot loader's menu: pci=realloc"}
    host("update-grub")
    assert host.reasons() == {"pending_kernel_options": "not in force: pci=realloc"}
    options = host.driver()["kernel_options"]
    wanted = ["iommu=pt", "pci=realloc", "quiet"]
    assert (options["configured"], options["next_boot"]) == (wanted, ["root=/dev/vda1", "ro", *wanted])


def test_settings_of_an_adapter_wait_for_a_boot(host: Host) -> None:
    assert host.driver()["nic_settings"] is None
    host("ln", "-s", "/usr/local/lib/lab/mlxconfig", "/usr/bin/mlxconfig")
    host("mlxconfig", "-d", "0000:18:00.0", "-y", "set", "SRIOV_EN=1")
    assert host.reasons()["pending_nic_settings"] == "0000:18:00.0 SRIOV_EN is False(0), next True(1)"
    assert len(host.driver()["nic_settings"]) == 10


@pytest.fixture(scope="module")
def kernels(host: Host) -> tuple[str, str]:
    """Give an older kernel of the host's own kind and a newer one of another kind, both installed, neither with headers."""
    own = host.kernel
    older, other = flavoured(host, "cloud-amd64"), flavoured(host, "amd64")
    host.apt("install", f"linux-image-{older[older.index(own) - 1]}", f"linux-image-{other[-1]}")
    # The kernels' packages leave that to the owner of a container.
    host("update-grub")
    return older[older.index(own) - 1], other[-1]


def test_neither_an_older_kernel_nor_one_of_another_kind_is_newer(host: Host, kernels: tuple[str, str]) -> None:
    found = host.driver()
    assert set(found["kernels"]) == {host.kernel, *kernels}
    assert "newer_kernel" not in host.reasons()
    assert set(host.reasons()["asked_by_packages"].split()) == {f"linux-image-{kernel}" for kernel in kernels}
    assert found["next_boot"]["kernel"] == host.kernel
    assert [found["kernels"][kernel]["headers"] for kernel in kernels] == [False, False]


def entry(host: Host, kernel: str) -> str:
    """Return the path of a kernel's entry in GRUB's menu."""
    menu = host("cat", "/boot/grub/grub.cfg")
    names = [re.search(rf"option '(gnulinux-{part})'", menu) for part in ("advanced-[^']*", rf"{kernel}-advanced-[^']*")]
    assert all(names), f"{kernel} is not in the menu"
    return ">".join(name.group(1) for name in names if name)


def test_a_kernel_without_a_module(host: Host, kernels: tuple[str, str]) -> None:
    newest, older = host.kernel, kernels[0]
    host("grub-reboot", entry(host, older))
    assert host.driver()["next_boot"] == {"kernel": older, "source": "/boot/grub/grub.cfg", "once": True, "module": None}
    host.reboot()
    assert host.kernel == older
    assert host.states() == (None, None, NEW, NEW)
    # What waited for a boot waits no more.
    assert host.reasons() == {"newer_kernel": f"running {older}, installed {newest}"}
    assert host.driver()["next_boot"] == {"kernel": newest, "source": "/boot/grub/grub.cfg", "once": False, "module": NEW}
    host("grub-set-default", entry(host, older))
    assert host.reasons() == {"newer_kernel": f"running {older}, installed {newest}, the next boot is set to {older}"}
    host.apt("install", f"linux-headers-{older}")
    assert host.states() == (None, NEW, NEW, NEW)
    assert host.driver()["kernels"][older]["headers"]
    assert len([built for built in host.driver()["dkms"] if built["state"] == "installed"]) == 2


def test_nouveau_in_the_way(host: Host, kernels: tuple[str, str]) -> None:
    other = kernels[1]
    host("sh", "-c", "grep -l nouveau /etc/modprobe.d/* /usr/lib/modprobe.d/* | xargs -r sed -i s/^blacklist/#/")
    assert host.driver()["kept_out"] == []
    host("grub-set-default", entry(host, other))
    host.reboot()
    assert host.kernel == other
    found = host.driver()
    assert [(rival["module"], len(rival["bound"])) for rival in found["rivals"]] == [("nouveau", 8)]
    assert found["nouveau_loaded"] and host.reasons() == {}
    host.apt("install", f"linux-headers-{other}")
    assert host.reasons() == {"nouveau_loaded": f"nouveau is bound to 8 devices, nvidia {NEW} is on disk"}
    assert host.run("modprobe", "nvidia").returncode == 1
    host("modprobe", "-r", "nouveau")
    host("modprobe", "nvidia")
    assert host.states() == (NEW, NEW, NEW, NEW)
    assert host.driver()["rivals"] == []


@pytest.fixture(scope="module")
def second(hosts: dict[str, Host]) -> Host:
    """Give a host whose GPUs take open modules alone. Its tests tell one story, too."""
    other = hosts["n2"]
    other.install(NEW, proprietary=True)
    other.apt("install", "unattended-upgrades")
    return other


def test_the_wrong_flavour_for_the_gpus(second: Host) -> None:
    assert second.run("modprobe", "nvidia").returncode == 1
    found = second.driver()
    assert (found["flavour"], found["loaded"]) == ("proprietary", None)
    assert second.states() == (None, NEW, NEW, NEW)
    second.take(NEW)
    second("modprobe", "nvidia")
    assert second.driver()["loaded"] == {"version": NEW, "flavour": "open"}


def test_firmware_of_another_branch(second: Host) -> None:
    second("mv", f"/usr/lib/firmware/nvidia/{NEW}", f"/usr/lib/firmware/nvidia/{OLD}")
    assert second.driver()["gsp_firmware"] == [OLD]
    second("mv", f"/usr/lib/firmware/nvidia/{OLD}", f"/usr/lib/firmware/nvidia/{NEW}")
    assert second.driver()["gsp_firmware"] == [NEW]


def test_secure_boot_and_the_key_of_dkms(second: Host) -> None:
    second.fault("secure-boot", "on")
    second.reboot()
    facts = second.observe()
    assert facts["host"]["secure_boot"] is True
    assert facts["driver"]["loaded"] is None
    assert "Key was rejected by service" in second.run("modprobe", "nvidia").stderr
    assert facts["driver"]["dkms_key"] == {"path": "/var/lib/dkms/mok.pub", "enrolled": False}
    second("mokutil", "--import", "/var/lib/dkms/mok.pub")
    assert second.driver()["dkms_key"]["enrolled"] is False
    second.fault("confirm-keys")
    second.reboot()
    found = second.driver()
    assert found["dkms_key"]["enrolled"] is True
    assert found["loaded"]["version"] == NEW


def test_what_keeps_packages_and_what_would_move_them(second: Host) -> None:
    automatic = second.observe()["updates"]["automatic"][0]
    assert (automatic["tool"], automatic["enabled"]) == ("unattended-upgrades", False)
    assert set(PACKAGES) <= set(automatic["exposed"])
    second.write("/etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    second("systemctl", "unmask", "apt-daily-upgrade.timer")
    second("systemctl", "enable", "apt-daily-upgrade.timer")
    assert second.observe()["updates"]["automatic"][0]["enabled"] is True
    second("apt-mark", "hold", "libcuda1", "apt")
    second.write("/etc/apt/apt.conf.d/52ours", 'Unattended-Upgrade::Package-Blacklist { "nvidia-"; "libnvidia"; };\n')
    second.write("/etc/apt/preferences.d/ours.pref", f"Package: *nvidia* libcuda1\nPin: version {NEW}-1\nPin-Priority: 1001\n")
    updates = second.observe()["updates"]
    assert updates["holds"] == ["apt", "libcuda1"]
    assert updates["automatic"][0]["exposed"] == ["firmware-nvidia-gsp"]
    assert updates["pins"] == [
        {"file": "/etc/apt/preferences.d/ours.pref", "packages": "*nvidia* libcuda1", "pin": f"version {NEW}-1", "priority": 1001},
    ]
    # apt and unattended-upgrades themselves read it the same way.
    assert f"libcuda1 -> {NEW}-1 with priority 1001" in second("apt-cache", "policy")
    assert '"nvidia-"' in second("apt-config", "dump", "Unattended-Upgrade::Package-Blacklist")


def test_owners(second: Host) -> None:
    assert second.observe()["owners"] == {"driver": "nvidia", "rdma": "inbox", "fabric_manager": "absent"}
    second.write("/etc/dgx-release", 'DGX_NAME="DGX Server"\n')
    assert second.observe()["owners"]["driver"] == "image"
