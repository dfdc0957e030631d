# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi's answers: the forms of two driver generations, from one set of readings."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from lab.hardware import schema
from lab.hardware.guest.labhw import machine as machines
from lab.hardware.guest.labhw.machine import Machine
from lab.hardware.guest.labhw.smi import cli, query, report, settings, table
from lab.hardware.guest.labhw.smi.readings import Driver, Process, Readings, processes, read_gpu
from lab.hardware.guest.labhw.state import fresh
from unit.lab.hardware_machines import machine

OLD, NEW = Driver("535.309.01"), Driver("580.178.04")
JOB = Process(4242, "/usr/bin/python3", 3)


def readings(found: Machine, driver: Driver = NEW, jobs: list[Process] | None = None, **state: Any) -> list[Readings]:
    """Return the readings of every GPU."""
    return [read_gpu(found, {**fresh(), **state}, driver, gpu, jobs or [], False) for gpu in found.gpus]


def xml(found: Machine, driver: Driver = NEW, jobs: list[Process] | None = None, **state: Any) -> ET.Element:
    """Return the XML report, parsed."""
    return ET.fromstring(report.as_xml(driver, readings(found, driver, jobs, **state), len(found.gpus), jobs or []))


def test_the_xml_report_of_both_generations() -> None:
    found = machine("h100-sxm8")
    for driver, cuda in ((OLD, "12.2"), (NEW, "13.0")):
        root = xml(found, driver)
        assert root.findtext("driver_version") == driver.version
        assert root.findtext("cuda_version") == cuda
        assert root.findtext("attached_gpus") == "8"
        assert [gpu.get("id") for gpu in root.findall("gpu")] == [f"0000{gpu['address'].upper()}" for gpu in found.gpus]
        first = root.findall("gpu")[0]
        assert first.findtext("uuid") == found.gpus[0]["uuid"]
        assert first.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "16x"
        assert first.findtext("fb_memory_usage/total") == "81559 MiB"
        assert first.findtext("gpu_power_readings/current_power_limit") == "700.00 W"
    assert xml(found, OLD).find("gpu/pdi") is None
    assert xml(found, NEW).find("gpu/pdi") is not None
    assert xml(found, OLD).findtext("gpu/gpu_reset_status/reset_required") == "No"
    assert xml(found, NEW).findtext("gpu/gpu_recovery_action") == "None"


def test_text_and_xml_hold_the_same_values() -> None:
    found = machine("h100-sxm8")
    for driver in (OLD, NEW):
        values = {element.text.strip() for element in xml(found, driver).iter() if element.text and element.text.strip()}
        text = report.as_text(driver, readings(found, driver), 8, [])
        for line in text.splitlines():
            label, separator, value = line.partition(" : ")
            if separator and value and label.strip() not in ("Timestamp", "Processes") and "Clocks Event Reasons" not in label:
                plain = value.strip().removeprefix("0x")
                assert value.strip() in values or plain in values or "0x" in value, line
        column = {line.index(": ") for line in text.splitlines() if re.match(r" {4}\S.* : ", line)}
        assert column == {42 if driver is OLD else 55}


@pytest.mark.parametrize("name", schema.names())
@pytest.mark.parametrize("branch", [535, 550, 560, 570, 575, 580, 590, 595])
def test_every_line_of_the_report_has_its_reading(name: str, branch: int) -> None:
    found = machine(name)
    driver = Driver(f"{branch}.10.01")
    root = xml(found, driver)
    assert len(root.findall("gpu")) == len(found.gpus)
    assert report.as_text(driver, readings(found, driver), len(found.gpus), []).count("Product Name") == len(found.gpus)


def test_faults_show_in_the_report() -> None:
    target = "0000:43:00.0"
    root = xml(machine("h100-sxm8", {"kind": "pcie-x8", "target": target}, {"kind": "ecc-pending", "target": target}))
    sick, well = root.findall("gpu")[1], root.findall("gpu")[0]
    assert sick.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "8x"
    assert sick.findtext("remapped_rows/remapped_row_pending") == "Yes"
    assert sick.findtext("ecc_errors/volatile/dram_uncorrectable") == "1"
    assert sick.findtext("gpu_recovery_action") == "Reset"
    assert well.findtext("remapped_rows/remapped_row_pending") == "No"
    later = xml(machine("h100-sxm8", {"kind": "ecc-pending", "target": target}, boot="boot-2")).findall("gpu")[1]
    assert later.findtext("remapped_rows/remapped_row_pending") == "No"
    assert later.findtext("remapped_rows/remapped_row_unc") == "1"
    assert later.findtext("ecc_errors/volatile/dram_uncorrectable") == "0"


def test_the_fabric_waits_for_its_manager_and_knows_of_dead_links() -> None:
    assert xml(machine("h100-sxm8")).findtext("gpu/fabric/state") == "In Progress"
    done = xml(machine("h100-sxm8"), fabric=True).find("gpu/fabric")
    assert done is not None
    assert (done.findtext("state"), done.findtext("status"), done.findtext("health/bandwidth")) == ("Completed", "Success", "N/A")
    broken = machine("h100-sxm8", {"kind": "link-down", "target": "0000:1b:00.0", "more": [0]})
    assert xml(broken, fabric=True).findtext("gpu/fabric/health/bandwidth") == "Degraded"


def test_a_rack_has_its_fabric_manager_elsewhere() -> None:
    tray = xml(machine("gb200-tray")).findall("gpu")
    assert {gpu.findtext("fabric/state") for gpu in tray} == {"Completed"}
    assert {gpu.findtext("fabric/cliqueId") for gpu in tray} == {"2"}
    clusters = {xml(machine("gb200-tray", identity=name)).findtext("gpu/fabric/clusterUuid") for name in ("n1", "n2")}
    assert len(clusters) == 1
    assert clusters != {"00000000-0000-0000-0000-000000000000"}
    assert (tray[0].findtext("addressing_mode"), tray[0].findtext("c2c_mode")) == ("ATS", "Enabled")


def test_who_has_no_fabric_or_says_nothing_of_it() -> None:
    assert xml(machine("b200-hgx8")).findtext("gpu/fabric/state") == "In Progress"
    for name in ("a100-sxm8", "cloud-vm", "rtx4090x2", "v100x4"):
        assert xml(machine(name), fabric=True).findtext("gpu/fabric/state") == "N/A"


def test_memory_without_spare_rows_has_its_pages_taken_out_of_use() -> None:
    target = "0000:1a:00.0"
    now, later = (xml(machine("v100x4", {"kind": "ecc-pending", "target": target}, boot=boot)).findall("gpu") for boot in ("boot-1", "boot-2"))
    assert [gpu.findtext("retired_pages/pending_retirement") for gpu in now] == ["Yes", "No", "No", "No"]
    assert now[0].findtext("remapped_rows/remapped_row_pending") == "N/A"
    assert later[0].findtext("retired_pages/pending_retirement") == "No"
    assert later[0].findtext("retired_pages/double_bit_retirement/retired_count") == "1"


def test_a_geforce_says_what_it_lacks() -> None:
    card = xml(machine("rtx4090x2")).findall("gpu")[0]
    said = {path: card.findtext(path) for path in ("serial", "mig_mode/current_mig", "ecc_mode/current_ecc", "bar1_memory_usage/total")}
    assert said == {"serial": "N/A", "mig_mode/current_mig": "N/A", "ecc_mode/current_ecc": "Disabled", "bar1_memory_usage/total": "256 MiB"}
    assert card.findtext("ecc_errors/volatile/dram_uncorrectable") == "N/A"


def test_a_job_is_seen_and_the_drivers_services_are_not() -> None:
    files = ["/dev/nvidiactl", "/dev/nvidia3"]
    held = [(10, "/usr/local/lib/lab/nvidia-persistenced", files), (4242, "/usr/bin/python3", files), (11, "/usr/local/lib/lab/nvidia-smi", files)]
    assert processes(held) == [JOB]
    found = machine("h100-sxm8")
    gpu = xml(found, NEW, [JOB]).findall("gpu")[3]
    assert gpu.findtext("processes/process_info/pid") == "4242"
    assert gpu.findtext("fb_memory_usage/used") == "512 MiB"
    assert gpu.findtext("clocks_event_reasons/clocks_event_reason_gpu_idle") == "Not Active"
    assert "       3   N/A  N/A" not in table.table(NEW, readings(found), [])
    assert "4242      C   /usr/bin/python3" in table.table(NEW, readings(found, NEW, [JOB]), [JOB])


@pytest.mark.parametrize(("driver", "width"), [(OLD, 89), (NEW, 91)])
def test_the_table_has_straight_edges(driver: Driver, width: int) -> None:
    found = machine("h100-sxm8")
    lines = table.table(driver, readings(found, driver, [JOB]), [JOB]).splitlines()
    assert {len(line) for line in lines[1:] if line} == {width}
    assert all(line[0] == line[-1] for line in lines[1:] if line)


def test_csv_with_and_without_header_and_units() -> None:
    rows = readings(machine("h100-sxm8"))[:2]
    wanted = "index, name,memory.total,fan.speed,gpu_uuid"
    assert query.gpu_csv(rows, wanted, ["csv"]).splitlines() == [
        "index, name, memory.total [MiB], fan.speed [%], uuid",
        f"0, NVIDIA H100 80GB HBM3, 81559 MiB, [N/A], {rows[0]['uuid']}",
        f"1, NVIDIA H100 80GB HBM3, 81559 MiB, [N/A], {rows[1]['uuid']}",
    ]
    assert query.gpu_csv(rows[:1], "memory.total,power.limit", ["csv", "noheader", "nounits"]) == "81559, 700.00\n"
    with pytest.raises(query.UnknownField, match="colour"):
        query.gpu_csv(rows, "index,colour", ["csv"])
    with pytest.raises(query.UnknownField, match="xml_bus"):
        query.gpu_csv(rows, "xml_bus", ["csv"])
    apps = query.app_csv(readings(machine("h100-sxm8")), [JOB], "pid,process_name,used_memory", ["csv", "noheader"])
    assert apps == "4242, /usr/bin/python3, 512 MiB\n"


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the versions and the machine that nvidia-smi is to find."""
    given: dict[str, Any] = {"library": "580.178.04", "module": "580.178.04", "machine": machine("h100-sxm8")}
    monkeypatch.setattr(cli, "library_version", lambda: given["library"])
    monkeypatch.setattr(cli, "module_version", lambda: given["module"])
    monkeypatch.setattr(machines, "load", lambda: given["machine"])
    monkeypatch.setattr(cli, "read", fresh)
    monkeypatch.setattr(cli, "holders", list)
    monkeypatch.setattr(cli, "log", lambda *_: None)
    return given


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main(list(words))
    return code, capsys.readouterr().out


def test_why_nvidia_smi_fails(spoken: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "-L")[0] == 0
    spoken["library"] = "535.309.01"
    code, text = ask(capsys)
    assert code == 18
    assert text == "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.309\n\n"
    spoken["module"] = None
    code, text = ask(capsys, "topo", "-m")
    assert code == 9
    assert text.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest")
    spoken["library"] = None
    assert ask(capsys)[0] == 12


def test_no_gpu_and_a_dead_gpu(spoken: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    spoken["machine"] = machine("none")
    assert ask(capsys) == (6, "No devices were found\n")
    spoken["machine"] = machine("h100-sxm8", {"kind": "gpu-off-bus", "target": "0000:43:00.0"})
    code, text = ask(capsys, "-q", "-x")
    assert (code, text) == (255, "Unable to determine the device handle for GPU1: 0000:43:00.0: Unknown Error\n")
    assert ask(capsys, "-q", "-i", "0")[0] == 0


def test_options_are_chosen_by_number_uuid_and_address(spoken: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    gpu = spoken["machine"].gpus[5]
    for word in ("5", gpu["uuid"], "00000000:C3:00.0", "0000:c3:00.0"):
        code, text = ask(capsys, "-i", word, "-L")
        assert (code, text) == (0, f"GPU 5: {gpu['spec']['name']} (UUID: {gpu['uuid']})\n")
    assert ask(capsys, "--id=2,3", "--query-gpu=index", "--format=csv,noheader") == (0, "2\n3\n")
    assert ask(capsys, "-i", "8", "-L")[0] == 6
    assert ask(capsys, "--query-gpu=index")[0] == 2
    assert ask(capsys, "--query-gpu=colour", "--format=csv") == (2, 'Field "colour" is not a valid field to query.\n\n')
    assert ask(capsys, "--paint")[0] == 2


def test_settings_are_bounded_and_told() -> None:
    gpu = machine("h100-sxm8").gpus[0]
    kept: dict[str, Any] = {}
    name = "GPU 00000000:1B:00.0"
    assert settings.ACTIONS["power_limit"]("500", gpu, kept, name) == f"Power limit for {name} was set to 500.00 W from 700.00 W."
    assert kept == {"power_limit": 500.0}
    with pytest.raises(settings.BadValue, match=r"between 200\.00 W and 700\.00 W"):
        settings.ACTIONS["power_limit"]("900", gpu, kept, name)
    assert settings.ACTIONS["persistence"]("1", gpu, kept, name) == f"Enabled persistence mode for {name}."
    assert settings.ACTIONS["persistence"]("1", gpu, kept, name) == f"Persistence mode is already Enabled for {name}."
    assert settings.ACTIONS["mig"]("1", gpu, kept, name) == f"Enabled MIG Mode for {name}"
    changed = readings(machine("h100-sxm8"), settings={"0000:1b:00.0": kept})
    assert (changed[0]["power.limit"], changed[0]["persistence_mode"], changed[0]["mig.mode.current"]) == ("500.00 W", "Enabled", "Enabled")
    assert (changed[1]["power.limit"], changed[1]["persistence_mode"], changed[1]["mig.mode.current"]) == ("700.00 W", "Disabled", "Disabled")
