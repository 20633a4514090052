"""What a request replaces is told with it, earlier requests of the same batch included."""

from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.live.before import Before


def test_two_caps_in_one_batch_each_say_what_was_before() -> None:
    state = State()
    state.ledger.set_cap("org", 5, None)
    before = Before(state)
    facts = [
        before.with_before(e.CapSet(1, "org", cap, rate, by="ada"))
        for cap, rate in ((7, None), (None, 3), (None, None))
    ]
    assert [(fact.before_per_period, fact.before_per_hour) for fact in facts if isinstance(fact, e.CapSet)] == [
        (5, None),
        (7, None),
        (None, 3),
    ]


def test_what_is_unknown_and_what_nobody_asked_for_stays_as_it_is() -> None:
    before = Before(State())
    for fact in (e.CancelRequested(1, "none", "ada"), e.MoveRequested(1, "none", "lab/owned", "ada"), e.Paused(1)):
        assert before.with_before(fact) == fact
