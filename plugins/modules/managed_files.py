#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_files
short_description: Bring a bundle of files and directories into their planned state
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Writes those of the given files and directories that differ, in one run for all of them.
  - Everything is checked before the first file is written, and each file is replaced as a whole.
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
    description: The things of a plan; other kinds than V(file) and V(directory) are passed over.
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
        description: Absolute path.
        type: str
        required: true
      desired:
        description:
          - The state to reach. C(state), C(mode), C(owner) and C(group), and C(content) for a file.
        type: dict
        required: true
"""

EXAMPLES = r"""
- name: Write what the plan holds for this role
  gpu.fleet.managed_files:
    items: "{{ plan.managed | selectattr('role', 'eq', 'node_baseline') }}"
"""

RETURN = r"""
changes:
  description: The paths that were changed, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [/etc/nccl.conf]
"""

import grp
import os
import pwd
import stat
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _items

STATES = {"file": ("file", "absent"), "directory": ("directory",)}


class Problem(Exception):
    """Something about an item that cannot be right."""


def describe(path: str) -> dict[str, t.Any]:
    """State of a path in the words of a plan, with the content of a file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return {"state": "absent"}
    kind = "file" if stat.S_ISREG(found.st_mode) else "directory" if stat.S_ISDIR(found.st_mode) else "other"
    state: dict[str, t.Any] = {"state": kind, "mode": "%04o" % stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid}
    if kind == "file":
        with open(path, "rb") as source:
            state["content"] = source.read().decode("utf-8", "replace")
    return state


def target(item: dict[str, t.Any]) -> dict[str, t.Any]:
    """Desired state of an item in the same words; raises Problem."""
    desired, path = item["desired"], item["id"]
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise Problem("%r is not a plain absolute path" % path)
    if desired.get("state") not in STATES[item["kind"]]:
        raise Problem("%s: state %r is not one of %s" % (path, desired.get("state"), ", ".join(STATES[item["kind"]])))
    if desired["state"] == "absent":
        return {"state": "absent"}
    try:
        uid, gid = pwd.getpwnam(desired["owner"]).pw_uid, grp.getgrnam(desired["group"]).gr_gid
    except KeyError as error:
        raise Problem("%s: owner or group does not exist on this host (%s)" % (path, error)) from error
    wanted = {"state": desired["state"], "mode": desired["mode"], "uid": uid, "gid": gid}
    if desired["state"] == "file":
        wanted["content"] = desired["content"]
    return wanted


def write(module: AnsibleModule, path: str, wanted: dict[str, t.Any]) -> None:
    """Bring one path into its state."""
    if wanted["state"] == "absent":
        os.unlink(path)
        return
    if wanted["state"] == "directory":
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".gpu-fleet-")
        with os.fdopen(handle, "wb") as output:
            output.write(wanted["content"].encode("utf-8"))
        # Owner and mode before the rename: no moment with a file that is open to the wrong reader.
        os.chown(part, wanted["uid"], wanted["gid"])
        os.chmod(part, int(wanted["mode"], 8))
        module.atomic_move(part, path)
    os.chown(path, wanted["uid"], wanted["gid"])
    os.chmod(path, int(wanted["mode"], 8))


def text_of(state: dict[str, t.Any]) -> str:
    """What a diff shows of a state."""
    if state["state"] == "absent":
        return ""
    return str(state.get("content", "")) + "(%s %s)\n" % (state["state"], state.get("mode"))


def run(module: AnsibleModule) -> dict[str, t.Any]:
    """Compare all items, then write those that differ."""
    items = [item for item in module.params["items"] if item["kind"] in STATES]
    pairs = [(item["id"], describe(item["id"]), target(item)) for item in items]
    blocked = [path for path, now, wanted in pairs if now["state"] not in ("absent", wanted["state"]) and wanted["state"] != "absent"]
    if blocked:
        raise Problem("in the way of what is planned stands something else: %s" % ", ".join(blocked))
    differing = [(path, now, wanted) for path, now, wanted in pairs if now != wanted]
    for path, _now, wanted in differing:
        if not module.check_mode:
            write(module, path, wanted)
    return {
        "changed": bool(differing),
        "changes": [path for path, _now, _wanted in differing],
        "diff": [
            {"before_header": path, "after_header": path, "before": text_of(now), "after": text_of(wanted)}
            for path, now, wanted in differing
        ],
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"items": _items.ITEMS}, supports_check_mode=True)
    try:
        result = run(module)
    except (Problem, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
