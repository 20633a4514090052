"""The report's parts as HTML, in the order of the page. Pure; `page` calls `sections`.

Every part answers its question in a sentence first; then a picture; then the numbers; then what they assume.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from html import escape
from typing import Final

from penstock.assess import figures, sentences
from penstock.assess.assessment import Assessment, day_of
from penstock.assess.decision import FlipCurve
from penstock.assess.figures import LabelledCurve, LabelledPoint, RangeRow
from penstock.assess.pieces import MarkedUp, h3, notes, paragraph, table, tied
from penstock.assess.pilot import Pilot
from penstock.assess.waits import WaitRow
from penstock.assess.ways import AS_IT_WAS, BURST, QUEUE, SPOT, Way
from penstock.core.units import DAY, HOUR, MICRO
from penstock.formatting import SYMBOLS, count
from penstock.sim.charts import chart

MOST_ROWS: Final = 12
NO_FASTER: Final = 1.2  #: times as fast: less is not worth four times the GPUs


class ReportWords:
    """Numbers as this report writes them."""

    def __init__(self, assessment: Assessment) -> None:
        self.assessment = assessment
        self.symbol = SYMBOLS.get(assessment.report.currency, f"{assessment.report.currency} ")

    def money(self, amount: float) -> str:
        amount += 0.0  # an axis may have a negative zero
        return f"-{chart.money(-amount, self.symbol)}" if amount < 0 else chart.money(amount, self.symbol)

    def per_hour(self, amount: float) -> str:
        return f"{self.symbol}{amount:,.2f}"

    def hours(self, hours: float) -> str:
        return "none" if hours * 3600 < 1 else chart.duration(hours)

    def share(self, share: float) -> str:
        return f"{share:.0%}".replace("%", " %")

    def days(self) -> str:
        return count(max(1, round((self.assessment.report.to_at - self.assessment.report.from_at) / 24 / HOUR)), "day")


def sections(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    yield _section("seen", "What was seen, and what was not", _seen(assessment, say))
    yield _section("use", "Use: GPUs allocated against GPUs used", _use(assessment, say))
    yield _section("waits", "Waits, and demand above what is owned", _waits(assessment, say))
    yield _section("coming", "What is coming: demand in the next days", _coming(assessment))
    yield _section("ways", "Ways to have run this month", _ways(assessment, say))
    yield _section("buy", "Buy or rent", _buy(assessment, say))
    yield _section("portable", "Portability of the jobs seen", _portable(assessment, say))
    yield _section("pilot", "Pilot: which job first", _pilot(assessment, say))
    yield _section("flips", "What would flip the answer", _flips(assessment, say))
    yield _section("assumed", "What this assumes, with sources", _assumed(assessment, say))


def _section(name: str, head: str, parts: Iterable[str]) -> str:
    return (
        f'<section class="sec" aria-labelledby="h-{name}"><div class="sec-head"><h2 id="h-{name}">{escape(head)}</h2>'
        f"</div>{''.join(parts)}</section>"
    )


# --- what was seen ----------------------------------------------------------------------------------------------------


def _seen(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    rows = [
        [cover.source, f"{cover.jobs:,}", f"{cover.cut:,} ({say.share(cover.cut / cover.jobs if cover.jobs else 0)})",
         f"{cover.unknown_starts:,}"]
        for cover in assessment.report.sources
    ]  # fmt: skip
    yield table(["source", "jobs", "runs cut off", "waits unknown"], rows)
    yield notes(sentences.details(assessment.report))


# --- use and waits ----------------------------------------------------------------------------------------------------


def _use(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    use = assessment.report.use
    yield from map(paragraph, sentences.use(assessment.report))
    if use.by_day:
        yield f'<div class="cols">{_by_day(assessment)}{_by_hour(assessment)}</div>'
    rows = [
        [row.label or "unknown", f"{row.allocated:,.0f}", "" if row.used_share is None else say.share(row.used_share)]
        for row in use.by_team[:MOST_ROWS]
    ]
    idle = [
        [idle_row.job, f"{idle_row.gpus:,}", f"{idle_row.idle_gpu_hours:,.0f}", say.money(idle_row.cost / MICRO)]
        for idle_row in use.idle[:MOST_ROWS]
    ]
    right = h3("Allocations that stood idle") + table(["job", "GPUs", "idle GPU-h", "cost"], idle) if idle else ""
    left = h3("By team") + table(["team", "allocated GPU-h", "used"], rows)
    yield f'<div class="cols gap"><div>{left}</div><div>{right}</div></div>'


def _by_day(assessment: Assessment) -> str:
    bars = [(_short(row.label), row.allocated, row.used) for row in assessment.report.use.by_day]
    return figures.both(
        lambda size: figures.bars(bars, assessment.owned_gpus * 24.0, size),
        f"GPU-hours by day: {sum(held for _, held, _ in bars):,.0f} allocated.",
        "GPU-hours a day. The whole bar: allocated. Its strong part: used, where measured.",
        figures.HALF,
    )


def _by_hour(assessment: Assessment) -> str:
    """Nothing where not every hour of the day was seen."""
    use, days = assessment.report.use, max(1.0, (assessment.report.to_at - assessment.report.from_at) / DAY)
    if len(use.by_hour_of_day) < DAY // HOUR:
        return ""
    bars = [(row.label, row.allocated / days, row.used / days) for row in use.by_hour_of_day]
    return figures.both(
        lambda size: figures.bars(bars, float(assessment.owned_gpus), size),
        "GPUs allocated by hour of the day: " + "; ".join(f"{hour} {held:,.1f}" for hour, held, _ in bars[::3]),
        "GPUs at each hour of the day, on average over the days seen.",
        figures.HALF,
    )


def _short(day: str) -> str:
    """`5 Oct` of `2026-10-05`: a chart has no room for the year."""
    if not day[:4].isdigit():
        return day
    named = date.fromisoformat(day)
    return f"{named.day} {named:%b}"


def _waits(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    waits, wanted = assessment.report.waits, assessment.report.waits.demand
    yield from map(paragraph, sentences.waits(assessment.report))
    if wanted.by_hour:
        day = day_of(assessment.report.calendar)
        yield figures.both(
            lambda size: figures.demand(wanted.by_hour, day, size),
            f"GPUs wanted by hour against {wanted.owned_gpus} owned; the peak is {wanted.peak_gpus}.",
            "GPUs wanted by hour, if nothing had to wait. What is above the line is more than is owned.",
        )
    left = _wait_table(say, "team", waits.by_team[:MOST_ROWS])
    right = _wait_table(say, "GPUs wide", waits.by_width[:MOST_ROWS])
    yield f'<div class="cols gap"><div>{left}</div><div>{right}</div></div>'


def _wait_table(say: ReportWords, head: str, rows: Sequence[WaitRow]) -> str:
    cells = [
        [row.label or "unknown", f"{row.jobs:,}", f"{row.waited:,}", _ms(say, row.median_ms), _ms(say, row.p95_ms)]
        for row in rows
    ]
    return table([head, "jobs", "waited", "half within", "95 % within"], cells)


def _ms(say: ReportWords, ms: int) -> str:
    return say.hours(ms / HOUR)


# --- what is coming ---------------------------------------------------------------------------------------------------


def _coming(assessment: Assessment) -> Iterator[str]:
    coming = assessment.report.coming
    says = sentences.coming(assessment.report)
    yield from map(paragraph, says[:2])
    if not coming.hours:
        return
    hours = [(hour.at, hour.p10, hour.p50, hour.p90) for hour in coming.hours]
    day = day_of(assessment.report.calendar)
    yield figures.both(
        lambda size: figures.coming(coming.before, hours, coming.owned_gpus, day, size),
        says[0],
        "GPUs wanted by hour. Left of the dashed line: the last days, as they were. Right of it: P50, and P10 to P90"
        " as a band.",
    )
    rows = [
        [_short(row.label), f"{row.mean:,.0f}", f"{row.busiest:,.0f}", f"{row.busiest_p90:,.0f}",
         f"{row.hours_above:,}", f"{row.hours_above_p90:,}"]
        for row in coming.by_day
    ]  # fmt: skip
    heads = ["day", "GPUs wanted", "busiest hour", "at P90", "hours above owned", "at P90"]
    yield '<div class="gap">' + table(heads, rows, minor=(1,)) + "</div>"
    yield notes(says[2:])


# --- ways -------------------------------------------------------------------------------------------------------------


def _ways(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    cost = float(assessment.ways.setting.cost_of_delay)
    best = assessment.decision.best
    was = assessment.ways.way(AS_IT_WAS)
    seen = assessment.report.waits.all.sum_ms / max(1, assessment.report.waits.all.jobs) / HOUR
    assert was is not None
    yield paragraph(
        f"Each way is this very month, replayed. As a check: the replay's mean delay as it was is"
        f" {say.hours(was.measured.mean_delay_h)}, and {say.hours(seen)} was seen."
    )
    yield f'<div class="cols gap"><div>{h3("Money")}{_range_figure(assessment, say, "money")}</div>'
    yield f"<div>{h3('Mean delay')}{_range_figure(assessment, say, 'delay')}</div></div>"
    rows = [_way_row(way, say, cost) for way in assessment.ways.ways]
    heads = ["way", "money", "of it rent", "mean delay", "95 % within", "time to model", "kg CO₂e", "with delay priced"]
    yield '<div class="gap">' + table(heads, rows, chosen=[way.name == best for way in assessment.ways.ways],
                                       minor=(2, 4, 5, 6)) + "</div>"  # fmt: skip
    yield notes([*_ways_notes(assessment, say, cost), *assessment.ways.left_out, *assessment.ways.notes])


def _ways_notes(assessment: Assessment, say: ReportWords, cost: float) -> Iterator[str]:
    setting = assessment.ways.setting
    yield f"Money: owned GPUs at {say.per_hour(assessment.own_cost.gpu_hour / MICRO)} an hour each, and the rent."
    yield (
        "Delay: end less submission less run time. Time to model: submission to end of jobs that run an hour or longer."
        f" With delay priced: at {say.per_hour(cost)} for an hour of one job's delay."
    )
    yield (
        f"The cap on rent is {say.money(setting.cap / MICRO)} in each 30 days; {setting.more_gpus:,} GPUs are bought."
        " Jobs still queued at the end are run to their ends, and their rent counts."
    )
    yield savings_words(assessment, say)
    yield (
        "Ranges: run times dealt anew among runs of the same job, two seeds; both ends of unknown waits; and 19 draws"
        f" of the ends of runs that nobody saw. Over {count(assessment.ways.range_jobs, 'job')}."
    )


def savings_words(assessment: Assessment, say: ReportWords) -> str:
    """Of each way but the first: what it costs more or less, what delay it removes, and what both come to together. The
    estimate is the replay itself; the range is that of its variants, and need not have the estimate in its middle.
    """
    was = assessment.ways.way(AS_IT_WAS)
    assert was is not None
    savings = [
        f"{way.in_a_sentence}: {_more(way.measured.money - was.measured.money, say)} in cash,"
        f" {_less(was.measured.delay_h - way.measured.delay_h)}; together {say.money(way.saves)}, between"
        f" {say.money(way.saves_range.low)} and {say.money(way.saves_range.high)}"
        for way in assessment.ways.ways
        if way.name != AS_IT_WAS
    ]
    return (
        f"Against the month as it was, delay priced: {'. '.join(map(_upper, savings))}.{_of_the_queue(assessment, say)}"
    )


def _of_the_queue(assessment: Assessment, say: ReportWords) -> str:
    """What bursting adds to what the queue gives for nothing."""
    queue = assessment.ways.way(QUEUE)
    bursts = [way for name in (BURST, SPOT) if (way := assessment.ways.way(name))]
    if queue is None or not bursts:
        return ""
    best = max(bursts, key=lambda way: way.saves)
    return (
        f" Of the {say.money(best.saves)} of {best.in_a_sentence}, Penstock's queue alone gives"
        f" {say.money(queue.saves)}: bursting adds {say.money(best.saves - queue.saves)}."
    )


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def _more(money: float, say: ReportWords) -> str:
    return f"{say.money(abs(money))} {'more' if money > 0 else 'less'}"


def _less(delay_h: float) -> str:
    return f"{abs(delay_h):,.0f} h of delay {'less' if delay_h >= 0 else 'more'}"


def _range_figure(assessment: Assessment, say: ReportWords, measure: str) -> str:
    rows = []
    for way in assessment.ways.ways:
        spread, at = (
            (way.money, way.measured.money) if measure == "money" else (way.mean_delay_h, way.measured.mean_delay_h)
        )
        rows.append(RangeRow(way.label, spread.low, at, spread.high, way.name == assessment.decision.best))
    words = say.money if measure == "money" else say.hours
    spoken = f"{measure} by way: " + "; ".join(f"{row.label} {words(row.at)}" for row in rows)
    inside = "".join(
        figures.svg(figures.ranges(rows, words, size), size, kind, spoken)
        for kind, size in (
            ("large", figures.ranges_size(len(rows), False)),
            ("small", figures.ranges_size(len(rows), True)),
        )
    )
    return f'<figure class="fig">{inside}</figure>'


def _way_row(way: Way, say: ReportWords, cost: float) -> list[str]:
    m = way.measured
    return [
        MarkedUp(f"{escape(way.label)}<span class='why'>{escape(way.says)}</span>"),
        _spread(say.money(m.money), say.money(way.money.low), say.money(way.money.high)),
        say.money(m.rent) if m.rent else "none",
        _spread(say.hours(m.mean_delay_h), say.hours(way.mean_delay_h.low), say.hours(way.mean_delay_h.high)),
        say.hours(m.p95_delay_h),
        say.hours(m.to_model_h),
        "unknown" if way.co2_kg is None else f"{way.co2_kg:,.0f}",
        say.money(way.total(cost)),
    ]


def _spread(at: str, low: str, high: str) -> str:
    return at if low == high else MarkedUp(f"{escape(at)}<span class='why'>{escape(low)} to {escape(high)}</span>")


# --- buy or rent ------------------------------------------------------------------------------------------------------


def buy_words(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    buy = assessment.buy_or_rent
    today = buy.today
    yield (
        f"An owned {today.gpu} costs {say.per_hour(today.own_gpu_hour)} an hour, a rented one"
        f" {say.per_hour(today.rent_gpu_hour)}: owning pays for GPUs that are wanted more than"
        f" {say.share(today.break_even)} of the time."
        + (" At these prices renting is always cheaper." if today.break_even >= 1 else "")
    )
    yield (
        f"For this load {buy.best.gpus:,} owned GPUs are cheapest: they serve {say.share(buy.best.served)} of the"
        f" GPU-hours, and {say.share(1 - buy.best.served)} are rented. The field's 80/20 takes {buy.eighty.gpus:,} GPUs"
        f" and costs {say.money(buy.eighty.cost)} a year instead of {say.money(buy.best.cost)}; today's"
        f" {buy.owned.gpus:,} cost {say.money(buy.owned.cost)}."
    )
    if buy.newer:
        yield (
            f"With {buy.newer.gpu} the same year costs {say.money(buy.newer.best_cost)} at best, against"
            f" {say.money(today.best_cost)}."
        )


def _buy(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    buy = assessment.buy_or_rent
    today = buy.today
    yield from map(paragraph, buy_words(assessment, say))
    lines = [LabelledCurve(f"{today.gpu}", today.points, "ours")]
    signs = [
        LabelledPoint((today.best_gpus, today.best_cost), f"cheapest: {today.best_gpus:,.0f}"),
        LabelledPoint((float(buy.owned.gpus), buy.owned.cost), f"today: {buy.owned.gpus:,}", "dot"),
    ]
    if buy.owned.gpus == buy.best.gpus:
        signs = [LabelledPoint(signs[0].at, f"today and cheapest: {buy.best.gpus:,}")]
    if buy.newer:
        lines.append(LabelledCurve(buy.newer.gpu, buy.newer.points, "o1"))
    most = today.points[-1][0]
    signs = [sign for sign in signs if sign.at[0] <= most]
    yield figures.both(
        lambda size: figures.curves(lines, signs, lambda x: f"{x:,.0f}", say.money, size),
        f"Yearly cost by owned GPUs; the cheapest is {today.best_gpus:.0f}.",
        "A year's cost against owned GPUs; what is wanted above them is rented on demand, hour by hour."
        + (f" Of {buy.newer.gpu}, GPUs of today's speed are counted." if buy.newer else ""),
    )
    rows = [
        ["Nothing owned", "0", "0 %", "", say.money(buy.all_rented)],
        *(
            [name, f"{split.gpus:,}", say.share(split.served), say.share(split.utilisation), say.money(split.cost)]
            for name, split in (("Cheapest", buy.best), ("80/20", buy.eighty), ("Today", buy.owned))
        ),
        ["Owned for the peak hour", f"{buy.peak:,.0f}", "100 %", "", say.money(buy.all_owned)],
    ]
    yield '<div class="gap">' + table(["base", "GPUs", "serves", "busy", "a year"], rows) + "</div>"
    yield notes([_lean_words(assessment, say), *buy.notes])


def _lean_words(assessment: Assessment, say: ReportWords) -> str:
    buy = assessment.buy_or_rent
    return (
        f"All of this follows the price of an owned GPU-hour. At {say.per_hour(buy.lean_gpu_hour)}, a quarter less (who"
        f" buys well and runs lean), {buy.lean.gpus:,} owned GPUs are cheapest: they serve"
        f" {say.share(buy.lean.served)}, for {say.money(buy.lean.cost)} a year."
    )


# --- portability and pilot --------------------------------------------------------------------------------------------


def _portable(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    port = assessment.portability
    if port is None:
        yield paragraph(
            "No manifest was read, so nobody knows what could leave. --kubeconfig reads them; --redact drops them."
        )
        return
    share = port.gpu_hours_that_go / port.gpu_hours_read if port.gpu_hours_read else 0.0
    yield paragraph(
        f"Of {count(port.templates, 'template')}, {port.goes:,} could run elsewhere today, {port.maps:,} after a"
        f" line in the sites file, {port.never:,} never. The first have {say.share(share)} of the GPU-hours read."
    )
    rows = [
        [row.key, f"{row.gpus:,}", f"{row.runs:,}", f"{row.gpu_hours:,.0f}", row.verdict, row.because]
        for row in port.rows[:MOST_ROWS]
    ]
    yield table(["template", "GPUs", "runs", "GPU-h", "verdict", "because"], rows, minor=(1, 2))
    if port.lines:
        lines = [[line, f"{number:,}"] for line, number in port.lines[:MOST_ROWS]]
        yield '<div class="gap">' + h3("Lines that would free most") + table(["line", "templates"], lines) + "</div>"


def pilot_words(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    pilot = assessment.pilot.pilot
    if pilot is None:
        yield assessment.pilot.why_none
        return
    candidate = pilot.candidate
    yield (
        f"Begin with {candidate.key}: {count(candidate.runs, 'run')} on {count(candidate.gpus, 'GPU')},"
        f" {say.hours(candidate.run_h)} each, done {say.hours(candidate.end_to_end_h)} after submission"
        " (median run, mean wait)."
    )
    yield (
        f"Burst at once it is done after {say.hours(pilot.after_h)}: {say.hours(pilot.gain_h)} sooner, for"
        f" {say.money(pilot.cost_a_run)} a run, {say.money(pilot.cost_a_month)} in 30 days."
    )
    yield _wider_words(pilot, say)
    yield f"It is a success if it is {pilot.success}"


def _pilot(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    pilot = assessment.pilot.pilot
    yield from map(paragraph, pilot_words(assessment, say))
    rows = [
        [
            candidate.key,
            f"{candidate.runs:,}",
            f"{candidate.gpus:,}",
            say.hours(candidate.run_h),
            "unknown" if candidate.wait_h is None else say.hours(candidate.wait_h),
            f"{candidate.points}" if candidate.fits else "no",
            "; ".join(candidate.reasons),
        ]
        for candidate in assessment.pilot.ranked
    ]
    if rows:
        heads = ["job", "runs", "GPUs", "runs for", "waits", "points", "reasons"]
        chosen = [pilot is not None and candidate.key == pilot.candidate.key for candidate in assessment.pilot.ranked]
        yield '<div class="gap">' + table(heads, rows, chosen=chosen, minor=(3, 6)) + "</div>"


def _wider_words(pilot: Pilot, say: ReportWords) -> str:
    candidate, wider = pilot.candidate, pilot.wider
    if wider.speed_up < NO_FASTER:
        return f"Run wider it would hardly be done sooner ({wider.source})."
    return (
        f"Run wider, {candidate.gpus:,} GPUs become {wider.gpus:,}: {say.hours(wider.run_h)} instead of"
        f" {say.hours(candidate.run_h)}, for {say.money(wider.cost)} a run ({wider.source})."
    )


# --- flips and assumptions --------------------------------------------------------------------------------------------


def _flips(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    yield paragraph(
        "Each curve is what the better burst gains over the best way without bursting, in the days seen; the last"
        " one, over the month as it was. Above zero, shaded, it is a go; the dashed line is the assumption here."
    )
    drawn = []
    for flip in assessment.decision.flips:
        words = (lambda x: f"{x:,.0f}") if flip.unit == "GPUs" else say.money
        says = _flip_words(flip, say)
        size = figures.MULTIPLE
        inside = figures.curves([LabelledCurve("", flip.points)], [], words, say.money, size, here=flip.here, zero=True)
        picture = figures.svg(inside, size, "multiple", f"{flip.name}. {says}")
        drawn.append(
            f'<figure class="fig">{h3(flip.name)}{picture}<figcaption>{escape(tied(says))}</figcaption></figure>'
        )
    yield f'<div class="three gap">{"".join(drawn)}</div>'


def _flip_words(flip: FlipCurve, say: ReportWords) -> str:
    def amount(x: float) -> str:
        return f"{x:,.0f} GPUs" if flip.unit == "GPUs" else say.per_hour(x)

    flips = " ".join(
        f"It flips at {amount(x)}; {side} that, best: {way[0].lower()}{way[1:]}."
        for x, (side, way) in zip(flip.flips_at, flip.beyond, strict=True)
    )
    return f"Here: {amount(flip.here)}. {flips or 'It flips nowhere in this range.'}"


def _assumed(assessment: Assessment, say: ReportWords) -> Iterator[str]:
    parts = ", ".join(f"{name} {say.per_hour(amount / MICRO)}" for name, amount in assessment.own_cost.parts)
    quote = assessment.quote
    yield paragraph(
        f"An owned GPU-hour costs {say.per_hour(assessment.own_cost.gpu_hour / MICRO)}: {parts}. A rented one"
        f" {say.per_hour(quote.on_demand / MICRO)} on demand"
        + (f" and {say.per_hour(quote.spot / MICRO)} as spot" if quote.spot else "")
        + f", by {quote.source}; clouds in the table ask {say.per_hour(quote.low / MICRO)} to"
        f" {say.per_hour(quote.high / MICRO)}."
    )
    rows = [
        [
            row.cloud,
            row.region,
            row.node_type,
            f"{row.gpus} × {row.gpu}",
            f"${float(row.on_demand):,.2f}" if row.on_demand else "",
            f"${float(row.spot):,.2f}" if row.spot else "none",
            row.dated,
        ]
        for row in assessment.prices
    ]
    heads = ["cloud", "region", "node", "GPUs", "on demand", "spot", "dated"]
    yield (
        '<div class="gap">'
        + h3("List prices, US dollars for a node and hour")
        + table(heads, rows, minor=(1, 2))
        + "</div>"
    )
    yield notes(
        [
            *assessment.own_cost.notes,
            "Sources of prices: the SkyPilot catalog's snapshots of the clouds' own lists, by the dates above.",
            "Spot nodes come and go like AWS's V100 nodes of us-east-2 did in 2023 (SkyPilot's recordings).",
        ]
    )
