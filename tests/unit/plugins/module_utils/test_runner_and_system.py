# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._runner import MOST_OUTPUT, Runner
from ansible_collections.gpu.fleet.plugins.module_utils._system import System


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)


def runner(folder: Path, limit: float = 3.0, total: float = 10.0) -> Runner:
    end = time.monotonic() + total
    return Runner(lambda: max(0.0, end - time.monotonic()), limit, f"{folder}:/usr/bin:/bin")


def test_answer_status_and_locale(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LD_PRELOAD", "/nowhere.so")
    program(programs, "speak", 'echo "$LC_ALL $1 ${LD_PRELOAD-unset}"; echo oh >&2; exit 7\n')
    result = runner(programs).run(["speak", "a b;c"])
    assert (result.rc, result.out, result.err, result.failure) == (7, "C a b;c unset\n", "oh\n", None)
    assert result.complaint == "exit status 7: oh"


def test_a_missing_program_is_said_to_be_missing(programs: Path) -> None:
    result = runner(programs).run(["no-such-program"])
    assert (result.rc, result.failure) == (None, "no-such-program is not installed")


def test_a_program_that_cannot_be_run(programs: Path) -> None:
    (programs / "broken").write_text("#!/no/such/interpreter\n")
    (programs / "broken").chmod(0o755)
    failure = runner(programs).run(["broken"]).failure
    assert failure is not None
    assert failure.startswith("cannot be run")


def test_a_hanging_program_is_killed_with_its_children(programs: Path) -> None:
    program(programs, "hang", f"echo begun\nsleep 300 & echo $! > {programs}/pid\nwait\n")
    begin = time.monotonic()
    result = runner(programs, limit=0.4).run(["hang"])
    assert time.monotonic() - begin < 1.5
    assert (result.rc, result.out, result.failure) == (None, "begun\n", "no answer within 0.4 s")
    state = Path(f"/proc/{(programs / 'pid').read_text().strip()}/stat")
    deadline = time.monotonic() + 2
    while state.exists() and ") Z" not in state.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not state.exists() or ") Z" in state.read_text()


def test_an_answer_counts_although_a_grandchild_keeps_the_pipe(programs: Path) -> None:
    program(programs, "leave", "echo done\nsleep 2 &\nexit 0\n")
    result = runner(programs, limit=0.5).run(["leave"])
    assert (result.rc, result.out, result.failure) == (0, "done\n", None)


def test_what_an_ended_program_left_in_its_group_is_ended_too(programs: Path) -> None:
    program(programs, "leave", f"sleep 300 & echo $! >{programs}/pid\nexit 0\n")
    assert runner(programs, limit=0.3).run(["leave"]).failure is None
    state = Path(f"/proc/{(programs / 'pid').read_text().strip()}/stat")
    deadline = time.monotonic() + 2
    while state.exists() and ") Z" not in state.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not state.exists() or ") Z" in state.read_text()


def test_many_that_cannot_be_killed_are_not_waited_for_one_by_one(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "stuck", "sleep 3\n")
    run = runner(programs, limit=0.2)
    children = [run.start(["stuck"]) for _ in range(30)]
    monkeypatch.setattr(os, "killpg", lambda _pid, _signal: None)
    begin = time.monotonic()
    assert all("left behind" in (run.result(child).failure or "") for child in children)
    assert time.monotonic() - begin < 2.5
    for child in children:
        assert child.process is not None
        child.process.kill()
        child.process.wait(5)


def test_a_child_that_cannot_be_killed_is_left_behind(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(programs, "stuck", "sleep 1\n")
    run = runner(programs, limit=0.2)
    child = run.start(["stuck"])
    assert child.process is not None
    # What a child in uninterruptible sleep looks like from here: signals do nothing.
    monkeypatch.setattr(os, "killpg", lambda _pid, _signal: None)
    begin = time.monotonic()
    result = run.result(child)
    assert time.monotonic() - begin < 0.8
    assert result.failure == "no answer within 0.2 s; it cannot be killed and was left behind"
    child.process.wait(5)


def test_much_output_is_taken_while_another_is_waited_for(programs: Path) -> None:
    program(programs, "much", "head -c 1000000 /dev/zero\n")
    program(programs, "slow", "sleep 0.3\necho slow\n")
    run = runner(programs)
    much, slow = run.start(["much"]), run.start(["slow"])
    assert run.result(slow).out == "slow\n"
    assert much.process is not None
    assert much.process.wait(1) == 0
    assert len(run.result(much).out) == 1000000


def test_endless_output_is_cut(programs: Path) -> None:
    result = runner(programs, limit=20, total=20).run(["head", "-c", str(4 * MOST_OUTPUT), "/dev/zero"])
    assert result.rc is None
    assert result.failure == "more than 8 MiB of output"


def test_the_total_limits_every_program(programs: Path) -> None:
    program(programs, "hang", "sleep 30\n")
    run = runner(programs, limit=5, total=0.4)
    begin = time.monotonic()
    first, second = run.start(["hang"]), run.start(["hang"])
    assert run.result(first).failure == "no answer within 0.4 s"
    assert run.result(second).rc is None
    assert run.run(["hang"]).failure == "not run: the time of the whole observation was used up"
    assert time.monotonic() - begin < 1.5


def test_close_ends_what_nobody_asked_for(programs: Path) -> None:
    program(programs, "hang", "exec sleep 300\n")
    run = runner(programs)
    child = run.start(["hang"])
    run.close()
    assert isinstance(child.process, subprocess.Popen)
    assert child.process.poll() is not None


def own_programs() -> set[str]:
    """The numbers of those children of this process that are still about."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == str(os.getpid()) and fields[0] != "Z":
            found.add(stat.parent.name)
    return found


def test_wherever_the_time_of_a_probe_ends_no_program_slips_away(programs: Path) -> None:
    before = own_programs()
    for step in range(120):
        system, run = System("/", 10.0), runner(programs, limit=0.01)
        with system.probe("programs", 0.001 + step / 8000):
            for _ in range(3):
                run.result(run.start(["sleep", "300"]))
        run.close()
        # One that was killed may need a moment on a machine that does other things too.
        until = time.monotonic() + 3
        while own_programs() - before and time.monotonic() < until:
            time.sleep(0.02)
        assert own_programs() <= before, step


def test_probe_notes_what_goes_wrong_and_goes_on() -> None:
    system = System()
    with system.probe("first", 3):
        raise ValueError("bad")
    with system.probe("second", 0.05):
        time.sleep(5)
    with system.probe("third", 3):
        system.problem("one")
        system.problem("one")
    assert system.problems == [
        {"probe": "first", "reason": "ValueError: bad"},
        {"probe": "second", "reason": "gave up after 0.1 s"},
        {"probe": "third", "reason": "one"},
    ]


def test_no_probe_runs_when_the_time_is_used_up() -> None:
    system = System(total=0)
    with system.probe("late", 3):
        time.sleep(5)
    assert system.problems == [{"probe": "late", "reason": "not run: the time of the whole observation was used up"}]


def test_reading(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b" caf\xe9 \n")
    (tmp_path / "hex").write_text("0x10de\n")
    (tmp_path / "large").write_bytes(b"x" * 3_000_000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "hex")
    system = System(str(tmp_path))
    assert system.read("/text") == "caf\ufffd"
    assert system.number("/hex") == 0x10DE
    assert system.number("/text") is None
    assert system.read("/nothing") is None
    assert system.read("/text/below") is None
    assert len(system.read("/large") or "") == 1 << 20
    assert len(system.read_bytes("/large", 8 << 20) or b"") == 3_000_000
    assert system.read("/pipe", quiet=True) is None
    assert system.problems == []
    assert system.read("/pipe") is None
    assert system.problems.pop()["reason"] == "cannot read /pipe: it is no regular file"
    assert system.link("/link") == "hex"
    assert system.link("/hex") is None
    assert system.real("/link") == "/hex"
    assert system.names("/nothing") == []
    assert system.problems == []


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    system = System(str(tmp_path))
    assert system.read("/folder") is None
    assert system.read("/folder", quiet=True) is None
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert system.names("/loop") == []
    assert [entry["reason"].split(":")[0] for entry in system.problems] == ["cannot read /folder", "cannot list /loop"]


def test_a_device_is_found_through_the_links_of_sysfs(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_0").mkdir(parents=True)
    (tmp_path / "sys/devices/pci0000:15/0000:18:00.0/infiniband/mlx5_0/device").symlink_to("../../../0000:18:00.0")
    for folder, target in (("bus/pci/devices", "0000:18:00.0"), ("class/infiniband", "0000:18:00.0/infiniband/mlx5_0")):
        (tmp_path / "sys" / folder).mkdir(parents=True)
        up = "../" * (folder.count("/") + 1)
        (tmp_path / "sys" / folder / target.rsplit("/", 1)[-1]).symlink_to(f"{up}devices/pci0000:15/{target}")
    system = System(str(tmp_path))
    for path in ("/sys/bus/pci/devices/0000:18:00.0", "/sys/class/infiniband/mlx5_0/device", "/sys/class/infiniband/mlx5_0", "/sys/class/net/none"):
        assert system.device(path) == system.real(path)
    assert system.device("/sys/class/infiniband/mlx5_0/device") == "/sys/devices/pci0000:15/0000:18:00.0"
