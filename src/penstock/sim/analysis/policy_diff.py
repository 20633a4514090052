"""The same history under two policies, by the live engine: what changes for whom. `penstock policy diff` calls it.

`diff` runs both side by side, each in a process of its own that keeps its run until it was asked for the jobs that
fared most differently. Further seeds draw again what nobody knows: run times that were cut off, and the world's chance.
One run more knows all run times. Their range says how much of the answer rests on estimates.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from heapq import nlargest
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Literal, TypeAlias

import msgspec

from penstock.core.errors import BadInput
from penstock.core.ids import members
from penstock.core.model.types import Policy
from penstock.core.units import HOUR, MICRO, Money
from penstock.core.values import value
from penstock.sim.analysis.interrupts import interrupts_held
from penstock.sim.analysis.journal_fold import Unknown
from penstock.sim.analysis.journal_jobs import History, estimated_jobs
from penstock.sim.analysis.outcomes import Outcomes, Story, Sums, Watch
from penstock.sim.engine.simulator import Knowledge, known
from penstock.sim.scenario import Scenario, play

SHOWN: Final = 20  #: jobs that fared most differently
TOLD_EVERY: Final = 500  #: jobs, for the progress bar
#: What an hour of delay counts when jobs are ranked and the policies do not say.
PER_HOUR: Final = 20 * MICRO
Cap: TypeAlias = tuple[str, Money | None, Money | None]
#: As jobs declare it, or as a benchmark hides it.
Known: TypeAlias = Knowledge | Literal["declared"]
Variant: TypeAlias = tuple[int, Known]  #: a seed, and what the engine knows


@value
class Side:
    """A policy with its caps."""

    name: str
    policy: Policy
    caps: tuple[Cap, ...] = ()


@value
class Setting:
    """What both meet: jobs, sites and a world. With a journal's history its run times may be estimates."""

    scenario: Scenario
    history: History | None = None
    knowledge: Known = "declared"

    @property
    def estimated(self) -> Mapping[str, Unknown]:
        return self.history.estimated if self.history is not None else {}

    def varied(self, seed: int, knowledge: Known) -> Scenario:
        """The same jobs in another world: run times that nobody knows are drawn again."""
        jobs = self.scenario.jobs if self.history is None else estimated_jobs(self.history, seed)
        if knowledge != "declared":
            jobs = tuple(known(jobs, knowledge, self.scenario.seed))
        return replace(self.scenario, jobs=jobs, seed=self.scenario.seed + seed)


@value
class Changed:
    """A job that fared differently, with what was recorded in each run."""

    job: str
    team: str
    gpus: int
    run_h: float
    estimated: str  # why its run time is an estimate; empty: it is not
    old: Story
    new: Story


@value
class Range:
    """The least and the most of a change, new less old, over all runs."""

    cost: tuple[float, float]
    mean_delay_h: tuple[float, float]
    refused: tuple[int, int]


@value
class Estimates:
    """How much of the answer rests on run times that nobody knows."""

    jobs: int
    by_kind: Mapping[str, int]
    share_of_jobs: float
    share_of_old_cost: float
    share_of_new_cost: float
    runs: int  # of each policy
    range: Range | None  # None: there was one run


@value
class PolicyDiff:
    old: str
    new: str
    currency: str
    jobs: int
    old_outcomes: Outcomes
    new_outcomes: Outcomes
    changed: tuple[Changed, ...]
    estimates: Estimates
    left_out: Mapping[str, int]
    seconds: float


def diff(
    setting: Setting, old: Side, new: Side, *, seeds: int = 1, advance: Callable[[int], None] = lambda _: None
) -> PolicyDiff:
    """Both policies on the same jobs. `advance` hears of jobs as they are submitted, of all runs."""
    began = time.perf_counter()
    variants = variants_of(seeds, setting.knowledge)
    with _workers(setting, (old, new), variants) as workers:
        old_runs, new_runs = _gather(workers, advance)
        chosen = most_different(setting.scenario, old_runs[0], new_runs[0], _per_hour(old, new))
        stories = [_ask(worker, [job for job, _ in chosen]) for worker in workers]
    changed = [
        _changed(setting, place, *both) for (_, place), *both in zip(chosen, stories[0], stories[1], strict=True)
    ]
    return PolicyDiff(
        old=old.name,
        new=new.name,
        currency=setting.scenario.currency,
        jobs=old_runs[0].everybody.jobs,
        old_outcomes=old_runs[0],
        new_outcomes=new_runs[0],
        changed=tuple(changed),
        estimates=_estimates(setting, old_runs, new_runs),
        left_out=setting.history.left_out if setting.history is not None else {},
        seconds=round(time.perf_counter() - began, 1),
    )


def variants_of(seeds: int, knowledge: Known) -> list[Variant]:
    """The run that is told; further draws; and with these one in which the engine knows each run time."""
    drawn: list[Variant] = [(seed, knowledge) for seed in range(seeds)]
    return drawn if seeds == 1 or knowledge == "e0" else [*drawn, (0, "e0")]


def observe(setting: Setting, side: Side, variant: Variant, advance: Callable[[int], None] = lambda _: None) -> Watch:
    """One run of one policy, watched."""
    scenario = replace(setting.varied(*variant), caps=side.caps)
    sizes = {item.id: item.size_bytes for item in scenario.data}
    watch, reported = Watch(scenario.jobs, sizes, scenario.currency), 0

    def see(step: Any, engine: Any) -> None:
        nonlocal reported
        watch.see(step, engine)
        if engine.state.seq - reported >= TOLD_EVERY:
            advance(engine.state.seq - reported)
            reported = engine.state.seq

    play(scenario, side.policy, see)
    return watch


# --- who fared most differently ---------------------------------------------------------------------------------------


def most_different(
    scenario: Scenario, old: Outcomes, new: Outcomes, per_hour: Money, most: int = SHOWN
) -> list[tuple[str, int]]:
    """Jobs with their places in the trace. At most half ended under one policy only, the largest first; the others by
    rent and delay together, with an hour of delay at `per_hour`.
    """
    ids = [(job, place) for place, traced in enumerate(scenario.jobs) for job in members(traced.id, traced.spec.count)]
    ended_once: list[tuple[int, int]] = []
    both: list[tuple[int, int]] = []
    for k, (before, after) in enumerate(zip(old.delays, new.delays, strict=True)):
        rent = abs(new.costs[k] - old.costs[k])
        if (before >= 0) != (after >= 0) or (before != after and before < 0 and after < 0):
            job = scenario.jobs[ids[k][1]]
            ended_once.append((job.spec.gpus * job.run_ms, -k))
        elif before >= 0 and (rent or before != after):
            both.append((rent + abs(after - before) * per_hour // HOUR, -k))
    first = nlargest(most // 2 if both else most, ended_once)
    chosen = first + nlargest(most - len(first), both)
    return [ids[-k] for _, k in chosen]


def _per_hour(old: Side, new: Side) -> Money:
    return new.policy.waiting.value_per_hour or old.policy.waiting.value_per_hour or PER_HOUR


def _changed(setting: Setting, place: int, old: tuple[str, Story], new: tuple[str, Story]) -> Changed:
    spec, job = setting.scenario.jobs[place].spec, old[0]
    return Changed(
        job=job,
        team=spec.team,
        gpus=spec.gpus,
        run_h=round(setting.scenario.jobs[place].run_ms / HOUR, 3),
        estimated=setting.estimated.get(job, ""),
        old=old[1],
        new=new[1],
    )


# --- what rests on estimates ------------------------------------------------------------------------------------------


def _estimates(setting: Setting, old: Sequence[Outcomes], new: Sequence[Outcomes]) -> Estimates:
    kinds: dict[str, int] = {}
    for kind in setting.estimated.values():
        kinds[kind] = kinds.get(kind, 0) + 1
    return Estimates(
        jobs=len(setting.estimated),
        by_kind=dict(sorted(kinds.items())),
        share_of_jobs=round(len(setting.estimated) / max(1, old[0].everybody.jobs), 4),
        share_of_old_cost=_share(old[0].everybody),
        share_of_new_cost=_share(new[0].everybody),
        runs=len(old),
        range=_range([run.everybody for run in old], [run.everybody for run in new]) if len(old) > 1 else None,
    )


def _share(sums: Sums) -> float:
    return round(sums.estimated_cost / sums.cost, 4) if sums.cost else 0.0


def _range(old: Sequence[Sums], new: Sequence[Sums]) -> Range:
    pairs = list(zip(old, new, strict=True))
    costs = [round(after.cost - before.cost, 2) for before, after in pairs]
    delays = [round(after.mean_delay_h - before.mean_delay_h, 3) for before, after in pairs]
    refused = [after.refused - before.refused for before, after in pairs]
    return Range((min(costs), max(costs)), (min(delays), max(delays)), (min(refused), max(refused)))


# --- two processes ----------------------------------------------------------------------------------------------------


@value
class SideProcess:
    process: Any
    pipe: "Connection[Any, Any]"


@contextmanager
def _workers(setting: Setting, sides: Sequence[Side], variants: list[Variant]) -> Iterator[list[SideProcess]]:
    """A process for each side, spawned: it behaves alike on every system."""
    context = multiprocessing.get_context("spawn")
    workers = []
    try:
        for side in sides:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, setting, side, variants), daemon=True)
            with interrupts_held():
                process.start()
            theirs.close()
            workers.append(SideProcess(process, ours))
        yield workers
    finally:
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()  # it has answered, or nobody wants its answer any more
            worker.process.join()


def _work(pipe: "Connection[Any, Any]", setting: Setting, side: Side, variants: list[Variant]) -> None:
    """In a worker: a message for each piece of progress and each run, then the stories that are asked for."""
    try:
        first: Watch | None = None
        for variant in variants:
            watch = observe(setting, side, variant, pipe.send)
            pipe.send(watch.outcomes(setting.estimated))
            first = first or watch
            del watch
        pipe.send(None)
        asked = pipe.recv()
        assert first is not None
        pipe.send([(job, first.story(job)) for job in asked])
    except BadInput as error:
        pipe.send(error)


def _gather(workers: Sequence[SideProcess], advance: Callable[[int], None]) -> list[list[Outcomes]]:
    runs: list[list[Outcomes]] = [[] for _ in workers]
    busy: dict[Any, int] = {worker.pipe: k for k, worker in enumerate(workers)}
    while busy:
        for pipe in wait(list(busy)):
            message = _heard(workers[busy[pipe]])
            if message is None:
                del busy[pipe]
            elif isinstance(message, int):
                advance(message)
            else:
                runs[busy[pipe]].append(message)
    return runs


def _ask(worker: SideProcess, jobs: list[str]) -> list[tuple[str, Story]]:
    worker.pipe.send(jobs)
    stories: list[tuple[str, Story]] = _heard(worker)
    return stories


def _heard(worker: SideProcess) -> Any:
    try:
        message = worker.pipe.recv()
    except EOFError:
        raise BadInput("A simulation ended early, perhaps for want of memory; try fewer jobs.") from None
    if isinstance(message, BadInput):
        raise message
    return message


# --- for programs -----------------------------------------------------------------------------------------------------


def as_record(compared: PolicyDiff) -> dict[str, Any]:
    """All of it but the two numbers of each job."""
    teams = dict.fromkeys((*compared.old_outcomes.teams, *compared.new_outcomes.teams))
    return {
        "old": compared.old,
        "new": compared.new,
        "currency": compared.currency,
        "jobs": compared.jobs,
        "overall": _pair(compared.old_outcomes.everybody, compared.new_outcomes.everybody),
        "teams": {
            team: _pair(compared.old_outcomes.teams.get(team, Sums()), compared.new_outcomes.teams.get(team, Sums()))
            for team in teams
        },
        "rules": _pair(compared.old_outcomes.rules, compared.new_outcomes.rules),
        "caps": _pair(compared.old_outcomes.caps, compared.new_outcomes.caps),
        "changed": msgspec.to_builtins(compared.changed),
        "estimates": msgspec.to_builtins(compared.estimates),
        "left_out": compared.left_out,
        "seconds": compared.seconds,
    }


def _pair(old: Any, new: Any) -> dict[str, Any]:
    return {"old": msgspec.to_builtins(old), "new": msgspec.to_builtins(new)}
