# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Whose the driver of a host is, whether that leaves it to us, and what speaks against one that stays."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_rules import known_bad
from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._versions import belongs, branch

VARIABLE = "gpu_stack_driver"
SOURCE = "nvidia_driver_source"
TAKEOVER = "gpu_stack_takeover"
OURS = ("absent", "nvidia")


def source_of(asked: dict[str, Any], owner: str | None, pinned: bool) -> str:
    """Return where the driver comes from; `auto` stays with the archive that our own pins hold the driver to, and else means NVIDIA's repository."""
    if asked["driver_source"] != "auto":
        return str(asked["driver_source"])
    return "distro" if owner == "distro" and pinned and "driver" not in asked["takeover"] else "nvidia"


def left_alone(
    asked: dict[str, Any], source: str, owners: dict[str, str | None], driver: dict[str, Any], present: str | None, pinned: bool
) -> str | None:
    """Return why the driver is not ours to touch, or None; raises Refusal where it cannot be what was asked for.

    `owners` are those of `driver` and, where the host's GPUs need one, of `fabric_manager`; `driver` is the observation's. Where our pins stand
    (`pinned`) the driver is ours, whatever somebody has taken away of it since.
    """
    owner = owners["driver"]
    if owner == "gpu-operator":
        raise Refusal(
            "driver.gpu_operator", "the driver of this node belongs to the GPU operator of its Kubernetes cluster",
            seen=owner, allowed=list(OURS), variable="the group gpu_nodes", nearest="gpu_hold",
        )  # fmt: skip
    if source == "preinstalled":
        return f"{SOURCE} is preinstalled" + ("" if present else ", but no driver is installed")
    if owner is None:
        if not asked["driver"]:
            return "whose driver this is could not be observed"
        raise Refusal(
            "driver.owner_unknown", "the host's packages could not be read, so nothing can be said about whose driver is there",
            seen=owner, allowed=list(OURS), variable=SOURCE, nearest="preinstalled",
        )  # fmt: skip
    unpackaged = owner == "runfile" or (owner == "image" and not driver.get("packages"))
    others = [f"the {part.replace('_', ' ')} belongs to {whose}" for part, whose in owners.items() if _foreign(whose, source, pinned)]
    if others and "driver" not in asked["takeover"]:
        if not present:
            _companion(asked, source, others[0], owners)
            return None
        # What a runfile left behind cannot be taken over, so that is not what is proposed.
        unless = ": nvidia-uninstall removes it" if unpackaged else f" unless {TAKEOVER} names driver"
        return f"{', '.join(others)}; it is left as it is{unless}"
    if source == owner == "runfile" and present and (asked["driver"] in (None, "auto") or belongs(present, asked["driver"])):
        return f"the driver belongs to {owner}, as {SOURCE} says, and is the one that is asked for"
    _possible(asked, source, owner, unpackaged, pinned)
    return None


def _foreign(owner: str | None, source: str, pinned: bool) -> bool:
    return owner not in (None, "absent", source) and not (pinned and owner == "runfile")


def _companion(asked: dict[str, Any], source: str, said: str, owners: dict[str, str | None]) -> None:
    """Refuse to put a driver beside somebody else's fabric manager."""
    if asked["driver"]:
        raise Refusal(
            "driver.companion_owner", f"{said}, and a driver would have to replace it: the two work in one version only",
            seen=owners.get("fabric_manager"), allowed=["absent", source], variable=TAKEOVER, nearest=["driver"],
        )  # fmt: skip


def _possible(asked: dict[str, Any], source: str, owner: str, unpackaged: bool, pinned: bool) -> None:
    """Refuse what this release cannot do: to fetch a runfile, or to remove what came out of one."""
    if source == "runfile" and asked["driver"]:
        raise Refusal(
            "driver.runfile",
            f"no checksum of NVIDIA's runfile for {asked['driver']} is known here, and nothing is run that was not checked; take the driver from "
            "nvidia or distro, or install it by hand, which preinstalled then leaves as it is",
            seen="runfile", allowed=["nvidia", "distro", "preinstalled"], variable=SOURCE, nearest="nvidia" if owner == "absent" else "preinstalled",
        )  # fmt: skip
    if unpackaged and not pinned:
        raise Refusal(
            "driver.takeover",
            f"the driver belongs to {owner} and came from NVIDIA's runfile, which this release of the collection cannot take over: "
            "run nvidia-uninstall first",
            seen=owner, allowed=["distro", "nvidia"], variable=TAKEOVER, nearest=[],
        )  # fmt: skip


def against(catalog: dict[str, Any], asked: dict[str, Any], present: str | None, flavour: str | None, gpus: list[Gpu], today: str) -> list[str]:
    """Return what speaks against a driver that stays: it is not what is asked for, is known to be bad, or is out of support."""
    if present is None:
        return []
    said = []
    if asked["driver"] not in (None, "auto") and not belongs(present, asked["driver"]):
        said.append(f"{VARIABLE} is {asked['driver']}, and {present} is there")
    if flavour and asked["driver_flavour"] not in ("auto", flavour):
        said.append(f"nvidia_driver_flavour is {asked['driver_flavour']}, and {flavour} modules are there")
    bad = known_bad(catalog, "driver", present, gpus, flavour)
    if bad:
        said.append(f"{present} is known to be bad: {bad['effect']}; first good: {bad['first_good'] or 'not known'}")
    entry = next((found for found in catalog["driver_branches"] if found["branch"] == branch(present)), None)
    if entry and str(entry.get("end_of_life") or "9999") < today:
        said.append(f"branch {entry['branch']} has been out of support since {entry['end_of_life']}")
    return said
