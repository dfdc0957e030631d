#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: repository_key
short_description: Install the signing key of a package repository, known by its fingerprint
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Fetches a key and writes it only when it holds the wanted primary key and no other.
  - A key file that is already right is not fetched again.
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
  url:
    description: Where the key is fetched from.
    type: str
    required: true
  fingerprint:
    description: Fingerprint of the primary key, 40 hexadecimal digits.
    type: str
    required: true
  dest:
    description: Where the key is written to.
    type: path
    required: true
  proxy:
    description: The proxy that O(url) is reached through.
    type: str
  timeout:
    description: Seconds that the download may take.
    type: int
    default: 30
"""

EXAMPLES = r"""
- name: Trust NVIDIA's repository
  gpu.fleet.repository_key:
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
    dest: /etc/apt/keyrings/gpu-fleet-nvidia.asc
"""

RETURN = r"""
fingerprints:
  description: Fingerprints of the primary keys that were found at O(dest) before.
  returned: always
  type: list
  elements: str
  sample: [EB693B3035CD5710E231E123A4B469963BF863CC]
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _download, _managed


def present(path: str) -> tuple[list[str], bool]:
    """Fingerprints in a key file, and whether everybody may read it and only root write it."""
    try:
        with open(path, "rb") as source:
            found = _managed.fingerprints(source.read())
        state = os.stat(path)
    except OSError:
        return [], False
    return found, (state.st_mode & 0o7777, state.st_uid, state.st_gid) == (0o644, 0, 0)


def install(module: AnsibleModule, data: bytes, dest: str) -> None:
    """Write the key in one step."""
    os.makedirs(os.path.dirname(dest), mode=0o755, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=os.path.dirname(dest), prefix=".gpu-fleet-")
    with os.fdopen(handle, "wb") as output:
        output.write(data)
    os.chmod(part, 0o644)
    module.atomic_move(part, dest)
    os.chmod(dest, 0o644)
    os.chown(dest, 0, 0)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True, "no_log": False},
            "dest": {"type": "path", "required": True},
            "proxy": {"type": "str"},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    wanted, dest = module.params["fingerprint"].upper(), module.params["dest"]
    found, readable = present(dest)
    if found == [wanted] and readable:
        module.exit_json(changed=False, fingerprints=found)
    if module.params["proxy"]:
        _download.through(module.params["proxy"])
    try:
        data = _download.key(module.params["url"], wanted, module.params["timeout"])
        if not module.check_mode:
            install(module, data, dest)
    except (_download.Failed, OSError) as error:
        module.fail_json(msg=str(error), fingerprints=found)
    diff = {"before_header": dest, "after_header": dest, "before": "\n".join(found) + "\n", "after": wanted + "\n"}
    module.exit_json(changed=True, fingerprints=found, diff=diff)


if __name__ == "__main__":
    main()
