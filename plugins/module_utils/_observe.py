# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""One pass over the host: programs are started first and answer while files are read."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import (
    _host,
    _observe_boot,
    _observe_cdi,
    _observe_driver,
    _observe_hardware,
    _observe_smi,
    _observe_software,
    _software,
)
from ansible_collections.gpu.fleet.plugins.module_utils._apart import Outcome, Tell, work_apart
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Child, Result, Runner
from ansible_collections.gpu.fleet.plugins.module_utils._system import System

SCHEMA = 1
SUBSETS = ("hardware", "driver", "software", "managed")
# Parts by when they collect: files first, while programs run; then what programs answer; and last what hangs on a sick host.
FIRST = (("hardware", _observe_hardware),)
NEXT = (("driver", _observe_driver), ("driver", _observe_boot), ("software", _observe_software))
LAST = (("driver", _observe_smi), ("software", _observe_cdi))
# Each field is told for itself under this and its name.
FACT = "fact "
RECORD = "/var/lib/gpu_fleet/verification.json"
FIELDS = (
    "boot_id", "host", "gpus", "nvswitches", "nics", "interfaces", "accelerators_other", "topology", "pcie_bridges", "iommu",
    "numa_nodes", "driver", "updates", "volatile", "pytorch", "conda", "cuda", "cudnn", "nccl", "containers", "dcgm", "limits",
    "owners", "busy", "managed", "record",
)


class Observation:
    """Keeps the programs that were started, what all parts need, and the facts found so far."""

    def __init__(
        self, system: System, runner: Runner, subsets: t.Set[str], managed: t.List[t.Dict[str, str]], limit: float,
        tell: Tell = lambda _kind, _value: None,
    ) -> None:
        self.tell = tell
        self.system = system
        self.runner = runner
        self.subsets = subsets
        self.managed = managed if "managed" in subsets else []
        self.limit = limit
        self.children: dict[str, Child] = {}
        self.facts: dict[str, t.Any] = dict.fromkeys(FIELDS)
        self.kernel: str | None = None
        self.module_files: dict[str, str] = {}
        # Units that systemd is asked about, all in one question; parts add theirs when they start.
        self.unit_names = [item["id"] for item in self.managed if item["kind"] == "unit" and _software.UNIT_NAME.match(item["id"])]
        self.units: dict[str, dict[str, str]] | None = None
        self.packages: dict[str, _software.Package] | None = None

    def probe(self, name: str) -> t.ContextManager[None]:
        """Bound and guard one step: what goes wrong in it becomes a problem of that name."""
        return self.system.probe(name, self.limit + 0.5)

    def ask(self, name: str, argv: t.Sequence[str]) -> None:
        """Start a program; C(answer) gives what it said."""
        self.children[name] = self.runner.start(argv)

    def answer(self, name: str, empty: t.Pattern[str] | None = None) -> Result | None:
        """The answer of a program; a missing or bad one is a problem, unless what it printed is C(empty): then there is nothing to tell."""
        if name not in self.children:
            return None
        result = self.runner.result(self.children[name])
        if result.rc != 0 and not (empty and empty.search(result.out)):
            self.system.problem(result.complaint, name)
        return result

    def own(self, **owners: t.Optional[str]) -> None:
        """Add components to C(owners), which several groups fill in."""
        self.facts["owners"] = {**(self.facts["owners"] or {}), **owners}

    def parts(self, known: t.Tuple[t.Tuple[str, t.Any], ...]) -> list[t.Any]:
        """Those parts whose group was asked for."""
        return [part for group, part in known if group in self.subsets]

    def start(self) -> None:
        """Start every program that will be needed; none of them is waited for here."""
        for part in self.parts(FIRST + NEXT + LAST):
            part.start(self)
        if self.subsets & {"driver", "software", "managed"}:
            dpkg = self.runner.find(_software.DPKG[0]) is not None
            self.ask("packages", _software.DPKG if dpkg else _software.RPM)
        if self.subsets - {"hardware"}:
            if self.system.exists("/run/systemd/system"):
                self.ask("systemd", _software.systemctl(self.unit_names))
            else:
                self.system.problem("systemd does not run here", "systemd")

    def common(self) -> None:
        """Collect what several parts need: packages and units."""
        with self.probe("packages"):
            answer = self.answer("packages")
            if answer is not None and answer.rc == 0:
                damage = _software.damage(answer.out)
                if damage:
                    self.system.problem(damage)
                else:
                    self.packages = _software.parse_packages(answer.out)
        with self.probe("systemd"):
            answer = self.answer("systemd")
            if answer is not None and answer.rc == 0:
                self.units = _software.parse_units(answer.out, self.unit_names)
                if self.units is None:
                    self.system.problem("systemctl did not answer about the units that it was asked for")

    def run(self) -> dict[str, t.Any]:
        system, facts = self.system, self.facts
        with self.probe("host"):
            self.kernel = _host.kernel(system)
            facts["boot_id"] = _host.boot_id(system)
            facts["host"] = _host.scan(system)
        self.start()
        for part in self.parts(FIRST):
            part.collect(self)
        self.tell_all()
        self.common()
        for part in self.parts(NEXT):
            part.collect(self)
            self.tell_all()
        if "managed" in self.subsets:
            with self.probe("managed"):
                facts["managed"] = self.managed_states()
        with self.probe("record"):
            text = system.read(RECORD)
            record = json.loads(text) if text else None
            if isinstance(record, (dict, type(None))):
                facts["record"] = record
            else:
                system.problem("%s holds no mapping" % RECORD)
        for part in self.parts(LAST):
            part.collect(self)
        return facts

    def managed_states(self) -> dict[str, t.Any]:
        """The states of the things asked for; without one their reader is not even loaded."""
        if not self.managed:
            return {}
        from ansible_collections.gpu.fleet.plugins.module_utils import _managed

        return _managed.states(self.system, self.managed, self.packages, self.units)

    def tell_all(self) -> None:
        """What is known so far, for whoever has to do with it in case the rest never comes."""
        self.tell("problems", self.system.problems)
        for key, value in self.facts.items():
            self.tell(FACT + key, value)


def chosen(names: t.Sequence[str]) -> set[str]:
    """Groups that C(gather_subset) asks for; without a name that asks for something it is all but those left out."""
    known = ("all", "min", *SUBSETS)
    for name in names:
        if name not in known and name not in ["!" + group for group in ("all", *SUBSETS)]:
            raise ValueError("gather_subset has no group %r; there are %s, and each but min with ! before it" % (name, ", ".join(known)))
    wanted = [name for name in names if not name.startswith("!")] or ["all"]
    left_out = {group for name in names if name.startswith("!") for group in (SUBSETS if name == "!all" else (name[1:],))}
    return {group for name in wanted for group in (SUBSETS if name == "all" else (name,))} - left_out - {"min"}


def observe_apart(subsets: t.Set[str], managed: t.List[t.Dict[str, str]], timeout: float, probe_timeout: float) -> dict[str, t.Any]:
    """The same as C(observe), at the end of the time also when the observation is stuck in what nothing can interrupt."""
    def work(tell: Tell) -> None:
        observe(subsets, managed, timeout - min(0.3, timeout / 10), probe_timeout, tell=tell)

    return assembled(work_apart(work, timeout))


def assembled(outcome: Outcome) -> dict[str, t.Any]:
    """The facts that an observation told, as far as it came."""
    told = outcome.told
    if "raised" in told:
        raise RuntimeError(told["raised"])
    problems = list(told.get("problems", []))
    if outcome.failure:
        problems.append({"probe": told.get("probe", "host"), "reason": outcome.failure})
    return {**{key: told.get(FACT + key) for key in FIELDS}, "schema": SCHEMA, "problems": problems}


def observe(
    subsets: t.Set[str], managed: t.List[t.Dict[str, str]], timeout: float, probe_timeout: float, root: str = "/",
    tell: Tell = lambda _kind, _value: None,
) -> dict[str, t.Any]:
    """Everything there is to say about the host; never raises for what the host is or lacks."""
    system = System(root, timeout, tell)
    # Programs must be done before the end, so that what comes from files is there even when all of them hang.
    reserve = min(1.0, timeout / 4)
    runner = Runner(lambda: max(0.0, system.remaining() - reserve), probe_timeout, tell=tell)
    observation = Observation(system, runner, subsets, managed, probe_timeout, tell)
    try:
        facts = observation.run()
    finally:
        runner.close()
    observation.tell_all()
    facts["schema"] = SCHEMA
    facts["problems"] = system.problems
    return facts
