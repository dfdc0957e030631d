#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_repository_info
short_description: See that a repository answers dnf, before it is set up
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Fetches the key and the lists of one repository into caches of their own, and fails when they do not come or are not what they should be.
  - A stream of a module that the plan names has to be there.
  - The host's own repositories are not looked at.
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.attributes.info
  - gpu.fleet.packages.repository
"""

EXAMPLES = r"""
- name: See that the repository of the plan answers
  gpu.fleet.dnf_repository_info:
    repository: "{{ __gpu_stack_plan.repositories | first }}"
"""

RETURN = r"""
fingerprint:
  description: The fingerprint of the key that the repository has.
  returned: success
  type: str
  sample: 610C7B14E068A878070DA4E99CD0A493D42D0685
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _dnf, _packages

LOCK_SECONDS = 30


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "repository": {
                "type": "dict",
                "required": True,
                "options": _packages.REPOSITORY,
            },
        },
        supports_check_mode=True,
    )
    repository = module.params["repository"]
    try:
        with _dnf.Dnf(repository, LOCK_SECONDS, private=True, alone=True) as dnf:
            dnf.ask("load", _dnf.LOAD_SECONDS, {})
    except _dnf.Failed as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, fingerprint=repository["fingerprint"])


if __name__ == "__main__":
    main()
