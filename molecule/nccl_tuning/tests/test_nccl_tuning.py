# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nccl_tuning promises, seen on the hosts."""

from __future__ import annotations

import json
import re

from testinfra.host import Host

CONFIGURATION = "/etc/nccl.conf"
# NCCL's manual wants these in nobody's configuration.
NEVER = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX", "NCCL_TOPO_FILE", "NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL", "NCCL_IB_DISABLE", "NCCL_DEBUG")


def settings(host: Host) -> dict[str, str]:
    """Return the settings as NCCL reads them: the first "=" separates, and nothing is trimmed."""
    lines = [line for line in host.file(CONFIGURATION).content_string.splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def infiniband(host: Host) -> list[str]:
    """Return the names of the active InfiniBand devices, from the kernel's own files."""
    text = host.check_output("cd /sys/class/infiniband && grep -H . */ports/1/link_layer */ports/1/state")
    facts: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        path, value = line.split(":", 1)
        facts.setdefault(path.split("/")[0], {})[path.rsplit("/", 1)[1]] = value
    names = [name for name, fact in facts.items() if fact["link_layer"] == "InfiniBand" and "ACTIVE" in fact["state"]]
    return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def test_the_file_is_roots_and_readable_for_every_job(host: Host) -> None:
    """Any account's job reads it; only root may write it."""
    file = host.file(CONFIGURATION)
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)


def test_the_hcas_are_named_exactly_and_are_all_that_carry_the_fabric(host: Host) -> None:
    """The leading "=" is there (else mlx5_1 would mean mlx5_10 too), and Ethernet devices are not."""
    names = infiniband(host)
    assert len(names) == 8
    assert settings(host)["NCCL_IB_HCA"] == "=" + ",".join(names)


def test_the_fabric_owners_numbers_and_the_chosen_interface_are_in_force(host: Host) -> None:
    """What the inventory says reaches the file, and the interface exists."""
    found = settings(host)
    assert found["NCCL_IB_TC"] == "106"
    assert found["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert host.interface("eth0").exists


def test_nothing_else_is_set_and_every_line_is_one_that_nccl_can_read(host: Host) -> None:
    """No setting that NCCL's manual keeps for debugging; no blanks, no quotes, no line that is too long."""
    assert set(settings(host)) == {"NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_SOCKET_IFNAME"}
    text = host.file(CONFIGURATION).content_string
    assert not [name for name in NEVER if name in text]
    for line in text.splitlines():
        assert line.startswith("#") or re.fullmatch(r"NCCL_[A-Z_]+=[A-Za-z0-9_=,.:-]+", line), line
        assert len(line) < 1024

def test_what_is_managed_is_written_down(host: Host) -> None:
    """The host's own list has it, with what was there before; unmanage.yml lives on it."""
    listed = json.loads(host.file("/var/lib/gpu_fleet/managed.json").content)
    assert {("file", CONFIGURATION)} <= {(item["kind"], item["id"]) for item in listed["items"] if item["role"] == "nccl_tuning"}
