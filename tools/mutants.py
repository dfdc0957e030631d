#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deletes each task of a role in turn and sees whether what covers the role notices on a host: build/mutants/ROLE.json.

What covers a role is its molecule scenario, step by step: check mode on the prepared host, converge, verify, no change the
second time, and the steps that the scenario adds. The first step that fails is the catch. Each mutant gets fresh hosts on
which the roles before this one have been applied (a saved layer of the lab). Results are kept by content.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
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
LIMIT = 180.0
PARTS = ("block", "rescue", "always")


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
        lines = (CHECKOUT / self.file).read_text().splitlines()
        indent = lines[self.first - 1][: lines[self.first - 1].index("-")]
        nothing = [f"{indent}- name: Do nothing", f"{indent}  ansible.builtin.meta: noop"] if self.alone else []
        if "/handlers/" in self.file:
            # A handler that is gone makes its notification an error, which would hide whether its work is missed.
            nothing = [f"{indent}- name: {self.task}", f"{indent}  ansible.builtin.meta: noop"]
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
        text = path.read_text()
        lines = text.splitlines()
        for name, node, alone in leaves(yaml.compose(text)):
            last = node.end_mark.line
            while last > node.start_mark.line + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
                last -= 1
            found.append(Mutant(str(path.relative_to(CHECKOUT)), name, node.start_mark.line + 1, last + 1, alone))
    return found


def content_key(role: str) -> str:
    """Return a name for everything that a result depends on."""
    digest = hashlib.sha256()
    places = ("plugins/", "roles/", "playbooks/", "tests/lab/", "inventories/lab/", "tools/mutants.py", "molecule/shared/", f"molecule/{role}/")
    for path in tracked_files():
        name = str(path)
        if name.startswith(places):
            digest.update(name.encode() + b"\0" + (CHECKOUT / path).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def layer_name(role: str) -> str:
    """Return the name of the layer that holds what comes before a role."""
    digest = hashlib.sha256()
    for path in tracked_files():
        earlier = [f"roles/{name}/" for name in before(role)] + [f"molecule/{name}/converge.yml" for name in before(role)]
        if str(path).startswith(("plugins/", "roles/gpu_stack/", "tests/lab/", *earlier)):
            digest.update(str(path).encode() + b"\0" + (CHECKOUT / path).read_bytes())
    return f"before-{role}-{digest.hexdigest()[:12]}"


def before(role: str) -> tuple[str, ...]:
    """Return the roles that are applied before one."""
    return tuple(name for name in ORDER[: ORDER.index(role)] if name != "gpu_stack")


class Bench:
    """A copy of the collection and the hosts that it is tried on."""

    def __init__(self, lab: Lab, copy: Path, role: str) -> None:
        """Copy the checkout."""
        self.lab, self.copy, self.role = lab, copy, role
        self.env = environment(
            GPU_FLEET_LAB=lab.name,
            ANSIBLE_CONFIG=str(copy / "ansible.cfg"),
            ANSIBLE_COLLECTIONS_PATH=str(copy / "collections"),
            PYTHONPATH=f"{copy}:{copy / 'tests'}",
            MOLECULE_EPHEMERAL_DIRECTORY=str(copy / "build"),
            # A module that hangs is a catch too, and need not take longer than this.
            ANSIBLE_TIMEOUT="20",
        )
        for path in tracked_files():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / path, copy / path)
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
            return 124, f"not done after {limit:.0f} s"
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

    def caught_by(self) -> tuple[str, str]:
        """Return the step that fails, with its output, or two empty words."""
        for step, code, output in self.steps():
            if code:
                return step, output
        return "", ""


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


def survey(bench: Bench, role: str, cache: Path) -> dict[str, Any]:
    """Try every mutant and return the result."""
    layers = prepare(bench, role)
    bench.hosts(layers)
    clock = Clock()
    step, output = bench.caught_by()
    if step:
        raise ToolError(f"{role} fails as it is, at {step}; mend that first:\n{output[-3000:]}")
    say(f"{role} as it is passes ({clock})")
    survivors, listed = [], mutants(role)
    for number, mutant in enumerate(listed, 1):
        clock = Clock()
        target = bench.copy / mutant.file
        target.write_text(mutant.text())
        bench.hosts(layers)
        step, _ = bench.caught_by()
        target.write_text((CHECKOUT / mutant.file).read_text())
        say(f"{number}/{len(listed)} {mutant.file}:{mutant.first} {mutant.task}: {f'caught by {step}' if step else 'SURVIVES'} ({clock})")
        if not step:
            survivors.append(asdict(mutant))
    result = {"role": role, "total": len(listed), "caught": len(listed) - len(survivors), "survivors": survivors}
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps(result, indent=1))
    return result


def judge(role: str) -> dict[str, Any]:
    """Return the result for a role, from the cache when nothing that it depends on has changed."""
    if role not in ORDER:
        raise ToolError(f"no role {role!r} with a scenario; there are {', '.join(ORDER)}")
    cache = CACHE / "mutants" / f"{role}-{content_key(role)}.json"
    if cache.exists():
        say(f"{role}: nothing has changed since the last survey")
        result: dict[str, Any] = json.loads(cache.read_text())
        return result
    with tempfile.TemporaryDirectory(prefix="gpu-fleet-mutants-") as copy, own_lab("mutants", []) as lab:
        return survey(Bench(lab, Path(copy), role), role, cache)


def write(result: dict[str, Any]) -> int:
    """Leave a result where others read it, show it, and return how many survived."""
    target = BUILD / "mutants" / f"{result['role']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({key: result[key] for key in ("total", "caught", "survivors")}, indent=1) + "\n")
    say(f"{result['role']}: {result['caught']} of {result['total']} caught; {target.relative_to(CHECKOUT)}")
    for survivor in result["survivors"]:
        print(f"   survives: {survivor['file']}:{survivor['first']} {survivor['task']}", flush=True)
    return len(result["survivors"])


def main(words: list[str]) -> int:
    """Judge the roles that the command line names; all, when it names none."""
    roles = [word for word in words if word] or list(ORDER)
    start = time.monotonic()
    left = 0
    try:
        for role in roles:
            left += write(judge(role))
    except (ToolError, LabError) as error:
        print(f"make mutants: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make mutants: interrupted; what was found so far is not kept", file=sys.stderr)
        return 130
    say(f"{left} survivors ({time.monotonic() - start:.0f} s)")
    return 1 if left else 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.exit(main(sys.argv[1:]))
