# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Limits that jobs run under: of units as systemd will give them, of the processes that run, of Slurm, of the kernel."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _conf
from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

    Limit = t.Union[str, int, None]

# Units whose children are jobs.
UNITS = (
    "slurmd.service", "ssh.service", "sshd.service", "docker.service", "containerd.service", "crio.service", "kubelet.service",
    "cron.service", "crond.service",
)
NAMES = {"memlock": "Max locked memory", "nofile": "Max open files", "stack": "Max stack size", "nproc": "Max processes"}
SLURM_FILES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
SLURM = later(r"^\s*(PropagateResourceLimits|PropagateResourceLimitsExcept|TaskProlog|Prolog)\s*=\s*(\S+)", re.M | re.I)
SYSCTLS = (
    "kernel.numa_balancing", "kernel.shmmax", "kernel.threads-max", "kernel.pid_max", "vm.max_map_count", "vm.min_free_kbytes",
    "vm.nr_hugepages", "vm.overcommit_memory", "vm.swappiness", "vm.zone_reclaim_mode", "fs.file-max", "net.core.rmem_max",
    "net.core.wmem_max", "net.core.somaxconn", "net.ipv4.ip_local_port_range", "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2", "net.ipv4.neigh.default.gc_thresh3", "sunrpc.tcp_max_slot_table_entries",
)
# Not what str.isdigit takes, which knows digits that int does not.
NUMBER = later(r"-?[0-9]+$")
CPUS = "/sys/devices/system/cpu"


def value(text: str | None) -> Limit:
    """C("unlimited"), a number, or None for what is not said."""
    if not text:
        return None
    if text in ("infinity", "unlimited"):
        return "unlimited"
    if not NUMBER.match(text) or text.startswith("-"):
        return None
    # Old systemd prints the largest number for infinity.
    return "unlimited" if int(text) >= 1 << 63 else int(text)


def of_process(text: str) -> dict[str, Limit]:
    """Soft limits from /proc/PID/limits: memlock and stack in bytes."""
    found: dict[str, Limit] = {}
    for key, name in NAMES.items():
        match = re.search(r"^%s\s+(\S+)" % re.escape(name), text, re.M)
        found[key] = value(match.group(1)) if match else None
    return found


def units(system: System, known: dict[str, dict[str, str]] | None) -> dict[str, dict[str, t.Any]] | None:
    """Soft limits by unit; what systemd will give at the next start, and what the process that runs was given."""
    if known is None:
        return None
    found: dict[str, dict[str, t.Any]] = {}
    for name in UNITS:
        properties = known.get(name, {})
        # An alias answers with the name that the unit really has.
        real = properties.get("Id", name)
        if properties.get("LoadState") != "loaded" or real in found:
            continue
        entry: dict[str, t.Any] = {key: value(properties.get("Limit%sSoft" % key.upper())) for key in NAMES}
        pid = properties.get("MainPID", "0")
        text = system.read("/proc/%s/limits" % pid, 8192, True) if NUMBER.match(pid) and pid != "0" else None
        entry["process"] = of_process(text) if text else None
        entry["active"] = properties.get("ActiveState") == "active"
        entry["reload_needed"] = properties.get("NeedDaemonReload") == "yes"
        found[real] = entry
    return found


def slurm(system: System, mounts: _conf.Mounts) -> dict[str, t.Any] | None:
    """What Slurm carries over from a submitter's shell, and the prologs that may set variables: C({config, propagate, propagate_except, prologs})."""
    for path in SLURM_FILES:
        kind = mounts.far(path)
        if kind:
            system.problem("%s lies on %s and was not read" % (path, kind))
            continue
        text = system.read(path)
        if text is not None:
            found = {match.group(1).lower(): match.group(2) for match in SLURM.finditer(text)}
            lists = {key: found[name].split(",") if name in found else None
                     for key, name in (("propagate", "propagateresourcelimits"), ("propagate_except", "propagateresourcelimitsexcept"))}
            return dict(lists, config=path, prologs=[found[name] for name in ("prolog", "taskprolog") if found.get(name, "").startswith("/")])
    return None


def sysctls(system: System) -> dict[str, t.Any]:
    """Values by name; a name that this kernel does not have is left out."""
    found: dict[str, t.Any] = {}
    for name in SYSCTLS:
        text = system.read("/proc/sys/" + name.replace(".", "/"), 256, True)
        if text:
            found[name] = int(text) if NUMBER.match(text) else " ".join(text.split())
    return found


def governors(system: System) -> dict[str, int]:
    """Number of CPUs by frequency governor; none where the machine, or the hypervisor, does not let the host choose."""
    found: dict[str, int] = {}
    for policy in system.names(CPUS + "/cpufreq"):
        if policy.startswith("policy"):
            folder = "%s/cpufreq/%s" % (CPUS, policy)
            name = system.read(folder + "/scaling_governor", 64, True)
            if name:
                # Often each CPU is a policy of its own, whose list need not be read.
                count = len((system.read(folder + "/affected_cpus", 4096, True) or policy).split())
                found[name] = found.get(name, 0) + count
    return found


def swap(system: System) -> list[dict[str, t.Any]]:
    """Swap in use by the kernel: C([{path, size_mib}])."""
    rows = [line.split() for line in (system.read("/proc/swaps", quiet=True) or "").splitlines()[1:]]
    return [{"path": row[0], "size_mib": int(row[2]) // 1024} for row in rows if len(row) >= 3 and NUMBER.match(row[2])]


def huge_pages(system: System) -> str | None:
    """The choice for transparent huge pages, which the kernel puts into brackets."""
    match = re.search(r"\[(\w+)\]", system.read("/sys/kernel/mm/transparent_hugepage/enabled", 256, True) or "")
    return match.group(1) if match else None
