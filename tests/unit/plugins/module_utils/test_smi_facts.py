# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of one GPU from the reports of all driver generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi, _smi_facts
from fixtures import smi

REPORTS = Path(__file__).parents[5] / "shared/cases/topology/samples/smi-xml"


def facts(*entries: str, **more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts and the settings of a GPU that is described by "path=value" each."""
    gpu = dict(entry.split("=", 1) for entry in entries) | more
    return _smi_facts.gpu_facts(gpu, []), _smi_facts.volatile(gpu, None)


def test_every_field() -> None:
    report = _nvidia_smi.read_xml(smi.report([smi.gpu("0000:18:00.0", mig=[(1, 0, "40448 MiB"), (2, 0, "40448 MiB")])]))
    assert report.damage is None
    assert _smi_facts.gpu_facts(report.gpus[0], report.mig[0]) == {
        "model": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-0",
        "serial": "1650000000001",
        "vbios": "96.00.A5.00.01",
        "memory_mib": 81559,
        "minor": 0,
        "ecc": {
            "mode": "enabled", "pending": "disabled", "volatile_uncorrected": 3, "aggregate_uncorrected": None, "sram_threshold_exceeded": False,
            "channel_repair_pending": True, "tpc_repair_pending": False, "unrepairable_memory": None,
        },
        "row_remap": {"pending": True, "failure": False, "uncorrected": 1},
        "retired_pages": None,
        "mig_mode": "enabled",
        "mig_devices": 2,
        "mig": [
            {"index": number, "gpu_instance": number + 1, "compute_instance": 0, "memory_mib": 40448, "multiprocessors": 60,
             "profile": None, "uuid": None}
            for number in (0, 1)
        ],
        "persistence_mode": True,
        "clocks_event_reasons": ["gpu_idle", "hw_thermal_slowdown"],
        "power_limit_w": 650.0,
        "fabric": {
            "state": "Completed", "status": "Success", "clique": "2", "cluster": None,
            "health": {"summary": "Healthy", "bandwidth": "Degraded", "incorrect_configuration": None, "route_recovery": False,
                       "route_unhealthy": True, "timeout_recovery": None},
        },
        "recovery_action": "Drain and Reset",
        "reset_required": None,
        "addressing_mode": "ATS",
        "pcie_driver": {"generation": 1, "width": 16, "max_generation": 5, "max_width": 16, "device_max_generation": 5},
    }  # fmt: skip
    assert _smi_facts.volatile(report.gpus[0], []) == {
        "mig": "enabled",
        "mig_pending": "disabled",
        "mig_geometry": [],
        "compute_mode": "Exclusive_Process",
        "persistence_mode": True,
        "ecc_pending": "disabled",
        "power_limit_w": 650.0,
        "power_limit_requested_w": 660.0,
        "power_limit_default_w": 700.0,
        "power_limit_min_w": 200.0,
        "power_limit_max_w": 710.0,
        "application_clocks": {"graphics_mhz": 1500, "memory_mhz": 2619},
        "application_clocks_default": {"graphics_mhz": 1980, "memory_mhz": None},
        "memory_clock_deferred_mhz": 2000,
        "clocks_held_by_setting": False,
        "auto_boost": True,
        "auto_boost_default": False,
        "accounting_mode": True,
    }


@pytest.mark.parametrize("nothing", ["N/A", "[N/A]", "Requested functionality has been deprecated", "Insufficient Permissions", "[Unknown Error]",
                                     "ERR!", "[GPU requires reset]", "Not Supported", "None", ""])  # fmt: skip
def test_a_gpu_that_says_nothing_has_no_facts(nothing: str) -> None:
    report = _nvidia_smi.read_xml(smi.report([smi.gpu("0000:18:00.0")]))
    gpu = {key: value if key == "id" else nothing for key, value in report.gpus[0].items()}
    found = {**_smi_facts.gpu_facts(gpu, []), "geometry": _smi_facts.volatile(gpu, None)}
    assert {key: value for key, value in found.items() if value} == {"geometry": dict.fromkeys(found["geometry"])}


@pytest.mark.parametrize(
    ("entries", "count"),
    [
        (("ecc_errors/volatile/dram_uncorrectable=2", "ecc_errors/volatile/sram_uncorrectable=1"), 3),
        (("ecc_errors/volatile/sram_uncorrectable_parity=1", "ecc_errors/volatile/sram_uncorrectable_secded=4"), 5),
        (("ecc_errors/volatile/double_bit/device_memory=2", "ecc_errors/volatile/double_bit/total=3"), 3),
        (("ecc_errors/volatile/double_bit/device_memory=2", "ecc_errors/volatile/double_bit/l2_cache=1",
          "ecc_errors/volatile/double_bit/cbu=N/A"), 3),
        (("ecc_errors/volatile/double_bit/total=N/A", "ecc_errors/volatile/single_bit/total=7"), None),
        (("ecc_errors/volatile/dram_correctable=9",), None),
    ],
)  # fmt: skip
def test_uncorrected_errors_of_each_generation(entries: tuple[str, ...], count: int | None) -> None:
    assert facts("ecc_mode/current_ecc=Enabled", *entries)[0]["ecc"]["volatile_uncorrected"] == count


@pytest.mark.parametrize(
    ("entries", "pages"),
    [
        (("retired_pages/pending_retirement=Yes", "retired_pages/double_bit_retirement/retired_count=2",
          "retired_pages/multiple_single_bit_retirement/retired_count=1"), {"pending": True, "single_bit": 1, "double_bit": 2}),
        (("retired_pages/pending_blacklist=No",), {"pending": False, "single_bit": None, "double_bit": None}),
        (("retired_pages/pending_retirement=N/A", "retired_pages/pending_blacklist=N/A"), None),
    ],
)  # fmt: skip
def test_pages_out_of_use(entries: tuple[str, ...], pages: dict[str, Any] | None) -> None:
    assert facts(*entries)[0]["retired_pages"] == pages


@pytest.mark.parametrize(
    ("entries", "reasons", "held"),
    [
        (("clocks_throttle_reasons/clocks_throttle_reason_sw_power_cap=Active", "clocks_throttle_reasons/clocks_throttle_reason_gpu_idle=Not Active"),
         ["sw_power_cap"], False),
        (("clocks_event_reasons/clocks_event_reason_applications_clocks_setting=Active",), ["applications_clocks_setting"], True),
        (("clocks_event_reasons_counters/clocks_event_reasons_counters_sync_boost=0 us",), None, None),
        (("clocks_event_reasons=N/A",), None, None),
        (("clocks_event_reasons/clocks_event_reason_gpu_idle=N/A",), None, None),
    ],
)  # fmt: skip
def test_reasons_of_each_generation(entries: tuple[str, ...], reasons: list[str] | None, held: bool | None) -> None:
    gpu, settings = facts(*entries)
    assert (gpu["clocks_event_reasons"], settings["clocks_held_by_setting"]) == (reasons, held)


@pytest.mark.parametrize(
    ("entries", "force", "asked"),
    [
        (("power_readings/power_limit=300.00 W", "power_readings/enforced_power_limit=250.00 W"), 250.0, 300.0),
        (("gpu_power_readings/current_power_limit=1000.00 W", "gpu_power_readings/requested_power_limit=1200.00 W"), 1000.0, 1200.0),
        (("gpu_power_readings/power_limit=70.00 W",), 70.0, 70.0),
        (("module_power_readings/current_power_limit=2500.00 W", "power_readings/power_draw=3 W"), None, None),
    ],
)
def test_power_limits_of_each_generation(entries: tuple[str, ...], force: float | None, asked: float | None) -> None:
    gpu, settings = facts(*entries)
    assert (gpu["power_limit_w"], settings["power_limit_w"], settings["power_limit_requested_w"]) == (force, force, asked)


# Read off the recordings by eye: ECC mode, uncorrected now, retired pages, a row remap pending, W, highest generation of the GPU,
# graphics clock for applications, fabric's health, whether it rests.
RECORDED: dict[str, tuple[Any, ...]] = {
    "netdata-rtx-2080-win": (None, None, None, None, 275.0, None, None, None, True),
    "netdata-rtx-4090-driver-535": ("disabled", None, None, False, 450.0, 4, None, None, True),
    "netdata-tesla-p100": ("enabled", 0, 0, None, 250.0, None, 1189, None, True),
    "nvidia-aicr-h100x8": ("enabled", 0, None, False, 700.0, 5, 1980, None, True),
    "nvidia-hw-a100": ("enabled", 0, None, False, 400.0, 4, 1095, None, True),
    "nvidia-hw-b200": ("enabled", 0, None, False, 1000.0, 5, 1965, "Healthy", True),
    "nvidia-hw-gb200": ("enabled", 0, None, False, 1200.0, 6, 2062, "Healthy", True),
    "nvidia-hw-l40s": ("enabled", 0, None, False, 350.0, 4, None, None, True),
    "telegraf-a10g": ("enabled", 0, None, False, 300.0, None, 1710, None, True),
    "telegraf-gtx-1070-ti": (None, None, None, None, None, None, None, None, None),
    "telegraf-quadro-p2000-v12": (None, None, None, None, 75.0, 3, 1075, None, True),
    "telegraf-rtx-3080-v12": (None, None, None, None, 336.0, 4, None, None, True),
    "telegraf-rtx-4000-sff-ada-v13": ("disabled", None, None, False, 70.0, 4, None, None, True),
    "telegraf-tesla-t4": ("enabled", 0, 0, None, 70.0, None, 585, None, False),
}


@pytest.mark.skipif(not REPORTS.is_dir(), reason="the recordings are not beside the checkout")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_generations(name: str) -> None:
    report = _nvidia_smi.read_xml((REPORTS / f"{name}.xml").read_text())
    gpu, settings = _smi_facts.gpu_facts(report.gpus[0], report.mig[0]), _smi_facts.volatile(report.gpus[0], [])
    ecc, pages, remap, pcie = (gpu[key] or {} for key in ("ecc", "retired_pages", "row_remap", "pcie_driver"))
    health = ((gpu["fabric"] or {}).get("health") or {}).get("summary")
    reasons = gpu["clocks_event_reasons"]
    assert (
        ecc.get("mode"), ecc.get("volatile_uncorrected"), pages.get("double_bit"), remap.get("pending"), gpu["power_limit_w"],
        pcie.get("device_max_generation"), (settings["application_clocks"] or {}).get("graphics_mhz"), health,
        None if reasons is None else "gpu_idle" in reasons,
    ) == RECORDED[name]  # fmt: skip
    assert pcie["width"] in (8, 16)
    assert (gpu["recovery_action"], gpu["reset_required"] or False, settings["compute_mode"]) == (None, False, "Default")
