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
  - gpu.fleet.packages
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
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

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private, _packages


def bring(module: AnsibleModule) -> list[dict[str, t.Any]]:
    """Make the transaction, or as much of it as was asked for; returns what it changed, or would change."""
    params = module.params
    wanted = _packages.asked(params)
    if not _apt.missing(wanted):
        return []
    if module.check_mode:
        with _apt_private.PrivateApt(params["repository"], params["lock_timeout"]) as private:
            private.update()
            changes = private.simulate(wanted, params["may_remove"])
        _apt.judge(changes, wanted, params["may_remove"])
        return [] if params["fetch_only"] else changes
    apt = _apt.Apt(params["lock_timeout"])
    apt.repair()
    if params["refresh"]:
        apt.update()
    changes = apt.simulate(wanted, params["may_remove"])
    _apt.judge(changes, wanted, params["may_remove"])
    removed = [change["name"] for change in changes if change["action"] == "remove"]
    if params["fetch_only"]:
        apt.fetch(wanted, removed)
        return []
    apt.install(wanted, removed)
    left = _apt.missing(wanted)
    if left:
        raise _apt.Failed("apt-get ended well, but these are not installed as asked: %s" % ", ".join(sorted(left)))
    return changes


def main() -> None:
    """Run the module."""
    _packages.run(bring)


if __name__ == "__main__":
    main()
