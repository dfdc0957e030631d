# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""A node's topology as one self-contained SVG: nothing is fetched, no script runs, colours follow the reader's light or dark setting.

Colour is never the only sign: what is wrong has a mark and words, what is not known is dashed and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_layout import MARGIN, layout
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_read import Line, Topology, read
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_rows import Box, Wire
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_text import clean, fit, width

TITLE, FOOT = 86.0, 20.0
# Colours stand as they are, not behind names: many viewers of pictures do not know CSS variables.
LIGHT = {
    "page": "#f6f7f9", "card": "#ffffff", "ink": "#16191d", "soft": "#5b6470", "edge": "#cfd5dc", "wire": "#8b95a1", "frame": "#ffffff",
    "head": "#e8ebef", "bar": "#dde7f8", "barink": "#1d4b99", "gpu": "#f0f8e4", "gpuedge": "#6f9a1d", "nic": "#eef4fd", "nicedge": "#7ba2dc",
    "nv": "#5c8a0e", "plate": "#e6f2d2", "bad": "#c0322b", "badbg": "#fdeae8", "good": "#12805c", "goodbg": "#e3f5ed", "mute": "#eef0f2",
}  # fmt: skip
DARK = {
    "page": "#0e1116", "card": "#161b22", "ink": "#e7ebf0", "soft": "#98a2ae", "edge": "#39424d", "wire": "#6b7683", "frame": "#151a21",
    "head": "#232a33", "bar": "#1b2c49", "barink": "#a9c7fb", "gpu": "#1b2613", "gpuedge": "#86b32d", "nic": "#16202f", "nicedge": "#4a73ae",
    "nv": "#9ccc3c", "plate": "#22300f", "bad": "#ff8078", "badbg": "#3d1b1b", "good": "#4cc796", "goodbg": "#12322a", "mute": "#222932",
}  # fmt: skip
FILLS = {"page": "page", "node": "frame", "cpu": "head", "bar": "bar", "gpu": "gpu", "nic": "nic", "plate": "plate", "switch": "card", "bond": "card"}
EDGES = {"node": "edge", "cpu": "edge", "bar": "nicedge", "gpu": "gpuedge", "nic": "nicedge", "plate": "nv", "switch": "nv", "bond": "nv"}
WIRES = {"pcie": "wire", "cpu": "wire", "bond": "nv", "nvlink-good": "nv", "nvlink-bad": "bad", "nvlink-unknown": "soft"}
SCOPE = ".gpu-topology"
FIXED = """
.gpu-topology{font-family:system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.gpu-topology text{font-size:11.5px}.gpu-topology .h{font-size:20px;font-weight:650}.gpu-topology .n{font-size:12.5px;font-weight:650}
.gpu-topology .p,.gpu-topology .m{font-weight:650}.gpu-topology .bx{stroke-width:1.2}
.gpu-topology .w{fill:none;stroke-width:1.6;stroke-linejoin:round}
.gpu-topology .w-cpu{stroke-width:4}.gpu-topology .w-bond{stroke-width:2.4}.gpu-topology .w-nvlink-good{stroke-width:5}
.gpu-topology .w-nvlink-bad{stroke-width:5;stroke-dasharray:7 5}.gpu-topology .w-nvlink-unknown{stroke-width:3;stroke-dasharray:3 5}
.gpu-topology .bx-bad{stroke-width:2.4}.gpu-topology .bx-unknown{stroke-dasharray:5 4}
"""


def _colours(of: Mapping[str, str]) -> str:
    rules = {
        "t": ("fill", "ink"), "s": ("fill", "soft"), "t-bad": ("fill", "bad"), "t-good": ("fill", "good"), "t-bar": ("fill", "barink"),
        "t-nv": ("fill", "nv"), "k-bad": ("fill", "bad"), "k-good": ("fill", "good"), "m": ("fill", "card"), "pl-bad": ("fill", "badbg"),
        "pl-good": ("fill", "goodbg"), "pl-unknown": ("fill", "mute"), "k-unknown": ("stroke", "soft"),
        **{f"w-{name}": ("stroke", colour) for name, colour in WIRES.items()},
    }  # fmt: skip
    text = [f"{SCOPE} .{name}{{{attribute}:{of[colour]}}}" for name, (attribute, colour) in rules.items()]
    text += [f"{SCOPE} .b-{name}{{fill:{of[fill]};stroke:{of[EDGES[name]] if name in EDGES else 'none'}}}" for name, fill in FILLS.items()]
    text += [f"{SCOPE} .bx-bad{{stroke:{of['bad']}}}", f"{SCOPE} .k-unknown{{fill:none}}", f"{SCOPE} .bx-unknown{{stroke:{of['soft']}}}"]
    return "".join(text)


STYLE = f"{FIXED}{_colours(LIGHT)}\n@media(prefers-color-scheme:dark){{{_colours(DARK)}}}\n"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _text(x: float, y: float, text: str, style: str, anchor: str = "") -> str:
    at = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{style}" x="{_n(x)}" y="{_n(y)}"{at}>{clean(text)}</text>'


def _rect(box: Box, style: str, radius: float) -> str:
    place = f'x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(box.height)}"'
    return f'<rect class="{style}" {place} rx="{_n(radius)}"/>'


def _mark(x: float, y: float, state: str) -> str:
    """A disc for good, one with an exclamation mark for bad, a ring with a question mark for not known."""
    if state == "good":
        return f'<circle class="k-good" cx="{_n(x)}" cy="{_n(y)}" r="4.5"/>'
    sign, style = ("!", "m") if state == "bad" else ("?", "p s")
    return f'<circle class="k-{state}" cx="{_n(x)}" cy="{_n(y)}" r="7"/>' + _text(x, y + 4, sign, style, "middle")


def _device(box: Box) -> str:
    """A GPU or a NIC with its lines; pointed at, it tells the lines in full."""
    device = box.device
    if device is None:
        return ""
    room = box.width - 18
    told = "&#10;".join(clean(text) for text in (device.name, *(line.text for line in device.lines)))
    parts = [
        f'<g class="{box.what}" data-key="{clean(device.key)}" data-state="{device.state}"><title>{told}</title>',
        _rect(box, f"bx b-{box.what}" + ("" if device.state == "good" else f" bx-{device.state}"), 8),
        _text(box.x + 10, box.y + 18, fit(device.name, room - 18, 12.5, True), "n t"),
        _mark(box.x + box.width - 13, box.y + 14, device.state),
    ]
    styles = {"good": "s", "bad": "p t-bad", "unknown": "s"}
    for number, line in enumerate(device.lines):
        shown = fit(line.text, room, bold=line.state == "bad")
        parts.append(_text(box.x + 10, box.y + 33 + 15.5 * number, shown, styles[line.state]))
    return "".join([*parts, "</g>"])


def _box(box: Box) -> str:
    if box.device is not None:
        return _device(box)
    middle = box.x + box.width / 2
    unsure = " bx-unknown" if box.node is not None and box.node.number is None else ""
    if box.what == "cpu":
        room = box.width - 36 - width(box.text, 12.5, True)
        more = _text(box.x + box.width - 12, box.y + 21.5, fit(box.more, room), "s", "end") if box.more else ""
        return _rect(box, f"bx b-cpu{unsure}", 10) + _text(box.x + 12, box.y + 21.5, box.text, "n t") + more
    if box.what == "plate":
        return _rect(box, "bx b-plate", 10) + _text(middle, box.y + 22, box.text, "n t-nv", "middle")
    if box.what in ("bar", "switch", "bond"):
        style, radius = {"bar": ("t-bar", 5.0), "switch": ("t", 6.0), "bond": ("p t-nv", 8.5)}[box.what]
        group = f'<g class="{box.what}">{_rect(box, f"bx b-{box.what}", radius)}'
        return group + _text(middle, box.y + box.height / 2 + 4, fit(box.text, box.width - 8, bold=box.what == "bond"), style, "middle") + "</g>"
    return _rect(box, f"bx b-{box.what}{unsure}", 10)


def _wire(wire: Wire) -> str:
    points = "L".join(f"{_n(x)} {_n(y)}" for x, y in wire.points)
    return f'<path class="w w-{wire.what}" d="M{points}"/>'


def _verdict(topology: Topology) -> tuple[str, str]:
    if topology.faults:
        return f"{len(topology.faults)} fault{'' if len(topology.faults) == 1 else 's'}", "bad"
    devices = [device for node in topology.nodes for group in node.groups for branch in group.branches for device in branch.devices]
    if not devices or topology.unknown or any(device.state == "unknown" for device in devices):
        return "no fault seen, not all known", "unknown"
    return "no fault seen", "good"


def _head(topology: Topology, wide: float) -> str:
    text, state = _verdict(topology)
    length = width(text, bold=True) + 34
    pill = Box("pill", wide - MARGIN - length, 24, length, 26)
    style = {"bad": "p t-bad", "good": "p t-good", "unknown": "p s"}[state]
    return (
        _text(MARGIN, 44, fit(topology.title, pill.x - MARGIN - 16, 20, True), "h t")
        + _text(MARGIN, 66, fit(topology.about, wide - 2 * MARGIN), "s")
        + _rect(pill, f"pl-{state}", 13)
        + _mark(pill.x + 14, 37, state)
        + _text(pill.x + 26, 41, text, style)
    )


def _foot(notes: Sequence[Line], wide: float, top: float) -> str:
    """What is wrong and what is not known, in words."""
    parts = []
    for number, line in enumerate(notes):
        y = top + 20 * number
        parts.append(_mark(MARGIN + 7, y - 4, line.state))
        parts.append(_text(MARGIN + 22, y, fit(line.text, wide - 2 * MARGIN - 22), "t-bad" if line.state == "bad" else "s"))
    return "".join(parts)


def draw(facts: Mapping[str, Any]) -> str:
    """Return the SVG for what C(gpu_facts) returns about a node."""
    topology = read(facts)
    drawing = layout(topology)
    notes = [*(Line(text, "bad") for text in topology.faults), *(Line(text, "unknown") for text in topology.unknown)]
    wide, foot = drawing.width, TITLE + drawing.height + 2 * FOOT
    high = foot + 20 * len(notes) if notes else foot - FOOT
    order = ("node", "cpu", "plate")
    back = [box for box in drawing.boxes if box.what in order]
    front = [box for box in drawing.boxes if box.what not in order]
    label = f"Topology of {topology.title}: {topology.about}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gpu-topology" width="{_n(wide)}" height="{_n(high)}" viewBox="0 0 {_n(wide)} {_n(high)}" '
        f'role="img" aria-label="{clean(label)}"><style>{STYLE}</style>'
        + _rect(Box("page", 0, 0, wide, high), "b-page", 14)
        + _head(topology, wide)
        + f'<g transform="translate(0 {_n(TITLE)})">'
        + "\n".join([*map(_box, back), *map(_wire, drawing.wires), *map(_box, front)])
        + "</g>"
        + _foot(notes, wide, foot)
        + "</svg>\n"
    )
