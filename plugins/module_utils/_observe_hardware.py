# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""The group C(hardware): what the kernel knows of PCI, RDMA and network devices, without any driver of NVIDIA's."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _iommu, _net, _numa, _observe_smi, _pci, _pcie, _rails, _rdma, _vpd

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation


def start(seen: Observation) -> None:
    """Hardware needs no program."""


def collect(seen: Observation) -> None:
    """Fill in everything of the group; what one step cannot find out costs the next ones nothing but what rests on it."""
    system, facts = seen.system, seen.facts
    with seen.probe("numa"):
        facts["numa_nodes"] = _numa.scan(system)
    with seen.probe("pci"):
        facts.update(_pci.scan(system))
        for gpu in facts["gpus"]:
            gpu["memory_node"] = _numa.memory_node(system, gpu["address"])
            gpu.update(dict.fromkeys((*_pcie.SETTINGS, "iommu_group", "iommu_type", *_observe_smi.FIELDS)))
    with seen.probe("rdma"):
        facts["nics"] = _rdma.scan(system)
        for nic in facts["nics"]:
            nic.update(dict.fromkeys((*_pcie.SETTINGS, "bond", "nvlink_bridge")), bond_addresses=[])
    with seen.probe("interfaces"):
        facts["interfaces"] = _net.scan(system, _net.ask_addresses(), facts["nics"] or [])
        _rdma.join_bonds(facts["nics"] or [], facts["interfaces"])
    with seen.probe("iommu"):
        facts["iommu"] = _iommu.scan(system, facts["gpus"] or [])
    if facts["gpus"] is not None and facts["nics"] is not None:
        _paths(seen, facts["gpus"], facts["nics"])


def _paths(seen: Observation, gpus: list[dict[str, t.Any]], nics: list[dict[str, t.Any]]) -> None:
    """What lies between GPUs and NICs."""
    system, facts = seen.system, seen.facts
    with seen.probe("topology"):
        facts["topology"] = _pci.topology(system, gpus, nics, facts["numa_nodes"] or [])
    with seen.probe("pcie"):
        facts["pcie_bridges"] = _pcie.scan(system, gpus, nics if gpus else [])
    with seen.probe("vpd"):
        _vpd.mark(system, facts)
    with seen.probe("rails"):
        if facts["topology"] is not None:
            facts["topology"]["rails"] = _rails.rails(gpus, nics, facts["topology"])
