# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.
# Use the modules of the collection, never this file, from outside of it.

"""Reader of the matrices that C(nvidia-smi topo) prints, and of what becomes of them when they are pasted somewhere.

A cell belongs to a column only when that can be shown: by the number of cells, by the X of a device with itself and by the
columns of the header. A row for which this fails gives no cells and a word about it, never cells of the wrong column.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpu.fleet.plugins.module_utils._parse_text import RDMA_NAME, lines

TITLES = {"cpu": r"CPU\s?Affinity", "numa": r"NUMA\s?Affinity", "gpu_numa": r"GPU\s?NUMA\s?ID"}
ANY_TITLE = re.compile("|".join("(?P<%s>%s)" % title for title in TITLES.items()))
# What a narrow terminal leaves of the last title.
TITLE_WORDS = ("CPU", "NUMA", "GPU", "Affinity", "ID")
LABEL = r"GPU\d+|NIC\d+|mlx\d+_(?:bond_?)?\d+"
LABELS = re.compile(r"(?:%s)+$" % LABEL)
NAME = re.compile(r"(?:%s)$" % RDMA_NAME)
ROW = re.compile(r"\s*(GPU\d+|NIC\d+|%s)(?=\s|$)" % RDMA_NAME)
COMMENT = re.compile(r"^\s*(?:#|//|>|;|\*)\s?")


class Row(t.NamedTuple):
    """Cells by column from the left, as far as they go; C(rest) is what stands behind them, C(places) where on the line.

    C(last) says that the text ends with this row, C(open) that it does so within the line.
    """

    label: str
    cells: t.List[t.Optional[str]]
    rest: t.List[str]
    places: t.Optional[t.List[int]]
    last: bool
    open: bool


class Matrix(t.NamedTuple):
    """C(columns) are labels; C(titles) the places of the affinity columns, or None without a header; C(cut) names incomplete rows."""

    columns: t.List[str]
    titles: t.Optional[t.Dict[str, int]]
    rows: t.Dict[str, Row]
    cut: t.List[str]
    problems: t.List[str]


def variants(line: str) -> list[str]:
    """The line, and what it is without the lead that makes it a comment or a quotation."""
    bare = COMMENT.sub("", line)
    return [line] if bare == line else [line, bare]


def header(line: str) -> tuple[list[str], dict[str, int]] | None:
    """Labels and titles of a header, also when they are glued; None for any other line."""
    titles: dict[str, int] = {}
    line = line.expandtabs(8)

    def note(match: t.Match[str]) -> str:
        titles.setdefault(str(match.lastgroup), match.start())
        return " "

    columns: list[str] = []
    for word in ANY_TITLE.sub(note, line).split():
        if LABELS.match(word):
            columns += re.findall(LABEL, word)
        elif NAME.match(word):
            columns.append(word)
        elif not columns or word not in TITLE_WORDS:
            return None
    return (columns, titles) if any(column.startswith("GPU") for column in columns) else None


def untable(text: list[str]) -> list[str]:
    """Markdown tables as the lines that nvidia-smi printed: label, cells, affinities."""
    result: list[str] = []
    order: list[int] | None = None
    for line in text:
        if line.count("|") < 3 or not line.strip().startswith("|"):
            result.append(line)
            order = None
            continue
        cells = [cell.strip(" *`") for cell in line.strip().strip("|").split("|")]
        if order is None:
            devices = [place for place, cell in enumerate(cells) if ROW.match(cell) and not cell.count(" ")]
            blank = [place for place, cell in enumerate(cells) if not cell]
            titled = [place for pattern in TITLES.values() for place, cell in enumerate(cells) if re.match(pattern + "$", cell)]
            order = [*(blank or [0])[:1], *devices, *titled] if devices else None
        if order is not None and all(place < len(cells) for place in order):
            result.append("\t".join(cells[place] for place in order))
    return result


def cells_of(body: str, start: int, width: int | None, code: t.Pattern[str]) -> tuple[list[str | None], list[str], list[int] | None]:
    """Cells, what follows them and where; C(width) is the number of columns when it is known.

    Between tabs an empty field is a blank cell; between blanks nothing tells a blank cell from padding.
    """
    cells: list[str | None] = []

    def full() -> bool:
        return width is not None and len(cells) >= width

    def take(word: str) -> bool:
        # Cells that lost their separator are still told apart by their codes.
        if full() or not re.match("(?:%s)+$" % code.pattern, word):
            return False
        cells.extend(code.findall(word))
        return True

    if body.startswith("\t"):
        fields = body.split("\t")[1:]
        for number, field in enumerate(fields):
            if full():
                return cells, [part.strip() for part in fields[number:]], None
            words = field.split()
            if not words:
                if width is None:
                    return cells, [part.strip() for part in fields[number:]], None
                cells.append(None)
            for place, word in enumerate(words):
                if not take(word):
                    return cells, [" ".join(words[place:]), *(part.strip() for part in fields[number + 1:])], None
        while cells and cells[-1] is None:
            cells.pop()
        return cells, [], None
    rest: list[str] = []
    places: list[int] = []
    for found in re.finditer(r"\S+", body):
        if rest or not take(found.group()):
            rest.append(found.group())
            places.append(start + found.start())
    return cells, rest, places


def guess_columns(rows: list[Row], legend: int) -> tuple[list[str], str]:
    """Columns of a matrix without a header: the X of a row says at which column its device stands."""
    width = max(len(row.cells) for row in rows)
    gpus = None
    labels: dict[int, str] = {}
    for row in rows:
        if row.cells.count("X") != 1:
            continue
        place = row.cells.index("X")
        labels[place] = row.label
        if row.label.startswith("NIC"):
            gpus = place - int(row.label[3:])
        elif not row.label.startswith("GPU"):
            gpus = min(place, width if gpus is None else gpus)
    numbers = {int(row.label[3:]) for row in rows if row.label.startswith("GPU")}
    if gpus is None and legend:
        gpus = width - legend
    if gpus is None and numbers == set(range(width)):
        gpus = width
    if gpus is None or not max(numbers, default=-1) < gpus <= width:
        return [], "no header, and the rows do not say which columns are GPUs"
    columns = ["GPU%d" % place for place in range(gpus)] + ["NIC%d" % place for place in range(width - gpus)]
    return [columns[place] if columns[place][:3] == "GPU" else labels.get(place, columns[place]) for place in range(width)], (
        "no header: columns were found by the rows"
    )


def complaint(row: Row, columns: list[str], code: t.Pattern[str]) -> str | None:
    """Why the cells of a row cannot be trusted to stand in their columns."""
    if row.label not in columns:
        return "%s is in no column of the header" % row.label
    own = columns.index(row.label)
    if len(row.cells) > len(columns) or (len(row.cells) == len(columns) and row.rest and code.match(row.rest[0])):
        return "%s has more cells than there are columns" % row.label
    if row.cells.count("X") > 1 or (len(row.cells) > own and row.cells[own] != "X") or "X" in row.cells[:own]:
        return "%s is shifted: its X is not in its own column" % row.label
    # The end of a transcript may fall into a cell, and SY was SYS: what stands behind missing cells is else of another column.
    if len(row.cells) < len(columns) and row.rest and not (len(row.rest) == 1 and row.rest[0].isalpha() and row.rest[0].isupper()):
        return "%s has %d cells for %d columns" % (row.label, len(row.cells), len(columns))
    return None


def whole_end(row: Row, rows: list[Row]) -> Row:
    """A row at the end of a transcript without a last cell that may be cut itself: NV1 may have been NV18."""
    last = row.cells[-1] if row.cells and not row.rest else None
    others = {cell for other in rows if other is not row for cell in other.cells if cell} | {cell for cell in row.cells[:-1] if cell}
    if not row.last or last is None or not last.startswith("NV"):
        return row
    cut = row.open or last not in others or any(other != last and other.startswith(last) for other in others)
    return row._replace(cells=row.cells[:-1]) if cut else row


def misplaced(rows: list[Row], columns: list[str]) -> set[int]:
    """Columns that are not those of their titles, as the X of a whole row shows."""
    places: set[int] = set()
    for row in rows:
        if row.label in columns and len(row.cells) == len(columns) and row.cells.count("X") == 1:
            own, place = columns.index(row.label), row.cells.index("X")
            places |= {own, place} if own != place else set()
    return places


def read(text: str, codes: str, legend: int = 0) -> Matrix:
    """Read the first matrix whose cells are of these codes; C(legend) is how many NICs a legend names."""
    code = re.compile(codes)
    columns: list[str] = []
    titles: dict[str, int] | None = None
    rows: list[Row] = []
    problems: list[str] = []
    everything = untable(lines(text))
    end = max((number for number, line in enumerate(everything) if line.strip()), default=-1)
    for number, raw in enumerate(everything):
        for line in variants(raw):
            label = ROW.match(line)
            found = header(line)
            if found and titles is not None and len(found[0]) == 1 and not found[1]:
                # A label alone is a row that was cut, but for a text that begins with it.
                found = None
            if found:
                break
            if label and (label.group(1)[:3] in ("GPU", "NIC") or label.group(1) in columns or titles is None):
                offset = len(line[: label.end()].expandtabs(8))
                body = line[label.end():]
                cells, rest, places = cells_of(body, offset, len(columns) if titles is not None else None, code)
                if not cells and (titles is None or rest):
                    continue
                if re.search(r"(?:^|\s)(?:%s){2,}(?=\s|$)" % codes, body):
                    problems.append("%s has cells without a separator, told apart by their codes" % label.group(1))
                rows.append(Row(label.group(1), cells, rest, places, number == end, number == len(everything) - 1))
                break
        if found and (titles is None or found[0] != columns or rows):
            # A second matrix, of another kind or another host, is not part of the first.
            if rows:
                break
            columns, titles = found
    if not rows:
        problems.append("no matrix in the text")
    elif titles is None:
        columns, problem = guess_columns(rows, legend)
        problems.append(problem)
    return checked(rows, columns, titles, problems, code)


def checked(rows: list[Row], columns: list[str], titles: dict[str, int] | None, problems: list[str], code: t.Pattern[str]) -> Matrix:
    """The rows that can be trusted, with a word about every other."""
    kept: dict[str, Row] = {}
    cut: list[str] = []
    if len(set(columns)) != len(columns):
        problems.append("the header names a column twice")
        columns = []
    doubtful = misplaced(rows, columns)
    for original in rows:
        row = original
        if row.label in kept:
            problems.append("%s has a second row" % row.label)
            continue
        wrong = complaint(row, columns, code)
        if wrong:
            problems.append(wrong)
            cut.append(row.label)
            row = row._replace(cells=[], rest=[])
        elif len(row.cells) < len(columns):
            row = whole_end(row, rows)._replace(rest=[])
            problems.append("%s ends after %d of %d cells" % (row.label, len(row.cells), len(columns)))
            cut.append(row.label)
        elif None in row.cells:
            problems.append("%s has a blank cell" % row.label)
        kept[row.label] = row._replace(cells=[None if place in doubtful else cell for place, cell in enumerate(row.cells)])
    return Matrix(columns, titles, kept, cut, problems)
