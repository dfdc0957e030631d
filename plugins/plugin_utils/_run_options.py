# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The options of a run that its successor needs, too, to meet the same hosts with the same wishes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._variables import KNOWN

# Variables whose values may be shown: our own, but for the one that may hold a password.
SHOWN = frozenset(KNOWN) - {"conda_pytorch_proxy"}
SWITCHES = {"become": "--become", "become_ask_pass": "--ask-become-pass", "ask_vault_pass": "--ask-vault-pass"}
VALUES = {"remote_user": "--user", "private_key_file": "--private-key"}
LISTS = {"vault_ids": "--vault-id", "vault_password_files": "--vault-password-file"}


def options(arguments: Mapping[str, Any], inventories: Iterable[str], variables: Iterable[str | Mapping[str, Any]], without: str) -> str:
    """Return the options as a shell takes them.

    `arguments` are those of ansible-playbook by name, `variables` what -e was given: files (@name), or mappings. `without` is left out.
    """
    words = [word for source in inventories for word in ("-i", source)]
    words += [switch for name, switch in SWITCHES.items() if arguments.get(name)]
    words += [word for name, option in VALUES.items() if arguments.get(name) for word in (option, str(arguments[name]))]
    words += [word for name, option in LISTS.items() for value in arguments.get(name) or () for word in (option, str(value))]
    for given in variables:
        if isinstance(given, str):
            words += ["-e", given]
            continue
        for name, value in given.items():
            if name != without:
                words += ["-e", _variable(name, value)]
    return shlex.join(words)


def _variable(name: str, value: Any) -> str:
    """Return a variable as -e takes it; what could be a secret is for the operator to fill in."""
    if name not in SHOWN:
        return f"{name}=..."
    return f"{name}={value}" if isinstance(value, str) and not set(value) & set(" '\"=\\") else json.dumps({name: value})
