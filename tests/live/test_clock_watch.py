"""What the plane says about the wall clock."""

from penstock.core.engine import Engine
from penstock.core.model import events as e
from penstock.core.units import DAY
from penstock.live.clock import Clock
from penstock.live.clock_watch import ClockWatch


def began(simulated: bool, wall_s: float) -> list[str]:
    """A start with a journal whose last row is of the tenth day."""
    engine, said = Engine(), []
    engine.handle(e.Woke(10 * DAY))
    clock = Clock(wall=lambda: wall_s, steady=lambda: 0.0)
    watch = ClockWatch(clock, lambda _kind, _about, text: said.append(text), accept=False, simulated=simulated)
    watch.begin(engine.state)
    watch.look()
    assert clock.now() >= 10 * DAY
    return said


def test_a_rehearsal_that_is_restarted_at_a_lower_speed_does_not_ask_for_the_machines_clock_to_be_set() -> None:
    """A newcomer's second day began with the red alarm "The wall clock is 233 h behind the journal; set it."."""
    assert began(simulated=True, wall_s=0.0) == []
    (says,) = began(simulated=False, wall_s=0.0)
    assert says.startswith("The wall clock is 240 h behind the journal; set it.")


def test_a_rehearsal_may_be_continued_months_later() -> None:
    assert began(simulated=True, wall_s=90 * 86_400.0) == []
