# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_facts in plays on this machine: called, as part of gathering facts, and beside a cache that lies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
SHOW = """
    - name: Show
      ansible.builtin.debug:
        msg: "{{ {'kernel': ansible_facts['gpu_fleet']['host']['kernel'], 'boot': ansible_facts['gpu_fleet']['boot_id'],
                  'schema': ansible_facts['gpu_fleet']['schema'], 'driver': ansible_facts['gpu_fleet']['driver'] is none,
                  'setup': 'python_version' in ansible_facts} | to_json }}"
"""
LIE = {"schema": 1, "boot_id": "00000000-0000-4000-8000-000000000000", "driver": {"loaded": {"version": "535.1.1"}}, "host": {"kernel": "2.4.0"}}


def play(folder: Path, text: str, **settings: str) -> str:
    """Run a playbook on this machine and return its output."""
    (folder / "play.yml").write_text(text)
    (folder / "ansible.cfg").touch()
    env = {
        **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false", "ANSIBLE_NOCOLOR": "1", **settings,
    }  # fmt: skip
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local",
               "-e", f"ansible_python_interpreter={sys.executable}", str(folder / "play.yml")]  # fmt: skip
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(output: str) -> dict[str, Any]:
    """Return what the play showed last."""
    line = [line for line in output.splitlines() if line.strip().startswith('"msg": ')][-1]
    return dict(json.loads(json.loads(line.partition(": ")[2])))


HONEST = {"kernel": os.uname().release, "boot": BOOT, "schema": 1, "driver": False}


@pytest.mark.parametrize("way", ["variable", "environment"])
def test_as_part_of_gathering_facts(tmp_path: Path, way: str) -> None:
    modules = ["ansible.builtin.setup", "gpu.fleet.gpu_facts"]
    more = f"\n  vars:\n    ansible_facts_modules: {json.dumps(modules)}" if way == "variable" else ""
    settings = {"ANSIBLE_FACTS_MODULES": ",".join(modules)} if way == "environment" else {}
    # On a machine that does other things as well, setup needs more than its ten seconds.
    output = play(tmp_path, f"- name: Gather\n  hosts: all\n  gather_subset: [min]\n  gather_timeout: 60{more}\n  tasks:{SHOW}", **settings)
    assert shown(output) == {**HONEST, "setup": True}


def test_called_in_check_mode_without_other_facts(tmp_path: Path) -> None:
    text = "- name: Call\n  hosts: all\n  gather_facts: false\n  check_mode: true\n  tasks:\n    - name: Observe\n      gpu.fleet.gpu_facts:\n"
    output = play(tmp_path, text + SHOW)
    assert shown(output) == {**HONEST, "setup": False}
    assert "changed=0" in output


TELL_LIES = f"""
- name: Leave facts of another driver and another boot, as an earlier play may
  hosts: all
  gather_facts: false
  tasks:
    - name: Lie
      ansible.builtin.set_fact:
        gpu_fleet: {json.dumps(LIE)}
        cacheable: true
"""


def cached(folder: Path) -> dict[str, str]:
    """Let a cache of facts lie, and return the settings that use it."""
    settings = {"ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(folder / "cache"),
                "ANSIBLE_GATHERING": "smart"}  # fmt: skip
    play(folder, TELL_LIES, **settings)
    return settings


def test_a_lying_cache_is_believed_by_who_reads_it_and_mended_by_who_observes(tmp_path: Path) -> None:
    settings = cached(tmp_path)
    head = "- name: Call\n  hosts: all\n  gather_facts: false\n  tasks:\n"
    assert shown(play(tmp_path, head + SHOW, **settings))["boot"] == LIE["boot_id"]
    output = play(tmp_path, head + "    - name: Observe\n      gpu.fleet.gpu_facts:\n" + SHOW, **settings)
    assert shown(output) == {**HONEST, "setup": False}


# The way of the roles: what they register is theirs, whatever facts of the name there are.
ROLE = """
- name: Observe as the roles do
  hosts: all
  gather_facts: false
  tasks:
    - name: Observe
      ansible.builtin.import_role:
        name: gpu.fleet.gpu_stack
        tasks_from: observe
    - name: Show
      ansible.builtin.debug:
        msg: "{{ {'kernel': seen.host.kernel, 'boot': seen.boot_id, 'schema': seen.schema, 'driver': seen.driver is none} | to_json }}"
      vars:
        seen: "{{ __gpu_stack_observation.ansible_facts.gpu_fleet }}"
"""


def test_roles_see_what_they_observed_and_no_cached_or_injected_fact(tmp_path: Path) -> None:
    settings = cached(tmp_path)
    assert shown(play(tmp_path, "- name: See\n  hosts: all\n  gather_facts: false\n  tasks:" + SHOW, **settings))["boot"] == LIE["boot_id"]
    assert shown(play(tmp_path, TELL_LIES + ROLE, **settings)) == HONEST
