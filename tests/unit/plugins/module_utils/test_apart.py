# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in a process of its own: it ends in time whatever it does, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
# Work apart in an interpreter of its own, as in the module: nothing else runs in it. Signals that are blocked are what a sleep deep in the kernel
# is like: no timer and no polite signal gets through.
SCRIPT = """
import json, os, signal, subprocess, sys, time
from ansible_collections.gpu.fleet.plugins.module_utils import _apart
def deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
def work(tell):
    {work}
begin = time.monotonic()
outcome = _apart.work_apart(work, 1.0)
print(json.dumps([outcome.told, outcome.failure, time.monotonic() - begin]))
"""


def run(work: str, before: str = "") -> tuple[dict[str, Any], str | None, float]:
    script = before + SCRIPT.format(work=work.replace("\n", "\n    "))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    told, failure, seconds = json.loads(done.stdout)
    return told, failure, seconds


def gone(pid: int) -> bool:
    """Tell whether a process is gone, at the latest in two seconds; a zombie is."""
    until = time.monotonic() + 2
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_what_was_told_last_stands() -> None:
    told, failure, seconds = run('tell("a", [1, None]); tell("b", {"x": "\\u00e9" * 300000}); tell("a", 2)')
    assert (told["a"], len(told["b"]["x"]), failure) == (2, 300000, None)
    assert seconds < 1.0


def test_what_goes_wrong_is_told() -> None:
    told, failure, _ = run('raise KeyError("x")')
    assert "KeyError: 'x'" in told["raised"]
    assert failure == "broke off"


@pytest.mark.parametrize("how", ["deaf(); time.sleep(60)", "os.kill(os.getpid(), signal.SIGSTOP)", "while True: pass"])
def test_what_nothing_interrupts_is_given_up_with_what_it_told(how: str) -> None:
    told, failure, seconds = run(f'tell("pid", os.getpid()); tell("facts", 1)\n{how}')
    assert told["facts"] == 1
    assert failure == "gave up after 1.0 s, in the midst of what cannot be interrupted"
    assert 1.0 <= seconds < 3.0
    assert gone(told["pid"])


def test_a_process_that_dies_is_noticed_at_once() -> None:
    told, failure, seconds = run('tell("facts", 1); os.kill(os.getpid(), signal.SIGKILL)')
    assert (told, failure) == ({"facts": 1}, "broke off")
    assert seconds < 0.95


def test_programs_of_a_process_that_is_given_up_are_ended() -> None:
    told, failure, _ = run(
        'child = subprocess.Popen(["sleep", "300"], start_new_session=True)\n'
        'other = subprocess.Popen(["sleep", "0"], start_new_session=True)\n'
        'tell("started", child.pid); tell("started", other.pid); other.wait(); tell("ended", other.pid); tell("child", child.pid)\n'
        "deaf(); time.sleep(60)"
    )
    assert failure is not None
    assert gone(told["child"])


def test_a_program_that_was_not_told_of_yet_is_ended_as_well() -> None:
    """Between its start and the word of it the time may be up."""
    told, failure, _ = run(
        'program = subprocess.Popen(["sleep", "60"], start_new_session=True)\ntell("mine", program.pid)\ndeaf()\nwhile True: time.sleep(60)'
    )
    assert failure is not None
    assert gone(told["mine"])


def test_one_that_cannot_be_killed_holds_nobody() -> None:
    begin = time.monotonic()
    told, failure, seconds = run('tell("pid", os.getpid()); deaf(); time.sleep(12)', "import os\nos.kill = lambda *_: None\n")
    assert failure is not None
    assert seconds < 4.0
    # Also whoever reads the output of the module does not wait for it.
    assert time.monotonic() - begin < 9
    os.kill(told["pid"], 9)


def test_without_a_further_process_it_goes_in_this_one() -> None:
    before = "import os\nhome = os.getpid()\ndef fork(): raise OSError(11, 'no')\nos.fork = fork\n"
    told, failure, _ = run('tell("facts", os.getpid() == home)', before)
    assert (told, failure) == ({"facts": True}, None)


def test_what_was_told_is_not_sent_again() -> None:
    told, _, _ = run(
        "sent = []; write = os.write\n"
        "os.write = lambda pipe, data: sent.append(len(data)) or write(pipe, data)\n"
        'tell("a", "x" * 9000); tell("b", 1); tell("a", "x" * 9000); tell("sent", sum(sent))'
    )
    assert (len(told["a"]), told["b"]) == (9000, 1)
    assert told["sent"] < 10000


def test_a_number_that_a_second_program_gets_counts_again() -> None:
    told, failure, _ = run(
        'child = subprocess.Popen(["sleep", "300"], start_new_session=True)\n'
        'tell("started", child.pid); tell("ended", child.pid); tell("started", child.pid); tell("child", child.pid)\n'
        "deaf(); time.sleep(60)"
    )
    assert failure is not None
    assert gone(told["child"])
