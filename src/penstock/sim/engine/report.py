"""Report of a run: cost, waits, delays. Reads steps as they are made, and counts like the benchmark.

Wait: all time in which a job is neither running nor ended. Delay: completion - submission - pure run time. Deferred:
owned work after the last submission, beyond what those jobs would have run there without delay.
"""

import resource
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.decide.rules import BUILT_IN
from penstock.core.engine import Engine, Step
from penstock.core.ids import members
from penstock.core.model import events as e
from penstock.core.model.reasons import ApprovalDenied, CapBinds, NothingAllowed, RateBinds
from penstock.core.units import HOUR, PERMILLE, Instant, Millis
from penstock.core.values import value
from penstock.sim.engine.world import Truth


@value
class Refusals:
    """How many jobs were refused by one rule; empty words: nothing there is wide enough."""

    rule: str
    where: str  # file and line, or "built in"
    jobs: int


@value
class Shortage:
    """Jobs that a cap made wait, and the first of them."""

    scope: str
    jobs: int
    first_at: Instant


@value
class Report:
    policy: str
    knob: str
    currency: str
    jobs: int
    gpu_hours: float
    cloud_gpu_hours: float
    cloud_cost: float
    deferred_gpu_hours: float
    cloud_jobs: int
    launches: int
    moves: int
    mean_wait_h: float
    p50_wait_h: float
    p99_wait_h: float
    max_wait_h: float
    mean_delay_h: float
    p99_delay_h: float
    max_delay_h: float
    wasted_wait_share: float
    start_gpu_hours: float
    redone_gpu_hours: float
    rented_while_owned_idle_gpu_hours: float
    mean_jct_h: float
    utilisation: float
    jobs_per_cpu_s: int
    peak_rss_mb: int
    refused_jobs: int
    unfinished_jobs: int
    refused_by: tuple[Refusals, ...] = ()  # the most first
    short: tuple[Shortage, ...] = ()  # of money, the most jobs first


class JobTimes:
    """One job's times for the report."""

    __slots__ = ("began_at", "gpus", "id", "owned_late_ms", "ran_ms", "rented", "submitted_at")

    def __init__(self, job: str, gpus: int, submitted_at: Instant) -> None:
        self.id, self.gpus, self.submitted_at = job, gpus, submitted_at
        self.began_at: Instant | None = None
        self.ran_ms: Millis = 0
        self.rented = False
        self.owned_late_ms = 0  #: GPU-milliseconds on standing GPUs after the last submission


class RunningAttempt:
    """A live attempt."""

    __slots__ = ("life", "promise", "rented", "started_at", "width")

    def __init__(self, life: JobTimes, promise: e.StartPromised, rented: bool) -> None:
        self.life, self.promise, self.rented, self.width = life, promise, rented, promise.width
        self.started_at: Instant | None = None


class Tally:
    """Gets every step; `report` sums up."""

    def __init__(self, truths: Mapping[str, Truth], first_at: Instant, last_at: Instant) -> None:
        self.truths, self.first_at, self.last_at = truths, first_at, last_at
        self.lives: dict[str, JobTimes] = {}
        self.live: dict[str, RunningAttempt] = {}
        self.waits: list[Millis] = []
        self.delays: list[Millis] = []
        self.jcts: list[Millis] = []
        self.jobs = self.refused = self.cloud_jobs = self.launches = self.moves = 0
        self.work_ms = self.cloud_ms = self.start_ms = self.redone_ms = self.deferred_ms = self.inside_ms = 0
        self.cloud_wait_ms = self.total_wait_ms = 0
        self.rented_widths: dict[int, int] = {}
        self.rented_gpus = 0
        self.fits: list[tuple[int, bool]] = []  #: after the last step: (width, whether it would fit on standing GPUs)
        self.idle_ms = 0
        self.last_step_at = first_at
        self.refusals: dict[tuple[str, str], int] = {}
        self.shortages: dict[str, dict[str, Instant]] = {}  #: by scope: its jobs, and since when

    def see(self, step: Step, engine: Engine) -> None:
        if self.rented_gpus:
            self._count_idle(step.at)
        self.last_step_at = step.at
        for events in (step.inputs, step.outputs):
            for event in events:
                note = NOTE.get(type(event))
                if note is not None:
                    note(self, event)
        if self.rented_gpus:
            self.fits = [(width, _fits(engine, width)) for width in self.rented_widths]

    def _count_idle(self, now: Instant) -> None:
        """Add rented GPU-time since the last step during which idle standing GPUs would have fit the job."""
        passed = now - self.last_step_at
        if passed:
            counts = self.rented_widths
            self.idle_ms += passed * sum(width * counts.get(width, 0) for width, fits in self.fits if fits)

    # --- events ------------------------------------------------------------------------------------------------------

    def submitted(self, event: e.JobSubmitted) -> None:
        spec = event.spec
        for job in members(event.job, spec.count):
            self.lives[job] = JobTimes(job, spec.gpus, event.at)

    def refused_job(self, event: e.JobRefused) -> None:
        del self.lives[event.job]
        self.refused += 1
        because = event.because
        if isinstance(because, NothingAllowed):
            key = because.rule, because.where
        elif isinstance(because, ApprovalDenied):
            key = f"nobody approves it (rule {because.rule})", because.source
        else:
            key = "", BUILT_IN
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def short_of_money(self, event: e.WaitPromised) -> None:
        if isinstance(event.because, CapBinds | RateBinds):
            self.shortages.setdefault(event.because.scope, {}).setdefault(event.job, event.at)

    def promised(self, event: e.StartPromised) -> None:
        life = self.lives[event.job]
        self.live[event.attempt] = RunningAttempt(life, event, event.rented)
        if event.rented:
            self.launches += len(event.nodes) or (event.hold is not None)
            if not life.rented:
                life.rented = True
                self.cloud_jobs += 1

    def rented_ahead(self, event: e.WarmPromised | e.ClusterPromised) -> None:  # noqa: ARG002 - it counts, whatever it is
        self.launches += 1

    def started(self, event: e.AttemptStarted) -> None:
        live = self.live.get(event.attempt)
        if live is None:
            return
        live.started_at = event.at
        if live.rented:
            self.start_ms += (event.at - live.promise.at) * live.width
            self.rented_gpus += live.width
            self.rented_widths[live.width] = self.rented_widths.get(live.width, 0) + 1

    def ended(self, event: e.AttemptEnded) -> None:
        life = self._over(event.attempt, event.at)
        if life is None:
            return
        del self.lives[life.id]
        self.jobs += 1
        run_ms = self.truths[life.id].run_ms
        wait, delay = event.at - life.submitted_at - life.ran_ms, event.at - life.submitted_at - run_ms
        self.waits.append(wait)
        self.delays.append(delay)
        self.jcts.append(event.at - life.submitted_at)
        self.work_ms += run_ms * life.gpus
        self.total_wait_ms += wait
        if life.rented:
            self.cloud_wait_ms += wait
        undelayed = max(0, life.submitted_at + run_ms - self.last_at) * life.gpus
        self.deferred_ms += max(0, life.owned_late_ms - undelayed)

    def broken_off(self, event: e.AttemptStopped | e.AttemptLost) -> None:
        live = self.live.get(event.attempt)
        if live is not None and live.started_at is not None:
            promise, ran = live.promise, event.at - live.started_at
            done = promise.resume_ms + ran * promise.speed_permille // PERMILLE
            self.redone_ms += max(0, done - event.kept_ms) * live.width
        self._over(event.attempt, event.at)

    def dropped(self, event: e.AttemptRefused) -> None:
        self.live.pop(event.attempt, None)

    def stop_promised(self, event: e.StopPromised) -> None:
        self.moves += event.then == "move"

    def _over(self, attempt: str, at: Instant) -> JobTimes | None:
        live = self.live.pop(attempt, None)
        if live is None:
            return None
        life = live.life
        if live.started_at is None:
            return life
        ran = at - live.started_at
        life.ran_ms += ran
        if live.rented:
            self.cloud_ms += ran * live.width
            self.rented_gpus -= live.width
            left = self.rented_widths[live.width] - 1
            if left:
                self.rented_widths[live.width] = left
            else:
                del self.rented_widths[live.width]
        else:
            late = max(0, at - max(self.last_at, live.started_at))
            self.inside_ms += (ran - late) * live.width
            life.owned_late_ms += late * live.width
        return life

    # --- the sum -----------------------------------------------------------------------------------------------------

    def report(self, engine: Engine, cpu_s: float) -> Report:
        state = engine.state
        jobs = max(1, self.jobs)
        span = max(1, self.last_at - self.first_at)
        owned = sum(pool.per_node * pool.size for pool in state.pools.values())
        spent = sum(account.spent for (scope, _), account in state.ledger.accounts.items() if scope == "org")
        waits, delays = sorted(self.waits), sorted(self.delays)
        return Report(
            policy=state.policy.name,
            knob=state.policy.knob,
            currency=state.policy.currency,
            jobs=self.jobs,
            gpu_hours=_hours(self.work_ms),
            cloud_gpu_hours=_hours(self.cloud_ms),
            cloud_cost=round(spent / 1e6, 2),
            deferred_gpu_hours=_hours(self.deferred_ms),
            cloud_jobs=self.cloud_jobs,
            launches=self.launches,
            moves=self.moves,
            mean_wait_h=round(sum(waits) / jobs / HOUR, 5),
            p50_wait_h=percentile(waits, 50),
            p99_wait_h=percentile(waits, 99),
            max_wait_h=round(waits[-1] / HOUR, 2) if waits else 0.0,
            mean_delay_h=round(sum(delays) / jobs / HOUR, 5),
            p99_delay_h=percentile(delays, 99),
            max_delay_h=round(delays[-1] / HOUR, 2) if delays else 0.0,
            wasted_wait_share=round(self.cloud_wait_ms / self.total_wait_ms, 3) if self.total_wait_ms else 0.0,
            start_gpu_hours=_hours(self.start_ms),
            redone_gpu_hours=_hours(self.redone_ms),
            rented_while_owned_idle_gpu_hours=_hours(self.idle_ms),
            mean_jct_h=round(sum(self.jcts) / jobs / HOUR, 4),
            utilisation=round(self.inside_ms / (owned * span), 4) if owned else 0.0,
            jobs_per_cpu_s=int(self.jobs / cpu_s) if cpu_s else 0,
            peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            refused_jobs=self.refused,
            unfinished_jobs=len(self.lives),
            refused_by=tuple(
                Refusals(*key, jobs)
                for key, jobs in sorted(self.refusals.items(), key=lambda pair: (-pair[1], pair[0]))
            ),
            short=tuple(
                sorted(
                    [Shortage(scope, len(jobs), min(jobs.values())) for scope, jobs in self.shortages.items()],
                    key=lambda shortage: (-shortage.jobs, shortage.scope),
                )
            ),
        )


def _fits(engine: Engine, width: int) -> bool:
    return any(pool.free_gpus >= width and pool.fits(width) for pool in engine.state.pools.values())


def _hours(ms: int) -> float:
    return round(ms / HOUR, 2)


def percentile(ordered: list[Millis], percent: int) -> float:
    """Linear interpolation as in numpy; in hours."""
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return round((ordered[low] + (ordered[high] - ordered[low]) * (place - low)) / HOUR, 3)


NOTE: Final[dict[type, Callable[[Tally, Any], None]]] = {
    e.JobSubmitted: Tally.submitted,
    e.JobRefused: Tally.refused_job,
    e.WaitPromised: Tally.short_of_money,
    e.StartPromised: Tally.promised,
    e.AttemptStarted: Tally.started,
    e.AttemptEnded: Tally.ended,
    e.AttemptStopped: Tally.broken_off,
    e.AttemptLost: Tally.broken_off,
    e.AttemptRefused: Tally.dropped,
    e.StopPromised: Tally.stop_promised,
    e.WarmPromised: Tally.rented_ahead,
    e.ClusterPromised: Tally.rented_ahead,
}
