"""The observed month as jobs and sites that the live engine replays. `ways` calls it.

Time counts from the month's first instant. What nobody saw is guessed. A run that was cut off goes on, and a job still
queued runs, for as long as the engine's own estimator expects; for the report's ranges, for as long as is drawn from
the month's runs. A job of unknown submission or start was submitted or started between the two next to it in time; the
ranges have both ends of that. Other months like this one have their run times dealt anew among runs of the same job.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from penstock.assess.gpus import UNKNOWN
from penstock.assess.history import JobRecord, MonthHistory
from penstock.assess.neighbours import Neighbours, Waited, hides_its_wait, kind_of
from penstock.assess.owned import OwnedSteps, most_at_once, owned_model
from penstock.assess.unseen_runs import SeenRun, UnseenRuns
from penstock.core.errors import BadInput
from penstock.core.fold.runtimes import LifeTable
from penstock.core.model.types import JobSpec, NodeShape, Offer, Site
from penstock.core.units import MINUTE, SECOND, Instant, Millis, Money
from penstock.core.values import value
from penstock.sim.engine.chance import uniform
from penstock.sim.traces.trace import TraceJob

LAB: Final = "owned"  #: the site of what is owned
GPUS_PER_NODE: Final = 8
CHECKPOINT_MS: Final = 15 * MINUTE  #: assumed where nobody knows whether a job writes any
RESTART_MS: Final = 5 * MINUTE  #: to start again from a checkpoint
STAYS: Final = "something that stays at home"  #: a need that no rented site meets
MOST_WIDE: Final = 20_000  #: GPUs of one job; a wider one is a slip of somebody's pen, or not for renting
DRAWS: Final = 19  #: other ends of runs that nobody saw: one more lies between the extremes nine times in ten


@value
class Replayable:
    """One month, ready to replay. Made by `replayable`."""

    jobs: tuple[TraceJob, ...]  # by submission, from 0 on
    idle_ms: Mapping[str, Millis]  # by job: how much of its run its GPUs did nothing; empty: nobody measured
    owned_gpus: int
    owned_is_known: bool
    gpu_model: str
    model_is_known: bool
    span_ms: Millis
    left_out: int  # jobs whose run time nobody knows
    beyond: int  # jobs wider than `MOST_WIDE`
    cut: int
    queued: int  # of the jobs, those that had not started: nobody knows how long they run
    no_wait: int  # of the jobs, those whose submission or start nobody knows
    too_wide: int  # for all that is owned
    tied: int  # jobs that cannot leave, as far as was read


@value
class OtherGuesses:
    """One month with other guesses for what nobody saw. Made by `other_guesses`."""

    ends: tuple[Replayable, ...] = ()  # jobs of unknown wait waited as little and as long as they can have
    drawn: tuple[Replayable, ...] = ()  # ends of runs drawn


def unseen(history: MonthHistory) -> tuple[int, int]:
    """How many other guesses `other_guesses` makes: of waits, and of ends."""
    known = [job for job in history.jobs if (job.run_ms or 0) > 0]
    no_wait = any(job.submitted_at is None or hides_its_wait(job) for job in known)
    no_end = any(job.cut for job in known) or any(job.outcome == "queued" for job in history.jobs)
    return 2 * no_wait, DRAWS * no_end


def other_guesses(history: MonthHistory, month: Replayable, tied: frozenset[str] = frozenset()) -> OtherGuesses:
    ends: tuple[Waited, ...] = ("least", "most") if month.no_wait else ()
    return OtherGuesses(
        ends=tuple(replayable(history, tied, end) for end in ends),
        drawn=tuple(_drawn(history, month)) if month.cut or month.queued else (),
    )


def _drawn(history: MonthHistory, month: Replayable) -> Iterator[Replayable]:
    """The same month with other ends of the runs that nobody saw; all the rest is as it is expected."""
    known = [job for job in history.jobs if (job.run_ms or 0) > 0]
    neighbours = Neighbours(known)
    ran_ms = {job.id: _ran_ms(job, neighbours) for job in known}
    runs = UnseenRuns(SeenRun(kind_of(job), job.gpus, ran_ms[job.id], not job.cut) for job in known)
    open_ended = [job for job in history.jobs if job.cut or job.outcome == "queued"]
    for draw in range(DRAWS):
        ends = {
            job.id: max(
                SECOND, runs.drawn(kind_of(job), job.gpus, ran_ms.get(job.id, 0), uniform(draw, "unseen", job.id))
            )
            for job in open_ended
        }
        jobs = [
            TraceJob(job.id, job.submit_at, ends[job.id], job.spec) if job.id in ends else job for job in month.jobs
        ]
        yield replace(month, jobs=tuple(jobs))


def replayable(history: MonthHistory, tied: frozenset[str] = frozenset(), waited: Waited = "expected") -> Replayable:
    """`tied`: keys of jobs that cannot run elsewhere. `waited`: jobs of unknown wait. Raises `BadInput` if no job's run
    time is known.
    """
    known = [job for job in history.jobs if (job.run_ms or 0) > 0 and job.gpus <= MOST_WIDE]
    if not known:
        raise BadInput("No job's start and end were seen, so this month cannot be replayed.")
    queued = [
        job
        for job in history.jobs
        if job.outcome == "queued" and job.submitted_at is not None and job.gpus <= MOST_WIDE
    ]
    beyond = sum(job.gpus > MOST_WIDE for job in history.jobs)
    owned, is_known = _owned(history, known)
    guesses = _Guesses(known, _Specs(tied), waited)
    played = [guesses.ran(job, history.from_at) for job in known]
    played += [guesses.queued(job, history.from_at) for job in queued]
    jobs = sorted(played, key=lambda job: (job.submit_at, job.id))
    model = owned_model(history)
    return Replayable(
        jobs=tuple(jobs),
        idle_ms={job.id: job.idle_gpu_ms // job.gpus for job in known if job.idle_gpu_ms},
        owned_gpus=owned,
        owned_is_known=is_known,
        gpu_model=model or UNKNOWN,
        model_is_known=bool(model),
        span_ms=history.span_ms,
        left_out=len(history.jobs) - len(known) - len(queued) - beyond,
        beyond=beyond,
        cut=sum(bool(job.cut) for job in known),
        queued=len(queued),
        no_wait=sum(job.submitted_at is None or hides_its_wait(job) for job in known),
        too_wide=sum(job.gpus > owned for job in known),
        tied=sum(bool(job.spec.needs) for job in jobs),
    )


def _owned(history: MonthHistory, known: Sequence[JobRecord]) -> tuple[int, bool]:
    if history.owned:
        return OwnedSteps(history.owned).at(history.to_at), True
    return most_at_once(known), False


class _Specs:
    """Equal specs are kept once: 80,000 jobs share a few hundred."""

    def __init__(self, tied: frozenset[str]) -> None:
        self.tied = tied
        self.made: dict[tuple[object, ...], JobSpec] = {}

    def of(self, job: JobRecord) -> JobSpec:
        stays = (bool(job.key) and job.key in self.tied) or bool(job.volumes)
        saves = job.checkpoints is not False
        asked = (job.gpus, job.team, job.key or job.name, stays, saves)
        spec = self.made.get(asked)
        if spec is None:
            spec = self.made[asked] = JobSpec(
                job.gpus,
                team=job.team or "unknown",
                name=job.key or job.name,
                checkpoint_every_ms=CHECKPOINT_MS if saves else None,
                restart_ms=RESTART_MS,
                home=LAB if stays else "",
                needs=(STAYS,) if stays else (),
            )
        return spec


class _Guesses:
    """What nobody saw of a job."""

    def __init__(self, known: Sequence[JobRecord], specs: _Specs, waited: Waited) -> None:
        self.specs, self.waited = specs, waited
        self.neighbours, self.expects = Neighbours(known), LifeTable()
        for job in known:
            if not job.cut:
                self.expects.learn(specs.of(job), self._run_ms(job))

    def ran(self, job: JobRecord, zero: Instant) -> TraceJob:
        run_ms, at = self._run_ms(job), job.submitted_at
        if at is None:
            at = self.neighbours.submission(job.started_at or 0, self.waited)
        if job.cut:
            run_ms = self._in_all(job, run_ms)
        return TraceJob(job.id, max(0, at - zero), run_ms, self.specs.of(job))

    def queued(self, job: JobRecord, zero: Instant) -> TraceJob:
        return TraceJob(job.id, max(0, (job.submitted_at or 0) - zero), self._in_all(job, 0), self.specs.of(job))

    def _in_all(self, job: JobRecord, age_ms: Millis) -> Millis:
        """How long a run is expected to last of which so much was seen."""
        return age_ms + max(SECOND, self.expects.remaining(self.specs.of(job), age_ms))

    def _run_ms(self, job: JobRecord) -> Millis:
        return _ran_ms(job, self.neighbours, self.waited)


def _ran_ms(job: JobRecord, neighbours: Neighbours, waited: Waited = "expected") -> Millis:
    """As much of its run as was seen."""
    if hides_its_wait(job):
        return max(SECOND, (job.ended_at or 0) - neighbours.start(job, waited))
    return max(SECOND, job.run_ms or 0)


# --- other months like this one ---------------------------------------------------------------------------------------


def dealt_anew(jobs: Sequence[TraceJob], seed: int) -> tuple[TraceJob, ...]:
    """Run times in another order among runs of one job (name, team, width): the same work, met by chance otherwise."""
    groups: dict[JobSpec, list[int]] = defaultdict(list)
    for k, job in enumerate(jobs):
        groups[job.spec].append(k)
    run_ms = [job.run_ms for job in jobs]
    for places in groups.values():
        order = sorted(places, key=lambda k: uniform(seed, "deal", jobs[k].id))
        for place, taken in zip(places, order, strict=True):
            run_ms[place] = jobs[taken].run_ms
    return tuple(TraceJob(job.id, job.submit_at, ran, job.spec) for job, ran in zip(jobs, run_ms, strict=True))


def slice_of(jobs: Sequence[TraceJob], most: int, *, last: bool = False) -> tuple[TraceJob, ...]:
    """So many jobs in a row from the middle of the month, or its last ones, from 0 on; all if there are no more."""
    if len(jobs) <= most:
        return tuple(jobs)
    first = (len(jobs) - most) // (1 if last else 2)
    taken = jobs[first : first + most]
    zero = taken[0].submit_at
    return tuple(TraceJob(job.id, job.submit_at - zero, job.run_ms, job.spec) for job in taken)


def without_idle(jobs: Iterable[TraceJob], idle_ms: Mapping[str, Millis]) -> tuple[TraceJob, ...]:
    """Each job for as long as its GPUs worked."""
    return tuple(
        TraceJob(job.id, job.submit_at, max(SECOND, job.run_ms - idle_ms[job.id]), job.spec)
        if job.id in idle_ms
        else job
        for job in jobs
    )


def free_to_leave(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    """As if everything had been made portable."""
    made: dict[JobSpec, JobSpec] = {}
    return tuple(_with_spec(job, made) if job.spec.needs else job for job in jobs)


def _with_spec(job: TraceJob, made: dict[JobSpec, JobSpec]) -> TraceJob:
    spec = made.setdefault(job.spec, replace(job.spec, home="", needs=()))
    return TraceJob(job.id, job.submit_at, job.run_ms, spec)


# --- sites ------------------------------------------------------------------------------------------------------------


def owned_sites(gpus: int, pooled: bool = False) -> tuple[Site, ...]:
    """Nodes of 8, and one smaller one for the rest; or each GPU by itself, for jobs that spread as they like."""
    per_node = 1 if pooled else GPUS_PER_NODE
    nodes, rest = divmod(gpus, per_node)
    shapes = [NodeShape(per_node, nodes)] if nodes else []
    shapes += [NodeShape(rest, 1)] if rest else []
    offers = tuple(Offer(f"{LAB}/nodes-of-{shape.gpus}", LAB, "owned", (shape,)) for shape in shapes)
    return (Site(LAB, offers, front_door=True),) if offers else ()


def rented_site(name: str, term: Literal["on_demand", "spot"], gpu_hour: Money, most: Money) -> Site:
    """Nodes of 1, 4 and 8 GPUs, billed from the asking on, five minutes before a job can run there."""
    shapes = tuple(
        NodeShape(gpus, list_per_hour=gpu_hour * gpus, most_per_hour=max(most, gpu_hour) * gpus) for gpus in (1, 4, 8)
    )
    return Site(name, (Offer(f"{name}/{term}", name, term, shapes, start_ms=RESTART_MS),))
