#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletes each task of a role in turn and sees whether what covers the role notices: build/mutants/ROLE.json.

What covers a task is, in this order: the tests that tests/mutants.yml names for its file, and the role's molecule scenario,
step by step (check mode on the prepared host, converge, verify, no change the second time, and the steps that the scenario adds).
The first that fails is the catch. For the scenario each mutant gets fresh hosts on which the roles before this one have been applied
(a saved layer of the lab). What each cover said is kept by content, so that a changed test runs alone. A survivor that changes nothing
that anybody could see has its reason in the same table; one without a reason, or a reason without a survivor, ends the run badly.
`--list ROLE` shows what would be tried; `--jobs=N` asks N tests that need no host at a time, else one a core.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from lab.cache import remove_unused
from lab.client import HostSpec, Lab
from lab.paths import CACHE as LAB_CACHE
from lab.paths import LabError
from own_lab import own_lab

from tools.common import BIN, BUILD, CACHE, CHECKOUT, Clock, ToolError, environment, say, tracked_files

ORDER = ("gpu_stack", "node_baseline", "nvidia_driver", "conda_pytorch", "nccl_tuning", "verification")
# A collective needs two; what a single host shows is tried on one.
HOSTS = {"verification": ("n1", "n3")}
IMAGE, PROFILE = "debian12", "h100-sxm8"
# Far more than any step takes on a loaded machine; what hangs is a catch too, and is called so.
LIMIT = 1800.0
LATE = 124
PARTS = ("block", "rescue", "always")
TABLE = CHECKOUT / "tests" / "mutants.yml"
SCENARIO = "scenario"
# What every result depends on, what the scenario needs beside that, and what a test of the table needs beside its own file.
COMMON = ("plugins/", "roles/", "playbooks/", "site.yml", "ansible.cfg")
LAB_FILES = ("tests/lab/", "inventories/lab/", "tools/mutants.py", "molecule/shared/")
TEST_FILES = ("tests/fixtures/", "tests/bench/connection/", "tests/integration/harness.py", "tests/integration/made_up.py", "tests/conftest.py")


@cache
def content(name: str) -> bytes:
    """Return a file of the checkout as it was when this run first looked: somebody may go on working meanwhile."""
    return (CHECKOUT / name).read_bytes()


@cache
def files() -> tuple[str, ...]:
    """Return the names of the files that belong to the collection."""
    return tuple(str(path) for path in tracked_files())


@dataclass(frozen=True)
class Mutant:
    """A task to delete: its file in the checkout, its name, its first line and the line after it, counted from 1, and whether it is alone."""

    file: str
    task: str
    first: int
    after: int
    alone: bool

    def text(self) -> str:
        """Return the file without the task. Where it stands alone, one that does nothing takes its place: an empty list is no valid block."""
        lines = content(self.file).decode().splitlines()
        indent = lines[self.first - 1][: lines[self.first - 1].index("-")]
        nothing = [f"{indent}- name: Do nothing", f"{indent}  ansible.builtin.meta: noop"] if self.alone else []
        if "/handlers/" in self.file:
            # A handler that is gone makes its notification an error, which would hide whether its work is missed.
            nothing = [f"{indent}- name: {self.task}", f"{indent}  ansible.builtin.meta: noop"]
        task = lines[self.first - 1 : self.after - 1]
        if re.search(r": &\w", "\n".join(task)):
            # Others use its words: it stays, and does nothing.
            nothing = [line for line in task if not line.startswith(f"{indent}  when:")] + [f"{indent}  when: false"]
        return "\n".join(lines[: self.first - 1] + nothing + lines[self.after - 1 :]) + "\n"


def leaves(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, bool]]:
    """Return (name, node, whether it is the only one of its list) for each task below a list of tasks that is no block."""
    if not isinstance(node, yaml.SequenceNode):
        return
    for item in node.value:
        fields = {key.value: value for key, value in item.value}
        if "block" in fields:
            for part in PARTS:
                yield from leaves(fields.get(part))
        else:
            yield str(fields["name"].value), item, len(node.value) == 1


def mutants(role: str) -> list[Mutant]:
    """Return every task of a role as a mutant."""
    found = []
    for path in sorted((CHECKOUT / "roles" / role).glob("tasks/*.yml")) + sorted((CHECKOUT / "roles" / role).glob("handlers/*.yml")):
        text = content(str(path.relative_to(CHECKOUT))).decode()
        lines = text.splitlines()
        for name, node, alone in leaves(yaml.compose(text)):
            last = node.end_mark.line
            while last > node.start_mark.line + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
                last -= 1
            found.append(Mutant(str(path.relative_to(CHECKOUT)), name, node.start_mark.line + 1, last + 1, alone))
    return found


def digest(places: tuple[str, ...], *words: str) -> str:
    """Return a name for the content of the files whose names begin so, and for these words."""
    made = hashlib.sha256(repr(words).encode())
    for name in files():
        if name.startswith(places):
            made.update(name.encode() + b"\0" + content(name) + b"\0")
    return made.hexdigest()[:16]


def key(cover: str, role: str, mutant: Mutant | None) -> str:
    """Return a name for everything that the verdict of a cover depends on; without a mutant, on the role as it is."""
    places = (*LAB_FILES, f"molecule/{role}/") if cover == SCENARIO else (*TEST_FILES, cover.partition("::")[0])
    return digest((*COMMON, *places), cover, role, *((mutant.file, mutant.text()) if mutant else ()))


def covers(mutant: Mutant) -> list[str]:
    """Return what looks at a task, the cheapest first."""
    return [*table()["covers"].get(mutant.file, ()), SCENARIO]


def table() -> dict[str, Any]:
    """Return what looks at which file beside the scenarios, and what may go unnoticed: tests/mutants.yml."""
    known: dict[str, Any] = yaml.safe_load(content(str(TABLE.relative_to(CHECKOUT))))
    return known


def reasons(role: str) -> dict[tuple[str, str], str]:
    """Return why a task of the role may go unnoticed, by file and name."""
    known = table()["unnoticed"]
    return {(file, task): why for file, tasks in known.items() if file.startswith(f"roles/{role}/") for task, why in tasks.items()}


def layer_name(role: str) -> str:
    """Return the name of the layer that holds what comes before a role."""
    earlier = [f"roles/{name}/" for name in before(role)] + [f"molecule/{name}/converge.yml" for name in before(role)]
    return f"before-{role}-{digest(('plugins/', 'roles/gpu_stack/', 'tests/lab/', *earlier))}"


def before(role: str) -> tuple[str, ...]:
    """Return the roles that are applied before one."""
    return tuple(name for name in ORDER[: ORDER.index(role)] if name != "gpu_stack")


class Bench:
    """A copy of the collection and the hosts that it is tried on."""

    def __init__(self, lab: Lab, copy: Path, role: str) -> None:
        """Copy the checkout."""
        self.lab, self.copy, self.role = lab, copy, role
        self.layers: list[str] | None = None
        self.env = environment(
            GPU_FLEET_LAB=lab.name,
            ANSIBLE_CONFIG=str(copy / "ansible.cfg"),
            ANSIBLE_COLLECTIONS_PATH=str(copy / "collections"),
            PYTHONPATH=f"{copy}:{copy / 'tests'}",
            MOLECULE_EPHEMERAL_DIRECTORY=str(copy / "build"),
            # A module that hangs is a catch too, and need not take longer than this.
            ANSIBLE_TIMEOUT="20",
        )
        for name in files():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(content(name))
            shutil.copymode(CHECKOUT / name, copy / name)
        shutil.copytree(CHECKOUT / "collections", copy / "collections", symlinks=True)
        (copy / ".venv").symlink_to(BIN.parent)

    def hosts(self, layers: Sequence[str]) -> None:
        """Give fresh hosts on these layers."""
        names = HOSTS.get(self.role, ("n1",))
        running = {host["name"] for host in self.lab.status()["hosts"]}
        if running:
            self.lab.down(sorted(running))
        self.lab.up([HostSpec(name, IMAGE, PROFILE, tuple(layers)) for name in names])

    def command(self, argv: Sequence[str], limit: float) -> tuple[int, str]:
        """Run a command in the copy and return its exit code and output; one that is not done in time counts as failed."""
        try:
            done = subprocess.run(
                argv, cwd=self.copy, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return LATE, f"not done after {limit:.0f} s"
        return done.returncode, done.stdout

    def play(self, playbook: str, *words: str, limit: float = LIMIT) -> tuple[int, str]:
        """Run a playbook of the copy on the hosts."""
        return self.command([f"{BIN}/ansible-playbook", "-i", "inventories/lab", playbook, *words], limit)

    def steps(self) -> Iterator[tuple[str, int, str]]:
        """Run the role's scenario step by step: (step, exit code, output)."""
        folder = f"molecule/{self.role}"
        if (self.copy / folder / "prepare.yml").exists():
            yield ("prepare", *self.play(f"{folder}/prepare.yml"))
        yield ("check mode", *self.play(f"{folder}/converge.yml", "--check", "--diff"))
        yield ("converge", *self.play(f"{folder}/converge.yml"))
        where = ["--hosts=ansible://gpu_nodes", "--ansible-inventory=inventories/lab"]
        verify = [f"{BIN}/pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *where]
        yield ("verify", *self.command([*verify, f"{folder}/tests"], LIMIT))
        code, output = self.play(f"{folder}/converge.yml")
        yield "second run", code or int(re.search(r"changed=[1-9]", output) is not None), output
        if (self.copy / folder / "side_effect.yml").exists():
            yield ("side effect", *self.play(f"{folder}/side_effect.yml"))
            yield ("verify again", *self.command([*verify, f"{folder}/tests"], LIMIT))

    def failure(self, cover: str) -> tuple[str, str]:
        """Return what of a cover fails, with its output, or two empty words."""
        if cover != SCENARIO:
            argv = [f"{BIN}/pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-n0", cover]
            code, output = self.command(argv, LIMIT)
            named = re.findall(r"^(?:FAILED|ERROR) \S+?::(\S+)", output, re.MULTILINE)
            return (late(code, named[0] if named else cover), output) if code else ("", "")
        if self.layers is None:
            self.layers = prepare(self, self.role)
        self.hosts(self.layers)
        for step, code, output in self.steps():
            if code:
                return late(code, step), output
        return "", ""


def late(code: int, step: str) -> str:
    """Return the name of a step that failed, with the way in which it did."""
    return f"{step}, which was not done in time" if code == LATE else step


def prepare(bench: Bench, role: str) -> list[str]:
    """Return the layers on which a role is tried; made once by applying the roles before it."""
    if not before(role):
        return []
    layer = layer_name(role)
    if not Lab.has_layer(layer):
        say(f"preparing hosts for {role}: {', '.join(before(role))}")
        bench.lab.up([HostSpec("n1", IMAGE, PROFILE)])
        for earlier in before(role):
            code, output = bench.play(f"molecule/{earlier}/converge.yml", limit=900)
            if code:
                raise ToolError(f"{earlier} does not converge, so {role} cannot be tried:\n{output[-3000:]}")
        bench.lab.save("n1", layer)
        for old in (LAB_CACHE / "layers").glob(f"before-{role}-*"):
            if not old.name.startswith(f"{layer}@"):
                remove_unused(old)
    return [layer]


class Kept:
    """What each cover said, by the content that it depends on; written after each answer, so that a run that is cut off goes on."""

    def __init__(self, role: str) -> None:
        """Read what is kept."""
        self.path = CACHE / "mutants" / f"{role}.json"
        self.known: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.used: dict[str, str] = {}
        self.lock = Lock()

    def get(self, name: str) -> str | None:
        """Return what failed; empty where nothing did, None where it is not known."""
        if name in self.known:
            self.used[name] = self.known[name]
        return self.known.get(name)

    def put(self, name: str, failed: str) -> None:
        """Keep what failed."""
        with self.lock:
            self.known[name] = self.used[name] = failed
            self._write(self.known)

    def prune(self) -> None:
        """Forget what nothing has asked for."""
        self._write(self.used)

    def _write(self, content: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        made = self.path.with_suffix(".new")
        made.write_text(json.dumps(content, indent=1))
        made.replace(self.path)


def pass_as_it_is(bench: Bench, role: str, cover: str, kept: Kept) -> None:
    """See that a cover fails nothing while no task is missing."""
    name = key(cover, role, None)
    if kept.get(name) is None:
        clock = Clock()
        failed, output = bench.failure(cover)
        if failed:
            raise ToolError(f"{role} fails as it is, at {failed} of {cover}; mend that first:\n{output[-3000:]}")
        kept.put(name, "")
        say(f"{role} as it is passes {cover} ({clock})")


def caught_by(bench: Bench, role: str, mutant: Mutant, kept: Kept, asked: Sequence[str]) -> str:
    """Return what of these covers notices that a task is missing, or an empty word."""
    target = bench.copy / mutant.file
    for cover in asked:
        pass_as_it_is(bench, role, cover, kept)
        name = key(cover, role, mutant)
        failed = kept.get(name)
        if failed is None:
            target.write_text(mutant.text())
            failed, _ = bench.failure(cover)
            target.write_bytes(content(mutant.file))
            kept.put(name, failed)
        if failed:
            return failed
    return ""


def without_hosts(benches: Sequence[Bench], role: str, kept: Kept) -> None:
    """Ask the tests that need no host, as many at a time as there are copies; the answers are kept."""
    free: SimpleQueue[Bench] = SimpleQueue()
    for bench in benches:
        free.put(bench)

    def ask(mutant: Mutant | None, asked: Sequence[str]) -> None:
        bench, clock = free.get(), Clock()
        try:
            if mutant is None:
                pass_as_it_is(bench, role, asked[0], kept)
            elif failed := caught_by(bench, role, mutant, kept, asked):
                say(f"{mutant.file}:{mutant.first} {mutant.task}: caught by {failed} ({clock})")
        finally:
            free.put(bench)

    named = {mutant: [cover for cover in covers(mutant) if cover != SCENARIO] for mutant in mutants(role)}
    with ThreadPoolExecutor(len(benches)) as pool:
        list(pool.map(lambda cover: ask(None, [cover]), dict.fromkeys(cover for asked in named.values() for cover in asked)))
        list(pool.map(ask, named, named.values()))


def survey(benches: Sequence[Bench], role: str) -> dict[str, Any]:
    """Try every mutant and return the result."""
    kept = Kept(role)
    without_hosts(benches, role, kept)
    survivors, listed, explained = [], mutants(role), reasons(role)
    for number, mutant in enumerate(listed, 1):
        clock = Clock()
        failed = caught_by(benches[0], role, mutant, kept, covers(mutant))
        say(f"{number}/{len(listed)} {mutant.file}:{mutant.first} {mutant.task}: {f'caught by {failed}' if failed else 'SURVIVES'} ({clock})")
        if not failed:
            survivors.append({**asdict(mutant), "reason": explained.pop((mutant.file, mutant.task), None)})
    kept.prune()
    caught = len(listed) - len(survivors)
    return {"role": role, "total": len(listed), "caught": caught, "survivors": survivors, "stale": [" ".join(name) for name in explained]}


def judge(role: str, jobs: int) -> dict[str, Any]:
    """Return the result for a role."""
    with tempfile.TemporaryDirectory(prefix="gpu-fleet-mutants-") as copies, own_lab("mutants", []) as lab:
        return survey([Bench(lab, Path(copies, str(number)), role) for number in range(jobs)], role)


def show(role: str) -> None:
    """List what would be tried, and how much of it is known already."""
    kept = Kept(role)
    listed = mutants(role)
    for mutant in listed:
        said = [(cover, kept.get(key(cover, role, mutant))) for cover in covers(mutant)]
        known = next((f"caught by {failed}" for _, failed in said if failed), "survives" if all(failed == "" for _, failed in said) else "not tried")
        print(f"{mutant.file}:{mutant.first} {mutant.task}: {known}; looked at by {', '.join(cover for cover, _ in said)}", flush=True)
    say(f"{role}: {len(listed)} tasks")


def write(result: dict[str, Any]) -> int:
    """Leave a result where others read it, show it, and return how much of it is not as it should be."""
    target = BUILD / "mutants" / f"{result['role']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({name: result[name] for name in ("total", "caught", "survivors")}, indent=1) + "\n")
    say(f"{result['role']}: {result['caught']} of {result['total']} caught; {target.relative_to(CHECKOUT)}")
    for survivor in result["survivors"]:
        print(f"   survives: {survivor['file']}:{survivor['first']} {survivor['task']}: {survivor['reason'] or 'NO REASON'}", flush=True)
    for name in result["stale"]:
        print(f"   {TABLE.relative_to(CHECKOUT)} excuses what is noticed, or is no task: {name}", flush=True)
    return len(result["stale"]) + sum(not survivor["reason"] for survivor in result["survivors"])


def named(words: Iterable[str]) -> list[str]:
    """Return the roles that these words name; all, where they name none."""
    roles = [word for word in words if word] or list(ORDER)
    for role in roles:
        if role not in ORDER:
            raise ToolError(f"no role {role!r} with a scenario; there are {', '.join(ORDER)}")
    return roles


def main(words: list[str]) -> int:
    """Judge the roles that the command line names."""
    start = time.monotonic()
    left = 0
    try:
        if words[:1] == ["--list"]:
            for role in named(words[1:]):
                show(role)
            return 0
        jobs = [int(word.partition("=")[2]) for word in words if re.fullmatch(r"--jobs=[1-9]\d?", word)]
        for role in named(word for word in words if not word.startswith("--jobs=")):
            left += write(judge(role, jobs[0] if jobs else os.cpu_count() or 1))
    except (ToolError, LabError) as error:
        print(f"make mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make mutants: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    say(f"{left} without a reason ({time.monotonic() - start:.0f} s)")
    return 1 if left else 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
