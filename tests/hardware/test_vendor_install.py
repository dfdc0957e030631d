# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's packages on running hosts: installed, built, changed and removed by the real apt, dpkg, dkms and systemd."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab.client import HostSpec, Lab
from own_lab import own_lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hosts need root")

HOSTS = {"debian12": "n1", "debian13": "n2", "ubuntu2404": "n3"}
KEYS = {"debian12": "3bf863cc.pub", "debian13": "8793F200.pub", "ubuntu2404": "3bf863cc.pub"}
DEBIAN = [
    *("nvidia-driver-cuda", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-opencl-icd", "nvidia-modprobe"),
    *("nvidia-kernel-open-dkms", "nvidia-kernel-support", "firmware-nvidia-gsp", "nvidia-persistenced", "nvidia-fabricmanager"),
]
UBUNTU = (
    "nvidia-utils-{b} libnvidia-compute-{b} libnvidia-decode-{b} libnvidia-cfg1-{b} nvidia-modprobe nvidia-dkms-{b}-open "
    "nvidia-kernel-source-{b}-open nvidia-kernel-common-{b} nvidia-firmware-{b} {persistence} {fabric}"
)
APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-q", "--no-install-recommends"]
OLD, NEW, EARLIER = "580.159.04", "580.178.04", "535.309.01"


class Machine:
    """A host of the lab that knows the vendor's site."""

    def __init__(self, lab: Lab, platform: str) -> None:
        """Trust the site's key and fetch its lists."""
        self.lab, self.platform, self.host = lab, platform, HOSTS[platform]
        self.url = f"http://vendor.lab/compute/cuda/repos/{platform}/x86_64/"
        self("curl", "-fsS", "-o", "/etc/apt/vendor.asc", self.url + KEYS[platform])
        self.lab.run(self.host, "cat >/etc/apt/sources.list.d/vendor.list", f"deb [signed-by=/etc/apt/vendor.asc] {self.url} /\n")
        self.update()

    def __call__(self, *words: str) -> str:
        """Run a program that must succeed and return what it printed."""
        done = self.lab.run(self.host, list(words))
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def update(self) -> None:
        """Fetch the site's lists alone."""
        only = ("-o", "Dir::Etc::sourcelist=/etc/apt/sources.list.d/vendor.list", "-o", "Dir::Etc::sourceparts=-")
        self("apt-get", "-q", "update", "-o", "APT::Update::Error-Mode=any", "-o", "APT::Get::List-Cleanup=0", *only)

    def install(self, version: str, names: list[str], companions: tuple[str, ...] = ("nvidia-fabricmanager",)) -> str:
        """Install packages in one exact version."""
        new, old = ("-1ubuntu1", "-0ubuntu1") if self.platform == "ubuntu2404" else ("-1", "-1")
        recent = int(version.split(".", maxsplit=1)[0]) >= 580
        exact = [f"{name}={version}{new if recent else '-1' if name.startswith(companions) else old}" for name in names]
        return self(*APT, "--allow-downgrades", "install", *exact)

    def module(self, field: str, name: str = "nvidia") -> str:
        """Return a field of the built module for the host's kernel."""
        return self("modinfo", "-F", field, name)

    def modules(self) -> list[str]:
        """Return what dkms has for which kernel, as `nvidia/VERSION: STATE`."""
        kernel = self("uname", "-r")
        return [line.replace(f", {kernel}, x86_64", "") for line in self("dkms", "status").splitlines()]

    def library(self, name: str = "libnvidia-ml.so.1") -> str:
        """Return the version of the user space: the name behind its link."""
        return self("readlink", "-f", f"/usr/lib/x86_64-linux-gnu/{name}").rpartition(".so.")[2]

    def says(self, *words: str) -> str:
        """Return the first word that a program prints, whatever its exit status."""
        return self.lab.run(self.host, list(words)).stdout.split("\n")[0]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Give a lab of this module's own: a host of each platform."""
    with own_lab("vendor-install", [HostSpec(name, platform, "h100-sxm8") for platform, name in HOSTS.items()]) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def bookworm(lab: Lab) -> Machine:
    """Give the Debian 12 host; its tests tell one story, in order."""
    return Machine(lab, "debian12")


def test_the_open_set_is_installed_and_built(bookworm: Machine) -> None:
    bookworm.install(OLD, DEBIAN)
    assert bookworm.modules() == [f"nvidia/{OLD}: installed"]
    assert bookworm.module("version") == OLD
    assert bookworm.module("license") == "Dual MIT/GPL"
    assert bookworm.module("depends", "nvidia-drm") == "nvidia-modeset"
    assert bookworm.module("vermagic").split()[0] == bookworm("uname", "-r")
    assert f"nvidia/{OLD}/gsp_ga10x.bin" in bookworm.module("firmware")
    assert bookworm("ls", f"/usr/lib/firmware/nvidia/{OLD}/gsp_ga10x.bin")
    assert bookworm.library() == bookworm.library("libcuda.so.1") == OLD
    assert "libcuda.so.1" in bookworm("ldconfig", "-p")
    assert bookworm("dpkg", "--verify", *DEBIAN) == ""


def test_installing_enables_one_unit_and_leaves_the_other(bookworm: Machine) -> None:
    assert bookworm("systemctl", "is-enabled", "nvidia-persistenced.service") == "enabled"
    assert bookworm.says("systemctl", "is-enabled", "nvidia-fabricmanager.service") == "disabled"
    assert bookworm("id", "--user", "nvpd") != "0"
    # No driver is loaded yet, so the daemon could not start; it does once there is one.
    assert bookworm.says("systemctl", "is-active", "nvidia-persistenced.service") != "active"
    bookworm("modprobe", "nvidia")
    bookworm("systemctl", "reset-failed", "nvidia-persistenced.service")
    bookworm("systemctl", "start", "nvidia-persistenced.service", "nvidia-fabricmanager.service")
    for unit in ("nvidia-persistenced", "nvidia-fabricmanager"):
        assert bookworm("systemctl", "is-active", unit) == "active"
        process = bookworm("systemctl", "show", "--property=MainPID", "--value", unit)
        assert bookworm("cat", f"/run/{unit}/{unit.replace('nvidia-fabric', 'nv-fabric')}.pid") == process


def test_an_upgrade_changes_disk_and_user_space_but_not_what_is_loaded(bookworm: Machine) -> None:
    bookworm("sed", "-i", "s/^FABRIC_MODE=0/FABRIC_MODE=1/", "/usr/share/nvidia/nvswitch/fabricmanager.cfg")
    bookworm.install(NEW, DEBIAN)
    assert bookworm.modules() == [f"nvidia/{NEW}: installed"]
    assert bookworm.module("version") == bookworm.library() == NEW
    assert bookworm("cat", "/sys/module/nvidia/version") == OLD
    # An operator's edit of a configuration file outlives the upgrade.
    assert bookworm("grep", "^FABRIC_MODE=", "/usr/share/nvidia/nvswitch/fabricmanager.cfg") == "FABRIC_MODE=1"
    assert not bookworm("find", "/usr/src", "-name", f"nvidia-{OLD}")


def test_a_downgrade_and_another_flavour(bookworm: Machine) -> None:
    bookworm.install(OLD, DEBIAN)
    assert bookworm.modules() == [f"nvidia/{OLD}: installed"]
    assert bookworm.library() == OLD
    said = bookworm.install(OLD, ["nvidia-kernel-dkms"])
    assert "The following packages will be REMOVED:\n  nvidia-kernel-open-dkms" in said
    assert bookworm.modules() == [f"nvidia/{OLD}: installed"]
    assert bookworm.module("license") == "NVIDIA"


def test_another_branch_renames_the_companions(bookworm: Machine) -> None:
    names = [name.replace("fabricmanager", "fabricmanager-535") for name in DEBIAN]
    said = bookworm.install(EARLIER, names)
    assert "nvidia-fabricmanager*" not in said
    assert bookworm.says("dpkg-query", "-W", "-f", "${Status}", "nvidia-fabricmanager-535") == "install ok installed"
    assert "installed" not in bookworm.says("dpkg-query", "-W", "-f", "${db:Status-Status}", "nvidia-fabricmanager").replace("not-installed", "")
    assert bookworm.modules() == [f"nvidia/{EARLIER}: installed"]
    assert (bookworm.module("version"), bookworm.module("license"), bookworm.library()) == (EARLIER, "Dual MIT/GPL", EARLIER)


def test_a_pinning_package_keeps_the_branchless_names_to_its_release(bookworm: Machine) -> None:
    bookworm.install(OLD, [f"nvidia-driver-pinning-{OLD}"])
    said = bookworm("apt-get", "-s", "--no-install-recommends", "install", "nvidia-driver-cuda", "nvidia-kernel-open-dkms")
    assert f"Inst nvidia-driver-cuda [{EARLIER}-1] ({OLD}-1 " in said
    bookworm(*APT, "purge", f"nvidia-driver-pinning-{OLD}")


def test_what_the_site_no_longer_has_cannot_be_installed(bookworm: Machine, lab: Lab) -> None:
    lab.fault("site", "removed", OLD)
    try:
        bookworm.update()
        assert lab.run(bookworm.host, [*APT, "-s", "install", f"libnvidia-ml1={OLD}-1"]).returncode != 0
        bookworm("apt-get", "-s", "install", f"libnvidia-ml1={NEW}-1")
    finally:
        lab.fault("site", "ok")
    bookworm.update()
    bookworm("apt-get", "-s", "--allow-downgrades", "install", f"libnvidia-ml1={OLD}-1")


def test_a_site_that_is_gone_leaves_the_host_as_it_was(bookworm: Machine, lab: Lab) -> None:
    bookworm("apt-get", "clean")
    lab.fault("site", "gone")
    try:
        done = lab.run(bookworm.host, [*APT, "install", *(f"{name}={NEW}-1" for name in DEBIAN)])
    finally:
        lab.fault("site", "ok")
    assert done.returncode != 0
    assert "503" in done.stderr
    assert bookworm.library() == EARLIER
    assert bookworm.modules() == [f"nvidia/{EARLIER}: installed"]


def test_a_purge_leaves_nothing(bookworm: Machine) -> None:
    bookworm(*APT, "--autoremove", "purge", "*nvidia*", "libcuda1")
    assert bookworm.modules() == []
    assert bookworm.says("find", "/etc/systemd/system", "/usr/src", "/lib/modules", "-maxdepth", "4", "-name", "nvidia*") == ""
    assert bookworm.says("sh", "-c", "dpkg-query -W -f '${Package}\\n' '*nvidia*' 'libcuda1' 2>/dev/null") == ""


def test_trixie_checks_the_signature_its_own_way_and_builds(lab: Lab) -> None:
    trixie = Machine(lab, "debian13")
    assert trixie.install(NEW, DEBIAN)
    assert trixie.modules() == [f"nvidia/{NEW}: installed"]
    assert trixie.module("version") == trixie.library() == NEW
    lab.fault("site", "bad-signature")
    try:
        with pytest.raises(AssertionError, match=r"Missing key|NO_PUBKEY|not signed"):
            trixie.update()
    finally:
        lab.fault("site", "ok")
    trixie.update()


@pytest.mark.parametrize(
    ("version", "branch", "persistence", "fabric"),
    [(EARLIER, "535", "nvidia-compute-utils-535", "nvidia-fabricmanager-535"), (NEW, "580", "nvidia-persistenced", "nvidia-fabricmanager")],
)
def test_names_of_ubuntu(lab: Lab, version: str, branch: str, persistence: str, fabric: str) -> None:
    noble = Machine(lab, "ubuntu2404")
    noble.install(version, UBUNTU.format(b=branch, persistence=persistence, fabric=fabric).split())
    assert noble.modules() == [f"nvidia/{version}: installed"]
    assert (noble.module("version"), noble.library(), noble.module("license")) == (version, version, "Dual MIT/GPL")
    assert noble("systemctl", "is-enabled", "nvidia-persistenced.service") == "enabled"
    assert noble("id", "--user", "nvidia-persistenced") != "0"
