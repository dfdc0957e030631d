# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

"""The verdict over a fleet, and its short forms: the table for the console, the record for a node, and JUnit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from xml.etree import ElementTree

from ansible_collections.gpu.fleet.plugins.plugin_utils._verification import Check, check, few, siblings, verdict
from ansible_collections.gpu.fleet.plugins.plugin_utils._verification_collective import outcome

Facts: TypeAlias = Mapping[str, Any]

MISSING = "did not answer; see the errors of this run"


def document(
    hosts: Sequence[str],
    nodes: Mapping[str, Facts],
    launches: Mapping[str, Facts],
    answers: Mapping[str, Facts | None],
    generated: str,
) -> dict[str, Any]:
    """The verification result, schema 1. Every host is listed; C(collective) is the largest of C(collectives)."""
    judged: list[dict[str, Any]] = []
    added: dict[str, list[Check]] = {}
    for fabric, plan in launches.items():
        told, shares = outcome(fabric, plan, answers)
        judged.append(told)
        alike = siblings({host: nodes[host]["shape"] for host in plan["members"] if nodes.get(host)})
        added.update({host: [*([alike[host]] if host in alike else []), *found] for host, found in shares.items()})
    entries = []
    for host in hosts:
        checks = [*nodes[host]["checks"], *added.get(host, [])] if nodes.get(host) else [check("node.reachable", False, MISSING, "an answer")]
        entries.append({"name": host, "verdict": verdict(checks), "checks": checks})
    good = bool(entries) and all(entry["verdict"] == "pass" for entry in [*entries, *judged])
    largest = max(judged, key=lambda told: int(told["world_size"] or 0), default=None)
    return {
        "schema": 1,
        "verdict": "pass" if good else "fail",
        "generated": generated,
        "nodes": entries,
        "collective": largest,
        "collectives": judged,
    }


def failures(entry: Facts) -> list[str]:
    """A node's failed checks in words."""
    found = [one for one in entry["checks"] if one["verdict"] == "fail"]
    return [f"{one['id']}: seen {one['seen']}, wanted {one['wanted']}" + (f" ({one['evidence']})" if one["evidence"] else "") for one in found]


def collective_line(told: Facts) -> str:
    """A collective in one line."""
    where = f"{told['fabric']}: {told['backend']} over {told['world_size']} ranks"
    if told["verdict"] != "pass":
        return f"{where}: {told['reason']}"
    last = told["rows"][-1]
    speed = f"{last['busbw_gbs']:.3f} GB/s busbw at {last['size_bytes'] / 2**20:g} MiB"
    without = f", without {few(told['absent'], 3)}" if told["absent"] else ""
    return f"{where}: exact, equal gradients" + (f", {speed}" if told["world_size"] > 1 else "") + without


def summary(result: Facts) -> str:
    """The fleet's verdict in one line."""
    bad = [entry["name"] for entry in result["nodes"] if entry["verdict"] != "pass"]
    reasons = [f"{told['fabric']}: {told['reason']}" for told in result["collectives"] if told["verdict"] != "pass"]
    if result["verdict"] == "pass":
        return f"{len(result['nodes'])} nodes pass; " + "; ".join(collective_line(told) for told in result["collectives"])
    nodes = f"{len(bad)} of {len(result['nodes'])} nodes fail: {few(bad)}" if bad else "no single node fails"
    return "; ".join([nodes, *reasons])


def table(result: Facts, most: int = 40) -> list[str]:
    """Lines for the console: failed nodes first, each failed check with its evidence, then the sweeps."""
    entries = sorted(result["nodes"], key=lambda entry: entry["verdict"] == "pass")
    width = max([len(entry["name"]) for entry in entries[:most]] + [4])
    lines = [f"{'node'.ljust(width)}  verdict  checks"]
    for entry in entries[:most]:
        counts = {kind: sum(one["verdict"] == kind for one in entry["checks"]) for kind in ("pass", "fail", "skip")}
        told = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
        lines.append(f"{entry['name'].ljust(width)}  {entry['verdict'].upper().ljust(7)}  {told}")
        lines += [f"{' ' * width}    {line}" for line in failures(entry)]
    if len(entries) > most:
        lines.append(f"and {len(entries) - most} more nodes")
    for told in result["collectives"]:
        lines += ["", collective_line(told)]
        lines += [f"{'size MiB':>10} {'time us':>12} {'algbw GB/s':>12} {'busbw GB/s':>12}"] if told["rows"] else []
        lines += [
            f"{row['size_bytes'] / 2**20:>10g} {row['time_us']:>12.1f} {row['algbw_gbs']:>12.4f} {row['busbw_gbs']:>12.4f}" for row in told["rows"]
        ]
    return [*lines, "", f"verdict: {result['verdict'].upper()} ({summary(result)})"]


def record(host: str, result: Facts, fingerprint: str) -> dict[str, Any]:
    """What a node keeps of its last verification; it passes only together with its fabric's collective.

    A pass of a part of the fabric is C(partial): it says nothing of the way to the others.
    """
    entry = next(entry for entry in result["nodes"] if entry["name"] == host)
    told = next((told for told in result["collectives"] if host in told["members"]), None)
    good = entry["verdict"] == "pass" and (told is None or told["verdict"] == "pass")
    reasons = failures(entry) + ([told["reason"]] if told and told["reason"] else [])
    return {
        "schema": 1,
        "fingerprint": fingerprint,
        "verdict": "fail" if not good else "partial" if told and told["absent"] else "pass",
        "date": result["generated"],
        "summary": few(reasons, 3) if not good else collective_line(told) if told else "no PyTorch is part of the plan",
        "collective": told,
    }


def junit(result: Facts) -> str:
    """JUnit XML: a suite for each node and one for the collectives."""
    suites = ElementTree.Element("testsuites", name="gpu.fleet verification")
    for entry in result["nodes"]:
        suite = ElementTree.SubElement(suites, "testsuite", name=entry["name"], tests=str(len(entry["checks"])))
        for one in entry["checks"]:
            case = ElementTree.SubElement(suite, "testcase", classname=entry["name"], name=one["id"])
            if one["verdict"] == "fail":
                failure = ElementTree.SubElement(case, "failure", message=f"seen {one['seen']}, wanted {one['wanted']}")
                failure.text = one["evidence"]
            elif one["verdict"] == "skip":
                ElementTree.SubElement(case, "skipped", message=one["seen"])
    suite = ElementTree.SubElement(suites, "testsuite", name="collective", tests=str(len(result["collectives"])))
    for told in result["collectives"]:
        case = ElementTree.SubElement(suite, "testcase", classname="collective", name=told["fabric"])
        if told["verdict"] != "pass":
            ElementTree.SubElement(case, "failure", message=told["reason"])
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
