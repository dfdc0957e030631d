# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A repository that works is not given up for one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from integration.harness import play, refused
from lab.client import Lab


@pytest.fixture(scope="module")
def converged(cluster: Lab) -> Lab:
    """Give the nodes with all that the inventory asks for."""
    outcome = play("site.yml", cluster.name)
    assert outcome.rc == 0, outcome.tail()
    return cluster


def sources(lab: Any) -> str:
    """Return what apt of a node knows of where our packages come from."""
    return str(lab.run("n1", ["sh", "-c", "cat /etc/apt/sources.list.d/*gpu-fleet*"]).stdout)


@pytest.mark.parametrize(("name", "value"), [("gpu_stack_mirror", "http://127.0.0.1:9"), ("gpu_stack_mirror_key_fingerprint", "AB" * 20)])
def test_hosts_that_have_everything_keep_their_source(converged: Lab, name: str, value: str) -> None:
    before = sources(converged)
    reason = refused(play("site.yml", converged.name, extra={name: value}))
    assert name in reason and value in reason
    assert sources(converged) == before and "URIs:" in before
