#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_release
short_description: Undo what this collection keeps on a host
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Reads the host's own list, C(/var/lib/gpu_fleet/managed.json), and makes each file, hold, lock, stream and unit on it what it was
    before; then the list goes.
  - Sources and keys that were put aside come back.
  - Packages, the kernel module, environments and accounts stay. So does a hold that somebody else had set, and a file that somebody else has
    written since.
  - A run that was cut off is finished by the next one. While a change of the driver is under way, nothing is undone.
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
  lock_timeout:
    description: Seconds to wait for another run of apt or dpkg.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Let the host be as it was before
  gpu.fleet.managed_release:
"""

RETURN = r"""
changes:
  description: What was made as it was before, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["file:/etc/apt/preferences.d/gpu-fleet-nvidia.pref", "hold:libcuda1"]
left:
  description: What was left as it is although it is on the list, with the reason.
  returned: always
  type: list
  elements: str
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _aside, _lock_list, _locks, _managed_list, _record, _streams, _transaction

# In the first line of every file that a plan writes.
MARK = b"Managed by gpu.fleet"
State = t.Dict[str, t.Any]


class Release:
    """One pass over the list."""

    def __init__(self, module: AnsibleModule, record: _managed_list.Record) -> None:
        self.module = module
        self.record = record
        self.changes: list[str] = []
        self.left: list[str] = []
        self.diff: list[dict[str, str]] = []

    def change(self, name: str, before: str, after: str) -> bool:
        """Note a change; returns whether it is to be made."""
        self.changes.append(name)
        self.diff.append({"before_header": name, "after_header": name, "before": before, "after": after})
        return not self.module.check_mode

    def aside(self) -> None:
        """Bring back what was put aside, the last first."""
        for entry in reversed(self.record.aside):
            path, state = entry["path"], entry["before"]
            data = _aside.returned(entry)
            now = _managed_list.state_of(os.path.realpath(path))
            if data is None:
                self.left.append("%s: somebody has changed it since %s was taken out of it" % (path, ", ".join(entry["taken"])))
                continue
            same = now["state"] == "file" and _managed_list.content(now) == data
            if not same and self.change("aside:" + path, "", "".join(piece.strip() + "\n" for piece in entry["taken"])):
                _managed_list.put(os.path.realpath(path), data, int(state["mode"], 8), state["uid"], state["gid"])

    def file(self, item: State) -> None:
        """Make a file what it was, unless it has come to be somebody else's."""
        path, before = item["id"], item["before"]
        now = _managed_list.state_of(path)
        if now == before or now["state"] == "absent":
            return
        mine = now["state"] == "file" and (item["kind"] == "keyring" or MARK in _managed_list.content(now)[:200].split(b"\n")[0])
        if not mine:
            self.left.append("%s: somebody else has written it since" % path)
        elif self.change("%s:%s" % (item["kind"], path), shown(now), shown(before)):
            _managed_list.restore(path, before)

    def units(self) -> None:
        """Let units that somebody had switched off be off at the next boot; none is stopped."""
        for item in self.record.items:
            before = item["before"] or {}
            if item["kind"] != "unit" or not before.get("loaded") or before.get("enabled"):
                continue
            code, _output, _errors = self.module.run_command(["systemctl", "is-enabled", "--quiet", "--", item["id"]])
            if code == 0 and self.change("unit:" + item["id"], "enabled\n", "disabled\n"):
                self.module.run_command(["systemctl", "disable", "--", item["id"]], check_rc=True)

    def holds(self) -> None:
        """Take our packages off hold."""
        ours = [item["id"] for item in self.record.items if item["kind"] == "hold" and not (item["before"] or {}).get("held")]
        present = _apt.selections() if ours else {}
        held = [name for name in ours if name in present and present[name].held]
        for name in held:
            self.change("hold:" + name, "held\n", "free\n")
        if held and not self.module.check_mode:
            _apt.select(dict.fromkeys(held, False), self.module.params["lock_timeout"])

    def streams(self) -> None:
        """Let modules have the stream that they had."""
        for item in self.record.items:
            path = _streams.PATH % item["id"]
            if item["kind"] != "stream":
                continue
            now = _managed_list.state_of(path)
            if now != item["before"] and now["state"] != "absent" and self.change("stream:" + item["id"], shown(now), shown(item["before"])):
                _managed_list.restore(path, item["before"])

    def locks(self) -> None:
        """Take our locks out of dnf's list, and bring back what they had replaced."""
        before = {item["id"]: (item["before"] or {}).get("lines", []) for item in self.record.items if item["kind"] == "lock"}
        text = _lock_list.read() if before else ""
        wanted = _locks.released(text, before)
        if wanted != text and self.change("locks:" + _locks.PATH, text, wanted):
            _lock_list.write(wanted)

    def run(self) -> None:
        """Undo everything; what keeps packages from moving goes last, and the list after it."""
        self.units()
        # Our own entry goes before another one for the same repository comes back: two of them would stop apt.
        for item in self.record.items:
            if item["kind"] in ("file", "keyring"):
                self.file(item)
        self.aside()
        self.streams()
        self.holds()
        self.locks()
        if (self.record.items or self.record.aside) and self.change("list:" + _managed_list.PATH, "", ""):
            self.record.remove()


def under_way() -> str | None:
    """Why nothing can be undone now: a change of the driver that has not come to its end needs its pins and its sources."""
    record = _record.Store().read()
    if record is None or record["status"] not in (*_transaction.UNFINISHED, _transaction.NEEDS_ATTENTION):
        return None
    return (
        "a change of the driver is under way on this host (%s, step %s): run site.yml until it has ended, then this again. Nothing was undone"
        % (record["status"], record["step"])
    )


def shown(state: State) -> str:
    """What a diff shows of a file."""
    if state["state"] != "file":
        return "" if state["state"] == "absent" else "(%s)\n" % state["state"]
    return _managed_list.content(state).decode("utf-8", "replace")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"lock_timeout": {"type": "int", "default": 120}}, supports_check_mode=True)
    try:
        reason = under_way()
        if reason:
            module.fail_json(msg=reason)
        release = Release(module, _managed_list.Record.load())
        release.run()
    except (_managed_list.Damaged, _record.Unreadable, _apt.Failed, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(release.changes), changes=release.changes, left=release.left, diff=release.diff)


if __name__ == "__main__":
    main()
