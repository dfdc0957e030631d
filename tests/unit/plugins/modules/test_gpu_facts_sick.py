# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole module on made-up hosts that are sick: the facts arrive in time, the problems are named, and no process stays behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.sysfs_host import Host

ROOT = Path(__file__).parents[4]
PROGRAMS = ("nvidia-smi", "modinfo", "dpkg-query", "systemctl")
# The probes that ask them.
ASKING = {"nvidia-smi", "nvidia-smi nvlink", "modinfo", "packages", "systemd"}
# The module as Ansible starts it, but on the made-up host; and what a test breaks before.
SCRIPT = """
import functools, json, os, signal, sys, time
from ansible.module_utils import basic
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils import _observe, _runner, _system
from ansible_collections.gpu.fleet.plugins.modules import gpu_facts
root, search, arguments = sys.argv[1:]
_runner.SEARCH = search
real = _system.System
_observe.System = lambda _root, *words: real(root, *words)
{breakage}
with patch_module_args(json.loads(arguments)):
    gpu_facts.main()
"""
# Each read takes its time; no single one is long.
SLOW = """
read_bytes = real.read_bytes
def slow(self, *words):
    time.sleep(0.02)
    return read_bytes(self, *words)
real.read_bytes = slow
"""
# One read sleeps in the kernel: no signal but SIGKILL gets through.
STUCK = """
read_bytes = real.read_bytes
def stuck(self, path, *words):
    if path == {path!r}:
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
        time.sleep(60)
    return read_bytes(self, path, *words)
real.read_bytes = stuck
"""
NOBODY = "os.setgroups([]); os.setgid(65534); os.setuid(65534)"
# What a program does that hangs in its worst way: it heeds no polite signal, and a process that it started holds its output as well.
HANGS = """trap '' TERM INT HUP; echo $$ >>{folder}/pids; (trap '' TERM INT HUP; while :; do sleep 1; done) & echo $! >>{folder}/pids; wait; wait"""


@pytest.fixture
def host() -> Iterator[Host]:
    """Give a made-up host below a folder that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="gpu-fleet-sick-"))
    folder.chmod(0o755)
    made = Host(folder)
    for name in ("sleep", "cat", "sh", "head", "yes", "tr"):
        (made.bin / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    yield made
    shutil.rmtree(folder)


def run(host: Host, breakage: str = "", **arguments: Any) -> tuple[dict[str, Any], float]:
    """Return the facts, and the seconds until whoever reads the module's output has its end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "collections"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", SCRIPT.format(breakage=breakage), str(host.tree.root), str(host.bin), json.dumps(arguments)]
    begin = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    seconds = time.monotonic() - begin
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["ansible_facts"]["gpu_fleet"], seconds


def probes(facts: dict[str, Any]) -> set[str]:
    return {entry["probe"] for entry in facts["problems"]}


def left_behind(host: Host) -> list[int]:
    """Return the processes of a program's file of them that still run; they get a moment to be gone."""
    pids = [int(line) for line in (host.bin.parent / "pids").read_text().split()]
    assert pids
    until = time.monotonic() + 3
    alive = pids
    while alive and time.monotonic() < until:
        alive = [pid for pid in alive if runs(pid)]
        time.sleep(0.02)
    return alive


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def hardware_is_whole(facts: dict[str, Any], host: Host) -> None:
    assert [gpu["address"] for gpu in facts["gpus"]] == host.addresses
    assert len(facts["nics"]) == 10
    assert facts["topology"]["gpu_nic"][host.addresses[0]]["mlx5_0"]["path"] == "PIX"


def test_a_healthy_host_is_quick(host: Host) -> None:
    # Whatever else this machine does meanwhile, once in a few tries it has the time.
    for _ in range(5):
        facts, seconds = run(host)
        assert facts["problems"] == []
        if seconds <= 2:
            break
    assert seconds <= 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_hangs(host: Host, name: str) -> None:
    host.program(name, HANGS.format(folder=host.bin.parent))
    facts, seconds = run(host, probe_timeout=1)
    assert seconds < 8
    assert probes(facts) and probes(facts) <= ASKING
    assert {entry["reason"] for entry in facts["problems"]} == {"no answer within 1.0 s"}
    hardware_is_whole(facts, host)
    assert left_behind(host) == []


def test_failure_19_everything_hangs_at_once(host: Host) -> None:
    for name in PROGRAMS:
        host.program(name, HANGS.format(folder=host.bin.parent))
    facts, seconds = run(host, timeout=2, probe_timeout=3)
    # The interpreter needs some time to start as well, on a machine that does other things too.
    assert seconds < 8
    assert probes(facts) == ASKING
    hardware_is_whole(facts, host)
    assert left_behind(host) == []


def test_everything_hangs_and_files_are_slow(host: Host) -> None:
    for name in PROGRAMS:
        host.program(name, HANGS.format(folder=host.bin.parent))
    facts, seconds = run(host, SLOW, timeout=2, probe_timeout=3)
    assert seconds < 8
    assert (facts["boot_id"], facts["volatile"]) == ("3f0d2b52-1111-4222-8333-444455556666", None)
    assert facts["problems"]
    assert left_behind(host) == []


def test_lspci_is_nobody_that_is_asked(host: Host) -> None:
    healthy, _ = run(host)
    host.program("lspci", HANGS.format(folder=host.bin.parent))
    facts, seconds = run(host)
    assert facts == healthy
    assert seconds < 8
    assert not (host.bin.parent / "pids").exists()


GARBAGE = {
    "binary": "head -c 1000000 /dev/urandom",
    "zeros": "head -c 1000000 /dev/zero",
    "one line": "head -c 1000000 /dev/zero | tr '\\0' x",
    "one line of blanks": "head -c 1000000 /dev/zero | tr '\\0' ' '",
    "lines of one word": "yes 'GPU 0: ' | head -c 1000000",
    "open tags": "echo '<nvidia_smi_log>'; yes '<gpu id=\"00000000:18:00.0\"><supported_clocks>' | head -c 1000000",
    "without end": "yes nonsense",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_every_program_talks_rubbish(host: Host, kind: str) -> None:
    for name in PROGRAMS:
        host.program(name, GARBAGE[kind])
    facts, seconds = run(host)
    assert seconds < 8
    hardware_is_whole(facts, host)
    assert {gpu["uuid"] for gpu in facts["gpus"]} == {None}
    assert probes(facts) & {"nvidia-smi"}
    assert facts["driver"]["loaded"]["version"] == "580.178.04"
    assert all(len(entry["reason"]) < 400 for entry in facts["problems"])


def test_programs_that_end_badly_after_rubbish(host: Host) -> None:
    for name in PROGRAMS:
        host.program(name, "head -c 1000000 /dev/urandom; head -c 1000 /dev/urandom >&2; exit 3")
    facts, _ = run(host)
    assert probes(facts) == ASKING
    assert all(entry["reason"].startswith("exit status 3: ") for entry in facts["problems"])


def test_no_tool_at_all(host: Host) -> None:
    for path in host.bin.iterdir():
        path.unlink()
    facts, _ = run(host)
    assert probes(facts) == ASKING
    assert all(entry["reason"].endswith(" is not installed") for entry in facts["problems"])
    hardware_is_whole(facts, host)


def test_a_file_that_answers_with_an_error(host: Host) -> None:
    """Reading one's own memory at address zero is an input/output error."""
    path = host.tree.root / f"sys/bus/pci/devices/{host.addresses[3]}/vendor"
    path.unlink()
    path.symlink_to("/proc/self/mem")
    facts, _ = run(host)
    assert [gpu["address"] for gpu in facts["gpus"]] == [address for address in host.addresses if address != host.addresses[3]]
    assert {entry["reason"] for entry in facts["problems"]} == {
        f"cannot read /sys/bus/pci/devices/{host.addresses[3]}/vendor: Input/output error",
        f"the driver names {host.addresses[3]}, which is not on the PCI bus",
    }


def test_a_pipe_in_the_place_of_a_file(host: Host) -> None:
    path = host.tree.root / f"sys/bus/pci/devices/{host.addresses[3]}/vendor"
    path.unlink()
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    facts, seconds = run(host)
    os.close(writer)
    assert seconds < 8
    assert f"cannot read /sys/bus/pci/devices/{host.addresses[3]}/vendor: Resource temporarily unavailable" in [
        entry["reason"] for entry in facts["problems"]
    ]


def test_no_root(host: Host) -> None:
    """What nobody but root may read is null and a problem; with the rest nothing is wrong."""
    (host.tree.root / f"sys/bus/pci/devices/{host.addresses[3]}/vendor").chmod(0)
    (host.tree.root / "var/lib/gpu_fleet").mkdir(parents=True, mode=0o700)
    (host.tree.root / "proc/77/fd").chmod(0)
    facts, _ = run(host, NOBODY if os.geteuid() == 0 else "")
    (host.tree.root / "proc/77/fd").chmod(0o755)
    reasons = {entry["reason"] for entry in facts["problems"]}
    assert f"cannot read /sys/bus/pci/devices/{host.addresses[3]}/vendor: Permission denied" in reasons
    assert "1 processes of other users could not be looked into" in reasons
    assert (facts["busy"], len(facts["gpus"])) == (None, 7)
    assert facts["gpus"][0]["uuid"] == "GPU-0"


def test_slow_files_are_held_to_the_total(host: Host) -> None:
    facts, seconds = run(host, SLOW, timeout=1, probe_timeout=5)
    assert seconds < 8
    assert facts["host"]["kernel"] == "6.1.0-40-amd64"
    assert any("gave up after" in entry["reason"] for entry in facts["problems"])


@pytest.mark.parametrize(
    ("path", "probe", "known"),
    [
        ("/proc/sys/kernel/random/boot_id", "host", set()),
        ("/usr/local/cuda-13.0/version.json", "cuda", {"gpus", "nics", "driver", "busy"}),
        ("/var/lib/gpu_fleet/verification.json", "record", {"gpus", "driver", "pytorch"}),
    ],
)
def test_failure_19_a_read_that_sleeps_in_the_kernel_is_given_up(host: Host, path: str, probe: str, known: set[str]) -> None:
    host.program("systemctl", HANGS.format(folder=host.bin.parent))
    facts, seconds = run(host, STUCK.format(path=path), timeout=2, probe_timeout=1)
    assert seconds < 8
    assert facts["problems"][-1] == {"probe": probe, "reason": "gave up after 2.0 s, in the midst of what cannot be interrupted"}
    assert {key for key in known if facts[key] is None} == set()
    assert facts["schema"] == 1
    if known:
        hardware_is_whole(facts, host)
        assert left_behind(host) == []
