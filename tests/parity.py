"""One small world with everything in it, for tests that compare whole journals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

from penstock.core.engine import Engine, Step
from penstock.core.model.types import Policy
from penstock.core.units import DAY, money
from penstock.journal import codec
from penstock.policy.presets import policy
from penstock.sim.engine.world import Fault
from penstock.sim.scenario import Scenario, run, yardstick
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
