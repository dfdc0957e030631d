# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""A plan as a person reads it."""

from __future__ import annotations

from typing import Any

TITLES = ("node", "component", "now", "planned", "what happens", "why")


def rows(host: str, plan: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table's rows for one host."""
    driver = plan["components"]["driver"]
    torch = plan["components"]["pytorch"]
    foreseen = plan["consequences"]
    waits = {item["component"]: item for item in plan["pending"]}
    disturbs = [word for word, happens in (("reload", foreseen["reload"]), ("reboot", foreseen["reboot"])) if happens]
    wanted = f"{driver['wanted']['version']} {driver['wanted']['flavour']}" if driver["wanted"] else "as it is"
    what = "pending" if "driver" in waits else ", ".join([driver["action"], *disturbs])
    why = waits["driver"]["reason"] if "driver" in waits else "; ".join(driver["reasons"])
    build = f"{torch['wanted']['version']}+{torch['wanted']['tag']}" if torch["wanted"] else "none"
    torch_waits = waits.get("pytorch")
    torch_what, torch_why = ("pending", torch_waits["reason"]) if torch_waits else (torch["action"], "; ".join(torch["reasons"]))
    files = sum(len(plan["differs"].get(role, [])) for role in ("node_baseline", "nccl_tuning"))
    return [
        (host, "driver", str(driver["present"] or "none"), wanted, what, why),
        (host, "pytorch", str(torch["present"] or "none"), build, torch_what, torch_why),
        (host, "settings", "", "", f"{files} to write" if files else "none", ", ".join(plan["todo"]) or "nothing to do"),
    ]


def lines(plans: dict[str, dict[str, Any]]) -> list[str]:
    """Return the table of all hosts; a host that is refused or has no plan is named as such."""
    table: list[tuple[str, ...]] = [TITLES]
    for host in sorted(plans):
        refusal = plans[host].get("refusal")
        if plans[host].get("components"):
            table += rows(host, plans[host])
        else:
            table.append((host, "", "", "", "refused" if refusal else "no plan", refusal["message"] if refusal else ""))
    widths = [max(len(row[column]) for row in table) for column in range(len(TITLES))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
