"""One small world with everything in it, for tests that compare whole journals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

from penstock.core.engine import Engine, Step
from penstock.core.model.governance import (
    BurstTrigger,
    ClassRule,
    Governance,
    Headroom,
    PriceLimit,
    QuietHours,
    TeamRule,
)
from penstock.core.model.types import JOB_CLASSES, Policy, WarmPool
from penstock.core.units import DAY, GB, HOUR, MINUTE, money
from penstock.journal import codec
from penstock.policy import hours
from penstock.policy.presets import policy
from penstock.sim.engine.world import Fault
from penstock.sim.scenario import GPUS_PER_NODE, Scenario, run, yardstick
from penstock.sim.traces.generate import generate


def scenario(jobs: int = 250, seed: int = 7) -> Scenario:
    """Generated load at cost level l2: spot losses, data, egress; caps that bind; nodes and a site that break."""
    load = generate(jobs, seed=seed, days=3, widest=16).jobs
    made = yardstick(load, 1, costs="l2", knowledge="e2", seed=seed)
    faults = (Fault(DAY, "lab/owned/1", 3 * 3_600_000), Fault(2 * DAY, "us-east-2a", 3_600_000))
    caps = (("org", money("450"), money("150")), (f"team:{load[0].spec.team}", money("120"), None))
    return replace(made, caps=caps, faults=faults)


def chosen(made: Scenario, name: str = "compute") -> Policy:
    return replace(policy(name, None, made.jobs), preempt=True, displace=True)


def narrow(made: Scenario) -> Scenario:
    """Only jobs that fit on one owned node: no limit on what is rented keeps them waiting for ever."""
    return replace(made, jobs=tuple(job for job in made.jobs if job.spec.gpus <= GPUS_PER_NODE))


def warmed(made: Scenario) -> Scenario:
    """The same with pools of warm nodes: by forecast on demand; by day, and always, in two spot zones. Jobs bring their
    data along: copies would take longer than a node's start, and the nearest data would decide where jobs go.
    """
    budget, day = ("org", "team:platform"), hours.window(8 * 60, 20 * 60, "Europe/Berlin")
    pools = (WarmPool(4, 8, budget, forecast=True), WarmPool(2, 8, budget, day), WarmPool(2, 8, budget))
    pooled = dict(zip([site.id for site in made.sites[1:]], pools, strict=False))
    sites = [
        replace(site, offers=tuple(replace(offer, warm=pooled.get(site.id)) for offer in site.offers))
        for site in made.sites
    ]
    jobs = tuple(replace(job, spec=replace(job.spec, data=(), output_bytes=0)) for job in made.jobs)
    return replace(made, sites=tuple(sites), jobs=jobs, caps=())


def governed(made: Scenario, chosen: Policy) -> Policy:
    """The same with a policy file that has all keys and triggers of the moment."""
    teams = dict.fromkeys(job.spec.team for job in made.jobs)
    night, day = hours.window(22 * 60, 5 * 60, "Europe/Berlin"), hours.window(8 * 60, 20 * 60, "Europe/Berlin")
    governance = Governance(
        classes=(
            ClassRule("training", longest_ms=5 * HOUR, source="p:1"),
            *(ClassRule(name) for name in JOB_CLASSES if name != "training"),
        ),
        teams=tuple(
            TeamRule(team, gpus_at_once=8, per_job=money("25"), egress_bytes_per_month=30 * GB, source="p:2")
            for team in teams
        ),
        burst_when=(
            BurstTrigger("queued_jobs", 6, source="p:3"),
            BurstTrigger("expected_wait", 3 * HOUR, source="p:4"),
            BurstTrigger("utilisation", 1000, 20 * MINUTE, source="p:5"),
            BurstTrigger("deadline_at_risk", 1, source="p:6"),
        ),
        never_above=PriceLimit(per_job=money("6"), source="p:7"),
        quiet_hours=(QuietHours(night.id, "p:8"),),
        headroom=(Headroom(day.id, "lab", 2, "inference", "p:9"),),
        idle_nodes_end_after_ms=10 * MINUTE,
        windows=(night, day),
    )
    return replace(chosen, governance=governance)


def steps_of(made: Scenario, chosen: Policy) -> tuple[list[Step], Engine]:
    steps: list[Step] = []
    see: Callable[[Step, Engine], None] = lambda step, _: steps.append(step)  # noqa: E731 - one word long
    _, engine = run(made, chosen, see)
    return steps, engine


def fingerprint(steps: Sequence[Step]) -> str:
    digest = sha256()
    for step in steps:
        digest.update(codec.encode(step.inputs) + codec.encode(step.outputs) + repr(step.actions).encode())
    return digest.hexdigest()
