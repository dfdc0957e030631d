#!/usr/bin/python
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_sources
short_description: Have a repository, and the trust in its key, in one place only
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Takes further entries for the same repository out of apt's lists of sources, in both of their forms, and its keys out of the keyrings that apt
    trusts for every source. Two entries with different keys make apt refuse everything.
  - Nothing but entries for the given places and keys with the given fingerprints is touched. A list that holds nothing else is removed.
  - What is taken out is first put into the host's own list, C(/var/lib/gpu_fleet/managed.json), from which M(gpu.fleet.managed_release) brings it
    back.
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
    description: The things of a plan; other kinds than V(source) and V(trusted_key) are passed over.
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
        description: The place, which is the beginning of an address without its scheme, or the fingerprint.
        type: str
        required: true
      desired:
        description: C(files), which may have it; without them it is to be nowhere.
        type: dict
        required: true
"""

EXAMPLES = r"""
- name: Have NVIDIA's repository in one file
  gpu.fleet.apt_sources:
    items:
      - kind: source
        id: developer.download.nvidia.com/compute/cuda/repos/
        desired:
          files: [/etc/apt/sources.list.d/gpu-fleet-nvidia.sources]
"""

RETURN = r"""
changes:
  description: The files that something was taken out of, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/cuda-debian12-x86_64.list]
kept:
  description: By the fingerprints of the keys that stay trusted for all sources, the other sources that need them.
  returned: always
  type: dict
  sample: {"EB693B3035CD5710E231E123A4B469963BF863CC": ["http://mirror.example/tools stable"]}
"""

import contextlib
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils import _apt, _apt_private, _aside, _items, _managed_list

LOCK_SECONDS = 120


def needed(items: _aside.Items) -> dict[str, list[str]]:
    """The keys that stay, each with the sources that need it; lists that are not here are fetched aside, to see who signs them."""
    if not _aside.unsure(items):
        return _aside.needed(items)
    with _apt_private.PrivateApt({"places": _aside.places(items)}, LOCK_SECONDS) as apt:
        # A source that does not answer is one of which nothing is known: the key stays.
        with contextlib.suppress(_apt.Failed):
            apt.update()
        return _aside.needed(items, [apt.lists])


def run(module: AnsibleModule, kept: t.Collection[str]) -> list[_aside.Cut]:
    """Take out what is to go, once the record has it."""
    found = _aside.cuts(module.params["items"], kept)
    if found and not module.check_mode:
        record = _managed_list.Record.load()
        record.aside += [entry for entry in map(_aside.entry, found) if entry not in record.aside]
        record.save()
        for cut in found:
            _aside.take(cut)
    return found


def difference(cut: _aside.Cut) -> dict[str, t.Any]:
    """What a diff shows: what is taken out, and nothing of what stays, which may hold passwords."""
    return {"before_header": cut.path, "after_header": cut.path, "before": "".join(piece.strip() + "\n" for piece in cut.taken), "after": ""}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"items": _items.ITEMS}, supports_check_mode=True)
    try:
        kept = needed(module.params["items"])
        found = run(module, kept)
    except (_managed_list.Damaged, _apt.Failed, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(found), changes=[cut.path for cut in found], kept=kept, diff=[difference(cut) for cut in found])


if __name__ == "__main__":
    main()
