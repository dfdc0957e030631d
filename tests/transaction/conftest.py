# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose driver is changed by one module, without any role around it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
OLD, NEW = "580.159.04", "580.178.04"
NAMES = [*PACKAGES, "nvidia-fabricmanager"]
PLAYBOOK = """
- name: Change the driver
  hosts: all
  gather_facts: false
  tasks:
    - name: Change
      gpu.fleet.driver_transaction: "{{ arguments }}"
"""
OBSERVATION = """
- name: Observe a host
  hosts: all
  gather_facts: false
  tasks:
    - name: Observe
      gpu.fleet.gpu_facts:
        gather_subset: [hardware, driver]
"""
# The unit of docs/transaction.md, for clocks that nobody can read back.
CLOCKS = "/etc/systemd/system/gpu-clocks.service"
LIMITS = ("index", "power.limit", "compute_mode", "mig.mode.current", "persistence_mode")


@dataclass
class Machine:
    """The host, and the module on it."""

    node: Node
    playbooks: Path
    # What somebody has set on the GPUs: as programs, and as the host shows it.
    settings: list[list[str]] = field(default_factory=list)
    shown: str = ""

    def module(self, **arguments: Any) -> dict[str, Any]:
        """Run the module; returns its result, with C(rc) of the run."""
        outcome = harness.play(str(self.playbooks / "change.yml"), self.node.lab.name, extra={"arguments": arguments})
        results = outcome.results("driver_transaction")
        assert results, outcome.tail()
        return {"rc": outcome.rc, **results[-1][1]}

    def facts(self) -> dict[str, Any]:
        """Return what gpu_facts says."""
        outcome = harness.play(str(self.playbooks / "observe.yml"), self.node.lab.name)
        assert outcome.rc == 0, outcome.tail()
        return harness.observation(outcome, self.node.name)

    def request(self, version: str, **more: Any) -> dict[str, Any]:
        """What a plan asks for."""
        pin = "".join(f"Package: {name}\nPin: version {version}-1\nPin-Priority: 1001\n\n" for name in NAMES)
        return {
            "version": version, "flavour": "open", "packages": dict.fromkeys(NAMES, f"{version}-1"), "files": {PIN: pin},
            "services": SERVICES, "settings": self.settings, "reload": True, **more,
        }  # fmt: skip

    def change(self, version: str, **more: Any) -> dict[str, Any]:
        """Change the driver as a plan asks for it."""
        return self.module(**self.request(version, **more))

    def begin(self, version: str, **more: Any) -> None:
        """Begin a change, or go on with it, and come back at once; the module's patience is over, and the service goes on."""
        done = self.change(version, wait=0, **more)
        assert done["rc"] != 0
        assert "goes on" in done["msg"], done["msg"]

    def now(self) -> str:
        """Return the version that the host runs."""
        return self.node("cat", "/sys/module/nvidia/version").strip()

    def other(self) -> str:
        """Return the version that it could be changed to."""
        return NEW if self.now() == OLD else OLD

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
        """Return every version that the host has of the driver, by packages, pins, modules, libraries and what is loaded."""
        node = self.node
        rows = node("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\\n", *NAMES).splitlines()
        found = {row.split()[1].removesuffix("-1") if row.endswith(" installed") else row for row in rows}
        found.add(node("modinfo", "-F", "version", "nvidia").strip())
        found.add(node("cat", "/sys/module/nvidia/version").strip())
        found.add(node("readlink", "-f", "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").strip().partition(".so.")[2])
        found.update(node("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split())
        found.update(line.split()[2].removesuffix("-1") for line in node("cat", PIN).splitlines() if line.startswith("Pin: version"))
        return found

    def show(self) -> str:
        """Return the settings of the GPUs; locked clocks show while a job runs."""
        node = self.node
        told = [node("nvidia-smi", f"--query-gpu={','.join(LIMITS)}", "--format=csv,noheader")]
        # In which order instances were made is nothing that a job could see.
        told += ["\n".join(sorted(node("nvidia-smi", "mig", option).splitlines())) for option in ("-lgi", "-lci")]
        node.fault("hold-gpu", "0")
        told.append(node("nvidia-smi", "-i", "0", "--query-gpu=clocks.current.graphics", "--format=csv,noheader"))
        node.fault("release-gpu")
        return "".join(told)

    def whole(self, version: str) -> None:
        """Assert that the host runs this driver in lockstep, with its services and settings, and that nothing is half done."""
        assert self.versions() == {version}
        assert self.node("dpkg", "--audit") == ""
        for unit in SERVICES:
            assert self.node.run("systemctl", "is-active", unit).stdout.strip() == "active", unit
        assert self.node.run("systemctl", "cat", "gpu-fleet-driver.service").returncode != 0
        if self.shown:
            assert self.show() == self.shown

    @contextlib.contextmanager
    def drop_in(self, unit: str, text: str) -> Iterator[None]:
        """Give a service a setting for as long as the context lasts."""
        path = f"/etc/systemd/system/{unit}.d/planted.conf"
        self.node("mkdir", "-p", path.rpartition("/")[0])
        self.node.lab.run(self.node.name, f"cat >{path}", f"[Service]\n{text}\n")
        self.node("systemctl", "daemon-reload")
        try:
            yield
        finally:
            self.node("rm", path)
            self.node("systemctl", "daemon-reload")

    @contextlib.contextmanager
    def broken_build(self, *versions: str) -> Iterator[None]:
        """Let the build of these versions' modules fail, as one against a kernel that they do not know does."""
        for version in versions:
            self.build_by(version, "sh -c 'echo planted.c:1: error: no such function >&2; exit 2'")
        try:
            yield
        finally:
            for version in versions:
                self.build_by(version, "cp /root/built/${PACKAGE_VERSION}/*.ko .")

    def build_by(self, version: str, command: str) -> None:
        """Have dkms build a version by a command of its own."""
        self.node.lab.run(self.node.name, f"cat >/etc/dkms/nvidia-{version}.conf", f'MAKE[0]="{command}"\nCLEAN="true"\n')

    def compiled(self) -> None:
        """Keep the modules that the compiler has just made, so that their next builds are a copy: these tests are not about the compiler."""
        version = self.now()
        self.node("sh", "-c", f"mkdir -p /root/built/{version} && cp /lib/modules/*/updates/dkms/nvidia*.ko /root/built/{version}/")
        self.build_by(version, "cp /root/built/${PACKAGE_VERSION}/*.ko .")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Give a bare host with eight GPUs that knows the vendor's site; the tests of a file run in order and hand it on."""
    with own_lab("transaction", [HostSpec("n1", image="debian12", profile="h100-sxm8")]) as lab:
        lab.run("n1", "cat >/etc/apt/sources.list.d/vendor.list", f"deb [trusted=yes] {SITE} /\n")
        folder = tmp_path_factory.mktemp("transaction")
        (folder / "change.yml").write_text(PLAYBOOK)
        (folder / "observe.yml").write_text(OBSERVATION)
        yield Machine(Node(lab, "n1", "h100-sxm8"), folder)
