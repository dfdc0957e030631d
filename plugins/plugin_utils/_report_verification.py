# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

"""The verification result as a page: the verdict, the collectives with their curves, and every node with its checks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, TypeAlias

from ansible_collections.gpu.fleet.plugins.plugin_utils import _report as parts
from ansible_collections.gpu.fleet.plugins.plugin_utils._verification_result import summary

Facts: TypeAlias = Mapping[str, Any]

MAP_FROM = 9  # fewer nodes are seen at a glance in the list itself


def figures(result: Facts) -> str:
    """The few numbers that a reader looks for first."""
    nodes, told = result["nodes"], result["collective"]
    passed = sum(entry["verdict"] == "pass" for entry in nodes)
    checks = [one["verdict"] for entry in nodes for one in entry["checks"] if one["verdict"] != "skip"]
    items = [(f"{passed} / {len(nodes)}", "nodes pass"), (f"{checks.count('pass')} / {len(checks)}", "checks pass")]
    if told:
        items.append((f"{told['world_size']} {told['backend'] or ''}", "ranks in the collective"))
        if told["rows"]:
            best = max(row["busbw_gbs"] for row in told["rows"])
            items.append((f"{best:.3g} GB/s", "best bus bandwidth"))
    return parts.facts(items)


def collective(told: Facts) -> str:
    """One collective: its verdict, what was exact, the curve and the table of its sweep."""
    ddp = told.get("ddp") or {}
    proved = [
        f"{told['backend']}, {told['world_size']} ranks on {len(told['members'])} nodes" if told["backend"] else "",
        "every sum exact" if told["correct"] else "",
        f"gradients of {ddp['steps']} DDP steps equal on all ranks" if ddp.get("gradients_equal") else "",
        f"{told['seconds']:g} s" if told.get("seconds") else "",
        "not successful: " + told["reason"] if told["reason"] else "",
    ]
    title = f'<div style="display:flex;gap:12px;align-items:center"><h3>{escape(told["fabric"])}</h3>{parts.badge(told["verdict"])}</div>'
    line = f'<p class="soft">{escape(" · ".join(item for item in proved if item))}</p>'
    rows = told["rows"] or []
    if not rows:
        return f'<div class="card">{title}{line}</div>'
    curves = [
        parts.Curve("busbw", "a", [(row["size_bytes"], row["busbw_gbs"]) for row in rows]),
        parts.Curve("algbw", "b", [(row["size_bytes"], row["algbw_gbs"]) for row in rows]),
    ]
    cells = [[parts.size(row["size_bytes"]), f"{row['time_us']:,.0f}", f"{row['algbw_gbs']:.4g}", f"{row['busbw_gbs']:.4g}"] for row in rows]
    sweep = parts.table(["size", "time, µs", "algbw, GB/s", "busbw, GB/s"], cells, right=(0, 1, 2, 3))
    curve = parts.chart(curves, "GB/s", f"All-reduce bandwidth of {told['fabric']} by size")
    return f'<div class="card">{title}{line}<div class="two"><div>{curve}</div>{sweep}</div></div>'


def node(number: int, entry: Facts) -> str:
    """One node: its checks, failed ones first; open when it failed."""
    order = {"fail": 0, "pass": 1, "skip": 2}
    checks = sorted(entry["checks"], key=lambda one: order[one["verdict"]])
    counts = [f"{sum(one['verdict'] == kind for one in checks)} {kind}" for kind in order if any(one["verdict"] == kind for one in checks)]
    cells = [
        [parts.badge(one["verdict"]), escape(one["id"]), escape(one["seen"]), escape(one["wanted"] or ""), escape(one["evidence"])] for one in checks
    ]
    body = parts.table(["", "check", "seen", "wanted", "evidence"], cells)
    opened = " open" if entry["verdict"] != "pass" else ""
    top = f'{parts.badge(entry["verdict"])}<b>{escape(entry["name"])}</b><span class="soft">{escape(", ".join(counts))}</span>'
    return f'<details id="n{number}"{opened}><summary>{top}</summary><div class="in">{body}</div></details>'


def html(result: Facts) -> str:
    """The page for a verification result of schema 1."""
    entries = sorted(result["nodes"], key=lambda entry: entry["verdict"] == "pass")
    body = [
        parts.head("GPU fleet verification", result["verdict"], [summary(result), result["generated"].replace("T", " ").replace("Z", " UTC")]),
        figures(result),
    ]
    if result["collectives"]:
        body += ["<h2>Collective</h2>", *(collective(told) for told in result["collectives"])]
    body.append("<h2>Nodes</h2>")
    if len(entries) >= MAP_FROM:
        tiles = [
            f'<a href="#n{number}" class="{entry["verdict"]}" title="{escape(entry["name"])}: {entry["verdict"]}"></a>'
            for number, entry in enumerate(entries)
        ]
        body.append(f'<div class="card map">{"".join(tiles)}</div>')
    body += [node(number, entry) for number, entry in enumerate(entries)]
    foot = "Bandwidths as nccl-tests define them: algbw = size / time, busbw = algbw * 2(n-1)/n; time of the slowest rank, median of the repeats."
    return parts.page(f"GPU fleet verification: {result['verdict']}", "\n".join(body), foot)
