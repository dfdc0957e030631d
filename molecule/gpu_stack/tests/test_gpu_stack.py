# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_stack promises, seen on the hosts: to observe and to plan is all that it does."""

from __future__ import annotations

from testinfra.host import Host


def test_planning_leaves_nothing_on_the_host(host: Host) -> None:
    """No file, no package source, no account and no unit of ours comes from a plan."""
    assert host.check_output("find /etc /opt /var/lib /usr/local /run -xdev -iname '*gpu[-_]fleet*'") == ""
    assert not host.user("gpufleet").exists
    assert host.check_output("systemctl list-units --all --no-legend 'gpu-fleet-*'") == ""


def test_a_refused_driver_was_not_installed(host: Host) -> None:
    """The host is as bare as it was."""
    assert host.check_output("dpkg-query --show --showformat='${Package}\\n' | grep -c nvidia || true") == "0"
