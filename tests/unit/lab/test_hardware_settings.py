# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that nvidia-smi takes and tells, and how it divides GPUs in MIG mode."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab.hardware.guest.labhw import machine as machines
from lab.hardware.guest.labhw import state as states
from lab.hardware.guest.labhw.machine import Machine
from lab.hardware.guest.labhw.smi import cli, mig, settings
from unit.lab.hardware_machines import machine

Ask = Callable[..., tuple[int, str]]


@pytest.fixture(params=["h100-sxm8"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Give nvidia-smi on a machine with a state of its own, asked by root."""
    worn: Machine = machine(request.param)
    state: dict[str, Any] = states.fresh()

    @contextmanager
    def changing() -> Iterator[dict[str, Any]]:
        yield state

    for module in (settings, mig):
        monkeypatch.setattr(module, "changing", changing)
    monkeypatch.setattr(cli, "read", lambda: state)
    monkeypatch.setattr(machines, "load", lambda: worn)
    monkeypatch.setattr(machines, "KEPT", str(tmp_path / "kept"))
    monkeypatch.setattr(cli, "library_version", lambda: "580.178.04")
    monkeypatch.setattr(cli, "module_version", lambda: "580.178.04")
    monkeypatch.setattr(cli, "holders", list)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def call(*words: str) -> tuple[int, str]:
        code = cli.main(list(words))
        return code, capsys.readouterr().out

    return call


def told(ask: Ask, *fields: str) -> str:
    """Return fields of the first GPU."""
    code, text = ask("-i", "0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    assert code == 0
    return text.strip()


def test_application_clocks_are_told_and_taken_back(ask: Ask) -> None:
    fields = ("clocks.applications.graphics", "clocks.default_applications.graphics", "clocks.applications.memory")
    assert told(ask, *fields) == "1980 MHz, 1980 MHz, 2619 MHz"
    assert ask("-i", "0", "-ac", "2619,1500") == (0, 'Applications clocks set to "(MEM 2619, SM 1500)" for GPU 00000000:1B:00.0\nAll done.\n')
    assert told(ask, *fields) == "1500 MHz, 1980 MHz, 2619 MHz"
    assert ask("-ac", "2619,9000")[0] == 2
    assert ask("-ac", "fast")[0] == 2
    assert ask("-rac") == (0, "All done.\n")
    assert told(ask, *fields) == "1980 MHz, 1980 MHz, 2619 MHz"


def test_locked_clocks_are_told_nowhere(ask: Ask) -> None:
    before = ask("-q", "-i", "0")[1].splitlines()
    assert ask("-i", "0", "-lgc", "1200,1500")[1].startswith('GPU clocks set to "(gpuClkMin 1200, gpuClkMax 1500)" for GPU 00000000:1B:00.0')
    assert ask("-i", "0", "-lmc", "2619")[0] == 0
    assert [line for line in ask("-q", "-i", "0")[1].splitlines() if "Timestamp" not in line] == [line for line in before if "Timestamp" not in line]
    assert ask("-rgc")[0] == ask("-rmc")[0] == 0


def test_deferred_clocks_and_accounting_are_told(ask: Ask) -> None:
    assert ask("-lmcd", "2000")[0] == ask("-am", "1")[0] == 0
    text = ask("-q", "-x", "-i", "0")[1]
    assert "<mem_clock>2000 MHz</mem_clock>" in text
    assert "<accounting_mode>Enabled</accounting_mode>" in text


def test_no_mig_without_its_mode(ask: Ask) -> None:
    assert ask("mig", "-lgi") == (6, "No MIG-enabled devices found.\n")
    assert ask("-i", "0", "-mig", "1")[0] == 0
    assert ask("mig", "-lgi") == (6, "No GPU instances found: Not Found\n")
    assert "Nvlink queries are not supported for Devices in MIG mode\nGPU 1: " in ask("nvlink", "-s")[1]


def test_a_gpu_is_divided_and_made_whole_again(ask: Ask) -> None:
    ask("-i", "0", "-mig", "1")
    code, text = ask("mig", "-i", "0", "-cgi", "9,3g.40gb", "-C")
    assert code == 0
    assert text.splitlines()[:2] == [
        "Successfully created GPU instance ID  1 on GPU  0 using profile MIG 3g.40gb (ID  9)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  1 using profile MIG 3g.40gb (ID  2)",
    ]
    rows = [line.split() for line in ask("mig", "-lgi")[1].splitlines() if "3g" in line]
    assert [row[1:-1] for row in rows] == [["0", "MIG", "3g.40gb", "9", "1", "0:4"], ["0", "MIG", "3g.40gb", "9", "2", "4:4"]]
    rows = [line.split() for line in ask("mig", "-lci")[1].splitlines() if "3g" in line]
    assert [row[1:-1] for row in rows] == [["0", "1", "MIG", "3g.40gb", "2", "0", "0:3"], ["0", "2", "MIG", "3g.40gb", "2", "0", "0:3"]]
    listed = ask("-L")[1].splitlines()
    assert [line.split(": (UUID: MIG-")[0] for line in listed[1:3]] == ["  MIG 3g.40gb     Device  0", "  MIG 3g.40gb     Device  1"]
    assert ask("-q", "-x")[1].count("<mig_device>") == ask("-q")[1].count("MIG Device") == 2
    assert ask("mig", "-cgi", "19") == (255, "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources\n")
    assert ask("-i", "0", "-mig", "0")[0] == 2
    assert ask("mig", "-dgi")[0] == 19
    assert ask("mig", "-dci")[0] == ask("mig", "-dgi")[0] == 0
    assert ask("mig", "-lgi")[0] == 6
    assert ask("-i", "0", "-mig", "0")[0] == 0


def test_a_gpu_instance_is_shared_by_compute_instances(ask: Ask) -> None:
    ask("-i", "0", "-mig", "1")
    assert ask("mig", "-cgi", "9:4")[0] == 0
    assert ask("mig", "-cci", "0,1", "-gi", "2")[0] == 0
    assert [line.split()[4] for line in ask("mig", "-lci")[1].splitlines() if "3g" in line] == ["1c.3g.40gb", "2c.3g.40gb"]
    assert ask("mig", "-cci", "0")[0] == 255
    assert ask("mig", "-cgi", "77")[0] == 255


@pytest.mark.parametrize("ask", ["a100-sxm8", "h100-sxm8"], indirect=True)
def test_what_a_gpu_keeps_without_a_driver(ask: Ask) -> None:
    """The ECC mode, and before Hopper the MIG mode; nothing else."""
    for words in (("-mig", "1"), ("-e", "0"), ("-c", "3"), ("-pl", "300")):
        assert ask("-i", "0", *words)[0] == 0
    (kept,) = machines.kept().values()
    ampere = "A100" in ask("-L")[1]
    assert kept == ({"mig": "Enabled", "ecc": False} if ampere else {"ecc": False})
