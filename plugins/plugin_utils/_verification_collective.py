# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

"""The collective stage, before and after: who takes part, how each host starts its share, and what came of it.

A node is what one host found out about itself (see C(node)). A member that has no node did not answer. A job is the answer of the transient unit:
C({unit, documents, output}), where documents are texts of JSON by file name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ansible_collections.gpu.fleet.plugins.plugin_utils._verification import Check, check, few, framework, node_checks, shape, verdict

Facts: TypeAlias = Mapping[str, Any]

NEEDED = ("inventory.observed", "framework.torch", "framework.product")  # what no collective can do without
VIRTUAL = ("docker", "virbr", "cni", "flannel", "cali", "br-", "veth")


def interface(observed: Facts | None, nccl: Facts) -> tuple[str | None, str | None]:
    """Name and IPv4 address of the interface for the job's own traffic: the plan's, else the default route's, else the first."""
    found = [entry for entry in (observed or {}).get("interfaces") or [] if entry.get("ipv4") and entry.get("up") is not False]
    wanted = str(nccl.get("NCCL_SOCKET_IFNAME", ""))
    if wanted.startswith("="):
        found = [entry for entry in found if entry["name"] in wanted[1:].split(",")]
    elif wanted.startswith("^"):
        found = [entry for entry in found if entry["type"] != "loopback" and not str(entry["name"]).startswith(tuple(wanted[1:].split(",")))]
    else:
        found = [entry for entry in found if entry.get("type") not in ("loopback", "bridge") and not str(entry["name"]).startswith(VIRTUAL)]
    found.sort(key=lambda entry: not entry.get("default_route"))
    if not found:
        return None, None
    return str(found[0]["name"]), str(found[0]["ipv4"][0]).partition("/")[0]


def managed(plan: Facts, kind: str) -> str | None:
    """Id of the first thing of a kind that the plan manages."""
    return next((str(entry["id"]) for entry in plan.get("managed") or [] if entry["kind"] == kind), None)


def framework_answer(answer: Facts) -> tuple[dict[str, Any], str]:
    """What a framework said of itself, and why it said nothing."""
    found = parsed((answer.get("documents") or {}).get("framework.json"))
    return found, str(answer.get("msg") or few([line for line in answer.get("output") or [] if line.strip()][-3:], 3))


def framework_checks(answer: Facts, expected: Facts) -> list[Check]:
    """Checks of the framework stage alone."""
    found, trouble = framework_answer(answer)
    return framework(found, expected, trouble)


def node(observed: Facts | None, plan: Facts | None, answer: Facts | None) -> dict[str, Any]:
    """What a host found out about itself: its checks, and what its share of the collective needs.

    C(answer) is the job that asked the framework; C(trouble) of a host that could not even be observed is in its C(msg).
    """
    plan, answer = plan or {}, answer or {}
    told = plan.get("verification") or {}
    expected = told.get("expected") or {}
    checks = node_checks(observed, expected, *framework_answer(answer))
    name, address = interface(observed, (plan.get("nccl") or {}).get("variables") or {})
    environment = managed(plan, "python_environment")
    reasons = [f"{one['id']} {one['seen']}" for one in checks if one["verdict"] == "fail" and one["id"] in NEEDED]
    reasons += [] if address else ["no interface with an IPv4 address"]
    busy = (observed or {}).get("busy")
    holders = [f"{holder.get('name')} {holder.get('pid')}" for holder in (busy or {}).get("jobs") or []]
    # Who works here may be unknown; a host without GPUs has nothing to be held.
    unknown = ["it is not known who holds its GPUs"] if busy is None and (observed or {}).get("gpus") else []
    return {
        "checks": checks,
        "ready": not reasons,
        "reason": few(reasons),
        "busy": holders or unknown,
        "shape": shape(observed or {}),
        "interface": name,
        "address": address,
        "backend": told.get("backend") or "gloo",
        "processes": told.get("processes_per_node") or 1,
        "python": f"{environment}/bin/python" if environment else None,
        "user": managed(plan, "user") or "nobody",
    }


def fabrics(hosts: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Members of each fabric among the hosts, in their order; a host of no C(gpu_fabric_*) group is a fabric of its own."""
    found: dict[str, list[str]] = {}
    names = sorted(name for name in groups if name.startswith("gpu_fabric_"))
    for host in hosts:
        found.setdefault(next((name for name in names if host in groups[name]), host), []).append(host)
    return found


def launch(members: Sequence[str], nodes: Mapping[str, Facts]) -> dict[str, Any]:
    """Whether the collective of a fabric can be started, and with what: C({start, reason, ...})."""
    silent = [host for host in members if not nodes.get(host)]
    unready = [f"{host} ({nodes[host]['reason']})" for host in members if nodes.get(host) and not nodes[host]["ready"]]
    busy = [f"{host} ({few(nodes[host]['busy'], 2)})" for host in members if nodes.get(host) and nodes[host]["busy"]]
    present = [nodes[host] for host in members if nodes.get(host)]
    backends = sorted({node["backend"] for node in present})
    counts = sorted({node["processes"] for node in present})
    reason = ""
    if silent:
        reason = f"{few(silent)} did not answer"
    elif unready:
        reason = f"not ready: {few(unready)}"
    elif busy:
        reason = f"busy, and left alone: {few(busy)}"
    elif len(backends) > 1 or len(counts) > 1:
        reason = "members differ: " + few([f"{host} {nodes[host]['backend']} with {nodes[host]['processes']} processes" for host in members])
    return {
        "start": not reason,
        "reason": reason,
        "members": list(members),
        "backend": backends[0] if len(backends) == 1 else None,
        "processes": counts[0] if len(counts) == 1 else None,
        "world_size": len(members) * counts[0] if len(counts) == 1 else len(members),
        "rendezvous": present[0]["address"] if not reason else None,
    }


def collectives(hosts: Sequence[str], groups: Mapping[str, Sequence[str]], nodes: Mapping[str, Facts]) -> dict[str, Any]:
    """Every fabric's launch by the fabric's name; a fabric whose plan holds no PyTorch has nothing to run.

    C(absent) are members of the fabric that this run is not about, such as those outside of --limit.
    """
    found = fabrics(hosts, groups)
    wanted = {fabric: members for fabric, members in found.items() if any(not nodes.get(host) or nodes[host]["python"] for host in members)}
    held = set(groups.get("gpu_hold", []))
    absent = {fabric: [host for host in groups.get(fabric, []) if host not in members and host not in held] for fabric, members in wanted.items()}
    return {fabric: {**launch(members, nodes), "absent": absent[fabric]} for fabric, members in wanted.items()}


def job(host: str, node: Facts, launches: Mapping[str, Facts], settings: Facts) -> dict[str, Any]:
    """Arguments, environment and user of the host's share of its fabric's collective; empty when none is to be started.

    C(settings): C({port, sizes_mib, iterations, steps, timeout, start_timeout, name}).
    """
    mine = next((found for found in launches.values() if host in found["members"]), None)
    if mine is None or not mine["start"]:
        return {}
    alone = len(mine["members"]) == 1
    folder = f"/run/{settings['name']}"
    argv = [
        node["python"],
        *("-m", "torch.distributed.run"),
        *("--nnodes", str(len(mine["members"]))),
        *("--node-rank", str(mine["members"].index(host))),
        *("--nproc-per-node", str(mine["processes"])),
        *("--master-addr", "127.0.0.1" if alone else mine["rendezvous"]),
        *("--master-port", str(settings["port"])),
        *("--rdzv-conf", f"timeout={settings['start_timeout']}"),
        *("--max-restarts", "0"),
        f"{folder}/allreduce.py",
        *("--backend", mine["backend"]),
        *("--sizes-mib", ",".join(f"{float(size):g}" for size in settings["sizes_mib"])),
        *("--iterations", str(settings["iterations"])),
        *("--steps", str(settings["steps"])),
        *("--timeout", str(settings["timeout"])),
        *("--ranks", str(mine["world_size"])),
        *("--name", host),
        *("--result", f"{folder}/result.json"),
        *("--progress", folder),
    ]
    environment = {
        "GLOO_SOCKET_IFNAME": node["interface"] or "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    if mine["backend"] == "nccl":
        environment["NCCL_DEBUG"] = "WARN"
    return {"argv": argv, "environment": environment, "user": node["user"]}


def parsed(value: object) -> dict[str, Any]:
    """A JSON object from the text of a file; anything else is an empty one."""
    try:
        found = json.loads(str(value))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def notes(answer: Facts | None) -> list[dict[str, Any]]:
    """The last collective of each rank of a host, in the order of ranks."""
    documents = (answer or {}).get("documents") or {}
    found = [parsed(value) for name, value in documents.items() if name.startswith("progress-")]
    return sorted((note for note in found if "rank" in note), key=lambda note: int(note["rank"]))


def reached(note: Facts) -> str:
    """One rank's last collective in words."""
    what = f"rank {note['rank']} {note.get('state')} {note.get('collective') or 'nothing'} (number {note.get('sequence')})"
    return f"{what}: {note['error']}" if note.get("error") else what


def ended(host: str, answer: Facts | None, blamed: Sequence[str] = ()) -> Check:
    """Check of one host's share: that it ended well by itself, or how far its ranks came.

    A share that ended badly where another host is to blame says so, and is not held against its own host.
    """
    name, goal = "collective.finished", "ended by itself"
    answer = answer or {}
    if not answer.get("unit"):
        return check(name, False, "did not answer", goal, str(answer.get("msg") or f"no word from {host}"))
    unit = answer["unit"]
    if unit["state"] == "succeeded":
        return check(name, True, goal, goal)
    words = {"running": "still running when it was ended", "absent": "vanished"}
    seen = words.get(unit["state"]) or {
        "timeout": "ended at its time limit",
        "exit-code": f"exit status {unit['exit_status']}",
        "signal": f"killed by signal {unit['exit_status']}",
    }.get(unit["result"], str(unit["result"]))
    said = [line for line in answer.get("output") or [] if line.strip()]
    # Where no rank knows of an error, what the job printed last is the only trace.
    told = notes(answer)
    evidence = few([reached(note) for note in told], 8)
    if not any(note.get("error") for note in told):
        evidence = "; ".join(part for part in (evidence, few(said[-3:], 3)) if part)
    if blamed and host not in blamed:
        return check(name, None, f"{seen}, after waiting for {few(blamed)}", None, evidence)
    return check(name, False, seen, goal, evidence)


def suspects(members: Sequence[str], answers: Mapping[str, Facts | None]) -> list[str]:
    """Hosts that the others most likely waited for; none when it could be any of them.

    In this order: those that are silent; those that hung until they were ended, while others gave up by themselves; those
    none of whose ranks could say what went wrong, as a rank that dies cannot; those that came least far.
    """
    given = {host: answers.get(host) or {} for host in members}
    silent = [host for host in members if not given[host].get("unit")]
    units = {host: given[host].get("unit") or {} for host in members}
    hung = [host for host in members if units[host].get("result") == "timeout" or units[host].get("state") == "running"]
    bad = [host for host in members if units[host].get("state") == "failed"]
    died = [host for host in bad if not any(note.get("error") for note in notes(given[host]))]
    marks = {host: min((int(note.get("sequence", 0)) for note in notes(given[host])), default=0) for host in members}
    behind = [host for host in members if marks[host] == min(marks.values())]
    return silent or next((group for group in (hung, died, behind) if group and len(group) < len(members)), [])


def outcome(fabric: str, plan: Facts, answers: Mapping[str, Facts | None]) -> tuple[dict[str, Any], dict[str, list[Check]]]:
    """What came of a fabric's collective, and the checks that it adds to each of its members.

    C({fabric, members, backend, world_size, correct, verdict, reason, suspects, rows, ddp, seconds}).
    """
    members = list(plan["members"])
    told: dict[str, Any] = {
        "fabric": fabric,
        "members": members,
        "absent": list(plan.get("absent") or []),
        "backend": plan["backend"],
        "world_size": plan["world_size"],
        "correct": False,
        "verdict": "fail",
        "reason": plan["reason"],
        "suspects": [],
        "rows": [],
    }
    if not plan["start"]:
        skipped = check("collective.finished", None, f"not started: {plan['reason']}")
        return told, {host: [skipped] for host in members}
    result = parsed(((answers.get(members[0]) or {}).get("documents") or {}).get("result.json"))
    if not result:
        told["suspects"] = suspects(members, answers)
        told["reason"] = f"no result: look at {few(told['suspects'])} first" if told["suspects"] else "no result"
        return told, {host: [ended(host, answers.get(host), told["suspects"])] for host in members}
    checks = {host: [ended(host, answers.get(host))] for host in members}
    told.update({key: result.get(key) for key in ("correct", "world_size", "backend", "rows", "ddp", "seconds")})
    wrong: dict[str, int] = {}
    for entry in result.get("wrong") or []:
        wrong[entry["host"]] = wrong.get(entry["host"], 0) + entry["elements"]
    different = set((result.get("ddp") or {}).get("different") or [])
    for host in members:
        seen = f"{wrong[host]} wrong elements" if host in wrong else "gradients differ" if host in different else "exact"
        good = host not in wrong and host not in different
        checks[host].append(check("collective.correct", good, seen, "exact sums, equal gradients"))
    if not result.get("correct"):
        told["suspects"] = [host for host in members if verdict(checks[host]) == "fail"]
        told["reason"] = f"wrong results on {few(told['suspects'])}" if told["suspects"] else "wrong results on all members"
    elif result.get("world_size") != plan["world_size"]:
        told["reason"] = f"{result.get('world_size')} ranks took part, {plan['world_size']} were wanted"
    elif any(verdict(found) == "fail" for found in checks.values()):
        told["suspects"] = [host for host in members if verdict(checks[host]) == "fail"]
        told["reason"] = f"did not end well on {few(told['suspects'])}"
    else:
        told["verdict"] = "pass"
    return told, checks
