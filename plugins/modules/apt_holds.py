#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_holds
short_description: Put packages on hold
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Marks packages so that no upgrade changes or removes them, all of them in one call of dpkg.
  - A package that is not installed is passed over, as a mark on it would keep it out.
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details: Packages that are not installed yet are taken as installed, as in check mode nothing has installed them.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  items:
    description: The things of a plan; other kinds than V(hold) are passed over.
    type: list
    elements: dict
    required: true
    suboptions:
      role:
        description: The role that answers for it. It is not used here.
        type: str
      kind:
        description: What it is.
        type: str
        required: true
      id:
        description: Name of the package.
        type: str
        required: true
      desired:
        description: C(held), whether it is to be on hold.
        type: dict
        required: true
  lock_timeout:
    description: Seconds to wait for another run of apt or dpkg.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Hold the driver
  gpu.fleet.apt_holds:
    items: "{{ plan.managed | selectattr('role', 'eq', 'nvidia_driver') }}"
"""

RETURN = r"""
changes:
  description: The packages whose mark was changed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [libcuda1]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _items


def run(module: AnsibleModule) -> dict[str, bool]:
    """Change the marks that differ; returns them by package."""
    wanted = {item["id"]: bool(item["desired"]["held"]) for item in module.params["items"] if item["kind"] == "hold"}
    present = _apt.selections()
    differing = {
        name: held for name, held in wanted.items()
        if (present[name].held != held if name in present else held and module.check_mode)
    }  # fmt: skip
    if differing and not module.check_mode:
        _apt.select(differing, module.params["lock_timeout"])
    return differing


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "items": _items.ITEMS,
            "lock_timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    try:
        changes = run(module)
    except _apt.Failed as error:
        module.fail_json(msg=str(error))
    diff = {
        "before": "".join("%s %s\n" % (name, "held" if not held else "free") for name, held in sorted(changes.items())),
        "after": "".join("%s %s\n" % (name, "held" if held else "free") for name, held in sorted(changes.items())),
    }
    module.exit_json(changed=bool(changes), changes=sorted(changes), diff=diff)


if __name__ == "__main__":
    main()
