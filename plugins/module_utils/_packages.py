# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What the modules have in common that install packages, whichever the package manager: options, what is asked for, and what is returned."""

from __future__ import annotations

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._apt import Failed

Changes = t.Sequence[t.Mapping[str, t.Any]]
# A repository as a plan describes it.
REPOSITORY: dict[str, dict[str, object]] = {
    "id": {"type": "str"},
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "key_path": {"type": "path", "required": True, "no_log": False},
    "key_url": {"type": "str", "required": True, "no_log": False},
    "fingerprint": {"type": "str", "required": True, "no_log": False},
    "places": {"type": "list", "elements": "str", "default": []},
    "proxy": {"type": "str"},
    "instead": {"type": "str"},
    "stream": {"type": "str"},
}
ARGUMENTS: dict[str, dict[str, object]] = {
    "packages": {"type": "dict", "required": True},
    "repository": {"type": "dict", "options": REPOSITORY},
    "unless_present": {"type": "dict", "default": {}},
    "fetch_only": {"type": "bool", "default": False},
    "refresh": {"type": "bool", "default": True},
    "may_remove": {"type": "list", "elements": "str", "default": []},
    "lock_timeout": {"type": "int", "default": 120},
}


def asked(params: dict[str, t.Any]) -> dict[str, str]:
    """Name and version of every package that the host is to have; an empty version is any."""
    wanted = {name: str(version or "") for name, version in params["packages"].items()}
    wanted.update({name: "" for name, path in params["unless_present"].items() if not os.path.exists(path)})
    return wanted


def diff(changes: Changes) -> dict[str, str]:
    """The packages before and after, a line each."""
    return {
        "before": "".join("%s %s\n" % (change["name"], change["from"]) for change in changes if change["from"]),
        "after": "".join("%s %s\n" % (change["name"], change["to"]) for change in changes if change["to"]),
    }


def run(bring: t.Callable[[AnsibleModule], Changes]) -> None:
    """Be a module that installs packages; C(bring) makes the transaction and returns what it changed, or raises Failed."""
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    try:
        changes = bring(module)
    except Failed as error:
        module.fail_json(msg=str(error), changes=[])
    module.exit_json(changed=bool(changes), changes=list(changes), diff=diff(changes))
