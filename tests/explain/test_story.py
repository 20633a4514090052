"""Stories: every reason there is can be put into words, from its own numbers."""

from typing import Any

import pytest
from hypothesis import given, settings

from penstock.core.model import events as e
from penstock.core.model.reasons import REASONS
from penstock.core.model.types import JobSpec
from penstock.explain.story import StoryTeller, jobs_in
from tests.core.histories import History, Life, histories
from tests.core.samples import made


@pytest.mark.parametrize("kind", REASONS.values(), ids=list(REASONS))
def test_every_reason_is_a_sentence(kind: type) -> None:
    @settings(max_examples=10)
    @given(made(kind))
    def is_a_sentence(because: Any) -> None:
        sentence = StoryTeller("a").sentence(because, 0)
        assert sentence.endswith(".")
        assert sentence[0].isupper() or sentence[0].isdigit() or sentence[0] == "-"

    is_a_sentence()


def test_a_reason_names_itself() -> None:
    for name, kind in REASONS.items():
        assert kind.__dataclass_fields__["kind"].default == name  # type: ignore[attr-defined]  # a dataclass


@settings(max_examples=25)
@given(histories())
def test_every_jobs_story_can_be_told_in_the_order_it_happened(history: History) -> None:
    life = Life(history)
    life.run()
    for job in jobs_in(life.steps):
        teller = StoryTeller(job)
        for step in life.steps:
            for event in (*step.inputs, *step.outputs):
                teller.hear(event)
        assert sum(line.text.startswith("Submitted by ") for line in teller.lines) == 1
        assert [line.at for line in teller.lines] == sorted(line.at for line in teller.lines)


def test_a_member_of_an_array_is_told_of_its_arrays_submission() -> None:
    teller = StoryTeller("sweep/1")
    teller.hear(e.JobSubmitted(0, 0, "sweep", JobSpec(2, team="vision", count=3)))
    assert [line.text for line in teller.lines] == ["Submitted by vision: 2 GPUs."]
