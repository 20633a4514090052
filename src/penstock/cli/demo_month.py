"""`penstock demo --month`: a generated month, end to end. It checks every claim it makes; a false one is
exit code 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from penstock.core.engine import Engine
    from penstock.core.model.events import StartPromised
    from penstock.sim.analysis.compare import Compared
    from penstock.sim.engine.report import Report
    from penstock.sim.traces.trace import Trace

TEAMS, DAYS, LOAD = 2, 30, 1.1  # a little more than the owned GPUs can do, so that the queue fills
POLICY, KNOB = "compute", "0.25"
COMPARED = ("constant", "compute", "power", "penstock")
BUDGETS = ("0.05", "0.1", "0.25", "0.5", "1")
JOURNAL = "month.journal"


def show_month(jobs: int, seed: int, out: str, as_json: bool) -> int:
    """What Penstock does with a small made-up cluster."""
    from penstock.cli.compare import folder_for

    show = Shown(quiet=as_json)
    folder = folder_for(Path(out))
    journal = _fresh(folder / JOURNAL)
    trace, nodes = _month(jobs, seed)
    show.say(
        f"A month of {len(trace.jobs):,} jobs from {TEAMS} teams. {nodes * 8} owned GPUs, on demand and six spot zones "
        f"beside them; the jobs want {_demand(trace, nodes):.0%} of what is owned.".replace("%", " %")
    )
    report, engine = _simulate(trace, nodes, seed, journal)
    _tell_month(show, report)
    _tell_stories(show, journal)
    _verify(show, report, engine, trace, journal)
    compared = _compare(trace, nodes, seed, folder)
    _tell_comparison(show, compared)
    _goodbye(show, folder, journal)
    if as_json:
        click.echo(_line(show, report, compared, folder))
    return 0 if all(show.claims.values()) else 1


@dataclass(slots=True)
class Shown:
    """What the demo printed, and each claim with whether it is true."""

    quiet: bool
    claims: dict[str, bool] = field(default_factory=dict)
    stories: dict[str, str] = field(default_factory=dict)

    def say(self, text: str = "") -> None:
        if not self.quiet:
            click.echo(text)

    def claim(self, text: str, true: bool) -> None:
        self.claims[text] = true
        self.say(f"  {'true' if true else 'NOT TRUE'}: {text}")


# ---- the month ------------------------------------------------------------------------------------------------------


def _month(jobs: int, seed: int) -> tuple["Trace", int]:
    from penstock.sim.traces.generate import generate, nodes_for

    trace = generate(jobs, seed=seed, teams=TEAMS, days=DAYS)
    return trace, nodes_for(trace, LOAD)


def _demand(trace: "Trace", nodes: int) -> float:
    from penstock.core.units import HOUR
    from penstock.sim.scenario import GPUS_PER_NODE
    from penstock.sim.traces.generate import demand_gpu_hours

    span_h = max(1, trace.jobs[-1].submit_at - trace.jobs[0].submit_at) / HOUR
    return demand_gpu_hours(trace) / (nodes * GPUS_PER_NODE * span_h)


def _fresh(path: Path) -> Path:
    """Deletes the last demo's journal and the two files that SQLite may have left beside it."""
    from penstock.core.errors import BadInput

    try:
        for end in ("", "-wal", "-shm"):
            path.with_name(path.name + end).unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"Cannot replace {path}: {error.strerror}.") from None
    return path


def _simulate(trace: "Trace", nodes: int, seed: int, journal: Path) -> tuple["Report", "Engine"]:
    from penstock.cli import terminal
    from penstock.cli.simulate import progress_of
    from penstock.journal.sqlite import BulkJournal
    from penstock.policy.presets import policy
    from penstock.sim.scenario import run, yardstick

    scenario = yardstick(trace.jobs, nodes, costs="l2", knowledge="e2", seed=seed)
    with (
        terminal.progress(len(trace.jobs), "jobs submitted") as advance,
        BulkJournal(str(journal), group=5_000) as written,
    ):
        moved = progress_of(advance)

        def see(step: Any, engine: Any) -> None:
            written.append(step)
            moved(step, engine)

        return run(scenario, policy(POLICY, KNOB, scenario.jobs), see)


def _tell_month(show: Shown, report: "Report") -> None:
    from penstock.sim.analysis.compare import cash

    half = f"Half waited {_hours(report.p50_wait_h)} or less" if report.p50_wait_h else "Half did not wait at all"
    show.say(
        f"{report.cloud_jobs:,} of them went to rented GPUs, for {cash(report.cloud_cost, report.currency)}; "
        f"{report.redone_gpu_hours:,.0f} GPU-hours were lost on spot and done again.\n"
        f"{half}, 99 % waited less than {_hours(report.p99_wait_h)}."
    )


def _hours(hours: float) -> str:
    from penstock.core.units import HOUR
    from penstock.formatting import duration

    return duration(round(hours * HOUR))


# ---- three stories --------------------------------------------------------------------------------------------------

#: Title -> which of `KINDS` it is.
STORIES = {
    "A job that waited, and ran on owned GPUs": "waited",
    "A job that burst when its patience was over": "burst",
    "A job that lost its spot GPUs, and went on from its checkpoint": "resumed",
}


def _tell_stories(show: Shown, journal: Path) -> None:
    from penstock.cli.why import print_story
    from penstock.explain.story import tell
    from penstock.journal.open import read

    stories = chosen(journal)
    for title, kind in STORIES.items():
        job = stories.get(kind)
        if job is None:
            continue
        show.stories[kind] = job
        show.say(f"\n{title}:\n$ penstock why {job} --journal {journal}")
        if not show.quiet:
            print_story(tell(read(str(journal)), job))


class MonthTrail:
    """What happened to one job, as far as choosing a story needs it."""

    __slots__ = ("done", "kept_ms", "kinds", "length", "lost", "offers", "ran_ms", "started_at", "waited_ms")

    def __init__(self) -> None:
        self.kinds: list[str] = []  #: why it was promised each place
        self.offers: list[str] = []
        self.waited_ms = self.kept_ms = self.ran_ms = self.length = self.lost = self.started_at = 0
        self.done = False


def chosen(journal: Path) -> dict[str, str]:
    """For each kind of story the shortest to read, and among those the one that shows most of it."""
    trails = _trails(journal)
    best: dict[str, tuple[tuple[int, int, str], str]] = {}
    for job, trail in trails.items():
        for kind, (fits, shows) in KINDS.items():
            if trail.done and trail.ran_ms >= LONG_ENOUGH_MS and fits(trail):
                rank = (trail.length, -shows(trail), job)
                if kind not in best or rank < best[kind][0]:
                    best[kind] = rank, job
    return {kind: job for kind, (_, job) in best.items()}


#: Shorter runs are no good examples: many die in their first minutes.
LONG_ENOUGH_MS = 900_000
#: Kind -> whether a trail is an example of it, and how good a one.
KINDS: dict[str, tuple[Callable[[MonthTrail], bool], Callable[[MonthTrail], int]]] = {
    "waited": (lambda t: t.kinds == ["OwnedFree"] and t.waited_ms > 0, lambda t: t.waited_ms),
    "burst": (lambda t: t.kinds == ["PatienceOver"] and t.waited_ms > 0, lambda t: t.waited_ms),
    "resumed": (
        lambda t: t.lost == 1 and t.kinds[1:] == ["LostNode"] and t.kept_ms > 0 and t.offers[0].endswith("/spot"),
        lambda t: t.kept_ms,
    ),
}


def _trails(journal: Path) -> dict[str, MonthTrail]:
    from penstock.core.model import events as e
    from penstock.journal.open import read

    trails: dict[str, MonthTrail] = {}
    jobs: dict[str, str] = {}
    for row in read(str(journal)):
        for event in (*row.inputs, *row.outputs):
            match event:
                case e.JobSubmitted():
                    trails[event.job] = MonthTrail()
                case e.WaitPromised():
                    trails[event.job].length += 1
                case e.StartPromised():
                    jobs[event.attempt] = event.job
                    _promised(trails[event.job], event)
                case e.AttemptRefused():
                    trails[jobs[event.attempt]].length += 1
                case e.AttemptStarted():
                    trails[jobs[event.attempt]].started_at = event.at
                case e.AttemptLost():
                    trail = trails[jobs[event.attempt]]
                    trail.lost, trail.kept_ms = trail.lost + 1, event.kept_ms
                case e.AttemptEnded():
                    trail = trails[jobs[event.attempt]]
                    trail.done, trail.ran_ms = event.outcome == "done", event.at - trail.started_at
                case e.LeaseRenewed():
                    _renewed(trails, jobs, event.hold)
    return trails


def _promised(trail: MonthTrail, event: "StartPromised") -> None:
    from penstock.core.model import reasons as r

    waits = r.OwnedFree | r.EndsAlike | r.RoomMade | r.PatienceOver | r.NotWorthWaiting | r.JoinsNode | r.WaitedLongest
    trail.kinds.append(event.because.kind)
    trail.offers.append(event.offer)
    trail.waited_ms = event.because.waited_ms if isinstance(event.because, waits) else 0
    # Each node is settled in a line of its own, and a copy makes a start late for a reason that no line gives.
    trail.length += 1 + len(event.nodes) + len(event.copies)


def _renewed(trails: dict[str, MonthTrail], jobs: dict[str, str], hold: str) -> None:
    job = jobs.get(hold)
    if job:
        trails[job].length += 1


# ---- is it true? ----------------------------------------------------------------------------------------------------


def _verify(show: Shown, report: "Report", engine: "Engine", trace: "Trace", journal: Path) -> None:
    from penstock.core.engine import replay
    from penstock.core.fold.invariants import check
    from penstock.journal.open import read
    from penstock.journal.redecide import redecide
    from penstock.policy.rules import PolicyRules

    show.say("\nChecked:")
    show.claim("every job ran to its end, once", _all_done(report, trace, engine))
    show.claim("each of the three stories happened", len(show.stories) == len(STORIES))
    again = replay((row.at, row.inputs, row.outputs) for row in read(str(journal))).state
    show.claim("the journal replays to the same state, its chain whole", again.digest() == engine.state.digest())
    show.claim("every invariant of that state holds", _holds(lambda: check(again)))
    verdict = redecide(read(str(journal)), 1, PolicyRules())
    show.claim(f"{verdict.promises:,} promises, decided again, are the same", not verdict.different)


def _all_done(report: "Report", trace: "Trace", engine: "Engine") -> bool:
    asked = len(trace.jobs)
    return report.jobs == asked == engine.state.ended.get("done", 0) and not report.unfinished_jobs


def _holds(check: Callable[[], None]) -> bool:
    try:
        check()
    except AssertionError:
        return False
    return True


# ---- policies side by side ------------------------------------------------------------------------------------------


def _compare(trace: "Trace", nodes: int, seed: int, folder: Path) -> "Compared":
    """Compares at l1: without spot's randomness the difference comes from the policies alone."""
    import os
    import time

    from penstock.cli import terminal
    from penstock.cli.compare import run_facts, write
    from penstock.sim.analysis.compare import Case, lines_for, measure, tasks_of
    from penstock.sim.scenario import yardstick

    case = Case("demo", yardstick(trace.jobs, nodes, costs="l1", knowledge="e2", seed=seed), nodes, "l1", "e2")
    lines, workers, began = lines_for(COMPARED, BUDGETS), os.cpu_count() or 1, time.perf_counter()
    with terminal.progress(len(list(tasks_of(1, lines, with_bound=True))), "points measured") as advance:
        (compared,) = measure([case], lines, workers=workers, advance=advance)
    write(compared, folder, run_facts(workers, time.perf_counter() - began))
    return compared


def _tell_comparison(show: Shown, compared: "Compared") -> None:
    from penstock.cli.compare import print_table
    from penstock.sim.analysis.compare import lede

    if not show.quiet:
        click.echo("\nThe same month under several policies, on demand only:")
        print_table([compared])
        click.echo(lede(compared))
    bound = compared.bound
    assert bound is not None
    least = min(point.cost for point in compared.points)
    show.claim("waiting for owned GPUs costs less than bursting at once", least < compared.burst_at_once.cost)
    # A cent of room: costs and the bound are each rounded to one.
    beaten = [p for p in compared.points if p.cost + 0.01 < bound.at(p.report.mean_delay_h)]
    show.claim("no policy beats the lower bound", not beaten)


def _goodbye(show: Shown, folder: Path, journal: Path) -> None:
    from penstock.cli.terminal import program

    job, own = show.stories.get("resumed") or show.stories.get("waited") or "JOB", program()
    show.say(
        f"\nThe picture: {folder / 'compare.html'}\n"
        "Try next:\n"
        f"  {own} why {job} --journal {journal} --json\n"
        f"  {own} redecide {journal}\n"
        f"  {own} compare YOUR-JOBS.csv --load 1.1"
    )


def _line(show: Shown, report: "Report", compared: "Compared", folder: Path) -> str:
    import msgspec

    least = min(compared.points, key=lambda point: point.cost)
    figures = {
        "jobs": report.jobs,
        "cloud_jobs": report.cloud_jobs,
        "cloud_cost": report.cloud_cost,
        "mean_delay_h": report.mean_delay_h,
        "redone_gpu_hours": report.redone_gpu_hours,
        "burst_at_once_cost": compared.burst_at_once.cost,
        "least_cost": least.cost,
        "least_cost_policy": f"{least.report.policy} {least.report.knob}",
        "stories": show.stories,
        "claims": show.claims,
        "true": all(show.claims.values()),
        "picture": str(folder / "compare.html"),
    }
    return msgspec.json.encode(figures).decode()
