# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line, the words that name hosts, the protocol and the inventory."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from lab import cli, inventory, keys, machine, network, paths, wire
from lab.faults import FAULTS
from lab.paths import LabError, LabPaths
from lab.spec import HostSpec, parse

COMMANDS = ("up", "down", "status", "ssh", "exec", "fault", "save", "inventory")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help says what the command does and how the lab is named."""
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert "--lab" in capsys.readouterr().out


def test_the_help_on_faults_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has to read code to break a host."""
    with pytest.raises(SystemExit):
        cli.main(["fault", "--help"])
    text = capsys.readouterr().out
    assert [kind for kind in FAULTS if f"  {kind}" not in text] == []


def test_a_lab_that_is_not_up_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The line says how to start it."""
    assert cli.main(["status", "--lab", "never-started"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "lab up --lab never-started" in said


@pytest.mark.parametrize("words", [["up"], ["up", "--nodes", "2", "--host", "n1:debian12:none"], ["exec", "n1"], ["exec", "n1", "--"]])
def test_requests_that_make_no_sense_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No hosts, a host twice, no command: one line, before anything is touched."""
    assert cli.main(words) == 1
    assert "name" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["x", "0", "-3", "65", "1.5"])
def test_a_number_of_hosts_is_one(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The line says which would do."""
    with pytest.raises(SystemExit):
        cli.main(["up", f"--nodes={number}"])
    assert f"'{number}': give a number of hosts from 1 to 64" in capsys.readouterr().err


def test_a_fault_of_nothing_is_told_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of a command gets the other half's choices."""
    assert cli.main(["fault", "bogus"]) == 1
    said = capsys.readouterr().err
    assert "lab fault HOST KIND" in said and all(kind in said for kind in FAULTS) and said.count("\n") == 1


def test_host_words_are_read_and_written_alike() -> None:
    """NAME:IMAGE:PROFILE[:LAYERS], and what JSON carries."""
    spec = parse("n12:debian13:h100-sxm8:driver,torch")
    assert spec == HostSpec("n12", "debian13", "h100-sxm8", ("driver", "torch"))
    assert spec.number == 12
    assert parse(str(spec)) == spec
    assert HostSpec.unpacked(json.loads(json.dumps(spec.packed()))) == spec


@pytest.mark.parametrize(
    "text", ["n1", "n1:debian12", "n1:debian12:none:", "n0:debian12:none", "n65:debian12:none", "n01:debian12:none", "x1:debian12:none"]
)
def test_bad_host_words_are_refused(text: str) -> None:
    """A host's number is the end of its address, so names are n1 to n64."""
    with pytest.raises(LabError):
        parse(text)


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a/b", "a" * 32, "a.b"])
def test_lab_names_are_plain(name: str) -> None:
    """A lab's name becomes a folder and a control group."""
    with pytest.raises(LabError):
        LabPaths(name)


@pytest.mark.parametrize("rate", ["200", "fast", "200 mbit", "-1mbit", "200mbit; reboot"])
def test_rates_are_checked_before_they_reach_tc(rate: str) -> None:
    """A rate is a number and its unit, nothing else."""
    assert not network.RATE.fullmatch(rate)
    assert network.RATE.fullmatch("200mbit")


def test_messages_arrive_whole_and_with_their_descriptors() -> None:
    """Longer than a socket's buffer, and an open file goes along."""
    here, there = socket.socketpair(socket.AF_UNIX)
    read_end, write_end = os.pipe()
    message = {"op": "exec", "argv": ["x" * 200_000, "\n"]}
    sender = threading.Thread(target=wire.send, args=(there, message, [write_end]))
    sender.start()
    got, descriptors = wire.receive(here)
    sender.join(10)
    there.close()
    assert got == message
    os.write(descriptors[0], b"through")
    assert os.read(read_end, 7) == b"through"
    assert wire.receive(here) == ({}, [])
    for descriptor in (read_end, write_end, *descriptors):
        os.close(descriptor)
    here.close()


def test_a_message_that_is_no_json_is_a_hangup() -> None:
    """A stray client cannot take the daemon's thread down."""
    here, there = socket.socketpair(socket.AF_UNIX)
    there.sendall(b"GET / HTTP/1.1\r\n")
    assert wire.receive(here) == ({}, [])
    here.close()
    there.close()


def test_the_inventory_holds_the_connection_and_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups and variables that the playbooks ask for, host names as ssh knows them."""
    monkeypatch.setattr(paths, "RUN", tmp_path)
    lab = LabPaths("one")
    lab.run.mkdir()
    state = {
        "hosts": [{"name": "n1"}, {"name": "n2"}],
        "ssh_config": str(lab.ssh_config),
        "site": {"url": "http://vendor.lab", "fingerprint": "F" * 40},
    }
    lab.state.write_text(json.dumps(state))
    made = inventory.build(lab)
    assert made["gpu_nodes"]["hosts"] == made["gpu_fabric_lab"]["hosts"] == ["n1", "n2"]
    variables = made["all"]["vars"]
    assert f"-F {lab.ssh_config}" in variables["ansible_ssh_common_args"]
    assert variables["gpu_stack_mirror_key_fingerprint"] == "F" * 40
    assert variables["conda_pytorch_wheel_index"] == "http://vendor.lab/whl/{tag}"
    with pytest.raises(LabError, match="not up"):
        inventory.build(LabPaths("two"))


def test_host_keys_are_checked() -> None:
    """No option that would accept any host stands in what ssh is given."""
    text = keys.ssh_config(LabPaths("one"))
    assert "StrictHostKeyChecking yes" in text
    assert "UserKnownHostsFile /run/gpu-fleet-lab/one/known_hosts" in text


def test_a_machine_that_cannot_carry_a_lab_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not root, no namespaces: the reason, and nothing is installed or changed."""
    monkeypatch.setattr(machine, "install_tools", lambda: pytest.fail("tools are installed on a machine that cannot carry a lab"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="needs root"):
        machine.check()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "NAMESPACES", ("--no-such-namespace",))
    with pytest.raises(LabError, match="namespaces") as refused:
        machine.check()
    assert "\n" not in str(refused.value)


def test_missing_tools_are_found_by_program_and_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names the package that apt has to install, once."""
    tools = {"sh": "present", "no-such-program": "one", "/no/such/file": "two", "no-such-either": "one"}
    monkeypatch.setattr(machine, "TOOLS", tools)
    assert machine.lacking() == ["one", "two"]
