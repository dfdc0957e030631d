# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Facts out of the log that NCCL writes with NCCL_DEBUG=INFO: what it found, what it was told and what went wrong."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import lines, unique

VERSION = re.compile(r"\bNCCL version (\d+(?:\.\d+)+)")
NETWORK = re.compile(r"\bUsing network (\S.*?)\s*$")
HCA_LINE = re.compile(r"\bNET/IB\s*: Using (.*)")
# Newer logs may write a name and several ports: [0]mlx5_0:1/IB/SHARP, [0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE}.
HCA = re.compile(r"\[\d+\]\s*([A-Za-z][\w+.-]*):\d+/(\w+)")
OUT_OF_BAND = re.compile(r"\bOOB ([^\s:;]+):")
BOOTSTRAP = re.compile(r"\bBootstrap\s*: Using (?:\[\d+\])?([^\s:;]+):")
SETTING = re.compile(r"\b(NCCL_\w+) set by environment to (\S.*?)\s*$")
WARNING = re.compile(r"\bNCCL WARN (\S.*?)\s*$")
NO_PEERS = re.compile(r"P2P is disabled|P2P .*not supported|[Cc]ould not enable P2P|peer access is not supported", re.I)


def read(text: str) -> dict[str, t.Any]:
    """Read a log of one or many ranks, each value once. Lines of ranks may run into each other, so nothing is taken from a line's start."""
    log = [line.rstrip() for line in lines(text)]

    def each(pattern: t.Pattern[str]) -> list[str]:
        return unique(found.group(1) for line in log for found in pattern.finditer(line))

    hcas = [pair.groups() for line in log for used in [HCA_LINE.search(line)] if used for pair in HCA.finditer(used.group(1))]
    settings = {found.groups() for line in log for found in [SETTING.search(line)] if found}
    saw = any(" NCCL " in line or line.startswith("NCCL ") for line in log)
    return {
        "nccl": each(VERSION),
        "network": each(NETWORK),
        "hcas": [list(pair) for pair in dict.fromkeys(hcas)],
        "oob": each(OUT_OF_BAND),
        "bootstrap": each(BOOTSTRAP),
        # Some releases end the sentence about a number with a full stop.
        "env": [[name, re.sub(r"^(-?\d+)\.$", r"\1", value)] for name, value in sorted(settings)],
        "p2p_unsupported": any(NO_PEERS.search(line) for line in log),
        "gdrdma": any("/GDRDMA" in line for line in log),
        "warns": each(WARNING),
        "problems": [] if saw else ["no line of NCCL in the text"],
    }
