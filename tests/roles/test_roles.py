# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each role's molecule scenario, on hosts that all scenarios share."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import progress
import pytest
from own_lab import own_name, sweep

from tools.common import BIN, CHECKOUT, environment

# In the order in which site.yml applies them, so that each finds what it builds on.
ROLES = ("gpu_stack", "node_baseline", "nvidia_driver", "conda_pytorch", "nccl_tuning", "verification")
STEP = re.compile(r"➜ (\w+): (Executing|Executed.*)|(TASK \[.*?\])")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def molecule(*words: str) -> tuple[int, str]:
    """Run molecule, show its steps and tasks while they run, and return its exit code and output."""
    # Its output is drawn in a box as wide as the terminal is said to be.
    env = environment(COLUMNS="180", NO_COLOR="1", PY_COLORS="0", GPU_FLEET_MOLECULE_LAB=own_name("molecule"))
    # Molecule writes a configuration of its own, from .config/molecule/config.yml.
    del env["ANSIBLE_CONFIG"]
    lines = []
    with subprocess.Popen([f"{BIN}/molecule", *words], cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for raw in process.stdout:
            line = COLOUR.sub("", raw)
            lines.append(line)
            seen = STEP.search(line)
            if seen:
                progress.say(f"molecule {words[-1]}: {seen.group(3) or f'{seen.group(1)} {seen.group(2)}'}")
    return process.returncode, "".join(lines)


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """Boot the hosts, bare, and take them away at the end."""
    sweep("molecule")
    # What a killed run noted of its hosts would be believed: they count as made, and nobody makes them.
    molecule("reset", "-s", "default")
    code, output = molecule("create", "-s", "default")
    assert code == 0, output[-6000:]
    yield
    molecule("destroy", "-s", "default")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("role", ROLES)
def test_role(hosts: None, role: str) -> None:
    """Check mode on hosts the role has not seen, converge, no change the second time, bad days, and what the role promises seen over ssh."""
    code, output = molecule("test", "--destroy=never", "-s", role)
    assert code == 0, output[-12000:]


def test_every_role_with_tasks_has_a_scenario() -> None:
    """A new role comes with its scenario, and no scenario outlives its role."""
    with_tasks = {path.parents[1].name for path in (CHECKOUT / "roles").glob("*/tasks/main.yml")}
    scenarios = {path.parent.name for path in (CHECKOUT / "molecule").glob("*/converge.yml")}
    assert with_tasks == scenarios == set(ROLES)
