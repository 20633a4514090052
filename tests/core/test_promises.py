"""The promises, as properties of random histories: jobs are conserved, nothing runs twice, no cap is overrun."""

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, seed, settings

from penstock.core.model.events import ClusterPromised, PayerChanged, ReleasePromised, StartPromised, WarmPromised
from penstock.core.model.reasons import ClusterEnds
from tests.core.histories import History, histories, live, packed, tense, transient, warm

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


def test_every_promise_holds_where_nodes_are_shared() -> None:
    joined = 0

    def shares(history: History) -> None:
        nonlocal joined
        starts = [event for step in live(packed(history)).steps for event in step.outputs]
        joined += any(isinstance(event, StartPromised) and event.joins for event in starts)

    for number in range(4):  # what one seed draws depends on the modules that are loaded, too
        explore(number, 120, shares)
        if joined > 30:
            break
    assert joined > 30  # otherwise this would say little


def test_every_promise_holds_where_nodes_are_kept_warm() -> None:
    """Caps, meters and the fold, with pools that rent ahead, jobs that take their nodes, and pools that keep them."""
    asked = taken = kept = 0

    def warms(history: History) -> None:
        nonlocal asked, taken, kept
        events = [event for step in live(warm(history)).steps for event in step.outputs]
        asked += any(isinstance(event, WarmPromised) for event in events)
        taken += any(isinstance(event, PayerChanged) and bool(event.job) for event in events)
        kept += any(isinstance(event, PayerChanged) and not event.job for event in events)

    for number in range(4):  # what one seed draws depends on the modules that are loaded, too
        explore(number, 120, warms)
        if asked > 60 and taken > 20 and kept > 0:
            break
    assert (asked > 60, taken > 20, kept > 0) == (True, True, True)  # otherwise this would say little


def test_every_promise_holds_where_clusters_come_and_go() -> None:
    """At no instant a cluster without a hold, never two for one site, nothing runs where there is none; and all that
    holds for nodes and caps.
    """
    needed = wanted = ended = 0

    def comes_and_goes(history: History) -> None:
        nonlocal needed, wanted, ended
        events = [event for step in live(transient(history)).steps for event in step.outputs]
        needed += any(isinstance(event, ClusterPromised) and bool(event.job) for event in events)
        wanted += any(isinstance(event, ClusterPromised) and not event.job for event in events)
        ended += any(isinstance(event, ReleasePromised) and isinstance(event.because, ClusterEnds) for event in events)

    for number in range(4):  # what one seed draws depends on the modules that are loaded, too
        explore(number, 120, comes_and_goes)
        if needed > 40 and wanted > 20 and ended > 40:
            break
    assert (needed > 40, wanted > 20, ended > 40) == (True, True, True)  # otherwise this would say little


@pytest.mark.slow
@pytest.mark.turns(4)
@pytest.mark.parametrize("part", range(8))
def test_every_promise_holds_in_two_thousand_more(part: int) -> None:
    explore(1_000 + part, 260, live)
    explore(2_000 + part, 60, lambda history: live(tense(history)))
    explore(3_000 + part, 100, lambda history: live(packed(history)))
    explore(4_000 + part, 100, lambda history: live(warm(history)))
    explore(5_000 + part, 100, lambda history: live(transient(history)))
