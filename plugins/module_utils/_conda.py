# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Conda installations and environments, from the names of the records in conda-meta; no conda is started."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _python_env
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._conf import Mounts
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

NAMES = ("conda", "miniconda3", "miniconda", "anaconda3", "miniforge3", "mambaforge", "micromamba", "mamba")
PREFIXES = tuple(folder + name for folder in ("/opt/", "/usr/local/", "/root/") for name in NAMES)
LISTS = ("/root/.conda/environments.txt",)
PROFILE = later(r"(/[\w./+-]+?)/(?:bin/(?:conda|mamba|micromamba)|condabin/conda|etc/profile\.d/(?:conda|mamba|micromamba)\.sh)\b")
RECORD = later(r"(.+)-([^-]+)-([^-]+)\.json$")
CHANNEL = later(r'"channel"\s*:\s*"((?:[^"\\]|\\.)*)"')
PLATFORM = later(r"/(?:linux-\w+|noarch)/?$")
CUDA_BUILD = later(r"(?:^|_)cuda(\d+)(?:\.(\d+))?(?:_|$)")
# Packages whose versions a torch build is judged by, and what brings each of them.
BUNDLED = {"cudnn": ("libcudnn", "cudnn"), "nccl": ("nccl",)}
TORCH = ("pytorch", "libtorch")
# An environment has hundreds of packages; these say what torch works with.
TOLD = later(r"(?:lib)?(?:py)?torch|cuda|(?:lib)?cud|nccl|nvidia|triton|python$|numpy$")
MOST = 64


def records(names: t.Iterable[str]) -> dict[str, tuple[str, str]]:
    """(version, build) by package, from the names of the files in conda-meta."""
    return {match.group(1): (match.group(2), match.group(3)) for match in map(RECORD.match, names) if match}


def channel(text: str) -> str | None:
    """Name of the channel in the beginning of a record: conda-forge, pkgs/main. Tokens and hosts of a URL stay where they are."""
    match = CHANNEL.search(text)
    if match is None:
        return None
    path = PLATFORM.sub("", match.group(1).replace("\\/", "/"))
    path = re.sub(r"^\w+://[^/]*/", "", path)
    return re.sub(r"^(?:.*/)?t/[^/]+/", "", path).strip("/") or None


def build_tag(build: str) -> str | None:
    """C(cu126) from cuda126_mkl_py312_h... and py3.12_cuda12.6_cudnn9; C(cpu) for the others that say so."""
    match = CUDA_BUILD.search(build)
    if match:
        return "cu" + match.group(1) + (match.group(2) or "")
    return "cpu" if re.search(r"(?:^|_)cpu(?:_|$)", build) else None


def torch(system: System, prefix: str, known: dict[str, tuple[str, str]]) -> dict[str, t.Any] | None:
    """The torch of conda's own packages: C({torch, tag, cuda, cudnn, nccl, channel}); None when there is none."""
    name = next((name for name in TORCH if name in known), None)
    if name is None:
        return None
    version, build = known[name]
    tag = build_tag(build)
    head = (system.read_bytes("%s/conda-meta/%s-%s-%s.json" % (prefix, name, version, build), 65536) or b"").decode("utf-8", "replace")
    told = {key: next((known[part][0] for part in parts if part in known), None) for key, parts in BUNDLED.items()}
    digits = tag[2:] if tag and tag != "cpu" else ""
    cuda = known["cuda-version"][0] if "cuda-version" in known else None
    return dict(told, torch=version, tag=tag, channel=channel(head), cuda=(cuda or "%s.%s" % (digits[:-1], digits[-1])) if digits else None)


def _installed_in(system: System, path: str) -> dict[str, tuple[str, str]]:
    return records(system.names(path + "/conda-meta"))


def _profile(system: System) -> t.Iterator[str]:
    for name in system.names("/etc/profile.d"):
        if name.endswith((".sh", ".csh")):
            text = system.read("/etc/profile.d/" + name, 65536, True) or ""
            if "conda" in text or "mamba" in text:
                yield from PROFILE.findall(text)


def find(system: System, mounts: Mounts) -> tuple[list[dict[str, t.Any]], list[dict[str, t.Any]]]:
    """Installations C([{path, version, environments}]) and environments that have a torch, in the shape of C(_python_env.scan) and more.

    Looked at are the usual prefixes, what shells are told of in /etc/profile.d, and root's list of environments: no home is searched.
    """
    listed: list[str] = []
    for path in LISTS:
        listed += [line.strip().rstrip("/") for line in (system.read(path, 65536, True) or "").splitlines() if line.startswith("/")]
    bases = dict.fromkeys([*PREFIXES, *_profile(system)])
    # An environment in /opt/x/envs/y belongs to /opt/x.
    bases.update(dict.fromkeys(path.rsplit("/envs/", 1)[0] for path in listed if "/envs/" in path))
    installations: list[dict[str, t.Any]] = []
    prefixes: dict[str, None] = {}
    for path in bases:
        kind = mounts.far(path)
        if kind:
            if path not in PREFIXES:
                system.problem("%s lies on %s and was not looked into" % (path, kind))
            continue
        if not system.exists(path + "/conda-meta") and not system.exists(path + "/envs"):
            continue
        known = _installed_in(system, path)
        inner = [path + "/envs/" + name for name in system.names(path + "/envs") if not name.startswith(".")]
        installations.append({"path": path, "version": known["conda"][0] if "conda" in known else None, "environments": inner})
        prefixes.update(dict.fromkeys([path, *inner]))
    for path in listed:
        kind = mounts.far(path)
        if kind:
            system.problem("%s lies on %s and was not looked into" % (path, kind))
        else:
            prefixes[path] = None
    if len(prefixes) > MOST:
        system.problem("there are %d conda environments; only %d were looked into" % (len(prefixes), MOST))
    found = []
    for path in list(prefixes)[:MOST]:
        environment = _environment(system, path)
        if environment:
            found.append(environment)
    return installations, found


def _environment(system: System, path: str) -> dict[str, t.Any] | None:
    """One environment, if torch is in it: of conda's packages, or put there by pip."""
    known = _installed_in(system, path)
    if not known:
        return None
    own = torch(system, path, known)
    python = known["python"][0] if "python" in known else None
    if own:
        packages = {_python_env.normal(name): entry[0] for name, entry in known.items() if TOLD.match(name)}
        return dict(own, path=path, python=python, packages=packages, kind="conda", owner="conda")
    scanned = _python_env.scan(system, path)
    if scanned is None or scanned["torch"] is None:
        return None
    packages = {name: version for name, version in scanned["packages"].items() if TOLD.match(name)}
    return dict(described(scanned), kind="conda", python=python or scanned["python"], packages=packages)


def described(found: dict[str, t.Any]) -> dict[str, t.Any]:
    """What C(_python_env.scan) found, with the fields that only some ways of installing torch have; pip brings cuDNN and NCCL as packages."""
    version = found["torch"]
    local = (version or "").partition("+")[2]
    told: dict[str, t.Any] = {"cudnn": None, "nccl": None}
    for name, package in found["packages"].items():
        match = re.match(r"nvidia-(cudnn|nccl)-cu\d+$", name)
        if match:
            told[match.group(1)] = package
    # Wheels of the Python package index have no suffix; what they were built for stands in the package alone.
    tag = local or ("cu" + found["cuda"].replace(".", "") if found["cuda"] else "cpu" if version else None)
    return dict(found, kind="venv", owner="pip" if version else None, channel=None, tag=tag, cudnn=told["cudnn"], nccl=told["nccl"])
