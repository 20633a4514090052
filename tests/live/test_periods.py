"""The months of the books."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import BadInput
from penstock.core.fold.ledger import Lease, Ledger, sum_of
from penstock.core.model.types import Hold, Terms
from penstock.core.units import DAY, HOUR, MICRO
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


ZONES = st.sampled_from(
    ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu"]
)


@given(
    st.lists(st.tuples(ZONES, st.integers(0, 45 * DAY)), min_size=1, max_size=14),
    st.integers(ms(2026, 1, 1), ms(2027, 1, 1)),
)
def test_periods_never_overlap_nor_leave_gaps_whatever_zones_are_told_in_whatever_order(
    starts: list[tuple[str, int]], now: int
) -> None:
    """24 h at $1 were charged $38 after the zone had changed: December was open twice."""
    ledger = Ledger()
    for zone, later in starts:
        now += later
        before = list(ledger.periods)
        for opened in due(Periods(zone), ledger.periods, now):
            ledger.open_period(opened.starts_at, opened.ends_at, opened.period)
        periods = ledger.periods
        assert periods[: len(before)] == before  # what was planned stays
        assert all(earlier[1] == other[0] for earlier, other in pairwise(periods))
        assert all(20 * DAY < ends - starts < 40 * DAY for starts, ends, _ in periods)
        assert len({name for *_, name in periods}) == len(periods)
        assert periods[-1][0] > now  # a whole one ahead
        charged = ledger.charge(Lease(hold(now)), now + 24 * HOUR)
        assert sum_of(charged) == 24 * MICRO


def hold(now: int) -> Hold:
    """Of a dollar an hour."""
    terms = Terms(
        price_per_hour=MICRO,
        most_per_hour=MICRO,
        fees=0,
        egress=0,
        step_ms=1,
        minimum_ms=0,
        grace_ms=0,
        kill_ms=0,
        lease_max_ms=DAY,
    )
    return Hold(id="a", scopes=("org",), terms=terms, opened_at=now, deadline_at=now + DAY, renew_at=now, parts=())


def test_a_journal_whose_months_overlap_already_charges_no_hour_twice() -> None:
    ledger = Ledger()
    ledger.open_period(ms(2026, 11, 1), ms(2026, 12, 1), "2026-11")
    ledger.open_period(ms(2026, 12, 1), ms(2027, 1, 1), "2026-12")
    ledger.open_period(ms(2026, 12, 1, 8), ms(2027, 1, 1, 8), "2026-12")
    ledger.open_period(ms(2027, 1, 1, 8), ms(2027, 2, 1, 8), "2027-01")
    for now in (ms(2026, 11, 30, 12), ms(2026, 12, 1), ms(2026, 12, 31, 20), ms(2027, 1, 1, 2)):
        assert sum_of(ledger.charge(Lease(hold(now)), now + 24 * HOUR)) == 24 * MICRO
