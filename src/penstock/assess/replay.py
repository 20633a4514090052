"""The observed month as jobs and sites that the live engine replays. `ways` calls it.

Time counts from the month's first instant. What nobody saw is guessed, and the report's ranges have both ends of it: a
run that was cut off goes on, and a job still queued runs, for as long as the engine's own estimator expects; a job of
unknown submission or start was submitted or started between the two next to it in time. Other months like this one have
their run times dealt anew among runs of the same job.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from penstock.assess.gpus import UNKNOWN
from penstock.assess.history import JobRecord, MonthHistory
from penstock.assess.neighbours import Neighbours, Waited, hides_its_wait
from penstock.assess.owned import OwnedSteps, most_at_once, owned_model
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
CutRuns: TypeAlias = Literal["expected", "as seen", "twice expected"]
TIMES: Final[Mapping[CutRuns, int]] = {"as seen": 0, "expected": 1, "twice expected": 2}  #: the rest of a cut run
WAITED: Final[Mapping[CutRuns, Waited]] = {"as seen": "least", "expected": "expected", "twice expected": "most"}


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
    cut: int
    queued: int  # of the jobs, those that had not started: nobody knows how long they run
    no_wait: int  # of the jobs, those whose submission or start nobody knows
    too_wide: int  # for all that is owned
    tied: int  # jobs that cannot leave, as far as was read


def replayable(history: MonthHistory, tied: frozenset[str] = frozenset(), cut: CutRuns = "expected") -> Replayable:
    """`tied`: keys of jobs that cannot run elsewhere. Raises `BadInput` if no job's run time is known."""
    known = [job for job in history.jobs if (job.run_ms or 0) > 0]
    if not known:
        raise BadInput("No job's start and end were seen, so this month cannot be replayed.")
    queued = [job for job in history.jobs if job.outcome == "queued" and job.submitted_at is not None]
    owned, is_known = _owned(history, known)
    guess = _Guesses(known, _Specs(tied), cut)
    played = [guess.ran(job, history.from_at) for job in known]
    played += [guess.queued(job, history.from_at) for job in queued]
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
        left_out=len(history.jobs) - len(known) - len(queued),
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
    """What nobody saw of a job, at one end of what it may be."""

    def __init__(self, known: Sequence[JobRecord], specs: _Specs, cut: CutRuns) -> None:
        self.specs, self.times, self.waited = specs, TIMES[cut], WAITED[cut]
        self.neighbours, self.expects = Neighbours(known), LifeTable()
        for job in known:
            if not job.cut:
                self.expects.learn(specs.of(job), self._run_ms(job))

    def ran(self, job: JobRecord, zero: Instant) -> TraceJob:
        spec, run_ms, at = self.specs.of(job), self._run_ms(job), job.submitted_at
        if at is None:
            at = self.neighbours.submission(job.started_at or 0, self.waited)
        if job.cut:
            run_ms += self.times * self.expects.remaining(spec, run_ms)
        return TraceJob(job.id, max(0, at - zero), run_ms, spec)

    def queued(self, job: JobRecord, zero: Instant) -> TraceJob:
        spec = self.specs.of(job)
        run_ms = max(SECOND, self.times * self.expects.remaining(spec, 0))
        return TraceJob(job.id, max(0, (job.submitted_at or 0) - zero), run_ms, spec)

    def _run_ms(self, job: JobRecord) -> Millis:
        if hides_its_wait(job):
            return max(SECOND, (job.ended_at or 0) - self.neighbours.start(job, self.waited))
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


def slice_of(jobs: Sequence[TraceJob], most: int) -> tuple[TraceJob, ...]:
    """So many jobs in a row from the middle of the month, from 0 on; all of them if there are no more."""
    if len(jobs) <= most:
        return tuple(jobs)
    first = (len(jobs) - most) // 2
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
    """Nodes of 8, and one smaller one for the rest; or all in one, for jobs that spread over nodes as they like."""
    nodes, rest = (0, gpus) if pooled else divmod(gpus, GPUS_PER_NODE)
    shapes = [NodeShape(GPUS_PER_NODE, nodes)] if nodes else []
    shapes += [NodeShape(rest, 1)] if rest else []
    offers = tuple(Offer(f"{LAB}/nodes-of-{shape.gpus}", LAB, "owned", (shape,)) for shape in shapes)
    return (Site(LAB, offers, front_door=True),) if offers else ()


def rented_site(name: str, term: Literal["on_demand", "spot"], gpu_hour: Money, most: Money) -> Site:
    """Nodes of 1, 4 and 8 GPUs, billed from the asking on, five minutes before a job can run there."""
    shapes = tuple(
        NodeShape(gpus, list_per_hour=gpu_hour * gpus, most_per_hour=max(most, gpu_hour) * gpus) for gpus in (1, 4, 8)
    )
    return Site(name, (Offer(f"{name}/{term}", name, term, shapes, start_ms=RESTART_MS),))
