#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_packages
short_description: Install exact versions of packages in one apt transaction that was simulated first
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Installs all given packages in a single transaction, after apt has said what it would do.
  - A transaction that would remove a package, lower another package's version, or bring a kernel, is refused unless it is allowed.
  - In check mode the packages are resolved in a private root of apt, so that a repository which is not yet set up is no obstacle.
  - Needs nothing on the host but apt-get and dpkg.
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
  packages:
    description: Exact version of each package by its name; an empty version means that any will do.
    type: dict
    required: true
  repository:
    description:
      - The source that the packages come from, as the plan describes it.
      - It is used in check mode only; a real run takes what is set up on the host.
    type: dict
    suboptions:
      id:
        description: Its name.
        type: str
      path:
        description: The file that describes it to apt.
        type: path
        required: true
      content:
        description: The content of that file.
        type: str
        required: true
      key_path:
        description: Where its key is to be.
        type: path
        required: true
      key_url:
        description: Where its key is fetched from.
        type: str
        required: true
      fingerprint:
        description: The fingerprint of its key.
        type: str
        required: true
  may_remove:
    description: Names of packages that the transaction may remove.
    type: list
    elements: str
    default: []
  lock_timeout:
    description: Seconds to wait for another run of apt or dpkg.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Install the driver's user space
  gpu.fleet.apt_packages:
    packages:
      nvidia-driver-cuda: 580.178.04-1
      libcuda1: 580.178.04-1
"""

RETURN = r"""
changes:
  description: What the transaction does, or would do in check mode; by name.
  returned: always
  type: list
  elements: dict
  sample:
    - {name: libcuda1, from: null, to: 580.178.04-1, action: install}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "required": True},
            "repository": {
                "type": "dict",
                "options": {
                    "id": {"type": "str"},
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "required": True},
                    "key_path": {"type": "path", "required": True, "no_log": False},
                    "key_url": {"type": "str", "required": True, "no_log": False},
                    "fingerprint": {"type": "str", "required": True, "no_log": False},
                },
            },
            "may_remove": {"type": "list", "elements": "str", "default": []},
            "lock_timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    wanted = {name: str(version or "") for name, version in module.params["packages"].items()}
    changes: list[dict[str, object]] = []
    try:
        missing = _apt.missing(wanted)
        if missing:
            with _apt.Apt(module.params["repository"], module.params["lock_timeout"], private=module.check_mode) as apt:
                apt.update()
                changes = apt.simulate(wanted)
                _apt.judge(changes, wanted, module.params["may_remove"])
                if not module.check_mode:
                    apt.install(wanted)
                    left = _apt.missing(wanted)
                    if left:
                        raise _apt.Failed("apt-get ended well, but these are not installed as asked: %s" % ", ".join(sorted(left)))
    except _apt.Failed as error:
        module.fail_json(msg=str(error), changes=changes)
    diff = {
        "before": "".join("%s %s\n" % (change["name"], change["from"]) for change in changes if change["from"]),
        "after": "".join("%s %s\n" % (change["name"], change["to"]) for change in changes if change["to"]),
    }
    module.exit_json(changed=bool(changes), changes=changes, diff=diff)


if __name__ == "__main__":
    main()
