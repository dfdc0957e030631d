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
  - For the repository that it is told of, no key is trusted but its own.
  - In check mode the packages are resolved with caches of their own, so that neither a repository nor a stream that is not yet set up is an obstacle.
  - Locks of versions do not bind it, as they belong to whoever asks for the versions; weak dependencies are left out.
  - Needs nothing on the host but rpm and dnf of version 4, which EL 9 and 10 have, with the Python that dnf itself runs under.
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

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _dnf, _packages


def bring(module: AnsibleModule) -> list[dict[str, t.Any]]:
    """Make the transaction, or as much of it as was asked for; returns what it changed, or would change."""
    params = module.params
    wanted = _packages.asked(params)
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
    _packages.run(bring)


if __name__ == "__main__":
    main()
