"""The hours of a policy, in their own time zones, also where clocks change."""

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.engine import Engine
from penstock.core.errors import BadInput
from penstock.core.model.events import HoursOpened, PolicySet
from penstock.core.model.governance import Governance, QuietHours, Window
from penstock.core.model.types import Policy
from penstock.core.units import HOUR, MINUTE, Instant
from penstock.policy.hours import due, occurrences, window, windows_due

BERLIN = "Europe/Berlin"


def at(text: str) -> Instant:
    """`2026-03-29 01:30+01:00`."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def first(open_hours: Window, now: str, many: int = 1) -> list[tuple[Instant, Instant]]:
    return list(islice(occurrences(open_hours, at(now)), many))


def test_a_window_is_open_in_its_own_zone() -> None:
    day = window(8 * 60, 20 * 60, BERLIN)
    assert day.id == "08:00-20:00 Europe/Berlin"
    assert first(day, "2026-11-17 12:00+01:00", 2) == [
        (at("2026-11-17 08:00+01:00"), at("2026-11-17 20:00+01:00")),
        (at("2026-11-18 08:00+01:00"), at("2026-11-18 20:00+01:00")),
    ]


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    night = window(22 * 60, 6 * 60, BERLIN, days=(4,))  # from Friday on
    assert night.id == "22:00-06:00 Europe/Berlin Fri"
    opened = (at("2026-11-20 22:00+01:00"), at("2026-11-21 06:00+01:00"))
    assert first(night, "2026-11-21 03:00+01:00") == [opened]
    assert first(night, "2026-11-17 12:00+01:00") == [opened]
    assert first(night, "2026-11-21 06:00+01:00") == [(at("2026-11-27 22:00+01:00"), at("2026-11-28 06:00+01:00"))]


def test_a_window_across_a_change_of_clocks_is_an_hour_shorter_or_longer() -> None:
    night = window(22 * 60, 6 * 60, BERLIN)
    ((starts, ends),) = first(night, "2026-03-28 23:00+01:00")
    assert (starts, ends - starts) == (at("2026-03-28 22:00+01:00"), 7 * HOUR)
    ((starts, ends),) = first(night, "2026-10-24 23:00+02:00")
    assert (starts, ends - starts) == (at("2026-10-24 22:00+02:00"), 9 * HOUR)


def test_a_time_that_the_clock_skips_is_the_instant_at_which_it_does() -> None:
    skips = at("2026-03-29 03:00+02:00")
    assert first(window(60, 150, BERLIN), "2026-03-29 00:00+01:00") == [(at("2026-03-29 01:00+01:00"), skips)]
    assert first(window(150, 240, BERLIN), "2026-03-29 00:00+01:00") == [(skips, at("2026-03-29 04:00+02:00"))]


def test_a_window_within_the_skipped_hour_does_not_occur_on_that_day() -> None:
    skipped = window(2 * 60 + 10, 2 * 60 + 50, BERLIN)
    assert first(skipped, "2026-03-29 00:00+01:00") == [(at("2026-03-30 02:10+02:00"), at("2026-03-30 02:50+02:00"))]


def test_a_window_within_the_hour_that_occurs_twice_lasts_from_the_first_to_the_second() -> None:
    twice = window(2 * 60 + 10, 2 * 60 + 50, BERLIN)
    assert first(twice, "2026-10-25 00:00+02:00") == [(at("2026-10-25 02:10+02:00"), at("2026-10-25 02:50+01:00"))]


def test_a_whole_day_is_open_without_a_gap() -> None:
    for open_hours in (window(0, 24 * 60, BERLIN), window(0, 0, BERLIN)):
        opened = first(open_hours, "2026-10-24 12:00+02:00", 3)
        assert [ends for _, ends in opened[:-1]] == [starts for starts, _ in opened[1:]]


@given(st.integers(0, 1439), st.integers(0, 1440), st.integers(0, 366 * 24 * 60))
def test_it_is_open_while_a_clock_there_shows_such_a_time(from_minute: int, to_minute: int, minutes: int) -> None:
    """Where clocks go back it may be open for longer, and nowhere else."""
    now = at("2026-01-01 00:00+01:00") + minutes * MINUTE
    shown = datetime.fromtimestamp(now / 1000, ZoneInfo(BERLIN))
    minute = shown.hour * 60 + shown.minute
    over = to_minute <= from_minute
    shows = from_minute <= minute or minute < to_minute if over else from_minute <= minute < to_minute
    starts, ends = next(occurrences(window(from_minute, to_minute, BERLIN), now))
    back = shown.month == 10 and shown.day == 25 and shown.hour in (2, 3)
    assert (starts <= now < ends) == shows or back


def test_hours_are_told_ahead_and_once() -> None:
    day = window(8 * 60, 20 * 60)
    now = 9 * HOUR
    facts = list(windows_due((day,), {}, now))
    assert facts == [
        HoursOpened(now, day.id, 8 * HOUR, 20 * HOUR),
        HoursOpened(now, day.id, 32 * HOUR, 44 * HOUR),
    ]
    known = {day.id: tuple((opening.starts_at, opening.ends_at) for opening in facts)}
    assert list(windows_due((day,), known, 31 * HOUR)) == []
    assert list(windows_due((day,), known, 32 * HOUR)) == [HoursOpened(32 * HOUR, day.id, 56 * HOUR, 68 * HOUR)]
    # After a long time without news: what is open then, and what comes next.
    late = 1000 * HOUR
    assert [opening.starts_at for opening in windows_due((day,), known, late)] == [992 * HOUR, 1016 * HOUR]


def test_the_engine_is_told_in_the_step_that_brings_the_policy() -> None:
    night = window(22 * 60, 6 * 60)
    policy = Policy("p", governance=Governance(quiet_hours=(QuietHours(night.id),), windows=(night,)))
    engine, opening = Engine(), (PolicySet(0, 1, policy),)
    engine.handle(*opening, *due(engine.state, opening, 0))
    assert engine.state.hours == {night.id: ((-2 * HOUR, 6 * HOUR), (22 * HOUR, 30 * HOUR))}
    assert due(engine.state, (), HOUR) == []
    # What is over is forgotten when the next is told.
    engine.handle(*due(engine.state, (), 22 * HOUR))
    assert engine.state.hours == {night.id: ((22 * HOUR, 30 * HOUR), (46 * HOUR, 54 * HOUR))}


def test_bad_hours_are_said_to_be() -> None:
    with pytest.raises(BadInput, match="There is no time zone 'Mars/Base'"):
        window(0, 60, "Mars/Base")
    for minutes in ((-1, 5), (1440, 5), (0, 1441)):
        with pytest.raises(BadInput, match="from 00:00 to 24:00"):
            window(*minutes)
    with pytest.raises(BadInput, match="A day is one of Mon"):
        window(0, 60, days=(7,))
