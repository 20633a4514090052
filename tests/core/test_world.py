"""The promises as the simulator's world sees them: its runs, its nodes and its own meter."""

from math import ceil

from hypothesis import given, settings

from penstock.core.engine import Engine, Step
from penstock.core.fold.invariants import check
from penstock.core.model.types import DataSet
from penstock.core.units import GB, HOUR
from penstock.policy.rules import PolicyRules
from penstock.sim.engine.simulator import opening, simulate, truths
from penstock.sim.engine.world import Fault, World
from penstock.sim.traces.trace import TraceJob
from tests.core.histories import History, histories

DATA = (DataSet("open", 20 * GB, "lab", "open"), DataSet("closed", GB, "lab", ""))
MOST_STEPS = 400


class Enough(Exception):
    """The history goes on for longer than it teaches anything."""


class Watcher:
    def __init__(self, world: World) -> None:
        self.world, self.steps = world, 0

    def see(self, step: Step, engine: Engine) -> None:
        self.steps += 1
        check(engine.state)
        self.nothing_runs_twice()
        self.nothing_is_overfull()
        self.the_meter_is_covered(step.at, engine)
        if self.steps >= MOST_STEPS:
            raise Enough

    def nothing_runs_twice(self) -> None:
        jobs = [run.action.job for run in self.world.runs.values()]
        assert len(jobs) == len(set(jobs))

    def nothing_is_overfull(self) -> None:
        used: dict[tuple[str, int], int] = {}
        for run in self.world.runs.values():
            for node, gpus in run.action.slots:
                used[run.offer.id, node] = used.get((run.offer.id, node), 0) + gpus
        for (offer, _), gpus in used.items():
            assert gpus <= self.world.offers[offer].shapes[-1].gpus

    def the_meter_is_covered(self, now: int, engine: Engine) -> None:
        """What runs has a hold, and what its meter shows so far is charged or held."""
        leases = engine.state.ledger.leases
        for thing, (since, until) in self.world.meter.items():
            if until is None:
                lease = leases[thing]
                shown = ceil(lease.hold.terms.price_per_hour * (now - since) / HOUR)
                assert shown <= lease.held + lease.charged
            else:
                assert thing not in leases or until == now


@settings(max_examples=120)
@given(histories())
def test_the_simulated_world_sees_nothing_twice_nothing_overfull_and_nothing_unpaid(history: History) -> None:
    jobs = [TraceJob(job.id, job.at, job.run_ms, job.spec) for job in history.jobs]
    faults = [Fault(at, about[0], about[1]) for at, kind, about in history.commands if kind == "site"]
    world = World(history.sites, truths(jobs), seed=history.seed, faults=faults, data={item.id: item for item in DATA})
    watcher = Watcher(world)
    engine = Engine(PolicyRules())
    first = opening(history.sites, history.policy, history.zero, history.caps, DATA)
    try:
        simulate(jobs, world, first, watcher.see, engine)
    except Enough:
        return
    members = sum(job.spec.count for job in jobs)
    assert sum(engine.state.ended.values()) + len(engine.state.jobs) == members
    if not engine.state.jobs and not engine.state.nodes:
        assert not engine.state.ledger.leases
        assert not world.runs
