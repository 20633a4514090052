"""A scenario: jobs, sites and a world, ready to run. `simulate`, `compare`, the demo and the benchmarks share it.

Without a sites file: one owned site with nodes of 8 GPUs, and one unlimited on-demand offer at the benchmark's cost
levels. l0: GPU-hours at $2.50, no overhead. l1 adds instances of 1, 4 and 8 GPUs, a billed start of five minutes, and
restarts of five minutes. l2 adds spot zones at 0.35 of the price, data sets that must be copied, and results that come
home.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from penstock.core.engine import Engine, Step
from penstock.core.model.types import DataRule, DataSet, EgressTier, NodeShape, Offer, Policy, Site
from penstock.core.units import GB, MICRO, MINUTE, Instant, Money, money
from penstock.core.values import value
from penstock.policy.rules import PolicyRules
from penstock.sim.engine.chance import normal, uniform
from penstock.sim.engine.report import Report, Tally
from penstock.sim.engine.simulator import Knowledge, known, opening, simulate, truths
from penstock.sim.engine.spot import ZONES, made_up_zone
from penstock.sim.engine.world import Fault, Truth, World, Zone
from penstock.sim.traces.trace import TraceJob

Costs: TypeAlias = Literal["l0", "l1", "l2"]
GPUS_PER_NODE: Final = 8
PER_GPU_HOUR: Final = money("2.50")
SPOT_PERMILLE: Final = 350
CHECKPOINT_MS: Final = 15 * MINUTE  #: assumed if a trace does not say
RESTART_MS: Final = 5 * MINUTE
DATA_SETS_PER_GROUP: Final = 20
OUTPUT_BYTES_PER_GPU: Final = 2 * GB
EGRESS_PER_GB: Final = money("0.09")
COMPANY: Final = "company"  #: the class of the benchmark's data sets, which may go anywhere


@value
class Scenario:
    jobs: tuple[TraceJob, ...]
    sites: tuple[Site, ...]
    zones: Mapping[str, Zone]
    data: tuple[DataSet, ...] = ()
    data_rules: tuple[DataRule, ...] = ()
    caps: tuple[tuple[str, Money | None, Money | None], ...] = ()  # scope, per month, per hour
    faults: tuple[Fault, ...] = ()
    currency: str = "USD"
    seed: int = 0


def yardstick(
    jobs: Sequence[TraceJob],
    nodes: int,
    *,
    costs: Costs = "l0",
    knowledge: Knowledge = "e0",
    seed: int = 0,
    zones: Mapping[str, Zone] | None = None,
) -> Scenario:
    """The benchmark's setting."""
    prepared = prepare(known(jobs, knowledge, seed), costs)
    if costs == "l2":
        spot_zones = zones if zones is not None else made_up_zones(jobs, seed)
        with_data, data = give_data(prepared, seed)
        sites = (owned_site(nodes), on_demand_site(costs), *(spot_site(name) for name in spot_zones))
        by_offer = {f"{name}/spot": zone for name, zone in spot_zones.items()}
        rules = (DataRule(COMPANY, sites=("*",)),)
        return Scenario(tuple(with_data), sites, by_offer, data, rules, seed=seed)
    return Scenario(tuple(prepared), (owned_site(nodes), on_demand_site(costs)), {}, seed=seed)


def prepare(jobs: Iterable[TraceJob], costs: Costs) -> list[TraceJob]:
    """Apply a cost level to every job: restart time, and the size of results."""
    restart = 0 if costs == "l0" else RESTART_MS
    out = OUTPUT_BYTES_PER_GPU if costs == "l2" else 0
    return [
        replace(job, spec=replace(job.spec, restart_ms=restart, output_bytes=out * job.spec.gpus)) if restart else job
        for job in jobs
    ]


def checkpointed(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """Recorded traces do not say which jobs write checkpoints: assume all do."""
    return [replace(job, spec=replace(job.spec, checkpoint_every_ms=CHECKPOINT_MS)) for job in jobs]


def owned_site(nodes: int) -> Site:
    shape = NodeShape(GPUS_PER_NODE, nodes)
    return Site("lab", (Offer("lab/owned", "lab", "owned", (shape,)),), front_door=True)


def on_demand_site(costs: Costs) -> Site:
    if costs == "l0":
        shapes: tuple[NodeShape, ...] = (NodeShape(1, list_per_hour=PER_GPU_HOUR),)
        offer = Offer("cloud/on-demand", "cloud", "on_demand", shapes, sold_by="attempt")
        return Site("cloud", (offer,))
    shapes = tuple(NodeShape(gpus, list_per_hour=PER_GPU_HOUR * gpus) for gpus in (1, 4, 8))
    offer = Offer("cloud/on-demand", "cloud", "on_demand", shapes, start_ms=RESTART_MS)
    return Site("cloud", (offer,), egress=_egress(costs))


def spot_site(name: str) -> Site:
    shapes = tuple(
        NodeShape(gpus, list_per_hour=PER_GPU_HOUR * gpus * SPOT_PERMILLE // 1000, most_per_hour=PER_GPU_HOUR * gpus)
        for gpus in (1, 4, 8)
    )
    return Site(name, (Offer(f"{name}/spot", name, "spot", shapes, start_ms=RESTART_MS),), egress=_egress("l2"))


def rehearsal_sites() -> tuple[Site, ...]:
    """For a rehearsal without a sites file: two owned nodes, on-demand ones, and spot ones that are lost at times."""
    spot = spot_site("spot")
    risky = replace(spot, offers=tuple(replace(offer, loss_ppm_per_hour=MICRO // 6) for offer in spot.offers))
    return owned_site(2), on_demand_site("l1"), risky


def _egress(costs: Costs) -> tuple[EgressTier, ...]:
    return (EgressTier(None, EGRESS_PER_GB),) if costs == "l2" else ()


def give_data(jobs: Iterable[TraceJob], seed: int) -> tuple[list[TraceJob], tuple[DataSet, ...]]:
    """Each job reads one of its group's data sets, which are at home; sizes are keyed by data set."""
    sets: dict[str, DataSet] = {}
    with_data = []
    for job in jobs:
        name = f"{job.spec.team}-{int(uniform(seed, 'set', job.id) * DATA_SETS_PER_GROUP)}"
        if name not in sets:
            size = 200 * GB * math.exp(1.5 * normal(seed, "size", name))
            sets[name] = DataSet(name, max(1, int(size)), "lab", COMPANY)
        with_data.append(replace(job, spec=replace(job.spec, data=(name,))))
    return with_data, tuple(sets.values())


def made_up_zones(jobs: Sequence[TraceJob], seed: int) -> dict[str, Zone]:
    until = 2 * (jobs[-1].submit_at + max(job.run_ms for job in jobs))
    return {fact.name: made_up_zone(fact, until, seed) for fact in ZONES}


def run(scenario: Scenario, policy: Policy, see: Callable[[Step, Engine], None] | None = None) -> tuple[Report, Engine]:
    """Simulate and report. `see` also gets each step: for a journal, a progress bar, a test."""
    jobs = scenario.jobs
    true = truths(jobs)
    tally = Tally(true, jobs[0].submit_at, jobs[-1].submit_at)
    began = time.process_time()
    engine = play(scenario, policy, tally.see if see is None else _both(tally.see, see), true)
    return tally.report(engine, time.process_time() - began), engine


def play(
    scenario: Scenario,
    policy: Policy,
    see: Callable[[Step, Engine], None],
    true: Mapping[str, Truth] | None = None,
) -> Engine:
    """Simulate. `see` gets each step."""
    jobs = scenario.jobs
    policy = replace(policy, currency=scenario.currency, data_rules=scenario.data_rules + policy.data_rules)
    starts_at = jobs[0].submit_at
    world = World(
        scenario.sites,
        truths(jobs) if true is None else true,
        seed=scenario.seed,
        zones=scenario.zones,
        faults=[_left_of(fault, starts_at) for fault in scenario.faults if fault.at + fault.lasts_ms > starts_at],
        data={item.id: item for item in scenario.data},
    )
    first = opening(scenario.sites, policy, starts_at, scenario.caps, scenario.data)
    return simulate(jobs, world, first, see, Engine(PolicyRules()))


def _left_of(fault: Fault, starts_at: Instant) -> Fault:
    """The time begins with the first job: a fault from before has only its rest."""
    at = max(fault.at, starts_at)
    return Fault(at, fault.what, fault.at + fault.lasts_ms - at)


def _both(first: Callable[[Step, Engine], None], two: Callable[[Step, Engine], None]) -> Callable[[Step, Engine], None]:
    def see(step: Step, engine: Engine) -> None:
        first(step, engine)
        two(step, engine)

    return see
