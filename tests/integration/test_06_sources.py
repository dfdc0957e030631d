# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site that is away, or offers another key, is found while bare hosts are still bare."""

from __future__ import annotations

import pytest
from integration.harness import play, refused
from lab.client import Lab

NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpu_stack_mirror", NOWHERE), ("gpu_stack_mirror_key_fingerprint", "AB" * 20), ("conda_pytorch_wheel_index", f"{NOWHERE}/{{tag}}")],
)
def test_bare_hosts_stay_bare_without_a_source(cluster: Lab, name: str, value: str) -> None:
    reason = refused(play("site.yml", cluster.name, extra={name: value}))
    assert name in reason and value.partition("/{")[0] in reason
