# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that install packages, and of those that only look at a repository."""

    # Literal texts, as the tools that read fragments do not join any.
    DOCUMENTATION = r"""
options:
  packages:
    description: Exact version of each package by its name; an empty version means that any will do.
    type: dict
    required: true
  unless_present:
    description:
      - Packages in any version, by name, each with a path. One whose path exists is not asked for. With dnf a name may hold a version.
      - This is how a kernel's headers are wanted, which a kernel of one's own has without any package.
    type: dict
    default: {}
  fetch_only:
    description: Bring what the transaction needs onto the host and change nothing else.
    type: bool
    default: false
  refresh:
    description: Fetch the lists of packages first. Switch it off only right after a run with O(fetch_only=true).
    type: bool
    default: true
  may_remove:
    description: Names of packages that the transaction may remove.
    type: list
    elements: str
    default: []
  lock_timeout:
    description: Seconds to wait for another run of the package manager.
    type: int
    default: 120
  repository:
    description:
      - The source that the packages come from, as the plan describes it.
      - Its place and content are used in check mode only; a real run takes what is set up on the host.
    type: dict
    suboptions:
      id:
        description: Its name.
        type: str
      path:
        description: The file that describes it to the package manager.
        type: path
        required: true
      content:
        description: The content of that file.
        type: str
        required: true
      key_path:
        description: Where its key is to be.
        type: path
        required: true
      key_url:
        description: Where its key is fetched from.
        type: str
        required: true
      fingerprint:
        description: The fingerprint of its key.
        type: str
        required: true
      places:
        description: Where it lies, as beginnings of addresses without scheme; with apt the host's other entries for it are left out.
        type: list
        elements: str
        default: []
      proxy:
        description: The proxy that it is reached through.
        type: str
      instead:
        description: What to use, in words, where the host's verifier does not accept its key.
        type: str
      stream:
        description: With dnf, the module and its stream, as in C(nvidia-driver:580-open), that the packages belong to.
        type: str
"""

    REPOSITORY = r"""
options:
  repository:
    description: The repository, as the plan describes it.
    required: true
    type: dict
    suboptions:
      id:
        description: Its name.
        type: str
      path:
        description: The file that describes it to the package manager.
        type: path
        required: true
      content:
        description: The content of that file.
        type: str
        required: true
      key_path:
        description: Where its key is to be.
        type: path
        required: true
      key_url:
        description: Where its key is fetched from.
        type: str
        required: true
      fingerprint:
        description: The fingerprint of its key.
        type: str
        required: true
      places:
        description: Where it lies, as beginnings of addresses without scheme; with apt the host's other entries for it are left out.
        type: list
        elements: str
        default: []
      proxy:
        description: The proxy that it is reached through.
        type: str
      instead:
        description: What to use, in words, where the host's verifier does not accept its key.
        type: str
      stream:
        description: With dnf, the module and its stream, as in C(nvidia-driver:580-open), that the packages belong to.
        type: str
"""
