#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_facts
short_description: Observe the GPUs, the network, and the software of a host
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Observes a host in a single pass and returns what it is, without changing anything.
  - Hardware comes from the kernel's own files and needs no driver. The driver adds what only it knows.
  - No GPU, no driver, a driver that hangs, or missing rights are answers and not failures. What could not be found out is V(null), and
    C(problems) says why.
  - The shape of the answer is described in C(docs/facts.md) of the collection.
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.attributes.info
  - gpu.fleet.attributes.facts
options:
  gather_subset:
    description:
      - Groups of facts to observe. A group with C(!) before its name is left out, also when another name asks for it.
      - Facts of a group that was not observed are V(null).
      - C(schema), C(boot_id), C(host), C(problems), and C(record) are always there, and V(min) asks for nothing else, as V(!all) does.
      - Possible groups are V(all), V(hardware), V(driver), V(software), V(managed), and V(min).
      - V(hardware) is what the kernel tells of GPUs and network, and needs no driver. V(driver) is the driver, its state, and with V(hardware)
        also what it tells of each GPU. V(software) is what is above the driver. V(managed) is the state of what O(managed) asks for.
    type: list
    elements: str
    default: [all]
  managed:
    description: Things whose state is asked for.
    type: list
    elements: dict
    default: []
    suboptions:
      kind:
        description: What it is.
        type: str
        required: true
        choices: [directory, file, hold, keyring, lock, module, package, python_environment, source, stream, trusted_key, unit, user]
      id:
        description:
          - Its absolute path, or its name for V(hold), V(lock), V(module), V(package), V(stream), V(unit), and V(user).
          - For V(source) the beginning of its address, without the scheme; for V(trusted_key) a fingerprint.
        type: str
        required: true
  timeout:
    description:
      - Seconds that the whole observation may take, whatever hangs on the host.
      - What takes longer is given up, and C(problems) says so.
    type: float
    default: 10.0
  probe_timeout:
    description: Seconds that one program on the host, or one step of the observation, may take.
    type: float
    default: 3.0
"""

EXAMPLES = r"""
- name: Observe a host
  gpu.fleet.gpu_facts:
  register: observation

- name: Show what could not be found out
  ansible.builtin.debug:
    var: observation.ansible_facts.gpu_fleet.problems

- name: Observe one file and one package, and nothing of the driver
  gpu.fleet.gpu_facts:
    gather_subset: ["!driver"]
    managed:
      - kind: file
        id: /etc/nccl.conf
      - kind: package
        id: nvidia-persistenced

- name: Observe as part of gathering facts
  hosts: gpu_nodes
  vars:
    ansible_facts_modules: [ansible.builtin.setup, gpu.fleet.gpu_facts]
  tasks:
    - name: Show the GPUs
      ansible.builtin.debug:
        var: ansible_facts.gpu_fleet.gpus
"""

RETURN = r"""
ansible_facts:
  description: Facts about the host.
  returned: always
  type: dict
  contains:
    gpu_fleet:
      description: Everything that was observed. See C(docs/facts.md) for each field.
      returned: always
      type: dict
      sample:
        schema: 1
        boot_id: 0b8f7c3e-6f0f-4c65-9d9b-6a5fd0f6d1a4
        gpus:
          - address: "0000:18:00.0"
            device_id: "2330"
            index: 0
            model: NVIDIA H100 80GB HBM3
        problems:
          - probe: nvidia-smi
            reason: no answer within 3.0 s
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._once import compile_once

LONGEST = 3600


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gather_subset": {"type": "list", "elements": "str", "default": ["all"]},
            "managed": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "kind": {
                        "type": "str",
                        "required": True,
                        "choices": [
                            "directory", "file", "hold", "keyring", "lock", "module", "package", "python_environment", "source", "stream",
                            "trusted_key", "unit", "user",
                        ],
                    },
                    "id": {"type": "str", "required": True},
                },
            },
            "timeout": {"type": "float", "default": 10.0},
            "probe_timeout": {"type": "float", "default": 3.0},
        },
        supports_check_mode=True,
    )
    for name in ("timeout", "probe_timeout"):
        # A number that is none is not in between either.
        if not 0 < module.params[name] <= LONGEST:
            module.fail_json(msg="%s is %s; it must be more than 0 and at most %d seconds" % (name, module.params[name], LONGEST))
    compile_once()
    # Not before.
    from ansible_collections.gpu.fleet.plugins.module_utils._observe import chosen, observe_apart

    try:
        subsets = chosen(module.params["gather_subset"])
    except ValueError as error:
        module.fail_json(msg=str(error))
    facts = observe_apart(
        subsets=subsets,
        managed=module.params["managed"],
        timeout=module.params["timeout"],
        probe_timeout=module.params["probe_timeout"],
    )
    module.exit_json(changed=False, ansible_facts={"gpu_fleet": facts})


if __name__ == "__main__":
    main()
