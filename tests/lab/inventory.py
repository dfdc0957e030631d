# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running lab as an Ansible inventory."""

from __future__ import annotations

import json
from typing import Any

from lab.paths import LabError, LabPaths


def build(paths: LabPaths) -> dict[str, Any]:
    """Return the lab's hosts as a dynamic inventory; the connection is its only business beside the site's address and key."""
    try:
        state = json.loads(paths.state.read_text())
    except OSError:
        raise LabError(f"lab {paths.name} is not up; start it with: tests/lab/lab up --lab {paths.name} --nodes 2") from None
    names = [host["name"] for host in state["hosts"]]
    connection = {
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        # Control sockets of two labs with hosts of the same name must not meet.
        "ansible_ssh_common_args": f"-F {state['ssh_config']} -o ControlPath={paths.run}/control-%r@%h",
        "gpu_stack_mirror": state["site"]["url"],
        "gpu_stack_mirror_key_fingerprint": state["site"]["fingerprint"],
        "conda_pytorch_wheel_index": state["site"]["url"] + "/whl/{tag}",
    }
    return {
        "_meta": {"hostvars": {host["name"]: {"ansible_host": host["name"]} for host in state["hosts"]}},
        "all": {"children": ["gpu_nodes"], "vars": connection},
        "gpu_nodes": {"hosts": names, "children": ["gpu_fabric_lab"]},
        "gpu_fabric_lab": {"hosts": names},
    }
