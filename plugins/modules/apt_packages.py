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
      places:
        description: Where it lies, as beginnings of addresses without scheme; the host's other entries for it are left out.
        type: list
        elements: str
        default: []
      proxy:
        description: The proxy that it is reached through.
        type: str
      instead:
        description: What to use, in words, where the host's verifier does not accept its key.
        type: str
  unless_present:
    description:
      - Packages in any version, by name, each with a path. One whose path exists is not asked for.
      - This is how a kernel's headers are wanted, which a kernel of one's own has without any package.
    type: dict
    default: {}
  fetch_only:
    description: Bring what the transaction needs onto the host and change nothing else.
    type: bool
    default: false
  refresh:
    description: Fetch the lists of packages first. Switch it off only right after a run with O(fetch_only=true).
    type: bool
    default: true
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

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private


def asked(params: dict[str, t.Any]) -> dict[str, str]:
    """Name and version of every package that the host is to have; an empty version is any."""
    wanted = {name: str(version or "") for name, version in params["packages"].items()}
    wanted.update({name: "" for name, path in params["unless_present"].items() if not os.path.exists(path)})
    return wanted


def bring(module: AnsibleModule) -> list[dict[str, t.Any]]:
    """Make the transaction, or as much of it as was asked for; returns what it changed, or would change."""
    params = module.params
    wanted = asked(params)
    if not _apt.missing(wanted):
        return []
    if module.check_mode:
        with _apt_private.PrivateApt(params["repository"], params["lock_timeout"]) as private:
            private.update()
            changes = private.simulate(wanted)
        _apt.judge(changes, wanted, params["may_remove"])
        return [] if params["fetch_only"] else changes
    apt = _apt.Apt(params["lock_timeout"])
    apt.repair()
    if params["refresh"]:
        apt.update()
    changes = apt.simulate(wanted)
    _apt.judge(changes, wanted, params["may_remove"])
    if params["fetch_only"]:
        apt.fetch(wanted)
        return []
    apt.install(wanted)
    left = _apt.missing(wanted)
    if left:
        raise _apt.Failed("apt-get ended well, but these are not installed as asked: %s" % ", ".join(sorted(left)))
    return changes


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "required": True},
            "repository": {
                "type": "dict",
                "options": _apt_private.OPTIONS,
            },
            "unless_present": {"type": "dict", "default": {}},
            "fetch_only": {"type": "bool", "default": False},
            "refresh": {"type": "bool", "default": True},
            "may_remove": {"type": "list", "elements": "str", "default": []},
            "lock_timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    changes: list[dict[str, object]] = []
    try:
        changes = bring(module)
    except _apt.Failed as error:
        module.fail_json(msg=str(error), changes=changes)
    diff = {
        "before": "".join("%s %s\n" % (change["name"], change["from"]) for change in changes if change["from"]),
        "after": "".join("%s %s\n" % (change["name"], change["to"]) for change in changes if change["to"]),
    }
    module.exit_json(changed=bool(changes), changes=changes, diff=diff)


if __name__ == "__main__":
    main()
