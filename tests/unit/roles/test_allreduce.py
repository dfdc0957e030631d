# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker of the collective: its arithmetic, its command line, and, where a Python has torch, two real processes over gloo."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
WORKER = CHECKOUT / "roles/verification/files/allreduce.py"
FRAMEWORK = CHECKOUT / "roles/conda_pytorch/files/framework.py"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


worker = load(WORKER)


@functools.cache
def torch_python() -> str | None:
    """Return a Python that has torch: this one, the machine's, or the one that GPU_FLEET_TORCH_PYTHON names."""
    for python in (os.environ.get("GPU_FLEET_TORCH_PYTHON"), sys.executable, shutil.which("python3"), "/usr/bin/python3"):
        if python and Path(python).exists():
            code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
            if subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0:
                return python
    return None


needs_torch = pytest.mark.skipif(torch_python() is None, reason="no Python with torch here; GPU_FLEET_TORCH_PYTHON can name one")


@pytest.mark.parametrize(("ranks", "factor"), [(1, 0.0), (2, 1.0), (4, 1.5), (8, 1.75), (1000, 1.998)])
def test_bus_bandwidth_is_defined_as_by_nccl_tests(ranks: int, factor: float) -> None:
    assert worker.bus_factor(ranks) == pytest.approx(factor)
    row = worker.row(1_000_000_000, 0.5, ranks)
    assert row == {"size_bytes": 1_000_000_000, "time_us": 500000.0, "algbw_gbs": 2.0, "busbw_gbs": pytest.approx(2 * factor)}


def test_an_operation_takes_as_long_as_its_slowest_rank_and_the_median_is_told() -> None:
    assert worker.slowest_median([[1.0, 9.0, 2.0], [3.0, 1.0, 2.5]]) == 3.0
    assert worker.slowest_median([[1.0, 9.0, 2.0]]) == 2.0


@pytest.mark.parametrize("ranks", [1, 2, 513, 40000])
def test_every_sum_stays_where_float32_counts_exactly(ranks: int) -> None:
    assert worker.offset(ranks) == sum(worker.share(rank) for rank in range(ranks))
    assert (worker.CYCLE - 1) * ranks + worker.offset(ranks) < 2**24


def test_ranks_contribute_differently() -> None:
    assert len({worker.share(rank) for rank in range(worker.SHARES)}) == worker.SHARES


def test_sizes_are_read_in_mebibytes_once_each_and_ascending() -> None:
    assert worker.sizes("4,1,0.5,4") == [1 << 19, 1 << 20, 4 << 20]
    for text in ("", "0", "x", "1;2"):
        with pytest.raises(argparse.ArgumentTypeError):
            worker.sizes(text)


@pytest.mark.parametrize("words", [["--iterations", "0"], ["--backend", "mpi"], ["--sizes-mib", "big"], ["--timeout", "-1"]])
def test_a_wrong_command_line_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        worker.parse(words)
    assert caught.value.code == 2
    assert words[0] in capsys.readouterr().err


def test_help_needs_no_torch_and_says_how_to_start_it() -> None:
    told = subprocess.run([sys.executable, "-S", str(WORKER), "--help"], capture_output=True, text=True, check=True).stdout
    assert "torchrun --nnodes 2" in told and "--progress" in told


def test_without_torchrun_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert worker.main([]) == 2
    assert "torchrun" in capsys.readouterr().err


def test_another_world_size_than_wanted_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert worker.main(["--ranks", "4"]) == 2
    assert "3 ranks, expected 4" in capsys.readouterr().err


def test_progress_is_whole_at_any_time(tmp_path: Path) -> None:
    progress = worker.Progress(str(tmp_path), 3, "n1")
    path = tmp_path / "progress-3.json"
    assert json.loads(path.read_text())["state"] == "started"
    progress.enter("a collective with a long name " * 10)
    assert json.loads(path.read_text())["collective"].startswith("a collective")
    progress.enter("short")
    told = json.loads(path.read_text())
    assert (told["rank"], told["host"], told["sequence"], told["collective"], told["state"]) == (3, "n1", 2, "short", "entered")
    progress.leave("failed", "x" * 5000)
    assert len(json.loads(path.read_text())["error"]) == 600


def finding(rank: int, **changes: Any) -> dict[str, Any]:
    told = {"rank": rank, "host": f"n{rank + 1}", "torch": "2.13.0+cpu", "cuda": None, "memlock": -1}
    ddp = {"gradients": [11, 12], "parameters": 13, "means": True}
    return {**told, "times": {"4194304": [0.1, 0.3, 0.2]}, "wrong": {"4194304": 0}, "ddp": ddp, **changes}


def test_the_summary_of_agreeing_ranks_is_correct() -> None:
    told = worker.summary("gloo", [finding(0), finding(1)], 7.1234)
    assert told["correct"] is True and told["world_size"] == 2 and told["seconds"] == 7.123
    assert told["rows"] == [worker.row(4194304, 0.2, 2)]
    assert [entry["host"] for entry in told["ranks"]] == ["n1", "n2"]


@pytest.mark.parametrize(
    "change",
    [
        {"wrong": {"4194304": 5}},
        {"ddp": {"gradients": [11, 99], "parameters": 13, "means": True}},
        {"ddp": {"gradients": [11, 12], "parameters": 99, "means": True}},
        {"ddp": {"gradients": [11, 12], "parameters": 13, "means": False}},
    ],
)
def test_one_rank_that_differs_makes_it_wrong(change: dict[str, Any]) -> None:
    told = worker.summary("gloo", [finding(0), finding(1, **change)], 1.0)
    assert told["correct"] is False
    if "wrong" in change:
        assert told["wrong"] == [{"rank": 1, "host": "n2", "size_bytes": 4194304, "elements": 5}]
    elif change["ddp"]["gradients"] != [11, 12]:
        assert told["ddp"]["different"] == ["n2"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(folder: Path, program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run two ranks on this machine."""
    argv = [str(torch_python()), "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    argv += ["--master-port", str(free_port()), str(program), "--result", str(folder / "result.json"), "--progress", str(folder)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run([*argv, *words], capture_output=True, text=True, timeout=120, check=False, env=env)


@needs_torch
def test_two_real_processes_agree(tmp_path: Path) -> None:
    done = run_job(tmp_path, WORKER, "--sizes-mib", "1,2", "--iterations", "2", "--steps", "2", "--ranks", "2", "--timeout", "60")
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert (told["correct"], told["world_size"], told["backend"]) == (True, 2, "gloo")
    assert [row["size_bytes"] for row in told["rows"]] == [1 << 20, 2 << 20]
    assert all(row["busbw_gbs"] == row["algbw_gbs"] > 0 for row in told["rows"])
    notes = [json.loads((tmp_path / f"progress-{rank}.json").read_text()) for rank in (0, 1)]
    assert [note["state"] for note in notes] == ["finished", "finished"]
    assert notes[0]["sequence"] == notes[1]["sequence"] > 10


@needs_torch
@pytest.mark.parametrize(
    ("sound", "spoiled", "told"),
    [
        # One rank adds something else than it should.
        ("given = pattern + share(self.rank)", "given = pattern + share(self.rank) + (self.rank == 1)", "wrong"),
        # One rank trains with gradients of its own.
        ("gradients.append(self.checksum([found]))", "gradients.append(self.checksum([found + 1e-7 * self.rank]))", "different"),
    ],
)
def test_a_spoiled_rank_is_found_out(tmp_path: Path, sound: str, spoiled: str, told: str) -> None:
    source = WORKER.read_text()
    assert source.count(sound) == 1
    program = tmp_path / "spoiled.py"
    program.write_text(source.replace(sound, spoiled))
    done = run_job(tmp_path, program, "--sizes-mib", "1", "--iterations", "1", "--steps", "1", "--timeout", "60")
    assert done.returncode != 0
    found = json.loads((tmp_path / "result.json").read_text())
    assert found["correct"] is False
    assert (found["wrong"] if told == "wrong" else found["ddp"]["different"]) != []


@needs_torch
def test_the_framework_multiplies_right_on_its_devices(tmp_path: Path) -> None:
    subprocess.run([str(torch_python()), str(FRAMEWORK), str(tmp_path / "framework.json")], check=True, timeout=120)
    told = json.loads((tmp_path / "framework.json").read_text())
    assert told["torch"] and told["devices"][0]["device"] == "cpu"
    assert [device["error"] for device in told["devices"]] == [None] * len(told["devices"])
