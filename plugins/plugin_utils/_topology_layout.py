# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""Where everything of a topology drawing stands.

NUMA nodes stand in two rows that face each other, CPUs outside and GPUs inside, with what joins the GPUs between the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_read import Bond, Group, Node, Topology
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_rows import APART, BOX, HEADER, SPACE, Box, Drawing, Frame, Row, Wire
from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_text import width

MARGIN = 40.0
LEAST = 660.0
# A node that is alone and has more columns than this is drawn in two frames.
WIDEST = 5
LANE, LABEL = 24.0, 17.0
PLATE, CHIP, CHIP_WIDTH = 68.0, 26.0, 118.0


@dataclass(frozen=True)
class Track:
    """A bond between GPUs: where its wire leaves each of them, and its lane between the rows."""

    text: str
    xs: Mapping[str, float]
    lane: int


def lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return the lane of each span, such that no two spans of a lane touch; narrow ones come first, so that wide ones go around them."""
    taken: list[list[tuple[float, float]]] = []
    found = [0] * len(spans)
    for number, (left, right) in sorted(enumerate(spans), key=lambda entry: (entry[1][1] - entry[1][0], entry[1])):
        free = next((lane for lane, others in enumerate(taken) if all(right < one or two < left for one, two in others)), len(taken))
        if free == len(taken):
            taken.append([])
        taken[free].append((left, right))
        found[number] = free
    return found


def _label(text: str) -> float:
    return 20.0 + width(text, bold=True)


def _tracks(bonds: Sequence[Bond], upper: Mapping[str, Box], lower: Mapping[str, Box]) -> list[Track]:
    """Plan the bonds' wires; only where the GPUs stand across matters."""
    boxes = {**upper, **lower}
    texts = [f"{bond.links} NVLink{'' if bond.links == 1 else 's'}" + (" each to each" if len(bond.members) > 2 else "") for bond in bonds]
    xs: list[dict[str, float]] = [{} for _bond in bonds]
    for key, box in boxes.items():
        # Wires to the left leave on the left, so that they cross as little as can be.
        mine = sorted((sum(boxes[one].x for one in bond.members) / len(bond.members), n) for n, bond in enumerate(bonds) if key in bond.members)
        for place, (_middle, number) in enumerate(mine, 1):
            # The lower row's wires stand aside, or they would cover those of the GPU above.
            xs[number][key] = box.x + box.width * place / (len(mine) + 1) + (5.0 if key in lower else 0.0)
    spans = []
    for text, found in zip(texts, xs, strict=True):
        left, right = min(found.values()), max(found.values())
        aside = max(0.0, _label(text) - (right - left)) / 2 + SPACE
        spans.append((left - aside, right + aside))
    sides = [-1 if not set(found) & set(lower) else 1 if not set(found) & set(upper) else 0 for found in xs]
    return [Track(text, found, lane) for text, found, lane in zip(texts, xs, _stacked(spans, sides), strict=True)]


def _stacked(spans: Sequence[tuple[float, float]], sides: Sequence[int]) -> list[int]:
    """Lanes of spans: those within the upper row (-1) stay next to it, those within the lower row (1) next to that, the others between."""
    found = [0] * len(spans)
    used = 0
    for side in (-1, 0, 1):
        numbers = [number for number, own in enumerate(sides) if own == side]
        mine = lanes([spans[number] for number in numbers])
        deepest = max(mine, default=-1)
        for number, lane in zip(numbers, mine, strict=True):
            found[number] = used + (deepest - lane if side == 1 else lane)
        used += deepest + 1
    return found


def _draw_tracks(drawing: Drawing, tracks: Sequence[Track], top: float) -> None:
    gpus = drawing.gpus()
    for track in tracks:
        y = top + LANE * (track.lane + 0.5)
        left, right = min(track.xs.values()), max(track.xs.values())
        drawing.wires.append(Wire("bond", ((left, y), (right, y))))
        drawing.wires += [Wire("bond", ((x, _edge(gpus[key], y)), (x, y))) for key, x in track.xs.items()]
        size = _label(track.text)
        drawing.boxes.append(Box("bond", (left + right - size) / 2, y - LABEL / 2, size, LABEL, track.text))


def _edge(box: Box, y: float) -> float:
    """The side of a box that faces a height."""
    return box.y + box.height if box.y < y else box.y


def _draw_plate(drawing: Drawing, addresses: Sequence[str], top: float, height: float) -> None:
    """The NVSwitches as one plate: the facts do not say which of them a link leads to."""
    gpus = list(drawing.gpus().values())
    left = min((box.x for box in gpus), default=drawing.width / 2)
    right = max((box.x + box.width for box in gpus), default=drawing.width / 2)
    shown = len(addresses) * (CHIP_WIDTH + SPACE) + SPACE
    middle, wide = (left + right) / 2, max(right - left, shown, 2 * BOX)
    left = min(max(middle - wide / 2, MARGIN), drawing.width - MARGIN - wide)
    text = f"NVLink through {len(addresses)} NVSwitch{'' if len(addresses) == 1 else 'es'}" if addresses else "NVLink through NVSwitches"
    drawing.boxes.append(Box("plate", left, top, wide, height, text))
    x = left + (wide - shown) / 2 + SPACE
    for address in addresses:
        drawing.boxes.append(Box("switch", x, top + height - CHIP - SPACE, CHIP_WIDTH, CHIP, address))
        x += CHIP_WIDTH + SPACE
    for box in gpus:
        middle, end = box.x + box.width / 2, top if box.y < top else top + height
        drawing.wires.append(Wire(f"nvlink-{box.device.nvlink if box.device else ''}", ((middle, _edge(box, top)), (middle, end))))


def _draw_cpus(drawing: Drawing) -> None:
    """The CPUs' own connection: along the rows, and around the left side from one row to the other."""
    first: dict[int, Box] = {}
    for box in drawing.boxes:
        if box.what == "cpu" and box.node is not None and box.node.number is not None:
            first.setdefault(box.node.number, box)
    rows: dict[float, list[Box]] = {}
    for box in first.values():
        rows.setdefault(box.y, []).append(box)
    for row in rows.values():
        for one, two in pairwise(row):
            y = one.y + HEADER / 2
            drawing.wires.append(Wire("cpu", ((one.x + one.width, y), (two.x, y))))
    if len(rows) == 2:
        one, two = (row[0] for row in rows.values())
        x = min(one.x, two.x) - MARGIN / 2
        upper, lower = one.y + HEADER / 2, two.y + HEADER / 2
        drawing.wires.append(Wire("cpu", ((one.x, upper), (x, upper), (x, lower), (two.x, lower))))


def _halves(node: Node) -> list[Node]:
    """A wide node in two frames that face each other; a group stays whole, and each frame gets half of the GPUs."""
    parts: tuple[list[Group], list[Group]] = ([], [])
    for wanted in (True, False):
        groups = [group for group in node.groups if wanted is any(device.kind == "gpu" for branch in group.branches for device in branch.devices)]
        half = (len(groups) + 1) // 2
        parts[0].extend(groups[:half])
        parts[1].extend(groups[half:])
    return [replace(node, groups=tuple(groups), continued=bool(number)) for number, groups in enumerate(parts) if groups]


def layout(topology: Topology) -> Drawing:
    """Return where everything stands; the drawing's upper left corner is 0, 0."""
    frames = [Frame.of(node) for node in topology.nodes]
    if len(frames) == 1 and len(frames[0].columns) > WIDEST:
        frames = [Frame.of(half) for half in _halves(topology.nodes[0])]
    if len(frames) == 2:
        widest = max(frame.width for frame in frames)
        frames = [replace(frame, width=widest) for frame in frames]
    levels = max((frame.levels for frame in frames), default=0)
    half = len(frames) // 2 if len(frames) > 1 else len(frames)
    rows = [Row(frames[:half], levels, False), Row(frames[half:], levels, True)]
    addresses = topology.switches or ()
    plate = len(addresses) * (CHIP_WIDTH + SPACE) + SPACE if addresses else 0.0
    whole = max(LEAST, *(wide + 2 * MARGIN for wide in (plate, rows[0].width, rows[1].width)))
    drawing, lower = Drawing(whole), Drawing(whole)
    # Both rows begin at the left of the wider one, so that GPUs face each other.
    left = (whole - max(row.width for row in rows)) / 2
    rows[0].place(drawing, left)
    rows[1].place(lower, left)
    tracks = _tracks(topology.bonds, drawing.gpus(), lower.gpus())
    between = LANE * (max(track.lane for track in tracks) + 1) if tracks else 0.0
    if topology.switches is not None:
        between = PLATE if addresses else PLATE - CHIP - SPACE
    top = rows[0].height + (APART if between or rows[1].frames else 0.0)
    bottom = top + between + (APART if between else 0.0)
    drawing.take(lower, bottom)
    drawing.height = bottom + rows[1].height if rows[1].frames else top + between
    if topology.switches is not None:
        _draw_plate(drawing, addresses, top, between)
    _draw_tracks(drawing, tracks, top)
    _draw_cpus(drawing)
    return drawing
