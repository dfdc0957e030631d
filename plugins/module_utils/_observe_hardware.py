# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The group C(hardware): what the kernel knows of PCI, RDMA and network devices, without any driver of NVIDIA's."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _net, _observe_smi, _pci, _rdma

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation


def start(seen: Observation) -> None:
    """Hardware needs no program."""


def collect(seen: Observation) -> None:
    """Fill in C(gpus), C(nvswitches), C(accelerators_other), C(nics), C(interfaces), and C(topology)."""
    system, facts = seen.system, seen.facts
    with seen.probe("pci"):
        facts.update(_pci.scan(system))
        for gpu in facts["gpus"]:
            gpu.update(dict.fromkeys(_observe_smi.FIELDS))
    with seen.probe("rdma"):
        facts["nics"] = _rdma.scan(system)
    with seen.probe("interfaces"):
        facts["interfaces"] = _net.scan(system, _net.ask_addresses())
    with seen.probe("topology"):
        if facts["gpus"] is not None and facts["nics"] is not None:
            facts["topology"] = _pci.topology(system, facts["gpus"], facts["nics"])
