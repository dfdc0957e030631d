# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which PyTorch a host is to have: release and build, and whether Python, driver and GPUs carry it."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_rules import known_bad
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, key

VARIABLE = "gpu_stack_pytorch"
CPU = "cpu"
PYTHON_NAME = re.compile(r".*/python([0-9]+\.[0-9]+)")


def python_of(asked: dict[str, Any], observed: dict[str, Any]) -> str | None:
    """Return the Python (as 3.11) that the environment has or will be made with; None if that cannot be told."""
    for found in observed.get("pytorch") or []:
        if found.get("path") == asked["pytorch_prefix"] and found.get("python"):
            return _minor(found["python"])
    named = PYTHON_NAME.fullmatch(asked["python"])
    if named:
        return named[1]
    python = (observed.get("host") or {}).get("python")
    return _minor(python) if python and asked["python"] in ("python3", "/usr/bin/python3") else None


def _minor(version: str) -> str:
    return ".".join(str(version).split(".")[:2])


def choose(
    catalog: dict[str, Any],
    asked: str,
    python: str | None,
    gpus: list[Gpu],
    driver: str | None,
    locked: str | None = None,
    architecture: str = "x86_64",
) -> dict[str, Any]:
    """Return {version, tag, cuda, cudnn, nccl, minimum_driver, reasons}; `driver` is the version that the host will run, None without one."""
    reasons = [f"{VARIABLE} is {asked}", *([f"gpu_stack_lock says {locked}"] if locked else [])]
    wanted, _plus, tag = (locked or asked).partition("+")
    release = next((entry for entry in catalog["pytorch"] if belongs(entry["version"], wanted)), None)
    if release is None:
        known = [entry["version"] for entry in catalog["pytorch"]]
        raise Refusal(
            "pytorch.version_unknown",
            f"{VARIABLE} is {asked!r}; known are {', '.join(known)} (in YAML put quotes around it, or 2.10 becomes 2.1)",
            seen=asked, allowed=known, variable=VARIABLE, nearest=known[0],
        )  # fmt: skip
    if python is None:
        reasons.append("which Python the environment will have could not be told")
    elif python not in release["python"]:
        raise Refusal(
            "pytorch.python", f"PyTorch {release['version']} has no build for Python {python}; it has for {', '.join(release['python'])}",
            seen=python, allowed=list(release["python"]), variable="conda_pytorch_python", source=release["source"],
            nearest=next((entry["version"] for entry in catalog["pytorch"] if python in entry["python"]), None),
        )  # fmt: skip
    if tag and tag not in release["builds"]:
        builds = list(release["builds"])
        raise Refusal(
            "pytorch.build_unknown", f"PyTorch {release['version']} has no build {tag}; it has {', '.join(builds)}",
            seen=tag, allowed=builds, variable=VARIABLE, source=release["source"], nearest=f"{release['version']}+{builds[0]}",
        )  # fmt: skip
    if not tag and not gpus:
        tag = CPU
        reasons.append("the build for CPUs, as there is no GPU")
    elif tag == CPU:
        reasons += ["the build for CPUs was asked for, although there are GPUs"] if gpus else []
    else:
        tag, why = _cuda_build(catalog, release, tag, gpus, driver, architecture)
        reasons += why
    build = _build(catalog, release, tag, architecture) if tag != CPU else {}
    nccl = release["builds"][tag].get("nccl")
    bad = known_bad(catalog, "nccl", nccl, gpus) if nccl else None
    if bad:
        reasons.append(f"NCCL {nccl} inside of it is known to be bad: {bad['effect']}; first good: {bad['first_good'] or 'not known'}")
    return {
        "version": release["version"],
        "tag": tag,
        "cuda": build.get("cuda"),
        "cudnn": release["builds"][tag].get("cudnn"),
        "nccl": nccl,
        "minimum_driver": build.get("minimum_driver"),
        "reasons": reasons,
    }


def _build(catalog: dict[str, Any], release: dict[str, Any], tag: str, architecture: str) -> dict[str, Any]:
    """Return a build by its tag, with the compute capabilities that it was made for in this release and on this CPU."""
    found: dict[str, Any] = next(entry for entry in catalog["builds"] if entry["tag"] == tag)
    made_for = (release.get("capabilities") or {}).get(tag) or found.get(f"capabilities_{architecture}")
    return {**found, "capabilities": made_for} if made_for else found


def carries(driver: str | None, minimum: str | None) -> bool:
    """Tell whether a driver runs what needs this one at least."""
    return minimum is None or (driver is not None and key(driver) >= key(minimum))


def covers(build: dict[str, Any], capability: str | None) -> bool:
    """Tell whether a build has code for a GPU: of its generation's major number and not newer, or code that is compiled at start.

    A GPU of unknown capability is taken as covered: nothing is known against it.
    """
    if capability is None:
        return True
    mine = key(capability)
    for made_for in build["capabilities"]:
        number, _plus, ptx = made_for.partition("+")
        if key(number) <= mine and (ptx or key(number)[0] == mine[0]):
            return True
    return False


def _cuda_build(
    catalog: dict[str, Any], release: dict[str, Any], tag: str, gpus: list[Gpu], driver: str | None, architecture: str
) -> tuple[str, list[str]]:
    """Return the build with CUDA to install and why; raises Refusal when GPUs or driver do not carry the asked one, or any."""
    builds = [_build(catalog, release, name, architecture) for name in ([tag] if tag else release["builds"]) if name != CPU]
    capable = [build for build in builds if all(covers(build, gpu.compute_capability) for gpu in gpus)]
    names = ", ".join(build["tag"] for build in builds)
    if not capable:
        models = ", ".join(gpu.model for gpu in gpus)
        raise Refusal(
            "pytorch.gpu", f"PyTorch {release['version']} ({names}) has no code for {models}",
            seen=[gpu.model for gpu in gpus], allowed={build["tag"]: build["capabilities"] for build in builds}, variable=VARIABLE,
            source=builds[0]["source"], nearest=_nearest(catalog, gpus, driver, architecture),
        )  # fmt: skip
    running = [build for build in capable if carries(driver, build["minimum_driver"])]
    if not running:
        least = min((build["minimum_driver"] for build in capable), key=key)
        raise Refusal(
            "pytorch.driver", f"PyTorch {release['version']} ({names}) needs driver {least} or newer; the host will have {driver or 'none'}",
            seen=driver, allowed=f">= {least}", variable=VARIABLE, source=capable[0]["source"], nearest=_nearest(catalog, gpus, driver, architecture),
        )  # fmt: skip
    if tag:
        return tag, []
    # A driver older than a build's CUDA runs it with limits; a build that the driver knows all of is better.
    # The driver's version stands in its own component: another one that carries the same build is no other plan of PyTorch's.
    full = next((build for build in running if carries(driver, build["full_driver"])), None)
    if full:
        return full["tag"], [f"build {full['tag']}: the driver knows all of CUDA {full['cuda']}"]
    return running[0]["tag"], [f"build {running[0]['tag']}: the driver runs CUDA {running[0]['cuda']} by minor-version compatibility"]


def _nearest(catalog: dict[str, Any], gpus: list[Gpu], driver: str | None, architecture: str) -> str:
    """Return the newest release and build that GPUs and driver carry; the one for CPUs when there is none."""
    for release in catalog["pytorch"]:
        for name in release["builds"]:
            if name == CPU:
                continue
            build = _build(catalog, release, name, architecture)
            if carries(driver, build["minimum_driver"]) and all(covers(build, gpu.compute_capability) for gpu in gpus):
                return f"{release['version']}+{name}"
    return f"{catalog['pytorch'][0]['version']}+{CPU}"
