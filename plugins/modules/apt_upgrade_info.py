#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_upgrade_info
short_description: See what a full upgrade would do to the driver
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Lets apt simulate a full upgrade with the lists that it has, and returns what of it concerns the given packages or any other of NVIDIA's driver.
  - Looks at each of the three things that keep them by itself, as a full upgrade may be stopped by one of them while another is gone.
  - The lists are not fetched, and nothing is changed.
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.attributes.info
options:
  items:
    description: The things of a plan; those of the kinds V(hold), V(package) and V(file) tell which packages are meant, and by what they are kept.
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
        description: Name of the package, or path of the file.
        type: str
        required: true
      desired:
        description: The state that it is to have.
        type: dict
        required: true
  planned:
    description:
      - Take the marks and the files of O(items) as if they were there already.
      - This is what check mode of a whole run asks for, in which nothing has written them.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See whether the driver would stay in a full upgrade
  gpu.fleet.apt_upgrade_info:
    items: "{{ plan.managed | selectattr('role', 'eq', 'nvidia_driver') }}"
"""

RETURN = r"""
findings:
  description: All of the below in words; empty where the packages stay.
  returned: success
  type: list
  elements: str
  sample: ["a full upgrade would change libcuda1 580.178.04-1 to 590.48.01-1"]
moves:
  description: What a full upgrade would change, install or remove of the driver.
  returned: success
  type: list
  elements: dict
  sample:
    - {name: libcuda1, from: 580.178.04-1, to: 590.48.01-1, action: change}
unheld:
  description: Installed packages that are not on hold.
  returned: success
  type: list
  elements: str
unpinned:
  description: Packages that only their hold keeps from being upgraded.
  returned: success
  type: list
  elements: str
unfenced:
  description: Installed packages that unattended-upgrades is allowed to upgrade.
  returned: success
  type: list
  elements: str
"""

import os
import re
import shutil
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_status, _items, _software

LOCK_SECONDS = 120
PREFERENCES = "/etc/apt/preferences.d"
SETTINGS = "/etc/apt/apt.conf.d"
BLACKLIST = re.compile(r'^Unattended-Upgrade::Package-Blacklist:: "(.*)";$', re.M)


class Planned:
    """apt's options for a host on which the files and marks of a plan are there already."""

    def __init__(self, items: list[dict[str, t.Any]]) -> None:
        self.items = items
        self.root = ""

    def __enter__(self) -> list[str]:
        self.root = tempfile.mkdtemp(prefix="gpu-fleet-apt-")
        try:
            self.furnish()
        except BaseException:
            shutil.rmtree(self.root)
            raise
        parts = {"Dir::Etc::PreferencesParts": "preferences", "Dir::State::Status": "status"}
        return [word for name, place in parts.items() for word in ("-o", "%s=%s" % (name, os.path.join(self.root, place)))]

    def __exit__(self, *_details: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def furnish(self) -> None:
        """Copy what apt reads, with what the plan changes of it."""
        folder = os.path.join(self.root, "preferences")
        shutil.copytree(PREFERENCES, folder) if os.path.isdir(PREFERENCES) else os.mkdir(folder)
        for path, content in written(self.items, PREFERENCES).items():
            with open(os.path.join(folder, os.path.basename(path)), "w", encoding="utf-8") as output:
                output.write(content)
        held = [item["id"] for item in self.items if item["kind"] == "hold" and item["desired"]["held"]]
        _apt_status.write(os.path.join(self.root, "status"), dict.fromkeys(held, True))


def written(items: list[dict[str, t.Any]], folder: str) -> dict[str, str]:
    """Content by path of a plan's files in a folder."""
    files = [item for item in items if item["kind"] == "file" and os.path.dirname(item["id"]) == folder]
    return {item["id"]: item["desired"]["content"] for item in files if item["desired"]["state"] == "file"}


def patterns(items: list[dict[str, t.Any]], planned: bool) -> list[str]:
    """Expressions for what unattended-upgrades leaves alone."""
    _code, output = _apt.run(["apt-config", "dump"], LOCK_SECONDS)
    found = BLACKLIST.findall(output)
    if planned:
        found += [pattern for text in written(items, SETTINGS).values() for pattern in re.findall(r'^  "(.*)";$', text, re.M)]
    return found


def simulate(options: list[str], *words: str) -> list[_apt.Change]:
    """What apt would change in a full upgrade."""
    apt = _apt.Apt(LOCK_SECONDS)
    return _apt.parse(apt.call(["dist-upgrade"], _apt.UPDATE_SECONDS, "--simulate", *options, *words))


def look(items: list[dict[str, t.Any]], options: list[str], planned: bool) -> dict[str, t.Any]:
    """What would become of the packages."""
    present = _apt.selections()
    wanted = {item["id"] for item in items if item["kind"] == "hold"}
    installed = sorted(wanted & set(present))
    excluded = patterns(items, planned)
    versions = {item["id"]: item["desired"]["version"] for item in items if item["kind"] == "package"}
    # Where the plan is yet to be carried out, driver packages that it does not name are those that it will take away.
    moves = [change for change in simulate(options) if change["name"] in wanted or (_software.is_driver(change["name"]) and not planned)]
    freely = [change["name"] for change in simulate(options, "--ignore-hold")
              if change["action"] == "change" and change["name"] in wanted and change["to"] != versions.get(change["name"])]  # fmt: skip
    return {
        "moves": moves,
        "unheld": [] if planned else [name for name in installed if not present[name].held],
        "unpinned": sorted(set(freely) - {change["name"] for change in moves}),
        "unfenced": [name for name in installed if not any(re.match(pattern, name) for pattern in excluded)],
    }


def words(found: dict[str, t.Any]) -> list[str]:
    """What was found, for people."""
    said = []
    if found["moves"]:
        how = {"change": "change {name} {from} to {to}", "install": "install {name} {to}", "remove": "remove {name} {from}"}
        said.append("a full upgrade would " + ", ".join(how[change["action"]].format(**change) for change in found["moves"]))
    for name, title in (("unheld", "not on hold"), ("unpinned", "not pinned"), ("unfenced", "open to unattended-upgrades")):
        if found[name]:
            said.append("%s: %s" % (title, ", ".join(found[name])))
    return said


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "items": _items.ITEMS,
            "planned": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    items, planned = module.params["items"], module.params["planned"]
    try:
        if planned:
            with Planned(items) as options:
                found = look(items, options, planned)
        else:
            found = look(items, [], planned)
    except (_apt.Failed, OSError, re.error) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, findings=words(found), **found)


if __name__ == "__main__":
    main()
