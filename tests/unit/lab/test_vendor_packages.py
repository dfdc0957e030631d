# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's packages and signatures, judged by the real dpkg, loader, gpgv and apt."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from lab.vendor.contents import LIBRARIES
from lab.vendor.deb import build_deb
from lab.vendor.elf import shared_object
from lab.vendor.signing import SigningKey
from lab.vendor.site import Offer, SiteTree, build, content_key
from lab.vendor.table import Package, load

TABLE = load()
needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg is not on this machine")


def pick(platform: str, name: str, release: str) -> Package:
    """Return one package of the table."""
    folder = next(item for item in TABLE.platforms if item.name == platform)
    return next(package for package in TABLE.packages(folder) if package.name == name and package.release.version == release)


def run(*line: str | Path) -> str:
    """Run a program and return what it printed."""
    return subprocess.run([str(word) for word in line], check=True, capture_output=True, text=True).stdout


@needs_dpkg
def test_dpkg_reads_the_packages_and_finds_libraries_with_their_links(tmp_path: Path) -> None:
    for name in ("libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-persistenced"):
        data, fields = build_deb(pick("debian12", name, "580.178.04"))
        path = tmp_path / f"{name}.deb"
        path.write_bytes(data)
        assert run("dpkg-deb", "--field", path, "Package", "Version") == f"Package: {name}\nVersion: 580.178.04-1\n"
        assert run("dpkg-deb", "--field", path, "Depends").strip() == fields["Depends"]
        run("dpkg-deb", "--extract", path, tmp_path / "root")
    libraries = tmp_path / "root" / LIBRARIES[1:]
    assert (libraries / "libnvidia-ml.so.1").readlink() == Path("libnvidia-ml.so.580.178.04")
    assert (libraries / "libcuda.so").readlink() == Path("libcuda.so.1")
    assert (libraries / "libcuda.so.1").resolve().name == "libcuda.so.580.178.04"
    assert (tmp_path / "root/usr/bin/nvidia-smi").read_text() == '#!/bin/sh\nexec /usr/local/lib/lab/nvidia-smi "$@"\n'
    assert "--user nvpd" in (tmp_path / "root/usr/lib/systemd/system/nvidia-persistenced.service").read_text()


@needs_dpkg
def test_maintainer_scripts_are_shell_and_control_lists_what_it_should(tmp_path: Path) -> None:
    checked = 0
    for platform in TABLE.platforms:
        for package in TABLE.packages(platform):
            if package.release.version != "580.178.04" or not (package.service or package.dkms or package.files):
                continue
            path = tmp_path / package.filename
            path.write_bytes(build_deb(package)[0])
            control = tmp_path / platform.name / package.name
            control.parent.mkdir(exist_ok=True)
            run("dpkg-deb", "--control", path, control)
            for script in ("postinst", "prerm", "postrm"):
                if (control / script).exists():
                    run("sh", "-n", control / script)
                    assert (control / script).stat().st_mode & 0o111
                    checked += 1
            if package.name == "nvidia-fabricmanager":
                assert (control / "conffiles").read_text() == "/usr/share/nvidia/nvswitch/fabricmanager.cfg\n"
                # The vendor leaves it to the operator to enable this unit.
                assert not (control / "postinst").exists()
            for line in (control / "md5sums").read_text().splitlines():
                assert len(line.split("  ")[0]) == 32
                assert not line.split("  ")[1].startswith("/")
    assert checked >= 12


def test_the_same_table_gives_the_same_bytes() -> None:
    package = pick("ubuntu2404", "nvidia-kernel-source-580-open", "580.178.04")
    assert build_deb(package) == build_deb(package)
    other = pick("ubuntu2404", "nvidia-kernel-source-580-open", "580.159.04")
    assert build_deb(other)[0] != build_deb(package)[0]


def test_flavours_differ_in_licence_and_releases_in_version(tmp_path: Path) -> None:
    for name, licence in (("nvidia-kernel-open-dkms", "Dual MIT/GPL"), ("nvidia-kernel-dkms", "NVIDIA")):
        data, _ = build_deb(pick("debian12", name, "535.274.02"))
        assert f'MODULE_LICENSE("{licence}")'.encode() in data
        assert b'MODULE_VERSION("535.274.02")' in data
        assert b'PACKAGE_VERSION="535.274.02"' in data
        assert b"@" not in data.replace(b"nvidia.com", b"").split(b"./usr/src")[-1]


def test_the_loader_takes_the_libraries(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.580.178.04"
    library.write_bytes(shared_object("libnvidia-ml.so.1", "libnvidia-ml.so 580.178.04"))
    ctypes.CDLL(str(library))
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    done = subprocess.run([ldconfig, "-n", str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert (tmp_path / "libnvidia-ml.so.1").readlink() == Path(library.name)


def test_the_site_is_built_once_and_its_key_stays(vendor_cache: Path, site: SiteTree) -> None:
    again = build(vendor_cache)
    assert again == site
    assert content_key() in site.root.parent.name
    assert [path.name for path in (vendor_cache / "vendor").glob("part-*")] == []
    secret = vendor_cache / "vendor/keys/site.secret.asc"
    assert secret.stat().st_mode & 0o077 == 0
    assert b"PRIVATE" not in site.key.read_bytes()
    assert not [path for path in site.root.rglob("*") if path.is_file() and b"PRIVATE KEY BLOCK" in path.read_bytes()]


def verify(folder: Path, public: Path, signed: bytes) -> subprocess.CompletedProcess[str]:
    """Check a signed list against an armoured key with gpgv."""
    ring, text = folder / "ring.gpg", folder / "InRelease"
    ring.write_bytes(subprocess.run(["gpg", "--dearmor"], input=public.read_bytes(), capture_output=True, check=True).stdout)
    text.write_bytes(signed)
    return subprocess.run(
        ["gpgv", "--status-fd", "1", "--keyring", str(ring), "--output", str(folder / "Release"), str(text)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_gpgv_accepts_the_signature_and_refuses_a_forged_one(tmp_path: Path, site: SiteTree) -> None:
    moment = 1_780_000_000.0
    lists = site.lists("debian12", Offer(), moment)
    done = verify(tmp_path, site.key, lists["InRelease"])
    assert done.returncode == 0
    assert f"VALIDSIG {site.fingerprint}" in done.stdout
    release = (tmp_path / "Release").read_text()
    assert "Origin: NVIDIA\nLabel: NVIDIA CUDA\n" in release
    assert "Date: Thu, 28 May 2026 20:26:40 UTC\n" in release
    assert f"{hashlib.sha256(lists['Packages.gz']).hexdigest()} " in release
    (tmp_path / "Release").unlink()
    assert verify(tmp_path, site.key, site.lists("debian12", Offer(), moment, forged=True)["InRelease"]).returncode != 0


def test_signing_leaves_no_agent_and_no_home(site: SiteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    homes: list[str] = []
    make = tempfile.mkdtemp

    def noted(**words: str) -> str:
        homes.append(make(**words))
        return homes[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    key: SigningKey = site.signer
    assert b"BEGIN PGP SIGNATURE" in key.detached(b"text")
    assert homes and not any(Path(home).exists() for home in homes)
    agents = [f"gpg-agent\0--homedir\0{home}\0".encode() for home in homes]
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if any(agent in read(path) for agent in agents)] == []


def read(path: Path) -> bytes:
    """Return a process's words; a process may be gone by now."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("offer", "there", "missing"),
    [
        (Offer(), {"580.159.04", "580.178.04", "535.274.02", "535.309.01"}, {"580.195.03"}),
        (Offer(newer=True), {"580.159.04", "580.178.04", "580.195.03"}, set()),
        (Offer(older=True), {"580.159.04", "535.274.02"}, {"580.178.04", "535.309.01", "580.195.03"}),
        (Offer(removed=frozenset({"580.159.04"})), {"580.178.04", "535.274.02"}, {"580.159.04"}),
        (Offer(newer=True, removed=frozenset({"580.159.04", "580.178.04"})), {"580.195.03"}, {"580.159.04", "580.178.04"}),
    ],
)
def test_offers(site: SiteTree, offer: Offer, there: set[str], missing: set[str]) -> None:
    text = site.lists("debian12", offer, 1_780_000_000.0)["Packages"].decode()
    versions = {line.removeprefix("Version: ").removesuffix("-1") for line in text.splitlines() if line.startswith("Version: ")}
    assert there <= versions
    assert not missing & versions
