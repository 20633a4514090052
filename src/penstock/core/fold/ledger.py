"""Money: caps that hold, also while the control plane is dead.

`authorise` and `renewal` answer what would be held, or which scope forbids it; they change nothing. What changes the
books are the recorded amounts alone (`open`, `renew`, `shorten`, `settle`), so a replay never computes a price.

The promise rests on two inequalities. Held covers the worst end: the price ceiling, to the deadline, plus grace and
kill, rounded up to the billing step. And held + spent <= cap is asked in all scopes before anything is promised.
"""

from dataclasses import replace
from typing import Final

from penstock.core.fold.lease import SETTLED, Account, Lease, Parts, sum_of
from penstock.core.model.lifecycle import Broken
from penstock.core.model.reasons import CapBinds, Denial, PeriodUnknown, RateBinds, ScopeFrozen
from penstock.core.model.types import Hold, Part, Terms
from penstock.core.units import HOUR, MICRO, MINUTE, MOST_MONEY, NEVER, Instant, Millis, Money, step_up

__all__ = ["STOPS_BEFORE_MS", "Account", "Lease", "Ledger", "Parts", "drain_at", "renew_at", "sum_of"]

#: Who has less of a lease left, and gets no other, writes its checkpoint and stops.
STOPS_BEFORE_MS: Final[Millis] = 2 * MINUTE


class Ledger:
    __slots__ = (
        "accounts",
        "books",
        "caps",
        "file_caps",
        "frozen",
        "last_found",
        "leases",
        "overrun",
        "periods",
        "rate_caps",
        "rates",
    )

    def __init__(self) -> None:
        self.periods: list[tuple[Instant, Instant, str]] = []  #: start, end, name; adjoining, in order
        self.last_found: tuple[Instant, Instant, str] = (0, 0, "")  #: a cache: the period asked for last
        self.caps: dict[str, Money] = {}  #: per scope and period
        self.rate_caps: dict[str, Money] = {}  #: per scope and hour
        #: per scope: what the sites file said last, per period and per hour; a person may have set another cap since
        self.file_caps: dict[str, tuple[Money | None, Money | None]] = {}
        self.accounts: dict[tuple[str, str], Account] = {}
        self.books: dict[
            tuple[tuple[str, ...], str], list[Account]
        ] = {}  #: a cache: the accounts of scopes in a period
        self.rates: dict[str, Money] = {}  #: the sum of price ceilings of live things, per scope
        self.leases: dict[str, Lease] = {}
        self.frozen: dict[str, None] = {}
        self.overrun: Money = 0

    # --- questions ---------------------------------------------------------------------------------------------------

    def authorise(
        self,
        scopes: tuple[str, ...],
        wanted: list[tuple[str, Terms]],
        now: Instant,
        least_ms: Millis,
        most_ms: Millis = NEVER,
    ) -> tuple[Hold, ...] | Denial:
        """Holds for all of these things or for none, as long as room allows; or the scope that binds.

        `most_ms`: it is not needed for longer, and not renewed once it covers that.
        """
        if self.rate_caps and (denied := self._rate_denial(scopes, wanted)):
            return denied
        longest = self._longest(scopes, wanted, now, opened_at=now, mine=(), least_ms=least_ms, most_ms=most_ms)
        if not isinstance(longest, tuple):
            return longest
        deadline, covers = longest
        again = renew_at(now, deadline) if deadline < now + most_ms else NEVER
        if not wanted[0][1].renewable:
            again = drain_at(now, deadline, wanted[0][1].grace_ms)
        return tuple(
            [
                Hold(thing, scopes, terms, now, deadline, again, parts)
                for (thing, terms), parts in zip(wanted, covers, strict=True)
            ]
        )

    def renewal(
        self, lease: Lease, now: Instant, least_ms: Millis, most_ms: Millis = NEVER
    ) -> tuple[Instant, Parts] | Denial:
        """A later deadline and what must be held for it, once what was metered is charged."""
        hold = lease.hold
        mine = tuple(Part(part.period, -part.amount) for part in lease.parts) + self.charge(lease, now)
        opened_at = lease.opened_at if lease.asked else now
        wanted = [(hold.id, hold.terms)]
        longest = self._longest(
            hold.scopes,
            wanted,
            now,
            opened_at=opened_at,
            mine=mine,
            least_ms=least_ms,
            later_than=lease.deadline_at,
            most_ms=most_ms,
        )
        if not isinstance(longest, tuple):
            return longest
        deadline, (parts,) = longest
        return deadline, parts

    def handover(
        self, lease: Lease, scopes: tuple[str, ...], terms: Terms, now: Instant, least_ms: Millis, most_ms: Millis
    ) -> Hold | Denial:
        """A hold with which others pay for the same thing from now on, or which of their scopes forbids it.

        It ends no sooner than the one before: until the provider confirms otherwise, the thing may last that long.
        """
        left_ms = lease.deadline_at - now
        least_ms, most_ms = max(least_ms, left_ms), max(most_ms, left_ms)
        if not terms.renewable:
            least_ms = most_ms = left_ms
        wanted = [(lease.hold.id, terms)]
        charged = self.charge(lease, now)
        self._leave(lease, charged, -1)  # as if it were charged and its hold returned already
        longest: tuple[Instant, list[Parts]] | Denial | None = self._rate_denial(scopes, wanted)
        longest = longest or self._longest(scopes, wanted, now, lease.opened_at, (), least_ms, most_ms=most_ms)
        self._leave(lease, charged, 1)
        if not isinstance(longest, tuple):
            return longest
        deadline, (parts,) = longest
        again = renew_at(now, deadline) if terms.renewable else lease.renew_at
        return Hold(lease.hold.id, scopes, terms, lease.opened_at, deadline, again, parts)

    def _leave(self, lease: Lease, charged: Parts, sign: int) -> None:
        self._hold(lease.hold.scopes, lease.parts, sign)
        self._hold(lease.hold.scopes, charged, -sign)
        for scope in lease.hold.scopes:
            self.rates[scope] += sign * lease.hold.terms.most_per_hour

    def charge(self, lease: Lease, until: Instant) -> Parts:
        """What was metered since the last charge, by period; fees with the first."""
        hold = lease.hold
        if not lease.asked:
            return ()
        price, opened_at, start = hold.terms.price_per_hour, lease.opened_at, lease.charged_to
        opens, closes, period = self.last_found
        # Differences of one rounded sum, so that charges add up to it exactly.
        if opens <= start < until <= closes:  # nearly always one period
            amount = (-price * (start - opened_at) // HOUR) - (-price * (until - opened_at) // HOUR)
            parts: Parts = (Part(period, amount),)
        else:
            parts = tuple(
                [
                    Part(period, (-price * (a - opened_at) // HOUR) - (-price * (b - opened_at) // HOUR))
                    for period, a, b in self._pieces(start, until)
                ]
            )
        if hold.terms.fees and start == opened_at:
            return _added(parts, self.period_at(opened_at), hold.terms.fees)
        return parts

    def closing(self, lease: Lease, now: Instant, leaves: bool) -> Parts:
        """The last charge. Learned late, the thing still ended by its deadline: no more than that is ever charged."""
        terms = lease.hold.terms
        ended_at = min(now, lease.worst_at)
        until = lease.opened_at + max(terms.minimum_ms, step_up(ended_at - lease.opened_at, terms.step_ms))
        parts = self.charge(lease, max(until, lease.charged_to))
        if leaves and terms.egress:
            return _added(parts, self.period_at(ended_at), terms.egress)
        return parts

    def shortened(self, lease: Lease, deadline_at: Instant) -> Parts:
        """What must still be held if the thing ends by `deadline_at`, counting from what was charged."""
        return self._cover(lease.hold.terms, lease.charged_to, lease.opened_at, deadline_at)

    def cover_from(self, lease: Lease, now: Instant) -> Parts:
        """What must still be held to the deadline it has, once what was metered by now is charged: never more than is
        left of what is held. Two sums that are rounded up may be a unit more than one, and a cap has none to spare.
        """
        cover = self._cover(lease.hold.terms, now, lease.opened_at if lease.asked else now, lease.deadline_at)
        left = {part.period: part.amount for part in lease.parts}
        for part in self.charge(lease, now):
            left[part.period] = left.get(part.period, 0) - part.amount
        return tuple([Part(part.period, min(part.amount, max(0, left.get(part.period, 0)))) for part in cover])

    def exposure(self) -> tuple[Money, Instant]:
        """If Penstock died now: at most this much more would be spent, the last of it then."""
        held = sum(lease.held for lease in self.leases.values())
        return held, max((lease.worst_at for lease in self.leases.values()), default=0)

    def period_at(self, at: Instant) -> str:
        for start, end, name in reversed(self.periods):
            if start <= at < end:
                return name
        return ""

    def bounds_at(self, at: Instant) -> tuple[Instant, Instant]:
        """When the period of this instant began and ends; the last known one after all of them."""
        begun = [(start, end) for start, end, _ in self.periods if start <= at]
        return begun[-1] if begun else (at, at)

    def next_period_at(self, now: Instant) -> Instant:
        return next((start for start, _, _ in self.periods if start > now), NEVER)

    def crossed(self, before: Instant, now: Instant) -> bool:
        """Did a period begin after `before`, and has it begun by `now`?"""
        return any(before < start <= now for start, _, _ in self.periods)

    # --- changes: recorded amounts only ------------------------------------------------------------------------------

    def set_cap(self, scope: str, per_period: Money | None, per_hour: Money | None) -> None:
        _put(self.caps, scope, per_period)
        _put(self.rate_caps, scope, per_hour)
        for (name, _), account in self.accounts.items():
            if name == scope:
                account.cap = per_period

    def cap_job(self, scope: str, cap: Money) -> None:
        """A job's own cap, for its whole life."""
        self.caps[scope] = cap

    def open_job(self, scope: str, cap: Money, spent: Money) -> None:
        """A cap on a job that has cost so much before."""
        self.caps[scope] = cap
        self._account(scope, "").spent = spent

    def bind(self, lease: Lease, job_scope: str) -> None:
        """From now on the lease counts for a job's cap, too. What it cost before is in `open_job`."""
        hold = lease.hold
        lease.hold = replace(hold, scopes=(*hold.scopes, job_scope))
        self._account(job_scope, "").held += lease.held
        self.rates[job_scope] = self.rates.get(job_scope, 0) + hold.terms.most_per_hour

    def open_period(self, starts_at: Instant, ends_at: Instant, name: str) -> None:
        if (starts_at, ends_at, name) not in self.periods:
            self.periods.append((starts_at, ends_at, name))
            self.periods.sort()

    def open(self, hold: Hold) -> Lease:
        if hold.id in self.leases:
            raise Broken(f"a second hold for {hold.id}")
        lease = self.leases[hold.id] = Lease(hold)
        self._hold(hold.scopes, hold.parts, 1)
        rates, most = self.rates, hold.terms.most_per_hour
        for scope in hold.scopes:
            rates[scope] = rates.get(scope, 0) + most
        if self.caps:
            self._must_fit(hold.id, hold.scopes, hold.parts)
        if self.rate_caps and most:
            self._must_fit_in_an_hour(hold.id, hold.scopes)
        return lease

    def renew(
        self, lease: Lease, now: Instant, charged: Parts, parts: Parts, deadline_at: Instant, renew_at: Instant
    ) -> None:
        before = lease.parts
        self._spend(lease, charged)
        lease.charged_to = now
        self.shorten(lease, parts, deadline_at, renew_at)
        lease.wanted_at = deadline_at
        if self.caps:
            returned = [Part(part.period, -part.amount) for part in before]
            self._must_fit(lease.hold.id, lease.hold.scopes, (*charged, *parts, *returned))

    def _must_fit(self, thing: str, scopes: tuple[str, ...], more: Parts) -> None:
        """So much more was just held or spent for it: promise 2, where it becomes state. Under a cap that was lowered
        below what was there already, nothing may be added.
        """
        for scope in scopes:
            cap = self.caps.get(scope)
            if cap is None:
                continue
            for key, amount in _by_key(scope, more).items():
                if amount > 0 and (total := self.accounts[key].held + self.accounts[key].spent) > cap:
                    raise Broken(
                        f"hold {thing}: {scope} has {_units(total)} held and spent, and may have {_units(cap)}"
                    )

    def _must_fit_in_an_hour(self, thing: str, scopes: tuple[str, ...]) -> None:
        """The same of the price of everything at once."""
        for scope in scopes:
            cap = self.rate_caps.get(scope)
            if cap is not None and self.rates[scope] > cap:
                raise Broken(
                    f"hold {thing}: {scope} may spend {_units(self.rates[scope])} an hour, and its cap is {_units(cap)}"
                )

    def shorten(self, lease: Lease, parts: Parts, deadline_at: Instant, renew_at: Instant) -> None:
        self._hold(lease.hold.scopes, lease.parts, -1)
        self._hold(lease.hold.scopes, parts, 1)
        lease.parts, lease.deadline_at, lease.renew_at, lease.denied = parts, deadline_at, renew_at, False

    def hand_over(self, lease: Lease, now: Instant, charged: Parts, hold: Hold) -> None:
        """What was metered so far is spent by those who paid for it; from now on others do."""
        self._spend(lease, charged)
        self._hold(lease.hold.scopes, lease.parts, -1)
        self._hold(hold.scopes, hold.parts, 1)
        for scope in lease.hold.scopes:
            self.rates[scope] -= lease.hold.terms.most_per_hour
        for scope in hold.scopes:
            self.rates[scope] = self.rates.get(scope, 0) + hold.terms.most_per_hour
        if self.caps:
            before, pay_now = lease.hold.scopes, hold.scopes
            returned = [Part(part.period, -part.amount) for part in lease.parts]
            self._must_fit(hold.id, tuple([scope for scope in pay_now if scope not in before]), hold.parts)
            both = tuple([scope for scope in pay_now if scope in before])
            self._must_fit(hold.id, both, (*charged, *hold.parts, *returned))
        lease.hold, lease.parts, lease.charged_to = hold, hold.parts, now
        lease.deadline_at = lease.wanted_at = hold.deadline_at
        lease.renew_at, lease.denied = hold.renew_at, False

    def settle(self, lease: Lease, charged: Parts) -> None:
        hold = lease.hold
        self._hold(hold.scopes, lease.parts, -1)
        self._spend(lease, charged)
        rates, most = self.rates, hold.terms.most_per_hour
        for scope in hold.scopes:
            rates[scope] -= most
        lease.renew_at = SETTLED
        del self.leases[hold.id]

    def forget_job(self, scope: str) -> None:
        """An ended job's own account leaves the books; its team's and month's stay."""
        self.caps.pop(scope, None)
        self.rates.pop(scope, None)
        self.accounts.pop((scope, ""), None)
        for key in [key for key in self.books if scope in key[0]]:
            del self.books[key]

    def check(self) -> None:
        """Promise 2, and that the counters are the sums they claim to be."""
        held: dict[tuple[str, str], Money] = {}
        for lease in self.leases.values():
            for scope in lease.hold.scopes:
                for part in lease.parts:
                    key = _key(scope, part.period)
                    held[key] = held.get(key, 0) + part.amount
        for key, account in self.accounts.items():
            assert account.held == held.get(key, 0), f"{key}: {account.held} held, {held.get(key, 0)} in its holds"
        for scope, rate in self.rates.items():
            live = sum(x.hold.terms.most_per_hour for x in self.leases.values() if scope in x.hold.scopes)
            assert rate == live, f"{scope}: {rate} an hour counted, {live} in its holds"

    # --- how ---------------------------------------------------------------------------------------------------------

    def _longest(
        self,
        scopes: tuple[str, ...],
        wanted: list[tuple[str, Terms]],
        now: Instant,
        opened_at: Instant,
        mine: Parts,
        least_ms: Millis,
        later_than: Instant = -1,
        most_ms: Millis = NEVER,
    ) -> tuple[Instant, list[Parts]] | Denial:
        """The longest lease that leaves a fifth of every cap free, or takes a quarter of the room; or the least.

        If no lease that ends after `later_than` fits: what forbids the shortest of those that were tried.
        """
        if self.frozen and (scope := next((scope for scope in scopes if scope in self.frozen), "")):
            return ScopeFrozen(scope, self.overrun)
        capped = [scope for scope in scopes if scope in self.caps] if self.caps else []
        if scopes[0] not in self.caps:  # it holds all others' money: bounded by what the books can store
            capped.insert(0, scopes[0])
        length, least_ms = min(max(wanted[0][1].lease_max_ms, least_ms), most_ms), min(least_ms, most_ms)
        if now + length <= later_than:  # its lease was made when the least was longer
            length = later_than - now + least_ms
        asked_least = False
        while True:
            fits = self._fitting(capped, wanted, now, opened_at, mine, length, gentle=length > least_ms)
            if isinstance(fits, list):
                return now + length, fits
            shorter = max(least_ms, length // 2)
            if shorter == length or now + shorter <= later_than:
                return fits
            if not asked_least and shorter > least_ms and now + least_ms > later_than:
                asked_least = True
                least = self._fitting(capped, wanted, now, opened_at, mine, least_ms, gentle=False)
                if not isinstance(least, list):
                    return least  # where the least does not fit, none between does
            length = shorter

    def _fitting(
        self,
        capped: list[str],
        wanted: list[tuple[str, Terms]],
        now: Instant,
        opened_at: Instant,
        mine: Parts,
        length: Millis,
        gentle: bool,
    ) -> list[Parts] | Denial:
        """What leases of this length hold, or what forbids them."""
        deadline = now + length
        covers = [self._cover(terms, now, opened_at, deadline) for _, terms in wanted]
        if () in covers:
            return PeriodUnknown(deadline)
        need = covers[0]
        if mine or len(covers) > 1:  # a renewal, or several nodes
            need = (*mine, *(part for parts in covers for part in parts))
        return self._denial(capped, need, gentle) or covers

    def _denial(self, capped: list[str], parts: Parts, gentle: bool) -> CapBinds | None:
        """The first of these scopes without room. `gentle`: part of the room stays free for others."""
        for scope in capped:
            cap = self.caps.get(scope, MOST_MONEY)
            for key, need in _by_key(scope, parts).items():
                account = self.accounts.get(key)
                held, spent = (account.held, account.spent) if account else (0, 0)
                room = cap - held - spent
                most = room // 4 if gentle else room
                if need > most and gentle:
                    most = max(most, room - cap // 5)
                if need > most:
                    return CapBinds(
                        scope=scope,
                        period=key[1],
                        cap=cap,
                        spent=spent,
                        held=held,
                        needed=need,
                        kept_free=max(0, room - most),
                    )
        return None

    def _rate_denial(self, scopes: tuple[str, ...], wanted: list[tuple[str, Terms]]) -> RateBinds | None:
        more = sum(terms.most_per_hour for _, terms in wanted)
        for scope in scopes:
            cap = self.rate_caps.get(scope)
            running = self.rates.get(scope, 0)
            if cap is not None and running + more > cap:
                return RateBinds(scope, cap, running, more)
        return None

    def _cover(self, terms: Terms, start: Instant, opened_at: Instant, deadline: Instant) -> Parts:
        """What must be held from `start` so that the worst end after `deadline` is paid for, by period, rounded up.

        Nothing if the known periods do not reach that far.
        """
        worst = deadline + terms.grace_ms + terms.kill_ms - opened_at
        if terms.step_ms > 1:  # one step more: an attempt is billed from when it is asked for, which may be later
            worst = step_up(worst, terms.step_ms) + terms.step_ms
        until = opened_at + worst + terms.minimum_ms
        # Fees in every period the lease touches, too: which one they fall into is known when the site is asked.
        # The micro-unit is to spare: a charge is never more than its own time rounded up.
        most, more = terms.most_per_hour, terms.egress + 1 + (terms.fees if start == opened_at else 0)
        opens, closes, period = self.last_found
        if opens <= start < until <= closes:  # nearly always one period
            return (Part(period, more - (-most * (until - start) // HOUR)),)
        if not self.periods or until > self.periods[-1][1]:
            return ()
        return tuple([Part(period, more - (-most * (b - a) // HOUR)) for period, a, b in self._pieces(start, until)])

    def _pieces(self, start: Instant, end: Instant) -> list[tuple[str, Instant, Instant]]:
        """The interval, cut where periods meet. Periods of older journals may overlap: no time counts twice."""
        pieces: list[tuple[str, Instant, Instant]] = []
        for period in self.periods:
            opens, closes, name = period
            if opens <= start and end <= closes and not pieces:
                self.last_found = period
                return [(name, start, end)] if start < end else []
            if start < closes and opens < end and start < end:
                pieces.append((name, max(start, opens), min(end, closes)))
                start = min(end, closes)
        return pieces

    def _hold(self, scopes: tuple[str, ...], parts: Parts, sign: int) -> None:
        for part in parts:
            amount = sign * part.amount
            for account in self.books.get((scopes, part.period)) or self._open_book(scopes, part.period):
                account.held += amount

    def _spend(self, lease: Lease, charged: Parts) -> None:
        scopes = lease.hold.scopes
        for part in charged:
            amount = part.amount
            for account in self.books.get((scopes, part.period)) or self._open_book(scopes, part.period):
                account.spent += amount
            lease.charged += amount

    def _open_book(self, scopes: tuple[str, ...], period: str) -> list[Account]:
        book = self.books[scopes, period] = [self._account(scope, period) for scope in scopes]
        return book

    def _account(self, scope: str, period: str) -> Account:
        key = _key(scope, period)
        account = self.accounts.get(key)
        if account is None:
            account = self.accounts[key] = Account(self.caps.get(scope))
        return account


def renew_at(now: Instant, deadline: Instant) -> Instant:
    """With a quarter of the lease left: late enough to be rare, early enough to outlive an outage of an hour."""
    return deadline - (deadline - now) // 4


def drain_at(now: Instant, deadline: Instant, grace_ms: Millis) -> Instant:
    """Of a lease that is never renewed: when those on it are told to stop, with time to write a last checkpoint."""
    return max(renew_at(now, deadline), deadline - grace_ms - MINUTE)


def _key(scope: str, period: str) -> tuple[str, str]:
    """A job's own cap is for its life; all others are per period."""
    return (scope, "") if scope.startswith("job:") else (scope, period)


def _by_key(scope: str, parts: Parts) -> dict[tuple[str, str], Money]:
    if len(parts) == 1:  # nearly always one period
        return {_key(scope, parts[0].period): parts[0].amount}
    needs: dict[tuple[str, str], Money] = {}
    for part in parts:
        key = _key(scope, part.period)
        needs[key] = needs.get(key, 0) + part.amount
    return needs


def _added(parts: Parts, period: str, amount: Money) -> Parts:
    kept = tuple(Part(part.period, part.amount + (amount if part.period == period else 0)) for part in parts)
    return kept if any(part.period == period for part in parts) else (*kept, Part(period, amount))


def _units(amount: Money) -> str:
    return f"{amount / MICRO:,.2f}"


def _put(table: dict[str, Money], key: str, amount: Money | None) -> None:
    if amount is None:
        table.pop(key, None)
    else:
        table[key] = amount
