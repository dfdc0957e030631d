# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which PyTorch a host is to have: release, build, and whether driver and Python carry it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, key

VARIABLE = "gpu_stack_pytorch"


def choose(catalog: dict[str, Any], asked: str, python: str | None, gpus: list[dict[str, Any]], driver: str | None) -> dict[str, Any]:
    """Return {version, tag, cuda, reasons}; `driver` is the version that the host will run, None without one."""
    wanted, _, tag = asked.partition("+")
    releases = [release for release in catalog["pytorch"] if belongs(release["version"], wanted)]
    if not releases:
        known = [release["version"] for release in catalog["pytorch"]]
        raise Refusal(
            "pytorch.version_unknown", f"{VARIABLE} is {asked!r}; known are {', '.join(known)}",
            seen=asked, allowed=known, variable=VARIABLE, nearest=known[0],
        )  # fmt: skip
    release = releases[0]
    minor = ".".join((python or "").split(".")[:2])
    if minor not in release["python"]:
        raise Refusal(
            "pytorch.python", f"PyTorch {release['version']} has no build for the host's Python {python}; it has for {', '.join(release['python'])}",
            seen=python, allowed=release["python"], variable=VARIABLE, source=release["source"],
        )  # fmt: skip
    if tag and tag not in release["tags"]:
        raise Refusal(
            "pytorch.build_unknown", f"PyTorch {release['version']} has no build {tag}; it has {', '.join(release['tags'])}",
            seen=tag, allowed=release["tags"], variable=VARIABLE, source=release["source"], nearest=f"{release['version']}+{release['tags'][0]}",
        )  # fmt: skip
    if not tag:
        tag = _fitting(catalog, release, driver) if gpus else "cpu"
    elif tag != "cpu" and not _carries(catalog, driver, tag):
        raise Refusal(
            "pytorch.driver", f"build {tag} needs driver {_minimum(catalog, tag)} or newer; the host will have {driver or 'none'}",
            seen=driver, allowed=f">= {_minimum(catalog, tag)}", variable=VARIABLE, nearest=f"{release['version']}+{_fitting(catalog, release, driver)}",
        )  # fmt: skip
    return {"version": release["version"], "tag": tag, "cuda": _cuda(tag), "reasons": [f"{VARIABLE} is {asked}"]}


def _cuda(tag: str) -> str | None:
    """Return the CUDA version of a build: 13.0 for cu130."""
    return None if tag == "cpu" else f"{tag[2:-1]}.{tag[-1]}"


def _minimum(catalog: dict[str, Any], tag: str) -> str:
    return str(catalog["cuda_majors"][tag[2:-1]]["minimum_driver"])


def _carries(catalog: dict[str, Any], driver: str | None, tag: str) -> bool:
    return driver is not None and key(driver) >= key(_minimum(catalog, tag))


def _fitting(catalog: dict[str, Any], release: dict[str, Any], driver: str | None) -> str:
    """Return the first build of a release that the driver carries; without a driver that is the one for CPUs."""
    return str(next((tag for tag in release["tags"] if tag != "cpu" and _carries(catalog, driver, tag)), "cpu"))
