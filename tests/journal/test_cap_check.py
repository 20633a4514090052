"""`replay --check` finds a journal whose steps break a promise, however whole its chain is."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from penstock.core.errors import BadInput
from penstock.core.model import events as e
from penstock.core.units import MICRO, money
from penstock.journal.cap_check import check_all
from tests.contract.journals import story
from tests.core.histories import History, Life, histories
from tests.stories.kit import cap, nothing, offer, policy, site, submitted
from tests.stories.kit import given as given_story


@settings(max_examples=60)
@given(histories())
def test_what_the_engine_decided_breaks_no_cap(history: History) -> None:
    life = Life(history)
    life.run()
    assert check_all(life.steps, "a life").digest() == life.engine.state.digest()


def bursts() -> list[Any]:
    cloud = offer("cloud", sizes=(8,), sold_by="attempt", limit_gpus=64)
    penstock = given_story(site("lab", nodes=1), cloud, policy("10m"), cap("org", "1000"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(nothing, at="09:10")
    return penstock.steps


def with_cap(steps: list[Any], amount: str) -> list[Any]:
    """The same steps, as if the cap had been this from the beginning."""
    lower = [
        replace(fact, per_period=money(amount)) if isinstance(fact, e.CapSet) else fact for fact in steps[0].inputs
    ]
    return [replace(steps[0], inputs=tuple(lower)), *steps[1:]]


def test_a_hold_beyond_its_cap_is_named_with_its_step() -> None:
    """Somebody rewrote the journal, with fresh hashes: $2,400 were held under a cap of $10."""
    steps = bursts()
    check_all(steps, "j")
    with pytest.raises(
        BadInput, match=r"j: step \d+ breaks a promise: hold b.1: org has [\d.,]+ held and spent, and may have 10\."
    ):
        check_all(with_cap(steps, "10"), "j")


def test_an_hourly_cap_is_checked_too() -> None:
    steps = bursts()
    lower = [replace(fact, per_hour=1 * MICRO) if isinstance(fact, e.CapSet) else fact for fact in steps[0].inputs]
    with pytest.raises(BadInput, match=r"org may spend .* an hour, and its cap is 1\.00"):
        check_all([replace(steps[0], inputs=tuple(lower)), *steps[1:]], "j")


def test_a_cap_that_is_lowered_below_what_is_committed_is_no_broken_promise() -> None:
    steps = bursts()
    last = steps[-1]
    lowered = e.CapSet(last.at, "org", money("1"), None)
    check_all([*steps, replace(last, number=last.number + 1, inputs=(lowered,), outputs=())], "j")


def test_an_hourly_cap_below_what_runs_is_no_broken_promise() -> None:
    """What ran before a scope had an hourly cap was not known: the honest step that first set one below it was called a
    journal that somebody had rewritten. What starts after it is still found.
    """
    steps = bursts()
    last = steps[-1]
    lowered = e.CapSet(last.at, "org", money("1000"), money("1"))
    first = replace(last, number=last.number + 1, inputs=(lowered,), outputs=())
    check_all([*steps, first], "j")
    before = [step for step in steps if any(isinstance(event, e.StartPromised) for event in step.outputs)][-1]
    early = [step for step in steps if step.number < before.number]
    with pytest.raises(BadInput, match=r"org may spend .* an hour, and its cap is 1\.00"):
        check_all([*early, replace(before, inputs=(replace(lowered, at=before.at), *before.inputs))], "j")


def test_a_story_with_its_caps_holds() -> None:
    check_all(story(), "j")


def test_steps_that_never_followed_each_other_are_a_sentence() -> None:
    steps = story()
    with pytest.raises(BadInput, match="j: step 3 does not follow from those before"):
        check_all([steps[0], *steps[2:]], "j")
