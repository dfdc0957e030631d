#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_packages
short_description: Install exact versions of packages in one dnf transaction that was simulated first
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Installs all given packages in a single transaction, after dnf has said what it would do.
  - A transaction that would remove a package, lower another package's version, or bring a kernel, is refused unless it is allowed.
  - A repository with module streams is used with one stream that is named. Where another one is enabled on the host, or none, nothing is done;
    which one is enabled is a file of the plan's.
  - In check mode the packages are resolved with caches of their own, so that neither a repository nor a stream that is not yet set up is an obstacle.
  - Locks of versions do not bind it, as they belong to whoever asks for the versions; weak dependencies are left out.
  - Needs nothing on the host but rpm and dnf of version 4, which EL 9 and 10 have, with the Python that dnf itself runs under.
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
      - Its place and content are used in check mode only; a real run takes what is set up on the host.
      - For this repository no key is trusted but its own, and no stream is used but its own.
    type: dict
    suboptions:
      id:
        description: Its name.
        type: str
      path:
        description: The file that describes it to dnf.
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
        description: Not used; an apt_packages of the same plan is told of it.
        type: list
        elements: str
        default: []
      proxy:
        description: The proxy that its key is fetched through; its content says so for dnf itself.
        type: str
      instead:
        description: Not used; an apt_packages of the same plan is told of it.
        type: str
      stream:
        description: The module and its stream, as in C(nvidia-driver:580-open), that the packages belong to.
        type: str
  unless_present:
    description:
      - Packages in any version, by name, each with a path. One whose path exists is not asked for. A name may hold a version.
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
    description: Seconds to wait for another run of dnf.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Install the driver's user space
  gpu.fleet.dnf_packages:
    packages:
      nvidia-driver-cuda: 3:580.178.04-1.el9
      nvidia-driver-cuda-libs: 3:580.178.04-1.el9
"""

RETURN = r"""
changes:
  description: What the transaction does, or would do in check mode; by name.
  returned: always
  type: list
  elements: dict
  sample:
    - {name: nvidia-driver-cuda, from: null, to: "3:580.178.04-1.el9", action: install}
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _dnf


def asked(params: dict[str, t.Any]) -> dict[str, str]:
    """Name and version of every package that the host is to have; an empty version is any."""
    wanted = {name: str(version or "") for name, version in params["packages"].items()}
    wanted.update({name: "" for name, path in params["unless_present"].items() if not os.path.exists(path)})
    return wanted


def bring(module: AnsibleModule) -> list[dict[str, t.Any]]:
    """Make the transaction, or as much of it as was asked for; returns what it changed, or would change."""
    params = module.params
    wanted = asked(params)
    if not _dnf.missing(wanted):
        return []
    with _dnf.Dnf(params["repository"], params["lock_timeout"], private=module.check_mode) as dnf:
        dnf.refresh = params["refresh"] or module.check_mode
        seen = dnf.simulate(wanted)
        changes = _dnf.judge(seen, wanted, params["may_remove"])
        if params["fetch_only"]:
            if not module.check_mode:
                dnf.fetch(wanted, seen)
            return []
        if not module.check_mode:
            dnf.install(wanted, seen)
            left = _dnf.missing(wanted)
            if left:
                raise _dnf.Failed("dnf ended well, but these are not installed as asked: %s" % ", ".join(sorted(left)))
    return changes


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "dict", "required": True},
            "repository": {
                "type": "dict",
                "options": _dnf.OPTIONS,
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
    except _dnf.Failed as error:
        module.fail_json(msg=str(error), changes=changes)
    diff = {
        "before": "".join("%s %s\n" % (change["name"], change["from"]) for change in changes if change["from"]),
        "after": "".join("%s %s\n" % (change["name"], change["to"]) for change in changes if change["to"]),
    }
    module.exit_json(changed=bool(changes), changes=changes, diff=diff)


if __name__ == "__main__":
    main()
