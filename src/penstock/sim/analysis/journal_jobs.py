"""A journal's jobs as a trace: when each was submitted, what it asked for, and how long it ran. `policy diff` replays
them under another policy.

A job that ended by itself has a true run time. One that was still running, queued, cancelled or refused has none: its
run time is estimated by the engine's own life table, or drawn from the jobs that ended, and named in `estimated`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from penstock.core.errors import BadInput
from penstock.core.fold.runtimes import LifeTable
from penstock.core.ids import job_of, members
from penstock.core.model import events as e
from penstock.core.model.types import DataSet, JobSpec, NodeShape, Site
from penstock.core.units import DAY, PERMILLE, Instant, Millis
from penstock.core.values import value
from penstock.sim.engine.chance import uniform
from penstock.sim.engine.simulator import MONTH_MS
from penstock.sim.traces.trace import TraceJob

#: Why a run time is an estimate: cut off by the journal's end or by a person, or the job never ran.
Unknown: TypeAlias = Literal["running", "cancelled", "queued", "refused", "stopped"]
CANCELLED_EARLY: Final = "cancelled before they ran"
NEVER_TAKEN: Final = "failed before they ran"
GOES_ON: Final = ("queued", "running")


@value
class History:
    """What a journal knows of its jobs, and of the sites where they ran.

    Instants count from `zero`, so that a simulated month begins with the month of the first job, on the same day of the
    week, and the time of day is what it was in UTC. Hours of a policy then mean what they meant, but for summer time.
    """

    jobs: tuple[TraceJob, ...]  # run time: the true one, or the least that it can be
    estimated: Mapping[str, Unknown]
    left_out: Mapping[str, int]
    sites: tuple[Site, ...]
    data: tuple[DataSet, ...]
    currency: str
    zero: Instant


def history(rows: Iterable[Any], where: str) -> History:
    """Fold the rows of a journal. A journal without a job that can be used is one `BadInput`."""
    found = _Folded()
    for row in rows:
        for event in (*row.inputs, *row.outputs):
            note = NOTE.get(type(event))
            if note is not None:
                note(found, event)
        found.last_at = row.at
    return found.history(where)


class _Life:
    """One job on its way through the journal."""

    __slots__ = ("fate", "kept_ms", "ran", "spec", "speed", "started_at", "submitted_at")

    def __init__(self, spec: JobSpec, submitted_at: Instant) -> None:
        self.spec, self.submitted_at = spec, submitted_at
        self.started_at: Instant | None = None  #: of the attempt that runs
        self.kept_ms: Millis = 0  #: work that survives, in the job's own run time
        self.speed = PERMILLE  #: of the attempt that runs
        self.ran = False
        self.fate: Unknown | Literal["ended", "never taken"] = "queued"

    def done_at(self, at: Instant) -> Millis:
        if self.started_at is None:
            return self.kept_ms
        return self.kept_ms + max(0, at - self.started_at) * self.speed // PERMILLE

    def stop(self, done_ms: Millis, fate: Unknown | Literal["ended", "never taken"]) -> None:
        self.kept_ms, self.started_at, self.fate = max(self.kept_ms, done_ms), None, fate


class _Folded:
    def __init__(self) -> None:
        self.lives: dict[str, _Life] = {}
        self.sites: dict[str, Site] = {}
        self.nodes: dict[str, tuple[tuple[str, int], ...]] = {}
        self.data: dict[str, DataSet] = {}
        self.speeds: dict[str, int] = {}  #: of promised attempts, in thousandths, where they are not 1
        self.periods: list[tuple[Instant, Instant]] = []
        self.currency = "USD"
        self.last_at: Instant = 0

    # --- events ------------------------------------------------------------------------------------------------------

    def submitted(self, event: e.JobSubmitted) -> None:
        """The members of an array end apart, so each is a job of its own."""
        spec = event.spec if event.spec.count == 1 else replace(event.spec, count=1)
        for job in members(event.job, event.spec.count):
            self.lives[job] = _Life(spec, event.at)

    def promised(self, event: e.StartPromised) -> None:
        if event.speed_permille != PERMILLE:
            self.speeds[event.attempt] = event.speed_permille

    def started(self, event: e.AttemptStarted) -> None:
        """It resumes from what its predecessors kept."""
        life = self.lives.get(job_of(event.attempt))
        if life is not None and life.fate in GOES_ON:
            life.started_at, life.ran, life.fate = event.at, True, "running"
            life.speed = self.speeds.pop(event.attempt, PERMILLE)

    def ended(self, event: e.AttemptEnded) -> None:
        life = self.lives.get(job_of(event.attempt))
        if life is not None and life.fate in GOES_ON:
            life.stop(life.done_at(event.at), "ended" if life.ran else "never taken")

    def broken_off(self, event: e.AttemptStopped | e.AttemptLost) -> None:
        life = self.lives.get(job_of(event.attempt))
        if life is not None and life.fate in GOES_ON:
            life.stop(event.kept_ms, "queued")

    def cancelled(self, event: e.CancelRequested) -> None:
        life = self.lives.get(event.job)
        if life is not None and life.fate in GOES_ON:
            life.stop(life.done_at(event.at), "cancelled")

    def refused(self, event: e.JobRefused) -> None:
        self.lives[event.job].fate = "refused"

    def failed(self, event: e.JobFailed) -> None:
        """As one that was stopped in time."""
        self.lives[event.job].fate = "stopped"

    def stop_promised(self, event: e.StopPromised) -> None:
        """It has run as long as its class may: longer under another policy."""
        life = self.lives.get(job_of(event.attempt))
        if event.then == "fail" and life is not None and life.fate in GOES_ON:
            life.stop(life.done_at(event.at), "stopped")

    def site_joined(self, event: e.SiteJoined) -> None:
        self.sites[event.site.id] = event.site

    def site_removed(self, event: e.SiteRemoved) -> None:
        self.sites.pop(event.site, None)

    def nodes_seen(self, event: e.NodesSeen) -> None:
        self.nodes[event.offer] = event.nodes

    def registered(self, event: e.DataSetRegistered) -> None:
        self.data[event.data_set.id] = event.data_set

    def opened(self, event: e.PeriodOpened) -> None:
        self.periods.append((event.starts_at, event.ends_at))

    def policy_set(self, event: e.PolicySet) -> None:
        self.currency = event.policy.currency

    # --- the sum -----------------------------------------------------------------------------------------------------

    def history(self, where: str) -> History:
        left_out: dict[str, int] = {}
        kept: list[tuple[str, _Life]] = []
        for job, life in self.lives.items():
            early = _left_out(life)
            if early:
                left_out[early] = left_out.get(early, 0) + 1
            else:
                kept.append((job, life))
        if not kept:
            raise BadInput(f"{where} holds no job that ran or still could; there is nothing to compare.")
        zero = self._zero(min(life.submitted_at for _, life in kept))
        kept.sort(key=lambda pair: pair[1].submitted_at)
        return History(
            jobs=tuple(self._job(job, life, zero) for job, life in kept),
            estimated={job: life.fate for job, life in kept if life.fate != "ended" and life.fate != "never taken"},
            left_out=left_out,
            sites=tuple(_counted(site, self.nodes) for site in self.sites.values()),
            data=tuple(self.data.values()),
            currency=self.currency,
            zero=zero,
        )

    def _zero(self, first_at: Instant) -> Instant:
        begun = [starts_at for starts_at, ends_at in self.periods if starts_at <= first_at < ends_at]
        day = max(begun, default=first_at) // DAY
        months = next(k for k in range(7) if (k * MONTH_MS // DAY - day) % 7 == 0)
        return day * DAY - months * MONTH_MS

    def _job(self, job: str, life: _Life, zero: Instant) -> TraceJob:
        spec = life.spec
        if spec.deadline_at is not None:
            spec = replace(spec, deadline_at=spec.deadline_at - zero)
        return TraceJob(job, life.submitted_at - zero, max(1, life.done_at(self.last_at)), spec)


def _left_out(life: _Life) -> str:
    if life.fate == "cancelled" and not life.ran:
        return CANCELLED_EARLY
    return NEVER_TAKEN if life.fate == "never taken" else ""


def _counted(site: Site, nodes: Mapping[str, tuple[tuple[str, int], ...]]) -> Site:
    """Where a cluster says how many nodes there are, as many as it said last."""
    offers = [
        replace(offer, shapes=tuple(_with_count(shape, nodes[offer.id]) for shape in offer.shapes))
        if offer.id in nodes
        else offer
        for offer in site.offers
    ]
    return replace(site, offers=tuple(offers))


def _with_count(shape: NodeShape, nodes: tuple[tuple[str, int], ...]) -> NodeShape:
    return shape if shape.count is not None else replace(shape, count=sum(gpus == shape.gpus for _, gpus in nodes))


NOTE: Final[dict[type, Callable[[_Folded, Any], None]]] = {
    e.JobSubmitted: _Folded.submitted,
    e.StartPromised: _Folded.promised,
    e.AttemptStarted: _Folded.started,
    e.AttemptEnded: _Folded.ended,
    e.AttemptStopped: _Folded.broken_off,
    e.AttemptLost: _Folded.broken_off,
    e.CancelRequested: _Folded.cancelled,
    e.JobRefused: _Folded.refused,
    e.JobFailed: _Folded.failed,
    e.StopPromised: _Folded.stop_promised,
    e.SiteJoined: _Folded.site_joined,
    e.SiteRemoved: _Folded.site_removed,
    e.NodesSeen: _Folded.nodes_seen,
    e.DataSetRegistered: _Folded.registered,
    e.PeriodOpened: _Folded.opened,
    e.PolicySet: _Folded.policy_set,
}


# --- run times that nobody knows --------------------------------------------------------------------------------------


def estimated_jobs(found: History, seed: int = 0) -> tuple[TraceJob, ...]:
    """The jobs with a run time each. Seed 0: the expected one; others draw it from jobs that ended, keyed by job.

    A job that a person cancelled runs as long as it was let, and a declared run time is believed.
    """
    if not found.estimated:
        return found.jobs
    table = LifeTable()
    by_width: dict[int, list[Millis]] = {}
    for job in found.jobs:
        if job.id not in found.estimated:
            table.learn(job.spec, job.run_ms)
            by_width.setdefault(job.spec.gpus, []).append(job.run_ms)
    for ended in by_width.values():
        ended.sort()
    return tuple(
        replace(job, run_ms=_estimate(job, table, by_width.get(job.spec.gpus, []), seed))
        if found.estimated.get(job.id, "cancelled") != "cancelled"
        else job
        for job in found.jobs
    )


def _estimate(job: TraceJob, table: LifeTable, ended: list[Millis], seed: int) -> Millis:
    longer = bisect_right(ended, job.run_ms)
    if seed == 0 or longer == len(ended):
        return job.run_ms + max(1, table.remaining(job.spec, job.run_ms))
    return ended[longer + int(uniform(seed, "run time", job.id) * (len(ended) - longer))]
