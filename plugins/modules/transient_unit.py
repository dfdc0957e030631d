#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: transient_unit
short_description: Run a program as a transient systemd unit with a hard time limit
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Starts a program as a unit of its own, so that it outlives the connection that started it, and waits for it later.
  - systemd ends the unit with all its processes at O(run_limit), whether or not anybody still watches it.
  - The unit works in a folder of its own, C(/run/<name>), which holds O(files) and whatever the program leaves. O(state=absent) brings
    back what it left, and removes the unit and the folder.
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description: Name of the unit, without C(.service).
    type: str
    required: true
  state:
    description:
      - With V(started), the program is started, unless the very same one is still running. Anything else of that name is ended first.
      - With V(absent), the unit is waited for as long as O(wait) allows, then ended and removed with its folder.
    type: str
    choices: [absent, started]
    default: started
  argv:
    description: Program, as an absolute path, and its arguments. Needed for O(state=started).
    type: list
    elements: str
  files:
    description: Content of files, by their name, that are put into the folder of the unit.
    type: dict
    default: {}
  environment:
    description: Environment variables of the program.
    type: dict
    default: {}
  user:
    description: User that the program runs as. Needed for O(state=started).
    type: str
  run_limit:
    description: Seconds after which the program is ended. Needed for O(state=started).
    type: int
  wait:
    description: Seconds to wait for the end of the program before O(state=absent) ends it.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Start a job that must not take longer than five minutes
  gpu.fleet.transient_unit:
    name: allreduce
    argv: [/opt/gpu_fleet/pytorch/bin/python, job.py]
    files:
      job.py: "{{ lookup('ansible.builtin.file', 'job.py') }}"
    user: gpufleet
    run_limit: 300

- name: Wait for its end, and bring back what it left
  gpu.fleet.transient_unit:
    name: allreduce
    state: absent
    wait: 310
  register: job
"""

RETURN = r"""
unit:
  description: What became of the program. With O(state=absent), the state before the unit was removed.
  returned: always
  type: dict
  contains:
    state:
      description: One of V(running), V(succeeded), V(failed), and V(absent).
      type: str
    result:
      description: Why it ended, in the words of systemd, such as V(success), V(exit-code), V(signal), and V(timeout).
      type: str
    exit_status:
      description: Exit status or signal of the program, or V(null).
      type: int
  sample: {"state": "failed", "result": "timeout", "exit_status": 15}
documents:
  description: Content of each C(*.json) file in the folder of the unit, up to 4 MiB each, by its name.
  returned: when O(state=absent)
  type: dict
output:
  description: The last lines that the program wrote.
  returned: when O(state=absent)
  type: list
  elements: str
"""

import contextlib
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Result, Runner

NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
FILE = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
PROPERTIES = ("LoadState", "ActiveState", "Result", "ExecMainStatus", "InvocationID", "Description")
MOST_BYTES = 4 << 20
STOP_LIMIT = 5
LINES = 200


class UnitError(Exception):
    """What could not be done, in words for the operator."""


def verdict(shown: dict[str, str]) -> dict[str, t.Any]:
    """State of a unit from its properties as systemd shows them."""
    active = shown.get("ActiveState", "inactive")
    if shown.get("LoadState") == "not-found" or active == "inactive":
        return {"state": "absent", "result": None, "exit_status": None}
    status = shown.get("ExecMainStatus", "")
    # "exited" is ours: the program of a unit that systemd keeps active has ended (see show).
    state = {"failed": "failed", "exited": "succeeded"}.get(active, "running")
    return {"state": state, "result": shown.get("Result"), "exit_status": int(status) if status.isdigit() else None}


class TransientUnit:
    """One unit of the host, by its name."""

    def __init__(self, name: str, runner: Runner, folder: str = "/run") -> None:
        self.name = name
        self.unit = name + ".service"
        self.folder = Path(folder, name)
        self.runner = runner

    def ask(self, argv: list[str], limit: float = 10.0) -> Result:
        return self.runner.run(argv, limit)

    def show(self) -> dict[str, str]:
        """Properties of the unit; SubState 'exited' takes the place of ActiveState 'active'."""
        names = ",".join((*PROPERTIES, "SubState"))
        answer = self.ask(["systemctl", "show", "--property=" + names, self.unit])
        if answer.rc != 0:
            raise UnitError("systemd does not answer: %s" % answer.complaint)
        shown = dict(line.split("=", 1) for line in answer.out.splitlines() if "=" in line)
        if shown.get("ActiveState") == "active" and shown.get("SubState") == "exited":
            shown["ActiveState"] = "exited"
        return shown

    def output(self, invocation: str) -> list[str]:
        """What the program said, and what systemd said about it."""
        if not invocation:
            return []
        argv = ["journalctl", "--quiet", "--no-pager", "--output=cat", "--lines=%d" % LINES]
        answer = self.ask([*argv, "_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation])
        return answer.out.splitlines() if answer.rc == 0 else []

    def documents(self) -> dict[str, str]:
        """The program's JSON files. It may be hostile: links and special files are not followed, sizes are limited."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError):
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for name in sorted(os.listdir(folder)):  # the opened folder, not whatever its path means by now
                    if name.endswith(".json"):
                        found.update(self.read(folder, name))
            finally:
                os.close(folder)
        return found

    @staticmethod
    def read(folder: int, name: str) -> dict[str, str]:
        with contextlib.suppress(OSError):
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(file, "rb") as stream:
                if stat.S_ISREG(os.fstat(file).st_mode):
                    return {name: stream.read(MOST_BYTES).decode("utf-8", "replace")}
        return {}

    def wait(self, seconds: float) -> dict[str, str]:
        """Properties of the unit once its program has ended, or when the time is up."""
        until = time.monotonic() + seconds
        pause = 0.1
        while True:
            shown = self.show()
            if verdict(shown)["state"] != "running" or time.monotonic() >= until:
                return shown
            time.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause = min(1.0, pause * 1.5)

    def end(self) -> None:
        """No process, no unit and no folder of that name is left."""
        self.ask(["systemctl", "stop", self.unit], limit=STOP_LIMIT + 15.0)
        self.ask(["systemctl", "reset-failed", self.unit])
        shown = self.show()
        if verdict(shown)["state"] != "absent":
            raise UnitError("%s cannot be ended: it is %s" % (self.unit, shown.get("ActiveState")))
        if self.folder.is_dir() and not self.folder.is_symlink():
            shutil.rmtree(self.folder)

    def start(self, params: dict[str, t.Any], description: str) -> None:
        try:
            pwd.getpwnam(params["user"])
        except KeyError:
            raise UnitError("the account %s, as which %s is to run, does not exist on this host" % (params["user"], self.unit)) from None
        self.end()
        self.folder.mkdir(0o755)
        for name, content in params["files"].items():
            (self.folder / name).write_text(str(content), encoding="utf-8")
            (self.folder / name).chmod(0o644)
        properties = {
            "Description": description,
            "RuntimeDirectory": self.name,
            "RuntimeDirectoryPreserve": "yes",
            "WorkingDirectory": str(self.folder),
            "RuntimeMaxSec": params["run_limit"],
            "TimeoutStopSec": STOP_LIMIT,
            "KillMode": "control-group",
            "NoNewPrivileges": "yes",
            "PrivateTmp": "yes",
            "ProtectSystem": "strict",
        }
        argv = ["systemd-run", "--quiet", "--no-ask-password", "--service-type=exec", "--remain-after-exit", "--unit=" + self.name]
        argv += ["--uid=" + params["user"], *("--property=%s=%s" % item for item in properties.items())]
        argv += ["--setenv=%s=%s" % item for item in {"HOME": str(self.folder), **params["environment"]}.items()]
        # systemd expands variables in arguments; a doubled dollar sign stands for itself.
        answer = self.ask([*argv, "--", *(word.replace("$", "$$") for word in params["argv"])], limit=30.0)
        if answer.rc != 0:
            said = self.output(self.show().get("InvocationID", ""))
            self.end()
            raise UnitError("%s could not be started: %s" % (self.unit, "; ".join([answer.complaint, *said[-5:]])))


def run(module: AnsibleModule, unit: TransientUnit) -> dict[str, t.Any]:
    """Bring the unit into the wanted state and say what was found and changed."""
    params = module.params
    shown = unit.show()
    state = verdict(shown)["state"]
    if params["state"] == "started":
        told = [params[name] for name in ("argv", "files", "environment", "user", "run_limit")]
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
        description = "gpu.fleet job %s" % digest
        if state == "running" and shown.get("Description") == description:
            return {"changed": False, "unit": verdict(shown)}
        if not module.check_mode:
            unit.start(params, description)
            shown = unit.show()
        return {"changed": True, "unit": verdict(shown)}
    there = state != "absent" or unit.folder.is_dir()
    if there and not module.check_mode:
        shown = unit.wait(params["wait"])
    answer = {"changed": there, "unit": verdict(shown), "documents": unit.documents(), "output": unit.output(shown.get("InvocationID", ""))}
    if there and not module.check_mode:
        unit.end()
    return answer


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["absent", "started"], "default": "started"},
            "argv": {"type": "list", "elements": "str"},
            "files": {"type": "dict", "default": {}},
            "environment": {"type": "dict", "default": {}},
            "user": {"type": "str"},
            "run_limit": {"type": "int"},
            "wait": {"type": "int", "default": 0},
        },
        required_if=[("state", "started", ("argv", "user", "run_limit"))],
        supports_check_mode=True,
    )
    for pattern, names in ((NAME, [module.params["name"]]), (FILE, list(module.params["files"]))):
        for name in names:
            if not pattern.match(name):
                module.fail_json(msg="%r cannot be used as a name here: it must match %s" % (name, pattern.pattern))
    runner = Runner(lambda: float("inf"))
    try:
        module.exit_json(**run(module, TransientUnit(module.params["name"], runner)))
    except (UnitError, OSError) as error:
        module.fail_json(msg=str(error))
    finally:
        runner.close()


if __name__ == "__main__":
    main()
