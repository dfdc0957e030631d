# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

from __future__ import annotations


class ModuleDocFragment:
    """Attributes that every module of the collection states."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and predict what it would change, without changing the host.
  diff_mode:
    description: Returns what it changes, or would change in C(check_mode), when in diff mode.
  idempotent:
    description: When run twice in a row with the same parameters, the second run changes nothing.
"""

    INFO = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module never changes the host.
  diff_mode:
    support: N/A
    details:
      - This module never changes the host.
  idempotent:
    support: full
    details:
      - This module never changes the host.
"""

    FACTS = r"""
options: {}
attributes:
  facts:
    description: Returns an C(ansible_facts) dictionary that becomes part of the facts of the host.
    support: full
"""
