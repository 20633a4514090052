"""`python -m bench.assess`: how often the ranges that `penstock assess` states hold the truth (docs/assess.md).

    python -m bench.assess [--months 50] [--first 0] [--jobs 400] [--days 10] [--views cut thinned] [--json]

Each generated month is known in full. It is seen in three ways: whole; cut, as somebody sees it who looks before it has
ended, with runs that go on and jobs still queued; and thinned, with a quarter of the jobs of unknown submission or
start. For each the report's ranges of waits (median and p95), demand and savings are compared with the truth: the
same jobs with all their times, and the same ways replayed on them.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import Final, NamedTuple

from penstock.assess.demo_month import GeneratedMonth, demo_reading, generated_month
from penstock.assess.history import JobRecord, MonthHistory
from penstock.assess.join import join
from penstock.assess.own_cost import default_cost
from penstock.assess.prices import RentQuote
from penstock.assess.replay import other_guesses, replayable
from penstock.assess.waits import WaitRange, quantile, waits_of
from penstock.assess.ways import (
    AS_IT_WAS,
    BOUGHT,
    BURST,
    ReplayFigures,
    WaysReport,
    measure,
    nearer_order,
    setting_of,
    ways_of,
)
from penstock.assess.ways_words import WaysSetting
from penstock.core.units import HOUR, Instant

MONTHS, JOBS, DAYS = 50, 400, 10
#: How busy differs from month to month.
LOADS: Final = (0.6, 0.7, 0.8)
COST_OF_DELAY: Final = "20"
QUOTE: Final = RentQuote(gpu="H100", on_demand=3_250_000, spot=None, source="a cheap cloud", low=0, high=0)
SEEN_SHARE: Final = 0.8  #: of the month's days, where it is cut
THINNED: Final = 0.25  #: of the jobs
WAYS: Final = (BURST, BOUGHT)
VIEWS: Final = ("whole", "cut", "thinned")


class Held(NamedTuple):
    """Whether each stated range holds the truth of one month."""

    view: str
    seed: int
    ranges: dict[str, bool]
    errors: dict[str, float]  #: by how much the figure itself is off, of the truth


def main(words: Sequence[str] | None = None) -> int:
    args = parsed(words)
    seeds = range(args.first, args.first + args.months)
    with get_context("spawn").Pool(args.processes) as pool:
        all_rows = []
        for rows in pool.imap_unordered(partial(judged, jobs=args.jobs, days=args.days, views=args.views), seeds):
            all_rows += rows
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    counted = counts(all_rows)
    print(json.dumps(counted, indent=1) if args.json else as_text(counted, args.months))
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.assess", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--months", type=int, default=MONTHS)
    parser.add_argument("--first", type=int, default=0, help="the first month's seed")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--views", nargs="+", choices=VIEWS, default=VIEWS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def judged(seed: int, jobs: int = JOBS, days: int = DAYS, views: Sequence[str] = VIEWS) -> list[Held]:
    """One month, seen in each of the ways."""
    month = generated_month(seed, jobs, load=LOADS[seed % len(LOADS)], days=days)
    whole = join([demo_reading(month)])
    ends_at = month.jobs[0].submitted_at + int((month.jobs[-1].submitted_at - month.jobs[0].submitted_at) * SEEN_SHARE)
    results = []
    for view in views:
        true = shortened(whole, ends_at, cut=False) if view == "cut" else whole
        seen = shortened(whole, ends_at, cut=True) if view == "cut" else whole
        results.append(compared(view, seed, month, true, thinned(seen, seed) if view == "thinned" else seen))
    return results


def compared(view: str, seed: int, month: GeneratedMonth, true: MonthHistory, seen: MonthHistory) -> Held:
    stated, (ways, truth) = waits_of(seen), replayed(seen, true)
    waits, demand = sorted(job.wait_ms or 0 for job in true.jobs), wanted(true)
    ranges = {
        "waits, median": holds(stated.median, quantile(waits, 500)),
        "waits, p95": holds(stated.p95, quantile(waits, 950)),
        "demand": stated.demand.low_gpu_hours - 1 <= demand <= stated.demand.high_gpu_hours + 1,
    }
    errors = {"waits, sum": apart(stated.all.sum_ms, sum(waits)), "demand": apart(stated.demand.gpu_hours, demand)}
    for name in WAYS:
        way, saved = ways.way(name), saves(truth, name, ways.setting)
        assert way is not None
        if view == "whole":  # against what really happened, in which nobody overtook
            saved += float(ways.setting.cost_of_delay) * (sum(month.waits_ms) / HOUR - truth[AS_IT_WAS].delay_h)
        ranges[f"savings, {name}"] = way.saves_range.low <= saved <= way.saves_range.high
        errors[f"savings, {name}"] = apart(way.saves, saved)
    return Held(view, seed, ranges, errors)


def replayed(seen: MonthHistory, true: MonthHistory) -> tuple[WaysReport, dict[str, ReplayFigures]]:
    """The report's ways of what was seen, and the same ways of what was true. As it was, the cluster is the same."""
    month, truth = replayable(seen), replayable(true)
    setting = setting_of(month, QUOTE, default_cost("H100"), COST_OF_DELAY, None, None)
    known = waits_of(seen).all
    setting, was = nearer_order(month, setting, known.sum_ms / max(1, known.jobs) / HOUR, lambda _: None)
    ways = ways_of(month, setting, other_guesses(seen, month), lambda _: None, (AS_IT_WAS, *WAYS), was)
    return ways, {name: measure(name, truth, truth.jobs, setting, 0) for name in (AS_IT_WAS, *WAYS)}


def saves(truth: Mapping[str, ReplayFigures], name: str, setting: WaysSetting) -> float:
    was, way = truth[AS_IT_WAS], truth[name]
    return was.money - way.money + float(setting.cost_of_delay) * (was.delay_h - way.delay_h)


def holds(stated: WaitRange, truth: int) -> bool:
    return stated.low_ms <= truth and (stated.high_ms is None or truth <= stated.high_ms)


def apart(measured: float, truth: float) -> float:
    return abs(measured - truth) / abs(truth) if truth else float(abs(measured) > 1)


def wanted(true: MonthHistory) -> float:
    """GPU-hours that would have run within the month if nobody had waited."""
    spans = [(job.gpus, job.submitted_at or 0, (job.submitted_at or 0) + (job.run_ms or 0)) for job in true.jobs]
    return sum(gpus * max(0, min(end, true.to_at) - at) for gpus, at, end in spans) / HOUR


# --- what is not seen -------------------------------------------------------------------------------------------------


def shortened(whole: MonthHistory, until: Instant, *, cut: bool) -> MonthHistory:
    """Jobs submitted by then. Cut: as they looked then."""
    jobs = [job for job in whole.jobs if (job.submitted_at or 0) < until]
    return replace(whole, to_at=until, jobs=tuple(_as_seen(job, until) for job in jobs) if cut else tuple(jobs))


def _as_seen(job: JobRecord, until: Instant) -> JobRecord:
    if (job.started_at or 0) >= until:
        return replace(job, started_at=None, ended_at=None, started_by="", ended_by="", outcome="queued")
    if (job.ended_at or 0) > until:
        return replace(job, ended_at=until, ended_by="samples", outcome="running", cut="end")
    return job


def thinned(whole: MonthHistory, seed: int) -> MonthHistory:
    """Of some jobs nobody knows the submission, of others only what the Job's own status says of the start."""
    chance = Random(f"penstock {seed} thinned")
    return replace(whole, jobs=tuple(_thinned(job, chance.random()) for job in whole.jobs))


def _thinned(job: JobRecord, draw: float) -> JobRecord:
    if job.started_at is None or job.cut or draw >= THINNED:
        return job
    if draw < THINNED / 2:
        return replace(job, submitted_at=None, submitted_by="")
    return replace(job, started_at=job.submitted_at, started_by="job")


# --- counts -----------------------------------------------------------------------------------------------------------


def counts(rows: Sequence[Held]) -> dict[str, dict[str, dict[str, float]]]:
    """By view and figure: how many months held, of how many, and the median error of the figure itself."""
    held: Counter[tuple[str, str]] = Counter()
    judged_: Counter[tuple[str, str]] = Counter()
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for name, is_held in row.ranges.items():
            held[row.view, name] += is_held
            judged_[row.view, name] += 1
        for name, error in row.errors.items():
            errors.setdefault((row.view, name), []).append(error)
    keys = dict.fromkeys([*judged_, *errors])
    table: dict[str, dict[str, dict[str, float]]] = {}
    for view in VIEWS:
        for key in (key for key in keys if key[0] == view):
            off = sorted(errors.get(key, ()))
            figures: dict[str, float] = {"held": held[key], "months": judged_[key]} if key in judged_ else {}
            if off:
                figures |= {"median_error": off[len(off) // 2], "worst_error": off[-1]}
            table.setdefault(view, {})[key[1]] = figures
    return table


def as_text(table: Mapping[str, Mapping[str, Mapping[str, float]]], months: int) -> str:
    lines = [f"{months} generated months: how many of the stated ranges hold the truth, and how far the figure is off"]
    for view, rows in table.items():
        lines.append(f"\n{view}")
        for name, row in rows.items():
            held = f"{row['held']:>3} of {row['months']}" if "held" in row else " " * 9
            off = f"off by {row['median_error']:7.1%} (worst {row['worst_error']:.1%})" if "median_error" in row else ""
            lines.append(f"  {name:<22} {held:<9}  {off}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
