# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose driver is changed by one module, without any role around it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hardware.hosts import PACKAGES, SITE, Node
from integration import harness
from lab.client import HostSpec
from own_lab import own_lab

RECORD = "/var/lib/gpu_fleet/driver/transaction.json"
UNIT = "/etc/systemd/system/gpu-fleet-driver.service"
PIN = "/etc/apt/preferences.d/gpu-fleet-nvidia.pref"
SERVICES = ["nvidia-fabricmanager.service", "nvidia-persistenced.service"]
NAMES = [*PACKAGES, "nvidia-fabricmanager"]
PLAYBOOK = """
- name: Change the driver
  hosts: all
  gather_facts: false
  tasks:
    - name: Change
      gpu.fleet.driver_transaction: "{{ arguments }}"
"""


@dataclass
class Machine:
    """The host, and the module on it."""

    node: Node
    playbook: Path

    def module(self, **arguments: Any) -> dict[str, Any]:
        """Run the module; returns its result, with C(rc) of the run."""
        outcome = harness.play(str(self.playbook), self.node.lab.name, extra={"arguments": arguments})
        results = outcome.results("driver_transaction")
        assert results, outcome.tail()
        return {"rc": outcome.rc, **results[-1][1]}

    def request(self, version: str, **more: Any) -> dict[str, Any]:
        """What a plan asks for."""
        pin = "".join(f"Package: {name}\nPin: version {version}-1\nPin-Priority: 1001\n\n" for name in NAMES)
        return {
            "version": version, "flavour": "open", "packages": dict.fromkeys(NAMES, f"{version}-1"), "files": {PIN: pin},
            "services": SERVICES, "reload": True, **more,
        }  # fmt: skip

    def change(self, version: str, **more: Any) -> dict[str, Any]:
        """Change the driver as a plan asks for it."""
        return self.module(**self.request(version, **more))

    def record(self) -> dict[str, Any]:
        """Return the record as it is on the disk."""
        found: dict[str, Any] = json.loads(self.node("cat", RECORD))
        return found

    def wait(self, *steps: str, seconds: float = 60) -> str:
        """Wait until the record announces one of the steps."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done = self.node.run("cat", RECORD)
            record = json.loads(done.stdout) if done.returncode == 0 else {}
            if record.get("status") == "running" and record.get("step") in steps:
                return str(record["step"])
            time.sleep(0.05)
        raise AssertionError(f"none of {steps} was announced")

    def settled(self, seconds: float = 90) -> dict[str, Any]:
        """Wait until no transaction is under way, whoever finishes it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done = self.node.run("cat", RECORD)
            record = json.loads(done.stdout) if done.returncode == 0 else {"status": "running"}
            at_work = record["status"] in ("running", "waiting_for_reboot") or self.node.run("ls", UNIT).stdout
            if not at_work:
                return dict(record)
            time.sleep(0.2)
        raise AssertionError(f"still {record}")

    def versions(self) -> set[str]:
        """Return every version that the host has of the driver, by packages, modules, libraries and what is loaded."""
        node = self.node
        rows = node("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\\n", *NAMES).splitlines()
        found = {row.split()[1].removesuffix("-1") if row.endswith(" installed") else row for row in rows}
        found.add(node("modinfo", "-F", "version", "nvidia").strip())
        found.add(node("cat", "/sys/module/nvidia/version").strip())
        found.add(node("readlink", "-f", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").strip().partition(".so.")[2])
        found.update(node("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split())
        found.update(line.split()[2].removesuffix("-1") for line in node("cat", PIN).splitlines() if line.startswith("Pin: version"))
        return found

    def whole(self, version: str) -> None:
        """Assert that the host runs this driver in lockstep, with its services, and nothing is half done."""
        assert self.versions() == {version}
        assert self.node("dpkg", "--audit") == ""
        for unit in SERVICES:
            assert self.node.run("systemctl", "is-active", unit).stdout.strip() == "active", unit
        assert self.node.run("systemctl", "cat", "gpu-fleet-driver.service").returncode != 0


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Give a bare host with eight GPUs that knows the vendor's site; the tests of a file run in order and hand it on."""
    with own_lab("transaction", [HostSpec("n1", image="debian12", profile="h100-sxm8")]) as lab:
        lab.run("n1", "cat >/etc/apt/sources.list.d/vendor.list", f"deb [trusted=yes] {SITE} /\n")
        playbook = tmp_path_factory.mktemp("transaction") / "change.yml"
        playbook.write_text(PLAYBOOK)
        yield Machine(Node(lab, "n1", "h100-sxm8"), playbook)
