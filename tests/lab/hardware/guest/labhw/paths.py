# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far apart two PCI functions are, in the words of nvidia-smi."""

from __future__ import annotations

from .machine import Machine


def between(machine: Machine, one: str, other: str) -> str:
    """Return X, PIX, PXB, PHB, NODE or SYS for two functions."""
    if one == other:
        return "X"
    first, second = machine.by_address[one], machine.by_address[other]
    above, beside = machine.ancestors(one), machine.ancestors(other)
    shared = next((bridge for bridge in above if bridge in beside), None)
    if shared is not None:
        crossed = [*above[: above.index(shared)], *beside[: beside.index(shared)]]
        # Below a shared port or switch each way down may pass one port of that switch. Any bridge more is another switch.
        deepest = max(above.index(shared), beside.index(shared))
        return "PIX" if deepest <= 1 and all(machine.by_address[bridge]["role"] != "upstream" for bridge in crossed) else "PXB"
    if first["root"] == second["root"]:
        return "PHB"
    if first["numa"] == second["numa"] and first["numa"] != -1:
        return "NODE"
    return "SYS"
