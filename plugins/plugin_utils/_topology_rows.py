# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the filters of the collection, never this file, from outside of it.

"""The NUMA nodes of a topology drawing: rows of frames, with columns of devices in them.

A column holds a GPU and the NICs of its switch; all of them hang on a trunk in the column's gutter, so that no wire crosses a box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.gpu.fleet.plugins.plugin_utils._topology_read import Device, Group, Node

BOX, GUTTER, GAP = 150.0, 14.0, 12.0
PITCH = GUTTER + BOX + GAP
NIC, GPU, SPACE = 74.0, 90.0, 8.0
HEADER, BAR, PAD = 34.0, 20.0, 14.0
APART = 26.0
# The title of a node needs this much.
LEAST = 300.0
# A node with more NICs of their own than this for each of its columns stacks them higher.
SPREAD = 3


@dataclass(frozen=True)
class Box:
    """A rectangle; `what` says what stands in it, `text` its label where it is no device."""

    what: str
    x: float
    y: float
    width: float
    height: float
    text: str = ""
    more: str = ""
    device: Device | None = None
    node: Node | None = None


@dataclass(frozen=True)
class Wire:
    """A line through points."""

    what: str
    points: tuple[tuple[float, float], ...]


@dataclass
class Drawing:
    """Boxes and wires in the order in which they are drawn, and how large the whole is."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)

    def take(self, other: Drawing, down: float) -> None:
        """Add what another drawing holds, moved down."""
        self.boxes += [replace(box, y=box.y + down) for box in other.boxes]
        self.wires += [Wire(wire.what, tuple((x, y + down) for x, y in wire.points)) for wire in other.wires]

    def gpus(self) -> dict[str, Box]:
        """The GPUs' boxes by their keys."""
        return {box.device.key: box for box in self.boxes if box.device is not None and box.what == "gpu"}


@dataclass(frozen=True)
class Column:
    """Devices of one trunk, the GPU last; `branch` numbers the switch below the group's own that they hang on, if any."""

    group: int
    branch: int | None
    devices: tuple[Device, ...]


def _shared(devices: Sequence[Device], group: int, branch: int | None) -> list[Column]:
    """Columns for devices of one switch: its NICs are spread over its GPUs."""
    gpus = [device for device in devices if device.kind == "gpu"]
    nics = [device for device in devices if device.kind == "nic"]
    each = math.ceil(len(nics) / len(gpus)) if gpus else len(nics)
    parts = [nics[start : start + each] for start in range(0, len(nics), each)] if nics else []
    if not gpus:
        return [Column(group, branch, tuple(part)) for part in parts]
    parts += [[]] * (len(gpus) - len(parts))
    return [Column(group, branch, (*part, gpu)) for gpu, part in zip(gpus, parts, strict=True)]


def _columns(group: Group, number: int) -> list[Column]:
    """Columns of a group; what is alone below its switches shares a trunk with the GPUs that are, too."""
    if len(group.branches) == 1:
        return _shared(group.branches[0].devices, number, None)
    columns = []
    for place, branch in enumerate(group.branches):
        if len(branch.devices) > 1:
            columns += _shared(branch.devices, number, place)
    return columns + _shared([branch.devices[0] for branch in group.branches if len(branch.devices) == 1], number, None)


def _stack(devices: Sequence[Device]) -> float:
    return sum((GPU if device.kind == "gpu" else NIC) + SPACE for device in devices) - SPACE


def _whole(node: Node) -> list[Column]:
    """All columns of a node: those of its groups, then its NICs without a switch in stacks as high as the rest allows."""
    loose = [group.branches[0].devices[0] for group in node.groups if group.path is None]
    columns = [column for number, group in enumerate(node.groups) if group.path is not None for column in _columns(group, number)]
    columns += [Column(-1, None, (device,)) for device in loose if device.kind == "gpu"]
    nics = [device for device in loose if device.kind == "nic"]
    if nics:
        high = max((_stack(column.devices) for column in columns), default=0.0)
        fits = int((high + SPACE) // (NIC + SPACE))
        wide = max(2, math.ceil(len(columns) / SPREAD)) if columns else 4
        each = max(1, fits, math.ceil(len(nics) / wide))
        columns += [Column(-1, None, tuple(nics[start : start + each])) for start in range(0, len(nics), each)]
    return columns


@dataclass(frozen=True)
class Frame:
    """A node and its columns, before it has a place."""

    node: Node
    columns: list[Column]
    width: float
    levels: int

    @classmethod
    def of(cls, node: Node) -> Frame:
        """Return the frame of a node."""
        columns = _whole(node)
        levels = max((2 if column.branch is not None else 1 if column.group >= 0 else 0 for column in columns), default=0)
        return cls(node, columns, max(2 * PAD + len(columns) * PITCH - GAP, LEAST), levels)


class Row:
    """Frames side by side; in the lower row everything is upside down, so that the GPUs of both rows face each other."""

    def __init__(self, frames: list[Frame], levels: int, lower: bool) -> None:
        self.frames, self.levels, self.lower = frames, levels, lower
        self.body = HEADER + PAD + levels * (BAR + PAD)
        highest = max((_stack(column.devices) for frame in frames for column in frame.columns), default=0.0)
        self.height = self.body + highest + PAD if frames else 0.0
        self.width = sum(frame.width for frame in frames) + APART * (len(frames) - 1) if frames else 0.0

    def place(self, drawing: Drawing, x: float) -> None:
        """Put the row at the top of a drawing, from x on."""
        for frame in self.frames:
            self._frame(drawing, frame, x)
            x += frame.width + APART

    def _up(self, y: float, height: float = 0.0) -> float:
        return self.height - y - height if self.lower else y

    def _frame(self, drawing: Drawing, frame: Frame, left: float) -> None:
        node = frame.node
        drawing.boxes.append(Box("node", left, 0.0, frame.width, self.height, node=node))
        name = f"NUMA node {'not known' if node.number is None else node.number}{', continued' if node.continued else ''}"
        cpus = f"CPUs {node.cpus}" if node.cpus else ""
        drawing.boxes.append(Box("cpu", left, self._up(0, HEADER), frame.width, HEADER, name, cpus, node=node))
        xs = [left + PAD + PITCH * number for number in range(len(frame.columns))]
        for column, x in zip(frame.columns, xs, strict=True):
            self._column(drawing, column, x)
        for number in sorted({column.group for column in frame.columns} - {-1}):
            group = node.groups[number]
            mine = [(column, x) for column, x in zip(frame.columns, xs, strict=True) if column.group == number]
            text = "PCIe switch · PIX" if group.path == "PIX" else "PCIe switches · PXB"
            self._bar(drawing, HEADER, HEADER + PAD, [x for _column, x in mine], text)
            for branch in sorted({column.branch for column, _x in mine if column.branch is not None}):
                below = [x for column, x in mine if column.branch == branch]
                self._bar(drawing, HEADER + PAD + BAR, HEADER + 2 * PAD + BAR, below, "PCIe switch · PIX")

    def _bar(self, drawing: Drawing, above: float, y: float, xs: list[float], text: str) -> None:
        """A switch over its columns, and its wire to what is above it."""
        width = xs[-1] + GUTTER + BOX - xs[0]
        drawing.boxes.append(Box("bar", xs[0], self._up(y, BAR), width, BAR, text))
        middle = xs[0] + width / 2
        drawing.wires.append(Wire("pcie", ((middle, self._up(above)), (middle, self._up(y)))))

    def _column(self, drawing: Drawing, column: Column, x: float) -> None:
        depth = 0 if column.group < 0 else 1 if column.branch is None else 2
        start = HEADER + depth * (PAD + BAR)
        # A GPU stands at the end, next to what joins it with others; NICs hang under the switch.
        y, last = self.body, start
        nics = [device for device in column.devices if device.kind == "nic"]
        # NICs read from top to bottom in both rows.
        ordered = [*(reversed(nics) if self.lower else nics), *(device for device in column.devices if device.kind == "gpu")]
        for device in ordered:
            height = GPU if device.kind == "gpu" else NIC
            if device.kind == "gpu":
                y = self.height - PAD - GPU
            last = y + height / 2
            drawing.boxes.append(Box(device.kind, x + GUTTER, self._up(y, height), BOX, height, device=device))
            drawing.wires.append(Wire("pcie", ((x + GUTTER / 2, self._up(last)), (x + GUTTER, self._up(last)))))
            y += height + SPACE
        drawing.wires.append(Wire("pcie", ((x + GUTTER / 2, self._up(start)), (x + GUTTER / 2, self._up(last)))))
