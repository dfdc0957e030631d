# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Settings that a role reads long after the first change: they are looked at with the request, before it."""

from __future__ import annotations

import math
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._refusal import Refusal
from ansible_collections.gpu.fleet.plugins.plugin_utils._values import flag, mapping, number, shown

# Variable -> lowest and highest value; the times are in seconds.
RANGES = {
    "gpu_stack_reboot_timeout": (30, 86400),
    "conda_pytorch_install_timeout": (10, 86400),
    "conda_pytorch_answer_timeout": (1, 3600),
    "verification_iterations": (1, 1000),
    "verification_steps": (1, 1000),
    "verification_collective_timeout": (1, 3600),
    "verification_start_timeout": (1, 3600),
    "verification_deadline": (10, 86400),
    "verification_port": (1024, 65535),
}
FLAGS = ("gpu_stack_pending_ok", "verification_force")
SIZES, MOST_SIZES, LARGEST_MIB = "verification_sizes_mib", 64, 65536
GROUP, LOCK_FILE = "verification_group", "gpu_stack_lock_file"
NAMES = (*RANGES, *FLAGS, SIZES, GROUP, LOCK_FILE)


def check(given: Any, members: Any) -> dict[str, Any]:
    """Return the settings that have a value, by variable; raises Refusal for what no role can use.

    `members` is the number of hosts in the group that verification_group names.
    """
    settings = mapping(given, "the settings", {})
    unknown = sorted(str(name) for name in settings if name not in NAMES)
    if unknown:
        raise Refusal("request.unknown", f"the settings have {', '.join(unknown)}, which nothing reads", seen=unknown, allowed=sorted(NAMES))
    for name, value in settings.items():
        if name in RANGES:
            settings[name] = number(value, name, *RANGES[name])
        elif name in FLAGS:
            settings[name] = flag(value, name)
        elif name == SIZES:
            settings[name] = _sizes(value)
        elif name == LOCK_FILE:
            settings[name] = _path(value)
        elif not isinstance(value, str) or not members:
            raise Refusal(
                "request.group", f"{GROUP} is {value!r}, which is no group that has a host; give the name of one",
                seen=shown(value), allowed="a group of the inventory that has a host", variable=GROUP,
            )  # fmt: skip
    return settings


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.endswith((".yml", ".yaml")):
        raise Refusal(
            "request.form", f"{LOCK_FILE} is {value!r}; give the path of a YAML file on the controller",
            seen=shown(value), allowed="a path that ends with .yml", variable=LOCK_FILE,
        )  # fmt: skip
    return value


def _sizes(value: Any) -> list[float]:
    sizes = value if isinstance(value, (list, tuple)) else []
    found = [_size(size) for size in sizes]
    if not found or None in found or len(found) > MOST_SIZES:
        raise Refusal(
            "request.sizes", f"{SIZES} is {value!r}; give a list of numbers, in MiB, such as [1, 4, 0.5] (as JSON where it is given by -e)",
            seen=shown(value), allowed=f"1 to {MOST_SIZES} numbers above 0 and up to {LARGEST_MIB}", variable=SIZES,
        )  # fmt: skip
    return [size for size in found if size is not None]


def _size(value: Any) -> float | None:
    """Return a size, or None for what is none."""
    try:
        size = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return size if 0 < size <= LARGEST_MIB else None
