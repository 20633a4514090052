"""The months of the books."""

from datetime import UTC, datetime

import pytest

from penstock.core.errors import BadInput
from penstock.core.units import DAY, HOUR
from penstock.live.periods import Periods, due


def ms(*day: int) -> int:
    return int(datetime(*day, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]  # year, month, day, hour


def test_a_month_begins_at_midnight_of_the_organisation() -> None:
    berlin = Periods("Europe/Berlin")
    assert berlin.month(ms(2026, 3, 10)) == ("2026-03", ms(2026, 2, 28, 23), ms(2026, 3, 31, 22))
    assert berlin.month(ms(2026, 3, 31, 22)) == ("2026-04", ms(2026, 3, 31, 22), ms(2026, 4, 30, 22))
    assert Periods().month(ms(2026, 12, 31, 23)) == ("2026-12", ms(2026, 12, 1), ms(2027, 1, 1))


def test_there_is_always_a_whole_month_ahead() -> None:
    now = ms(2026, 11, 16)
    first = list(due(Periods(), [], now))
    assert [month.period for month in first] == ["2026-11", "2026-12"]
    known = [(month.starts_at, month.ends_at, month.period) for month in first]
    assert list(due(Periods(), known, ms(2026, 12, 1) - 1)) == []
    assert [month.period for month in due(Periods(), known, ms(2026, 12, 1))] == ["2027-01"]
    assert [month.period for month in due(Periods(), known, ms(2027, 2, 1) + DAY + HOUR)] == [
        "2027-01",
        "2027-02",
        "2027-03",
    ]


def test_a_zone_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="There is no time zone 'Mars/Olympus'"):
        Periods("Mars/Olympus")
