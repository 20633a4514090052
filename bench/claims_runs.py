"""Runs of the claims (`bench.claims`): a load, what is owned and rented, and the live engine between them.

Cost level L1 of the placement benchmark: instances of 1, 4 and 8 GPUs, five minutes for a start, billed, and five for a
restart. Run times are not known to the engine (E2). Each run is done once, however many rows use it.
"""

import csv
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from penstock.core.engine import Engine, Step
from penstock.core.model import events as e
from penstock.core.model.types import Policy, Site
from penstock.core.units import DAY, HOUR, Instant
from penstock.policy.presets import policy
from penstock.sim.engine.chance import uniform
from penstock.sim.engine.report import Tally, percentile
from penstock.sim.engine.simulator import known, truths
from penstock.sim.engine.spot import recorded_zones
from penstock.sim.engine.world import Zone
from penstock.sim.scenario import (
    GPUS_PER_NODE,
    Scenario,
    checkpointed,
    made_up_zones,
    on_demand_site,
    owned_site,
    play,
    prepare,
    spot_site,
)
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import Trace, TraceJob, read

SHARED: Final = Path(os.environ.get("PENSTOCK_SHARED") or Path(__file__).resolve().parents[2] / "shared")
TRACES: Final = ("philly", "helios_venus", "pai")
ON_DEMAND_PER_GPU_HOUR: Final = 2.50  #: as `scenario.PER_GPU_HOUR`; deferred work is counted at it, too
COST_OF_DELAY: Final = "20"
ELIGIBLE: Final = "eligible"  #: the project of jobs that may run on spot, where only some may
SPOT_RECORDING: Final = "2023-02-15"  #: six zones, 45 days, repeated
FAST_DAYS: Final = 4.0


class Load(NamedTuple):
    """Jobs of one trace, and what follows from them alone."""

    name: str
    jobs: tuple[TraceJob, ...]
    zones: dict[str, Zone]  #: when spot capacity is there

    @property
    def span_h(self) -> float:
        return (self.jobs[-1].submit_at - self.jobs[0].submit_at) / HOUR

    def nodes(self, load: float) -> int:
        """Nodes to own so that the demand is `load` times what they can do."""
        return nodes_for(Trace(self.jobs, {}), load)

    def peak_gpus(self) -> int:
        """The most GPUs wanted at once, if every job ran the moment it is submitted."""
        changes = [(job.submit_at, job.spec.gpus) for job in self.jobs]
        changes += [(job.submit_at + job.run_ms, -job.spec.gpus) for job in self.jobs]
        return max(accumulate(gpus for _, gpus in sorted(changes)))


class Setup(NamedTuple):
    """What is owned, what may be rented, and who decides."""

    nodes: int = 0  #: owned, of 8 GPUs each
    rented: tuple[str, ...] = ("on_demand",)  #: and "spot"
    policy: str = "penstock"  #: `owned-only` is penstock that may not rent
    cost_of_delay: str = COST_OF_DELAY  #: what an hour of a job's delay costs, for penstock
    half: bool = False  #: half of the jobs, by id, have no checkpoints and may not be preempted: not eligible for spot


class Measured(NamedTuple):
    """What a run came to. Money in dollars, times in hours."""

    rent: float  #: what the cloud bills
    deferred_gpu_hours: float  #: owned work after the last submission that is there only because of delay
    owned_gpu_hours: float  #: until the last submission: paid for, whether used or not
    late_gpu_hours: float  #: owned work after the last submission, delayed or not
    owned_share: float  #: of the GPU-hours run on owned GPUs
    eligible_rent: float
    eligible_rented_gpu_hours: float
    eligible_gpu_hours: float
    mean_jct_h: float
    median_jct_h: float
    mean_delay_h: float
    p99_delay_h: float
    unfinished: int

    @property
    def compute(self) -> float:
        """What changes with a decision: the bill, and what was put off to after the end."""
        return self.rent + self.deferred_gpu_hours * ON_DEMAND_PER_GPU_HOUR

    def total(self, owned_per_gpu_hour: float) -> float:
        """With the owned GPUs. After the last submission they count as far as they are used."""
        paid = self.owned_gpu_hours + max(0.0, self.late_gpu_hours - self.deferred_gpu_hours)
        return self.compute + paid * owned_per_gpu_hour

    def eligible(self, owned_per_gpu_hour: float) -> float:
        """What the eligible jobs cost, on rented and on owned GPUs."""
        owned = max(0.0, self.eligible_gpu_hours - self.eligible_rented_gpu_hours)
        return self.eligible_rent + owned * owned_per_gpu_hour


def loads(names: Sequence[str], days: float | None) -> list[Load]:
    """Recorded traces; where none are beside the project, one generated load."""
    if not (SHARED / "data" / "traces").is_dir():
        print("The traces are not beside the project: generated load instead.", file=sys.stderr)
        return [generated(round(400 * days), days) if days else generated(20_000, 30)]
    return [recorded(name, days) for name in names]


def generated(count: int, days: float, seed: int = 0) -> Load:
    jobs = tuple(checkpointed(generate(count, seed=seed, days=days).jobs))
    return Load("generated", jobs, made_up_zones(jobs, 0))


def recorded(name: str, days: float | None) -> Load:
    """A trace, or the days in its middle; checkpoints are assumed, since no trace says."""
    jobs = tuple(checkpointed(read(str(SHARED / "data" / "traces" / f"{name}.csv.gz")).jobs))
    if days is not None:
        jobs = middle(jobs, days)
    until = 2 * (jobs[-1].submit_at + max(job.run_ms for job in jobs))
    return Load(name, jobs, recorded_zones(str(SHARED / "data" / "spot"), SPOT_RECORDING, 1, until))


def middle(jobs: Sequence[TraceJob], days: float) -> tuple[TraceJob, ...]:
    first = (jobs[0].submit_at + jobs[-1].submit_at - int(days * DAY)) // 2
    return tuple(job for job in jobs if first <= job.submit_at < first + days * DAY)


class Runner:
    """Measures setups, each once, and says what it does. `kept` is a file of runs that were done before."""

    def __init__(self, say: Callable[[str], None] | None = None, kept: Path | None = None) -> None:
        self.say, self.kept = say or (lambda _: None), kept
        self.done: dict[tuple[str, int, Setup], Measured] = {}  #: by trace, number of its jobs, and setup
        for line in kept.read_text("utf-8").splitlines() if kept and kept.exists() else ():
            name, jobs, setup, run = json.loads(line)
            setup["rented"] = tuple(setup["rented"])
            self.done[name, jobs, Setup(**setup)] = Measured(**run)

    def measure(self, load: Load, setup: Setup) -> Measured:
        key = (load.name, len(load.jobs), setup)
        if key not in self.done:
            began = time.monotonic()
            self.done[key] = measured = run(load, setup)
            self.say(f"{load.name}: {described(setup)}, {len(load.jobs):,} jobs, {time.monotonic() - began:.0f} s")
            if self.kept:
                with self.kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([*key[:2], setup._asdict(), measured._asdict()]) + "\n")
        return self.done[key]


def described(setup: Setup) -> str:
    owned = f"{setup.nodes} nodes owned" if setup.nodes else "nothing owned"
    rented = " and ".join(setup.rented).replace("_", "-") if setup.policy != "owned-only" else "nothing"
    delay = f" at ${setup.cost_of_delay} an hour" if setup.policy == "penstock" else ""
    return f"{owned}, {rented} rented, {setup.policy}{delay}{', half eligible' if setup.half else ''}"


def run(load: Load, setup: Setup) -> Measured:
    """One run of the live engine over the whole load."""
    jobs = prepare(known(half_eligible(load.jobs) if setup.half else load.jobs, "e2"), "l1")
    zones = {f"{name}/spot": zone for name, zone in load.zones.items()} if "spot" in setup.rented else {}
    scenario = Scenario(tuple(jobs), tuple(sites(load, setup)), zones)
    true = truths(jobs)
    tally = Tally(true, jobs[0].submit_at, jobs[-1].submit_at)
    chosen = {job.id: job.spec.gpus * job.run_ms for job in jobs if job.spec.project == ELIGIBLE}
    rented = RentedTime(chosen)
    engine = play(scenario, decider(setup, jobs), both(tally.see, rented.see) if chosen else tally.see, true)
    report = tally.report(engine, 0)
    accounts = engine.state.ledger.accounts.items()
    return Measured(
        rent=report.cloud_cost,
        deferred_gpu_hours=report.deferred_gpu_hours,
        owned_gpu_hours=setup.nodes * GPUS_PER_NODE * load.span_h,
        late_gpu_hours=max(0.0, report.gpu_hours - report.cloud_gpu_hours - tally.inside_ms / HOUR),
        owned_share=1 - report.cloud_gpu_hours / max(report.gpu_hours, report.cloud_gpu_hours),
        eligible_rent=sum(account.spent for (scope, _), account in accounts if scope == f"project:{ELIGIBLE}") / 1e6,
        eligible_rented_gpu_hours=rented.gpu_ms / HOUR,
        eligible_gpu_hours=sum(chosen.values()) / HOUR,
        mean_jct_h=report.mean_jct_h,
        median_jct_h=percentile(sorted(tally.jcts), 50),
        mean_delay_h=report.mean_delay_h,
        p99_delay_h=report.p99_delay_h,
        unfinished=report.unfinished_jobs,
    )


class RentedTime:
    """Sees every step, and counts the time that these jobs ran on rented GPUs."""

    def __init__(self, jobs: Container[str]) -> None:
        self.jobs, self.gpu_ms = jobs, 0
        self.widths: dict[str, int] = {}  #: of rented attempts
        self.began: dict[str, Instant] = {}

    def see(self, step: Step, _: Engine) -> None:
        for fact in step.inputs:
            if isinstance(fact, e.AttemptStarted) and fact.attempt in self.widths:
                self.began[fact.attempt] = fact.at
            elif isinstance(fact, e.AttemptEnded | e.AttemptStopped | e.AttemptLost):
                began = self.began.pop(fact.attempt, fact.at)
                self.gpu_ms += (fact.at - began) * self.widths.pop(fact.attempt, 0)
        for promise in step.outputs:
            if isinstance(promise, e.StartPromised) and promise.rented and promise.job in self.jobs:
                self.widths[promise.attempt] = promise.width


def both(
    first: Callable[[Step, Engine], None], second: Callable[[Step, Engine], None]
) -> Callable[[Step, Engine], None]:
    def see(step: Step, engine: Engine) -> None:
        first(step, engine)
        second(step, engine)

    return see


def sites(load: Load, setup: Setup) -> Iterable[Site]:
    if setup.nodes:
        yield owned_site(setup.nodes)
    if "on_demand" in setup.rented:
        yield on_demand_site("l1")
    if "spot" in setup.rented:
        yield from map(spot_site, load.zones)


def decider(setup: Setup, jobs: Sequence[TraceJob]) -> Policy:
    if setup.policy == "owned-only":
        return replace(policy("penstock", setup.cost_of_delay, jobs), burst=False)
    return policy(setup.policy, setup.cost_of_delay if setup.policy == "penstock" else "0", jobs)


def half_eligible(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """Half of the jobs, by id: no checkpoints, and may not be preempted. The project says which, so that it pays."""
    return [
        replace(
            job,
            spec=replace(job.spec, project=ELIGIBLE)
            if uniform("checkpoints", job.id) >= 0.5 and job.spec.checkpoint_every_ms
            else replace(job.spec, project="other", checkpoint_every_ms=None, interruptible=False),
        )
        for job in jobs
    ]


# --- what needs no engine --------------------------------------------------------------------------------------------


def demand_by_hour(jobs: Sequence[TraceJob]) -> list[float]:
    """GPUs wanted in each hour between the first and the last submission, if every job ran when submitted."""
    from penstock.forecast.history import demand_by_hour as by_hour

    rows = ((job.submit_at, job.submit_at + job.run_ms, job.spec.gpus) for job in jobs)
    return by_hour(rows, jobs[0].submit_at, jobs[-1].submit_at)


def longest_up_ms(zones: Iterable[Zone]) -> Instant:
    """The longest time that any zone had capacity without a break."""
    stretches = [
        (after - before) for zone in zones for before, after in zip(zone.changes[::2], zone.changes[1::2], strict=False)
    ]
    return max(stretches, default=0)


def spot_shares(model: str) -> dict[str, float] | None:
    """The median of spot by on-demand price for a GPU model, by cloud, from the price lists; None: there are none."""
    path = SHARED / "data" / "prices" / "gpu_prices.csv"
    if not path.is_file():
        return None
    by_cloud: dict[str, list[float]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["gpu_model"] == model and row["spot_usd_per_h"] and row["on_demand_usd_per_h"]:
                share = float(row["spot_usd_per_h"]) / float(row["on_demand_usd_per_h"])
                if math.isfinite(share) and share > 0:
                    by_cloud.setdefault(row["cloud"], []).append(share)
    return {cloud: statistics.median(shares) for cloud, shares in sorted(by_cloud.items())}
