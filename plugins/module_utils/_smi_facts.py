# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts of one GPU out of its entry in a report of nvidia-smi, whichever driver generation wrote it (schemes v8 to v13).

An entry is a flat mapping from paths to texts, as C(_nvidia_smi.read_xml) gives it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import number, said, whole, yes

Entry = t.Dict[str, str]
# Errors that could not be corrected, by their names since Turing; older GPUs count double bit errors by the place of the memory.
UNCORRECTED = ("dram_uncorrectable", "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
REASON = later(r"clocks_(?:event|throttle)_reasons/clocks_(?:event|throttle)_reasons?_(\w+)$")
POWER = ("gpu_power_readings", "power_readings")
REPAIRS = ("sram_threshold_exceeded", "channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")


def low(text: str | None) -> str | None:
    return (said(text) or "").lower() or None


def first(values: t.Iterable[t.Any]) -> t.Any:
    """The first value that is known."""
    return next((value for value in values if value is not None), None)


def unless_unknown(fields: dict[str, t.Any]) -> dict[str, t.Any] | None:
    """The fields, or None when none of them is known: the GPU has no such thing."""
    return fields if any(value is not None for value in fields.values()) else None


def uncorrected(gpu: Entry, span: str) -> int | None:
    """Number of errors in the span C(volatile) or C(aggregate)."""
    above = "ecc_errors/%s/" % span
    total = whole(gpu.get(above + "double_bit/total"))
    places = [key for key in gpu if key.startswith(above + "double_bit/")] if total is None else []
    known = [count for count in (total, *(whole(gpu.get(key)) for key in places), *(whole(gpu.get(above + kind)) for kind in UNCORRECTED))
             if count is not None]
    return sum(known) if known else None


def ecc(gpu: Entry) -> dict[str, t.Any] | None:
    if yes(gpu.get("ecc_mode/current_ecc")) is None:
        return None
    facts: dict[str, t.Any] = {"mode": low(gpu["ecc_mode/current_ecc"]), "pending": low(gpu.get("ecc_mode/pending_ecc"))}
    for span in ("volatile", "aggregate"):
        facts[span + "_uncorrected"] = uncorrected(gpu, span)
    for name in REPAIRS:
        facts[name] = first(yes(gpu.get("ecc_errors/%s%s" % (above, name))) for above in ("aggregate/", ""))
    return facts


def row_remap(gpu: Entry) -> dict[str, t.Any] | None:
    if yes(gpu.get("remapped_rows/remapped_row_pending")) is None:
        return None
    return {
        "pending": yes(gpu["remapped_rows/remapped_row_pending"]),
        "failure": yes(gpu.get("remapped_rows/remapped_row_failure")),
        "uncorrected": whole(gpu.get("remapped_rows/remapped_row_unc")),
    }


def retired_pages(gpu: Entry) -> dict[str, t.Any] | None:
    """Pages of memory out of use, on GPUs before Ampere. C(pending_blacklist) is the older name."""
    return unless_unknown({
        "pending": first(yes(gpu.get("retired_pages/pending_" + name)) for name in ("retirement", "blacklist")),
        "single_bit": whole(gpu.get("retired_pages/multiple_single_bit_retirement/retired_count")),
        "double_bit": whole(gpu.get("retired_pages/double_bit_retirement/retired_count")),
    })


def fabric(gpu: Entry) -> dict[str, t.Any] | None:
    if not said(gpu.get("fabric/state")):
        return None
    health = {name: said(gpu.get("fabric/health/" + name)) for name in ("summary", "bandwidth", "incorrect_configuration")}
    flags = {"route_recovery": "route_recovery_in_progress", "route_unhealthy": "route_unhealthy", "timeout_recovery": "access_timeout_recovery"}
    return {
        "state": said(gpu["fabric/state"]),
        "status": said(gpu.get("fabric/status")),
        "clique": said(gpu.get("fabric/cliqueId")),
        "cluster": said(gpu.get("fabric/clusterUuid")),
        "health": unless_unknown({**health, **{name: yes(gpu.get("fabric/health/" + word)) for name, word in flags.items()}}),
    }


def clocks_event_reasons(gpu: Entry) -> list[str] | None:
    """Active reasons; None when the driver tells of none, neither active nor not."""
    reasons = [(found.group(1), gpu[found.group()]) for found in map(REASON.match, gpu) if found]
    return [name for name, state in reasons if state.lower() == "active"] if any(said(state) for _name, state in reasons) else None


def pcie(gpu: Entry) -> dict[str, int | None] | None:
    """The link as the driver sees it. Its maximum is that of GPU and slot together; C(device_max_generation) is the GPU's alone."""
    above = "pci/pci_gpu_link_info/"
    return unless_unknown({
        "generation": whole(gpu.get(above + "pcie_gen/current_link_gen")),
        "width": whole(said((gpu.get(above + "link_widths/current_link_width") or "").rstrip("xX"))),
        "max_generation": whole(gpu.get(above + "pcie_gen/max_link_gen")),
        "max_width": whole(said((gpu.get(above + "link_widths/max_link_width") or "").rstrip("xX"))),
        "device_max_generation": whole(gpu.get(above + "pcie_gen/max_device_link_gen")),
    })


def power_limit(gpu: Entry, names: t.Sequence[str]) -> float | None:
    """Watts; the section and its fields have had several names."""
    watts: float | None = first(number(gpu.get("%s/%s" % (section, name))) for section in POWER for name in names)
    return watts


def gpu_facts(gpu: Entry, mig: t.Sequence[Entry]) -> dict[str, t.Any]:
    """What only the driver knows about one GPU; C(mig) are the entries of its MIG devices."""
    return {
        "model": said(gpu.get("product_name")),
        "uuid": said(gpu.get("uuid")),
        "serial": said(gpu.get("serial")),
        "vbios": said(gpu.get("vbios_version")),
        "memory_mib": whole(gpu.get("fb_memory_usage/total")),
        "minor": whole(gpu.get("minor_number")),
        "ecc": ecc(gpu),
        "row_remap": row_remap(gpu),
        "retired_pages": retired_pages(gpu),
        "mig_mode": low(gpu.get("mig_mode/current_mig")),
        "mig_devices": len(mig),
        "mig": [mig_device(entry) for entry in mig],
        "persistence_mode": yes(gpu.get("persistence_mode")),
        "clocks_event_reasons": clocks_event_reasons(gpu),
        "power_limit_w": power_limit(gpu, ("current_power_limit", "enforced_power_limit", "power_limit")),
        "fabric": fabric(gpu),
        "recovery_action": said(gpu.get("gpu_recovery_action")),
        "reset_required": yes(gpu.get("gpu_reset_status/reset_required")),
        "addressing_mode": said(gpu.get("addressing_mode")),
        "pcie_driver": pcie(gpu),
    }


def mig_device(entry: Entry) -> dict[str, t.Any]:
    """One MIG device; the report knows neither its profile nor its UUID."""
    return {
        "index": whole(entry.get("index")),
        "gpu_instance": whole(entry.get("gpu_instance_id")),
        "compute_instance": whole(entry.get("compute_instance_id")),
        "memory_mib": first(whole(entry.get(name + "/total")) for name in ("fb_memory_usage", "shared_fb_memory_usage")),
        "multiprocessors": whole(entry.get("device_attributes/shared/multiprocessor_count")),
        "profile": None,
        "uuid": None,
    }


def volatile(gpu: Entry, mig_geometry: list[dict[str, t.Any]] | None) -> dict[str, t.Any]:
    """Settings that a reload of the driver or a boot may lose. C(power_limit_w) is in force; what was asked for may be more than the module gives."""

    def clocks(section: str) -> dict[str, t.Any] | None:
        return unless_unknown({"graphics_mhz": whole(gpu.get(section + "/graphics_clock")), "memory_mhz": whole(gpu.get(section + "/mem_clock"))})

    reasons = clocks_event_reasons(gpu)
    return {
        "mig": low(gpu.get("mig_mode/current_mig")),
        "mig_pending": low(gpu.get("mig_mode/pending_mig")),
        "mig_geometry": mig_geometry,
        "compute_mode": said(gpu.get("compute_mode")),
        "persistence_mode": yes(gpu.get("persistence_mode")),
        "ecc_pending": low(gpu.get("ecc_mode/pending_ecc")) if yes(gpu.get("ecc_mode/current_ecc")) is not None else None,
        "power_limit_w": power_limit(gpu, ("current_power_limit", "enforced_power_limit", "power_limit")),
        "power_limit_requested_w": power_limit(gpu, ("requested_power_limit", "power_limit")),
        "power_limit_default_w": power_limit(gpu, ("default_power_limit",)),
        "power_limit_min_w": power_limit(gpu, ("min_power_limit",)),
        "power_limit_max_w": power_limit(gpu, ("max_power_limit",)),
        "application_clocks": clocks("applications_clocks"),
        "application_clocks_default": clocks("default_applications_clocks"),
        "memory_clock_deferred_mhz": whole(gpu.get("deferred_clocks/mem_clock")),
        "clocks_held_by_setting": None if reasons is None else "applications_clocks_setting" in reasons,
        "auto_boost": yes(gpu.get("clock_policy/auto_boost")),
        "auto_boost_default": yes(gpu.get("clock_policy/auto_boost_default")),
        "accounting_mode": yes(gpu.get("accounting_mode")),
    }
