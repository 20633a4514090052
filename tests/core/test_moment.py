"""What a policy file says of the moment, as properties of random histories: each limit holds, and no cap is overrun."""

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from penstock.core.engine import Step
from penstock.core.model.events import (
    JobFailed,
    LeaseRenewed,
    LeaseShortened,
    Settled,
    StartPromised,
    StopPromised,
    WaitPromised,
)
from penstock.core.model.governance import Governance
from penstock.core.model.types import JobSpec
from penstock.core.units import MICRO, Money
from penstock.journal.redecide import redecide
from penstock.policy.rules import PolicyRules
from tests.core.histories import History, governances_of_the_moment, governed, histories, limited_later, live

SEEN = (
    "NoTriggerHolds",
    "BurstAllowed",
    "TooDear",
    "TeamAtLimit",
    "EgressSpent",
    "InQuietHours",
    "HeadroomKept",
    "RanTooLong",
)


def explore(number: int, examples: int) -> dict[str, int]:
    """How often each reason was given."""
    counts = dict.fromkeys(SEEN, 0)

    @seed(number)
    @settings(max_examples=examples, phases=[Phase.explicit, Phase.generate], database=None)
    @given(histories(), governances_of_the_moment())
    def every_history(history: History, governance: Governance) -> None:
        life = live(governed(history, governance))
        assert redecide(life.steps, 1, PolicyRules()).different == 0
        for step in life.steps:
            for event in step.outputs:
                if (
                    isinstance(event, (WaitPromised, StartPromised, StopPromised, JobFailed))
                    and event.because.kind in counts
                ):
                    counts[event.because.kind] += 1

    every_history()
    return counts


@pytest.mark.parametrize("part", range(3))
def test_every_limit_holds_in_every_history(part: int) -> None:
    explore(part, 60)


def test_every_reason_is_given_in_some_history() -> None:
    counts = dict.fromkeys(SEEN, 0)
    for number in range(77, 101):  # what one seed draws depends on the modules that are loaded, too
        counts = {kind: counts[kind] + more for kind, more in explore(number, 60).items()}
        if all(counts.values()):
            break
    assert all(counts.values()), counts


def limits_come_later(number: int, examples: int) -> int:
    """How many jobs had something rented when their team's limit for one job came, and cost no more than it allows."""
    bound = 0

    @seed(number)
    @settings(max_examples=examples, phases=[Phase.explicit, Phase.generate], database=None)
    @given(histories(), st.integers(5, 120), st.sampled_from((3 * MICRO, 40 * MICRO)))
    def every_history(history: History, minutes: int, per_job: Money) -> None:
        nonlocal bound
        life = live(limited_later(history, minutes, per_job))
        assert redecide(life.steps, 1, PolicyRules()).different == 0
        bound += costs_within(life.steps, {job: spec for job, (_, spec) in life.jobs.items()}, per_job)

    every_history()
    return bound


def costs_within(steps: list[Step], specs: dict[str, JobSpec], per_job: Money) -> int:
    """From the record alone: a job costs at most the limit, or what it had cost and was held for it when that came."""
    whose: dict[str, str] = {}
    charged, held = dict.fromkeys(specs, 0), dict[str, Money]()
    most: dict[str, Money] = {}
    running: list[str] = []
    for step in steps:
        if step.revision > 1 and not most:
            rest = {job: sum(held[hold] for hold, whom in whose.items() if whom == job) for job in specs}
            most = {job: max(per_job, charged[job] + rest[job]) for job, spec in specs.items() if spec.team == "red"}
            running = [job for job in most if rest[job]]
        for event in step.outputs:
            match event:
                case StartPromised():
                    for hold in (*(ask.hold for ask in event.nodes), *([event.hold] if event.hold else ())):
                        whose[hold.id], held[hold.id] = event.job, sum(part.amount for part in hold.parts)
                case LeaseRenewed() | Settled() | LeaseShortened():
                    charged[whose[event.hold]] += sum(part.amount for part in getattr(event, "charged", ()))
                    held[event.hold] = sum(part.amount for part in getattr(event, "parts", ()))
    for job, limit in most.items():
        assert charged[job] <= limit, f"{job} cost {charged[job]}, and {limit} is the most"
    return len(running)


def test_a_limit_for_one_job_binds_what_runs_already() -> None:
    bound = 0
    for number in range(90, 98):  # what one seed draws depends on the modules that are loaded, too
        bound += limits_come_later(number, 50)
        if bound > 15:
            break
    assert bound > 15, "otherwise this shows nothing"


@pytest.mark.slow
@pytest.mark.turns(4)
@pytest.mark.parametrize("part", range(8))
def test_every_limit_holds_in_a_thousand_more(part: int) -> None:
    explore(500 + part, 130)
    limits_come_later(600 + part, 40)
