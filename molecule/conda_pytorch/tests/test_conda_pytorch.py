# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What conda_pytorch promises, seen on the hosts."""

from __future__ import annotations

import json

from testinfra.host import Host

testinfra_hosts = ["ansible://n1", "ansible://n3"]

PREFIX = "/opt/gpu_fleet/pytorch"
PROGRAM = """
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
one = torch.arange(64, dtype=torch.float32).reshape(8, 8)
print(json.dumps({"version": torch.__version__, "prefix": sys.prefix, "right": bool((one @ torch.eye(8) == one).all())}))
"""


def test_the_planned_build_works_for_an_account_without_rights(host: Host) -> None:
    """Torch is of the exact version and build, from this environment, and multiplies."""
    done = host.run("runuser -u nobody -- %s -I -c %s", f"{PREFIX}/bin/python", PROGRAM)
    assert done.rc == 0, done.stderr
    assert json.loads(done.stdout) == {"version": "2.13.0+cpu", "prefix": PREFIX, "right": True}


def test_its_packages_fit_together(host: Host) -> None:
    """Nothing that torch needs is missing or of a wrong version."""
    done = host.run("%s -m pip check", f"{PREFIX}/bin/python")
    assert done.rc == 0, done.stdout


def test_only_root_can_change_it_and_everybody_can_read_it(host: Host) -> None:
    """No file of the environment is writable or unreadable for others, or belongs to another account."""
    assert host.check_output("find %s ! -user root -o ! -group root", PREFIX) == ""
    assert host.check_output("find %s ! -type l -perm /022", PREFIX) == ""
    assert host.check_output("find %s -type d ! -perm -005 -o -type f ! -perm -004", PREFIX) == ""
    assert host.file("/opt/gpu_fleet").mode == 0o755


def test_no_start_up_file_of_a_shell_knows_it(host: Host) -> None:
    """Nobody's shell is changed by it."""
    found = host.run(
        "grep -rls gpu_fleet/pytorch /etc/profile /etc/profile.d /etc/bash.bashrc /etc/environment /etc/skel /root/.bashrc /root/.profile"
    )
    assert (found.rc, found.stdout) == (1, "")


def test_the_distributions_own_python_is_as_it_was(host: Host) -> None:
    """Torch is in the environment and nowhere else."""
    assert host.run("/usr/bin/python3 -c 'import torch'").rc != 0
    assert host.package("python3-venv").is_installed


def test_the_question_to_the_framework_left_nothing(host: Host) -> None:
    """Its unit, its folder and its processes are gone."""
    assert host.check_output("systemctl list-units --all --no-legend 'gpu-fleet-*'") == ""
    assert not host.file("/run/gpu-fleet-framework").exists
    assert host.run("pgrep -f framework.py").rc == 1
