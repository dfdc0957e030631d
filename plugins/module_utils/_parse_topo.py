# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts of C(nvidia-smi topo -m) and C(topo -p2p) out of their text."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils import _parse_matrix
from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import RDMA_NAME, closest, lines
from ansible_collections.gpu.fleet.plugins.module_utils._rdma import natural

if t.TYPE_CHECKING:
    from ansible_collections.gpu.fleet.plugins.module_utils._parse_matrix import Matrix, Row

# SOC is what drivers up to 384 called SYS, PSB what DCGM calls the switch of a board.
PATHS = r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB|X"
OLD_NAMES = {"SOC": "SYS", "PSB": "PIX"}
PEERS = r"OK|CNS|GNS|TNS|NS|DR|U|X"
CPU_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")
LEGEND = re.compile(r"\bNIC(\d+)\s*[:=][ \t]*")
# Blanks by which a value may stand beside its title; titles are 16 apart.
OUT_OF_LINE = 4
HIDDEN = re.compile(r"(\d+) NICs found in the topology, only displaying (\d+)")
WHOLE = re.compile(r"(%s)\s*(?=$|->|=>|\(|#|NIC\d+\s*[:=])" % RDMA_NAME)


def nic_legend(text: str) -> tuple[dict[str, str | None], list[str]]:
    """RDMA names by NIC label. A driver with many NICs writes rests of its header here: what is no name is None."""
    names: dict[str, str | None] = {}
    problems: list[str] = []
    pending: str | None = None
    for line in lines(text):
        marks = list(LEGEND.finditer(line))
        if pending and not marks and line.strip():
            name = line.strip()
            names[pending] = name if re.match(RDMA_NAME + "$", name) else None
        pending = None
        for mark in marks:
            label = "NIC%s" % mark.group(1)
            found = WHOLE.match(line, mark.end())
            if not line[mark.end():].strip():
                pending = label
            elif label not in names:
                names[label] = found.group(1) if found else None
    problems += ["the legend gives no name for %s" % label for label, name in names.items() if name is None]
    return names, problems


def ranges(cpus: str) -> list[tuple[int, int]]:
    """First and last CPU of each part of a list."""
    return [(int(part.split("-")[0]), int(part.split("-")[-1])) for part in cpus.split(",")]


def rises(cpus: str) -> bool:
    """Whether a list of CPUs can be whole: no range ends before it begins."""
    return all(first <= last for first, last in ranges(cpus))


def even(cpus: str) -> bool:
    """Whether a list has several ranges, all of one length, as hosts with two threads a core write them."""
    lengths = [last - first for first, last in ranges(cpus)]
    return len(lengths) > 1 and lengths[0] > 0 and len(set(lengths)) == 1


def unglue(word: str) -> tuple[str, str] | None:
    """C("56-111,168-2231") is the list C("56-111,168-223") and node 1: only where that makes its ranges even, and they were not."""
    if even(word):
        return None
    for digits in (1, 2):
        cpus, node = word[:-digits], word[-digits:]
        if CPU_LIST.match(cpus) and even(cpus):
            return cpus, node
    return None


def by_place(row: Row, titles: dict[str, int], problems: list[str]) -> dict[str, str | None]:
    """Affinities that are fewer than their titles, told apart by where they stand or what they look like."""
    names = list(titles)
    values: dict[str, str | None] = dict.fromkeys(names, "")
    if row.places is None:
        # With a GPU NUMA ID, the NUMA column is two tabs wide: its second field is padding.
        wide = len(names) == 3 and len(row.rest) > 3
        for place, word in enumerate(row.rest):
            if word:
                values[names[min(place - (wide and place > 1), len(names) - 1)]] = word
        return values
    for word, place in zip(row.rest, row.places):
        if CPU_LIST.match(word) and ("-" in word or "," in word):
            name = "cpu" if "cpu" in names else names[0]
        elif word == "N/A" and place == row.places[-1] and "gpu_numa" in names:
            name = "gpu_numa"
        else:
            name = min(names, key=lambda title: abs(titles[title] - place))
            if abs(titles[name] - place) > OUT_OF_LINE:
                name = ""
        if not name or values[name]:
            problems.append("the affinities of %s cannot be told apart" % row.label)
            return dict.fromkeys(names)
        values[name] = word
    return values


def affinities(row: Row, titles: dict[str, int] | None, problems: list[str]) -> dict[str, str | None]:
    """CPU list, NUMA node and the GPU's own node; None is unknown, an empty text a blank cell."""
    nothing: dict[str, str | None] = dict.fromkeys(_parse_matrix.TITLES)
    words = [word for word in row.rest if word]
    if not words and row.last:
        return nothing
    if titles is None:
        titles = dict.fromkeys(list(_parse_matrix.TITLES)[: len(words)], 0)
    names = list(titles)
    if len(words) > len(names):
        if names:
            problems.append("%s has %d affinities for %d titles" % (row.label, len(words), len(names)))
        return nothing
    if len(words) == len(names) - 1 and row.places is not None and names[:2] == ["cpu", "numa"] and CPU_LIST.match(words[0]):
        parts = unglue(words[0])
        if parts:
            problems.append("%s: CPU list and NUMA node were glued" % row.label)
            words = [*parts, *words[1:]]
        elif "," in words[0] and not even(words[0]):
            problems.append("%s: CPU list and NUMA node may be glued" % row.label)
            return nothing
    if len(words) == len(names):
        return {**nothing, **dict(zip(names, words))}
    return {**nothing, **by_place(row, titles, problems)}


def distrust_end(facts: dict[str, t.Any], matrix: Matrix) -> None:
    """What a transcript ends with may be cut: the last affinity is unknown unless it is sure to be whole."""
    row = next((row for row in matrix.rows.values() if row.last), None)
    told = [name for name in _parse_matrix.TITLES if row and facts[name].get(row.label)]
    if row is None or not told:
        return
    name, value = told[-1], facts[told[-1]][row.label]
    others = {other for label, other in facts[name].items() if label != row.label and other}
    if value == "N/A" or value in others:
        return
    missing = matrix.titles is not None and name != list(matrix.titles)[-1]
    shorter = any(other.startswith(value) for other in others) or "N/A".startswith(value)
    if missing or shorter or (name == "cpu" and not (CPU_LIST.match(value) and rises(value))):
        facts[name][row.label] = None
        facts["problems"].append("the text ends within the affinities of %s" % row.label)


def pairs_of(matrix: Matrix, problems: list[str]) -> dict[str, str]:
    """Each pair of GPUs once, from whichever row has it; a pair whose rows disagree is left out."""
    pairs: dict[str, str] = {}
    refused: set[str] = set()
    for label, row in matrix.rows.items():
        if not label.startswith("GPU"):
            continue
        for other, cell in zip(matrix.columns, row.cells):
            if not other.startswith("GPU") or other == label or cell is None:
                continue
            pair = "-".join(sorted((label, other), key=natural))
            if pairs.setdefault(pair, cell) != cell:
                refused.add(pair)
    problems += ["the rows of %s disagree" % pair for pair in sorted(refused, key=natural)]
    return {pair: cell for pair, cell in pairs.items() if pair not in refused}


def count(values: t.Iterable[str]) -> dict[str, int]:
    """How often each value is there."""
    totals: dict[str, int] = {}
    for value in values:
        totals[value] = totals.get(value, 0) + 1
    return totals


def nearest(row: Row, matrix: Matrix, names: dict[str, str | None]) -> dict[str, t.Any] | None:
    """The NICs at the best level of a GPU's row, by the names of the legend."""
    cells = [(column, cell) for column, cell in zip(matrix.columns, row.cells) if cell and not column.startswith("GPU")]
    return closest([(OLD_NAMES.get(cell, cell), names.get(column) or column) for column, cell in cells])


def read_matrix(text: str) -> dict[str, t.Any]:
    """Read C(topo -m): who reaches whom how, where the CPUs of each GPU are, and which NICs are nearest."""
    names, problems = nic_legend(text)
    matrix = _parse_matrix.read(text, PATHS, len(names))
    problems = matrix.problems + problems
    hidden = HIDDEN.search(text)
    if hidden:
        problems.append("only %s of %s NICs are in the matrix" % (hidden.group(2), hidden.group(1)))
    gpus = [row for label, row in matrix.rows.items() if label.startswith("GPU")]
    nics = [column for column in matrix.columns if not column.startswith("GPU")]
    width = len(matrix.columns) - len(nics)
    pairs = pairs_of(matrix, problems)
    facts: dict[str, t.Any] = {
        "gpus": len(gpus),
        # Without a header the columns are known for sure only where every GPU has its row.
        "gpu_columns": width if matrix.titles is not None or (gpus and width == len(gpus)) else None,
        "nics": len(nics),
        "nic_names": [names.get(column, column) for column in nics],
        "pairs": count(pairs.values()),
        "nvlink_per_pair": {pair: int(cell[2:]) for pair, cell in pairs.items() if cell.startswith("NV")},
        "pair_links": pairs,
        "cpu": {},
        "numa": {},
        "gpu_numa": {},
        "nearest": {},
        "incomplete_rows": matrix.cut,
        "problems": problems,
    }
    for row in gpus:
        whole = row.label not in matrix.cut
        told = affinities(row, matrix.titles, problems) if whole else dict.fromkeys(_parse_matrix.TITLES)
        for name in _parse_matrix.TITLES:
            facts[name][row.label] = told[name]
        near = nearest(row, matrix, names) if whole else None
        if near:
            facts["nearest"][row.label] = near
    distrust_end(facts, matrix)
    return facts


def read_peers(text: str) -> dict[str, t.Any]:
    """Read C(topo -p2p): which GPUs may access each other directly. Each direction counts for itself."""
    matrix = _parse_matrix.read(text, PEERS)
    gpus = {label: row for label, row in matrix.rows.items() if label.startswith("GPU")}
    status = {
        "%s-%s" % (label, other): cell
        for label, row in gpus.items()
        for other, cell in zip(matrix.columns, row.cells)
        if cell is not None and other != label
    }
    return {
        "gpus": len(gpus),
        "status": status,
        "directed_status": count(status.values()),
        "p2p_ok": bool(status) and set(status.values()) == {"OK"} and not matrix.cut,
        "problems": matrix.problems,
    }
