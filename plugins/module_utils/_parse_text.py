# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""What all readers of recorded output share: text without its dressing, and XML that may end anywhere."""

from __future__ import annotations

import re
import typing as t
from xml.parsers import expat

from ansible_collections.gpu.fleet.plugins.module_utils._pci import NEARNESS

# Colours and underlines, and the titles of terminals.
DRESSING = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]|[\x00-\x08\x0e-\x1f\x7f\ufeff]")
# What mpirun --tag-output and srun -l write before each line.
LAUNCHER = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\d+: )")
PROMPT = re.compile(
    r"\s*(?:\(\w+\) )?(?:\[?[\w.-]+@[\w.-]+[^$#%>\n]*[$#%>](?:\s|$)|[$%]\s+\S|#\s+(?:ibv?_?\w+|nvidia-smi|lspci|lstopo)\b|PS [A-Z]:|[A-Z]:\\[^>]*>)"
)
# Names that the kernel gives to RDMA devices start small, carry a number and have at most 63 letters: mlx5_bond_1, rocep145s0f0, rdmap16s27.
RDMA_NAME = r"(?=[A-Za-z_.+-]{1,62}\d)[a-z][A-Za-z0-9_.+-]{0,62}"
# Nothing on a host has such a number, and Python refuses to read one of some thousand digits.
ENDLESS = re.compile(r"\d{65,}")
LONGEST_LINE = 16384


def decode(data: bytes) -> str:
    """Text of a recording in whatever encoding it was kept; PowerShell writes UTF-16, and what cannot be read is replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if len(data) > 3 and data[1:2] == data[3:4] == b"\0":
        return data.decode("utf-16-le", "replace")
    return data.decode("utf-8-sig", "replace")


def plain(text: str) -> str:
    """The text with one kind of line end and of blank, without what only a terminal understands."""
    return ENDLESS.sub("", DRESSING.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).replace("\xa0", " "))


def lines(text: str) -> list[str]:
    """Plain lines, as long as the tools make them, without what a launcher wrote before each."""
    return [LAUNCHER.sub("", line[:LONGEST_LINE]) for line in plain(text).split("\n")]


def unique(values: t.Iterable[str]) -> list[str]:
    """Each value once, in the order of its first appearance."""
    return list(dict.fromkeys(values))


def closest(levels: t.Sequence[tuple[str, str]]) -> dict[str, t.Any] | None:
    """The best of some levels and the names of all NICs at it; what is no level is passed over."""
    best = min((NEARNESS.index(level) for level, _name in levels if level in NEARNESS), default=None)
    return None if best is None else {"level": NEARNESS[best], "nics": [name for level, name in levels if level == NEARNESS[best]]}


class Element(t.NamedTuple):
    """An XML element; C(parent) is the place of its parent in the list of all, or None."""

    name: str
    attributes: t.Dict[str, str]
    parent: t.Optional[int]


def elements(text: str, root: str) -> tuple[list[Element], str | None]:
    """The elements of the first document with this root in document order, and what is wrong with it; a cut document keeps what came before."""
    found: list[Element] = []
    path: list[int] = []
    body = plain(text)
    begin = re.search(r"<%s[\s/>]" % root, body)
    if not begin:
        return [], "no <%s> in the text" % root
    # What follows the document, such as the next prompt, is not XML.
    end = body.find("</%s>" % root)
    whole = end >= 0

    def start(name: str, attributes: dict[str, str]) -> None:
        found.append(Element(name, attributes, path[-1] if path else None))
        path.append(len(found) - 1)

    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _name: path.pop()
    stop = end + len(root) + 3 if whole else len(body)
    try:
        parser.Parse(body[begin.start():stop].encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        return found, str(error)
    return found, None
