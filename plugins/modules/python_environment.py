#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Keep a virtual Python environment with exact versions from one package index
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Creates a virtual environment and installs exact versions of packages into it, from one index and no other.
  - What is there is read from the files of the environment. Nothing is started, and no network is needed, when it is right.
  - Settings of C(pip) on the host are not read, and no start-up file of any shell is touched.
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description: Folder of the environment. It belongs to root and can be read by everybody.
    type: path
    required: true
  state:
    description: Whether the environment is there.
    type: str
    choices: [absent, present]
    default: present
  packages:
    description: Exact version of each package, by its name. Packages that these need come along in the version that the index offers.
    type: dict
    default: {}
  index_url:
    description: Package index. Needed for O(state=present).
    type: str
  trusted_hosts:
    description: Hosts that may be used without TLS, or with a certificate that cannot be checked.
    type: list
    elements: str
    default: []
  proxy:
    description: Proxy for reaching the index.
    type: str
  python:
    description: Interpreter that a new environment is made with.
    type: path
    default: /usr/bin/python3
  timeout:
    description: Seconds that one installation may take.
    type: int
    default: 1800
"""

EXAMPLES = r"""
- name: Have PyTorch for CPUs
  gpu.fleet.python_environment:
    path: /opt/gpu_fleet/pytorch
    packages:
      torch: 2.13.0+cpu
    index_url: https://wheels.example.org/whl/cpu
"""

RETURN = r"""
packages:
  description: Version of each asked package in the environment, V(null) where it is missing. In check mode as it would be.
  returned: always
  type: dict
  sample: {"torch": "2.13.0+cpu"}
"""

import os
import shutil
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._python_env import normal, scan
from ansible_collections.gpu.fleet.plugins.module_utils._runner import Runner
from ansible_collections.gpu.fleet.plugins.module_utils._system import System


class EnvironmentFault(Exception):
    """What could not be done, in words for the operator."""


class PythonEnvironment:
    """One environment; versions are by normalised name."""

    def __init__(self, params: dict[str, t.Any], runner: Runner) -> None:
        self.path = params["path"]
        self.wanted = {normal(name): str(version) for name, version in params["packages"].items()}
        self.params = params
        self.runner = runner

    def found(self) -> dict[str, t.Optional[str]] | None:
        """Versions of the wanted packages, or None where there is no environment."""
        seen = scan(System(), self.path)
        return None if seen is None else {name: seen["packages"].get(name) for name in self.wanted}

    def call(self, argv: list[str], doing: str) -> None:
        answer = self.runner.run(argv, self.params["timeout"])
        if answer.rc != 0:
            lines = [line for line in (answer.err + "\n" + answer.out).splitlines() if line.strip()]
            raise EnvironmentFault("%s failed (%s): %s" % (doing, answer.complaint, "; ".join(lines[-4:])[:600]))

    def pip(self, packages: dict[str, str], *more: str) -> None:
        # --isolated leaves /etc/pip.conf in force; only this name of a configuration file switches all of them off.
        argv = ["env", "PIP_CONFIG_FILE=" + os.devnull, self.path + "/bin/python", "-m", "pip", "install", "--isolated", "--no-input"]
        argv += ["--disable-pip-version-check", "--no-cache-dir", "--progress-bar=off", "--index-url=" + self.params["index_url"], *more]
        argv += ["--trusted-host=" + host for host in self.params["trusted_hosts"]]
        argv += ["--proxy=" + self.params["proxy"]] if self.params["proxy"] else []
        exact = ["%s==%s" % item for item in sorted(packages.items())]
        self.call([*argv, *exact], "installing %s from %s" % (" ".join(exact), self.params["index_url"]))

    def create(self) -> None:
        """A new environment in place of whatever is left of an old one."""
        Path(self.path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.call([self.params["python"], "-m", "venv", "--clear", self.path], "creating the environment %s" % self.path)

    def install(self) -> None:
        if self.found() is None or self.runner.run([self.path + "/bin/python", "-m", "pip", "--version"], 60.0).rc != 0:
            self.create()
        self.pip(self.wanted)
        # pip goes by its own records; where the files say something else it is told to put them back, and where its
        # records themselves are no longer to be believed, only a new environment helps.
        if self.wrong():
            self.pip(self.wrong(), "--force-reinstall", "--no-deps")
        if self.wrong():
            self.create()
            self.pip(self.wanted)
        if self.wrong():
            raise EnvironmentFault("%s holds %s after installing %s" % (self.path, self.found(), self.wanted))

    def wrong(self) -> dict[str, str]:
        """Wanted versions of what is missing or of another version."""
        found = self.found() or {}
        return {name: version for name, version in self.wanted.items() if found.get(name) != version}

    def remove(self) -> None:
        if not Path(self.path, "pyvenv.cfg").is_file():
            raise EnvironmentFault("%s is not removed: it holds no pyvenv.cfg, so it is no environment of ours" % self.path)
        shutil.rmtree(self.path)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["absent", "present"], "default": "present"},
            "packages": {"type": "dict", "default": {}},
            "index_url": {"type": "str"},
            "trusted_hosts": {"type": "list", "elements": "str", "default": []},
            "proxy": {"type": "str"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "timeout": {"type": "int", "default": 1800},
        },
        required_if=[("state", "present", ("index_url",))],
        supports_check_mode=True,
    )
    # Whatever root's own umask is, the people who train must be able to read the environment.
    os.umask(0o022)
    runner = Runner(lambda: float("inf"))
    environment = PythonEnvironment(module.params, runner)
    before = environment.found()
    present = module.params["state"] == "present"
    after = environment.wanted if present else None
    changed = before != after if present else Path(module.params["path"]).exists()
    try:
        if changed and not module.check_mode:
            if present:
                environment.install()
            else:
                environment.remove()
    except (EnvironmentFault, OSError) as error:
        module.fail_json(msg=str(error), packages=environment.found() or {})
    finally:
        runner.close()
    diff = {"before": {"packages": before}, "after": {"packages": after}} if changed else None
    module.exit_json(changed=changed, packages=after or {}, **({"diff": diff} if diff and module._diff else {}))


if __name__ == "__main__":
    main()
