"""The books: what is held, what is charged, and that there is room whenever there is room."""

from fractions import Fraction
from math import ceil
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core.fold.ledger import Ledger, renew_at
from penstock.core.model.reasons import CapBinds, PeriodUnknown, RateBinds, ScopeFrozen
from penstock.core.model.types import Hold, Part, Terms
from penstock.core.units import DAY, HOUR, MINUTE

MONTH = 30 * DAY


def books(**caps: int) -> Ledger:
    ledger = Ledger()
    for number in range(3):
        ledger.open_period(number * MONTH, (number + 1) * MONTH, f"month {number + 1}")
    for scope, cap in caps.items():
        ledger.set_cap(scope, cap, None)
    return ledger


def terms(**more: Any) -> Terms:
    usual: dict[str, Any] = {
        "price_per_hour": 3_600_000, "most_per_hour": 3_600_000, "fees": 0, "egress": 0, "step_ms": 1,
        "minimum_ms": 0, "grace_ms": 0, "kill_ms": 0, "lease_max_ms": HOUR,
    }  # fmt: skip
    return Terms(**{**usual, **more})


SOME_TERMS = st.builds(
    lambda price, ceiling, **more: Terms(price_per_hour=price, most_per_hour=price * ceiling, **more),
    price=st.integers(0, 10**8),
    ceiling=st.integers(1, 3),
    fees=st.integers(0, 10**6),
    egress=st.integers(0, 10**6),
    step_ms=st.sampled_from([1, 1000, MINUTE, HOUR]),
    minimum_ms=st.sampled_from([0, MINUTE, HOUR]),
    grace_ms=st.integers(0, 10 * MINUTE),
    kill_ms=st.integers(0, 10 * MINUTE),
    lease_max_ms=st.sampled_from([10 * MINUTE, HOUR, 12 * HOUR]),
)
STARTS = st.sampled_from([0, MONTH - HOUR, MONTH - 1, 2 * MONTH - 7 * MINUTE])


def opened(ledger: Ledger, wanted: Terms, now: int, scopes: tuple[str, ...] = ("org",)) -> Hold:
    authorised = ledger.authorise(scopes, [("thing", wanted)], now, 10 * MINUTE)
    assert isinstance(authorised, tuple)
    ledger.open(authorised[0])
    return authorised[0]


@given(SOME_TERMS, STARTS, st.integers(0, 10**6), st.booleans())
def test_held_covers_every_end_up_to_the_worst_in_every_month(
    wanted: Terms, now: int, share: int, leaves: bool
) -> None:
    ledger = books()
    hold = opened(ledger, wanted, now)
    lease = ledger.leases["thing"]
    ends = now + (lease.worst_at - now) * share // 10**6
    charged = ledger.closing(lease, ends, leaves)
    held = {part.period: part.amount for part in hold.parts}
    assert all(0 <= part.amount <= held.get(part.period, 0) for part in charged)


@given(SOME_TERMS, STARTS, st.lists(st.integers(1, 9 * MINUTE), max_size=6), st.booleans())
def test_charges_sum_exactly_to_the_metered_amount_however_often_they_are_made(
    wanted: Terms, now: int, gaps: list[int], leaves: bool
) -> None:
    ledger = books()
    opened(ledger, wanted, now)
    lease, at, total = ledger.leases["thing"], now, 0
    for gap in gaps:
        at += gap
        charged = ledger.charge(lease, at)
        total += sum(part.amount for part in charged)
        renewed = ledger.renewal(lease, at, 10 * MINUTE)
        deadline, parts = renewed if isinstance(renewed, tuple) else (lease.deadline_at, lease.parts)
        ledger.renew(lease, at, charged, parts, deadline, renew_at(at, deadline))
        ledger.check()
    ends = at + 5 * MINUTE
    last = ledger.closing(lease, ends, leaves)
    total += sum(part.amount for part in last)
    billed = max(wanted.minimum_ms, ceil(Fraction(ends - now, wanted.step_ms)) * wanted.step_ms)
    exact = ceil(Fraction(wanted.price_per_hour * billed, HOUR)) + wanted.fees + (wanted.egress if leaves else 0)
    assert total == exact
    ledger.settle(lease, last)
    ledger.check()
    accounts = ledger.accounts.values()
    assert (sum(account.held for account in accounts), sum(account.spent for account in accounts)) == (0, exact)


@given(
    st.lists(SOME_TERMS, min_size=1, max_size=3),
    STARTS,
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.sampled_from([None, 10**7, 10**9]),
)
def test_if_there_is_room_authorising_succeeds_and_only_then(
    wanted: list[Terms], now: int, org: int, team: int, per_hour: int | None
) -> None:
    ledger, least = books(), 10 * MINUTE
    ledger.set_cap("org", org, per_hour)
    ledger.set_cap("team:a", team, None)
    things = [(f"t{k}", lease_terms) for k, lease_terms in enumerate(wanted)]
    authorised = ledger.authorise(("org", "team:a"), things, now, least)
    needs: dict[str, int] = {}
    for thing_terms in wanted:
        for part in ledger._cover(thing_terms, now, now, now + least):
            needs[part.period] = needs.get(part.period, 0) + part.amount
    fits = all(need <= min(org, team) for need in needs.values())
    rate_fits = per_hour is None or sum(lease_terms.most_per_hour for lease_terms in wanted) <= per_hour
    assert isinstance(authorised, tuple) == (fits and rate_fits)
    if isinstance(authorised, tuple):
        assert [hold.id for hold in authorised] == [name for name, _ in things]
        for hold in authorised:
            ledger.open(hold)
        assert all(account.held <= min(org, team) for account in ledger.accounts.values())
    else:
        assert isinstance(authorised, CapBinds if rate_fits else RateBinds)


@given(SOME_TERMS, STARTS, st.integers(1, 12))
def test_a_shorter_lease_never_holds_more(wanted: Terms, now: int, part: int) -> None:
    ledger = books()
    hold = opened(ledger, wanted, now)
    lease = ledger.leases["thing"]
    shorter = now + (hold.deadline_at - now) // part
    held = {share.period: share.amount for share in lease.parts}
    assert all(share.amount <= held[share.period] for share in ledger.shortened(lease, shorter))


@given(SOME_TERMS, STARTS, st.integers(0, 10**9), st.sampled_from((MINUTE, 10 * MINUTE)), st.integers(0, 90))
def test_a_lease_or_its_denial_is_what_trying_each_length_in_turn_gives(
    wanted: Terms, now: int, cap: int, least_ms: int, minutes: int
) -> None:
    """Where the least lease does not fit, those between are not tried."""
    ledger = books(org=cap)
    things = [("thing", wanted)]
    authorised = ledger.authorise(("org",), things, now, least_ms)
    tried: object = None
    length = max(wanted.lease_max_ms, least_ms)
    while True:
        tried = ledger._fitting(["org"], things, now, now, (), length, gentle=length > least_ms)
        if isinstance(tried, list) or length == least_ms:
            break
        length = max(least_ms, length // 2)
    if isinstance(authorised, tuple):
        assert ([authorised[0].parts], authorised[0].deadline_at) == (tried, now + length)
        ledger.open(authorised[0])
        later = ledger.renewal(ledger.leases["thing"], now + minutes * MINUTE, least_ms)
        assert not isinstance(later, tuple) or later[0] > authorised[0].deadline_at
    else:
        assert authorised == tried


def test_a_lease_leaves_a_fifth_of_the_cap_or_takes_a_quarter_of_the_room_or_is_the_least() -> None:
    ledger = books(org=10_000_000)
    hold = opened(ledger, terms(lease_max_ms=12 * HOUR), 0)
    assert hold.deadline_at == 90 * MINUTE  # 12 h, 6 h and 3 h would leave less than two of ten
    small = ledger.authorise(("org",), [("b", terms(lease_max_ms=12 * HOUR))], 0, 10 * MINUTE)
    assert isinstance(small, tuple)
    assert small[0].deadline_at == 45 * MINUTE // 2  # 45 minutes would cost 2.7, and 2.6 may go


def test_a_month_that_is_not_open_is_not_promised() -> None:
    ledger = books()
    assert ledger.authorise(("org",), [("a", terms())], 3 * MONTH - MINUTE, 10 * MINUTE) == PeriodUnknown(
        3 * MONTH + 9 * MINUTE
    )


def test_a_frozen_scope_gets_no_more_money() -> None:
    ledger = books(org=10**12)
    ledger.frozen["org"] = None
    ledger.overrun = 7
    assert ledger.authorise(("org",), [("a", terms())], 0, 10 * MINUTE) == ScopeFrozen("org", 7)


def test_an_end_learned_late_is_charged_to_its_deadline_and_no_further() -> None:
    ledger = books()
    opened(ledger, terms(grace_ms=MINUTE), 0)
    late = ledger.closing(ledger.leases["thing"], 5 * HOUR, leaves=False)
    assert late == (Part("month 1", 3_660_000),)


def test_exposure_is_what_is_held_and_when_the_last_of_it_ends() -> None:
    ledger = books()
    assert ledger.exposure() == (0, 0)
    opened(ledger, terms(grace_ms=MINUTE, kill_ms=MINUTE), 0)
    assert ledger.exposure() == (3_720_001, HOUR + 2 * MINUTE)


@given(SOME_TERMS, STARTS, st.integers(1, 60))
def test_a_renewal_only_ever_lengthens_a_lease(wanted: Terms, now: int, minutes: int) -> None:
    ledger = books(org=10**10)
    assume(isinstance(ledger.authorise(("org",), [("thing", wanted)], now, 10 * MINUTE), tuple))
    opened(ledger, wanted, now)
    lease = ledger.leases["thing"]
    at = min(now + minutes * MINUTE, lease.deadline_at)
    renewed = ledger.renewal(lease, at, 10 * MINUTE)
    if isinstance(renewed, tuple):
        assert renewed[0] > lease.deadline_at
