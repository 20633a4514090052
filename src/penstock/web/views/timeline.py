"""A job's attempts on a time line: lanes in the order of first use, arrows for moves, a cross for a preemption."""

from itertools import zip_longest
from typing import Final

from markupsafe import Markup

from penstock.core.units import DAY, HOUR, MINUTE, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.formatting import duration
from penstock.journal.states import ENDED
from penstock.web import schemas
from penstock.web.views.formats import NBSP, TERMS, clock, many

LANE: Final = 48  #: pixels
#: Axis intervals: the first with at most eight marks is used.
STEPS: Final = (
    SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE,
    HOUR, 2 * HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 30 * DAY,
)  # fmt: skip
MOST_MARKS: Final = 8
WIDE_ENOUGH: Final = 8.0  #: percent of the width that a bar needs to show its duration


@value
class Axis:
    begin: Instant
    end: Instant

    def x(self, at: Instant) -> float:
        return (at - self.begin) / (self.end - self.begin) * 100

    def marks(self) -> list[Instant]:
        whole = self.end - self.begin
        step = next((length for length in STEPS if whole <= length * MOST_MARKS), STEPS[-1])
        first = -(-self.begin // step) * step
        return list(range(first, self.end, step))[: 4 * MOST_MARKS]

    def label(self, at: Instant) -> str:
        return f"{clock(at, at)}:{at // SECOND % 60:02}" if self.end - self.begin < 6 * MINUTE else clock(at, at)


def draw(job: schemas.JobDetail, terms: dict[str, str], now: Instant) -> Markup:
    end = job.ended_at if job.state in ENDED and job.ended_at else now
    whole = max(end - job.submitted_at, SECOND)
    axis = Axis(job.submitted_at - whole // 50, end + whole // 7)  # space for a word right of the last bar
    lanes = ["", *dict.fromkeys(attempt.offer for attempt in job.tries)]
    height = len(lanes) * LANE
    parts = [_grid(axis, lanes, height), _waits(job, axis, end), *_tries(job, axis, lanes, terms, end)]
    if job.state not in ENDED:
        parts.append(_now(axis, now, height))
    return Markup(
        '<figure class="plot axes story"><svg class="gutter" width="176" height="{}" aria-hidden="true">{}</svg>'
        '<svg class="area" height="{}" role="img" aria-label="{}">{}</svg></figure>'
    ).format(height + 24, _names(job, lanes, terms), height + 24, sentence(job, end), Markup("").join(parts))


def sentence(job: schemas.JobDetail, end: Instant) -> str:
    """The time line as a sentence."""
    outcomes = [
        f"{attempt.offer}, {_length(attempt, end)}{f', {_state(attempt)}' if attempt.ended_at else ''}"
        for attempt in job.tries
    ]
    return f"{many(len(job.tries), 'attempt')}{': ' if outcomes else ''}{'; '.join(outcomes)}."


def _state(attempt: schemas.Attempt) -> str:
    return attempt.state.replace("_", " ")


def _length(attempt: schemas.Attempt, end: Instant) -> str:
    return duration((attempt.ended_at or end) - (attempt.started_at or attempt.promised_at))


def _grid(axis: Axis, lanes: list[str], height: int) -> Markup:
    ticks = Markup("").join(
        Markup('<line class="grid" x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="{h}"/>').format(x=axis.x(at), h=height)
        + Markup('<text class="mid{}" x="{:.3f}%" y="{}">{}</text>').format(
            " minor" if k % 2 else "", axis.x(at), height + 17, axis.label(at)
        )
        for k, at in enumerate(axis.marks())
    )
    rules = Markup("").join(
        Markup('<line class="grid minor" x2="100%" y1="{y}" y2="{y}"/>').format(y=k * LANE + 4)
        for k in range(1, len(lanes))
    )
    base = Markup('<line class="axis" x2="100%" y1="{h}" y2="{h}"/>').format(h=height)
    return ticks + rules + base


def _names(job: schemas.JobDetail, lanes: list[str], terms: dict[str, str]) -> Markup:
    notes = [f"since {clock(job.submitted_at, job.submitted_at)}"]
    notes += [terms.get(offer, "gone").replace("_", " ") for offer in lanes[1:]]
    return Markup("").join(
        Markup('<text class="lab" x="0" y="{}">{}</text><text x="0" y="{}">{}</text>').format(
            k * LANE + 26, _short(name or "queue", 26), k * LANE + 40, note
        )
        for k, (name, note) in enumerate(zip(lanes, notes, strict=True))
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def waits(job: schemas.JobDetail, end: Instant) -> list[tuple[Instant, Instant]]:
    """Intervals without GPUs: before, between and after attempts."""
    spans, since = [], job.submitted_at
    for attempt in job.tries:
        if attempt.promised_at > since:
            spans.append((since, attempt.promised_at))
        since = max(since, attempt.ended_at or end)
    return [*spans, (since, end)] if job.state not in ENDED and end > since else spans


def _waits(job: schemas.JobDetail, axis: Axis, end: Instant) -> Markup:
    lines = Markup("").join(
        Markup('<line class="wait-line" x1="{:.3f}%" x2="{:.3f}%" y1="28" y2="28"/>').format(axis.x(a), axis.x(b))
        for a, b in waits(job, end)
    )
    total = sum(b - a for a, b in waits(job, end))
    if not total:
        return lines
    first = waits(job, end)[0]
    label = Markup('<text class="lab2 halo" x="{:.3f}%" y="16">queued{}{}</text>')
    return lines + label.format(axis.x(first[0]), NBSP, duration(total))


def _tries(job: schemas.JobDetail, axis: Axis, lanes: list[str], terms: dict[str, str], end: Instant) -> list[Markup]:
    """Bars and arrows, then the ends, so that no bar hides them."""
    parts, ends, before = [], [], 0
    for attempt, following in zip_longest(job.tries, job.tries[1:]):
        lane = lanes.index(attempt.offer)
        parts.append(_hop(axis.x(attempt.promised_at), before, lane))
        parts.append(_attempt(attempt, axis, lane, TERMS.get(terms.get(attempt.offer, ""), "neutral"), end))
        stays = following is not None and following.offer == attempt.offer
        ends.append(_end(attempt, axis.x(attempt.ended_at or end), lane, above=stays))
        before = lane
    return [*parts, *ends, *(_narrow(name, k) for k, name in enumerate(lanes) if name)]


def _attempt(attempt: schemas.Attempt, axis: Axis, lane: int, term: str, end: Instant) -> Markup:
    over = attempt.ended_at or end
    begun = min(attempt.started_at or over, over)
    body = _bar("g-start", attempt.promised_at, begun, axis, lane, Markup(' fill="url(#h-{})"').format(term))
    body += _bar("fill", begun, over, axis, lane) if attempt.started_at else Markup("")
    body += _said(over - begun, begun, over, axis, lane, term) if attempt.started_at else Markup("")
    return Markup('<g class="{}">{}</g>').format(term, body)


def _bar(look: str, a: Instant, b: Instant, axis: Axis, lane: int, more: Markup = Markup("")) -> Markup:  # noqa: B008 - a value
    shape = Markup('<rect class="{}" x="{:.3f}%" width="{:.3f}%" y="{}" height="22"{}/>')
    return (
        shape.format(look, axis.x(a), max(0.15, axis.x(b) - axis.x(a)), lane * LANE + 17, more) if b > a else Markup("")
    )


def _said(ran: Millis, a: Instant, b: Instant, axis: Axis, lane: int, term: str) -> Markup:
    if axis.x(b) - axis.x(a) < WIDE_ENOUGH:
        return Markup("")
    ink = {"spot": "onspot", "reserved": "onpale"}.get(term, "on")
    shape = Markup('<text class="{} mid wide-only" x="{:.3f}%" y="{}">{}</text>')
    return shape.format(ink, (axis.x(a) + axis.x(b)) / 2, lane * LANE + 32, duration(ran))


def _end(attempt: schemas.Attempt, x: float, lane: int, above: bool) -> Markup:
    """A word right of the bar; above it, if the next bar of this lane follows."""
    y, dx = lane * LANE + (9 if above else 28), 0 if above else 10
    if attempt.state in ("preempted", "failed", "no_capacity"):
        return Markup(
            '<svg x="{x:.3f}%" y="{y}"><path class="cross" d="M{left} -4l8 8m0 -8l-8 8"/></svg>'
            '<text class="lab2 halo" x="{x:.3f}%" dx="{right}" y="{t}"><tspan class="alarm-t">{what}</tspan></text>'
        ).format(x=x, y=y, left=dx - 4, right=dx + 9, t=y + 4, what=_state(attempt))
    if attempt.ended_at is None or above:
        return Markup("")
    return Markup('<text class="lab2 halo" x="{:.3f}%" dx="7" y="{}">{}</text>').format(x, y + 4, _state(attempt))


def _hop(x: float, start: int, lane: int) -> Markup:
    if start == lane:
        return Markup("")
    down = lane > start
    y1, y2 = start * LANE + (39 if start else 28), lane * LANE + 12
    if not down:
        y1, y2 = start * LANE + 17, lane * LANE + 46
    head = "M-4 0h8l-4 6z" if down else "M-4 0h8l-4 -6z"
    return Markup(
        '<line class="hop" x1="{x:.3f}%" x2="{x:.3f}%" y1="{a}" y2="{b}"/>'
        '<svg x="{x:.3f}%" y="{y}"><path class="hop-head" d="{head}"/></svg>'
    ).format(x=x, a=y1, b=y2, y=y2 - 2 if down else y2, head=head)


def _narrow(name: str, lane: int) -> Markup:
    """On a phone there is no space beside the lanes, so names are inside."""
    shape = Markup('<text class="lab halo narrow-only" x="0" y="{}">{}</text>')
    return shape.format(lane * LANE + 14, _short(name, 40))


def _now(axis: Axis, now: Instant, height: int) -> Markup:
    return Markup(
        '<line class="now-line" x1="{x:.3f}%" x2="{x:.3f}%" y1="8" y2="{h}"/>'
        '<text class="lab halo mid" x="{x:.3f}%" y="4">now</text>'
    ).format(x=axis.x(now), h=height)
