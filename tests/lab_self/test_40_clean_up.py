# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab leaves nothing behind, however it ends; and two of them do not meet."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import images
from lab.client import HostSpec, Lab
from lab.paths import CACHE
from lab_self.looks import COMMAND, boot_id, daemons, inhabited, own_namespaces, traces, until
from own_lab import own_name


@pytest.fixture
def other() -> Iterator[Lab]:
    """Give a second lab, not up yet; whatever the test made of it is taken away."""
    lab = Lab(own_name("self2"))
    yield lab
    lab.down()
    assert traces(lab.name) == []


class Command:
    """A `lab` command as a terminal starts it: in a process group that Ctrl-C goes to."""

    def __init__(self, *words: str, cache: Path = CACHE) -> None:
        """Start it."""
        environment = {**os.environ, "GPU_FLEET_LAB_CACHE": str(cache)}
        self.process = subprocess.Popen(
            [COMMAND, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment, process_group=0
        )

    def reads(self, text: str) -> None:
        """Wait for a line of progress."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        raise AssertionError(f"the command ended without saying {text!r}")

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C; returns the exit code and what was said since."""
        os.killpg(self.process.pid, signal.SIGINT)
        _, said = self.process.communicate(timeout=90)
        return self.process.returncode, said


def test_down_leaves_nothing(other: Lab) -> None:
    """Processes, mounts, control groups, namespaces and folders go, and the shared ssh connections into the lab too."""
    other.up([HostSpec("n1", profile="h100-sxm8"), HostSpec("n2")])
    control = other.paths.run / "control-n1"
    shared = ["-o", "ControlMaster=auto", "-o", f"ControlPath={control}", "-o", "ControlPersist=600"]
    subprocess.run([*other.ssh("n1")[:3], *shared, "n1", "true"], check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert control.exists()
    made = own_namespaces(other)
    assert len(made) > 10
    assert len(traces(other.name)) > 4
    other.down()
    assert traces(other.name) == []
    assert until(lambda: not made & inhabited())
    other.down()


def test_a_killed_daemon_takes_its_hosts_along(other: Lab) -> None:
    """SIGKILL to any of its processes: every host is gone at once; the next `up` starts anew, `down` sweeps the rest."""
    for _ in range(2):
        other.up([HostSpec("n1")])
        made = own_namespaces(other)
        # The innermost of the three: the others have to notice.
        os.kill(max(daemons(other.name)), signal.SIGKILL)
        assert until(lambda found=made: not found & inhabited())  # type: ignore[misc]
        assert not other.running()
    other.down()
    assert traces(other.name) == []


@pytest.mark.parametrize("moment", ["booting", "started"])
def test_ctrl_c_during_up_leaves_nothing_and_up_works_again(other: Lab, moment: str) -> None:
    """Whether hosts boot already or the daemon only starts."""
    # As many as take a while, so that Ctrl-C comes in the middle.
    command = Command("up", "--lab", other.name, "--nodes", "12")
    if moment == "booting":
        command.reads("booting n1, n2,")
    else:
        assert until(lambda: daemons(other.name) != [])
    code, said = command.interrupt()
    assert code == 130, said
    assert traces(other.name) == []
    assert Command("up", "--lab", other.name, "--nodes", "1").process.wait(timeout=120) == 0
    assert other.run("n1", ["true"]).returncode == 0


def test_ctrl_c_during_a_second_up_leaves_what_was_there(other: Lab) -> None:
    """Only what was being added goes."""
    other.up([HostSpec("n1")])
    before = boot_id(other, "n1")
    command = Command("up", "--lab", other.name, "--nodes", "12")
    command.reads("booting n2, n3,")
    code, said = command.interrupt()
    assert code == 130, said
    assert [host["name"] for host in other.status()["hosts"]] == ["n1"]
    assert boot_id(other, "n1") == before


@pytest.fixture
def fresh_cache(tmp_path: Path) -> Path:
    """Give a cache without images, which shares what is slow to get."""
    for shared in ("downloads", "vendor"):
        (tmp_path / shared).symlink_to(CACHE / shared)
    return tmp_path


def mounts_below(folder: Path) -> list[str]:
    """Return the processes that have something mounted below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            if f"{folder}/" in path.read_text():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_ctrl_c_during_the_slow_build_leaves_no_mount(other: Lab, fresh_cache: Path) -> None:
    """A tree counts only when it is whole."""
    command = Command("up", "--lab", other.name, "--nodes", "1", cache=fresh_cache)
    command.reads("tree: extracting archives")
    code, said = command.interrupt()
    assert code == 130, said
    assert until(lambda: mounts_below(fresh_cache) == [], 10)
    assert list((fresh_cache / "trees").glob("bookworm-*")) == []


def test_an_interrupted_image_is_built_the_next_time(other: Lab, fresh_cache: Path) -> None:
    """The thin layer as well: nothing half-made is taken for whole."""
    tree = images.find("debian12").tree()
    (fresh_cache / "trees").mkdir()
    (fresh_cache / "trees" / tree.name).symlink_to(tree)
    command = Command("up", "--lab", other.name, "--nodes", "1", cache=fresh_cache)
    command.reads("preparing image debian12")
    code, said = command.interrupt()
    assert code == 130, said
    assert until(lambda: mounts_below(fresh_cache) == [], 10)
    assert list((fresh_cache / "images").glob("debian12-*")) == []
    assert Command("up", "--lab", other.name, "--nodes", "1", cache=fresh_cache).process.wait(timeout=180) == 0
    assert other.run("n1", ["hostname"]).stdout == "n1\n"
    assert len(list((fresh_cache / "images").glob("debian12-*"))) == 1


def test_two_labs_with_the_same_names_and_addresses_do_not_meet(pair: Lab, other: Lab, tmp_path: Path) -> None:
    """Each has its own n1; ending one is nothing to the other."""
    other.up([HostSpec("n1")])
    assert boot_id(other, "n1") != boot_id(pair, "n1")
    other.run("n1", "echo other > /root/whose")
    assert pair.run("n1", ["cat", "/root/whose"]).returncode != 0
    before = boot_id(pair, "n1")
    # The other's hosts do not open to this lab's key.
    wrong = tmp_path / "ssh_config"
    wrong.write_text(other.paths.ssh_config.read_text().replace(f"IdentityFile {other.paths.run}", f"IdentityFile {pair.paths.run}"))
    done = subprocess.run(["ssh", "-F", str(wrong), "n1", "true"], capture_output=True, text=True, timeout=60)
    assert "Permission denied" in done.stderr, done.stderr
    other.down()
    assert boot_id(pair, "n1") == before


def test_two_ups_at_once_make_one_lab(other: Lab) -> None:
    """The second waits for the first, and adds its own."""
    commands = [Command("up", "--lab", other.name, "--host", f"n{number}:debian12:none") for number in (1, 2)]
    assert [command.process.wait(timeout=120) for command in commands] == [0, 0]
    assert sorted(host["name"] for host in other.status()["hosts"]) == ["n1", "n2"]
