"""Folds a journal once: the life of each job with its runs, the sites with their nodes, and how many GPUs were owned
when. `journal_jobs` makes a trace of it, and `penstock assess --journal` a month's history.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from penstock.core.ids import job_of, members
from penstock.core.model import events as e
from penstock.core.model.types import STANDING, DataSet, JobSpec, Offer, Site
from penstock.core.units import PERMILLE, Instant, Millis
from penstock.core.values import value

#: Why a run time is an estimate: cut off by the journal's end or by a person, or the job never ran.
Unknown: TypeAlias = Literal["running", "cancelled", "queued", "refused", "stopped"]
Fate: TypeAlias = Unknown | Literal["ended", "never taken"]
#: How one run of a job ended; `broken`: it was preempted, moved, lost or cancelled.
RunEnd: TypeAlias = Literal["done", "failed", "broken", "running"]
GOES_ON: Final = ("queued", "running")


def fold(rows: Iterable[Any]) -> "JournalFold":
    """`rows`: steps, or the rows of a journal, in their order."""
    folded = JournalFold()
    for row in rows:
        folded.last_at = row.at
        for event in (*row.inputs, *row.outputs):
            note = NOTE.get(type(event))
            if note is not None:
                note(folded, event)
    return folded


class JobRun:
    """One attempt that ran."""

    __slots__ = ("attempt", "end", "ended_at", "rented", "started_at")

    def __init__(self, attempt: str, started_at: Instant, rented: bool) -> None:
        self.attempt, self.started_at, self.rented = attempt, started_at, rented
        self.ended_at: Instant | None = None  #: None: it runs still
        self.end: RunEnd = "running"


class JobLife:
    """One job on its way through the journal. A member of an array is a job of its own."""

    __slots__ = (
        "cancelled", "checkpointed", "fate", "id", "kept_ms", "runs", "spec", "speed", "started_at", "submitted_at",
    )  # fmt: skip

    def __init__(self, job: str, spec: JobSpec, submitted_at: Instant) -> None:
        self.id, self.spec, self.submitted_at = job, spec, submitted_at
        self.runs: list[JobRun] = []  #: in the order of their starts
        self.started_at: Instant | None = None  #: of the attempt that runs
        self.kept_ms: Millis = 0  #: work that survives, in the job's own run time
        self.speed = PERMILLE  #: of the attempt that runs
        self.fate: Fate = "queued"
        self.cancelled = False
        self.checkpointed = False

    def done_at(self, at: Instant) -> Millis:
        if self.started_at is None:
            return self.kept_ms
        return self.kept_ms + max(0, at - self.started_at) * self.speed // PERMILLE

    def stop(self, done_ms: Millis, fate: Fate) -> None:
        self.kept_ms, self.started_at, self.fate = max(self.kept_ms, done_ms), None, fate

    def end_run(self, attempt: str, at: Instant, end: RunEnd) -> None:
        """An attempt that never ran, or that ended before, ends nothing."""
        for run in reversed(self.runs):
            if run.attempt == attempt and run.ended_at is None:
                run.ended_at, run.end = at, end


@value
class OwnedChange:
    """From this instant on so many GPUs of this model are owned."""

    at: Instant
    model: str
    gpus: int


@value
class _Promise:
    speed_permille: int
    rented: bool


USUAL: Final = _Promise(PERMILLE, False)


class JournalFold:
    def __init__(self) -> None:
        self.lives: dict[str, JobLife] = {}
        self.sites: dict[str, Site] = {}
        self.nodes: dict[str, tuple[tuple[str, int], ...]] = {}  #: by offer, as they were seen last
        self.owned: list[OwnedChange] = []
        self.data: dict[str, DataSet] = {}
        self.periods: list[tuple[Instant, Instant]] = []
        self.currency = "USD"
        self.last_at: Instant = 0
        self._promised: dict[str, _Promise] = {}  #: attempts that have not started
        self._own: dict[str, int] = {}  #: GPUs by model, as `owned` had them last

    # --- jobs --------------------------------------------------------------------------------------------------------

    def submitted(self, event: e.JobSubmitted) -> None:
        for job in members(event.job, event.spec.count):
            self.lives[job] = JobLife(job, event.spec, event.at)

    def promised(self, event: e.StartPromised) -> None:
        self._promised[event.attempt] = _Promise(event.speed_permille, event.rented)

    def started(self, event: e.AttemptStarted) -> None:
        """It resumes from what its predecessors kept."""
        promise = self._promised.pop(event.attempt, USUAL)
        life = self.lives.get(job_of(event.attempt))
        if life is None:
            return
        life.runs.append(JobRun(event.attempt, event.at, promise.rented))
        if life.fate in GOES_ON:
            life.started_at, life.fate, life.speed = event.at, "running", promise.speed_permille

    def ended(self, event: e.AttemptEnded) -> None:
        life = self._over(event.attempt, event.at, event.outcome)
        if life is not None and life.fate in GOES_ON:
            life.stop(life.done_at(event.at), "ended" if life.runs else "never taken")

    def broken_off(self, event: e.AttemptStopped | e.AttemptLost) -> None:
        life = self._over(event.attempt, event.at, "broken")
        if life is not None and life.fate in GOES_ON:
            life.stop(event.kept_ms, "queued")

    def _over(self, attempt: str, at: Instant, end: RunEnd) -> JobLife | None:
        self._promised.pop(attempt, None)
        life = self.lives.get(job_of(attempt))
        if life is not None:
            life.end_run(attempt, at, end)
        return life

    def checkpoint(self, event: e.AttemptCheckpointed) -> None:
        life = self.lives.get(job_of(event.attempt))
        if life is not None:
            life.checkpointed = True

    def cancel_requested(self, event: e.CancelRequested) -> None:
        life = self.lives.get(event.job)
        if life is None:
            return
        life.cancelled = True
        if life.fate in GOES_ON:
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

    # --- sites -------------------------------------------------------------------------------------------------------

    def site_joined(self, event: e.SiteJoined) -> None:
        """A second one replaces the first's offers; nodes that were seen stay known, as in the engine."""
        self.sites[event.site.id] = event.site
        self._count(event.at)

    def site_removed(self, event: e.SiteRemoved) -> None:
        """Its nodes are forgotten, so that a later site of the same name begins anew."""
        site = self.sites.pop(event.site, None)
        for offer in site.offers if site is not None else ():
            self.nodes.pop(offer.id, None)
        self._count(event.at)

    def nodes_seen(self, event: e.NodesSeen) -> None:
        self.nodes[event.offer] = event.nodes
        self._count(event.at)

    def _count(self, at: Instant) -> None:
        """One row for each model whose number of owned GPUs has changed."""
        owned = dict.fromkeys(self._own, 0)
        for site in self.sites.values():
            for offer in site.offers:
                gpus = self._gpus(offer)
                if gpus is not None:
                    owned[offer.gpu_model] = owned.get(offer.gpu_model, 0) + gpus
        self.owned += [OwnedChange(at, model, gpus) for model, gpus in owned.items() if self._own.get(model) != gpus]
        self._own = owned

    def _gpus(self, offer: Offer) -> int | None:
        """Seen nodes count, whatever was declared. None: it is rented, cut into slices, or nobody knows."""
        if offer.term not in STANDING or offer.mig_profile:
            return None
        if offer.id in self.nodes:
            return sum(gpus for _, gpus in self.nodes[offer.id])
        known = [shape.gpus * shape.count for shape in offer.shapes if shape.count is not None]
        return sum(known) if known else None

    # --- the rest ----------------------------------------------------------------------------------------------------

    def registered(self, event: e.DataSetRegistered) -> None:
        self.data[event.data_set.id] = event.data_set

    def opened(self, event: e.PeriodOpened) -> None:
        self.periods.append((event.starts_at, event.ends_at))

    def policy_set(self, event: e.PolicySet) -> None:
        self.currency = event.policy.currency


NOTE: Final[dict[type, Callable[[JournalFold, Any], None]]] = {
    e.JobSubmitted: JournalFold.submitted,
    e.StartPromised: JournalFold.promised,
    e.AttemptStarted: JournalFold.started,
    e.AttemptEnded: JournalFold.ended,
    e.AttemptStopped: JournalFold.broken_off,
    e.AttemptLost: JournalFold.broken_off,
    e.AttemptCheckpointed: JournalFold.checkpoint,
    e.CancelRequested: JournalFold.cancel_requested,
    e.JobRefused: JournalFold.refused,
    e.JobFailed: JournalFold.failed,
    e.StopPromised: JournalFold.stop_promised,
    e.SiteJoined: JournalFold.site_joined,
    e.SiteRemoved: JournalFold.site_removed,
    e.NodesSeen: JournalFold.nodes_seen,
    e.DataSetRegistered: JournalFold.registered,
    e.PeriodOpened: JournalFold.opened,
    e.PolicySet: JournalFold.policy_set,
}
