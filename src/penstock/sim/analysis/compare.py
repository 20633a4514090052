"""Runs the same jobs under several policies and compares them with the lower bound. `penstock compare` and the demo
call it.

`measure` runs every point, `Compared` holds one trace's results, `pictured` makes the page. A point's cost is the cloud
bill plus the cloud price of deferred owned work: otherwise holding jobs until the trace ends would look like a saving.
"""

import importlib.util
import multiprocessing
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import floor, log, log10
from typing import Any, Final, TypeAlias

import msgspec

from penstock.core.errors import BadInput
from penstock.core.model.types import STANDING, DataRule, Policy
from penstock.core.units import HOUR, MICRO, SECOND, Money, money
from penstock.core.values import value
from penstock.formatting import SYMBOLS, duration
from penstock.policy.presets import OURS, at_cost_of_delay, policy
from penstock.sim.analysis.interrupts import interrupts_held
from penstock.sim.charts.comparison import Column, Comparison, Curve, Mark
from penstock.sim.engine.report import Report
from penstock.sim.scenario import PER_GPU_HOUR, Scenario, run


@value
class Contender:
    """A policy with the settings of its knob to try, and whether the knob is a waiting budget."""

    knobs: tuple[str, ...]
    waits_by_budget: bool = True
    knob_in_words: str = "{}"  # a format like ${}/h


BUDGETS: Final = ("0.02", "0.05", "0.1", "0.25", "0.5", "1")
#: The baseline of all savings; always measured.
VALUES: Final = ("640", "220", "80", "28", "10", "3")
BURST_AT_ONCE: Final = "nowait"
#: Everything that can be compared, in the order of the tables; all but the last are, unasked: that one believes what
#: jobs say of their run times. A policy whose knob means something else goes here too,
#: with knobs of its own, from the least waiting to the most; --knobs leaves those as they are.
CONTENDERS: Final[dict[str, Contender]] = {
    BURST_AT_ONCE: Contender(("0",), waits_by_budget=False),
    "constant": Contender(BUDGETS),
    "compute": Contender(BUDGETS),
    "compute-q30": Contender(BUDGETS),
    "power": Contender(BUDGETS),
    # Cost of delay per job-hour, from high (short waits) to low.
    "penstock-no-moves": Contender(VALUES, waits_by_budget=False, knob_in_words="${}/h"),
    "penstock": Contender(VALUES, waits_by_budget=False, knob_in_words="${}/h"),
    "penstock-known": Contender(VALUES, waits_by_budget=False, knob_in_words="${}/h"),
}
#: The lede is about the first of these that was measured.
SUBJECTS: Final = ("penstock", "compute", "power", "compute-q30", "constant")
#: Costs closer than this count as equal: a knob moved by 2 % changes the cost by as much.
NO_DIFFERENCE: Final = 0.03


@value
class Case:
    """One trace with its setting."""

    name: str
    scenario: Scenario
    nodes: int
    costs: str
    knowledge: str


@value
class FilePolicy:
    """What a policy file says, as one more policy to compare, under the file's name."""

    policy: Policy
    caps: tuple[tuple[str, Money | None, Money | None], ...] = ()
    data_rules: tuple[DataRule, ...] = ()

    @property
    def name(self) -> str:
        return self.policy.name


@value
class PolicyPoint:
    """One policy at one setting of its knob."""

    report: Report
    cost: float
    seconds: float

    @property
    def mark(self) -> Mark:
        return Mark(self.report.mean_delay_h, self.cost, self.knob)

    @property
    def knob(self) -> str:
        contender = CONTENDERS.get(self.report.policy)
        return contender.knob_in_words.format(self.report.knob) if contender else self.report.knob


@value
class Bound:
    """The lower bound: corners (mean delay in hours, cost) of a piecewise linear curve."""

    per_gpu_hour: float
    corners: tuple[tuple[float, float], ...]
    seconds: float

    def at(self, delay_h: float) -> float:
        for (a, above), (b, below) in pairwise(self.corners):
            if a <= delay_h < b:
                return above + (below - above) * (delay_h - a) / (b - a)
        return self.corners[-1][1]


@value
class Compared:
    """The results of one trace."""

    case: Case
    points: tuple[PolicyPoint, ...]
    bound: Bound | None

    @property
    def burst_at_once(self) -> PolicyPoint:
        return next(point for point in self.points if point.report.policy == BURST_AT_ONCE)

    def of(self, name: str) -> list[PolicyPoint]:
        return [point for point in self.points if point.report.policy == name]

    def saving_closed(self, point: PolicyPoint) -> float | None:
        """The share of the possible saving at the same mean delay, against bursting at once. None if nothing could be
        saved.
        """
        if self.bound is None:
            return None
        most = self.burst_at_once.cost
        attainable = most - self.bound.at(point.report.mean_delay_h)
        return (most - point.cost) / attainable if attainable > 0 else None

    def hour_saves(self, point: PolicyPoint) -> float | None:
        """What each of the last job-hours of delay saved, against the same policy's next point with less delay."""
        here = point.report
        less = [other for other in self.of(here.policy) if other.report.mean_delay_h < here.mean_delay_h]
        if not less:
            return None
        nearest = max(less, key=lambda other: other.report.mean_delay_h)
        return (nearest.cost - point.cost) / ((here.mean_delay_h - nearest.report.mean_delay_h) * here.jobs)


@value
class Task:
    """A point to measure, or the bound where `policy` is empty."""

    case: int
    policy: str = ""
    knob: str = ""


@value
class Ground:
    """What all tasks share; each worker gets it once."""

    scenarios: tuple[Scenario, ...]
    files: Mapping[str, FilePolicy]


Answer: TypeAlias = PolicyPoint | Bound


def measure(
    cases: Sequence[Case],
    lines: Iterable[tuple[str, str]],
    *,
    files: Sequence[FilePolicy] = (),
    workers: int = 1,
    with_bound: bool = True,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Compared]:
    """Every (policy, knob) of `lines` for every case. Results keep the order of the arguments."""
    lines = list(lines)
    tasks = list(tasks_of(len(cases), lines, with_bound))
    ground = Ground(tuple(case.scenario for case in cases), {file.name: file for file in files})
    work = _one_by_one if workers == 1 or len(tasks) == 1 else _side_by_side
    answers = dict(zip(tasks, work(ground, tasks, min(workers, len(tasks)), advance), strict=True))
    return [_compared(case, i, lines, answers) for i, case in enumerate(cases)]


def lines_for(
    policies: Iterable[str], budgets: Sequence[str] = (), costs_of_delay: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Each policy at each of its settings, or at the given waiting budgets or costs of delay."""
    wanted = [name.strip() for name in policies]
    for name in wanted:
        if name not in CONTENDERS:
            raise BadInput(f"There is no policy '{name}'; choose among {', '.join(CONTENDERS)}.")
    budgets = sorted(dict.fromkeys(text.strip() for text in budgets), key=_budget)
    costs = sorted(dict.fromkeys(text.strip() for text in costs_of_delay), key=money, reverse=True)
    return [
        (name, knob)
        for name, contender in CONTENDERS.items()
        if name in wanted or name == BURST_AT_ONCE
        for knob in ((budgets if contender.waits_by_budget else costs if name in OURS else ()) or contender.knobs)
    ]


def lines_of(file: FilePolicy, costs_of_delay: Sequence[str] = ()) -> list[tuple[str, str]]:
    """A file's policy at its own cost of delay, or at the given ones; those of its classes stay."""
    return [(file.name, cost.strip()) for cost in costs_of_delay or (file.policy.knob,)]


def tasks_of(cases: int, lines: Sequence[tuple[str, str]], with_bound: bool) -> Iterator[Task]:
    """The bounds first: each takes as long as a point, and one that starts last would delay the end."""
    if with_bound:
        yield from (Task(case) for case in range(cases))
    yield from (Task(case, *line) for case in range(cases) for line in lines)


def _budget(text: str) -> Fraction:
    # Plain decimals only: 1e-999999999 is a number too, and as an exact one it would take hours.
    if not re.fullmatch(r"\d{1,6}(\.\d{0,12})?|\.\d{1,12}", text, re.ASCII):
        raise BadInput(f"--knobs are waiting budgets like 0.05,0.1,0.25, and '{text}' is none.")
    return Fraction(text)


def _compared(case: Case, index: int, lines: Sequence[tuple[str, str]], answers: dict[Task, Answer]) -> Compared:
    bound = answers.get(Task(index))
    points = [answers[Task(index, *line)] for line in lines]
    assert bound is None or isinstance(bound, Bound)
    return Compared(case, tuple(point for point in points if isinstance(point, PolicyPoint)), bound)


# ---- the work, here or in other processes -------------------------------------------------------------------------


def _one_by_one(ground: Ground, tasks: Sequence[Task], _: int, advance: Callable[[int], None]) -> Iterator[Answer]:
    for task in tasks:
        yield _answer(ground, task)
        advance(1)


def _side_by_side(
    ground: Ground, tasks: Sequence[Task], workers: int, advance: Callable[[int], None]
) -> Iterator[Answer]:
    """In spawned processes, which behave alike on every system; each gets the traces once."""
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (ground,)) as pool:
        try:
            with interrupts_held():
                answers = [pool.submit(_answer_task, task) for task in tasks]
            _watch(answers, advance)
        except BaseException as error:
            # Cancel points in progress; otherwise ^C would wait for them.
            for worker in multiprocessing.active_children():
                if worker not in others:
                    worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise BadInput("A worker process ended early, perhaps for want of memory; try --workers 1.") from None
            raise
        yield from (answer.result() for answer in answers)


def _watch(answers: Sequence[Future[Answer]], advance: Callable[[int], None]) -> None:
    for answer in as_completed(answers):
        answer.result()  # raises the worker's exception
        advance(1)


#: In a worker: its traces and files.
_mine: list[Ground] = []


def _begin(ground: Ground) -> None:
    _mine[:] = [ground]


def _answer_task(task: Task) -> Answer:
    return _answer(_mine[0], task)


def _answer(ground: Ground, task: Task) -> Answer:
    began = time.perf_counter()
    scenario = ground.scenarios[task.case]
    if not task.policy:
        return _bound(scenario, began)
    if file := ground.files.get(task.policy):
        ruled = replace(scenario, caps=file.caps, data_rules=scenario.data_rules + file.data_rules)
        value = None if task.knob == file.policy.knob else task.knob
        report, _ = run(ruled, at_cost_of_delay(file.policy, value))
    else:
        report, _ = run(scenario, policy(task.policy, task.knob, scenario.jobs))
    cost = report.cloud_cost + report.deferred_gpu_hours * PER_GPU_HOUR / MICRO
    return PolicyPoint(report, round(cost, 2), round(time.perf_counter() - began, 3))


def can_bound() -> bool:
    """True if numpy is installed, which only the lower bound needs."""
    return importlib.util.find_spec("numpy") is not None


def _bound(scenario: Scenario, began: float) -> Bound:
    from penstock.sim.analysis.bound import frontier

    jobs = [job for job in scenario.jobs for _ in range(job.spec.count)]
    arrive, run_ms, gpus = zip(*((job.submit_at, job.run_ms, job.spec.gpus) for job in jobs), strict=True)
    corners = frontier(arrive, run_ms, gpus, owned_gpus(scenario))
    price = least_price(scenario) / MICRO
    staircase = tuple((corner.mean_delay_h, round(corner.cloud_gpu_hours * price, 2)) for corner in corners)
    return Bound(price, staircase, round(time.perf_counter() - began, 3))


def owned_gpus(scenario: Scenario) -> int:
    standing = [offer for site in scenario.sites for offer in site.offers if offer.term in STANDING]
    return sum(shape.gpus * (shape.count or 0) for offer in standing for shape in offer.shapes)


def least_price(scenario: Scenario) -> float:
    """The lowest price of a cloud GPU-hour: the bound holds at that price. Deferred work is never cheaper."""
    rented = [offer for site in scenario.sites for offer in site.offers if offer.term not in STANDING]
    prices = [shape.price_per_hour / shape.gpus for offer in rented for shape in offer.shapes]
    return min([*prices, PER_GPU_HOUR])


# ---- for programs ---------------------------------------------------------------------------------------------------


def as_record(compared: Compared) -> dict[str, Any]:
    """All measurements, flat enough for a data frame."""
    case, bound = compared.case, compared.bound
    return {
        "trace": case.name,
        "jobs": len(case.scenario.jobs),
        "nodes": case.nodes,
        "owned_gpus": owned_gpus(case.scenario),
        "costs": case.costs,
        "knowledge": case.knowledge,
        "seed": case.scenario.seed,
        "deferred_per_gpu_hour": PER_GPU_HOUR / MICRO,
        "bound": msgspec.to_builtins(bound) | {"covers": covers(case)} if bound else None,
        "points": [_point_record(compared, point) for point in compared.points],
    }


def _point_record(compared: Compared, point: PolicyPoint) -> dict[str, Any]:
    bound, closed, saves = compared.bound, compared.saving_closed(point), compared.hour_saves(point)
    report: dict[str, Any] = msgspec.to_builtins(point.report)
    return report | {
        "cost": point.cost,
        "bound_cost": round(bound.at(point.report.mean_delay_h), 2) if bound else None,
        "saving_closed": None if closed is None else round(closed, 4),
        "hour_saves": None if saves is None else round(saves, 2),
        "seconds": point.seconds,
    }


# ---- for people -----------------------------------------------------------------------------------------------------

COLUMNS: Final = (
    Column("policy", "Policy", numeric=False),
    Column("knob", "Knob"),
    Column("cost", "Cost"),
    Column("cloud_cost", "Cloud cost", minor=True),
    Column("delay", "Mean delay"),
    Column("within", "99 % within"),
    Column("longest", "Longest", minor=True),
    Column("cloud_jobs", "Cloud jobs", minor=True),
    Column("closed", "Saving closed"),
    Column("hour", "An hour saves"),
)


def row(compared: Compared, point: PolicyPoint) -> dict[str, str]:
    """One point as the cells of `COLUMNS`."""
    report, closed, saves = point.report, compared.saving_closed(point), compared.hour_saves(point)
    return {
        "policy": report.policy,
        "knob": "-" if report.policy == BURST_AT_ONCE else point.knob,
        "cost": cash(point.cost, report.currency),
        "cloud_cost": cash(report.cloud_cost, report.currency),
        "delay": _hours(report.mean_delay_h),
        "within": _hours(report.p99_delay_h),
        # The maximum is rounded to 0.01 h and must not look shorter than p99.
        "longest": _hours(max(report.max_delay_h, report.p99_delay_h)),
        "cloud_jobs": f"{report.cloud_jobs:,}",
        "closed": "-" if closed is None or point is compared.burst_at_once else f"{closed * 100:.0f} %",
        "hour": "-" if saves is None else f"{_symbol(report.currency)}{saves:,.2f}",
    }


def pictured(compared: Compared, foot: str = "") -> Comparison:
    """The page's content, every sentence from measured numbers."""
    bound, no_wait = compared.bound, compared.burst_at_once
    names = dict.fromkeys(p.report.policy for p in compared.points if p is not no_wait)
    return Comparison(
        title=_title(compared),
        lede=lede(compared),
        note=covers(compared.case) if bound else "",
        caption=_setting(compared.case),
        curves=[Curve(name, name, [point.mark for point in compared.of(name)]) for name in names],
        bound=bound.corners if bound else (),
        no_wait=Mark(no_wait.report.mean_delay_h, no_wait.cost),
        heading="Cost against delay",
        currency=_symbol(no_wait.report.currency),
        columns=COLUMNS,
        rows=[row(compared, point) for point in compared.points],
        formula=_formula(bool(bound)),
        foot=foot,
    )


def lede(compared: Compared) -> str:
    """What delay saves, and under which policy it saves most, from measured numbers only."""
    no_wait = compared.burst_at_once
    currency = no_wait.report.currency
    first = f"Bursting at once costs {cash(no_wait.cost, currency)}."
    point, rival, theirs = _subject(compared)
    if point is None:
        return first
    sentence = f"{point.report.policy} pays {cash(point.cost, currency)}"
    if rival:
        at = f"At the same mean delay of {_hours(point.report.mean_delay_h)}, "
        sentence = f"{at}{sentence}, {_against(point.cost, theirs)} {rival}"
    else:
        sentence = f"At a mean delay of {_hours(point.report.mean_delay_h)}, {sentence}"
    if compared.bound is None:
        return f"{first} {sentence}."
    least = compared.bound.at(point.report.mean_delay_h)
    return f"{first} {sentence}; no schedule could pay less than {cash(least, currency)}."


def least_at(points: Sequence[PolicyPoint], delay_h: float) -> float | None:
    """The least cost on a policy's curve up to this mean delay, interpolated over a log axis."""
    costs = [point.cost for point in points if point.report.mean_delay_h <= delay_h]
    marks = sorted((max(point.report.mean_delay_h, SECOND / HOUR), point.cost) for point in points)
    for (a, above), (b, below) in pairwise(marks):
        if a <= delay_h < b:
            costs.append(above + (below - above) * log(delay_h / a) / log(b / a))
    return min(costs, default=None)


def covers(case: Case) -> str:
    """What the bound covers, as text."""
    price = cash(least_price(case.scenario) / MICRO, case.scenario.currency)
    return (
        "Hatched: no schedule of these jobs at their own widths, even with all run times known, moves free and owned "
        f"GPUs in one pool, costs less at {price} a GPU-hour."
    )


def cash(amount: float, currency: str) -> str:
    """Four significant digits: $212,700, $20,930, $1,284, $0.88."""
    symbol = _symbol(currency)
    if abs(amount) < 100:
        return f"{symbol}{amount:,.2f}" if amount != round(amount) else f"{symbol}{amount:,.0f}"
    size = 10 ** max(0, floor(log10(abs(amount))) - 3)
    return f"{symbol}{round(amount / size) * size:,}"


def _title(compared: Compared) -> str:
    point, _, _ = _subject(compared)
    name, most = compared.case.name, compared.burst_at_once.cost
    if most == 0:
        return f"{name}: nothing has to be rented"
    share = 0.0 if point is None else (most - point.cost) / most
    if point is None or share < NO_DIFFERENCE:
        return f"{name}: what waiting for owned GPUs saves"
    return f"{name}: a mean delay of {_hours(point.report.mean_delay_h)} saves {share * 100:.0f} % of the cost"


def _subject(compared: Compared) -> tuple[PolicyPoint | None, str, float]:
    """The policy that the lede is about, at which point, and a rival at the same delay with its cost."""
    names = [name for name in SUBJECTS if compared.of(name)]
    if not names:
        return None, "", 0.0
    points = compared.of(names[0])
    middle = points[len(points) // 2 :] + points[: len(points) // 2][::-1]
    for point in middle:  # the curve's middle, or the nearest point that a rival reaches
        rivals = {name: least_at(compared.of(name), point.report.mean_delay_h) for name in names[1:]}
        reached = {name: cost for name, cost in rivals.items() if cost is not None}
        if reached:
            # Ours is held against the best of the others; among those, the paper's against the plainest.
            rival = min(reached, key=reached.__getitem__) if names[0] == "penstock" else list(reached)[-1]
            return point, rival, reached[rival]
    return middle[0], "", 0.0


def _against(ours: float, theirs: float) -> str:
    if theirs <= 0 or abs(ours / theirs - 1) < NO_DIFFERENCE:
        return "about as much as"
    share = abs(ours / theirs - 1) * 100
    return f"{share:.0f} % {'less' if ours < theirs else 'more'} than"


def _setting(case: Case) -> str:
    jobs = case.scenario.jobs
    days = (jobs[-1].submit_at - jobs[0].submit_at) / HOUR / 24
    span = f"over {days:.0f} days" if days >= 2 else f"over {_hours(days * 24)}"
    knows = {"e0": "known beforehand", "e1": "estimated, with errors", "e2": "learned from history only"}[
        case.knowledge
    ]
    bills = {
        "l0": "GPU-hours without overhead",
        "l1": "whole instances, which take five minutes to start",
        "l2": "whole instances, on demand and spot, with data to copy and results to bring home",
    }[case.costs]
    return (
        f"{len(jobs):,} jobs {span} on {case.nodes} owned nodes ({owned_gpus(case.scenario)} GPUs). "
        f"Run times: {knows}. Cloud: {bills}. Each mark is one setting of a policy's knob."
    )


def _formula(bounded: bool) -> str:
    price = cash(PER_GPU_HOUR / MICRO, "USD")
    closed = " Saving closed = (nowait's cost − cost) / (nowait's cost − the least possible at that mean delay)."
    hour = " An hour saves = what each further hour of one job's delay did, from its next point with less of it."
    return (
        f"Cost = what the cloud bills + {price} for each GPU-hour of owned work pushed past the last submission. "
        "Delay = completion − submission − pure run time." + closed * bounded + hour
    )


def _hours(hours: float) -> str:
    return duration(round(hours * HOUR))


def _symbol(currency: str) -> str:
    return SYMBOLS.get(currency, f"{currency} ")
