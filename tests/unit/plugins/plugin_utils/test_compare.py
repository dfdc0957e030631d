# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes differ from their siblings, and in what."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter import topology as filters
from ansible_collections.gpu.fleet.plugins.plugin_utils import _compare
from fixtures import topologies as made
from fixtures.stack import driver

ONE = {"x": "x"}


def hosts(*values: Any) -> dict[str, Any]:
    """Return hosts n1, n2, ... whose only fact is x."""
    return {f"n{number}": {"x": value} for number, value in enumerate(values, 1)}


def only(*values: Any) -> dict[str, Any] | None:
    """Return what is told of x, or None when that is nothing."""
    fields = _compare.compare(hosts(*values), {}, ONE)["fields"]
    assert len(fields) < 2
    return fields[0] if fields else None


def fleet(number: int = 4) -> dict[str, dict[str, Any]]:
    return {f"n{place}": copy.deepcopy(made.eight()) for place in range(1, number + 1)}


@pytest.mark.parametrize(
    ("values", "majority", "odd", "unknown"),
    [
        ([1, 1, 1, 2], (1, 3), [(2, ["n4"])], []),
        ([2, 1, 3, 1, 1], (1, 3), [(2, ["n1"]), (3, ["n3"])], []),
        # Two that differ, ties, and a most common value that less than half have: nobody is called odd alone.
        ([1, 2], None, [(1, ["n1"]), (2, ["n2"])], []),
        ([1, 2, 2, 1], None, [(1, ["n1", "n4"]), (2, ["n2", "n3"])], []),
        ([1, 2, 2, 3], None, [(2, ["n2", "n3"]), (1, ["n1"]), (3, ["n4"])], []),
        # What is not known differs from nothing and outvotes nobody.
        ([1, 1, None], (1, 2), [], ["n3"]),
        ([None, None, 1, 2, 1], (1, 2), [(2, ["n4"])], ["n1", "n2"]),
        ([None, None], None, [], ["n1", "n2"]),
        ([[1, None], [1, 2], [1, 2]], ([1, 2], 2), [], ["n1"]),
        ([[{"a": None}], [{"a": 1}]], ([{"a": 1}], 1), [], ["n1"]),
        ([["a"], [], ["a"]], (["a"], 2), [([], ["n2"])], []),
        ([True, 1, True], (True, 2), [(1, ["n2"])], []),
        (["1", 1, 1], (1, 2), [("1", ["n1"])], []),
    ],
)
def test_a_majority_is_more_than_half_of_those_that_are_known(
    values: list[Any], majority: tuple[Any, int] | None, odd: list[tuple[Any, list[str]]], unknown: list[str]
) -> None:
    told = only(*values)
    assert told is not None
    assert told["majority"] == ({"value": majority[0], "hosts": majority[1]} if majority else None)
    assert [(entry["value"], entry["hosts"]) for entry in told["odd"]] == odd
    assert (told["unknown"], told["known"]) == (unknown, len(values) - len(unknown))


@pytest.mark.parametrize("values", [[], [1], [1, 1], [[1, 2], [2, 1]], [["a", "b", "b"], ["b", "a", "b"]], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]])
def test_equal_nodes_are_not_told_of(values: list[Any]) -> None:
    assert only(*values) is None


def test_lists_count_what_they_hold_twice() -> None:
    told = only(["a", "a", "b"], ["a", "b", "b"], ["a", "a", "b"])
    assert told is not None and told["odd"] == [{"value": ["a", "b", "b"], "hosts": ["n2"]}]


def test_siblings_are_the_hosts_of_one_fabric() -> None:
    groups = {"gpu_fabric_b": ["n3", "n4", "n9"], "gpu_fabric_a": ["n1", "n2", "n3"], "gpu_nodes": ["n1", "n2", "n3", "n4"], "rack": ["n5"]}
    assert _compare.siblings(["n5", "n4", "n3", "n2", "n1", "n6"], groups) == {
        "gpu_fabric_a": ["n3", "n2", "n1"],
        "gpu_fabric_b": ["n4"],
        None: ["n5", "n6"],
    }
    found = _compare.compare(hosts(1, 1, 1, 2, 5, 6), groups, ONE)
    assert [(field["siblings"], [entry["hosts"] for entry in field["odd"]]) for field in found["fields"]] == [(None, [["n5"], ["n6"]])]
    assert found["hosts"] == {"n5": ["x"], "n6": ["x"]}


def test_healthy_siblings_are_alike_in_every_field_by_default() -> None:
    assert _compare.compare(fleet(), {}) == {"hosts": {}, "fields": [], "unobserved": []}
    assert _compare.lines(_compare.compare(fleet(), {})) == []


def test_every_field_by_default_is_known_of_a_healthy_node() -> None:
    odd = {"n1": made.eight(), "n2": {}}
    fields = _compare.compare(odd, {})["fields"]
    assert [field["field"] for field in fields] == list(_compare.DEFAULT_FIELDS)
    assert all(field["unknown"] == ["n2"] and field["known"] == 1 for field in fields)


@pytest.mark.parametrize(
    ("change", "field", "has"),
    [
        (lambda facts: facts["gpus"].__setitem__(3, {**facts["gpus"][3], "device_id": "2331"}), "GPUs", "7 x 2330, 1 x 2331"),
        (lambda facts: facts["gpus"][0].update(model="NVIDIA H200"), "GPU model", "7 x NVIDIA H100 80GB HBM3, 1 x NVIDIA H200"),
        (lambda facts: facts["gpus"][0].update(memory_mib=65536), "GPU memory, MiB", "7 x 81559, 1 x 65536"),
        (lambda facts: facts["gpus"][0].update(pcie=made.link(8)), "GPU PCIe lanes", "7 x 16, 1 x 8"),
        (lambda facts: facts["gpus"][0].update(nvlinks=made.nvlinks(17, 1)), "active NVLinks", "7 x 18, 1 x 17"),
        (lambda facts: facts["gpus"][0].update(nvlinks=[]), "active NVLinks", "7 x 18, 1 x 0"),
        (lambda facts: facts["nvswitches"].pop(), "NVSwitches", "3 x 22a3"),
        (lambda facts: facts.update(nvswitches=[]), "NVSwitches", "none"),
        (lambda facts: facts.update(driver=driver("580.159.04")), "driver", "580.159.04"),
        (lambda facts: facts.update(driver=driver()), "driver", "not loaded"),
        (lambda facts: facts["host"].update(kernel="6.1.0-41-amd64"), "kernel", "6.1.0-41-amd64"),
        (lambda facts: facts["nics"][9].update(firmware="28.39.1002"), "NIC firmware", "9 x 1021 28.41.1000, 1 x 1021 28.39.1002"),
        (lambda facts: facts["nics"][9].update(rate_gbps=200), "NIC ports",
         "7 x InfiniBand ACTIVE 400, 2 x Ethernet ACTIVE 100, 1 x InfiniBand ACTIVE 200"),
        (lambda facts: facts["nics"][0].update(pcie=made.link(8)), "NIC PCIe lanes", "9 x 16, 1 x 8"),
    ],
)  # fmt: skip
def test_a_node_that_is_not_like_its_siblings_is_named(change: Any, field: str, has: str) -> None:
    observed = fleet()
    change(observed["n3"])
    found = _compare.compare(observed, {})
    assert found["hosts"] == {"n3": [field]}
    titles, row = _compare.lines(found)
    assert titles.split() == ["differs", "in", "majority", "nodes", "have"]
    assert row.startswith(field + "  ") and row.endswith("(3 of 4)  n3     " + has)


def test_who_does_not_answer_is_not_called_different() -> None:
    observed = fleet()
    observed["n2"]["driver"] = None
    observed["n2"]["gpus"][4]["nvlinks"] = None
    found = _compare.compare({**observed, "n5": None}, {})
    assert found["hosts"] == {} and found["unobserved"] == ["n5"]
    assert [line.split("  ")[0] for line in _compare.lines(found)] == ["differs in", "active NVLinks", "driver"]
    assert all(line.endswith("n2     not known") for line in _compare.lines(found)[1:])


def test_what_nobody_knows_is_no_line() -> None:
    observed = fleet(2)
    for facts in observed.values():
        facts.update(driver=None)
    found = _compare.compare(observed, {})
    assert [field["unknown"] for field in found["fields"]] == [["n1", "n2"]] and _compare.lines(found) == []


def test_virtual_functions_come_and_go() -> None:
    observed = fleet()
    observed["n1"]["nics"].append(made.nic(20, 0, virtual_function=True, firmware=None, pcie=made.link(None, None)))
    observed["n2"]["nics"].append(made.nic(21, 0, address=None, firmware=None))
    assert _compare.compare(observed, {})["fields"] == []


def test_the_table_names_the_siblings_where_there_are_several_and_counts_many_nodes() -> None:
    groups = {"gpu_fabric_a": ["n1", "n2", "n3"]}
    lines = _compare.lines(_compare.compare(hosts(1, 1, 2, *range(10, 16), 10, 10, 10, 10, 10, 10, 10, 10), groups, ONE))
    assert lines[0].split() == ["siblings", "differs", "in", "majority", "nodes", "have"]
    assert lines[1].split() == ["gpu_fabric_a", "x", "1", "(2", "of", "3)", "n3", "2"]
    assert lines[2].startswith("without fabric  x           10 (9 of 14)")
    one = _compare.lines(_compare.compare(hosts(1, 1, 2, None, None), groups, ONE))
    assert one[0].split()[0] == "differs" and len(one) == 2
    many = _compare.lines(_compare.compare(hosts(*[1] * 6, *[2] * 6), {}, ONE))
    assert many[1].split("  ")[-2].strip().startswith("n1, n2, n3, n4 and 2 more") and "no majority" in many[1]
    five = _compare.lines(_compare.compare(hosts(*[1] * 5, *[2] * 6), {}, ONE))
    assert "n1, n2, n3, n4, n5" in five[1]


@pytest.mark.parametrize(
    ("value", "text"), [([], "none"), (None, "null"), (True, "true"), ([["a", 1], ["a", 1], [[], 2]], "2 x a 1, 1 x none 2"), ({"b": 1}, '{"b": 1}')]
)
def test_values_are_shown_as_a_person_reads_them(value: Any, text: str) -> None:
    assert _compare.shown(value) == text


@pytest.mark.parametrize("expression", ["gpus[", "length(x)", "nofunction(x)", "&x", "x[::0]"])
def test_a_bad_expression_names_itself_in_one_line(expression: str) -> None:
    with pytest.raises(_compare.CompareError) as caught:
        _compare.compare({"n1": {"x": [1]}, "n2": {"x": 2}}, {}, {"good": "x", "mine": expression})
    message = str(caught.value)
    assert message.startswith(f"field 'mine': the JMESPath expression {expression!r} is bad: ") and "\n" not in message


def test_fields_are_chosen_by_expressions_that_may_use_functions() -> None:
    observed = fleet(3)
    observed["n2"]["gpus"].pop()
    fields = {"GPUs": "length(gpus)", "rails": "sort(nics[?link_layer=='InfiniBand'].name)", "all": "keys(@)"}
    found = _compare.compare(observed, {}, fields)
    assert found["hosts"] == {"n2": ["GPUs"]} and found["fields"][0]["odd"] == [{"value": 7, "hosts": ["n2"]}]
    with pytest.raises(_compare.CompareError, match="mapping"):
        _compare.compare(observed, {}, ["gpus"])  # type: ignore[arg-type]


class Text(str):
    """A string with another name, as Ansible's own are."""


def test_ansibles_own_types_are_what_they_stand_for() -> None:
    observed = hosts(Text("a"), "a", Text("bc"))
    found = _compare.compare(observed, {}, {"x": "x", "length": "length(x)"})
    assert [entry["value"] for field in found["fields"] for entry in field["odd"]] == ["bc", 2]
    assert type(found["fields"][0]["odd"][0]["value"]) is str


def test_the_filters_read_what_was_observed_last() -> None:
    facts = fleet(3)
    hostvars: dict[str, dict[str, Any]] = {host: {"ansible_facts": {"gpu_fleet": facts[host]}} for host in facts}
    newer = copy.deepcopy(facts["n2"])
    newer["host"]["kernel"] = "6.1.0-41-amd64"
    hostvars["n2"]["__gpu_stack_observation"] = {"ansible_facts": {"gpu_fleet": newer}}
    hostvars["n4"] = {}
    found = filters.odd_ones_out(["n1", "n2", "n3", "n4"], hostvars)
    assert found["hosts"] == {"n2": ["kernel"]} and found["unobserved"] == ["n4"]
    assert json.loads(json.dumps(found)) == found
    assert len(filters.odd_ones_out_table(["n1", "n2", "n3"], hostvars)) == 2
    assert filters.odd_ones_out_table(["n2"], hostvars) == []
    assert filters.odd_ones_out(["n1", "n2"], hostvars, {}, {"none": "host.name"})["fields"] == []
    offered = filters.FilterModule().filters()
    assert all(call.__name__ == name for name, call in offered.items()) and len(offered) == 3


def test_a_bad_expression_ends_both_filters() -> None:
    hostvars = {host: {"ansible_facts": {"gpu_fleet": facts}} for host, facts in fleet(2).items()}
    for call in (filters.odd_ones_out, filters.odd_ones_out_table):
        with pytest.raises(AnsibleFilterError, match="field 'x'"):
            call(["n1", "n2"], hostvars, {}, {"x": "["})


def test_a_missing_library_says_how_to_get_it_and_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compare, "jmespath", None)
    hostvars = {host: {"ansible_facts": {"gpu_fleet": facts}} for host, facts in fleet(2).items()}
    with pytest.raises(AnsibleFilterError, match="pip install jmespath") as caught:
        filters.odd_ones_out(["n1", "n2"], hostvars)
    assert "\n" not in str(caught.value)
    assert filters.odd_ones_out_table(["n1", "n2"], hostvars) == [_compare.MISSING]
    assert filters.odd_ones_out_table(["n1"], hostvars) == []


def test_a_thousand_hosts_are_compared_in_seconds() -> None:
    observed = dict.fromkeys([f"n{number}" for number in range(1000)], made.eight())
    observed["n500"] = made.sick_eight()
    start = time.process_time()
    found = _compare.compare(observed, {})
    assert time.process_time() - start < 10
    assert list(found["hosts"]) == ["n500"]
