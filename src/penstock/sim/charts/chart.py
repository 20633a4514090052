"""Draws the comparison chart as SVG: scales, curves, marks, and labels that do not overlap.

`comparison` calls `draw` once for each page width. Everything is in whole pixels of that width, so text never scales.
Colours and dashes are CSS classes, defined in look/chart.css.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from math import ceil, exp, floor, log, log10

XY = tuple[float, float]

#: Delays below this are drawn at the broken left edge: a log axis has no place for zero.
ZERO_H = 5 / 3600
TICKS_H = [s / 3600 for s in (5, 10, 30, 60, 120, 300, 600, 1200, 1800)] + [1, 2, 4, 8, 12, 24, 48, 96, 168, 336, 672]

#: A label this far from its mark, in pixels, is tied to it by a line.
LEADER_FROM = 16

#: Greys in the order they are handed out; dash and marker differ in each.
OTHERS = ("o1", "o2", "o3", "o4", "o5", "o6")
SHAPES = {
    "o1": "M-3.5 -3.5h7v7h-7z",
    "o2": "M0 -4.5l4.5 8h-9z",
    "o3": "M0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "o4": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "o5": "M0 4.5l4.5 -8h-9z",
    "o6": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "ours": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "ours2": "M-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z",
    "ink": "M0 -6l6 6l-6 6l-6 -6z",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One measured point: one setting of a policy's knob."""

    delay_h: float
    cost: float
    knob: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """One policy's points in the order of its knob. The name `penstock` takes the accent, `penstock-…` its dashes."""

    name: str
    label: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class ChartSize:
    width: int
    height: int
    narrow: bool = False


def draw(
    curves: Sequence[Curve],
    bound: Sequence[XY],
    no_wait: Mark | None,
    no_wait_label: str,
    here: Mark | None,
    currency: str,
    size: ChartSize,
    name: str,
) -> str:
    """The chart's inside. `name` keeps ids apart when several charts share a page."""
    curves = [c for c in curves if c.marks]
    singles = [m for m in (no_wait, here) if m]
    scales = Scales.of([m for c in curves for m in c.marks] + singles, bound, size)
    floor_line = _floor(bound, scales)
    styles = dict(zip((c.name for c in curves), _styles(curves), strict=True))
    paths = {c.name: [scales.at(m) for m in c.marks] for c in curves}

    labels = Labels(scales.right + scales.margin, scales.bottom)
    for line in [*paths.values(), floor_line]:
        labels.avoid(line)
    for mark in [*(at for path in paths.values() for at in path), *map(scales.at, singles)]:
        labels.keep_clear(mark, 5)
    if here:
        labels.keep_clear(scales.at(here), 11)
    # What matters most is placed first and gets the best place.
    words = [
        _here_words(here, scales, currency, labels),
        _no_wait_words(no_wait, no_wait_label, scales, currency, labels),
    ]
    words += [_end_label(c, styles[c.name], paths[c.name], labels) for c in sorted(curves, key=_ours_first)]
    words += [_never_words(floor_line, scales, labels)]
    words += [_knobs(c, here, scales, labels) for c in curves if styles[c.name] == "ours" and not size.narrow]

    drawn = [_never(floor_line, scales, name), _axes(scales, currency)]
    drawn += [_line(paths[c.name], styles[c.name], scales.left) for c in sorted(curves, key=_ours_first, reverse=True)]
    drawn += [_mark(scales.at(no_wait), "ink")] if no_wait else []
    drawn += [_here(here, scales)] if here else []
    # Words placed first come last: a leader on its way to a later label goes under them.
    return "".join(drawn + words[::-1])


# ---- scales -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scales:
    """Maps delays and costs to pixels. `zero` is the position of no delay, if any point has none."""

    left: float
    right: float
    top: float
    bottom: float
    margin: float
    low_h: float
    high_h: float
    zero: float | None
    step: float
    most: float
    narrow: bool

    @classmethod
    def of(cls, marks: Sequence[Mark], bound: Sequence[XY], size: ChartSize) -> Scales:
        delays_h = [m.delay_h for m in marks if m.delay_h >= ZERO_H] or [1 / 6, 1.0]
        none = any(m.delay_h < ZERO_H for m in marks)
        most = max([m.cost for m in marks] + [b for _, b in bound] + [1e-6])
        step = nice_step(most, 5 if size.narrow else 6)
        margin = 10 if size.narrow else 96
        left, gutter = 44.0, (34 if size.narrow else 56)
        return cls(
            left=left + (gutter if none else 0),
            right=size.width - margin,
            top=14,
            bottom=size.height - 42,
            margin=margin,
            low_h=min(delays_h) * 0.8,
            high_h=max(max(delays_h) * 1.1, min(delays_h) * 2),
            zero=left + gutter / 3 if none else None,
            step=step,
            most=max(most * 1.06, step * ceil(most / step) if ceil(most / step) * step < most * 1.12 else 0),
            narrow=size.narrow,
        )

    @property
    def edge(self) -> float:
        """The plot's left edge, the place of no delay included."""
        return 44.0

    def x(self, delay_h: float) -> float:
        if delay_h < ZERO_H and self.zero is not None:
            return self.zero
        part = log(max(delay_h, self.low_h) / self.low_h) / log(self.high_h / self.low_h)
        return self.left + part * (self.right - self.left)

    def y(self, cost: float) -> float:
        return self.bottom - cost / self.most * (self.bottom - self.top)

    def at(self, mark: Mark) -> XY:
        return self.x(mark.delay_h), self.y(mark.cost)

    def delay(self, x: float) -> float:
        return self.low_h * exp((x - self.left) / (self.right - self.left) * log(self.high_h / self.low_h))


def nice_step(most: float, lines: int) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that needs no more than `lines` grid lines."""
    power = 10.0 ** floor(log10(most / lines))
    return next(s * power for s in (1, 2, 2.5, 5, 10, 20) if most / (s * power) <= lines)


def money(amount: float, currency: str = "$") -> str:
    """Three figures: $950, $20.9k, $315k, $1.04M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if amount >= size * 0.9995:
            return f"{currency}{_three(amount / size)}{unit}"
    return f"{currency}{amount:.0f}" if amount >= 100 or amount == int(amount) else f"{currency}{amount:.2f}"


def duration(hours: float) -> str:
    """A delay in words: no delay, 40 s, 38 min, 2.4 h, 3 days."""
    seconds = hours * 3600
    if seconds < 1:
        return "no delay"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.0f} min" if seconds >= 570 else f"{seconds / 60:.2g} min"
    return f"{_three(hours, 2)} h" if hours < 96 else f"{hours / 24:.0f} days"


def _three(value: float, figures: int = 3) -> str:
    text = f"{value:.{max(0, figures - 1 - floor(log10(value)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- lines and marks -------------------------------------------------------------------------------------------


def _ours_first(curve: Curve) -> bool:
    return curve.name != "penstock"


def _styles(curves: Iterable[Curve]) -> Iterator[str]:
    others = 0
    for curve in curves:
        if curve.name == "penstock":
            yield "ours"
        elif curve.name.startswith("penstock-"):
            yield "ours2"
        else:
            yield OTHERS[others % len(OTHERS)]
            others += 1


def _line(points: Sequence[XY], style: str, left: float) -> str:
    """A curve as an SVG path; straight across the axis break, which has no scale."""
    rest = next((i for i, (x, _) in enumerate(points) if x >= left), len(points))
    parts = [smooth(points[rest:])] if points[rest:] else []
    parts += [straight(points[: rest + 1])] if rest else []
    path = "".join(parts)
    return f'<path class="curve c-{style}" d="{path}"/>' + "".join(_mark(p, style) for p in points)


def _mark(at: XY, style: str) -> str:
    return f'<path class="m-{style}" transform="translate({at[0]:.1f} {at[1]:.1f})" d="{SHAPES[style]}"/>'


def smooth(points: Sequence[XY]) -> str:
    """A monotone cubic through the points: no overshoot between measured values. Straight where a curve turns back."""
    if len(points) < 3 or any(b[0] - a[0] < 1 for a, b in pairwise(points)):
        return straight(points)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
    inner = [0.0 if a * b <= 0 else 2 * a * b / (a + b) for a, b in pairwise(slopes)]
    tangents = [slopes[0], *inner, slopes[-1]]
    path = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for (a, b), (m, n) in zip(pairwise(points), pairwise(tangents), strict=True):
        third = (b[0] - a[0]) / 3
        bends = (a[0] + third, a[1] + m * third, b[0] - third, b[1] - n * third, *b)
        path.append("C" + " ".join(f"{v:.1f}" for v in bends))
    return "".join(path)


def straight(points: Sequence[XY]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _floor(bound: Sequence[XY], scales: Scales) -> list[XY]:
    """The bound on the page. It is straight in hours, hence curved on a log axis: drawn at every fourth pixel."""
    if not bound:
        return []
    xs = [scales.left + i * 4 for i in range(int((scales.right - scales.left) / 4) + 1)] + [scales.right]
    line = [(x, min(scales.bottom, scales.y(_between(bound, scales.delay(x))))) for x in xs]
    if scales.zero is None:
        return line
    none = scales.y(_between(bound, 0.0))
    return [(scales.edge, none), (scales.zero + 8, none), *line]


def _between(bound: Sequence[XY], delay_h: float) -> float:
    for (a, b), (c, d) in pairwise(bound):
        if a <= delay_h <= c and c > a:
            return b + (d - b) * (delay_h - a) / (c - a)
    return bound[0][1] if delay_h < bound[0][0] else bound[-1][1]


def _never(line: Sequence[XY], scales: Scales, name: str) -> str:
    if not line:
        return ""
    area = f"{straight(line)}L{line[-1][0]:.1f} {scales.bottom}L{line[0][0]:.1f} {scales.bottom}z"
    return (
        f'<defs><pattern id="never-{name}" width="7" height="7" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><line class="never" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>'
        f'<path fill="url(#never-{name})" d="{area}"/><path class="bound" d="{straight(line)}"/>'
    )


def _here(mark: Mark, scales: Scales) -> str:
    x, y = scales.at(mark)
    where = f'cx="{x:.1f}" cy="{y:.1f}"'
    return f'<circle class="here-ring" {where} r="10"/><circle class="here" {where} r="6.5"/>'


def _axes(scales: Scales, currency: str) -> str:
    out, bottom = [], scales.bottom
    for i in range(floor(scales.most / scales.step + 1e-9) + 1):
        y = round(scales.y(i * scales.step)) + 0.5
        kind = "grid" if i else "axis"
        out.append(f'<line class="{kind}" x1="{scales.edge}" x2="{scales.right}" y1="{y}" y2="{y}"/>')
        amount = money(i * scales.step, currency) if i else "0"
        out.append(f'<text class="end" x="{scales.edge - 8}" y="{y + 4}">{amount}</text>')
    if scales.zero is not None:
        out.append(_tick(scales.zero, "0", bottom))
        cut = (scales.zero + scales.left) / 2 + 2
        out.append(f'<rect class="paper" x="{cut - 3:.1f}" y="{bottom - 3}" width="6" height="7"/>')
        out.append(f'<path class="axis" d="M{cut - 5:.1f} {bottom + 5}l4 -9M{cut + 1:.1f} {bottom + 5}l4 -9"/>')
    out += [_tick(scales.x(t), _tick_words(t), bottom) for t in _ticks(scales)]
    out.append(f'<text class="end" x="{scales.right}" y="{bottom + 36}">mean delay of a job (log scale)</text>')
    return "".join(out)


def _tick(x: float, words: str, bottom: float) -> str:
    return (
        f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
        f'<text class="mid" x="{x:.1f}" y="{bottom + 18}">{words}</text>'
    )


def _ticks(scales: Scales) -> list[float]:
    """Round delays on the axis, each with room for its label."""
    kept: list[float] = []
    apart = 46 if scales.narrow else 60
    for t in TICKS_H:
        if scales.low_h <= t <= scales.high_h and (not kept or scales.x(t) - scales.x(kept[-1]) >= apart):
            kept.append(t)
    return kept


def _tick_words(hours: float) -> str:
    if hours >= 24:
        return f"{hours / 24:.0f} d"
    return (
        f"{hours:.0f} h" if hours >= 1 else f"{hours * 60:.0f} min" if hours * 60 >= 0.99 else f"{hours * 3600:.0f} s"
    )


# ---- labels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def holds(self, point: XY) -> bool:
        return self.left <= point[0] <= self.right and self.top <= point[1] <= self.bottom


@dataclass(slots=True)
class Labels:
    """Places labels. A label never covers another, and covers a line only if no free place is near."""

    right: float
    bottom: float
    taken: list[Box] = field(default_factory=list)
    inked: list[XY] = field(default_factory=list)

    def avoid(self, line: Sequence[XY]) -> None:
        self.inked += between(line)

    def keep_clear(self, at: XY, radius: float) -> None:
        """Keeps labels off a mark: it is what was measured."""
        self.taken.append(Box(at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius))

    def place(self, at: XY, width: float, height: float, gap: float = 9) -> Box | None:
        """The nearest free place around a point, lines avoided as far as possible."""
        best, least = None, float("inf")
        for box in sorted(self._around(at, width, height, gap), key=lambda box: _distance(box, at)):
            if _distance(box, at) >= least:
                break  # what is further off can only be worse
            if self._is_free(box) and (worse := self._worse(box, at)) < least:
                best, least = box, worse
        if best:
            self.taken.append(best)
            self.avoid(leader(at, best))
        return best

    def _worse(self, box: Box, at: XY) -> float:
        # The first two points are on the mark itself.
        through = sum(other.holds(point) for point in between(leader(at, box))[2:] for other in self.taken)
        return self.crossed(box) * 6 + through * 20 + _distance(box, at)

    def _around(self, at: XY, width: float, height: float, gap: float) -> Iterator[Box]:
        x, y = at
        for shift in range(0, 240, 4):
            for top in (y - height / 2 + shift, y - height / 2 - shift):
                over = abs(top + height / 2 - y) >= height / 2 + gap - 2
                beside = (x + gap, x - gap - width)
                for left in (*beside, x - width / 2, x - width * 0.8, x - width * 0.2) if over else beside:
                    yield Box(left, top, left + width, top + height)

    def _is_free(self, box: Box) -> bool:
        inside = box.left >= 46 and box.right <= self.right and box.top >= 0 and box.bottom <= self.bottom
        return inside and not any(box.meets(other) for other in self.taken)

    def crossed(self, box: Box) -> int:
        return sum(map(box.holds, self.inked))


def between(line: Sequence[XY]) -> list[XY]:
    """Points along a line, three pixels apart."""
    points = []
    for a, b in pairwise(line):
        parts = max(1, int(max(abs(b[0] - a[0]), abs(b[1] - a[1])) / 3))
        points += [(a[0] + (b[0] - a[0]) * i / parts, a[1] + (b[1] - a[1]) * i / parts) for i in range(parts + 1)]
    return points


def leader(at: XY, box: Box) -> list[XY]:
    """A line from a point to its label, if the label is far away."""
    near = min(max(at[0], box.left), box.right), min(max(at[1], box.top), box.bottom)
    away = max(abs(near[0] - at[0]), abs(near[1] - at[1]))
    if away < LEADER_FROM:
        return []
    # From the mark's rim, so that the mark stays whole.
    start = at[0] + (near[0] - at[0]) * 6 / away, at[1] + (near[1] - at[1]) * 6 / away
    return [start, near]


def _distance(box: Box, at: XY) -> float:
    across = max(box.left - at[0], 0, at[0] - box.right)
    down = abs((box.top + box.bottom) / 2 - at[1])
    # Right of the end is where a reader looks first.
    return across + down + (0 if box.left > at[0] else 14)


def text_width(text: str, font: float) -> float:
    """A little more than the text needs in Inter, so that other fonts fit as well."""
    return len(text) * font * 0.58


def wrapped(text: str, width: float, font: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", font) * 0.9 <= width:
            lines[-1] += f" {word}"
        elif word:
            lines.append(word)
    return lines


def _say(at: XY, lines: Sequence[tuple[str, str]], labels: Labels, gap: float = 9, drop: bool = False) -> str:
    """Writes lines of (class, words) beside a point, with a leader if they are far away."""
    fonts = {"big": 13, "ours": 13, "lab": 12, "lab2": 12, "": 11}
    width = max(text_width(words, fonts[kind]) for kind, words in lines)
    box = labels.place(at, width, 15 * len(lines), gap)
    if box is None or (drop and (labels.crossed(box) or _distance(box, at) > 34)):
        if box:
            labels.taken.remove(box)
        return ""
    ends_here = box.right <= at[0]
    x = box.right if ends_here else box.left
    thread = leader(at, box)
    out = [f'<path class="leader" d="{straight(thread)}"/>'] if thread else []
    for i, (kind, words) in enumerate(lines):
        where = f'x="{x:.1f}" y="{box.top + 15 * i + 11.5:.1f}"'
        anchor = " end" if ends_here else ""
        out.append(f'<text class="{kind}{anchor} halo" {where}>{escape(words)}</text>')
        out.append(f'<text class="{kind}{anchor}" {where}>{escape(words)}</text>')
    return "".join(out)


def _here_words(mark: Mark | None, scales: Scales, currency: str, labels: Labels) -> str:
    if not mark:
        return ""
    figures = f"{money(mark.cost, currency)}, {duration(mark.delay_h)}"
    return _say(scales.at(mark), [("big", "You are here"), ("lab2", figures)], labels, gap=14)


def _no_wait_words(mark: Mark | None, label: str, scales: Scales, currency: str, labels: Labels) -> str:
    if not mark:
        return ""
    figures = f"{money(mark.cost, currency)}, {duration(mark.delay_h)}"
    return _say(scales.at(mark), [("lab", label), ("lab2", figures)], labels, gap=11)


def _end_label(curve: Curve, style: str, path: Sequence[XY], labels: Labels) -> str:
    kind = "ours" if style == "ours" else "lab" if style == "o1" else "lab2"
    return _say(path[-1], [(kind, curve.label)], labels)


def _never_words(line: Sequence[XY], scales: Scales, labels: Labels) -> str:
    """Inside the hatching, at its left, where it is highest; nothing where there is no room."""
    words = "No schedule can be here"
    x, y = scales.edge + 12, scales.bottom - 26
    box = Box(x, y - 12, x + text_width(words, 12), y + 4)
    if not line or any(point[1] > box.top - 6 for point in line if point[0] <= box.right):
        return ""
    labels.taken.append(box)
    where = f'x="{x}" y="{y}"'
    return f'<text class="lab2 halo" {where}>{words}</text><text class="lab2" {where}>{words}</text>'


def _knobs(curve: Curve, here: Mark | None, scales: Scales, labels: Labels) -> str:
    """The settings along our curve, where there is room for them."""
    marks = [m for m in curve.marks if m.knob and m != here]
    return "".join(_say(scales.at(m), [("", m.knob)], labels, drop=True) for m in marks)
