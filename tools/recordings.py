#!/usr/bin/env python3
# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads every recording of a folder with the collection's parsers and compares what they say with the answers kept beside it.

docs/recordings.md says what such a folder holds, which fields count and which answers are disputed.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "collections"))
from ansible_collections.gpu.fleet.plugins.module_utils._parse_forms import READERS, comparable
from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import decode

from tools.common import CHECKOUT

COUNTED = {
    "ib": ("n", "devices"),
    "lspci": ("gpus", "nvswitch", "nic_functions", "gpu_lines", "nic_lines"),
    "lstopo": ("version", "packages", "numa", "pus", "nvidia_display_pci", "osdev", "distances"),
    "nccl-log": ("nccl", "network", "hcas", "oob", "bootstrap", "env", "p2p_unsupported", "gdrdma", "warns"),
    "nccl-xml": ("gpus", "gpu_elements", "nets", "unique_net_names", "cpu_nodes", "cpus", "gpu_bus", "nvlinks_per_gpu", "nvlink_targets",
                 "net_names", "speeds", "nearest"),
    "nvlink": ("gpus", "links"),
    "smi-L": ("gpus", "names", "mig_profiles"),
    "smi-csv": ("rows", "header", "columns"),
    "smi-q": ("driver", "attached", "gpus", "bus", "names", "mig", "fabric"),
    "smi-xml": ("driver", "cuda", "attached", "gpus", "names", "bus", "mig", "mig_devices", "fabric", "clique", "cluster", "addressing",
                "pcie_gen_max"),
    "sysfs": ("devices", "ib", "eth", "rates"),
    "topo-m": ("gpus", "gpu_columns", "nics", "nic_names", "pairs", "nvlink_per_pair", "pair_links", "cpu", "numa", "gpu_numa", "nearest",
               "incomplete_rows"),
    "topo-p2p": ("gpus", "directed_status", "p2p_ok"),
}  # fmt: skip


@dataclass(frozen=True)
class Dispute:
    """A field whose answer is not counted where it contradicts the rest of its own answer."""

    kind: str
    field: str
    reason: str
    holds: Callable[[dict[str, Any]], bool]


DISPUTES = (
    Dispute(
        "topo-m",
        "pair_links",
        "the answer counts pairs of GPUs that it does not list",
        lambda answer: sum(answer.get("pairs", {}).values()) != len(answer["pair_links"]),
    ),
)


@dataclass(frozen=True)
class Mismatch:
    """A field of a recording that reads otherwise than its answer says."""

    file: str
    field: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        expected, got = self.expected, self.got
        if isinstance(expected, dict) and isinstance(got, dict):
            other = {key for key in {*expected, *got} if expected.get(key) != got.get(key)}
            expected, got = ({key: side[key] for key in sorted(other & set(side))} for side in (expected, got))
        return f"{self.file}: {self.field}: expected {json.dumps(expected)}, got {json.dumps(got)}"


def disputed(kind: str, answer: dict[str, Any]) -> dict[str, str]:
    """Return the fields of an answer that are not counted, each with its reason."""
    return {rule.field: rule.reason for rule in DISPUTES if rule.kind == kind and rule.field in answer and rule.holds(answer)}


def compare(folder: Path, file: str, kind: str) -> Iterator[Mismatch | str]:
    """Read one recording; yield the counted fields that differ from its answer, and in words those that are not counted."""
    sample = folder / "samples" / file
    answers = folder / "expected" / f"{kind}__{Path(file).stem}.json"
    if kind not in READERS or not sample.is_file() or not answers.is_file():
        yield Mismatch(file, "recording", "a known kind, a sample and an answer", kind)
        return
    answer = json.loads(answers.read_text(encoding="utf-8"))
    try:
        facts = READERS[kind](decode(sample.read_bytes()))
    except Exception as error:  # the other recordings are still worth their comparison
        yield Mismatch(file, "reader", "facts", repr(error))
        return
    left_out = disputed(kind, answer)
    for field in COUNTED[kind]:
        if field in left_out:
            yield f"{file}: {field}: not counted, {left_out[field]}"
        elif field in answer:
            got, expected = comparable(field, facts.get(field), answer[field])
            if got != expected:
                yield Mismatch(file, field, expected, got)


def recordings(folder: Path) -> list[tuple[str, str]]:
    """Return file and kind of every recording that the index names."""
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        return [(row["file"], row["kind"]) for row in csv.DictReader(index, delimiter="\t")]


def main(folder: Path) -> int:
    """Compare all recordings of a folder; 0 only when every one matches."""
    if not (folder / "INDEX.tsv").is_file():
        print(f"{folder} has no INDEX.tsv; make recordings DIR=path names a folder that has", file=sys.stderr)
        return 2
    index = recordings(folder)
    matched = 0
    for file, kind in index:
        words = list(compare(folder, file, kind))
        matched += not any(isinstance(word, Mismatch) for word in words)
        for word in words:
            print(word)
    print(f"matched {matched} of {len(index)}")
    return 0 if matched == len(index) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else CHECKOUT.parent / "shared" / "cases" / "topology")))
