"""A generated month whose truth is known, for `penstock assess --demo` and for tests of what the report says.

Jobs are those of the simulator's generator. They start in the order of their submission, on the GPUs that are owned, as
soon as enough are free. Some hold their GPUs and use them little.
"""

from heapq import heappop, heappush
from random import Random
from typing import Final

from penstock.assess.history import IDLE_PERMILLE, JobRecord, MeasuredHour, OwnedGpus, SourceReading
from penstock.assess.join import hours_between
from penstock.assess.sources.reading import coverage_of, recurring_key
from penstock.core.units import HOUR, PERMILLE, Instant, Millis
from penstock.core.values import value
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import TraceJob

BEGINS_AT: Final[Instant] = 1_791_158_400_000  #: Monday, 2026-10-05, 00:00 UTC
JOBS, LOAD, DAYS, TEAMS = 4_000, 0.7, 30, 3
SOURCE: Final = "generated month"
IDLE_SHARE: Final = 0.08  #: of jobs, beside interactive ones
GPUS_PER_NODE: Final = 8


@value
class GeneratedJob:
    job: TraceJob
    submitted_at: Instant
    started_at: Instant
    ended_at: Instant
    used_permille: int


@value
class GeneratedMonth:
    """Every job, and how many GPUs there were."""

    jobs: tuple[GeneratedJob, ...]
    owned_gpus: int

    @property
    def waits_ms(self) -> list[Millis]:
        return sorted(job.started_at - job.submitted_at for job in self.jobs)


def generated_month(
    seed: int = 0, jobs: int = JOBS, *, load: float = LOAD, days: int = DAYS, begins_at: Instant = BEGINS_AT
) -> GeneratedMonth:
    trace = generate(jobs, seed=seed, teams=TEAMS, days=days)
    widest = max(job.spec.gpus for job in trace.jobs)
    owned = max(nodes_for(trace, load) * GPUS_PER_NODE, widest)
    return GeneratedMonth(tuple(_in_order(trace.jobs, owned, begins_at, seed)), owned)


def _in_order(jobs: tuple[TraceJob, ...], owned: int, begins_at: Instant, seed: int) -> list[GeneratedJob]:
    """First come, first served: nobody overtakes, as in a plain queue."""
    ends: list[tuple[Instant, int]] = []
    free, now, started = owned, 0, []
    for job in jobs:
        now = max(now, job.submit_at)
        while ends and (ends[0][0] <= now or free < job.spec.gpus):
            ended_at, gpus = heappop(ends)
            now, free = max(now, ended_at), free + gpus
        free -= job.spec.gpus
        heappush(ends, (now + job.run_ms, job.spec.gpus))
        started.append(
            GeneratedJob(
                job=job,
                submitted_at=begins_at + job.submit_at,
                started_at=begins_at + now,
                ended_at=begins_at + now + job.run_ms,
                used_permille=_used(job, seed),
            )
        )
    return started


def _used(job: TraceJob, seed: int) -> int:
    """How much of its GPUs it uses: a notebook next to nothing, a training most of it."""
    chance = Random(f"penstock {seed} use {job.id}")
    idle = job.spec.job_class == "interactive" or chance.random() < IDLE_SHARE
    return int(chance.random() * 30) if idle else 450 + int(chance.random() * 500)


def demo_reading(month: GeneratedMonth) -> SourceReading:
    """The month as a source that sees everything."""
    records = [_record(job) for job in month.jobs]
    measured = [
        MeasuredHour(job.job.id, at, ms * job.job.spec.gpus, ms * job.job.spec.gpus * job.used_permille // PERMILLE)
        for job in month.jobs
        for at, ms in hours_between(job.started_at, job.ended_at)
    ]
    coverage = coverage_of(SOURCE, records, missing=("This month is generated; nothing in it is real.",))
    owned = (OwnedGpus(month.jobs[0].submitted_at, month.owned_gpus, "H100"),)
    return SourceReading(coverage, tuple(records), owned, "the generated cluster", tuple(measured))


def _record(generated: GeneratedJob) -> JobRecord:
    spec = generated.job.spec
    gpu_ms = spec.gpus * (generated.ended_at - generated.started_at)
    idle = generated.used_permille < IDLE_PERMILLE and generated.ended_at - generated.started_at >= HOUR
    return JobRecord(
        id=generated.job.id,
        source=SOURCE,
        gpus=spec.gpus,
        gpu_model="H100",
        name=spec.name,
        team=spec.team,
        user=spec.user,
        key=recurring_key(spec.team, spec.name),
        submitted_at=generated.submitted_at,
        started_at=generated.started_at,
        ended_at=generated.ended_at,
        submitted_by="csv",
        started_by="csv",
        ended_by="csv",
        outcome="succeeded",
        used_gpu_ms=gpu_ms * generated.used_permille // PERMILLE,
        measured_gpu_ms=gpu_ms,
        idle_gpu_ms=gpu_ms if idle else 0,
        checkpoints=spec.checkpoint_every_ms is not None,
    )
