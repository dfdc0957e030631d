#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_upgrade_info
short_description: See what a full upgrade by dnf would do to the driver
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Lets dnf say what a full upgrade would do, and returns what of it concerns the given packages or any other of NVIDIA's driver.
  - Looks at each of the things that keep them by itself, as an upgrade may be stopped by one of them while another is gone.
  - Lists that dnf has are not fetched again, and no package is changed.
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.attributes.info
  - gpu.fleet.packages.repository
options:
  items:
    description: The things of a plan; those of the kinds V(lock), V(package) and V(stream) tell which packages are meant, and by what they are kept.
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
  planned:
    description:
      - Take the locks and the stream of O(items) as if they were there already, and fetch lists into caches of their own.
      - This is what check mode of a whole run asks for, in which nothing has written them.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See whether the driver would stay in a full upgrade
  gpu.fleet.dnf_upgrade_info:
    items: "{{ plan.managed | selectattr('role', 'eq', 'nvidia_driver') }}"
    repository: "{{ plan.repositories | first }}"
"""

RETURN = r"""
findings:
  description: All of the below in words; empty where the packages stay.
  returned: success
  type: list
  elements: str
  sample: ["a full upgrade would change nvidia-modprobe 3:580.178.04-1.el9 to 3:590.48.01-1.el9"]
moves:
  description: What a full upgrade would change, install or remove of the driver.
  returned: success
  type: list
  elements: dict
unlocked:
  description: Packages that are not locked to their version, or let another one in beside it.
  returned: success
  type: list
  elements: str
locking:
  description: Whether the plugin that keeps the locks takes part in dnf.
  returned: success
  type: bool
unfenced:
  description: Whether dnf-automatic runs without plugins, and so without locks.
  returned: success
  type: bool
stream:
  description: The stream that is enabled where it is not the one that the packages belong to; else null.
  returned: success
  type: str
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _dnf, _items, _lock_list, _locks, _packages, _pins, _software, _streams

LOCK_SECONDS = 120
PLUGINS = "/etc/dnf/plugins"
AUTOMATIC = "/etc/dnf/automatic.conf"


class Upgrade(_dnf.Dnf):
    """dnf as it is on the host, or as it will be once a plan is carried out."""

    def __init__(self, repository: dict[str, t.Any], items: list[dict[str, t.Any]], planned: bool) -> None:
        super().__init__(repository, LOCK_SECONDS, private=planned)
        self.refresh = planned
        self.items = items

    def furnish(self) -> None:
        """Have the locks of the plan beside those of the host."""
        super().furnish()
        folder = os.path.join(self.root, "plugins")
        os.mkdir(folder)
        listed = os.path.join(self.root, "locks")
        with open(listed, "w", encoding="utf-8", errors="surrogateescape") as output:
            output.write(_locks.rewrite(_lock_list.read(), {name: lines[0] for name, lines in locks_of(self.items).items()}))
        with open(os.path.join(folder, "versionlock.conf"), "w", encoding="utf-8") as output:
            output.write("[main]\nenabled = 1\nlocklist = %s\n" % listed)
        # Of two files for one plugin the last one counts.
        self.settings["pluginconfpath"] = [PLUGINS, folder]


def locks_of(items: list[dict[str, t.Any]]) -> dict[str, list[str]]:
    """The lines that lock each package of a plan."""
    return {item["id"]: item["desired"]["lines"] for item in items if item["kind"] == "lock"}


def look(items: list[dict[str, t.Any]], repository: dict[str, t.Any], planned: bool) -> dict[str, t.Any]:
    """What would become of the packages."""
    locks = locks_of(items)
    versions = {item["id"]: item["desired"]["version"] for item in items if item["kind"] == "package"}
    with Upgrade(repository, items, planned) as dnf:
        answer = dnf.upgrade()
    # Where the plan is yet to be carried out, driver packages that it does not name are those that it will take away.
    moves = [change for change in answer["changes"] if change["name"] in locks or (_software.is_driver(change["name"]) and not planned)]
    active = _locks.active(_lock_list.read())
    streams = {item["id"]: item["desired"]["stream"] for item in items if item["kind"] == "stream"}
    enabled = {name: _streams.enabled(name, _streams.read(name)) or "none" for name in streams}
    other = [enabled[name] for name in streams if enabled[name] != streams[name]]
    return {
        "moves": [_dnf.told(change) for change in moves if change["to"] != versions.get(change["name"], "") or change["to"] is None],
        "unlocked": [] if planned else sorted(name for name, lines in locks.items() if active.get(name) != lines),
        "locking": planned or answer["locking"],
        "unfenced": unfenced(),
        "stream": other[0] if other and not planned else None,
    }


def unfenced() -> bool:
    """Whether the settings of dnf-automatic, which override dnf's own, switch plugins off."""
    try:
        with open(AUTOMATIC, encoding="utf-8", errors="replace") as source:
            settings = _pins.parse_ini(source.read())
    except FileNotFoundError:
        return False
    return settings.get("base.plugins", "1").lower() not in _pins.YES


def words(found: dict[str, t.Any]) -> list[str]:
    """What was found, for people."""
    said = []
    if found["moves"]:
        how = {"change": "change {name} {from} to {to}", "install": "install {name} {to}", "remove": "remove {name} {from}"}
        said.append("a full upgrade would " + ", ".join(how[change["action"]].format(**change) for change in found["moves"]))
    if found["unlocked"]:
        said.append("not locked: %s" % ", ".join(found["unlocked"]))
    if not found["locking"]:
        said.append("dnf's plugin versionlock, which keeps all locks, is switched off or not installed")
    if found["unfenced"]:
        said.append("dnf-automatic runs without plugins, and so without locks: %s says so" % AUTOMATIC)
    if found["stream"]:
        said.append("the enabled stream of the driver's module is another one: %s" % found["stream"])
    return said


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "items": _items.ITEMS,
            "repository": {
                "type": "dict",
                "required": True,
                "options": _packages.REPOSITORY,
            },
            "planned": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        found = look(params["items"], params["repository"], params["planned"])
    except (_dnf.Failed, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, findings=words(found), **found)


if __name__ == "__main__":
    main()
