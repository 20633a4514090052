"""The plane's clock: whatever people do to the wall clock, `at` never falls."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.units import DAY, HOUR, MINUTE, SECOND
from penstock.live.clock import CONFIRM_MS, TRUSTED_MS, Clock, ClockMemory


class Hands:
    """A wall clock, a steady one, and one that goes on while the machine sleeps; in milliseconds."""

    def __init__(self, wall: int) -> None:
        self.wall, self.steady, self.slept = wall, 0, 0
        self.clock = Clock(lambda: self.wall / 1000, lambda: self.steady / 1000, boot=self.boot)

    def boot(self) -> float:
        return (self.steady + self.slept) / 1000

    def pass_by(self, ms: int) -> None:
        self.wall += ms
        self.steady += ms

    def sleep(self, ms: int) -> None:
        self.wall += ms
        self.slept += ms


def test_time_passes_with_the_steady_clock() -> None:
    hands = Hands(10 * DAY)
    hands.pass_by(5 * SECOND)
    assert hands.clock.now() == 10 * DAY + 5 * SECOND
    hands.wall += 20 * SECOND  # somebody keeps it right
    assert hands.clock.now() == 10 * DAY + 5 * SECOND
    assert hands.clock.jumped() == 0


def test_a_sleep_is_followed_once_it_is_accepted() -> None:
    hands = Hands(10 * DAY)
    hands.sleep(DAY)
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
    hands.wall += HOUR
    hands.sleep(2 * DAY)
    assert hands.clock.jumped() == HOUR + 2 * DAY
    hands.clock.accept(HOUR + 2 * DAY)
    assert (hands.clock.now(), hands.clock.jumped()) == (12 * DAY, 0)


def test_a_wall_clock_forty_days_ahead_for_some_seconds_moves_nothing() -> None:
    hands = Hands(10 * DAY)
    hands.wall += 40 * DAY
    hands.pass_by(8 * SECOND)
    assert (hands.clock.jumped(), hands.clock.doubt) == (0, 40 * DAY)
    assert hands.clock.now() == 10 * DAY + 8 * SECOND
    hands.wall -= 40 * DAY
    assert (hands.clock.jumped(), hands.clock.doubt) == (0, 0)
    assert hands.clock.now() == 10 * DAY + 8 * SECOND


def test_a_wall_clock_that_keeps_its_new_time_is_believed_in_the_end() -> None:
    """A virtual machine that was paused, or a clock that was wrong before."""
    hands = Hands(10 * DAY)
    hands.wall += 6 * HOUR
    assert hands.clock.jumped() == 0
    hands.pass_by(9 * MINUTE)
    hands.wall += HOUR  # it jumps again, so it is asked anew
    assert hands.clock.jumped() == 0
    hands.pass_by(9 * MINUTE)
    assert hands.clock.jumped() == 0
    hands.pass_by(MINUTE)
    assert hands.clock.jumped() == 7 * HOUR
    hands.clock.accept(7 * HOUR)
    assert (hands.clock.now(), hands.clock.doubt) == (10 * DAY + 7 * HOUR + 19 * MINUTE, 0)


def test_some_minutes_are_followed_at_once_but_not_again_and_again() -> None:
    hands = Hands(10 * DAY)
    hands.wall += 4 * MINUTE
    assert (hands.clock.jumped(), hands.clock.doubt) == (4 * MINUTE, 0)
    hands.clock.accept(4 * MINUTE)
    hands.pass_by(SECOND)
    hands.wall += 4 * MINUTE
    assert (hands.clock.jumped(), hands.clock.doubt) == (0, 4 * MINUTE)
    hands.wall -= 4 * MINUTE
    hands.pass_by(2 * HOUR)
    hands.wall += 4 * MINUTE
    assert hands.clock.jumped() == 4 * MINUTE


@given(st.lists(st.tuples(st.sampled_from(["set", "sleep", "pass"]), st.integers(0, 40 * DAY)), max_size=12))
def test_time_never_falls_and_never_runs_ahead_of_what_the_machine_lived_through(steps: list[tuple[str, int]]) -> None:
    """Whatever the wall clock does, as long as nobody confirms it."""
    hands, lived, followed = Hands(10 * DAY), 0, 0
    for what, ms in steps:
        before = hands.clock.now()
        if what == "set":
            hands.wall = ms
        elif what == "sleep":
            hands.sleep(ms)
            lived += ms
        else:
            hands.pass_by(ms % CONFIRM_MS)
            lived += ms % CONFIRM_MS
        confirmed = hands.steady - hands.clock._doubted_on * 1000 >= CONFIRM_MS
        if jump := hands.clock.jumped():
            hands.clock.accept(jump)
            followed += hands.clock.now() - before if confirmed else TRUSTED_MS
        assert hands.clock.now() >= before
        assert hands.clock.now() - 10 * DAY <= lived + followed


def test_a_start_on_the_same_boot_knows_what_time_it_must_be(tmp_path: Path) -> None:
    hands = Hands(10 * DAY)
    memory = ClockMemory(tmp_path / "clock.json", hands.boot, "boot 1")
    assert memory.now() is None
    memory.keep(hands.clock)
    hands.sleep(2 * DAY)
    hands.pass_by(HOUR)
    assert memory.now() == 12 * DAY + HOUR
    hands.wall += 40 * DAY
    clock = Clock(lambda: hands.wall / 1000, lambda: hands.steady / 1000, boot=hands.boot)
    clock.begin_at(12 * DAY + HOUR)
    assert (clock.now(), clock.jumped(), clock.doubt) == (12 * DAY + HOUR, 0, 40 * DAY)
    memory.keep(clock)  # in doubt: what was kept is better
    hands.wall -= 80 * DAY
    clock = Clock(lambda: hands.wall / 1000, lambda: hands.steady / 1000, boot=hands.boot)
    clock.begin_at(12 * DAY + HOUR)
    assert (clock.now(), clock.jumped(), clock.behind) == (12 * DAY + HOUR, 0, 40 * DAY)
    assert memory.now() == 12 * DAY + HOUR
    assert ClockMemory(tmp_path / "clock.json", hands.boot, "boot 2").now() is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"at": "x"}', '{"at": 1e999, "boot_s": 0}', "\udcff", "9" * 9_999]
)
def test_a_damaged_note_of_the_time_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "clock.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert ClockMemory(tmp_path / "clock.json", lambda: 0.0, "boot 1").now() is None


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
