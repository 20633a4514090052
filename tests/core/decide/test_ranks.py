"""Who may stop whom is one strict order, whatever a policy says: no circle of jobs stops itself for ever."""

from graphlib import TopologicalSorter

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.decide.ranks import outranks, rank
from penstock.core.fold.governed import govern
from penstock.core.fold.queue import shape_of
from penstock.core.fold.state import Job, State
from penstock.core.model.governance import ClassRule, Governance
from penstock.core.model.types import JobSpec, Policy

NAMES = ("a", "b", "c", "d", "unknown")


@st.composite
def crowds(draw: st.DrawFn) -> tuple[State, list[Job]]:
    """Jobs of classes that preempt each other in any way, also in circles, under a policy that preempts or not."""
    some = st.lists(st.sampled_from(NAMES[:4]), unique=True, max_size=3).map(tuple)
    state = State()
    governance = Governance(classes=tuple(ClassRule(name, preempts=draw(some)) for name in NAMES[:4]))
    state.policy = Policy("random", preempt=draw(st.booleans()), governance=governance)
    govern(state)
    kinds = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.booleans()), min_size=2, max_size=12))
    specs = [JobSpec(1, job_class=name, priority=priority, interruptible=stops) for name, priority, stops in kinds]
    return state, [Job(f"j{k}", k, spec, 0, shape_of(state, spec)) for k, spec in enumerate(specs)]


@given(crowds())
def test_no_circle_of_jobs_stops_itself(crowd: tuple[State, list[Job]]) -> None:
    """A job stopped one of a class that may stop its own, by a higher priority; the two took turns for ever."""
    state, jobs = crowd
    stops = {job.id: [other.id for other in jobs if outranks(state, job, other)] for job in jobs}
    assert sorted(TopologicalSorter(stops).static_order()) == sorted(stops)


@given(crowds())
def test_whoever_is_stopped_has_the_lower_rank(crowd: tuple[State, list[Job]]) -> None:
    state, jobs = crowd
    for job in jobs:
        for other in jobs:
            assert not outranks(state, job, other) or rank(state, job) > rank(state, other)
