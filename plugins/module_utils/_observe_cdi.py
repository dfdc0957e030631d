# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Whether CDI specifications still fit the host; asked last, when the driver has told of its GPUs. Part of the group C(software)."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _driver

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation


def start(seen: Observation) -> None:
    """Nothing is asked here."""


def collect(seen: Observation) -> None:
    """Fill in C(differs) of each specification of NVIDIA's GPUs."""
    with seen.probe("cdi"):
        facts = seen.facts
        known = (facts["containers"] or {}).get("cdi") or []
        if not known:
            return
        from ansible_collections.gpu.fleet.plugins.module_utils import _cdi

        specs = [spec for spec in known if spec["kind"] in (_cdi.GPU_KIND, None) or spec["drivers"]]
        library = (facts["driver"] or {}).get("user_space") or _driver.user_space(seen.system) if specs else None
        for spec in specs:
            gpus = facts["gpus"] if spec["kind"] == _cdi.GPU_KIND else None
            spec["differs"] = _cdi.differences(spec, library, gpus)
