# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""What a host's verification has to find, and whether it is time for it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils import _nccl_policy
from ansible_collections.gpu.fleet.plugins.plugin_utils._consent import holders
from ansible_collections.gpu.fleet.plugins.plugin_utils._fingerprint import fingerprint


def verification(
    asked: dict[str, Any],
    observed: dict[str, Any],
    gpus: int,
    driver: str | None,
    ours: bool,
    torch: dict[str, Any] | None,
    variables: dict[str, str],
    waits: bool,
) -> dict[str, Any]:
    """Return what to verify, and whether it is time: the stack is not the one of the last pass, and nobody works here.

    `driver` is the version that the host will run, `ours` whether we answer for it, `waits` whether PyTorch waits for consent.
    """
    build = f"{torch['version']}+{torch['tag']}" if torch else None
    stack = fingerprint(observed, driver, build, variables, asked["fabric"])
    record = observed.get("record") or {}
    passed = record.get("fingerprint") == stack and record.get("verdict") == "pass"
    reason = (
        "passed before" if passed
        else "the node is busy" if holders(observed)
        else "PyTorch waits for the driver" if waits
        else "no pass of this stack is on record"
    )  # fmt: skip
    backend = "nccl" if torch and torch["tag"] != "cpu" and gpus else "gloo"
    return {
        "fingerprint": stack,
        "backend": backend,
        "due": not passed and not holders(observed) and not waits,
        "reason": reason,
        "processes_per_node": gpus if backend == "nccl" else 1,
        "expected": {
            "gpus": gpus,
            "driver": driver if ours else None,
            "torch": build,
            "cuda": torch["cuda"] if torch else None,
            "nics": len(_nccl_policy.compute_hcas(observed)) or None,
            "memlock": asked["baseline"]["memlock"],
        },
    }
