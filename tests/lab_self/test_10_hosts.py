# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts are real hosts: they boot, reboot themselves, lose their power, hang, and are cut off."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from lab.client import HostSpec, Lab, LabError
from lab_self.looks import COMMAND, boot_id, daemons, reaches, until


def test_hosts_are_reached_by_a_plain_ssh(pair: Lab) -> None:
    """From a normal shell, with nothing but the file that the lab names."""
    done = subprocess.run([*pair.ssh("n2"), "hostname"], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "n2", done.stderr


def test_another_host_key_is_not_accepted(pair: Lab) -> None:
    """The key is pinned: who else answers is refused."""
    known = pair.paths.run / "known_hosts"
    right = known.read_text()
    try:
        known.write_text("* " + " ".join((pair.paths.run / "id_ed25519.pub").read_text().split()[:2]) + "\n")
        done = subprocess.run([*pair.ssh("n1"), "true"], capture_output=True, text=True, timeout=60)
    finally:
        known.write_text(right)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_hosts_run_their_own_systemd_in_their_own_namespaces(pair: Lab) -> None:
    """Nothing of the machine shows: its interfaces, its uptime, its old control groups."""
    looked = {
        "state": ["systemctl", "is-system-running", "--wait"],
        "init": ["cat", "/proc/1/comm"],
        "interfaces": ["ls", "/sys/class/net"],
        "groups": ["stat", "--file-system", "--format=%T", "/sys/fs/cgroup"],
        "failed": ["systemctl", "--failed", "--no-legend", "--plain"],
    }
    seen = {name: pair.run("n1", argv).stdout.split() for name, argv in looked.items()}
    assert seen == {"state": ["running"], "init": ["systemd"], "interfaces": ["eth0", "lo"], "groups": ["cgroup2fs"], "failed": []}
    with open("/proc/uptime") as file:
        assert float(pair.run("n1", ["cat", "/proc/uptime"]).stdout.split()[0]) < float(file.read().split()[0])


def test_hosts_see_each_other_and_no_way_out(pair: Lab) -> None:
    """Names lead to neighbours; there is no route but to them."""
    assert reaches(pair, "n1", "n2")
    routes = pair.run("n1", ["ip", "-4", "route"]).stdout.split("\n")
    assert [line.split()[0] for line in routes if line] == ["10.213.7.0/24"]
    assert "default" not in pair.run("n1", ["ip", "-6", "route"]).stdout


def test_a_second_up_changes_nothing(pair: Lab) -> None:
    """Running hosts stay as they are; another kind of host under a name in use is refused."""
    before = {name: boot_id(pair, name) for name in ("n1", "n2")}
    pair.up([HostSpec("n1"), HostSpec("n2")])
    assert {name: boot_id(pair, name) for name in ("n1", "n2")} == before
    with pytest.raises(LabError, match="take it down first"):
        pair.up([HostSpec("n1", profile="h100-sxm8")])
    assert boot_id(pair, "n1") == before["n1"]


def test_a_host_reboots_itself(pair: Lab) -> None:
    """Another boot id, uptime from nought; the disk stays and memory does not."""
    before, boots = boot_id(pair, "n1"), pair.status()["hosts"][0]["boots"]
    pair.run("n1", "echo kept > /root/disk; echo lost > /run/memory")
    pair.fault("n1", "reboot")
    assert boot_id(pair, "n1") != before
    assert pair.status()["hosts"][0]["boots"] == boots + 1
    assert float(pair.run("n1", ["cat", "/proc/uptime"]).stdout.split()[0]) < 60
    assert pair.run("n1", "cat /root/disk; ls /run/memory").stdout == "kept\n"


def test_an_unplugged_host_falls_silent_and_comes_back(pair: Lab) -> None:
    """Its neighbours get no goodbye, what it was doing is gone, what it had written is there."""
    pair.run("n1", "echo written > /root/before; systemd-run --unit=work sleep 1000")
    silent = "import socket\ntry: socket.create_connection(('n1', 22), 2)\nexcept TimeoutError: print('silence')\nexcept OSError as e: print(e)"
    pair.fault("n1", "unplug")
    try:
        assert {host["name"]: host["state"] for host in pair.status()["hosts"]} == {"n1": "off", "n2": "on"}
        assert json.loads(pair.paths.state.read_text())["hosts"][0]["state"] == "off"
        # The neighbour still knows its address, so this is not a failed look-up.
        assert pair.run("n2", ["python3", "-c", silent]).stdout.strip() in ("silence", "[Errno 113] No route to host")
        with pytest.raises(LabError, match="n1 is off"):
            pair.run("n1", ["true"])
    finally:
        pair.fault("n1", "plug")
    assert pair.run("n1", ["cat", "/root/before"]).stdout == "written\n"
    assert pair.run("n1", ["systemctl", "is-active", "work"]).stdout.strip() == "inactive"
    assert reaches(pair, "n2", "n1")


def test_a_frozen_host_hangs_and_goes_on(pair: Lab) -> None:
    """Its kernel still answers pings, as a machine's does whose processes hang; nothing else moves until it is thawed."""
    pair.run("n1", ["systemd-run", "--unit=ticks", "sh", "-c", "while sleep 0.1; do echo x >> /run/ticks; done"])
    before = boot_id(pair, "n1")
    pair.fault("n1", "freeze")
    try:
        assert pair.status()["hosts"][0]["state"] == "frozen"
        with pytest.raises(LabError, match="did not answer"):
            pair.run("n1", ["true"], timeout=2)
        hang = "import socket; s = socket.create_connection(('n1', 22), 2); s.settimeout(1.5); s.recv(1)"
        assert "TimeoutError" in pair.run("n2", ["python3", "-c", hang]).stderr
    finally:
        pair.fault("n1", "thaw")
    count = len(pair.run("n1", ["cat", "/run/ticks"]).stdout)
    assert until(lambda: len(pair.run("n1", ["cat", "/run/ticks"]).stdout) > count)
    assert boot_id(pair, "n1") == before
    pair.run("n1", ["systemctl", "stop", "ticks"])


def test_a_cut_host_believes_its_link_is_up(pair: Lab) -> None:
    """Nothing passes in either direction, and the carrier is still there; mended, all is as before."""
    pair.fault("n2", "cut")
    try:
        assert not reaches(pair, "n1", "n2")
        assert not reaches(pair, "n2", "n1")
        assert not reaches(pair, "n2", "10.213.7.254")
        assert pair.run("n2", ["cat", "/sys/class/net/eth0/carrier"]).stdout == "1\n"
        assert pair.status()["hosts"][1]["link"] == "cut"
    finally:
        pair.fault("n2", "mend")
    assert reaches(pair, "n1", "n2")


def rate(lab: Lab, *words: str) -> float:
    """Return what passes from n1 to n2, in Mbit/s."""
    done = lab.run("n1", ["iperf3", "--client", "n2", "--time", "2", "--omit", "1", "--json", *words])
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 1e6


def test_a_shaped_cable_carries_its_rate_in_both_directions(pair: Lab) -> None:
    """And its full one again afterwards."""
    pair.run("n2", ["systemd-run", "--unit=iperf", "iperf3", "--server"])
    assert until(lambda: ":5201" in pair.run("n2", ["ss", "-tln"]).stdout)
    pair.fault("n2", "shape", "50mbit")
    try:
        rates = [rate(pair), rate(pair, "--reverse")]
    finally:
        pair.fault("n2", "unshape")
    whole = rate(pair)
    pair.run("n2", ["systemctl", "stop", "iperf"])
    assert all(35 < value < 55 for value in rates), rates
    assert whole > 150, whole
    with pytest.raises(LabError, match="rate"):
        pair.fault("n2", "shape", "fast")


def test_what_a_client_started_ends_with_it(pair: Lab) -> None:
    """An interrupted `lab exec` leaves nothing running in the host."""
    client = subprocess.Popen([COMMAND, "exec", "--lab", pair.name, "n1", "--", "sleep", "98765"])
    running = ["pgrep", "-f", "sleep 98765"]
    assert until(lambda: pair.run("n1", running).returncode == 0)
    client.kill()
    client.wait()
    assert until(lambda: pair.run("n1", running).returncode == 1)


def test_what_cannot_be_done_is_said(pair: Lab) -> None:
    """Unknown hosts, faults and profiles are one line, and change nothing."""
    for target, kind, args in (
        ("n9", "reboot", []),
        ("n1", "no-such-fault", []),
        ("n1", "reboot", ["now"]),
        ("proxy", "half", []),
        ("site", "x", []),
    ):
        with pytest.raises(LabError):
            pair.fault(target, kind, *args)
    with pytest.raises(LabError, match="choose one of"):
        pair.up([HostSpec("n3", profile="no-such-profile")])
    assert [host["name"] for host in pair.status()["hosts"]] == ["n1", "n2"]


def test_the_daemon_collects_its_dead(pair: Lab) -> None:
    """What ends in the lab does not stay behind as a zombie."""
    subprocess.run([*pair.ssh("n1"), "true"], check=True, timeout=60)

    def zombies() -> list[str]:
        done = subprocess.run(["ps", "-eo", "stat=,ppid=,comm="], capture_output=True, text=True, check=True)
        rows = [line.split() for line in done.stdout.splitlines()]
        return [row[2] for row in rows if row[0].startswith("Z") and int(row[1]) in daemons(pair.name)]

    end = time.monotonic() + 20
    while zombies() and time.monotonic() < end:
        time.sleep(0.2)
    assert zombies() == []
