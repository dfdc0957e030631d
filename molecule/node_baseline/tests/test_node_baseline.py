# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_baseline promises, seen on the hosts."""

from __future__ import annotations

import json

import pytest
from testinfra.host import Host

MANAGED = "# Managed by gpu.fleet: changes made here are undone.\n"
LIMITS = "/etc/security/limits.d/90-gpu-fleet.conf"
MANAGER = "/etc/systemd/system.conf.d/90-gpu-fleet.conf"
LOGIND = "/etc/systemd/logind.conf.d/90-gpu-fleet.conf"


# Raising a hard limit takes the capability of this number, which the kernel of a host within a host may keep to itself.
CAP_SYS_RESOURCE = 24


def can_raise(host: Host) -> bool:
    """Tell whether root on the host may raise a hard limit."""
    return bool(int(host.check_output("awk '/^CapEff/ {print $2}' /proc/1/status"), 16) >> CAP_SYS_RESOURCE & 1)


def granted(host: Host, name: str, wanted: str) -> str:
    """Return what a new process can have of a limit: all of it, or as much as the host itself was given."""
    most = host.check_output("cat /proc/1/limits").split(f"Max {name} ")[1].split()[1]
    return wanted if can_raise(host) or most == "unlimited" else most


@pytest.mark.parametrize("path", [LIMITS, MANAGER, LOGIND])
def test_files_are_roots_and_readable(host: Host, path: str) -> None:
    """Anybody may read the settings, only root may write them, and they say whose they are."""
    file = host.file(path)
    assert file.is_file and not file.is_symlink
    assert (file.user, file.group, file.mode) == ("root", "root", 0o644)
    assert file.content_string.startswith(MANAGED)


def test_limits_file(host: Host) -> None:
    """Everybody's limits, and root's own, whom the asterisk does not mean."""
    lines = {" ".join(line.split()) for line in host.file(LIMITS).content_string.splitlines() if not line.startswith("#")}
    assert lines == {
        *("* soft memlock unlimited", "* hard memlock unlimited", "root soft memlock unlimited", "root hard memlock unlimited"),
        *("* soft nofile 1048576", "* hard nofile 1048576", "root soft nofile 1048576", "root hard nofile 1048576"),
    }


@pytest.mark.parametrize("user", ["gpufleet", "root"])
def test_limits_of_sessions(host: Host, user: str) -> None:
    """A new session has the limits; where the kernel denies them to the whole host, PAM is seen to ask for just these."""
    since = host.check_output("date +%s")
    limits = host.check_output("su -s /bin/bash %s -c 'ulimit -S -l; ulimit -H -l; ulimit -S -n; ulimit -H -n'", user).split()
    if can_raise(host):
        assert limits[:2] == ["unlimited"] * 2
        assert user == "root" or limits[2:] == ["1048576"] * 2
        return
    said = host.check_output(f"journalctl --quiet --no-pager --output=cat --since=@{since} --grep='pam_limits.su:session.: Could not set limit'")
    assert "'memlock' to soft=-1, hard=-1" in said
    assert user == "root" or "'nofile' to soft=1048576, hard=1048576" in said


def test_limits_of_services(host: Host) -> None:
    """The service manager has the limits as its defaults, and a service that starts now has them."""
    assert host.file(MANAGER).content_string == MANAGED + "[Manager]\nDefaultLimitMEMLOCK=infinity\nDefaultLimitNOFILE=1048576\n"
    assert host.check_output("systemctl show --value -p DefaultLimitMEMLOCK") == "infinity"
    assert host.check_output("systemctl show --value -p DefaultLimitMEMLOCKSoft") == "infinity"
    assert host.check_output("systemctl show --value -p DefaultLimitNOFILE") == "1048576"
    assert host.check_output("systemctl show --value -p DefaultLimitNOFILESoft") == "1048576"
    limits = host.check_output("systemd-run --quiet --pipe --wait --collect cat /proc/self/limits")
    for name, wanted in (("locked memory", "unlimited"), ("open files", "1048576")):
        assert limits.split(f"Max {name} ")[1].split()[:2] == [granted(host, name, wanted)] * 2


def test_shared_memory_survives_a_logout(host: Host) -> None:
    """The running login manager, not only its file, leaves the shared memory of users alone."""
    assert host.file(LOGIND).content_string == MANAGED + "[Login]\nRemoveIPC=no\n"
    manager = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    assert host.check_output(f"busctl get-property {manager} RemoveIPC") == "b false"
    assert host.service("systemd-logind").is_running


def test_service_account(host: Host) -> None:
    """The account exists for services alone: a system account that cannot log in and has no password."""
    user = host.user("gpufleet")
    assert user.exists
    assert 0 < user.uid < 1000
    assert (user.home, user.shell) == ("/var/lib/gpu_fleet", "/usr/sbin/nologin")
    assert host.check_output("getent shadow gpufleet").split(":")[1] in ("!", "*", "!!", "!*")
    assert host.run("runuser -u gpufleet -- /usr/sbin/nologin").rc != 0


def test_state_folder(host: Host) -> None:
    """The records of verification are kept where anybody may read and only root may write."""
    folder = host.file("/var/lib/gpu_fleet")
    assert folder.is_directory
    assert (folder.user, folder.group, folder.mode) == ("root", "root", 0o755)
    assert host.run("runuser -u gpufleet -- touch /var/lib/gpu_fleet/mine").rc != 0

def test_what_is_managed_is_written_down(host: Host) -> None:
    """The host's own list has it, with what was there before; unmanage.yml lives on it."""
    listed = json.loads(host.file("/var/lib/gpu_fleet/managed.json").content)
    known = {(item["kind"], item["id"]) for item in listed["items"] if item["role"] == "node_baseline"}
    assert {("file", MANAGER), ("file", LOGIND), ("user", "gpufleet")} <= known
