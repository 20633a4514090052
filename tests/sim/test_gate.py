"""The gate: under every baseline policy each job starts at the same millisecond in the same place as in the yardstick.

On generated load the yardstick is stated here once more, naively, from its description; where the recorded traces are
at hand, the yardstick's own program is asked.
"""

import importlib.util
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.engine import Engine, Step, replay
from penstock.core.fold.invariants import check
from penstock.core.model.events import StartPromised
from penstock.core.model.types import JobSpec
from penstock.journal.open import read
from penstock.journal.redecide import redecide
from penstock.journal.sqlite import BulkJournal
from penstock.policy.presets import BASELINES, policy
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.generate import generate, nodes_for
from penstock.sim.traces.trace import TraceJob
from penstock.sim.traces.trace import read as read_trace
from tests import compiling
from tests.compiling import python
from tests.conftest import shared_data

Starts: TypeAlias = list[tuple[int, bool]]  #: of each job: when, counted from the first submission; rented or not
GPUS = 8
#: Trace and nodes: the middle one of the three loads that placement is judged at.
SETTINGS = (("philly", 35), ("helios_venus", 60), ("pai", 78))
SLICE = 3_000
#: In a process of its own, whose engine may be the compiled one.
WHOLE = """
import sys
from tests.sim import test_gate
what, trace, nodes, last = sys.argv[1:]
getattr(test_gate, what)(trace, int(nodes), last)
"""


# --- ours ------------------------------------------------------------------------------------------------------------


def ours(
    jobs: Sequence[TraceJob], nodes: int, name: str, knob: str = "0.25", journal: BulkJournal | None = None
) -> Starts:
    starts: dict[str, tuple[int, bool]] = {}
    zero = jobs[0].submit_at

    def see(step: Step, _: Engine) -> None:
        if journal is not None:
            journal.append(step)
        for event in step.outputs:
            if isinstance(event, StartPromised):
                assert event.job not in starts, "no baseline moves anything"
                starts[event.job] = (event.at - zero, event.hold is not None)

    run(yardstick(jobs, nodes), policy(name, knob, jobs), see)
    return [starts[job.id] for job in jobs]


# --- the yardstick, in the fewest words ------------------------------------------------------------------------------


def naive(jobs: Sequence[TraceJob], nodes: int, name: str, knob: str = "0.25") -> Starts:
    """At one instant: ends, timeouts, arrivals, one pass over the queue in order, the queue's cap. Ties go by row."""
    zero = jobs[0].submit_at
    arrive = [job.submit_at - zero for job in jobs]
    patience = windows(jobs, name, Fraction(knob))
    free = [GPUS] * nodes
    starts: dict[int, tuple[int, bool]] = {}
    running: list[tuple[int, list[tuple[int, int]]]] = []
    coming, waiting = list(range(len(jobs))), list[int]()
    while coming or waiting:
        now = min(
            [end for end, _ in running] + [arrive[j] for j in coming[:1]] + [arrive[j] + patience[j] for j in waiting]
        )
        for _, slots in [entry for entry in running if entry[0] <= now]:
            for node, gpus in slots:
                free[node] += gpus
        running = [entry for entry in running if entry[0] > now]
        for j in [j for j in waiting if arrive[j] + patience[j] <= now]:
            starts[j] = (now, True)
            waiting.remove(j)
        while coming and arrive[coming[0]] <= now:
            waiting.append(coming.pop(0))
        for j in waiting.copy():
            place = first_fit(free, jobs[j].spec.gpus)
            if place is None and name in ("nowait", "constant"):
                break  # head of line
            if place is not None:
                starts[j] = (now, False)
                waiting.remove(j)
                running.append((now + jobs[j].run_ms, place))
                for node, gpus in place:
                    free[node] -= gpus
        while name == "compute-q30" and len(waiting) > 30:
            starts[waiting.pop()] = (now, True)
    return [starts[j] for j in range(len(jobs))]


def windows(jobs: Sequence[TraceJob], name: str, budget: Fraction) -> list[int]:
    """The mean patience is the budget's share of the mean run time, dealt out by each job's shape, rounded down."""
    sizes = [job.spec.gpus * job.run_ms for job in jobs]
    shapes = {
        "nowait": [0] * len(jobs),
        "constant": [1] * len(jobs),
        "power": [isqrt(size**3) for size in sizes],
    }.get(name, sizes)
    total = budget * sum(job.run_ms for job in jobs)
    return [int(total * shape / sum(shapes)) if sum(shapes) else 0 for shape in shapes]


def first_fit(free: list[int], width: int) -> list[tuple[int, int]] | None:
    """The lowest node with room; a wider job whole empty nodes, lowest first, and the rest on the lowest other."""
    if width <= GPUS:
        return next(([(node, width)] for node, gpus in enumerate(free) if gpus >= width), None)
    whole, rest = divmod(width, GPUS)
    taken = [node for node, gpus in enumerate(free) if gpus == GPUS][:whole]
    if len(taken) < whole:
        return None
    place = [(node, GPUS) for node in taken]
    if rest:
        other = next((node for node, gpus in enumerate(free) if gpus >= rest and node not in taken), None)
        return None if other is None else [*place, (other, rest)]
    return place


# --- generated load --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("load", [0.8, 1.6])
def test_generated_load_starts_as_the_yardstick_says(name: str, load: float) -> None:
    trace = generate(500, seed=3, days=4)
    nodes = nodes_for(trace, load)
    assert ours(trace.jobs, nodes, name) == naive(trace.jobs, nodes, name)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[TraceJob], int]:
    """Few instants and narrow clusters, so that much falls together."""
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 12), st.integers(1, 15), st.sampled_from([1, 2, 3, 5, 8, 9, 12, 16, 24])),
            min_size=1,
            max_size=60,
        )
    )
    rows.sort(key=lambda row: row[0])
    jobs = [TraceJob(f"j{k:02}", at, run_ms, JobSpec(gpus)) for k, (at, run_ms, gpus) in enumerate(rows)]
    return jobs, draw(st.integers(1, 4))


@pytest.mark.parametrize("name", BASELINES)
def test_crowds_start_as_the_yardstick_says(name: str) -> None:
    @settings(max_examples=60)
    @given(crowds(), st.sampled_from(["0", "0.25", "1.5", "7"]))
    def compare(crowd: tuple[list[TraceJob], int], knob: str) -> None:
        jobs, nodes = crowd
        assert ours(jobs, nodes, name, knob) == naive(jobs, nodes, name, knob)

    compare()


@pytest.mark.parametrize("name", BASELINES)
def test_with_a_journal_nothing_changes_and_it_replays_and_is_decided_the_same(name: str, tmp_path: Path) -> None:
    jobs = generate(300, seed=5, days=2).jobs
    assert through_journal(jobs, 2, name, tmp_path / "j.db") == ours(jobs, 2, name)


def through_journal(jobs: Sequence[TraceJob], nodes: int, name: str, path: Path) -> Starts:
    with BulkJournal(str(path), group=5_000) as journal:
        starts = ours(jobs, nodes, name, journal=journal)
    rows = list(read(str(path)))
    check(replay((row.at, row.inputs, row.outputs) for row in rows).state)
    verdict = redecide(rows, most=1)
    assert verdict.first == ()
    assert verdict.steps == len(rows)
    return starts


# --- recorded traces -------------------------------------------------------------------------------------------------


def reference() -> ModuleType:
    path = shared_data() / "bench" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def theirs(rows: tuple[list[int], list[int], list[int]], nodes: int, name: str) -> Starts:
    program: Any = reference()
    arrive, run_ms, gpus = rows
    patience = program.windows(name, 0.25, run_ms, gpus)
    start, cloud = program.simulate(
        arrive, run_ms, gpus, patience, nodes,
        out_of_order=name not in ("nowait", "constant"),
        queue_cap=30 if name == "compute-q30" else None,
    )  # fmt: skip
    return [(at, bool(out)) for at, out in zip(start, cloud, strict=True)]


def recorded(trace: str) -> tuple[list[TraceJob], tuple[list[int], list[int], list[int]]]:
    path = str(shared_data() / "data" / "traces" / f"{trace}.csv.gz")
    program: Any = reference()
    jobs, rows = list(read_trace(path).jobs), program.load(path)
    zero = jobs[0].submit_at
    assert (
        [job.submit_at - zero for job in jobs],
        [job.run_ms for job in jobs],
        [job.spec.gpus for job in jobs],
    ) == rows
    return jobs, rows


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize(("trace", "nodes"), SETTINGS)
def test_a_slice_of_a_recorded_trace_starts_as_the_yardstick_says(
    trace: str, nodes: int, name: str, tmp_path: Path
) -> None:
    jobs, (arrive, run_ms, gpus) = recorded(trace)
    first = len(jobs) // 2
    part = slice(first, first + SLICE)
    rows = ([at - arrive[first] for at in arrive[part]], run_ms[part], gpus[part])
    fewer = max(2, nodes // 4)  # so that even a slice fills them
    expected = theirs(rows, fewer, name)
    assert any(rented for _, rented in expected)
    assert ours(jobs[part], fewer, name) == expected
    if name == "compute-q30":
        assert through_journal(jobs[part], fewer, name, tmp_path / "j.db") == expected


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Whole traces are run as `make wheel` ships it, where that can be built: in less than half of the time."""
    return compiling.package(tmp_path_factory.mktemp("engine"))


@pytest.mark.slow
@pytest.mark.turns(5)
@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize(("trace", "nodes"), SETTINGS)
def test_a_whole_recorded_trace_starts_as_the_yardstick_says(
    trace: str, nodes: int, name: str, engine: Path | None
) -> None:
    shared_data()
    python(engine, "-c", WHOLE, "check_whole", trace, str(nodes), name)


def check_whole(trace: str, nodes: int, name: str) -> None:
    jobs, rows = recorded(trace)
    assert ours(jobs, nodes, name) == theirs(rows, nodes, name)


@pytest.mark.slow
@pytest.mark.turns(3)
@pytest.mark.parametrize(("trace", "nodes"), SETTINGS)
def test_a_whole_recorded_trace_replays_from_its_journal(
    trace: str, nodes: int, tmp_path: Path, engine: Path | None
) -> None:
    shared_data()
    python(engine, "-c", WHOLE, "check_journal", trace, str(nodes), str(tmp_path / "j.db"))


def check_journal(trace: str, nodes: int, path: str) -> None:
    jobs, rows = recorded(trace)
    assert through_journal(jobs, nodes, "compute", Path(path)) == theirs(rows, nodes, "compute")
