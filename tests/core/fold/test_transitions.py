"""A promise about a job that is not in the phase it needs is refused where it would become state: by the live engine
and by every replay, with the job's story.
"""

from dataclasses import replace
from typing import Any

import pytest

from penstock.core.errors import BadInput
from penstock.core.fold.apply import apply, fold_step
from penstock.core.model import events as e
from penstock.core.model.lifecycle import Broken
from penstock.core.model.reasons import OwnedFree
from penstock.core.units import HOUR, NEVER
from penstock.journal.cap_check import check_all, last_state
from tests.stories.kit import Penstock, cap, given, offer, policy, site, started, submitted

FREE = OwnedFree(0, 8)


def running() -> Penstock:
    """`a` runs at lab, on one of two nodes; `b` waits behind it for more than there is."""
    penstock = given(site("lab", nodes=2), policy("99h"))
    penstock.hears(submitted("a"), at="09:00")
    penstock.hears(started("a.1"), at="09:01")
    penstock.hears(submitted("b", gpus=16), at="09:02")
    return penstock


def start_of(penstock: Penstock, attempt: str) -> e.StartPromised:
    promised = [event for step in penstock.steps for event in step.outputs if isinstance(event, e.StartPromised)]
    return next(event for event in promised if event.attempt == attempt)


def test_a_second_attempt_beside_the_first_is_refused_with_the_jobs_story() -> None:
    """A decision once held two starts of one job. Both were applied, and both ran."""
    penstock = running()
    second = replace(start_of(penstock, "a.1"), at=penstock.engine.state.at, attempt="a.2", slots=((1, 8),))
    with pytest.raises(Broken) as refused:
        apply(penstock.engine.state, second)
    assert str(refused.value) == (
        "attempt a.2 would run beside another of its job: job a is placed, a.1 is running at lab, after 2 attempts"
    )


def test_a_replay_names_the_step_in_which_a_job_starts_twice() -> None:
    """`replay --check` counted attempts after every five hundredth step only, and found nothing."""
    penstock = running()
    twice = penstock.steps[1]
    (start,) = [event for event in twice.outputs if isinstance(event, e.StartPromised)]
    second = replace(start, attempt="a.2", slots=((1, 8),))
    steps: list[Any] = [penstock.steps[0], replace(twice, outputs=(*twice.outputs, second)), *penstock.steps[2:]]
    for fold in (last_state, check_all):
        with pytest.raises(BadInput, match=r"^j: step 2 breaks a promise: attempt a\.2 would run beside another"):
            fold(steps, "j")


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (e.WaitPromised(9 * HOUR, "a", NEVER, FREE), "a wait of job a, which is not queued"),
        (e.JobRefused(9 * HOUR, "a", FREE), "a refusal of job a, which is not queued"),
        (e.JobFailed(9 * HOUR, "a", FREE), "the end of job a, which is not queued"),
        (e.ReservePromised(9 * HOUR, "a", "lab", (1,), FREE), "a reservation of job a, which is not queued"),
    ],
    ids=["wait", "refusal", "end", "reservation"],
)
def test_what_is_promised_to_a_queued_job_is_refused_for_one_that_runs(promise: e.Promise, words: str) -> None:
    with pytest.raises(Broken, match=words):
        apply(running().engine.state, promise)


def test_more_gpus_of_a_node_than_are_free_are_refused() -> None:
    penstock = running()
    start = replace(start_of(penstock, "a.1"), job="b", attempt="b.1", width=16, slots=((0, 8), (1, 8)))
    with pytest.raises(Broken, match="node 0 has 0 GPUs free, and 8 of it were promised"):
        apply(penstock.engine.state, start)


def test_a_hold_beyond_a_cap_is_refused() -> None:
    """As if the engine had forgotten to ask: under a cap of $1, $5 an hour are held for `a`."""
    penstock = given(offer("cloud", price="5"), policy("0s"))
    penstock.hears(submitted("a"), at="09:00")
    poor = given(offer("cloud", price="5"), policy("0s"), cap("org", "1"))
    step = penstock.steps[-1]
    with pytest.raises(Broken, match=r"^hold a\.1/n0: org has [\d.,]+ held and spent, and may have 1\.00$"):
        fold_step(poor.engine.state, step.at, step.inputs, step.outputs)
