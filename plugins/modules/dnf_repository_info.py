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
options:
  repository:
    description: The repository, as the plan describes it.
    type: dict
    required: true
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
from ansible_collections.gpu.fleet.plugins.module_utils import _dnf

LOCK_SECONDS = 30


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "repository": {
                "type": "dict",
                "required": True,
                "options": _dnf.OPTIONS,
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
