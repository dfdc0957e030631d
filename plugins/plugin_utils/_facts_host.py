# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Fields of C(ansible_facts.gpu_fleet): the host, and what is always there. Each is (path, types, meaning), as C(_facts_schema) reads it."""

from __future__ import annotations

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("schema", "int", "version of this page"),
    ("boot_id", "str, null", "id of the running boot"),
    ("problems[].probe", "str", "the question: `pci`, `packages`, `nvidia-smi`, `holders`, ..."),
    ("problems[].reason", "str", "why the answer is missing or doubtful"),
    ("host.name", "str", "host name"),
    ("host.distribution", "str, null", "`ID` of os-release: `debian`, `ubuntu`, `rocky`"),
    ("host.version", "str, null", "`VERSION_ID` of os-release"),
    ("host.like[]", "str", "`ID_LIKE` of os-release"),
    ("host.architecture", "str", "`x86_64`, `aarch64`"),
    ("host.kernel", "str", "release of the running kernel"),
    ("host.package_manager", "str, null", "`apt` or `dnf`"),
    ("host.python", "str", "version of the interpreter that Ansible uses"),
    ("host.virtualization", "str, null", "container manager or hypervisor; null on bare metal"),
    ("host.secure_boot", "bool, null", "from the firmware; false without EFI"),
    ("host.signature_verifier", "str, null", "what apt checks repositories with: `sqv`, `gpgv`; null without apt"),
    ("host.init", "str, null", "`systemd` when it runs"),
    ("managed.<id>", "null", "not known; else the fields of the kind, below"),
    ("record", "null", "this node was never verified; else the last `verification.json` of this node"),
)
