# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of the design hold: who may import, decide, change and know what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.common import CHECKOUT

PLUGINS = CHECKOUT / "plugins"
TASK_FILES = sorted((CHECKOUT / "roles").glob("*/tasks/*.yml"))
PLAYBOOKS = sorted((CHECKOUT / "playbooks").glob("*.yml"))


def label(path: Path) -> str:
    """Return a path as the tests' names show it."""
    return str(path.relative_to(CHECKOUT))


def imports(path: Path) -> set[str]:
    """Return the names of the modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def calls(path: Path) -> set[str]:
    """Return the dotted names that a file calls."""
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}


def statements(path: Path) -> int:
    """Return the lines of a file that are neither blank, comment nor documentation."""
    tree = ast.parse(path.read_text())
    quiet: set[int] = set()
    for node in ast.walk(tree):
        text = getattr(node, "value", None)
        if isinstance(node, ast.Expr | ast.Assign) and isinstance(text, ast.Constant) and isinstance(text.value, str):
            quiet |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = path.read_text().splitlines()
    return sum(1 for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#") and number not in quiet)


def tasks_of(node: Any) -> Iterator[dict[str, Any]]:
    """Return every task below a node, those of blocks included."""
    for item in node or []:
        yield item
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            yield from tasks_of(item.get(part))


@pytest.mark.parametrize("path", sorted((PLUGINS / "plugin_utils").glob("*.py")), ids=label)
def test_decisions_are_pure(path: Path) -> None:
    """What decides touches no host, reads no file and no clock; the same arguments give the same answer."""
    forbidden = {"os", "subprocess", "socket", "pathlib", "shutil", "random", "time", "urllib.request", "glob", "tempfile"}
    assert not imports(path) & forbidden
    impure = {"open", "input", "print", "datetime.now", "datetime.datetime.now", "date.today", "datetime.date.today", "datetime.utcnow"}
    assert not calls(path) & impure


def observers() -> list[Path]:
    """Return the observing module and everything of ours that it imports."""
    reached = [PLUGINS / "modules" / "gpu_facts.py"]
    for path in reached:
        for name in sorted(imports(path)):
            utility = PLUGINS / "module_utils" / f"{name.split('.')[-1]}.py"
            if "module_utils" in name and utility.exists() and utility not in reached:
                reached.append(utility)
    return reached


@pytest.mark.parametrize("path", sorted(observers()), ids=label)
def test_observers_do_not_decide(path: Path) -> None:
    """What observes knows neither the catalog nor the resolver, and runs on a host's bare Python."""
    assert not [name for name in imports(path) if "plugin_utils" in name or name.split(".")[0] in ("yaml", "jinja2", "packaging", "requests")]


def test_gpu_facts_changes_nothing() -> None:
    """The observing module has no call that writes."""
    assert len(observers()) > 5
    used = set().union(*(calls(path) for path in observers()))
    writers = {"os.remove", "os.unlink", "os.rename", "os.replace", "os.mkdir", "os.makedirs", "os.chmod", "os.chown", "os.rmdir", "shutil.rmtree",
               "shutil.copy", "shutil.move", "os.symlink"}  # fmt: skip
    assert not used & writers


@pytest.mark.parametrize("path", sorted((PLUGINS / "modules").glob("*.py")), ids=label)
def test_modules_stay_small(path: Path) -> None:
    """A module that grows beyond reading at one sitting belongs into module_utils."""
    assert statements(path) <= 250


@pytest.mark.parametrize("path", sorted((PLUGINS / "module_utils").glob("*.py")) + sorted((PLUGINS / "plugin_utils").glob("*.py")), ids=label)
def test_utils_stay_small(path: Path) -> None:
    """One subject a file."""
    assert statements(path) <= 300


@pytest.mark.parametrize("path", TASK_FILES, ids=label)
def test_tasks_hold_no_rules_of_versions_or_distributions(path: Path) -> None:
    """A role reads the plan: no distribution, no version rule, no look into the catalog stands in a task."""
    text = path.read_text()
    assert not re.search(r"(?i)debian|ubuntu|redhat|rocky|ansible_distribution|ansible_os_family|\bis version\b", text)
    if path.parents[1].name != "gpu_stack":
        assert "__gpu_stack_catalog" not in text


@pytest.mark.parametrize("path", TASK_FILES, ids=label)
def test_task_files_stay_readable(path: Path) -> None:
    """No task file is longer than two screens, and every task has a name."""
    assert len(path.read_text().splitlines()) <= 120
    assert all("name" in task for task in tasks_of(yaml.safe_load(path.read_text())))


@pytest.mark.parametrize("path", TASK_FILES + PLAYBOOKS, ids=label)
def test_no_task_hides_failures_or_uses_a_shell(path: Path) -> None:
    """Nothing is ignored, nothing goes through a shell, and facts are read from ansible_facts alone."""
    text = path.read_text()
    for task in tasks_of(yaml.safe_load(text)):
        assert not {"ignore_errors", "ansible.builtin.shell", "ansible.builtin.raw", "shell", "raw"} & set(task), task.get("name")
    assert not re.search(r"\bansible_(distribution|os_family|hostname|kernel|architecture|processor|memtotal|default_ipv4|eth0|fqdn)\b", text)


@pytest.mark.parametrize("path", PLAYBOOKS, ids=label)
def test_playbooks_only_order(path: Path) -> None:
    """A playbook orders roles and gates; what a host is told to do stands in a role."""
    plays = yaml.safe_load(path.read_text())
    orders = {"include_role", "import_role", "group_by", "assert", "fail", "debug", "meta", "set_fact", "add_host", "set_stats"}
    for task in tasks_of([part for play in plays for section in ("pre_tasks", "tasks", "post_tasks") for part in play.get(section, [])]):
        actions = {key.split(".")[-1] for key in task if key.startswith("ansible.")}
        assert actions <= orders, f"{task.get('name')}: {actions - orders}"


def test_the_lab_shares_no_code_with_what_it_tests() -> None:
    """A simulator that used the parsers of the product would agree with them whatever they do."""
    for path in sorted((CHECKOUT / "tests" / "lab").rglob("*.py")):
        assert not [name for name in imports(path) if name.startswith(("ansible", "plugins", "gpu.fleet"))], label(path)


def test_what_ships_knows_nothing_of_the_lab(shipped: list[Path]) -> None:
    """No branch for tests, and no word of them, in what runs on a real fleet."""
    for path in shipped:
        text = (CHECKOUT / path).read_text(errors="replace")
        hits = re.findall(r"(?i)\bvendor\.lab\b|\bnspawn\b|\bmolecule\b|tests/lab|GPU_FLEET_LAB|\bin CI\b|\bunder test\b", text)
        assert not hits, f"{path}: {hits}"


def test_every_module_documents_the_three_attributes() -> None:
    """Check mode, diff mode and idempotence are said for each module."""
    for path in sorted((PLUGINS / "modules").glob("*.py")):
        tree = ast.parse(path.read_text())
        text = next(
            node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION" and isinstance(node.value, ast.Constant)
        )
        documented = yaml.safe_load(str(text))
        said = set(documented.get("attributes", {}))
        if "gpu.fleet.attributes.info" in documented["extends_documentation_fragment"]:
            continue  # the fragment answers all three for modules that only look
        assert {"check_mode", "diff_mode", "idempotent"} <= said, label(path)
