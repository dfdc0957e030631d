# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Whose work a process is: a step of Slurm, a pod, a container, a login session, a service. And work that has no GPU open yet."""

from __future__ import annotations

import json
import os
import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._later import later

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._system import System

SLURM = later(r"/[^/\n]*slurm[^\n]*/job_(\d+)(?:/step_(\w+))?")
POD = later(r"/[^/\n]*pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:/|$)", re.M)
CONTAINER = later(r"(?<![0-9a-f])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.M)
SESSION = later(r"/user\.slice/(?:[^\n]*/)?(?:session-(\w+)\.scope|(user@\d+)\.service)")
STEP_DAEMON = later(r"slurmstepd: \[(\d+)(?:\.(\w+))?")
SLURMD_UNIT = "slurmd.service"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
GROUPS = "/sys/fs/cgroup"
# Version 1 has a tree for each controller; any one of them has all the jobs.
ROOTS = ("", "/freezer", "/memory", "/cpuset", "/devices", "/systemd")
KUBE_FOLDERS = ("", "/kubepods-burstable.slice", "/kubepods-besteffort.slice", "/burstable", "/besteffort")
DEEPEST = 5

Job = t.Dict[str, t.Optional[str]]


def unit_of(cgroup: str) -> str | None:
    """The innermost systemd unit in the text of /proc/PID/cgroup."""
    for line in cgroup.splitlines():
        for part in reversed(line.split(":", 2)[-1].split("/")):
            if part.endswith((".service", ".scope")):
                return part
    return None


def job_of(cgroup: str) -> Job | None:
    """C({kind, id, step}) from the text of /proc/PID/cgroup: kinds slurm, pod, container, session, unit."""
    slurm = SLURM.search(cgroup)
    if slurm:
        return {"kind": "slurm", "id": slurm.group(1), "step": slurm.group(2)}
    pod = POD.search(cgroup)
    if pod:
        return {"kind": "pod", "id": pod.group(1).replace("_", "-"), "step": None}
    container = CONTAINER.search(cgroup)
    if container:
        # Engines show twelve digits and take them.
        return {"kind": "container", "id": container.group(1)[:12], "step": None}
    session = SESSION.search(cgroup)
    if session:
        return {"kind": "session", "id": session.group(1) or session.group(2), "step": None}
    unit = unit_of(cgroup)
    return {"kind": "unit", "id": unit, "step": None} if unit else None


def _step(system: System, pid: str) -> Job | None:
    """The Slurm step whose daemon a process is."""
    title = (system.read("/proc/%s/cmdline" % pid, 4096, True) or "").replace("\0", " ")
    match = STEP_DAEMON.match(title)
    return {"kind": "slurm", "id": match.group(1), "step": match.group(2)} if match else None


def _climbed(system: System, pid: str) -> Job | None:
    """The Slurm step among the parents of a process, for a Slurm that gives its jobs no control groups."""
    for _dummy in range(32):
        found = _step(system, pid)
        if found:
            return found
        match = re.search(r"^PPid:\s*(\d+)", system.read("/proc/%s/status" % pid, 4096, True) or "", re.M)
        if match is None or match.group(1) in ("0", "1"):
            return None
        pid = match.group(1)
    return None


def attribute(system: System, holders: t.Iterable[dict[str, t.Any]]) -> None:
    """Say of each process whose it is: adds C(uid) and C(job)."""
    for entry in holders:
        pid = str(entry["pid"])
        job = job_of(system.read("/proc/%s/cgroup" % pid, 8192, True) or "")
        if job and job["id"] == SLURMD_UNIT:
            job = _climbed(system, pid) or job
        entry["job"] = job
        try:
            entry["uid"] = os.stat(system.path("/proc/" + pid)).st_uid
        except OSError:
            entry["uid"] = None


def _pids(system: System, folder: str, depth: int = DEEPEST) -> list[str]:
    """Processes in a control group and in those below it."""
    found = re.findall(r"[0-9]+", system.read(folder + "/cgroup.procs", 65536, True) or "")
    for part in system.names(folder) if depth and system.exists(folder + "/cgroup.procs") else []:
        if "." not in part or part.endswith((".scope", ".slice")):
            found += _pids(system, "%s/%s" % (folder, part), depth - 1)
    return found


def _steps(system: System) -> t.Iterator[tuple[Job, list[str]]]:
    """Jobs of Slurm, with the processes of each, from control groups; else from the step daemons below slurmd."""
    for root in ROOTS:
        folders = [GROUPS + root + "/" + part for part in system.names(GROUPS + root) if "slurm" in part]
        folders += ["%s/system.slice/%s" % (GROUPS + root, part) for part in system.names(GROUPS + root + "/system.slice") if "slurmstepd" in part]
        for folder in folders:
            users = [folder] + [folder + "/" + part for part in system.names(folder) if part.startswith("uid_")]
            for user in users:
                for part in system.names(user):
                    match = re.match(r"job_(\d+)$", part)
                    if match:
                        yield {"kind": "slurm", "id": match.group(1), "step": None}, _pids(system, user + "/" + part)
    for root in ("", "/systemd"):
        for pid in _pids(system, "%s/system.slice/%s" % (GROUPS + root, SLURMD_UNIT), 1):
            step = _step(system, pid)
            if step:
                yield step, [pid]


def allocated(text: str) -> set[str]:
    """Pods that kubelet has given devices of NVIDIA to, from its checkpoint; ValueError when it is damaged."""
    entries = (json.loads(text).get("Data") or {}).get("PodDeviceEntries") or []
    return {entry["PodUID"] for entry in entries if "nvidia" in entry["ResourceName"]}


def _pods(system: System) -> t.Iterator[tuple[Job, list[str]]]:
    """Pods with GPUs, with the processes of each."""
    text = system.read(CHECKPOINT)
    if text is None:
        return
    try:
        given = allocated(text)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        system.problem("%s cannot be read: %s" % (CHECKPOINT, error))
        return
    for root in ROOTS if given else ():
        for top in ("/kubepods.slice", "/kubepods"):
            for layer in KUBE_FOLDERS:
                folder = GROUPS + root + top + layer
                for part in system.names(folder):
                    match = POD.match("/" + part + "/")
                    if match and match.group(1).replace("_", "-") in given:
                        yield {"kind": "pod", "id": match.group(1).replace("_", "-"), "step": None}, _pids(system, folder + "/" + part)


def waiting(system: System, holders: t.Iterable[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Jobs of Slurm and pods with GPUs that run and have no GPU open yet, in the shape of holders without devices."""
    known = {(entry["job"]["kind"], entry["job"]["id"]) for entry in holders if entry.get("job")}
    found = []
    for job, pids in (*_steps(system), *_pods(system)):
        if not pids or (job["kind"], job["id"]) in known:
            continue
        known.add((job["kind"], job["id"]))
        # The daemon of the step is there from its beginning to its end.
        names = {pid: system.read("/proc/%s/comm" % pid, 64, True) for pid in pids[:16]}
        pid = next((pid for pid, text in names.items() if text == "slurmstepd"), pids[0])
        entry: dict[str, t.Any] = {"pid": int(pid), "name": names.get(pid), "devices": []}
        entry["unit"] = unit_of(system.read("/proc/%s/cgroup" % pid, 8192, True) or "")
        attribute(system, [entry])
        # Its own group may name the step as well.
        if not entry["job"] or (entry["job"]["kind"], entry["job"]["id"]) != (job["kind"], job["id"]):
            entry["job"] = job
        found.append(entry)
    return found
