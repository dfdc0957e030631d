# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collective before and after: who takes part, what each host runs, and who is named when it goes wrong."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils import _report as page
from ansible_collections.gpu.fleet.plugins.plugin_utils import _report_verification as report
from ansible_collections.gpu.fleet.plugins.plugin_utils import _verification_collective as collective
from ansible_collections.gpu.fleet.plugins.plugin_utils import _verification_result as result

PLAN = {
    "verification": {
        "fingerprint": "f00",
        "backend": "gloo",
        "processes_per_node": 1,
        "expected": {"gpus": 0, "torch": "2.13.0+cpu"},
    },
    "nccl": {"variables": {}},
    "managed": [
        {"role": "node_baseline", "kind": "user", "id": "gpufleet"},
        {"role": "conda_pytorch", "kind": "python_environment", "id": "/opt/gpu_fleet/pytorch"},
    ],
}
ANSWER = {"documents": {"framework.json": json.dumps({"torch": "2.13.0+cpu", "devices": [{"device": "cpu", "error": None}]})}}
SETTINGS = {"name": "unit", "port": 29400, "sizes_mib": [1, 0.5], "iterations": 5, "steps": 3, "timeout": 60, "start_timeout": 120}
ROWS = [{"size_bytes": size, "time_us": 100.0, "algbw_gbs": 0.1, "busbw_gbs": 0.15} for size in (1 << 20, 4 << 20, 64 << 20)]


def observed(number: int = 1, **more: Any) -> dict[str, Any]:
    lan = {"name": "eth0", "type": "physical", "up": True, "default_route": True, "ipv4": [f"10.213.7.{number}/24"]}
    return {"gpus": [], "interfaces": [lan], "busy": {"jobs": []}, **more}


def nodes(*hosts: str, **changes: dict[str, Any]) -> dict[str, Any]:
    """Return ready nodes by name; changes to a node go by its name."""
    made = {host: collective.node(observed(number), PLAN, ANSWER) for number, host in enumerate(hosts, 1)}
    return {host: {**made[host], **changes.get(host, {})} for host in hosts}


def share(state: str = "succeeded", why: str = "success", **documents: Any) -> dict[str, Any]:
    texts = {f"{name.replace('_', '-')}.json": json.dumps(value) for name, value in documents.items()}
    return {"unit": {"state": state, "result": why, "exit_status": 0 if state == "succeeded" else 1}, "documents": texts, "output": []}


def good(ranks: int, **more: Any) -> dict[str, Any]:
    ddp: dict[str, Any] = {"steps": 3, "gradients_equal": True, "gradients_right": True, "parameters_equal": True, "different": []}
    told: dict[str, Any] = {"backend": "gloo", "world_size": ranks, "correct": True, "rows": ROWS, "wrong": [], "ddp": ddp, "seconds": 7.2}
    return {**told, **more}


def progress(rank: int, sequence: int, state: str, error: str | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"rank": rank, "sequence": sequence, "state": state, "collective": f"all_reduce number {sequence}"}
    return {**told, "error": error} if error else told


def judged(hosts: list[str], answers: dict[str, Any], found: dict[str, Any] | None = None) -> dict[str, Any]:
    found = nodes(*hosts) if found is None else found
    launches = collective.collectives(hosts, {"gpu_fabric_a": hosts}, found)
    return result.document(hosts, found, launches, answers, "2026-11-30T06:20:00Z")


@pytest.mark.parametrize(
    ("interfaces", "nccl", "name"),
    [
        ([("eth0", "physical", False), ("eth1", "physical", True)], {}, "eth1"),
        ([("lo", "loopback", False), ("docker0", "bridge", False), ("veth1", "virtual", False), ("host0", "virtual", False)], {}, "host0"),
        ([("eth0", "physical", True), ("eth1", "physical", False)], {"NCCL_SOCKET_IFNAME": "=eth1"}, "eth1"),
        ([("eth0", "physical", False), ("eth1", "physical", False)], {"NCCL_SOCKET_IFNAME": "^eth0,docker"}, "eth1"),
        ([("lo", "loopback", False)], {}, None),
    ],
)
def test_the_job_speaks_over_the_planned_interface_or_the_default_routes(interfaces: Any, nccl: dict[str, str], name: str | None) -> None:
    entries = [
        {"name": entry, "type": kind, "up": True, "default_route": route, "ipv4": [f"10.0.0.{number}/8"]}
        for number, (entry, kind, route) in enumerate(interfaces)
    ]
    found = collective.interface({"interfaces": entries}, nccl)
    assert found[0] == name
    assert (found[1] is None) == (name is None)
    assert name is None or "/" not in str(found[1])


def test_interfaces_without_address_or_down_are_not_used() -> None:
    entries = [
        {"name": "eth0", "type": "physical", "up": False, "ipv4": ["10.0.0.1/8"]},
        {"name": "eth1", "type": "physical", "up": True, "ipv4": []},
    ]
    assert collective.interface({"interfaces": entries}, {}) == (None, None)
    assert collective.interface(None, {}) == (None, None)


def test_fabrics_hold_together_in_the_hosts_order_and_a_host_of_none_stays_alone() -> None:
    groups = {"gpu_fabric_b": ["n3", "n1"], "gpu_fabric_a": ["n2"], "gpu_nodes": ["n1", "n2", "n3", "n4"]}
    assert collective.fabrics(["n1", "n2", "n3", "n4"], groups) == {"gpu_fabric_b": ["n1", "n3"], "gpu_fabric_a": ["n2"], "n4": ["n4"]}


@pytest.mark.parametrize(
    ("changes", "missing", "reason"),
    [
        ({}, ["n2"], "n2 did not answer"),
        ({"n2": {"ready": False, "reason": "framework.torch no answer"}}, [], "not ready: n2 (framework.torch no answer)"),
        ({"n1": {"busy": ["python3 4711"]}}, [], "busy, and left alone: n1 (python3 4711)"),
        ({"n2": {"backend": "nccl"}}, [], "members differ: n1 gloo with 1 processes; n2 nccl with 1 processes"),
        ({"n2": {"processes": 4}}, [], "members differ: n1 gloo with 1 processes; n2 gloo with 4 processes"),
    ],
)
def test_no_collective_is_started_where_it_could_not_succeed(changes: dict[str, Any], missing: list[str], reason: str) -> None:
    found = {host: node for host, node in nodes("n1", "n2", **changes).items() if host not in missing}
    launches = collective.collectives(["n1", "n2"], {"gpu_fabric_a": ["n1", "n2"]}, found)
    assert launches["gpu_fabric_a"]["start"] is False
    assert launches["gpu_fabric_a"]["reason"] == reason
    assert collective.job("n1", nodes("n1")["n1"], launches, SETTINGS) == {}
    told = result.document(["n1", "n2"], found, launches, {}, "now")
    assert told["verdict"] == "fail"
    assert reason in result.summary(told)
    assert [entry["name"] for entry in told["nodes"]] == ["n1", "n2"]


def test_a_fleet_without_pytorch_in_its_plan_has_no_collective_and_can_pass() -> None:
    plan = {**PLAN, "managed": [], "verification": {"expected": {"gpus": 0, "torch": None, "memlock": "unlimited"}}}
    seen = observed(limits={"memlock": {"service": "unlimited"}})
    found = {"n1": collective.node(seen, plan, {})}
    told = result.document(["n1"], found, collective.collectives(["n1"], {}, found), {}, "now")
    assert (told["verdict"], told["collective"], told["collectives"]) == ("pass", None, [])
    assert result.record("n1", told, "f00")["verdict"] == "pass"
    assert collective.job("n1", found["n1"], {}, SETTINGS) == {}


def test_each_host_runs_its_own_rank_and_meets_at_the_first_member() -> None:
    found = nodes("n1", "n2", "n3")
    launches = collective.collectives(["n1", "n2", "n3"], {"gpu_fabric_a": ["n3", "n2"]}, found)
    share = collective.job("n3", found["n3"], launches, SETTINGS)
    words = share["argv"]
    assert words[:3] == ["/opt/gpu_fleet/pytorch/bin/python", "-m", "torch.distributed.run"]
    given = {words[at]: words[at + 1] for at in range(3, len(words) - 1) if words[at].startswith("--")}
    assert given["--nnodes"] == "2" and given["--node-rank"] == "1" and given["--ranks"] == "2"
    assert given["--master-addr"] == "10.213.7.2" and given["--master-port"] == "29400"
    assert given["--sizes-mib"] == "1,0.5" and given["--name"] == "n3" and given["--max-restarts"] == "0"
    assert share["environment"]["GLOO_SOCKET_IFNAME"] == "eth0"
    assert share["user"] == "gpufleet"
    alone = collective.job("n1", found["n1"], launches, SETTINGS)["argv"]
    assert alone[alone.index("--master-addr") + 1] == "127.0.0.1"


def test_a_good_collective_makes_a_passing_fleet() -> None:
    told = judged(["n1", "n2"], {"n1": share(result=good(2)), "n2": share()})
    assert told["verdict"] == "pass"
    assert {key: told["collective"][key] for key in ("backend", "world_size", "correct")} == {"backend": "gloo", "world_size": 2, "correct": True}
    assert told["collective"]["rows"] == ROWS
    for host in ("n1", "n2"):
        record = result.record(host, told, "f00")
        assert (record["verdict"], record["fingerprint"], record["date"]) == ("pass", "f00", "2026-11-30T06:20:00Z")
    assert "2 nodes pass" in result.summary(told)


def test_a_pass_of_a_part_of_the_fabric_is_not_recorded_as_one_of_the_whole() -> None:
    found = nodes("n1")
    launches = collective.collectives(["n1"], {"gpu_fabric_a": ["n1", "n2", "n3"], "gpu_hold": ["n3"]}, found)
    told = result.document(["n1"], found, launches, {"n1": share(result=good(1))}, "now")
    assert told["verdict"] == "pass" and told["collective"]["absent"] == ["n2"]
    assert result.record("n1", told, "f00")["verdict"] == "partial"
    assert "without n2" in result.summary(told)


@pytest.mark.parametrize(
    ("answers", "blamed"),
    [
        # A host that stopped answering.
        (
            {
                "n1": share("failed", "exit-code", progress_0=progress(0, 5, "failed", "Timed out")),
                "n2": {"unreachable": True, "msg": "no route"},
            },
            ["n2"],
        ),
        # A rank that hung until its host ended it, while its peer gave up by itself.
        (
            {
                "n1": share("failed", "exit-code", progress_0=progress(0, 5, "failed", "Timed out")),
                "n2": share("failed", "timeout", progress_1=progress(1, 5, "entered")),
            },
            ["n2"],
        ),
        # A rank that died without a word.
        (
            {
                "n1": share("failed", "exit-code", progress_0=progress(0, 5, "failed", "Connection reset by peer")),
                "n2": share("failed", "exit-code", progress_1=progress(1, 5, "entered")),
            },
            ["n2"],
        ),
        # All hung, one of them in an earlier collective than the others.
        (
            {
                "n1": share("failed", "timeout", progress_0=progress(0, 4, "entered")),
                "n2": share("failed", "timeout", progress_1=progress(1, 5, "entered")),
            },
            ["n1"],
        ),
        # All hung in the same collective: it could be any of them.
        (
            {
                "n1": share("failed", "timeout", progress_0=progress(0, 5, "entered")),
                "n2": share("failed", "timeout", progress_1=progress(1, 5, "entered")),
            },
            [],
        ),
        # The job could not be started on one of them.
        ({"n1": share("failed", "signal"), "n2": {"msg": "unit.service could not be started: no such user"}}, ["n2"]),
    ],
)
def test_the_host_that_the_others_waited_for_is_named(answers: dict[str, Any], blamed: list[str]) -> None:
    told = judged(["n1", "n2"], answers)
    assert told["verdict"] == "fail"
    assert told["collective"]["suspects"] == blamed
    assert [entry["name"] for entry in told["nodes"] if entry["verdict"] == "fail"] == (blamed or ["n1", "n2"])
    for host in ("n1", "n2"):
        assert result.record(host, told, "f00")["verdict"] == "fail"
    assert all(host in result.summary(told) for host in blamed)


def test_a_hang_tells_the_last_collective_of_each_rank() -> None:
    answers = {
        "n1": share(
            "failed",
            "timeout",
            progress_0=progress(0, 5, "entered"),
            progress_10=progress(10, 4, "done"),
            progress_2=progress(2, 5, "entered"),
        ),
        "n2": share("failed", "timeout", progress_1=progress(1, 5, "entered")),
    }
    told = judged(["n1", "n2"], answers)
    evidence = next(one for one in told["nodes"][0]["checks"] if one["id"] == "collective.finished")["evidence"]
    assert evidence.split("; ") == [
        "rank 0 entered all_reduce number 5 (number 5)",
        "rank 2 entered all_reduce number 5 (number 5)",
        "rank 10 done all_reduce number 4 (number 4)",
    ]


def test_a_share_that_says_nothing_shows_its_last_lines() -> None:
    answers = {"n1": {**share("failed", "exit-code"), "output": ["one", "", "two", "three", "four"]}, "n2": share("failed", "exit-code")}
    checks = judged(["n1", "n2"], answers)["nodes"][0]["checks"]
    assert next(one for one in checks if one["id"] == "collective.finished")["evidence"] == "two; three; four"


@pytest.mark.parametrize(
    ("change", "blamed", "reason"),
    [
        ({"correct": False, "wrong": [{"rank": 1, "host": "n2", "size_bytes": 4, "elements": 3}]}, ["n2"], "wrong results on n2"),
        ({"correct": False, "ddp": {"different": ["n2"]}}, ["n2"], "wrong results on n2"),
        ({"correct": False, "ddp": {"different": []}}, [], "wrong results on all members"),
        ({"world_size": 1}, [], "1 ranks took part, 2 were wanted"),
    ],
)
def test_a_result_that_is_wrong_never_passes(change: dict[str, Any], blamed: list[str], reason: str) -> None:
    told = judged(["n1", "n2"], {"n1": share(result=good(2, **change)), "n2": share()})
    assert (told["verdict"], told["collective"]["suspects"], told["collective"]["reason"]) == ("fail", blamed, reason)
    assert [entry["name"] for entry in told["nodes"] if entry["verdict"] == "fail"] == blamed


def test_a_good_result_does_not_cover_a_share_that_ended_badly() -> None:
    told = judged(["n1", "n2"], {"n1": share(result=good(2)), "n2": share("failed", "exit-code")})
    assert (told["verdict"], told["collective"]["suspects"]) == ("fail", ["n2"])


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", "null"])
def test_a_result_that_cannot_be_read_is_no_result(text: str) -> None:
    answer = share()
    answer["documents"]["result.json"] = text
    assert judged(["n1"], {"n1": answer})["verdict"] == "fail"


def test_a_missing_node_is_listed_as_failed_and_named() -> None:
    told = judged(["n1", "n2"], {}, nodes("n1"))
    missing = told["nodes"][1]
    assert (missing["name"], missing["verdict"], missing["checks"][0]["id"]) == ("n2", "fail", "node.reachable")
    lines = "\n".join(result.table(told))
    assert "n2" in lines and "did not answer" in lines and lines.splitlines()[-1].startswith("verdict: FAIL")


def test_who_holds_the_gpus_must_be_known_before_a_job_is_started() -> None:
    gpu = {"address": "0000:10:00.0", "uuid": "GPU-0", "device_id": "2330"}
    assert collective.node(observed(gpus=[gpu], busy=None), PLAN, ANSWER)["busy"]
    assert collective.node(observed(busy=None), PLAN, ANSWER)["busy"] == []
    held = collective.node(observed(busy={"jobs": [{"pid": 4711, "name": "python3"}]}), PLAN, ANSWER)
    assert held["busy"] == ["python3 4711"]


def test_a_node_whose_framework_failed_says_why_it_is_not_ready() -> None:
    node = collective.node(observed(), PLAN, {"msg": "the unit could not be started"})
    assert node["ready"] is False
    assert "framework.torch" in node["reason"]
    assert any("the unit could not be started" in one["evidence"] for one in node["checks"])


def test_junit_counts_what_the_verdict_counts() -> None:
    told = judged(["n1", "n2"], {}, nodes("n1"))
    suites = ElementTree.fromstring(result.junit(told))
    assert {suite.get("name"): len(suite.findall("testcase/failure")) for suite in suites} == {"n1": 0, "n2": 1, "collective": 1}


def test_the_page_shows_every_node_escaped_and_fetches_nothing() -> None:
    hosts = ["n1", "<n2>"]
    told = judged(hosts, {"n1": share(result=good(2)), "<n2>": share()})
    html = report.html(told)
    assert "<n2>" not in html and "&lt;n2&gt;" in html
    assert html.count("<details") == 2 and html.count("<circle") == 2 * len(ROWS)
    for outside in ("<script", "http://", "https://", "url(", "@import", "<link", "<img"):
        assert outside not in html
    assert "prefers-color-scheme:dark" in html


def test_failed_nodes_come_first_and_open() -> None:
    html = report.html(judged(["n1", "n2"], {}, nodes("n1")))
    assert html.index('<details id="n0" open>') < html.index("<b>n2</b>") < html.index("<b>n1</b>")


def test_the_page_of_a_large_fleet_stays_small() -> None:
    hosts = [f"node{number:04d}" for number in range(1000)]
    answers: dict[str, Any] = {host: share() for host in hosts}
    answers[hosts[0]] = share(result=good(1000))
    told = judged(hosts, answers)
    assert told["verdict"] == "pass"
    assert len(report.html(told)) < 5_000_000
    assert len(result.table(told)) < 60


@pytest.mark.parametrize(
    ("most", "marks"),
    [(0.12, [0, 0.05, 0.1, 0.15]), (1.0, [0, 0.25, 0.5, 0.75, 1.0]), (480, [0, 200, 400, 600]), (0, [0, 1])],
)
def test_axes_have_round_marks_that_cover_the_data(most: float, marks: list[float]) -> None:
    assert page.steps(most) == pytest.approx(marks)


def test_sizes_are_told_in_their_own_unit() -> None:
    assert [page.size(count) for count in (4, 1 << 20, 64 << 20, 1 << 33)] == ["4 B", "1 MiB", "64 MiB", "8 GiB"]


def test_a_chart_of_one_size_is_drawn_and_of_none_is_not() -> None:
    assert "<circle" in page.chart([page.Curve("busbw", "a", [(1 << 20, 0.0)])], "GB/s", "x")
    assert page.chart([page.Curve("busbw", "a", [])], "GB/s", "x") == ""
