"""Deciding again what was decided: equal for our own record, and a difference is shown and put right."""

from dataclasses import replace
from typing import Any

from penstock.core.decide.rules import BuiltInRules, Candidate, Verdict
from penstock.core.model.events import WaitPromised
from penstock.journal.redecide import redecide
from tests.stories.kit import Penstock, ended, given, nothing, offer, policy, site, submitted


def lived() -> Penstock:
    penstock = given(site("lab"), offer("cloud", sizes=(1,), sold_by="attempt"), policy("10m"))
    penstock.hears(submitted("a"), submitted("b"), at="09:00")
    penstock.hears(nothing, at="09:10")
    penstock.hears(ended("a.1"), ended("b.1"), at="10:00")
    return penstock


def test_our_own_record_is_decided_the_same() -> None:
    verdict = redecide(lived().steps, most=5)
    assert (verdict.steps, verdict.different, verdict.first) == (4, 0, ())
    assert verdict.promises == sum(len(step.outputs) for step in lived().steps)


def test_a_difference_is_shown_and_what_follows_is_judged_from_the_record() -> None:
    steps: list[Any] = list(lived().steps)
    waits = next(event for event in steps[1].outputs if isinstance(event, WaitPromised))
    longer = replace(waits, until_at=waits.until_at + 1)
    steps[1] = replace(steps[1], outputs=tuple(longer if event is waits else event for event in steps[1].outputs))
    verdict = redecide(steps, most=5)
    # The record waits a millisecond longer, so it must not burst at 09:10, where the record has it.
    assert verdict.different == 2
    assert (verdict.first[0].recorded, verdict.first[0].now) == ((repr(longer),), (repr(waits),))


def test_other_rules_show_what_they_would_have_decided() -> None:
    class NoCloud(BuiltInRules):
        def verdict(self, asked: Candidate) -> Verdict:
            return Verdict(asked.offer.id == "lab", "none but ours", "rules.yaml:1")

    verdict = redecide(lived().steps, most=1, rules=NoCloud())
    assert verdict.different > 0
    assert len(verdict.first) == 1
    assert "rules.yaml:1" in "".join(verdict.first[0].now)
