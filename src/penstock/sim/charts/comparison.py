"""The comparison page: cost against delay, for some policies and the bound that no schedule beats.

Pure functions from numbers to text: `page` gives one self-contained HTML file, `svg` the same chart as a picture for a
README, `png` that picture's pixels. `compare` measures and calls these; nothing here simulates, reads a clock or
touches a file but the package's own `look/`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import import_module
from importlib.resources import as_file, files
from string import Template
from typing import Literal

from penstock.sim.charts import chart
from penstock.sim.charts.chart import ChartSize, Curve, Mark

__all__ = ["Column", "Comparison", "Curve", "Mark", "page", "png", "svg"]

Theme = Literal["light", "dark"]

#: One drawing a page width, so that text keeps its size. The names are classes in look/page.css.
SIZES = {
    "narrow": ChartSize(358, 430, narrow=True),
    "middle": ChartSize(720, 430),
    "wide": ChartSize(1110, 470),
    "full": ChartSize(1370, 490),
}
#: A standalone picture's chart, and the paper left and right of it.
PICTURE, EDGE = ChartSize(1000, 450), 20


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the number table. Minor ones are hidden on phones; the first column is the row's name."""

    key: str
    head: str
    numeric: bool = True
    minor: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything on the page. `bound` holds points (mean delay in hours, cost), joined by straight lines."""

    title: str
    lede: str
    curves: Sequence[Curve]
    note: str = ""
    caption: str = ""
    bound: Sequence[tuple[float, float]] = ()
    no_wait: Mark | None = None
    no_wait_label: str = "Burst at once"
    you_are_here: Mark | None = None
    heading: str = "Cloud cost against delay"
    currency: str = "$"
    table_heading: str = "Each point in numbers"
    columns: Sequence[Column] = ()
    rows: Sequence[Mapping[str, str]] = ()
    chosen: frozenset[int] = field(default_factory=frozenset)  #: rows that are in force
    formula: str = ""
    foot: str = ""


def page(comparison: Comparison) -> str:
    """One HTML file without scripts or requests; light or dark as the reader's system is set."""
    words = {
        name: escape(_tied(getattr(comparison, name)))
        for name in ("title", "lede", "heading", "note", "caption", "foot")
    }
    charts = "".join(_chart(comparison, size, name) for name, size in SIZES.items())
    body = Template(_look("comparison.html")).substitute(words, charts=charts, table=_table(comparison))
    return framed(words, chip="Simulated", body=body)


def framed(words: Mapping[str, str], *, chip: str, body: str, css: str = "") -> str:
    """A whole page: `words` has its title, lede and foot, as HTML; `css` comes after what all pages share."""
    styles = base_css() + ("\n" + css if css else "")
    return Template(_look("page.html")).substitute(words, chip=chip, body=body, css=styles)


def base_css() -> str:
    """Fonts, colours, charts and tables of a report, for every page that is one file."""
    return "\n".join([_font_faces(), _tokens(), _look("chart.css"), _look("page.css")])


def svg(comparison: Comparison, theme: Theme = "light") -> str:
    """A picture that stands alone: title, lede and caption included, its colours its own."""
    words = _Words(PICTURE.width - 8)
    words.add("h1", comparison.title, 20, 30)
    words.add("lede", comparison.lede, 15, 24)
    words.rule()
    words.add("h2", comparison.heading, 15, 24)
    words.add("lab2", comparison.note, 12, 20)
    top = words.bottom + 4
    below = _Words(PICTURE.width - 8, top + PICTURE.height + 8)
    below.add("lab2", comparison.caption, 12, 18)
    width, height = PICTURE.width + 2 * EDGE, below.bottom + 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}"><style>{_literal(_look("chart.css"), theme)}</style>'
        '<rect class="paper" width="100%" height="100%"/>'
        f'<g transform="translate({EDGE + 4} 0)">{words.body}{below.body}</g>'
        f'<g transform="translate({EDGE} {top})">{_drawn(comparison, PICTURE, "picture")}</g></svg>'
    )


def png(picture: str, zoom: float = 2.0) -> bytes | None:
    """The picture's pixels, or None where the extra `plots` is not installed."""
    try:
        resvg = import_module("resvg_py")
    except ImportError:
        return None
    with as_file(files("penstock") / "assets" / "fonts") as fonts:
        # Only our own fonts: the same picture comes out on every machine.
        drawn = resvg.svg_to_bytes(
            svg_string=picture, zoom=zoom, skip_system_fonts=True, font_dirs=[str(fonts)], sans_serif_family="Inter"
        )
    return bytes(drawn)


def _chart(comparison: Comparison, size: ChartSize, name: str) -> str:
    width, height = size.width, size.height
    return (
        f'<svg class="chart {name}" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label="{escape(_spoken(comparison))}">{_drawn(comparison, size, name)}</svg>'
    )


def _drawn(comparison: Comparison, size: ChartSize, name: str) -> str:
    return chart.draw(
        comparison.curves,
        comparison.bound,
        comparison.no_wait,
        comparison.no_wait_label,
        comparison.you_are_here,
        comparison.currency,
        size,
        name,
    )


def _spoken(comparison: Comparison) -> str:
    """The chart in a sentence, for screen readers."""
    ends = [
        f"{c.label} from {chart.money(c.marks[0].cost, comparison.currency)} at {chart.duration(c.marks[0].delay_h)}"
        f" to {chart.money(c.marks[-1].cost, comparison.currency)} at {chart.duration(c.marks[-1].delay_h)}"
        for c in comparison.curves
        if c.marks
    ]
    return f"{comparison.heading}. " + "; ".join(ends) + "."


def _table(comparison: Comparison) -> str:
    if not comparison.rows:
        return ""
    heads = "".join(f"<th{_classes(c)}>{escape(c.head)}</th>" for c in comparison.columns)
    rows = "".join(_row(comparison.columns, row, i in comparison.chosen) for i, row in enumerate(comparison.rows))
    formula = f'<p class="formula">{escape(_tied(comparison.formula))}</p>' if comparison.formula else ""
    return (
        f'<section class="sec" aria-labelledby="h-tab"><div class="sec-head"><h2 id="h-tab">'
        f"{escape(comparison.table_heading)}</h2></div>"
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="h-tab"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{formula}</section>"
    )


def _row(columns: Sequence[Column], row: Mapping[str, str], chosen: bool) -> str:
    first, *rest = columns
    tick = (
        '<svg class="pick" viewBox="0 0 14 14" aria-hidden="true"><path fill="none" stroke="currentColor"'
        ' stroke-width="1.8" d="M1.5 7.5l3.8 3.8L12.5 3"/></svg><span class="sr">In force: </span>'
    )
    name = f'<th scope="row">{tick if chosen else ""}{escape(_tied(row.get(first.key, "")))}</th>'
    cells = "".join(f"<td{_classes(c)}>{escape(_tied(row.get(c.key, '')))}</td>" for c in rest)
    start = '<tr class="chosen">' if chosen else "<tr>"
    return f"{start}{name}{cells}</tr>"


def _classes(column: Column) -> str:
    names = ["num"] * column.numeric + ["minor"] * column.minor
    joined = " ".join(names)
    return f' class="{joined}"' if joined else ""


def _tied(text: str) -> str:
    """Keeps a number and its unit, or "about" and its number, on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|s|min|h|days?|GPUs?|GPU-h|jobs)(?![\w-]))|(?<=about) (?=[\d$€£])", "\u00a0", text)


class _Words:
    """Wrapped lines of a standalone picture, from the top down. SVG has no wrapping of its own."""

    def __init__(self, width: int, top: int = 8) -> None:
        self.width, self.bottom, self.body = width, top, ""

    def add(self, kind: str, text: str, font: int, leading: int) -> None:
        for line in chart.wrapped(_tied(text), min(self.width, 70 * font), font):
            self.bottom += leading
            self.body += f'<text class="{kind}" x="0" y="{self.bottom - leading // 4}">{escape(line)}</text>'

    def rule(self) -> None:
        self.bottom += 14
        self.body += f'<line class="rule" x1="0" x2="{self.width}" y1="{self.bottom}" y2="{self.bottom}"/>'
        self.bottom += 8


@cache
def _tokens() -> str:
    """Colours, type and space, as the pages of a running Penstock have them."""
    return (files("penstock") / "assets" / "tokens.css").read_text("utf-8").strip()


def _look(name: str) -> str:
    return (files("penstock.sim.charts") / "look" / name).read_text("utf-8").strip()


@cache
def _font_faces() -> str:
    """Inter in three weights, inside the page: 76 kB, and no request to anyone."""
    faces = []
    for weight, name in ((400, "regular"), (500, "medium"), (600, "semibold")):
        data = base64.b64encode((files("penstock") / "assets" / "fonts" / f"inter-{name}.woff2").read_bytes()).decode()
        faces.append(
            f"@font-face {{ font-family: Inter; font-weight: {weight}; font-display: swap;"
            f' src: url(data:font/woff2;base64,{data}) format("woff2"); }}'
        )
    return "\n".join(faces)


def _literal(css: str, theme: Theme) -> str:
    """Style rules with each token's colour written out, for programs that know no custom properties."""
    pairs = re.findall(r"(--[\w-]+):\s*light-dark\((#\w+), (#\w+)\)", _tokens())
    colours = {name: (light if theme == "light" else dark) for name, light, dark in pairs}
    colours["--sans"] = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
    bare = re.sub(r"/\*.*?\*/\s*", "", css, flags=re.DOTALL)
    return re.sub(r"var\((--[\w-]+)\)", lambda m: colours[m[1]], bare)
