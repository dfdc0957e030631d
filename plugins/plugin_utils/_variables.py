# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The names of the variables that an operator sets: one that is mistyped would be obeyed by nobody."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# As the roles' argument specs declare them; a test compares.
KNOWN = (
    "conda_pytorch_answer_timeout",
    "conda_pytorch_install_timeout",
    "conda_pytorch_prefix",
    "conda_pytorch_proxy",
    "conda_pytorch_python",
    "conda_pytorch_trusted_hosts",
    "conda_pytorch_wheel_index",
    "gpu_stack_cuda",
    "gpu_stack_disruption",
    "gpu_stack_driver",
    "gpu_stack_lock",
    "gpu_stack_lock_file",
    "gpu_stack_mirror",
    "gpu_stack_mirror_key_fingerprint",
    "gpu_stack_pending_ok",
    "gpu_stack_proxy",
    "gpu_stack_pytorch",
    "gpu_stack_reboot_timeout",
    "gpu_stack_relock",
    "gpu_stack_takeover",
    "nccl_tuning_extra",
    "nccl_tuning_service_level",
    "nccl_tuning_socket_interface",
    "nccl_tuning_traffic_class",
    "node_baseline_memlock",
    "node_baseline_nofile",
    "node_baseline_service_user",
    "nvidia_driver_flavour",
    "nvidia_driver_source",
    "verification_collective_timeout",
    "verification_deadline",
    "verification_force",
    "verification_group",
    "verification_iterations",
    "verification_port",
    "verification_report_dir",
    "verification_sizes_mib",
    "verification_start_timeout",
    "verification_steps",
)
# Names that are promised, and that nothing reads yet. Only these and what looks like them: drain_timeout, say, belongs to somebody else.
TO_COME = ("drain_adapter", "rdma_source", "rollout_max_unavailable")
PREFIXES = ("conda_pytorch_", "gpu_stack_", "nccl_tuning_", "node_baseline_", "nvidia_driver_", "verification_")
RESERVED = ("drain_", "rdma_", "rollout_")


def strangers(names: Iterable[str]) -> list[str]:
    """Return the names that are meant for this collection, and that nothing in it reads."""
    ours = [name for name in names if name.startswith(PREFIXES) and name not in KNOWN]
    return sorted(ours + [name for name in names if name.startswith(RESERVED) and _promised(name)])


def advice(name: str) -> str:
    """Return what to say of a name that nothing reads: the nearest that is known, else all that begin like it."""
    promised = _promised(name)
    if promised:
        return f"{name} is set, and nothing in this release reads {promised}; take it out"
    prefix = next(prefix for prefix in PREFIXES if name.startswith(prefix))
    siblings = {known[len(prefix) :]: known for known in KNOWN if known.startswith(prefix)}
    nearest = difflib.get_close_matches(name[len(prefix) :], siblings, 1)
    found = f"the nearest name that is read is {siblings[nearest[0]]}" if nearest else f"names that are read: {', '.join(siblings.values())}"
    return f"{name} is set, and nothing reads it; {found}"


def _promised(name: str) -> str | None:
    return next(iter(difflib.get_close_matches(name, TO_COME, 1, 0.85)), None)
