#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_repository_info
short_description: See that a repository answers apt, before it is set up
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Fetches the key and the lists of one repository into a private root of apt, and fails when they do not come or are not what they should be.
  - The host's own repositories are not looked at.
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.attributes.info
  - gpu.fleet.packages.repository
"""

EXAMPLES = r"""
- name: See that the repository of the plan answers
  gpu.fleet.apt_repository_info:
    repository: "{{ __gpu_stack_plan.repositories | first }}"
"""

RETURN = r"""
fingerprint:
  description: The fingerprint of the key that the repository has.
  returned: success
  type: str
  sample: EB693B3035CD5710E231E123A4B469963BF863CC
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private, _packages

LOCK_SECONDS = 30


class Alone(_apt_private.PrivateApt):
    """apt-get in a private root that knows one repository and none of the host's."""

    def furnish(self, root: str) -> None:
        """Take out what the host has."""
        super().furnish(root)
        sources = os.path.join(root, "sources")
        for name in os.listdir(sources):
            os.unlink(os.path.join(sources, name))
        self.options += ["-o", "Dir::Etc::SourceList=" + os.devnull]


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
        with Alone(repository, LOCK_SECONDS) as apt:
            apt.update()
    except _apt.Failed as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, fingerprint=repository["fingerprint"])


if __name__ == "__main__":
    main()
