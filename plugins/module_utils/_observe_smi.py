# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What only the driver knows of its GPUs, as nvidia-smi tells it; part of the group C(driver)."""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import Observation

# Fields of a GPU that stay null unless the driver answers.
FIELDS = (
    "model", "uuid", "memory_mib", "minor", "ecc", "row_remap", "mig_mode", "mig_devices", "persistence_mode", "nvlinks",
    "clocks_event_reasons", "power_limit_w", "fabric", "recovery_action",
)


def start(seen: Observation) -> None:
    """Ask nvidia-smi. Without a loaded driver it has nothing to say, and asking may load one."""
    if seen.system.exists("/sys/module/nvidia") or seen.system.exists("/sys/module/nvidia_current"):
        seen.ask("nvidia-smi", ["nvidia-smi", "-q", "-x"])
        seen.ask("nvlink", ["nvidia-smi", "nvlink", "-s"])


def collect(seen: Observation) -> None:
    """Fill in C(FIELDS) of each GPU and C(volatile); count the NVLinks of each pair."""
    with seen.probe("nvidia-smi"):
        from_driver(seen)


def from_driver(seen: Observation) -> None:
    """Add what nvidia-smi knows to the GPUs that the kernel knows; neither may invent a GPU for the other."""
    answer = seen.answer("nvidia-smi")
    links = seen.answer("nvlink")
    report = _nvidia_smi.read_xml(answer.out) if answer is not None and answer.out else None
    if report is None or (answer is not None and answer.rc != 0 and not report.gpus):
        return
    if report.damage:
        seen.system.problem("the report is damaged: %s" % report.damage, "nvidia-smi")
        if not report.gpus:
            return
    told = _nvidia_smi.by_address(report)
    gpus = {gpu["address"]: gpu for gpu in seen.facts["gpus"] or []}
    for address in sorted(set(told) - set(gpus)):
        if seen.facts["gpus"] is not None:
            seen.system.problem("the driver names %s, which is not on the PCI bus" % address, "nvidia-smi")
    told_links = {entry["uuid"]: entry for entry in _nvidia_smi.read_nvlink(links.out if links else "").values()}
    some_active = any(link["active"] for entry in told_links.values() for link in entry["links"])
    seen.facts["volatile"] = {}
    for address, gpu in gpus.items():
        if address not in told:
            seen.system.problem("%s is on the PCI bus but the driver does not name it" % address, "nvidia-smi")
            continue
        gpu.update(_nvidia_smi.gpu_facts(told[address]))
        about = told_links.get(gpu["uuid"])
        gpu["nvlinks"] = about["links"] if about else None
        if about and some_active and not any(link["active"] for link in about["links"]):
            # Alone among its siblings; a machine without NVLink has none at all.
            seen.system.problem("%s has no active NVLink: %s" % (address, about["message"] or "all are inactive"), "nvidia-smi nvlink")
        seen.facts["volatile"][address] = {
            "power_limit_w": gpu["power_limit_w"], "mig": gpu["mig_mode"], "compute_mode": gpu.pop("compute_mode"),
        }
    count_links(seen, gpus)


def count_links(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> None:
    """Behind NVSwitches every GPU reaches every other one over all of its active links; elsewhere each link leads to one of them."""
    switched = bool(seen.facts["nvswitches"]) or any((gpu["fabric"] or {}).get("state") == "Completed" for gpu in gpus.values())
    active = {
        address: [link for link in gpu["nvlinks"] if link["active"]] for address, gpu in gpus.items() if gpu["nvlinks"] is not None
    }
    if not switched and any(active.values()):
        name_peers(seen, gpus)
    # Where no link of a GPU is known to lead to another one here, a switch that the host cannot see may be in between.
    unknown = {
        address for address, links in active.items()
        if not switched and links and not (all(link["peer"] for link in links) and any(link["peer"] in gpus for link in links))
    }
    for one, row in ((seen.facts["topology"] or {}).get("gpu_gpu") or {}).items():
        for two, entry in row.items():
            if one not in active or two not in active:
                continue
            if switched or not active[one] or not active[two]:
                entry["nvlinks"] = min(len(active[one]), len(active[two]))
            elif unknown & {one, two}:
                continue
            else:
                entry["nvlinks"] = sum(link["peer"] == two for link in active[one])
            entry["source"] = "sysfs, nvidia-smi"
    if unknown:
        seen.system.problem("which GPUs the NVLinks lead to is not known on this machine", "nvidia-smi nvlink")


def name_peers(seen: Observation, gpus: dict[str, dict[str, t.Any]]) -> None:
    """Ask what is at the other end of each link. Few machines have links without a switch, so none other pays for the question."""
    seen.ask("nvlink -R", ["nvidia-smi", "nvlink", "-R"])
    answer = seen.answer("nvlink -R")
    peers = _nvidia_smi.read_peers(answer.out if answer else "")
    for gpu in gpus.values():
        for link in gpu["nvlinks"] or []:
            link["peer"] = peers.get(gpu["uuid"], {}).get(link["link"])
