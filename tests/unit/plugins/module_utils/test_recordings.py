# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readers of recorded output: what they say of whole text, and that damage costs them facts but never truth."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils import _parse_text
from ansible_collections.gpu.fleet.plugins.module_utils._parse_forms import READERS, comparable, one_form
from fixtures import recordings as texts
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tools import recordings as tool
from tools.common import CHECKOUT

CASES = Path(__file__).parents[5] / "shared/cases/topology"
HANDED = tool.recordings(CASES) if (CASES / "INDEX.tsv").is_file() else []
FORMS = {
    "ib": (texts.IBSTAT, texts.IBSTATUS, texts.DEVINFO, texts.NETDEVS, texts.DEVICE_LIST, texts.RDMA_LINK),
    "lspci": (texts.LSPCI, texts.LSPCI_TREE),
    "lstopo": (texts.LSTOPO,),
    "nccl-log": (texts.NCCL_LOG,),
    "nccl-xml": (texts.NCCL_XML,),
    "nvlink": (texts.LINKS,),
    "smi-L": (texts.LIST,),
    "smi-csv": (texts.CSV,),
    "smi-q": (texts.QUERY,),
    "smi-xml": ('<nvidia_smi_log><gpu id="00000000:18:00.0"><product_name>NVIDIA L40S</product_name></gpu></nvidia_smi_log>',),
    "sysfs": (texts.SYSFS,),
    "topo-m": (texts.TABS, texts.BLANKS, texts.MARKDOWN, texts.GLUED, texts.HEADLESS, texts.CUT),
    "topo-p2p": (texts.PEERS,),
}
WHOLE = [(kind, text) for kind, group in FORMS.items() for text in group]


def read(kind: str, text: str) -> dict[str, Any]:
    """Return what a reader says, without its complaints."""
    return {key: value for key, value in READERS[kind](text).items() if key != "problems"}


def problems(kind: str, text: str) -> str:
    """Return the complaints of a reader in one text."""
    return "; ".join(READERS[kind](text)["problems"])


@pytest.mark.skipif(not HANDED, reason="the recordings are not beside the checkout")
@pytest.mark.parametrize(("file", "kind"), HANDED, ids=[file for file, _kind in HANDED])
def test_recording(file: str, kind: str) -> None:
    """Every counted field of every recording at hand is as its answer says."""
    assert [str(word) for word in tool.compare(CASES, file, kind) if isinstance(word, tool.Mismatch)] == []


def test_a_matrix_between_tabs() -> None:
    """Underlines, a prompt, a blank affinity, a wide column and a legend, as drivers print them today."""
    facts = READERS["topo-m"](texts.TABS)
    assert facts == {
        "gpus": 2,
        "gpu_columns": 2,
        "nics": 2,
        "nic_names": ["mlx5_0", "mlx5_bond_1"],
        "pairs": {"NV18": 1},
        "nvlink_per_pair": {"GPU0-GPU1": 18},
        "pair_links": {"GPU0-GPU1": "NV18"},
        "cpu": {"GPU0": "0-31,64-95", "GPU1": ""},
        "numa": {"GPU0": "0", "GPU1": "1"},
        "gpu_numa": {"GPU0": "N/A", "GPU1": "N/A"},
        "nearest": {"GPU0": {"level": "PIX", "nics": ["mlx5_0"]}, "GPU1": {"level": "PXB", "nics": ["mlx5_bond_1"]}},
        "incomplete_rows": [],
        "problems": [],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            texts.BLANKS,
            {
                "nic_names": ["mlx5_0", "rdmap16s27"],
                "cpu": {"GPU0": "0-15", "GPU1": ""},
                "numa": {"GPU0": "N/A", "GPU1": "1"},
                "gpu_numa": {"GPU0": None, "GPU1": None},
                "nearest": {"GPU0": {"level": "PHB", "nics": ["mlx5_0"]}, "GPU1": {"level": "SYS", "nics": ["mlx5_0", "rdmap16s27"]}},
            },
            id="names for columns, and a blank between blanks",
        ),
        pytest.param(
            texts.MARKDOWN,
            {
                "gpus": 2,
                "nics": 1,
                "cpu": {"GPU0": "24-31", "GPU1": "16-23"},
                "numa": {"GPU0": "3", "GPU1": "2"},
                "nearest": {"GPU0": {"level": "SYS", "nics": ["mlx5_0"]}, "GPU1": {"level": "PHB", "nics": ["mlx5_0"]}},
            },
            id="a table with the affinities first",
        ),
        pytest.param(
            texts.GLUED,
            {
                "nics": 2,
                "cpu": {"GPU0": "56-111,168-223", "GPU1": "0-55,112-167"},
                "numa": {"GPU0": "1", "GPU1": "0"},
                "nearest": {"GPU0": {"level": "PXB", "nics": ["NIC1"]}, "GPU1": {"level": "SYS", "nics": ["NIC0", "NIC1"]}},
            },
            id="glued titles, cells and affinities",
        ),
        pytest.param(
            texts.HEADLESS,
            {
                "gpus": 1,
                "gpu_columns": None,
                "nics": 2,
                "nic_names": [None, "mlx5_1"],
                "pair_links": {"GPU0-GPU1": "NV4"},
                "nearest": {"GPU1": {"level": "PIX", "nics": ["mlx5_1"]}},
            },
            id="an excerpt without header, and a legend that the header overwrote",
        ),
        pytest.param(
            texts.CUT,
            {
                "gpus": 3,
                "gpu_columns": 3,
                "pair_links": {"GPU0-GPU1": "NV12", "GPU0-GPU2": "NV12", "GPU1-GPU2": "NV12"},
                "incomplete_rows": ["GPU2"],
                "cpu": {"GPU0": "0-47,96-143", "GPU1": "0-47,96-143", "GPU2": None},
            },
            id="a transcript that ends within a cell",
        ),
        pytest.param(texts.CUT[: texts.CUT.index("GPU2    NV12")] + "GPU2    NV12    NV12     X      NODE    0-47,9", {"incomplete_rows": [],
                     "cpu": {"GPU0": "0-47,96-143", "GPU1": "0-47,96-143", "GPU2": None}}, id="a transcript that ends within a list of CPUs"),
        pytest.param(texts.OTHER_VENDOR, {"gpus": 0, "nics": 0}, id="another vendor's tool"),
        pytest.param("ERROR: Option -m is missing its value.\n", {"gpus": 0, "pairs": {}}, id="an error"),
        pytest.param("\n".join("0: # " + line for line in texts.TABS.splitlines()), {"gpus": 2, "nics": 2}, id="launcher and comment"),
        pytest.param(texts.TABS + texts.PEERS, {"gpus": 2, "pair_links": {"GPU0-GPU1": "NV18"}}, id="a second matrix"),
    ],
)  # fmt: skip
def test_a_matrix_in_other_clothes(text: str, expected: dict[str, Any]) -> None:
    """What pasting does to a matrix does not change what it says."""
    facts = read("topo-m", text)
    assert {key: facts[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("topo-m", texts.GLUED, "cells without a separator"),
        ("topo-m", texts.GLUED, "CPU list and NUMA node were glued"),
        ("topo-m", texts.GLUED.replace("168-2231", "168-2291"), "GPU0: CPU list and NUMA node may be glued"),
        ("topo-m", texts.HEADLESS, "the legend gives no name for NIC0"),
        ("topo-m", texts.CUT, "GPU2 ends after 1 of 4 cells"),
        ("topo-m", texts.TABS.replace("NV18\t X", "X\tNV18"), "shifted"),
        ("topo-m", texts.TABS.replace("GPU1\tNV18", "GPU1\tNV4"), "the rows of GPU0-GPU1 disagree"),
        ("topo-m", texts.TABS.replace("GPU0\t X \t", "GPU0\t X \tSYS\t"), "more cells than there are columns"),
        ("topo-m", texts.TABS.replace("SYS\t0-31", "\t0-31"), "GPU0 has a blank cell"),
        ("topo-m", texts.TABS.replace("GPU1\tNIC0", "GPU0\tNIC0"), "names a column twice"),
        ("topo-m", texts.OTHER_VENDOR, "no matrix"),
        ("topo-m", "GPU0 CPU Affinity NUMA Affinity\n GPU0     X 3\n\nLegend:", "the affinities of GPU0 cannot be told apart"),
        ("topo-m", "76 NICs found in the topology, only displaying 56 in the matrix.\n" + texts.TABS, "only 56 of 76 NICs"),
        ("smi-L", texts.LIST, "GPU 2 has no UUID of its own"),
        ("smi-csv", texts.CSV, "a row has 2 cells for 4 columns"),
        ("smi-q", texts.QUERY, "3 GPUs announced, 2 described"),
        ("ib", texts.DEVINFO, "mlx5_1 has no port"),
        ("lspci", texts.LSPCI_TREE, "NVIDIA Corporation Device 9999"),
        ("nccl-xml", texts.NCCL_XML.replace("</system>", ""), "no element found"),
    ],
)
def test_damage_is_told(kind: str, text: str, said: str) -> None:
    """Nothing is left out in silence."""
    assert said in problems(kind, text)


def test_which_gpus_may_access_each_other() -> None:
    """Each direction counts for itself, and one pair that may not is enough."""
    facts = read("topo-p2p", texts.PEERS)
    assert (facts["gpus"], facts["directed_status"], facts["p2p_ok"]) == (3, {"OK": 4, "NS": 2}, False)
    assert read("topo-p2p", texts.PEERS.replace("NS", "OK"))["p2p_ok"]


def test_gpus_and_their_links() -> None:
    """MIG devices are no GPUs, a line that is cut is none either, and a message is kept where there are no links."""
    facts = read("smi-L", texts.LIST)
    assert (facts["gpus"], facts["names"], facts["mig_profiles"]) == (2, ["NVIDIA H100 80GB HBM3"], ["3g.40gb", "1g.10gb+me"])
    assert read("nvlink", texts.LINKS) == {
        "gpus": 2,
        "links": {
            "0": {"name": "NVIDIA A100-SXM4-80GB", "active": 1, "gbps": 25.0, "message": None},
            "1": {"name": "NVIDIA L40S", "active": 0, "gbps": None, "message": "Device does not have or support Nvlink"},
        },
    }


def test_a_table_with_and_without_its_header() -> None:
    """The header is told from the rows by its words, and a cut row is not read."""
    facts = read("smi-csv", texts.CSV)
    assert (facts["rows"], facts["header"], facts["columns"]) == (2, True, 4)
    assert facts["table"][1]["memory.total [MiB]"] == "81920 MiB"
    bare = read("smi-csv", texts.CSV.split("\n", 1)[1])
    assert (bare["rows"], bare["header"], bare["columns"]) == (2, False, 4)
    assert read("smi-csv", 'Field "nmae" is not a valid field to query.\n')["rows"] == 0


def test_a_report_for_people() -> None:
    """A MIG device's section does not speak for its GPU, and a header that is cut is no GPU."""
    assert read("smi-q", texts.QUERY) == {
        "driver": "580.95.05",
        "cuda": "13.0",
        "attached": 3,
        "gpus": 2,
        "bus": ["00000000:19:00.0", "00000000:3B:00.0"],
        "names": ["NVIDIA H100 80GB HBM3"],
        "mig": ["Enabled", "N/A"],
        "fabric": ["Completed", None],
    }


@pytest.mark.parametrize("text", [texts.IBSTAT, texts.IBSTATUS, texts.DEVINFO, texts.RDMA_LINK], ids=["ibstat", "ibstatus", "ibv_devinfo", "rdma"])
def test_a_port_in_the_words_of_each_tool(text: str) -> None:
    """One port, whichever tool speaks of it."""
    device = one_form("devices", read("ib", text)["devices"])["mlx5_0"]
    assert device["state"] == "active"
    assert device["phys"] in ("linkup", None)
    assert device["rate"] in (400, None)
    assert device["ports"][0]["port"] == 1


def test_rdma_devices_of_lists() -> None:
    """Names alone, interfaces of both forms, and sysfs with either separator."""
    assert list(read("ib", texts.DEVICE_LIST)["devices"]) == ["rdmap16s27", "rocep145s0"]
    devices = read("ib", texts.NETDEVS)["devices"]
    assert [(device["netdev"], device["netdev_state"]) for device in devices.values()] == [("ib0", "Up"), ("ens1f1", "Down")]
    facts = read("sysfs", texts.SYSFS)
    assert (facts["devices"], facts["ib"], facts["eth"], facts["rates"]) == (3, ["mlx5_0"], ["mlx5_bond_0"], ["400 Gb/sec (4X NDR)"])


def test_pci_functions_of_lists_and_trees() -> None:
    """A class, or in a tree the name of a chip, makes a GPU; an audio function and an unknown device do not."""
    facts = read("lspci", texts.LSPCI)
    assert (facts["gpus"], facts["nvswitch"], facts["nic_functions"], facts["functions"]) == (1, 1, 1, 5)
    bare = re.sub(r" \[[0-9a-f]{4}(?::[0-9a-f]{4})?\]", "", texts.LSPCI)
    assert [read("lspci", bare)[key] for key in ("gpus", "nvswitch", "nic_functions")] == [1, 1, 1]
    numbers = "0001:00:00.0 0302: 10de:2330 (rev a1)\n0002:00:00.0 0680: 10de:22a3\n0003:00:00.0 0207: 15b3:1021\n"
    assert [read("lspci", numbers)[key] for key in ("gpus", "nvswitch", "nic_functions")] == [1, 1, 1]
    tree = read("lspci", texts.LSPCI_TREE)
    assert (tree["gpus"], tree["nvswitch"], tree["nic_functions"]) == (1, 0, 1)


def test_topologies_in_xml() -> None:
    """hwloc's and NCCL's own ways to draw one host."""
    assert read("lstopo", texts.LSTOPO) == {
        "version": "2.0",
        "packages": 1,
        "numa": 1,
        "pus": 2,
        "nvidia_display_pci": ["0000:18:00.0"],
        "osdev": ["cuda0", "card1"],
        "distances": ["NUMALatency", "NVLinkBandwidth(hetero)"],
    }
    facts = read("nccl-xml", texts.NCCL_XML)
    assert facts["cpus"] == [{"numaid": "0", "cpulist": "0-3,48-71"}, {"numaid": "1", "cpulist": None}]
    assert facts["gpu_bus"] == ["0000:0f:00.0", "0000:83:00.0"]
    assert (facts["nvlinks_per_gpu"], facts["nvlink_targets"], facts["net_names"]) == ([0, 5], [0, 2], ["mlx5_0", "mlx5_1", "eth0"])
    assert facts["nearest"] == {
        "0000:0f:00.0": {"level": "PIX", "nics": ["mlx5_0"]},
        "0000:83:00.0": {"level": "PXB", "nics": ["mlx5_1"]},
    }


def test_a_log_of_many_ranks() -> None:
    """Prefixes of launchers, lines that run into each other, and values that end a sentence."""
    assert read("nccl-log", texts.NCCL_LOG) == {
        "nccl": ["2.18.5"],
        "network": ["IBext"],
        "hcas": [["mlx5_0", "IB"], ["mlx5_bond_0", "RoCE"]],
        "oob": ["ib0"],
        "bootstrap": ["ib0"],
        "env": [["NCCL_IB_DISABLE", "0"]],
        "p2p_unsupported": False,
        "gdrdma": True,
        "warns": ["NET/IB : Got completion with error 12"],
    }


@pytest.mark.parametrize(
    ("field", "spellings"),
    [
        ("state", ["Active", "4: ACTIVE", "PORT_ACTIVE", "PORT_ACTIVE (4)", " active "]),
        ("state", ["Initializing", "2: INIT", "PORT_INIT (2)"]),
        ("phys", ["LinkUp", "5: LinkUp", "LINK_UP"]),
        ("rate", ["200", "200 Gb/sec (4X HDR)", "200 Gb/sec (2X NDR)", "200 (HDR)"]),
        ("numa", [None, "", "N/A", "[N/A]", "None"]),
        ("attached", [8, "8", "8."]),
        ("bus", ["00000000:3B:00.0", "0000:3b:00.0", "3b:00.0"]),
        ("devices", [["mlx5_0"], {"mlx5_0": {}}]),
        ("pair_links", [{"GPU10-GPU2": "NV4"}, {"GPU2-GPU10": "NV4"}]),
        ("names", [["b", "a", "b"], ["a", "b"]]),
        ("osdev", [["cuda0", "sda", "hsi0", "mlx5_0"], ["cuda0", "mlx5_0"]]),
        ("gpu_lines", [["x" * 70 + "y"], ["x" * 70]]),
        ("env", [[["B", "1."], ["A", "x"]], [["A", "x"], ["B", "1"]]]),
    ],
)
def test_one_form_for_all_spellings(field: str, spellings: list[Any]) -> None:
    """Whatever a tool calls it, one value has one form; the form is its own form."""
    forms = [one_form(field, spelling) for spelling in spellings]
    assert all(form == forms[0] for form in forms)
    assert one_form(field, forms[0]) == forms[0]


def test_forms_keep_apart_what_differs() -> None:
    """A form that made everything equal would be worth nothing."""
    assert one_form("state", "Active") != one_form("state", "Down")
    assert one_form("rate", "200") != one_form("rate", "400 Gb/sec (4X NDR)")
    assert one_form("nearest", {"GPU0": {"level": "PIX"}}) != one_form("nearest", {"GPU0": {"level": "PXB"}})
    told, asked = comparable("devices", {"mlx5_0": {"state": "Down", "rate": "40"}}, {"mlx5_0": {"state": "PORT_ACTIVE"}})
    assert told == {"mlx5_0": {"state": "down"}} != asked
    told, asked = comparable("devices", {"mlx5_0": {}, "mlx5_1": {}}, ["mlx5_0"])
    assert told != asked
    told, asked = comparable("devices", {"mlx5_0": {"rate": "100"}}, {"mlx5_0": {"rate": None}})
    assert told != asked


def test_the_page_says_which_fields_count() -> None:
    """docs/recordings.md has the table that the tool uses, and every dispute."""
    page = (CHECKOUT / "docs/recordings.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")]
    counted = {row[0].strip("`"): tuple(re.findall(r"`(\w+)`", row[2])) for row in rows if len(row) == 3 and row[0].strip("`") in READERS}
    assert counted == tool.COUNTED
    assert set(tool.COUNTED) == set(READERS)
    assert {(rule.kind, rule.field, rule.reason) for rule in tool.DISPUTES} <= {(row[0].strip("`"), row[1].strip("`"), row[-1]) for row in rows}


def test_the_tool_counts_and_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One recording that matches, one that does not, one that is missing, and one whose answer is disputed."""
    (tmp_path / "samples/smi-L").mkdir(parents=True)
    (tmp_path / "samples/topo-m").mkdir()
    (tmp_path / "expected").mkdir()
    (tmp_path / "samples/smi-L/good.txt").write_text(texts.LIST)
    (tmp_path / "samples/smi-L/utf16.txt").write_text(texts.LIST, encoding="utf-16")
    (tmp_path / "samples/topo-m/two.txt").write_text(texts.TABS)
    (tmp_path / "expected/smi-L__good.json").write_text('{"gpus": 2, "note": "not counted"}')
    (tmp_path / "expected/smi-L__utf16.json").write_text('{"gpus": 3, "names": ["NVIDIA H100 80GB HBM3"]}')
    (tmp_path / "expected/topo-m__two.json").write_text('{"gpus": 2, "pairs": {"NV18": 1}, "pair_links": {}}')
    index = "file\tkind\tnotes\nsmi-L/good.txt\tsmi-L\t\n"
    (tmp_path / "INDEX.tsv").write_text(index + 'smi-L/utf16.txt\tsmi-L\t"a ""note"""\nsmi-L/gone.txt\tsmi-L\t\ntopo-m/two.txt\ttopo-m\t\n')
    assert tool.main(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "smi-L/utf16.txt: gpus: expected 3, got 2"
    assert lines[1].startswith("smi-L/gone.txt: recording: ")
    assert lines[2] == "topo-m/two.txt: pair_links: not counted, the answer counts pairs of GPUs that it does not list"
    assert lines[3:] == ["matched 2 of 4"]
    (tmp_path / "INDEX.tsv").write_text(index)
    assert tool.main(tmp_path) == 0
    assert capsys.readouterr().out == "matched 1 of 1\n"
    assert tool.main(tmp_path / "nowhere") == 2


def matrix(gpus: int, nics: int, order: list[str] | None = None, separator: str = "\t") -> tuple[str, dict[str, dict[str, str]]]:
    """Return a matrix in which every pair has a cell of its own, so that a shifted one shows, and its cells."""
    devices = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(nics)]
    levels = itertools.cycle(("PIX", "PXB", "PHB", "NODE", "SYS"))
    cells: dict[str, dict[str, str]] = {device: {device: "X"} for device in devices}
    for number, (one, two) in enumerate(itertools.combinations(devices, 2)):
        cells[one][two] = cells[two][one] = f"NV{number + 1}" if two.startswith("GPU") else next(levels)
    columns = order or devices
    rows = [separator + separator.join([*columns, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for number, device in enumerate(devices):
        end = [f"{number}-{number + 7}", str(number), "N/A"] if device.startswith("GPU") else []
        rows.append(separator.join([device, *(cells[device][column] for column in columns), *end]))
    return "\n".join(rows) + "\n", cells


def untrue(facts: dict[str, Any], cells: dict[str, dict[str, str]]) -> list[str]:
    """Return what a reader says of a matrix that the matrix does not say."""
    found = [pair for pair, cell in facts["pair_links"].items() for one, two in [pair.split("-")] if cells.get(one, {}).get(two) != cell]
    for gpu, near in facts["nearest"].items():
        found += [f"{gpu} {nic}" for nic in near["nics"] if cells.get(gpu, {}).get(nic) != near["level"]]
    for gpu, cpus in facts["cpu"].items():
        found += [f"{gpu} {cpus}"] if cpus and cpus != f"{gpu[3:]}-{int(gpu[3:]) + 7}" else []
    for gpu, node in facts["numa"].items():
        found += [f"{gpu} node {node}"] if node and node != gpu[3:] else []
    return found


@pytest.mark.parametrize(("gpus", "nics"), [(0, 0), (0, 3), (1, 0), (1, 4), (8, 56), (16, 0), (16, 10)])
@pytest.mark.parametrize("separator", ["\t", "    "])
def test_matrices_of_any_size(gpus: int, nics: int, separator: str) -> None:
    """From no GPU to sixteen, with as many NICs as the driver prints."""
    text, cells = matrix(gpus, nics, separator=separator)
    facts = READERS["topo-m"](text)
    assert facts["gpus"] == gpus
    assert len(facts["pair_links"]) == gpus * (gpus - 1) // 2
    if gpus:
        assert (facts["gpu_columns"], facts["nics"], facts["problems"]) == (gpus, nics, [])
    assert untrue(facts, cells) == []


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 16), st.integers(0, 6), st.randoms(use_true_random=False), st.sampled_from(["\t", "   "]))
def test_reordered_columns_say_the_same(gpus: int, nics: int, chance: random.Random, separator: str) -> None:
    """Columns in any order are read by their titles."""
    order = [f"GPU{number}" for number in range(gpus)] + [f"NIC{number}" for number in range(nics)]
    chance.shuffle(order)
    text, cells = matrix(gpus, nics, order, separator)
    facts = READERS["topo-m"](text)
    assert untrue(facts, cells) == []
    assert len(facts["pair_links"]) == gpus * (gpus - 1) // 2


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 8), st.integers(0, 4), st.data(), st.sampled_from(["\t", "   "]))
def test_a_damaged_matrix_loses_facts_but_never_truth(gpus: int, nics: int, data: st.DataObject, separator: str) -> None:
    """A cut, a lost cell or title, glued neighbours, a row too often: none of it moves a value to another device."""
    text, cells = matrix(gpus, nics, separator=separator)
    rows = [line.split(separator) for line in text.splitlines()]
    row = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.integers(1, max(1, min(len(rows[row]) - 2, gpus + nics - 1))))
    kind = data.draw(st.sampled_from(["cut", "lose", "glue", "double", "swap titles", "drop row", "swap rows"]))
    if kind == "lose" and place < len(rows[row]):
        del rows[row][place]
    elif kind == "glue" and place + 1 < len(rows[row]):
        rows[row][place : place + 2] = ["".join(rows[row][place : place + 2])]
    elif kind == "double":
        rows[row].insert(place, rows[row][place])
    elif kind == "swap titles" and gpus + nics > place:
        rows[0][place], rows[0][place + 1] = rows[0][place + 1], rows[0][place]
    elif kind == "drop row":
        del rows[row]
    elif kind == "swap rows":
        other = data.draw(st.integers(1, len(rows) - 1))
        rows[row], rows[other] = (rows[other], rows[row]) if row else (rows[row], rows[other])
    damaged = "\n".join(separator.join(line) for line in rows)
    if kind == "cut":
        damaged = text[: data.draw(st.integers(0, len(text)))]
    facts = READERS["topo-m"](damaged)
    assert untrue(facts, cells) == []
    assert set(facts["cpu"]) <= {f"GPU{number}" for number in range(gpus)}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(WHOLE), st.integers(0, 2000), st.integers(0, 30), st.text(max_size=10), st.randoms(use_true_random=False))
def test_damage_never_raises_nor_invents_a_gpu(case: tuple[str, str], at: int, length: int, rubbish: str, chance: random.Random) -> None:
    """Cut, overwritten and reordered text of every kind; a GPU that is read was in the text."""
    kind, text = case
    lines = text.splitlines(keepends=True)
    chance.shuffle(lines)
    most = READERS[kind](text).get("gpus", 0)
    at %= len(text) + 1
    for damaged in (text[:at], text[at:], text[:at] + rubbish + text[at + length :], "".join(lines)):
        facts = READERS[kind](damaged)
        json.dumps(facts)
        assert isinstance(facts["problems"], list)
        if "GPU" not in rubbish and not any(character.isdigit() for character in rubbish):
            assert facts.get("gpus", 0) <= most


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(WHOLE), st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-8-sig", "latin-1", "cp1252"]), st.binary(max_size=4))
def test_wrong_encodings_are_survived(case: tuple[str, str], encoding: str, rubbish: bytes) -> None:
    """Text in the encodings of the world, with bytes that no encoding has."""
    kind, text = case
    data = text.encode(encoding)
    assert READERS[kind](_parse_text.decode(data)) == READERS[kind](text)
    READERS[kind](_parse_text.decode(data[:40] + rubbish + data[40:]))
    READERS[kind](_parse_text.decode(rubbish + data))


@settings(max_examples=200, deadline=None)
@given(st.text())
@example("GPU" + "9" * 5000 + "\t X \n")
@example("GPU 0: NVIDIA (UUID: GPU-1)\n\tLink " + "9" * 5000 + ": 25 GB/s\n")
@example('<system><cpu affinity="' + "f" * 9999 + '"/><gpu><nvlink count="\u00b2"/></gpu></system>')
@example("CA '\u00b2'\n/sys/class/infiniband/\u00b2/ports/1/state\t4: ACTIVE\nCA 'mlx5_\u0663'\n")
@example(" " * 60000 + "\n" + "a1" * 30000 + "\n" + "-+" * 30000)
@example("<nvidia_smi_log><attached_gpus>" + "9" * 400 + "</attached_gpus></nvidia_smi_log>")
def test_any_text_is_survived(text: str) -> None:
    """No reader raises, and none finds a GPU in nothing."""
    for kind, reader in READERS.items():
        facts = reader(text)
        assert facts.get("gpus", 0) == 0 or re.search("(?i)gpu|nvidia|10de|pci", text), kind
