# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of preflight.yml: what changes, why, what would restart, whose it is; alike hosts once, wide cells wrapped."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.gpu.fleet.plugins.filter import resolve as filters
from ansible_collections.gpu.fleet.plugins.plugin_utils import _plan_table
from ansible_collections.gpu.fleet.plugins.plugin_utils._plan_table import TITLES, WIDEST, lines
from fixtures.nodes import NEW, OLD, bare, installed, job, request, resolve, satisfied
from fixtures.stack import driver


def blocks(plans: dict[str, Any]) -> list[list[str]]:
    """Return the table's blocks, without the titles."""
    found: list[list[str]] = []
    for line in lines(plans)[1:]:
        if set(line) == {"-"}:
            found.append([])
        else:
            found[-1].append(line)
    return found


def cells(plans: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return component -> title -> text of the first block, wrapped cells joined again."""
    table = lines(plans)
    starts = [table[0].index(title) for title in TITLES]
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in blocks(plans)[0]:
        row = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        name = row[1] or name if row[1] and any(row[2:]) and row[5] else name
        entry = found.setdefault(name, dict.fromkeys(TITLES, ""))
        for title, text in zip(TITLES, row, strict=True):
            entry[title] = f"{entry[title]} {text}".strip()
    return found


def test_a_bare_host_gets_it_all() -> None:
    table = cells({"n1": resolve(request(), bare())})
    assert (table["driver"]["owner"], table["driver"]["now"], table["driver"]["what happens"]) == ("absent", "none", "install")
    assert table["driver"]["planned"] == f"{NEW} open, from nvidia" and "gpu_stack_driver is 580" in table["driver"]["why"]
    assert (table["fabric manager"]["planned"], table["fabric manager"]["what happens"]) == (NEW, "install")
    assert table["pytorch"]["planned"] == "2.14.1+cu130" and table["pytorch"]["what happens"] == "install"
    assert table["settings"]["what happens"] == "7 to write" and "/etc/nccl.conf" in table["settings"]["why"]
    assert table["to do"]["what happens"].startswith("node_baseline, nvidia_driver, conda_pytorch")


def test_what_would_be_disturbed_is_said_also_of_what_waits() -> None:
    allowed = cells({"n1": resolve(request(disruption="idle", pytorch=None), installed())})["driver"]
    assert allowed["what happens"] == "change, reload, about 30 s, restarts nvidia-fabricmanager nvidia-persistenced"
    waiting = cells({"n1": resolve(request(pytorch=None), installed())})
    assert waiting["driver"]["what happens"].startswith("pending, reload, about 30 s")
    assert waiting["driver"]["why"].endswith("set gpu_stack_disruption to idle") and "needs a reload" in waiting["driver"]["why"]
    assert waiting["fabric manager"]["what happens"] == "pending"
    reboot = cells({"n1": resolve(request(disruption="idle", pytorch=None), bare(driver=driver(nouveau_loaded=True)))})["driver"]
    assert reboot["what happens"].startswith("install, reboot, about 600 s")
    busy = cells({"n1": resolve(request(pytorch="2.14+cu130"), installed("535.309.01", busy=job()))})
    assert "python (4711) holds the GPUs" in busy["driver"]["why"] and busy["pytorch"]["what happens"] == "pending"


def test_owners_are_named_and_what_is_theirs_is_left_alone() -> None:
    owners = {"rdma": "doca", "container_toolkit": "gpu-operator", "fabric_manager": "distro", "cuda": "runfile", "dcgm": "absent"}
    facts = bare(driver=driver(OLD, "distro"), owners=owners, cuda=[{"version": "13.0.2"}], nccl={"config": {"/etc/nccl.conf": "NCCL_ALGO=Ring\n"}})
    table = cells({"n1": resolve(request(pytorch=None), facts)})
    theirs = {"driver": "distro", "fabric manager": "distro", "rdma": "doca", "container_toolkit": "gpu-operator", "cuda": "runfile"}
    for name, owner in theirs.items():
        assert table[name]["owner"] == owner and table[name]["what happens"] == "left alone" and table[name]["planned"] == "as it is"
    assert table["cuda"]["now"] == "13.0.2" and table["nccl"]["what happens"] == "left alone"
    assert "dcgm" not in table and "cudnn" not in table, "what is not there takes no row"


def test_a_host_that_is_as_planned_says_so() -> None:
    table = cells({"n1": resolve(request(), satisfied(request(), bare()))})
    assert table["to do"]["what happens"] == "nothing" and table["settings"]["what happens"] == "none"
    assert "verification: passed before" in table["to do"]["why"]


def test_a_thousand_alike_hosts_are_one_block() -> None:
    plans = {f"n{number}": resolve(request(host=f"n{number}"), installed()) for number in range(1, 1001)}
    plans["n500"] = resolve(request(host="n500", driver=OLD), installed())
    began = time.process_time()
    first, second = blocks(plans)
    assert time.process_time() - began < 5
    assert first[0].startswith("n1 to n499, n501 to n1000") and second[0].startswith("n500 ")
    assert "(999 nodes)" in " ".join(" ".join(first).split())


def test_no_line_is_wider_than_its_columns() -> None:
    hosts = {f"a-very-long-name-of-a-host-in-a-rack-{number * 3}": resolve(request(), bare()) for number in range(7)}
    table = lines({**hosts, "n1": resolve(request(driver="999"), bare()), "n2": resolve(request(), installed(busy=job("a" * 40)))})
    assert max(map(len, table)) <= sum(WIDEST) + 2 * len(WIDEST) - 2
    assert all(len(line.rstrip()) == len(line) for line in table)
    text = " ".join(" ".join(table).split())
    assert "gpu_stack_driver is '999'" in text and "[driver.branch_unknown]" in text and "a" * 40 in text.replace(" ", "")


def test_what_has_no_plan_is_named() -> None:
    assert blocks({"n1": {}})[0][0].split() == ["n1", "all", "no", "plan"]
    hosts = {"n1": {"__gpu_stack_plan": resolve(request(), bare())}, "n2": {}}
    assert filters.plan_table(["n2", "n1"], hosts) == _plan_table.lines({"n1": hosts["n1"]["__gpu_stack_plan"], "n2": {}})
