# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Plans as a person reads them: one block for hosts whose plans are alike, a row a component, wide cells wrapped."""

from __future__ import annotations

import textwrap
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._components import LEFT
from ansible_collections.gpu.fleet.plugins.plugin_utils._names import natural, ranges

TITLES = ("nodes", "component", "owner", "now", "planned", "what happens", "why")
# The widest that a column gets, in characters: together they fit a terminal that is wide, and the rest goes below.
WIDEST = (26, 17, 12, 16, 22, 26, 58)
Row = tuple[str, ...]


def rows(plan: dict[str, Any]) -> list[Row]:
    """Return the table's rows for one host, without its name."""
    components = plan["components"]
    waits = {item["component"]: item for item in plan["pending"]}
    table = [
        _row("driver", components["driver"], _driver(components["driver"]["wanted"]), waits, _disturbs(plan["consequences"])),
        *_fabric_manager(components["fabric_manager"], waits),
        _row("pytorch", components["pytorch"], _build(components["pytorch"]["wanted"]), waits, []),
    ]
    nccl = components["nccl"]
    if nccl["action"] == "adopt":
        table.append(("nccl", nccl["owner"], "a file", "as it is", "left alone", "; ".join(nccl["reasons"])))
    table += [
        (name, str(components[name]["owner"]), components[name]["present"] or "", "as it is", "left alone", "; ".join(components[name]["reasons"]))
        for name in LEFT
        if components[name]["action"] == "adopt"
    ]
    return [*table, _settings(plan), _steps(plan)]


def _row(name: str, component: dict[str, Any], planned: str, waits: dict[str, Any], disturbs: list[str]) -> Row:
    """Return the row of a component; one that waits says for what."""
    owner, now, why = str(component["owner"] or "not known"), str(component["present"] or "none"), "; ".join(component["reasons"])
    waiting = waits.get(name)
    if waiting:
        # The command is each host's own, and site.yml prints it.
        what, why = "pending", f"{waiting['reason']}; set {waiting['variable']} to {waiting['value']['needed']}"
    else:
        what = "left alone" if component["action"] == "adopt" else component["action"]
    return (name, owner, now, planned, ", ".join([what, *disturbs]), why)


def _driver(wanted: dict[str, Any] | None) -> str:
    return f"{wanted['version']} {wanted['flavour']}, from {wanted['source']}" if wanted else "as it is"


def _build(wanted: dict[str, Any] | None) -> str:
    return f"{wanted['version']}+{wanted['tag']}" if wanted else "none"


def _disturbs(foreseen: dict[str, Any]) -> list[str]:
    """Return what applying the plan does to a running host."""
    said = [word for word in ("reload", "reboot") if foreseen[word]]
    said += [f"about {foreseen['downtime_s']} s"] if foreseen["downtime_s"] else []
    units = [unit.removesuffix(".service") for unit in foreseen["restarts"]]
    return [*said, *([f"restarts {' '.join(units)}"] if units else [])]


def _fabric_manager(component: dict[str, Any], waits: dict[str, Any]) -> list[Row]:
    """Return the row of the fabric manager where there is anything to say of one."""
    if component["wanted"] is None and not component["reasons"] and component["action"] == "none":
        return []
    planned = component["wanted"]["version"] if component["wanted"] else "as it is"
    name, *rest = _row("fabric manager", component, planned, {}, [])
    if "driver" in waits and component["action"] in ("change", "repair", "install"):
        rest[3] = "pending"
    return [(name, *rest)]


def _settings(plan: dict[str, Any]) -> Row:
    """Return the row of what no running job notices: files, folders, the account."""
    named = [name.partition(":")[2] for role in ("node_baseline", "nccl_tuning") for name in plan["differs"].get(role, [])]
    return ("settings", "gpu.fleet", "", "", f"{len(named)} to write" if named else "none", ", ".join(named))


def _steps(plan: dict[str, Any]) -> Row:
    due = plan["verification"]
    return ("to do", "", "", "", ", ".join(plan["todo"]) or "nothing", f"verification: {due['reason']}")


def lines(plans: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table of all hosts; hosts that are alike stand together, and one that is refused or has no plan is named as such."""
    alike: dict[tuple[Row, ...], list[str]] = {}
    for host in sorted(plans, key=natural):
        alike.setdefault(tuple(_of(plans[host])), []).append(host)
    blocks = []
    for found, hosts in alike.items():
        named = ranges(hosts) + (f" ({len(hosts)} nodes)" if len(hosts) > 1 else "")
        blocks.append([(named if number == 0 else "", *row) for number, row in enumerate(found)])
    everything = [TITLES, *(row for block in blocks for row in block)]
    widths = [min(max(len(row[column]) for row in everything), WIDEST[column]) for column in range(len(TITLES))]
    table = [_line(list(TITLES), widths)]
    for block in blocks:
        table += ["-" * (sum(widths) + 2 * len(widths) - 2), *_block(block, widths)]
    return table


def _of(plan: dict[str, Any]) -> list[Row]:
    if plan.get("components"):
        return rows(plan)
    refusal = plan.get("refusal")
    return [("all", "", "", "", "refused" if refusal else "no plan", f"{refusal['message']} [{refusal['rule']}]" if refusal else "")]


def _block(block: list[tuple[str, ...]], widths: list[int]) -> list[str]:
    """Return the lines of a block; names that wrap go on beside the rows below."""
    names = textwrap.wrap(block[0][0], widths[0], break_on_hyphens=False) or [""]
    cells = [row for whole in block for row in _split(("", *whole[1:]), widths)]
    cells += [[""] * len(widths) for _ in range(len(names) - len(cells))]
    for number, name in enumerate(names):
        cells[number][0] = name
    return [_line(row, widths) for row in cells]


def _split(row: Row, widths: list[int]) -> list[list[str]]:
    """Return a row as the rows of its wrapped cells."""
    wrapped = [textwrap.wrap(cell, width, break_on_hyphens=False) or [""] for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, wrapped))
    return [[cell[number] if number < len(cell) else "" for cell in wrapped] for number in range(height)]


def _line(cells: list[str], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
