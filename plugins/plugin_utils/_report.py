# Copyright (c) 2026 gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# PRIVATE to the gpu.fleet collection: this file may change or vanish in any release.

"""What every report of the collection is made of: one self-contained HTML page, its parts, and curves as inline SVG.

Nothing is fetched and no script runs; colours follow the reader's light or dark setting. Arguments named C(html) are
markup and put in as they are; all others are text and escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#16191d;--soft:#5b6470;--line:#e3e6ea;--good:#12805c;--good-bg:#e3f5ed;
--bad:#c0322b;--bad-bg:#fdeae8;--skip:#7a828c;--skip-bg:#eef0f2;--a:#2563c9;--b:#b7680b;
--shade:0 1px 2px rgba(20,25,35,.06),0 4px 16px rgba(20,25,35,.05)}
@media(prefers-color-scheme:dark){:root{--page:#0e1116;--card:#161b22;--ink:#e7ebf0;--soft:#98a2ae;--line:#2a313a;--good:#4cc796;--good-bg:#12322a;
--bad:#ff8078;--bad-bg:#3d1b1b;--skip:#8a93a0;--skip-bg:#222932;--a:#6ea8ff;--b:#f0a848;--shade:none}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:36px 20px 72px}
h1{font-size:25px;line-height:1.25;margin:0;letter-spacing:-.01em}h2{font-size:17px;margin:38px 0 12px}h3{font-size:15px;margin:0}
p{margin:6px 0 0}small,.soft{color:var(--soft)}code,.num{font-variant-numeric:tabular-nums}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;box-shadow:var(--shade);padding:20px 22px}
.head{display:flex;gap:18px;align-items:flex-start;border-left:6px solid var(--skip)}.head.pass{border-left-color:var(--good)}
.head.fail{border-left-color:var(--bad)}.head>div{flex:1;min-width:0}
.badge{display:inline-block;border-radius:999px;padding:1px 10px;font-size:12.5px;font-weight:650;letter-spacing:.03em;text-transform:uppercase;
background:var(--skip-bg);color:var(--skip);white-space:nowrap}
.badge.pass{background:var(--good-bg);color:var(--good)}.badge.fail{background:var(--bad-bg);color:var(--bad)}
.head .badge{font-size:17px;padding:5px 18px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px;margin-top:14px}
.fact{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:13px 16px;box-shadow:var(--shade)}
.fact b{display:block;font-size:22px;font-weight:650;line-height:1.25;letter-spacing:-.01em}.fact span{color:var(--soft);font-size:13px}
table{border-collapse:collapse;width:100%;font-size:14px}th{font-weight:550;color:var(--soft);text-align:left;font-size:12.5px}
th,td{padding:7px 12px 7px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}.r{text-align:right}td .badge{font-size:11.5px}.scroll{overflow-x:auto}
.two{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:26px;align-items:center;margin-top:14px}
@media(max-width:820px){.two{grid-template-columns:1fr}.head{flex-direction:column}}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:8px 0;overflow:hidden}
summary{cursor:pointer;padding:11px 16px;display:flex;gap:12px;align-items:center;list-style:none}
summary::-webkit-details-marker{display:none}summary::before{content:"\\203a";color:var(--soft);font-size:18px;line-height:1;width:9px}
details[open]>summary::before{transform:rotate(90deg)}summary:hover{background:var(--page)}summary .soft{margin-left:auto;font-size:13px}
details .in{padding:2px 16px 12px 37px}.in td:nth-child(-n+2){white-space:nowrap}.in th:nth-child(n+3){min-width:120px}
.map{display:flex;flex-wrap:wrap;gap:5px}.map a{display:block;width:15px;height:15px;border-radius:4px;background:var(--good)}
.map a.fail{background:var(--bad)}.map a:hover{outline:2px solid var(--ink);outline-offset:1px}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}svg .grid{stroke:var(--line)}
svg .a{stroke:var(--a);fill:none;stroke-width:2.5;stroke-linejoin:round}svg .b{stroke:var(--b);fill:none;stroke-width:2;stroke-dasharray:5 4}
svg .pa{fill:var(--a)}svg .pb{fill:var(--b)}svg .ta{fill:var(--a);font-weight:600}svg .tb{fill:var(--b);font-weight:600}
footer{margin-top:36px;color:var(--soft);font-size:13px}
@media print{body{background:#fff}.card,.fact,details{box-shadow:none;break-inside:avoid}}
"""


class Curve(NamedTuple):
    """A line of a chart; points are (x, y), both above or at 0, and style is C(a) or C(b)."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


def page(title: str, html: str, foot: str) -> str:
    """The whole document."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{html}\n<footer>{escape(foot)}</footer></main></body></html>\n"
    )


def badge(verdict: str) -> str:
    """The verdict as a word on its colour."""
    return f'<span class="badge {escape(verdict)}">{escape(verdict)}</span>'


def head(title: str, verdict: str, lines: Sequence[str]) -> str:
    """Top of the page: what it is about, how it went, and a few sentences."""
    told = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    return f'<header class="card head {escape(verdict)}"><div><h1>{escape(title)}</h1>{told}</div>{badge(verdict)}</header>'


def facts(items: Sequence[tuple[str, str]]) -> str:
    """A row of figures: (value, what it is)."""
    return (
        '<div class="facts">'
        + "".join(f'<div class="fact"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in items)
        + "</div>"
    )


def table(columns: Sequence[str], rows_html: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A table; cells are markup, columns numbered in C(right) hold figures."""

    def cell(tag: str, column: int, html: str) -> str:
        return f'<{tag} class="r num">{html}</{tag}>' if column in right else f"<{tag}>{html}</{tag}>"

    header = "".join(cell("th", column, escape(name)) for column, name in enumerate(columns))
    body = "\n".join("<tr>" + "".join(cell("td", column, html) for column, html in enumerate(row)) + "</tr>" for row in rows_html)
    return f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>\n{body}</tbody></table></div>'


def steps(most: float, wanted: int = 4) -> list[float]:
    """Round marks from 0 to at least C(most)."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / wanted
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= raw * (1 - 1e-9))
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def size(count: float) -> str:
    """Bytes in the largest unit that leaves a number of 1 or more."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    unit = min(int(math.log2(max(count, 1)) // 10), len(units) - 1)
    return f"{count / 1024**unit:g} {units[unit]}"


def chart(curves: Sequence[Curve], unit: str, title: str) -> str:
    """Curves over sizes in bytes (logarithmic) as inline SVG; each point tells its values when pointed at."""
    points = [point for curve in curves for point in curve.points]
    if not points:
        return ""
    left, right, top, bottom, width, height = 58, 30, 30, 28, 620, 290
    low, high = math.log2(min(x for x, _y in points)), math.log2(max(x for x, _y in points))
    marks = steps(max(y for _x, y in points))

    def across(x: float) -> float:
        share = (math.log2(x) - low) / (high - low) if high > low else 0.5
        return round(left + share * (width - left - right), 1)

    def up(y: float) -> float:
        return round(height - bottom - y / marks[-1] * (height - top - bottom), 1)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for mark in marks:
        parts.append(f'<path class="grid" d="M{left} {up(mark)}H{width - right}"/>')
        parts.append(f'<text x="{left - 8}" y="{up(mark) + 4}" text-anchor="end">{mark:g}</text>')
    sizes = sorted({x for x, _y in points})
    for x in sizes[:: max(1, math.ceil(len(sizes) / 7))]:
        parts.append(f'<text x="{across(x)}" y="{height - bottom + 20}" text-anchor="middle">{size(x)}</text>')
    parts.append(f'<text x="{left - 8}" y="14" text-anchor="end">{escape(unit)}</text>')
    for number, curve in enumerate(curves):
        # Later curves are dashed and lie on top, so that one that covers another leaves it visible.
        at = width - right - 64 * (len(curves) - 1 - number)
        parts.append(f'<text class="t{curve.style}" x="{at}" y="14" text-anchor="end">{escape(curve.name)}</text>')
        line = "L".join(f"{across(x)} {up(y)}" for x, y in curve.points)
        parts.append(f'<path class="{curve.style}" d="M{line}"/>')
        for x, y in curve.points:
            told = f"{curve.name}, {size(x)}: {y:g} {unit}"
            radius = 4.5 - 1.5 * number
            parts.append(f'<circle class="p{curve.style}" cx="{across(x)}" cy="{up(y)}" r="{radius:g}"><title>{escape(told)}</title></circle>')
    return "".join([*parts, "</svg>"])
