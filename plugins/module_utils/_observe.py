# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""One pass over the host: programs are started first and answer while files are read."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _driver,
    _host,
    _managed,
    _net,
    _nvidia_smi,
    _pci,
    _python_env,
    _rdma,
    _software,
)
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Child, Result, Runner
from ansible_collections.gpu.fleet.plugins.module_utils._system import System

SCHEMA = 1
SUBSETS = ("hardware", "driver", "software", "managed")
RECORD = "/var/lib/gpu_fleet/verification.json"
NCCL_FILES = ("/etc/nccl.conf",)
# A unit without limits of its own, so that systemd's default shows.
PLAIN_UNIT = "systemd-journald.service"
FROM_DRIVER = (
    "model", "uuid", "memory_mib", "minor", "ecc", "row_remap", "mig_mode", "mig_devices", "persistence_mode", "nvlinks",
    "clocks_event_reasons", "power_limit_w", "fabric", "recovery_action",
)


class Observation:
    """Keeps the programs that were started and the facts found so far."""

    def __init__(self, system: System, runner: Runner, subsets: t.Set[str], managed: t.List[t.Dict[str, str]], limit: float) -> None:
        self.system = system
        self.runner = runner
        self.subsets = subsets
        self.managed = managed if "managed" in subsets else []
        self.limit = limit
        self.children: dict[str, Child] = {}
        self.facts: dict[str, t.Any] = dict.fromkeys((
            "boot_id", "host", "gpus", "nvswitches", "nics", "interfaces", "accelerators_other", "topology", "driver", "volatile",
            "pytorch", "cuda", "nccl", "limits", "busy", "managed", "record",
        ))
        self.kernel: str | None = None
        self.files: dict[str, str] = {}
        self.units = [_driver.FABRIC_UNIT, _driver.PERSISTENCE_UNIT, PLAIN_UNIT]
        self.units += [item["id"] for item in self.managed if item["kind"] == "unit" and _software.UNIT_NAME.match(item["id"])]

    def probe(self, name: str) -> t.ContextManager[None]:
        return self.system.probe(name, self.limit + 0.5)

    def start(self) -> None:
        """Start every program that will be needed; none of them is waited for here."""
        with self.probe("modules"):
            if "driver" in self.subsets:
                self.files = _driver.module_files(self.system)
        if "driver" in self.subsets:
            # Without a loaded driver nvidia-smi has nothing to say, and asking may load one.
            if self.system.exists("/sys/module/nvidia") or self.system.exists("/sys/module/nvidia_current"):
                self.children["nvidia-smi"] = self.runner.start(["nvidia-smi", "-q", "-x"])
                self.children["nvlink"] = self.runner.start(["nvidia-smi", "nvlink", "-s"])
            if self.files:
                self.children["modinfo"] = self.runner.start(["modinfo", *sorted(self.files.values())])
        if self.subsets & {"driver", "managed"}:
            dpkg = self.runner.find(_software.DPKG[0]) is not None
            self.children["packages"] = self.runner.start(_software.DPKG if dpkg else _software.RPM)
        if self.subsets - {"hardware"}:
            if self.system.exists("/run/systemd/system"):
                self.children["systemd"] = self.runner.start(_software.systemctl(self.units))
            else:
                self.system.problem("systemd does not run here", "systemd")

    def answer(self, name: str) -> Result | None:
        """The answer of a program; a missing or bad one is a problem."""
        if name not in self.children:
            return None
        result = self.runner.result(self.children[name])
        if result.rc != 0:
            self.system.problem(result.complaint, {"nvlink": "nvidia-smi nvlink", "nvlink -R": "nvidia-smi nvlink"}.get(name, name))
        return result

    def hardware(self) -> None:
        system, facts = self.system, self.facts
        with self.probe("pci"):
            facts.update(_pci.scan(system))
            for gpu in facts["gpus"]:
                gpu.update(dict.fromkeys(FROM_DRIVER))
        with self.probe("rdma"):
            facts["nics"] = _rdma.scan(system)
        with self.probe("interfaces"):
            facts["interfaces"] = _net.scan(system, _net.ask_addresses())
        with self.probe("topology"):
            if facts["gpus"] is not None and facts["nics"] is not None:
                facts["topology"] = _pci.topology(system, facts["gpus"], facts["nics"])

    def from_driver(self) -> None:
        """Add what nvidia-smi knows to the GPUs that the kernel knows; neither may invent a GPU for the other."""
        answer = self.answer("nvidia-smi")
        links = self.answer("nvlink")
        report = _nvidia_smi.read_xml(answer.out) if answer is not None and answer.out else None
        if report is None or (answer is not None and answer.rc != 0 and not report.gpus):
            return
        if report.damage:
            self.system.problem("the report is damaged: %s" % report.damage, "nvidia-smi")
            if not report.gpus:
                return
        told = _nvidia_smi.by_address(report)
        gpus = {gpu["address"]: gpu for gpu in self.facts["gpus"] or []}
        for address in sorted(set(told) - set(gpus)):
            if self.facts["gpus"] is not None:
                self.system.problem("the driver names %s, which is not on the PCI bus" % address, "nvidia-smi")
        told_links = {entry["uuid"]: entry for entry in _nvidia_smi.read_nvlink(links.out if links else "").values()}
        some_active = any(link["active"] for entry in told_links.values() for link in entry["links"])
        self.facts["volatile"] = {}
        for address, gpu in gpus.items():
            if address not in told:
                self.system.problem("%s is on the PCI bus but the driver does not name it" % address, "nvidia-smi")
                continue
            gpu.update(_nvidia_smi.gpu_facts(told[address]))
            about = told_links.get(gpu["uuid"])
            gpu["nvlinks"] = about["links"] if about else None
            if about and some_active and not any(link["active"] for link in about["links"]):
                # Alone among its siblings; a machine without NVLink has none at all.
                self.system.problem("%s has no active NVLink: %s" % (address, about["message"] or "all are inactive"), "nvidia-smi nvlink")
            self.facts["volatile"][address] = {
                "power_limit_w": gpu["power_limit_w"], "mig": gpu["mig_mode"], "compute_mode": gpu.pop("compute_mode"),
            }
        self.count_links(gpus)

    def count_links(self, gpus: dict[str, dict[str, t.Any]]) -> None:
        """Behind NVSwitches every GPU reaches every other one over all of its active links; elsewhere each link leads to one of them."""
        switched = bool(self.facts["nvswitches"]) or any((gpu["fabric"] or {}).get("state") == "Completed" for gpu in gpus.values())
        active = {
            address: [link for link in gpu["nvlinks"] if link["active"]] for address, gpu in gpus.items() if gpu["nvlinks"] is not None
        }
        if not switched and any(active.values()):
            self.name_peers(gpus)
        # Where no link of a GPU is known to lead to another one here, a switch that the host cannot see may be in between.
        unknown = {
            address for address, links in active.items()
            if not switched and links and not (all(link["peer"] for link in links) and any(link["peer"] in gpus for link in links))
        }
        for one, row in ((self.facts["topology"] or {}).get("gpu_gpu") or {}).items():
            for two, entry in row.items():
                if one not in active or two not in active:
                    continue
                if switched or not active[one] or not active[two]:
                    entry["nvlinks"] = min(len(active[one]), len(active[two]))
                elif unknown & {one, two}:
                    continue
                else:
                    entry["nvlinks"] = sum(link["peer"] == two for link in active[one])
                entry["source"] = "sysfs, nvidia-smi"
        if unknown:
            self.system.problem("which GPUs the NVLinks lead to is not known on this machine", "nvidia-smi nvlink")

    def name_peers(self, gpus: dict[str, dict[str, t.Any]]) -> None:
        """Ask what is at the other end of each link. Few machines have links without a switch, so none other pays for the question."""
        self.children["nvlink -R"] = self.runner.start(["nvidia-smi", "nvlink", "-R"])
        answer = self.answer("nvlink -R")
        peers = _nvidia_smi.read_peers(answer.out if answer else "")
        for gpu in gpus.values():
            for link in gpu["nvlinks"] or []:
                link["peer"] = peers.get(gpu["uuid"], {}).get(link["link"])

    def driver(self, packages: dict[str, _software.Package] | None, units: dict[str, dict[str, str]] | None) -> None:
        system = self.system
        driver: dict[str, t.Any] = dict.fromkeys((
            "packages", "owner", "flavour", "on_disk", "loaded", "loaded_modules", "user_space", "nouveau_loaded", "fabric_manager",
            "persistence", "holders", "reboot_reasons",
        ))
        self.facts["driver"] = driver
        with self.probe("driver"):
            modinfo = self.answer("modinfo")
            driver["on_disk"] = _driver.on_disk(self.files, _driver.parse_modinfo(modinfo.out if modinfo else ""))
            driver["loaded"] = _driver.loaded(system)
            names = system.names("/sys/module")
            driver["loaded_modules"] = [name for name in names if _driver.LOADED_MODULE.match(name)]
            driver["nouveau_loaded"] = "nouveau" in names
            driver["user_space"] = _driver.user_space(system)
            disk = driver["on_disk"].get(self.kernel) or {}
            driver["flavour"] = disk.get("flavour") or (driver["loaded"] or {}).get("flavour")
            driver["owner"] = _driver.owner(system, packages, driver["user_space"], bool(self.files) or driver["loaded"] is not None)
            driver["reboot_reasons"] = _driver.reboot_reasons(system, self.kernel, driver)
        if packages is not None:
            driver["packages"] = [
                {"name": name, "version": package.version, "held": package.held}
                for name, package in sorted(packages.items()) if _software.is_driver(name)
            ]
            for name, package in packages.items():
                if package.version is None:
                    system.problem("%s is %s" % (name, package.status), "packages")
        for key, unit in (("fabric_manager", _driver.FABRIC_UNIT), ("persistence", _driver.PERSISTENCE_UNIT)):
            known = (units or {}).get(unit, {})
            if known.get("LoadState") not in (None, "not-found"):
                driver[key] = {"active": known.get("ActiveState") == "active"}
        if packages is not None:
            version = next((package.version for name, package in packages.items() if _driver.FABRIC_PACKAGE.match(name)), None)
            if version:
                driver["fabric_manager"] = {"version": _software.upstream(version), "active": (driver["fabric_manager"] or {}).get("active")}
            elif driver["fabric_manager"]:
                driver["fabric_manager"]["version"] = None
        with self.probe("holders"):
            driver["holders"] = _driver.holders(system)
            if driver["holders"] is not None:
                jobs = [entry for entry in driver["holders"] if entry["unit"] not in _driver.OWN_UNITS]
                self.facts["busy"] = {"jobs": jobs, "holders": len(driver["holders"])}

    def software(self, units: dict[str, dict[str, str]] | None) -> None:
        system, facts = self.system, self.facts
        with self.probe("software"):
            paths = [item["id"] for item in self.managed if item["kind"] == "python_environment"]
            found = [_python_env.scan(system, path) for path in paths]
            facts["pytorch"] = [environment for environment in found if environment]
            facts["nccl"] = {"config": {path: system.read(path) for path in NCCL_FILES}}
            facts["limits"] = _host.memlock(system, (units or {}).get(PLAIN_UNIT, {}).get("LimitMEMLOCK"))
            facts["cuda"] = []
            for name in system.names("/usr/local"):
                if re.match(r"cuda-\d+\.\d+$", name):
                    text = system.read("/usr/local/%s/version.json" % name)
                    version = json.loads(text).get("cuda", {}).get("version") if text else None
                    facts["cuda"].append({"path": "/usr/local/" + name, "version": version or name[5:]})

    def run(self) -> dict[str, t.Any]:
        system, facts, units = self.system, self.facts, None
        packages: dict[str, _software.Package] | None = None
        with self.probe("host"):
            self.kernel = _host.kernel(system)
            facts["boot_id"] = _host.boot_id(system)
            facts["host"] = _host.scan(system)
        self.start()
        if "hardware" in self.subsets:
            self.hardware()
        with self.probe("packages"):
            answer = self.answer("packages")
            if answer is not None and answer.rc == 0:
                packages = _software.parse_packages(answer.out)
        with self.probe("systemd"):
            answer = self.answer("systemd")
            if answer is not None and answer.rc == 0:
                units = _software.parse_units(answer.out, self.units)
        if "driver" in self.subsets:
            self.driver(packages, units)
        if "software" in self.subsets:
            self.software(units)
        if "managed" in self.subsets:
            with self.probe("managed"):
                facts["managed"] = _managed.states(system, self.managed, packages, units)
        with self.probe("record"):
            text = system.read(RECORD)
            facts["record"] = json.loads(text) if text else None
        with self.probe("nvidia-smi"):
            self.from_driver()
        return facts


def observe(subsets: t.Set[str], managed: t.List[t.Dict[str, str]], timeout: float, probe_timeout: float, root: str = "/") -> dict[str, t.Any]:
    """Everything there is to say about the host; never raises for what the host is or lacks."""
    system = System(root, timeout)
    # Programs must be done before the end, so that what comes from files is there even when all of them hang.
    reserve = min(1.0, timeout / 4)
    runner = Runner(lambda: max(0.0, system.remaining() - reserve), probe_timeout)
    observation = Observation(system, runner, subsets, managed, probe_timeout)
    try:
        facts = observation.run()
    finally:
        runner.close()
    facts["schema"] = SCHEMA
    facts["problems"] = system.problems
    return facts
