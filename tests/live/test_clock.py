"""The plane's clock: whatever people do to the wall clock, `at` never falls."""

from penstock.core.units import DAY, HOUR, SECOND
from penstock.live.clock import Clock


class Hands:
    """A wall clock and a steady one, in milliseconds."""

    def __init__(self, wall: int) -> None:
        self.wall, self.steady = wall, 0
        self.clock = Clock(lambda: self.wall / 1000, lambda: self.steady / 1000)

    def pass_by(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms


def test_time_passes_with_the_steady_clock() -> None:
    hands = Hands(10 * DAY)
    hands.pass_by(5 * SECOND)
    assert hands.clock.now() == 10 * DAY + 5 * SECOND
    hands.wall += 20 * SECOND  # somebody keeps it right
    assert hands.clock.now() == 10 * DAY + 5 * SECOND
    assert hands.clock.jumped() == 0


def test_a_jump_ahead_is_followed_once_it_is_accepted() -> None:
    hands = Hands(10 * DAY)
    hands.wall += DAY
    assert hands.clock.jumped() == DAY
    assert hands.clock.now() == 10 * DAY
    hands.clock.accept(DAY)
    assert (hands.clock.now(), hands.clock.jumped()) == (11 * DAY, 0)


def test_after_a_jump_back_time_goes_on_and_making_it_good_is_no_jump_ahead() -> None:
    hands = Hands(10 * DAY)
    hands.wall -= HOUR
    assert hands.clock.jumped() == -HOUR
    hands.clock.accept(-HOUR)
    assert (hands.clock.now(), hands.clock.jumped()) == (10 * DAY, 0)
    hands.wall += HOUR + 2 * DAY
    assert hands.clock.jumped() == HOUR + 2 * DAY
    hands.clock.accept(HOUR + 2 * DAY)
    assert (hands.clock.now(), hands.clock.jumped()) == (12 * DAY, 0)


def test_a_restart_goes_on_where_the_journal_ends() -> None:
    hands = Hands(10 * DAY)
    hands.clock.begin_after(10 * DAY + HOUR)
    assert (hands.clock.now(), hands.clock.jumped()) == (10 * DAY + HOUR, 0)
    hands.clock.begin_after(9 * DAY)
    assert hands.clock.now() == 10 * DAY + HOUR


def test_a_rehearsals_clock_sleeps_less() -> None:
    clock = Clock(lambda: 0.0, lambda: 0.0, speed=600)
    assert clock.seconds_until(HOUR) == 6.0
    assert clock.seconds_until(-HOUR) == 0
