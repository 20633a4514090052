"""The report's charts, as inline SVG. Pure functions from numbers to text. Each is drawn for a wide and a narrow page,
so that text never scales; colours and dashes are CSS classes of `chart.css` and `report.css`.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from penstock.core.units import DAY, Instant
from penstock.core.values import value
from penstock.sim.charts.chart import nice_step

LARGE: Final = (720, 250)
HALF: Final = (560, 250)  #: two beside each other
SMALL: Final = (358, 230)
MULTIPLE: Final = (340, 190)
NARROW: Final = 500  #: a drawing below this width is for phones
XY = tuple[float, float]
NumberFormat = Callable[[float], str]


@value
class PlotScales:
    """Scales of one drawing: the data's range to pixels."""

    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    low_x: float
    high_x: float
    low_y: float
    high_y: float

    def x(self, at: float) -> float:
        return self.left + (at - self.low_x) / (self.high_x - self.low_x or 1) * (self.right - self.left)

    def y(self, at: float) -> float:
        return self.bottom - (at - self.low_y) / (self.high_y - self.low_y or 1) * (self.bottom - self.top)


def plot_of(size: tuple[int, int], xs: XY, ys: XY, margin: float = 8) -> PlotScales:
    """`ys` grows to the next grid line."""
    width, height = size
    low, high = min(0.0, ys[0]), max(0.0, ys[1])
    step = nice_step(max(high - low, 1e-9), 4)
    low, high = low // step * step, -(-high // step) * step
    return PlotScales(width, height, 52, width - margin, 14, height - 26, xs[0], xs[1], low, max(high, low + step))


def both(draw: Callable[[tuple[int, int]], str], spoken: str, caption: str = "", large: tuple[int, int] = LARGE) -> str:
    """A figure with its two drawings."""
    inside = "".join(svg(draw(size), size, kind, spoken) for kind, size in (("large", large), ("small", SMALL)))
    figcaption = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="fig">{inside}{figcaption}</figure>'


def svg(inside: str, size: tuple[int, int], kind: str, spoken: str) -> str:
    width, height = size
    return (
        f'<svg class="chart {kind}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{escape(spoken)}">{inside}</svg>'
    )


# --- demand over the month --------------------------------------------------------------------------------------------


def demand(hours: Sequence[tuple[Instant, float, int]], day: Callable[[Instant], str], size: tuple[int, int]) -> str:
    """GPUs wanted by hour: what the owned ones could serve, and what is above."""
    first, last = hours[0][0], hours[-1][0]
    most = max(max(wanted, owned) for _, wanted, owned in hours)
    plot = plot_of(size, (first, max(last, first + 1)), (0, most))
    base = [(plot.x(at), plot.y(min(wanted, owned))) for at, wanted, owned in hours]
    line = [(plot.x(at), plot.y(wanted)) for at, wanted, _ in hours]
    owns = [(plot.x(at), plot.y(owned)) for at, _, owned in hours]
    above = "".join(
        _strip(a, b, c, d) for (a, b), (c, d) in pairwise(zip(line, base, strict=True)) if a[1] < b[1] - 0.2
    )
    parts = [
        _grid(plot, lambda gpus: f"{gpus:,.0f}"),
        f'<path class="a-owned" d="{_area(base, plot.bottom)}"/>',
        f'<path class="a-above" d="{above}"/>' if above else "",
        f'<path class="l-owned" d="{_path(owns)}"/>',
        _say(plot.right, owns[-1][1] - 5, f"{hours[-1][2]:,} owned", "lab end"),
        *_days(plot, [at for at, _, _ in hours], day),
    ]
    return "".join(parts)


def coming(
    before: Sequence[tuple[Instant, float]],
    hours: Sequence[tuple[Instant, float, float, float]],
    owned: int,
    day: Callable[[Instant], str],
    size: tuple[int, int],
) -> str:
    """GPUs wanted by hour: the last days as they were, and the next with P10, P50 and P90."""
    if size[0] < NARROW:
        before = before[-len(hours) :]  # a phone has no room for a week
    first, now, last = before[0][0], hours[0][0], hours[-1][0]
    most = max([float(owned), *(gpus for _, gpus in before), *(p90 for *_, p90 in hours)])
    plot = plot_of(size, (first, last), (0, most))
    was = [(plot.x(at), plot.y(gpus)) for at, gpus in before]
    low = [(plot.x(at), plot.y(p10)) for at, p10, _, _ in hours]
    middle = [(plot.x(at), plot.y(p50)) for at, _, p50, _ in hours]
    high = [(plot.x(at), plot.y(p90)) for at, _, _, p90 in hours]
    owns = [(plot.left, plot.y(owned)), (plot.right, plot.y(owned))]
    return "".join(
        [
            _grid(plot, lambda gpus: f"{gpus:,.0f}"),
            f'<path class="a-owned" d="{_area(was, plot.bottom)}"/>',
            f'<path class="band" d="{_path([*high, *reversed(low)])}z"/>',
            f'<path class="curve c-ours" d="{_path(middle)}"/>',
            f'<path class="l-owned" d="{_path(owns)}"/>',
            f'<line class="now" x1="{plot.x(now):.1f}" x2="{plot.x(now):.1f}" y1="{plot.top}" y2="{plot.bottom}"/>',
            _say(plot.left + 4, plot.y(owned) - 5, f"{owned:,} owned", "lab"),
            *_days(plot, [at for at, _ in before] + [at for at, *_ in hours], day),
        ]
    )


def _strip(a: XY, b: XY, c: XY, d: XY) -> str:
    return f"M{a[0]:.1f} {a[1]:.1f}L{c[0]:.1f} {c[1]:.1f}L{d[0]:.1f} {d[1]:.1f}L{b[0]:.1f} {b[1]:.1f}z"


def _days(plot: PlotScales, hours: Sequence[Instant], day: Callable[[Instant], str]) -> Iterable[str]:
    days = list(dict.fromkeys(at // DAY for at in hours))
    every = max(1, -(-len(days) // (4 if plot.width < NARROW else 9)))
    for number in days[::every]:
        at = max(number * DAY, hours[0])
        if plot.x(at) < plot.right - 20:
            yield _say(plot.x(at), plot.bottom + 16, day(at), "")


# --- use by day and by hour -------------------------------------------------------------------------------------------


def bars(rows: Sequence[tuple[str, float, float]], most: float, size: tuple[int, int]) -> str:
    """A bar for each label: what was allocated, and of that what was used."""
    plot = plot_of(size, (0, max(1, len(rows))), (0, max([most, *(held for _, held, _ in rows)])))
    wide = (plot.right - plot.left) / max(1, len(rows))
    every = max(1, -(-len(rows) // (6 if plot.width < NARROW else 12)))
    parts = [_grid(plot, lambda hours: f"{hours:,.0f}")]
    for k, (label, held, used) in enumerate(rows):
        left = plot.x(k) + wide * 0.12
        parts.append(_bar(plot, left, wide * 0.76, held, "b-held") + _bar(plot, left, wide * 0.76, used, "b-used"))
        if k % every == 0 and left < plot.right - 34:
            parts.append(_say(left, plot.bottom + 16, label, ""))
    if most:
        at = plot.y(most)
        parts.append(f'<line class="l-owned" x1="{plot.left}" x2="{plot.right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_say(plot.right, at - 5, "all that is owned", "lab end"))
    return "".join(parts)


def _bar(plot: PlotScales, left: float, width: float, amount: float, kind: str) -> str:
    top = plot.y(amount)
    return f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{plot.bottom - top:.1f}"/>'


# --- ranges in rows ---------------------------------------------------------------------------------------------------


@value
class RangeRow:
    label: str
    low: float
    at: float
    high: float
    chosen: bool = False


def ranges(rows: Sequence[RangeRow], words: NumberFormat, size: tuple[int, int]) -> str:
    """A dot with its range for each row, on one scale from zero."""
    width, _ = size
    left, right, top, tall = 150.0, width - 78.0, 8.0, 26.0
    most = max([row.high for row in rows] + [1e-9])

    def x(amount: float) -> float:
        return left + amount / most * (right - left)

    parts = []
    for k, row in enumerate(rows):
        y = top + tall * (k + 0.5)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
        parts.append(_say(0, y + 4, row.label, "lab" if row.chosen else "lab2"))
        if row.high > row.low:
            parts.append(f'<line class="span" x1="{x(row.low):.1f}" x2="{x(row.high):.1f}" y1="{y}" y2="{y}"/>')
        kind = "dot pick" if row.chosen else "dot"
        parts.append(f'<circle class="{kind}" cx="{x(row.at):.1f}" cy="{y}" r="4.5"/>')
        parts.append(_say(width, y + 4, words(row.at), "lab end" if row.chosen else "lab2 end"))
    return "".join(parts)


def ranges_size(rows: int, narrow: bool) -> tuple[int, int]:
    return (358 if narrow else 520), round(16 + 26 * rows)


# --- curves -----------------------------------------------------------------------------------------------------------


@value
class LabelledCurve:
    """One curve, labelled at its end. `style`: ours, o1, o2 as in chart.css."""

    label: str
    points: tuple[XY, ...]
    style: str = "ours"


@value
class LabelledPoint:
    """A point with words."""

    at: XY
    words: str
    style: str = "here"


def curves(
    lines: Sequence[LabelledCurve],
    signs: Sequence[LabelledPoint],
    x_words: NumberFormat,
    y_words: NumberFormat,
    size: tuple[int, int],
    *,
    here: float | None = None,
    zero: bool = False,
) -> str:
    points = [point for line in lines for point in line.points]
    xs = min(x for x, _ in points), max(x for x, _ in points)
    plot = plot_of(size, xs, (min(y for _, y in points), max(y for _, y in points)), 12)
    parts = [_grid(plot, y_words), *_x_ticks(plot, x_words)]
    if zero:
        at = plot.y(0)
        parts.insert(0, f'<rect class="go" x="{plot.left}" y="{plot.top}" width="{plot.right - plot.left:.1f}"'
                        f' height="{max(0.0, at - plot.top):.1f}"/>')  # fmt: skip
        parts.append(f'<line class="zero" x1="{plot.left}" x2="{plot.right}" y1="{at:.1f}" y2="{at:.1f}"/>')
    if here is not None and xs[0] <= here <= xs[1]:
        x = plot.x(here)
        parts.append(f'<line class="now" x1="{x:.1f}" x2="{x:.1f}" y1="{plot.top}" y2="{plot.bottom}"/>')
    for line in lines:
        path = _path([(plot.x(x), plot.y(y)) for x, y in line.points])
        parts.append(f'<path class="curve c-{line.style}" d="{path}"/>')
    for line in lines:
        x, y = line.points[-1]
        parts.append(_say(plot.right, plot.y(y) - 8, line.label, "ours end" if line.style == "ours" else "lab2 end"))
    for k, sign in enumerate(signs):
        x, y = plot.x(sign.at[0]), plot.y(sign.at[1])
        parts.append(f'<circle class="{sign.style}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
        # The first below its point and the next above it: two that are near each other stay apart.
        parts.append(_say(x, y + 20 if k == 0 and y < plot.bottom - 24 else y - 11, sign.words, _anchored(plot, x)))
    return "".join(parts)


def _anchored(plot: PlotScales, x: float) -> str:
    """Words centred on their point, unless they would leave the drawing."""
    if x > plot.right - 60:
        return "lab end"
    return "lab" if x < plot.left + 60 else "lab mid"


def _x_ticks(plot: PlotScales, words: NumberFormat) -> Iterable[str]:
    step = nice_step(max(plot.high_x - plot.low_x, 1e-9), 4 if plot.width < NARROW else 8)
    at = -(-plot.low_x // step) * step
    while at <= plot.high_x + step * 1e-6:
        x = plot.x(at)
        anchor = " end" if x > plot.right - 14 else " mid"
        yield _say(x, plot.bottom + 16, words(at), anchor.strip())
        at += step


def _grid(plot: PlotScales, words: NumberFormat) -> str:
    step = nice_step(plot.high_y - plot.low_y, 4)
    parts, at = [], -(-plot.low_y // step) * step
    while at <= plot.high_y + step * 1e-6:
        y = plot.y(at)
        parts.append(f'<line class="grid" x1="{plot.left}" x2="{plot.right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_say(plot.left - 6, y + 4, words(at), "end"))
        at += step
    return "".join(parts)


def _path(points: Sequence[XY]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _area(points: Sequence[XY], bottom: float) -> str:
    return f"{_path(points)}L{points[-1][0]:.1f} {bottom:.1f}L{points[0][0]:.1f} {bottom:.1f}z"


def _say(x: float, y: float, words: str, kind: str) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}"'
    text = escape(words)
    halo = (
        f'<text class="{kind} halo" {where} aria-hidden="true">{text}</text>'
        if kind.startswith(("lab", "ours"))
        else ""
    )
    return f'{halo}<text class="{kind}" {where}>{text}</text>'
