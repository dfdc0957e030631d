# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _nvidia_smi, _smi_facts
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = Path(__file__).parents[5] / "shared/cases/topology"
REPORTS = sorted((CASES / "samples/smi-xml").glob("*.xml"))
LINKS = sorted((CASES / "samples/nvlink").glob("*.txt"))
pytestmark = pytest.mark.filterwarnings("error")

REPORT = """Warning: infoROM is corrupted at gpu 0000:18:00.0
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
<driver_version>580.178.04</driver_version>
<cuda_version>13.0</cuda_version>
<attached_gpus>2</attached_gpus>
<gpu id="00000000:18:00.0">
  <product_name>NVIDIA H100 80GB HBM3</product_name>
  <persistence_mode>Enabled</persistence_mode>
  <mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
  <mig_devices>
    <mig_device><index>0</index><fb_memory_usage><total>9984 MiB</total></fb_memory_usage></mig_device>
    <mig_device><index>1</index><fb_memory_usage><total>9984 MiB</total></fb_memory_usage></mig_device>
  </mig_devices>
  <uuid>GPU-11111111-0000-0000-0000-000000000000</uuid>
  <minor_number>0</minor_number>
  <fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
  <compute_mode>Exclusive_Process</compute_mode>
  <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Disabled</pending_ecc></ecc_mode>
  <ecc_errors>
    <volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity><sram_uncorrectable_secded>0</sram_uncorrectable_secded>
      <dram_correctable>9</dram_correctable><dram_uncorrectable>2</dram_uncorrectable></volatile>
    <aggregate><dram_uncorrectable>N/A</dram_uncorrectable></aggregate>
  </ecc_errors>
  <remapped_rows><remapped_row_unc>1</remapped_row_unc><remapped_row_pending>Yes</remapped_row_pending>
    <remapped_row_failure>No</remapped_row_failure></remapped_rows>
  <gpu_power_readings><current_power_limit>650.00 W</current_power_limit></gpu_power_readings>
  <module_power_readings><current_power_limit>N/A</current_power_limit></module_power_readings>
  <clocks_event_reasons>
    <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
    <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
    <clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
  </clocks_event_reasons>
  <fabric><state>Completed</state><status>Success</status><cliqueId>N/A</cliqueId><clusterUuid>N/A</clusterUuid></fabric>
  <gpu_recovery_action>GPU Reset</gpu_recovery_action>
</gpu>
<gpu id="00000000:2A:00.0">
  <product_name>NVIDIA L40S</product_name>
  <mig_mode><current_mig>N/A</current_mig></mig_mode>
  <mig_devices>None</mig_devices>
  <ecc_mode><current_ecc>N/A</current_ecc></ecc_mode>
  <remapped_rows>N/A</remapped_rows>
  <power_readings><enforced_power_limit>70.00 W</enforced_power_limit></power_readings>
  <clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap></clocks_throttle_reasons>
  <fabric><state>N/A</state></fabric>
</gpu>
</nvidia_smi_log>
"""


def expected(kind: str, sample: Path) -> dict[str, Any]:
    return dict(json.loads((CASES / "expected" / f"{kind}__{sample.stem}.json").read_text()))


def test_a_report_is_read_whole() -> None:
    report = _nvidia_smi.read_xml(REPORT)
    assert report[:3] == ("580.178.04", "13.0", 2)
    assert report.damage is None
    assert [gpu["id"] for gpu in report.gpus] == ["00000000:18:00.0", "00000000:2A:00.0"]
    assert report.gpus[0]["fb_memory_usage/total"] == "81559 MiB"
    assert report.mig == [[{"index": "0", "fb_memory_usage/total": "9984 MiB"}, {"index": "1", "fb_memory_usage/total": "9984 MiB"}], []]


def test_clocks_that_a_gpu_could_have_are_passed_over() -> None:
    clocks = "<supported_clocks><supported_mem_clock><value>1 MHz</value></supported_mem_clock></supported_clocks>"
    report = _nvidia_smi.read_xml(REPORT.replace("<uuid>", clocks + "<uuid>"))
    assert report == _nvidia_smi.read_xml(REPORT)
    assert _nvidia_smi.read_xml(REPORT.replace("<uuid>", "<supported_clocks><uuid>")).damage is not None


@pytest.mark.skipif(not REPORTS, reason="the recordings are not beside the checkout")
@pytest.mark.parametrize("sample", REPORTS, ids=lambda path: path.stem)
def test_recorded_reports(sample: Path) -> None:
    want = expected("smi-xml", sample)
    report = _nvidia_smi.read_xml(sample.read_text())
    gpus = report.gpus
    assert report.damage is None
    assert (report.driver, report.cuda) == (want["driver"], want["cuda"])
    assert report.attached == (int(want["attached"]) if want["attached"] else None)
    assert [gpu["id"] for gpu in gpus] == want["bus"]
    assert len(gpus) == want["gpus"]
    assert sorted({gpu["product_name"] for gpu in gpus}) == want["names"]
    assert [gpu.get("mig_mode/current_mig") for gpu in gpus] == want["mig"]
    assert [len(devices) for devices in report.mig] == want["mig_devices"]
    for key, path in {"fabric": "fabric/state", "clique": "fabric/cliqueId", "cluster": "fabric/clusterUuid",
                      "addressing": "addressing_mode", "pcie_gen_max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen"}.items():
        assert sorted({gpu.get(path, "None") for gpu in gpus}) == want[key], key
    for gpu in gpus:
        facts = _smi_facts.gpu_facts(gpu, [])
        assert facts["uuid"].startswith("GPU-")
        assert facts["memory_mib"] > 1000


@pytest.mark.skipif(not LINKS, reason="the recordings are not beside the checkout")
@pytest.mark.parametrize("sample", LINKS, ids=lambda path: path.stem)
def test_recorded_links(sample: Path) -> None:
    found = {}
    for index, gpu in _nvidia_smi.read_nvlink(sample.read_text()).items():
        rates = {link["rate_gbs"] for link in gpu["links"]}
        found[str(index)] = {"name": gpu["name"], "active": sum(link["active"] for link in gpu["links"])}
        found[str(index)].update({"gbps": rates.pop()} if rates else {"message": gpu["message"]})
    want = expected("nvlink", sample)
    assert found == want["links"]
    assert len(found) == want["gpus"]


def test_inactive_link_is_kept_as_inactive() -> None:
    text = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 2: inActive\n"
    links = _nvidia_smi.read_nvlink(text)[0]["links"]
    assert [(link["link"], link["active"], link["rate_gbs"]) for link in links] == [(0, True, 26.562), (1, False, None), (2, False, None)]


@pytest.mark.parametrize(
    "text",
    ["", "\n", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "<html></html>", "\0" * 4096, "<?xml", "<" * 9999],
)
def test_no_report_has_no_gpus(text: str) -> None:
    report = _nvidia_smi.read_xml(text)
    assert report.gpus == []
    assert report.damage is not None


def test_a_cut_report_keeps_what_came_before() -> None:
    report = _nvidia_smi.read_xml(REPORT[: REPORT.index("<power_readings>")])
    assert [gpu["id"] for gpu in report.gpus] == ["00000000:18:00.0", "00000000:2A:00.0"]
    assert report.damage is not None
    assert report.gpus[1]["product_name"] == "NVIDIA L40S"
    assert _smi_facts.gpu_facts(report.gpus[1], [])["power_limit_w"] is None


def test_one_address_twice_is_damage_and_one_gpu() -> None:
    report = _nvidia_smi.read_xml(REPORT.replace("00000000:2A:00.0", "00000000:18:00.0"))
    assert report.damage == "2 GPUs described, 1 of them with an address of their own"


def test_a_report_that_lacks_an_announced_gpu_is_damaged() -> None:
    start, end = REPORT.index('<gpu id="00000000:2A'), REPORT.index("</nvidia_smi_log>")
    assert _nvidia_smi.read_xml(REPORT[:start] + REPORT[end:]).damage == "2 GPUs announced, 1 described"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(REPORT)), st.integers(0, 40), st.text(max_size=12), st.randoms(use_true_random=False))
def test_damaged_reports_never_raise_nor_invent_a_gpu(at: int, length: int, rubbish: str, chance: random.Random) -> None:
    lines = REPORT.splitlines(keepends=True)
    swapped = lines[:]
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    swapped[one], swapped[two] = swapped[two], swapped[one]
    for text in (REPORT[:at], REPORT[:at] + rubbish + REPORT[at + length :], "".join(swapped)):
        report = _nvidia_smi.read_xml(text)
        assert len(report.gpus) <= 2
        for gpu in report.gpus:
            _smi_facts.gpu_facts(gpu, report.mig[0])
            _smi_facts.volatile(gpu, None)
        _nvidia_smi.read_nvlink(text)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    assert _nvidia_smi.read_xml(text).gpus == [] or "<gpu" in text
    assert all("GPU" in text for _ in _nvidia_smi.read_nvlink(text))
