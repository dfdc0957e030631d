#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_locks
short_description: Lock packages to their versions, and a module to its stream
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Writes the given locks into dnf's list, C(/etc/dnf/plugins/versionlock.list), between two marks. All other lines and remarks stay.
  - A line of somebody else for one of the packages is put aside in its place, from where M(gpu.fleet.managed_release) brings it back. Each line
    of a name lets its own version in.
  - Enables the given stream of a module, as dnf itself does.
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
    description: The things of a plan; other kinds than V(lock) and V(stream) are passed over.
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
        description: Name of the package, of the module, or path of the file.
        type: str
        required: true
      desired:
        description: The state that it is to have.
        type: dict
        required: true
"""

EXAMPLES = r"""
- name: Lock the driver
  gpu.fleet.dnf_locks:
    items: "{{ plan.managed | selectattr('role', 'eq', 'nvidia_driver') }}"
"""

RETURN = r"""
changes:
  description: The files that were changed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [/etc/dnf/plugins/versionlock.list]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _items, _lock_list, _locks, _managed_list, _streams


def wanted(items: list[dict[str, t.Any]]) -> dict[str, tuple[str, str]]:
    """By path the present text and the one that it is to be, of those that differ."""
    found = {}
    locks = {item["id"]: item["desired"]["lines"][0] for item in items if item["kind"] == "lock"}
    present = _lock_list.read()
    if locks:
        found[_locks.PATH] = (present, _locks.rewrite(present, locks))
    for item in items:
        if item["kind"] == "stream":
            text = _streams.read(item["id"])
            right = _streams.enabled(item["id"], text) == item["desired"]["stream"]
            found[_streams.PATH % item["id"]] = (text, text if right else item["desired"]["content"])
    return {path: texts for path, texts in found.items() if texts[0] != texts[1]}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"items": _items.ITEMS}, supports_check_mode=True)
    try:
        differing = wanted(module.params["items"])
        for path, (_present, text) in differing.items() if not module.check_mode else ():
            _managed_list.put(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        module.fail_json(msg=str(error))
    diff = [{"before_header": path, "after_header": path, "before": before, "after": after} for path, (before, after) in differing.items()]
    module.exit_json(changed=bool(differing), changes=sorted(differing), diff=diff)


if __name__ == "__main__":
    main()
