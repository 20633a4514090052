"""A scenario whose faults are older than its first job."""

from dataclasses import replace

from penstock.core.engine import Step
from penstock.core.model import events as e
from penstock.core.model.types import JobSpec
from penstock.core.units import HOUR
from penstock.policy.presets import policy
from penstock.sim.engine.world import Fault
from penstock.sim.scenario import run, yardstick
from penstock.sim.traces.trace import TraceJob


def test_a_fault_from_before_the_first_job_has_only_its_rest_and_one_that_is_over_has_none() -> None:
    """The simulator said that time fell."""
    made = yardstick([TraceJob("a", 10 * HOUR, 5 * HOUR, JobSpec(8))], nodes=1)
    over, lasts, later = (Fault(at * HOUR, "owned/gpu/0", hours * HOUR) for at, hours in ((1, 2), (9, 3), (20, 1)))
    steps: list[Step] = []
    run(
        replace(made, faults=(over, lasts, later)),
        policy("nowait", None, made.jobs),
        lambda step, _: steps.append(step),
    )
    nodes = [fact for step in steps for fact in step.inputs if isinstance(fact, (e.NodeLost, e.NodeReady))]
    assert [(type(fact), fact.at // HOUR) for fact in nodes] == [(e.NodeLost, 10), (e.NodeReady, 12)]
