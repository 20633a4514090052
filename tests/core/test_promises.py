"""The promises, as properties of random histories: jobs are conserved, nothing runs twice, no cap is overrun."""

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, seed, settings

from tests.core.histories import History, histories, live, tense

PARTS = 6


def explore(number: int, examples: int, then: Callable[[History], object], shrink: bool = True) -> None:
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])]

    @seed(number)
    @settings(max_examples=examples, phases=phases, database=None)
    @given(histories())
    def every_history(history: History) -> None:
        then(history)

    every_history()


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_every_history(part: int) -> None:
    explore(part, 100, live)


def test_every_promise_holds_where_everybody_is_in_each_others_way() -> None:
    explore(0, 120, lambda history: live(tense(history)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_promise_holds_in_two_thousand_more(part: int) -> None:
    explore(1_000 + part, 260, live)
    explore(2_000 + part, 60, lambda history: live(tense(history)))
