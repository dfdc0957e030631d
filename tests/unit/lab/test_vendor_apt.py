# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site as the real apt sees it, with a root of its own and nothing of this machine's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from unit.lab.vendor_clients import Apt, Served

FOLDER = "/compute/cuda/repos/debian12/x86_64"
COMPUTE = ["nvidia-driver-cuda", "nvidia-kernel-open-dkms"]
KINDS = ("535.309.01", "575.57.08", "580.178.04", "590.48.01", "610.57.04", "620.10.01")
pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not on this machine")


@pytest.fixture
def apt(served: Served, tmp_path: Path) -> Apt:
    """Give an apt that has not looked at the site yet."""
    return Apt(tmp_path / "apt", served.port, served.tree)


def updated(apt: Apt) -> Apt:
    """Return apt after an update without a complaint."""
    done = apt("update", "-o", "APT::Update::Error-Mode=any")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "W:" not in done.stderr
    return apt


def test_apt_trusts_the_site_and_plans_the_compute_set(apt: Apt) -> None:
    plan = updated(apt).plan(*COMPUTE)
    assert plan["nvidia-driver-cuda"] == plan["nvidia-kernel-open-dkms"] == plan["nvidia-persistenced"] == "620.10.01-1"
    assert {"libcuda1", "libnvidia-ml1", "nvidia-kernel-support", "firmware-nvidia-gsp", "nvidia-modprobe"} <= set(plan)
    assert "nvidia-kernel-dkms" not in plan
    assert not any(name.startswith(("libnvidia-glcore", "nvidia-driver-libs")) for name in plan)


def test_apt_keeps_to_the_branch_that_a_pinning_package_chose(apt: Apt, tmp_path: Path, served: Served) -> None:
    updated(apt)
    (tmp_path / "pin").mkdir()
    deb = tmp_path / "pin.deb"
    deb.write_bytes(served.get(f"{FOLDER}/nvidia-driver-pinning-580.159.04_580.159.04-1_all.deb")[2])
    subprocess.run(["dpkg-deb", "--extract", str(deb), str(tmp_path / "pin")], check=True)
    shutil.copytree(tmp_path / "pin/etc/apt/preferences.d", apt.root / "etc/apt/preferences.d", dirs_exist_ok=True)
    assert apt.plan(*COMPUTE)["nvidia-driver-cuda"] == "580.159.04-1"


def test_apt_refuses_a_forged_list_and_both_flavours_at_once(apt: Apt, served: Served) -> None:
    served.fault("bad-signature")
    done = apt("update", "-o", "APT::Update::Error-Mode=any")
    assert done.returncode != 0
    assert "NO_PUBKEY" in done.stderr or "not signed" in done.stderr or "Missing key" in done.stderr
    served.fault("ok")
    updated(apt)
    assert apt("-s", "install", "nvidia-kernel-open-dkms", "nvidia-kernel-dkms").returncode != 0


@pytest.mark.parametrize("platform", ["debian12", "debian13", "ubuntu2404"])
def test_apt_can_install_every_package_of_the_site(served: Served, tmp_path: Path, platform: str) -> None:
    apt = updated(Apt(tmp_path / "root", served.port, served.tree, platform))
    text = served.get(f"/compute/cuda/repos/{platform}/x86_64/Packages")[2].decode()
    names = [(part.split("\n")[0].removeprefix("Package: "), part.split("\nVersion: ")[1].split("\n")[0]) for part in text.split("\n\n") if part]
    assert len(names) > 50
    # One of each kind of names that the vendor has had; the others have the same relations.
    newest = [(name, version) for name, version in names if version.startswith(KINDS)]
    closures = dict.fromkeys(KINDS, 0)
    for name, version in newest:
        release = version.split("-")[0]
        rest = [f"{other}={that}" for other, that in names if that.startswith(release)]
        done = apt("-s", "--no-install-recommends", "install", f"{name}={version}", *dependencies(text, name, version, rest))
        assert done.returncode == 0, done.stdout + done.stderr
        closures[release] += 1
    branches = [release for release in KINDS if any(version.startswith(release) for _, version in names)]
    assert {"580.178.04", "590.48.01", "620.10.01"} <= set(branches) and all(closures[release] > 15 for release in branches), closures


def dependencies(text: str, name: str, version: str, rest: list[str]) -> list[str]:
    """Return the packages of the same release that a package needs, by exact version: without them apt takes the newest of the site."""
    exact = dict(item.split("=") for item in rest)
    needed: dict[str, str] = {}
    queue = [(name, version)]
    while queue:
        record = next(part for part in text.split("\n\n") if f"Package: {queue[0][0]}\nVersion: {queue[0][1]}\n" in part + "\n")
        queue.pop(0)
        line = next((line for line in record.splitlines() if line.startswith("Depends: ")), "Depends: ")
        # Sole choices first: they may be among the alternatives of another relation.
        for item in sorted(line.removeprefix("Depends: ").split(", "), key=lambda item: " | " in item):
            choices = [choice.split(" (")[0] for choice in item.split(" | ")]
            if choices[0] in exact and not set(choices) & set(needed):
                needed[choices[0]] = exact[choices[0]]
                queue.append((choices[0], exact[choices[0]]))
    return [f"{first}={that}" for first, that in needed.items() if first != name]


def test_apt_sees_each_change_of_the_site(apt: Apt, served: Served) -> None:
    def newest() -> str:
        return updated(apt).plan("libnvidia-ml1=580.*")["libnvidia-ml1"]

    assert newest() == "580.178.04-1"
    served.fault("newer")
    served.fault("removed", "580.159.04")
    assert newest() == "580.195.03-1"
    assert apt("-s", "install", "libcuda1=580.159.04-1").returncode != 0
    served.fault("ok")
    assert newest() == "580.178.04-1"
    assert apt("-s", "install", "libcuda1=580.159.04-1", "libnvidia-ptxjitcompiler1=580.159.04-1").returncode == 0


def test_apt_downloads_and_notices_half_a_file(apt: Apt, served: Served) -> None:
    updated(apt)
    served.fault("half", "path=*.deb")
    done = apt("-y", "--download-only", "--no-install-recommends", "install", "libnvidia-ml1")
    assert done.returncode != 0, done.stdout
    archives = apt.root / "var/cache/apt/archives"
    assert list(archives.glob("*.deb")) == []
    served.fault("ok")
    done = apt("-y", "--download-only", "--no-install-recommends", "install", "libnvidia-ml1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in archives.glob("*.deb")] == ["libnvidia-ml1_620.10.01-1_amd64.deb"]


def test_apt_names_a_site_that_is_gone(apt: Apt, served: Served) -> None:
    served.fault("gone")
    done = apt("update", "-o", "APT::Update::Error-Mode=any")
    assert done.returncode != 0
    assert "503" in done.stderr
