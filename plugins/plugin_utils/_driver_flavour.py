# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Which flavour of the kernel modules is asked for, and whether GPUs, branch and archive let a host have it."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpu.fleet.plugins.plugin_utils._gpus import Gpu, flavours_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal

VARIABLE = "nvidia_driver_flavour"
AUTO = "auto"


def wished(asked: str, gpus: list[Gpu]) -> list[Gpu]:
    """driver.flavour: return the GPUs with the flavour that is asked for as the only one; raises Refusal where one of them needs the other."""
    if asked == AUTO:
        return gpus
    unable = [gpu for gpu in gpus if gpu.architecture is not None and asked not in gpu.flavours]
    if unable:
        possible = flavours_of(gpus)
        models = ", ".join(gpu.model for gpu in unable)
        needed = " or ".join(sorted({flavour for gpu in unable for flavour in gpu.flavours})) or "no"
        raise Refusal(
            "driver.flavour", f"{VARIABLE} is {asked}, and {models} {'works' if len(unable) == 1 else 'work'} with {needed} kernel modules alone",
            seen=asked, allowed=possible, variable=VARIABLE, nearest=AUTO if possible else None,
        )  # fmt: skip
    return [replace(gpu, flavours=(asked,)) if asked in gpu.flavours else gpu for gpu in gpus]


def offered(asked: str, flavours: list[str], whose: str, source: str) -> None:
    """driver.flavour_gone: raise Refusal where a branch or an archive has not got the flavour that is asked for; `whose` names it."""
    if asked != AUTO and asked not in flavours:
        raise Refusal(
            "driver.flavour_gone", f"{VARIABLE} is {asked}, and {whose} has {' and '.join(flavours)} kernel modules alone",
            seen=asked, allowed=list(flavours), variable=VARIABLE, source=source, nearest=AUTO,
        )  # fmt: skip


def moved(present: str | None, wanted: str) -> list[str]:
    """Return what to say where the modules that are there are of the other flavour."""
    return [f"its kernel modules are {present} and will be {wanted}"] if present not in (None, wanted) else []
