# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Fields of C(ansible_facts.gpu_fleet): software above the driver. Each is (path, types, meaning), as C(_facts_schema) reads it."""

from __future__ import annotations

FIELDS: tuple[tuple[str, str, str], ...] = (
    ("pytorch[].path", "str", "environments asked for as `python_environment` that exist"),
    ("pytorch[].python", "str, null", ""),
    ("pytorch[].torch", "str, null", "what `import torch` would call itself"),
    ("pytorch[].cuda", "str, null", "CUDA that it was built for"),
    ("pytorch[].packages.<name>", "str", "versions by normalised name"),
    ("cuda[].path", "str", "toolkits in `/usr/local`"),
    ("cuda[].version", "str", ""),
    ("nccl.config.<path>", "str, null", "text of the file"),
    ("limits.memlock.shell", "str, int, null", "what pam_limits gives everybody: `unlimited`, bytes, or null when it says nothing"),
    ("limits.memlock.service", "str, int, null", "what a unit without a limit of its own gets"),
)
