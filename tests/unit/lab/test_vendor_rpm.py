# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's packages for dnf: their bytes, their lists and their streams. What the real rpm and dnf make of them the tests on a host see."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from lab.vendor.contents import Entry
from lab.vendor.rpm import Rpm, build_rpm
from lab.vendor.site import Offer, SiteTree, as_rpm
from lab.vendor.table import load
from unit.lab.vendor_clients import Served

TABLE = load()
RHEL9 = next(platform for platform in TABLE.platforms if platform.name == "rhel9")
FOLDER = "compute/cuda/repos/rhel9/x86_64"
PRIMARY = "{http://linux.duke.edu/metadata/common}"
REPO = "{http://linux.duke.edu/metadata/repo}"


def pick(name: str, release: str) -> Rpm:
    """Return one package of the table."""
    return next(as_rpm(package) for package in TABLE.packages(RHEL9) if package.name == name and package.release.version == release)


def streams(lists: dict[str, bytes]) -> tuple[dict[str, list[str]], str]:
    """Return the packages of each stream, and the default one."""
    documents = list(yaml.safe_load_all(gzip.decompress(lists["repodata/modules.yaml.gz"])))
    found = {one["data"]["stream"]: one["data"]["artifacts"]["rpms"] for one in documents if one["document"] == "modulemd"}
    return found, next(one["data"]["stream"] for one in documents if one["document"] == "modulemd-defaults")


def test_the_same_package_has_the_same_bytes_and_another_release_has_others() -> None:
    assert build_rpm(pick("kmod-nvidia-open-dkms", "580.178.04")) == build_rpm(pick("kmod-nvidia-open-dkms", "580.178.04"))
    assert build_rpm(pick("kmod-nvidia-open-dkms", "580.178.04"))[0] != build_rpm(pick("kmod-nvidia-open-dkms", "580.159.04"))[0]


def test_names_and_versions_come_apart_as_rpm_takes_them() -> None:
    cuda, manager = pick("nvidia-driver-cuda", "580.178.04"), pick("nvidia-fabricmanager", "580.178.04")
    assert (cuda.epoch, cuda.version, cuda.release, cuda.filename) == ("3", "580.178.04", "1.el9", "nvidia-driver-cuda-580.178.04-1.el9.x86_64.rpm")
    assert cuda.nevra == "nvidia-driver-cuda-3:580.178.04-1.el9.x86_64"
    assert (manager.epoch, manager.nevra) == ("0", "nvidia-fabricmanager-0:580.178.04-1.x86_64")
    assert pick("nvidia-kmod-common", "580.178.04").arch == "noarch"
    assert ("libcuda.so.1()(64bit)", 0, "") in pick("nvidia-driver-cuda-libs", "580.178.04").related("provides")


def test_a_relation_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no relation"):
        build_rpm(Rpm("one", "1-1", "noarch", "one", relations={"requires": ["two (~ 3)"]}))


@pytest.mark.skipif(not shutil.which("rpm"), reason="rpm is not on this machine")
def test_rpm_reads_what_was_written(tmp_path: Path) -> None:
    made = Rpm(
        "some-thing", "3:1.2-1.el9", "x86_64", "A thing",
        [Entry("/etc/some.conf", b"a=1\n", conffile=True), Entry("/opt/some", mode=0o750), Entry("/usr/bin/some", link="other")],
        {"requires": ["bash (>= 4.0)"], "conflicts": ["no-thing"]}, {"post": "echo $1\n"},
    )  # fmt: skip
    (tmp_path / made.filename).write_bytes(build_rpm(made)[0])

    def ask(*words: str) -> str:
        return subprocess.run(["rpm", "-qp", *words, str(tmp_path / made.filename)], capture_output=True, text=True, check=True).stdout

    assert ask("--qf", "%{NEVRA} %{SUMMARY}") == "some-thing-3:1.2-1.el9.x86_64 A thing"
    assert ask("--qf", "[%{FILENAMES} %{FILEMODES:perms} %{FILELINKTOS}\n]").splitlines() == [
        "/etc/some.conf -rw-r--r-- ", "/opt/some drwxr-x--- ", "/usr/bin/some lrwxrwxrwx other",
    ]  # fmt: skip
    assert ask("--configfiles") == "/etc/some.conf\n"
    assert {"bash >= 4.0"} <= set(ask("--requires").splitlines()) and ask("--conflicts") == "no-thing\n"
    assert "echo $1" in ask("--scripts")
    checked = subprocess.run(["rpm", "-Kv", "--nosignature", str(tmp_path / made.filename)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0 and checked.stdout.count(": OK") == 4, checked.stdout


def test_scriptlets_are_shell() -> None:
    texts = [text for package in TABLE.packages(RHEL9) for text in as_rpm(package).scripts.values()]
    assert len(texts) > 20
    for text in sorted(set(texts)):
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_lists_name_every_package_with_its_own_sum(site: SiteTree) -> None:
    lists = site.lists("rhel9", Offer(), 1.8e9)
    root = ET.fromstring(gzip.decompress(lists["repodata/primary.xml.gz"]))
    rows = {row.find(f"{PRIMARY}location").get("href"): row.findtext(f"{PRIMARY}checksum") for row in root}  # type: ignore[union-attr]
    assert len(rows) == int(root.get("packages", "0")) > 50
    for name, digest in rows.items():
        assert hashlib.sha256((site.root / FOLDER / str(name)).read_bytes()).hexdigest() == digest
    index = ET.fromstring(lists["repodata/repomd.xml"])
    for data in index.findall(f"{REPO}data"):
        path = data.find(f"{REPO}location").get("href")  # type: ignore[union-attr]
        assert data.findtext(f"{REPO}checksum") == hashlib.sha256(lists[str(path)]).hexdigest()
    assert not any("580.195.03" in str(name) for name in rows)
    later = site.lists("rhel9", Offer(newer=True), 1.8e9)
    assert b"580.195.03" in gzip.decompress(later["repodata/primary.xml.gz"])


def test_streams_choose_branch_and_flavour_and_the_default_one_flips(site: SiteTree) -> None:
    found, default = streams(site.lists("rhel9", Offer(), 1.8e9))
    assert {"535-open", "535-dkms", "580-open", "580-dkms", "open-dkms", "latest-dkms"} <= set(found)
    assert default == "latest-dkms"
    assert "kmod-nvidia-open-dkms-3:580.178.04-1.el9.x86_64" in found["580-open"]
    assert not any("latest-dkms" in name or "535" in name for name in found["580-open"])
    assert not any("open" in name for name in found["580-dkms"])
    assert {"nvidia-driver-cuda-3:535.309.01-1.el9.x86_64", "nvidia-driver-cuda-3:580.178.04-1.el9.x86_64"} <= set(found["latest-dkms"])
    assert streams(site.lists("rhel9", Offer(newer=True), 1.8e9))[1] == "open-dkms"


def test_the_signature_of_the_lists_is_the_sites_or_a_forged_one(served: Served, tmp_path: Path) -> None:
    def signer() -> str:
        (tmp_path / "signature").write_bytes(served.get(f"/{FOLDER}/repodata/repomd.xml.asc")[2])
        (tmp_path / "text").write_bytes(served.get(f"/{FOLDER}/repodata/repomd.xml")[2])
        ring = tmp_path / "ring.gpg"
        ring.write_bytes(subprocess.run(["gpg", "--dearmor"], input=served.tree.key.read_bytes(), capture_output=True, check=True).stdout)
        words = ["gpgv", "--keyring", str(ring), str(tmp_path / "signature"), str(tmp_path / "text")]
        return "good" if subprocess.run(words, capture_output=True, check=False).returncode == 0 else "bad"

    assert signer() == "good"
    served.fault("bad-signature")
    assert signer() == "bad"


def test_a_removed_release_is_neither_listed_nor_served(served: Served) -> None:
    path = f"/{FOLDER}/nvidia-driver-cuda-580.159.04-1.el9.x86_64.rpm"
    assert served.get(path)[0] == 200
    served.fault("removed", "580.159.04")
    assert served.get(path)[0] == 404
    assert b"580.159.04" not in gzip.decompress(served.get(f"/{FOLDER}/repodata/primary.xml.gz")[2])
