#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_driver
short_description: Load or unload NVIDIA's kernel driver
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Loads the driver that is installed for the running kernel, or unloads it with everything that depends on it.
  - A driver that has no module for the running kernel yet is built first, where dkms has its source; what the build said ends up in the message.
  - Unloading stops the given services first and refuses while any other process has a device of the driver open.
  - A driver of another version than the wanted one is never replaced here; unload it, change the packages, and load again.
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
  state:
    description: Whether the driver is loaded.
    type: str
    choices: [loaded, unloaded]
    default: loaded
  version:
    description: Version that has to be loaded afterwards. Used with O(state=loaded).
    type: str
  units:
    description:
      - Services of the driver. They may be stopped before unloading.
      - After loading, it is forgotten that they failed without the driver; C(systemd) refuses to start one that failed too often a moment ago.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Load the driver
  gpu.fleet.kernel_driver:
    version: 580.178.04
    units: [nvidia-persistenced.service, nvidia-fabricmanager.service]

- name: Unload it
  gpu.fleet.kernel_driver:
    state: unloaded
    units: [nvidia-fabricmanager.service, nvidia-persistenced.service]
"""

RETURN = r"""
version:
  description: Version that is loaded at the end; null when none is.
  returned: always
  type: str
  sample: 580.178.04
"""

import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._kernel_driver import SECONDS, Refused, lacking, load, strangers, unload, version_now
from ansible_collections.gpu.fleet.plugins.module_utils._system import System


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["loaded", "unloaded"], "default": "loaded"},
            "version": {"type": "str"},
            "units": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    system = System("/", float(SECONDS))
    wanted = module.params["version"]
    before = version_now(system)
    loading = module.params["state"] == "loaded"
    missing = lacking(system) if loading and before else []
    changes = (before is None or bool(missing)) if loading else before is not None
    try:
        if module.check_mode:
            found = [] if loading or not changes else strangers(system, module.params["units"])
            if found:
                raise Refused("the driver cannot be unloaded: %s has its devices open" % ", ".join(found))
        elif loading:
            load(wanted, module.params["units"], system)
        elif changes:
            unload(module.params["units"], system)
    except (Refused, subprocess.TimeoutExpired) as error:
        module.fail_json(msg=str(error), version=version_now(system))
    after = (wanted or "loaded" if loading else None) if module.check_mode else version_now(system)
    if module.check_mode and not changes:
        after = before
    without = " without " + ", ".join(missing) if missing else ""
    diff = {"before": "driver loaded: %s%s\n" % (before, without), "after": "driver loaded: %s\n" % after}
    module.exit_json(changed=changes, version=after, diff=diff)


if __name__ == "__main__":
    main()
