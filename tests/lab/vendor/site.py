# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the site: all packages once, and the signed lists of a folder for whatever the site is to offer at the moment."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.vendor import repodata
from lab.vendor.contents import entries
from lab.vendor.deb import build_deb
from lab.vendor.rpm import Rpm, Sign, build_rpm
from lab.vendor.scripts import scriptlets
from lab.vendor.signing import SigningKey, obtain
from lab.vendor.table import Package, Platform, Table, load

REPOSITORIES = "compute/cuda/repos"
ARCHITECTURE_FOLDER = "x86_64"
VENDOR = "NVIDIA Corporation"
ARCHITECTURES = {"amd64": "x86_64"}
OWNER = "cudatools (lab) <cudatools@vendor.lab>"
IMPOSTOR = "somebody else (lab) <somebody@else.lab>"


@dataclass(frozen=True)
class Offer:
    """What the site offers: the usual, or another time's state of the same site."""

    newer: bool = False
    older: bool = False
    removed: frozenset[str] = frozenset()

    def holds(self, record: dict[str, Any], records: list[dict[str, Any]]) -> bool:
        """Tell whether a package is offered; `older` leaves each branch without its newest release."""
        if record["once"]:
            return True
        if record["unreleased"] and not self.newer:
            return False
        if record["release"] in self.removed:
            return False
        if self.older:
            same = {other["release"] for other in records if other["branch"] == record["branch"] and not other["unreleased"]}
            return bool(record["release"] != max(same, key=release_key))
        return True


@dataclass(frozen=True)
class SiteTree:
    """A built site: `root` is its document root, `key` the armoured public key, `fingerprint` that key's."""

    root: Path
    fingerprint: str
    key: Path
    signer: SigningKey
    impostor: SigningKey
    records: dict[str, list[dict[str, Any]]] = field(repr=False)

    def lists(self, platform: str, offer: Offer, moment: float, *, forged: bool = False) -> dict[str, bytes]:
        """Return the lists of a platform's folder, dated and signed."""
        every = self.records[platform]
        chosen = [record for record in every if offer.holds(record, every)]
        signer = self.impostor if forged else self.signer
        if "xml" in (every or [{}])[0]:
            made = repodata.lists([record["xml"] for record in chosen], streams(chosen, flipped=offer.newer, moment=moment), moment)
            return {**made, repodata.SIGNATURE: signer.detached(made[repodata.INDEX])}
        packages = "\n".join(record["stanza"] for record in chosen).encode()
        files = {"Packages": packages, "Packages.gz": gzip.compress(packages, 6, mtime=0)}
        release = release_file(files, moment)
        return {**files, "Release": release, "Release.gpg": signer.detached(release), "InRelease": signer.clearsign(release)}


def streams(records: list[dict[str, Any]], *, flipped: bool, moment: float) -> str:
    """Return the streams of the vendor's module: BRANCH-open, BRANCH-dkms, and those of whatever is newest; the default one has flipped once."""
    found: dict[str, list[str]] = {}
    for record in (one for one in records if not one["once"]):
        for flavour, end in (("open", "open"), ("proprietary", "dkms")):
            if record["flavour"] in (None, flavour):
                for stream in (f"{record['branch']}-{end}", "open-dkms" if end == "open" else "latest-dkms"):
                    found.setdefault(stream, []).append(record["nevra"])
    module = next((record["module"] for record in records if record["module"]), None)
    return repodata.modules(module, found, "open-dkms" if flipped else "latest-dkms", moment) if module else ""


def release_key(version: str) -> tuple[int, ...]:
    """Return what driver releases sort by."""
    return tuple(int(part) for part in version.split("."))


def release_file(files: dict[str, bytes], moment: float) -> bytes:
    """Return a Release file as the real site has it: flat, without suite and validity."""
    date = datetime.datetime.fromtimestamp(int(moment), datetime.UTC)
    lines = [
        "Origin: NVIDIA",
        "Label: NVIDIA CUDA",
        "Architectures: amd64",
        "Description: the lab's stand-in for the CUDA network repository",
        f"Date: {date:%a, %d %b %Y %H:%M:%S} UTC",
    ]
    for title, algorithm in (("MD5Sum", "md5"), ("SHA1", "sha1"), ("SHA256", "sha256"), ("SHA512", "sha512")):
        lines.append(f"{title}:")
        lines += [f" {hashlib.new(algorithm, data).hexdigest()} {len(data):>16} {name}" for name, data in files.items()]
    return "\n".join(lines).encode() + b"\n"


def content_key() -> str:
    """Return a hash over everything that a built site depends on: the table, what lies in packages, and this code."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("packages/*"), *folder.glob("payload/*")]):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def build(cache: Path) -> SiteTree:
    """Build the site, or find it built: seconds the first time, then nothing."""
    vendor = cache / "vendor"
    signer = obtain(vendor / "keys", "site", OWNER)
    impostor = obtain(vendor / "keys", "impostor", IMPOSTOR)
    wheels = vendor / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    target = vendor / f"site-{content_key()}-{signer.fingerprint[:8]}"
    if not target.exists():
        part = Path(tempfile.mkdtemp(prefix="part-", dir=vendor))
        try:
            _fill(part, load(), signer)
            (part / "root/whl").symlink_to(wheels.resolve())
            part.chmod(0o755)
            part.rename(target)
        except OSError:
            # Another process may have built the same site meanwhile; whatever else went wrong shows below.
            if not target.exists():
                raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
    records = json.loads((target / "records.json").read_text())
    return SiteTree(target / "root", signer.fingerprint, signer.public, signer, impostor, records)


def _fill(part: Path, table: Table, signer: SigningKey) -> None:
    """Write every package and key file, and the records that the lists are made from."""
    records: dict[str, list[dict[str, Any]]] = {}
    with signer.packages() as sign:
        for platform in table.platforms:
            folder = part / "root" / REPOSITORIES / platform.name / ARCHITECTURE_FOLDER
            folder.mkdir(parents=True)
            shutil.copy(signer.public, folder / platform.key_file)
            records[platform.name] = [_add(folder, platform, package, sign) for package in table.packages(platform)]
    (part / "records.json").write_text(json.dumps(records))


def _add(folder: Path, platform: Platform, package: Package, sign: Sign) -> dict[str, Any]:
    """Write a package's file and return its record."""
    release = package.release
    record = {"release": release.version, "branch": release.branch, "unreleased": release.unreleased, "once": package.once}
    if platform.rpm:
        rpm = as_rpm(package)
        data, header = build_rpm(rpm, sign)
        (folder / rpm.filename).write_bytes(data)
        more = {"nevra": rpm.nevra, "flavour": package.flavour, "module": platform.module, "xml": repodata.entry(rpm, data, header)}
        return {**record, "file": rpm.filename, **more}
    data, fields = build_deb(package)
    (folder / package.filename).write_bytes(data)
    description = fields.pop("Description")
    fields |= {"Filename": f"./{package.filename}", "Size": str(len(data))}
    fields |= {name: hashlib.new(name.lower(), data).hexdigest() for name in ("SHA1", "SHA256", "SHA512")}
    stanza = "".join(f"{key}: {value}\n" for key, value in {**fields, "Description": description}.items())
    return {**record, "file": package.filename, "stanza": stanza}


def as_rpm(package: Package) -> Rpm:
    """Return a row's package in the form of RPM."""
    relations = {"requires": "depends", "recommends": "recommends", "provides": "provides", "conflicts": "conflicts", "obsoletes": "obsoletes"}
    return Rpm(
        name=package.name,
        evr=package.version,
        arch=ARCHITECTURES.get(package.architecture, package.architecture),
        summary=package.description,
        files=entries(package),
        relations={kind: list(package.relations.get(key, [])) for kind, key in relations.items()},
        scripts=scriptlets(package),
        vendor=VENDOR,
    )
