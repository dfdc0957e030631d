#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_record
short_description: Write down what is managed on a host and what was there before
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Puts the things of a plan on the host's own list, C(/var/lib/gpu_fleet/managed.json), each with the state that it has at that moment.
  - To be run before the first change, and on the disk when it ends, so that whatever is changed afterwards can be undone.
  - What is on the list already stays as it was written the first time.
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
  items:
    description: The things of a plan, of any kind.
    type: list
    elements: dict
    required: true
    suboptions:
      role:
        description: The role that answers for it.
        type: str
      kind:
        description: What it is.
        type: str
        required: true
      id:
        description: Its path or name.
        type: str
        required: true
      desired:
        description: The state that it is to have. It is not used here.
        type: dict
        required: true
"""

EXAMPLES = r"""
- name: Write down what will be managed
  gpu.fleet.managed_record:
    items: "{{ plan.managed }}"
"""

RETURN = r"""
added:
  description: The things that were put on the list, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["file:/etc/apt/preferences.d/gpu-fleet-nvidia.pref", "hold:libcuda1"]
changes:
  description: The folder of the list, where it was not there before.
  returned: always
  type: list
  elements: str
  sample: ["/var/lib/gpu_fleet"]
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _items, _lock_list, _locks, _managed_list, _managers, _streams

PATHS = ("file", "keyring")
Installed = t.Mapping[str, t.Tuple[str, bool]]


def unit_state(module: AnsibleModule, name: str) -> dict[str, bool]:
    """Whether a unit exists and is started at boot."""
    _code, output, _errors = module.run_command(["systemctl", "show", "--property=LoadState,UnitFileState", "--", name])
    properties = dict(line.partition("=")[::2] for line in output.splitlines())
    return {"loaded": properties.get("LoadState") == "loaded", "enabled": properties.get("UnitFileState") in ("enabled", "enabled-runtime")}


def before(module: AnsibleModule, item: dict[str, t.Any], packages: Installed) -> dict[str, t.Any] | None:
    """The present state of a thing, as far as it can be brought back."""
    kind, name = item["kind"], item["id"]
    if kind in PATHS:
        return _managed_list.state_of(name)
    if kind == "unit":
        return unit_state(module, name)
    if kind == "hold":
        return {"held": name in packages and packages[name][1]}
    if kind == "package":
        return {"version": packages[name][0] if name in packages else None}
    if kind == "lock":
        return {"lines": _locks.active(_lock_list.read()).get(name, [])}
    if kind == "stream":
        return _managed_list.state_of(_streams.PATH % name)
    return None


def run(module: AnsibleModule) -> list[str]:
    """Put what is new on the list; returns what that is."""
    record = _managed_list.Record.load()
    items = [item for item in module.params["items"] if not record.knows(item["kind"], item["id"])]
    packages = _managers.here().selections() if items else {}
    for item in items:
        record.note(item["kind"], item["id"], item["role"], before(module, item, packages))
    if items and not module.check_mode:
        record.save()
    return ["%s:%s" % (item["kind"], item["id"]) for item in items]


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"items": _items.ITEMS}, supports_check_mode=True)
    folder = os.path.dirname(_managed_list.PATH)
    made = [] if os.path.isdir(folder) else [folder]
    try:
        added = run(module)
    except (_managed_list.Damaged, _managers.Failed, OSError) as error:
        module.fail_json(msg=str(error))
    diff = {"before_header": _managed_list.PATH, "after_header": _managed_list.PATH, "before": "", "after": "".join(name + "\n" for name in added)}
    module.exit_json(changed=bool(added), added=added, changes=made if added else [], diff=diff)


if __name__ == "__main__":
    main()
