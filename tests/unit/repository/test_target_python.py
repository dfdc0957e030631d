# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs on targets runs on the oldest Python that is claimed, although the tools of a checkout need a newer one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.common import CHECKOUT

OLDEST = (3, 8)
PLUGINS = CHECKOUT / "plugins"
FILES = sorted((PLUGINS / "modules").glob("*.py")) + sorted((PLUGINS / "module_utils").glob("*.py"))
# Attributes and functions of the standard library that are younger, as far as one might reach for them here.
YOUNGER = {
    "removeprefix", "removesuffix", "bit_count", "is_relative_to", "hardlink_to", "pidfd_open", "pidfd_send_signal", "unparse",
    "pairwise", "batched", "lcm", "nextafter", "randbytes", "get_annotations", "to_thread", "TaskGroup", "waitstatus_to_exitcode",
    "UTC", "TypeAlias", "ParamSpec", "Annotated", "Self", "StrEnum", "file_digest", "chdir_context", "copy_file_range", "splice",
}  # fmt: skip
YOUNGER_MODULES = {"zoneinfo", "graphlib", "tomllib"}
YOUNGER_KEYWORDS = {("zip", "strict"), ("Popen", "process_group"), ("run", "process_group"), ("Popen", "umask"), ("dataclass", "slots"),
                    ("dataclass", "kw_only"), ("indent", "space"), ("md5", "usedforsecurity"), ("sha256", "usedforsecurity")}  # fmt: skip
GENERIC = {"dict", "list", "set", "tuple", "frozenset", "type"}
OBSERVE = """
import json, pathlib, sys
from importlib import import_module
package = "ansible_collections.gpu.fleet.plugins.module_utils."
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    try:
        import_module(package + path.stem)
    except ModuleNotFoundError as error:
        # Only beside a module there is Ansible.
        if error.name != "ansible":
            raise
facts = import_module(package + "_observe").observe_apart({"hardware", "driver", "software", "managed"}, [], 10, 3)
print(json.dumps([sys.version_info[:2], facts["schema"], facts["host"]["kernel"], type(facts["gpus"]).__name__]))
"""


def label(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


class Runtime(ast.NodeVisitor):
    """Visits what is evaluated when a file runs: annotations are not, since each file imports them from the future."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *(value for value in node.args.kw_defaults if value), *node.body):
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.value, ast.Name) and node.value.id in GENERIC:
            self.found.append(f"{node.lineno}: {ast.unparse(node)}")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in YOUNGER:
            self.found.append(f"{node.lineno}: {ast.unparse(node)}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        self.found += [f"{node.lineno}: {name}({word.arg}=...)" for word in node.keywords if (name, word.arg) in YOUNGER_KEYWORDS]
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [f"{node.lineno}: import {alias.name}" for alias in node.names if alias.name.split(".")[0] in YOUNGER_MODULES]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module in YOUNGER_MODULES or any(alias.name in YOUNGER for alias in node.names):
            self.found.append(f"{node.lineno}: {ast.unparse(node)}")


def younger(text: str) -> list[str]:
    """Return what a file has that the oldest Python does not."""
    visitor = Runtime()
    visitor.visit(ast.parse(text, feature_version=OLDEST))
    return visitor.found


@pytest.mark.parametrize("path", FILES, ids=label)
def test_no_younger_feature_and_no_younger_name(path: Path) -> None:
    text = path.read_text()
    assert younger(text) == []
    assert "from __future__ import annotations" in text


@pytest.mark.parametrize(
    "text",
    ["A = dict[str, int]", "x.removeprefix('a')", "import tomllib", "zip(a, b, strict=True)", "from math import lcm", "def f(a=list[int]): pass"],
)
def test_what_is_younger_is_found(text: str) -> None:
    assert younger(text)


def test_younger_syntax_is_found() -> None:
    with pytest.raises(SyntaxError):
        younger("match a:\n    case 1: pass")


@pytest.mark.parametrize("path", FILES, ids=label)
def test_nothing_goes_through_a_shell(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), node.lineno
            assert not {word.arg for word in node.keywords} & {"shell", "use_unsafe_shell", "executable"}, node.lineno


def interpreter(version: str) -> str | None:
    """Return this Python where the machine has it: on the path, or beside the one that runs."""
    beside = sorted(map(str, Path(sys.base_prefix).parent.glob(f"*{version}*/bin/python{version}")))
    for candidate in (f"python{version}", *beside):
        try:
            done = subprocess.run([candidate, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def test_the_observation_runs_on_each_python() -> None:
    """On every Python of this machine all utilities can be imported and the host be observed."""
    found = {version: python for version, python in ((f"3.{minor}", interpreter(f"3.{minor}")) for minor in range(8, 15)) if python}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT / "collections"), "PYTHONDONTWRITEBYTECODE": "1"}
    assert found
    for version, python in found.items():
        command = [python, "-W", "error", "-c", OBSERVE, str(PLUGINS / "module_utils")]
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{version}: {done.stderr}"
        told, schema, kernel, kind = json.loads(done.stdout)
        assert (".".join(map(str, told)), schema, kernel, kind) == (version, 1, os.uname().release, "list")
