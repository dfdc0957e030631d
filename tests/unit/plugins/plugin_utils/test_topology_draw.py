# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of a node's topology, read back from its SVG."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.gpu.fleet.plugins.filter import topology as filters
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_layout import lanes
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_text import clean, fit, printable, width
from fixtures import topologies as made
from fixtures.sysfs_host import Host
from hypothesis import given, settings
from hypothesis import strategies as st

SVG = "{http://www.w3.org/2000/svg}"
MACHINES: list[Callable[[], dict[str, Any]]] = [
    made.t4, made.two_gpus, made.pairs, made.eight, made.sick_eight, made.sixteen_nics, made.cube, made.mesh, made.no_gpu, made.unknown_eight,
    made.nothing_known,
]  # fmt: skip
SIZES = {"h": 20.0, "n": 12.5}


@dataclass(frozen=True)
class Area:
    """A rectangle of the picture, its classes, and the group that it stands in."""

    styles: frozenset[str]
    left: float
    top: float
    right: float
    bottom: float
    group: ElementTree.Element

    @property
    def texts(self) -> list[ElementTree.Element]:
        """The labels of the group."""
        return list(self.group.iter(f"{SVG}text"))


def draw(facts: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(filters.gpu_topology_draw(facts))


def areas(picture: ElementTree.Element, *styles: str) -> Iterator[Area]:
    for group in picture.iter(f"{SVG}g"):
        for rect in group.findall(f"{SVG}rect"):
            found = frozenset(rect.get("class", "").split())
            if found & {f"b-{style}" for style in styles}:
                x, y, wide, high = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
                yield Area(found, x, y, x + wide, y + high, group)


def keys(picture: ElementTree.Element, kind: str) -> list[str]:
    return [group.get("data-key", "") for group in picture.iter(f"{SVG}g") if group.get("class") == kind]


def state(picture: ElementTree.Element, key: str) -> str | None:
    return next(group.get("data-state") for group in picture.iter(f"{SVG}g") if group.get("data-key") == key)


def words(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def wires(picture: ElementTree.Element, what: str) -> int:
    return sum(path.get("class") == f"w w-{what}" for path in picture.iter(f"{SVG}path"))


def check(facts: dict[str, Any]) -> ElementTree.Element:
    """Draw, and see what holds for every picture."""
    picture = draw(facts)
    assert sorted(keys(picture, "gpu")) == sorted(gpu["address"] for gpu in facts["gpus"] or [])
    assert sorted(keys(picture, "nic")) == sorted(printable(nic["name"]) for nic in facts["nics"] or [])
    boxes = list(areas(picture, "gpu", "nic", "bar", "switch", "bond", "cpu"))
    for one, two in combinations(boxes, 2):
        apart = one.right <= two.left or two.right <= one.left or one.bottom <= two.top or two.bottom <= one.top
        assert apart, (one, two)
    frames = list(areas(picture, "node"))
    for box in areas(picture, "gpu", "nic", "bar", "cpu"):
        inside = [f for f in frames if f.left <= box.left and box.right <= f.right and f.top <= box.top and box.bottom <= f.bottom]
        assert len(inside) == 1
    wide, high = (float(size) for size in picture.get("viewBox", "").split()[2:])
    for box in areas(picture, "gpu", "nic", "bar", "switch", "bond", "node", "plate"):
        assert box.left >= 0 and box.right <= wide and box.top >= 0 and box.bottom <= high
    for box in areas(picture, "gpu", "nic"):
        for text in box.texts:
            styles = (text.get("class") or "").split()
            size = next((SIZES[style] for style in styles if style in SIZES), 11.5)
            x, y, told = float(text.get("x", "")), float(text.get("y", "")), text.text or ""
            half = width(told, size) / 2 if text.get("text-anchor") == "middle" else 0.0
            assert box.left < x - half and x - half + width(told, size, "p" in styles or "n" in styles) < box.right, told
            assert box.top + size < y < box.bottom - 3, told
    return picture


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_every_device_stands_once_and_apart_with_labels_that_fit(machine: Callable[[], dict[str, Any]]) -> None:
    facts = machine()
    before = copy.deepcopy(facts)
    check(facts)
    assert facts == before
    assert filters.gpu_topology_draw(machine()) == filters.gpu_topology_draw(facts)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_a_picture_is_complete_in_itself(machine: Callable[[], dict[str, Any]]) -> None:
    text = filters.gpu_topology_draw(machine())
    picture = ElementTree.fromstring(text)
    assert {node.tag.removeprefix(SVG) for node in picture.iter()} <= {"svg", "style", "rect", "g", "text", "title", "path", "circle"}
    assert not re.search(r"url\(|@import|href|\son\w+=", text)
    assert text.count("http") == 1 and 'xmlns="http://www.w3.org/2000/svg"' in text
    assert len(text) < 64 * 1024
    # Nothing of its style may reach the page that it stands in.
    style = (next(picture.iter(f"{SVG}style")).text or "").split("@media")[0]
    assert all(rule.strip().startswith(".gpu-topology") for selectors in re.findall(r"([^{}]+)\{", style) for rule in selectors.split(","))


@pytest.mark.parametrize(
    "machine", [made.t4, made.pairs, made.eight, made.sixteen_nics, made.cube, made.mesh, made.no_gpu], ids=lambda one: one.__name__
)
def test_a_healthy_node_has_no_mark(machine: Callable[[], dict[str, Any]]) -> None:
    picture = draw(machine())
    assert "no fault seen" in words(picture)
    assert {group.get("data-state") for group in picture.iter(f"{SVG}g")} - {None} == {"good"}


def test_what_is_wrong_is_marked_where_it_is_and_said_in_words() -> None:
    picture = draw(made.sick_eight())
    gpus = [gpu["address"] for gpu in made.sick_eight()["gpus"]]
    assert [state(picture, key) for key in gpus] == ["good", "good", "bad", "good", "good", "bad", "bad", "unknown"]
    assert [name for name in keys(picture, "nic") if state(picture, name) != "good"] == ["mlx5_3", "mlx5_8"]
    assert words(picture)[-10:] == [
        "!", "GPU 2: NVLink 16 of 18 up", "!", "GPU 5: no active NVLink", "!", "GPU 6: PCIe x8 of x16", "!", "mlx5_3: DOWN, Polling",
        "!", "mlx5_8: PCIe x4 of x16",
    ]  # fmt: skip
    assert "5 faults" in words(picture)
    assert (wires(picture, "nvlink-good"), wires(picture, "nvlink-bad"), wires(picture, "nvlink-unknown")) == (5, 2, 1)


def test_switches_are_drawn_as_the_paths_tell() -> None:
    """One GPU and its NIC share several switches on socket 0 and one on socket 1; Ethernet shares none."""
    picture = draw(made.eight())
    bars = sorted((bar.texts[0].text or "", bar.left) for bar in areas(picture, "bar"))
    assert [text for text, _left in bars] == ["PCIe switch · PIX"] * 4 + ["PCIe switches · PXB"] * 4
    place = {box.group.get("data-key"): box for box in areas(picture, "gpu", "nic")}
    gpus = [gpu["address"] for gpu in made.eight()["gpus"]]
    beside = ["mlx5_0", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_7", "mlx5_8", "mlx5_9"]
    assert all(place[gpu].left == place[nic].left for gpu, nic in zip(gpus, beside, strict=True))
    assert len(list(areas(picture, "switch"))) == 4 and "NVLink through 4 NVSwitches" in words(picture)


def test_switches_below_switches_hold_what_is_nearest() -> None:
    picture = draw(made.sixteen_nics())
    texts = [bar.texts[0].text for bar in areas(picture, "bar")]
    assert (texts.count("PCIe switches · PXB"), texts.count("PCIe switch · PIX")) == (4, 8)
    place = {box.group.get("data-key"): box for box in areas(picture, "gpu", "nic")}
    for number, gpu in enumerate(made.sixteen_nics()["gpus"]):
        assert {place[f"mlx5_{2 * number + side}"].left for side in (0, 1)} == {place[gpu["address"]].left}


def test_nvlinks_without_switch_are_drawn_between_the_gpus_that_they_join() -> None:
    assert [text for text in words(draw(made.pairs())) if text.endswith("NVLinks")] == ["12 NVLinks", "12 NVLinks"]
    assert [text for text in words(draw(made.mesh())) if "each to each" in text] == ["4 NVLinks each to each"]
    cube = draw(made.cube())
    assert len(list(areas(cube, "bond"))) == 16 and wires(cube, "bond") == 48


def test_what_gpu_facts_returns_can_be_drawn(tmp_path: Path) -> None:
    """Without a driver the hardware is there, and nobody knows of NVLinks."""
    facts = Host(tmp_path).observe({"hardware"})
    picture = check(facts)
    assert len(keys(picture, "gpu")) == 8 and words(picture).count("NVLink not known") == 8


def test_links_that_lead_nobody_knows_where_are_not_drawn() -> None:
    facts = made.pairs()
    for row in facts["topology"]["gpu_gpu"].values():
        for entry in row.values():
            entry["nvlinks"] = None
    picture = check(facts)
    assert wires(picture, "bond") == 0 and "which GPUs the NVLinks join is not known" in words(picture)


def test_what_is_null_is_not_known() -> None:
    unknown = draw(made.unknown_eight())
    assert {"NUMA node not known", "NUMA node not known, continued"} <= set(words(unknown))
    assert words(unknown).count("model not known") == words(unknown).count("NVLink not known") == words(unknown).count("PCIe not known") == 8
    assert words(unknown)[-1] == "PCIe paths not known: devices are shown without the switches between them"
    assert not list(areas(unknown, "bar")) and wires(unknown, "cpu") == 0
    dark = words(draw(made.nothing_known()))
    assert {"GPUs not known", "NICs not known", "NVSwitches not known", "no fault seen, not all known"} <= set(dark)
    assert not any("no GPU" in text or "no NIC" in text for text in dark)
    some = made.eight()
    one, two = (gpu["address"] for gpu in some["gpus"][:2])
    some["topology"]["gpu_gpu"][one][two]["path"] = some["topology"]["gpu_gpu"][two][one]["path"] = None
    assert words(draw(some))[-1] == "1 of 108 PCIe paths not known"
    assert {"no GPU · 2 NICs", "no fault seen"} <= set(words(draw(made.no_gpu())))


def test_a_switch_whose_devices_say_different_nodes_is_drawn_as_each_says() -> None:
    facts = made.pairs()
    facts["nics"][0]["numa_node"] = 1
    assert [box.texts[0].text for box in areas(check(facts), "bar")] == ["PCIe switch · PIX", "PCIe switch · PIX"]
    facts["nics"][0]["numa_node"] = None
    picture = check(facts)
    assert "NUMA node not known" not in words(picture)


@pytest.mark.parametrize(
    ("changes", "line", "expected"),
    [
        ({"state": "INIT", "physical_state": "LinkUp"}, "INIT, LinkUp", "bad"),
        ({"state": "DOWN", "physical_state": None}, "port DOWN", "bad"),
        ({"state": None}, "port not known", "unknown"),
        ({"rate_gbps": None}, "rate not known", "unknown"),
        ({"link_layer": "Unspecified", "rate_gbps": 100}, "port up 100 Gb/s", "good"),
        ({"rate_gbps": 2.5, "link_layer": "Ethernet"}, "Ethernet 2.5 Gb/s", "good"),
        ({"virtual_function": True, "pcie": made.link(None, None)}, "virtual function", "good"),
        ({"address": None, "pcie": made.link(None, None)}, "no PCI device", "good"),
        ({"pcie": made.link(8)}, "PCIe x8 of x16", "bad"),
        ({"pcie": None}, "PCIe not known", "unknown"),
    ],
)
def test_a_nic_says_how_it_is(changes: dict[str, Any], line: str, expected: str) -> None:
    picture = check(made.facts("n", [], [made.nic(0, 0, **changes)]))
    assert line in words(picture) and state(picture, "mlx5_0") == expected


@pytest.mark.parametrize(
    ("changes", "line", "expected"),
    [
        ({"fabric": {"state": "In Progress", "status": None}}, "fabric: In Progress", "bad"),
        ({"nvlinks": made.nvlinks(0, 18)}, "NVLink 0 of 18 up", "bad"),
        ({"nvlinks": []}, "no active NVLink", "bad"),
        ({"nvlinks": None}, "NVLink not known", "unknown"),
    ],
)
def test_behind_switches_every_link_is_wanted(changes: dict[str, Any], line: str, expected: str) -> None:
    facts = made.eight()
    facts["gpus"][0].update(changes)
    picture = check(facts)
    assert line in words(picture) and state(picture, facts["gpus"][0]["address"]) == expected


def test_links_that_nobody_uses_are_no_fault() -> None:
    facts = made.facts("n", [made.gpu(number, 0, nvlinks=made.nvlinks(0, 12)) for number in range(2)], [])
    picture = check(facts)
    assert words(picture).count("NVLink 0 of 12 up") == 2 and "no fault seen" in words(picture)


def test_text_of_hosts_stays_text() -> None:
    evil = '</text><script>alert("&")</script>'
    facts = made.eight()
    facts["host"]["name"] = evil
    facts["gpus"][0]["model"] = evil + "\x1b[31m\x00\ud800"
    facts["nics"][0]["name"] = evil
    text = filters.gpu_topology_draw(facts)
    assert "<script" not in text and "\x00" not in text
    picture = ElementTree.fromstring(text)
    assert evil in keys(picture, "nic") and evil in words(picture)
    assert clean("a\x07\ufffeb<") == "a\ufffd\ufffdb&lt;"


def test_long_names_are_cut_and_told_in_full() -> None:
    name = "rocep" + "1" * 60
    picture = check(made.facts("n" * 200, [], [made.nic(0, 0, name=name)]))
    group = next(group for group in picture.iter(f"{SVG}g") if group.get("class") == "nic")
    assert (group.findtext(f"{SVG}title") or "").startswith(name) and any(text.endswith("…") for text in words(picture))


def test_texts_are_cut_to_their_room() -> None:
    assert fit("short", 100) == "short"
    for room in (12, 30, 55.5):
        assert width(fit("W" * 40, room), 11.5) <= room


def test_lanes_hold_spans_that_do_not_touch() -> None:
    assert lanes([(0, 10), (11, 20), (5, 15), (21, 30)]) == [0, 0, 1, 0]
    assert lanes([]) == []
    assert lanes([(0, 100), (10, 20), (30, 40)]) == [1, 0, 0]


maybe = st.none
texts = st.text(max_size=24)
links = st.fixed_dictionaries(
    {name: st.one_of(maybe(), st.sampled_from([1, 4, 8, 16])) for name in ("generation", "width", "max_generation", "max_width")}
)
fabrics = st.fixed_dictionaries({"state": texts, "status": st.one_of(maybe(), texts)})
nvlinks = st.lists(st.fixed_dictionaries({"link": st.integers(0, 17), "active": st.booleans(), "rate_gbs": maybe(), "peer": maybe()}), max_size=18)
paths = st.sampled_from([None, "PIX", "PXB", "PHB", "NODE", "SYS"])


@st.composite
def nodes(pick: st.DrawFn) -> dict[str, Any]:
    """Facts of the right shape, whatever they say."""
    numa = st.one_of(maybe(), st.integers(0, 3))
    gpus = [
        made.gpu(
            number, pick(numa), model=pick(st.one_of(maybe(), texts)), pcie=pick(links), nvlinks=pick(st.one_of(maybe(), nvlinks)),
            fabric=pick(st.one_of(maybe(), fabrics)), cpus=pick(st.one_of(maybe(), texts)),
        )
        for number in range(pick(st.integers(0, 8)))
    ]  # fmt: skip
    nics = [
        made.nic(
            number, pick(numa), name=name, address=pick(st.one_of(maybe(), st.just(f"0000:{number:02x}:01.0"))),
            link_layer=pick(st.one_of(maybe(), texts)), state=pick(st.one_of(maybe(), texts)),
            rate_gbps=pick(st.one_of(maybe(), st.integers(0, 800), st.floats(0, 800))),
            pcie=pick(links), virtual_function=pick(st.booleans()),
        )
        for number, name in enumerate(pick(st.lists(texts.map(lambda text: f"mlx{text}"), max_size=16, unique=True)))
    ]  # fmt: skip
    shaken = pick(st.randoms(use_true_random=False))
    choices = pick(st.lists(paths, min_size=1, max_size=6))
    counts = pick(st.lists(st.one_of(maybe(), st.integers(0, 18)), min_size=1, max_size=3))
    joined = made.topology(gpus, nics, lambda _one, _two: shaken.choice(choices), lambda _one, _two: shaken.choice(counts))
    switches = [{"address": f"0000:{number:02x}:02.0", "device_id": "22a3", "numa_node": 0} for number in range(pick(st.integers(0, 6)))]
    whole = made.facts(
        pick(texts), gpus, nics, nvswitches=pick(st.sampled_from([[], None, switches])), topology=pick(st.sampled_from([None, joined]))
    )
    return {**whole, **dict.fromkeys(pick(st.lists(st.sampled_from(["gpus", "nics", "driver", "host"]), max_size=2)))}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(facts=nodes())
def test_any_facts_of_the_right_shape_can_be_drawn(facts: dict[str, Any]) -> None:
    check(facts)
