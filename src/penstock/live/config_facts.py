"""Turns the configuration into facts and returns those that the journal does not have yet. The plane records them at
every start.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from penstock.core.fold.sites import count_at
from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.events import Fact
from penstock.core.model.types import Policy
from penstock.core.units import MICRO, Money
from penstock.core.values import value
from penstock.formatting import money
from penstock.policy.presets import DEFAULT_VALUE, ours

if TYPE_CHECKING:  # reading a file is not free, and who has read it has imported this
    from penstock.config import SitesFile

Cap: TypeAlias = tuple[Money | None, Money | None]  #: per month and per hour


def configured(file: "SitesFile") -> tuple[Fact, ...]:
    """All that the sites file says. `news` leaves out what the journal knows already."""
    sources = dict(file.cap_sources)
    facts: list[Fact] = [e.CapSet(0, *cap, from_file=True, source=sources.get(cap[0], "")) for cap in file.caps]
    facts += [e.SiteJoined(0, site) for site in file.sites]
    facts += [e.DataSetRegistered(0, item) for item in file.data]
    return (*facts, e.PolicySet(0, 0, policy_of(file)))


def written_by(configured: Sequence[Fact], by: str, before: Sequence[Fact]) -> tuple[Fact, ...]:
    """With who applied the file that says each cap, so that they do not approve it. A cap that was said before stays
    theirs who said it first.
    """
    authors = {(fact.scope, _cap(fact)): fact.asked_by for fact in before if isinstance(fact, e.CapSet)}
    return tuple(
        replace(fact, asked_by=authors.get((fact.scope, _cap(fact)), by)) if isinstance(fact, e.CapSet) else fact
        for fact in configured
    )


def policy_of(file: "SitesFile") -> Policy:
    """The production policy, with what the sites file says otherwise."""
    options = file.policy
    base = ours("penstock" if options.come_home else "penstock-no-moves", DEFAULT_VALUE)
    return replace(
        base,
        knob=str(options.cost_of_delay // MICRO),
        currency=file.currency,
        data_rules=file.data_rules,
        waiting=replace(base.waiting, value_per_hour=options.cost_of_delay, most_ms=options.longest_wait_ms),
        share_nodes=options.share_nodes,
        preempt=options.preempt,
        displace=options.displace,
        exhausted=options.when_exhausted,
        require_hard_caps=options.hard_caps,
        hard_caps_source=options.hard_caps_source,
        least_lease_ms=options.least_lease_ms,
        settle_ms=options.stay_ms,
        least_left_ms=options.least_left_ms,
        governance=file.governance,
    )


def news(
    state: State, configured: Sequence[Fact], sites: Iterable[str], *, accept_raised_caps: bool = False
) -> list[Fact]:
    """The facts that are new. A recorded site without a driver is unreachable; one that we were told to leave, and
    that has nothing of ours, is removed.
    """
    new = [fact for fact in configured if not _is_file_cap(fact) and not known(state, fact)]
    return [
        *_cap_news(state, configured, accept_raised_caps),
        *new,
        *_unreachable(state, configured, set(sites)),
    ]


def kept_open(state: State, configured: Sequence[Fact], file: str) -> tuple[Fact, ...]:
    """With the offers that left the file while something of ours is there: closed, until it has ended."""
    used = {attempt.offer.id for attempt in state.attempts.values()} | {node.offer.id for node in state.nodes.values()}
    return tuple(_with_used(state, fact, used, file) if isinstance(fact, e.SiteJoined) else fact for fact in configured)


def _with_used(state: State, fact: e.SiteJoined, used: set[str], file: str) -> e.SiteJoined:
    site, names = fact.site, [offer.id for offer in fact.site.offers]
    left = [offer for offer in state.offers.values() if offer.site == site.id and offer.id not in names]
    kept = tuple(replace(offer, closed=offer.closed or file) for offer in left if offer.id in used)
    return replace(fact, site=replace(site, offers=(*site.offers, *kept))) if kept else fact


def _is_file_cap(fact: Fact) -> bool:
    return isinstance(fact, e.CapSet) and fact.from_file


def _changed_caps(state: State, configured: Sequence[Fact]) -> Iterator[tuple[e.CapSet, Cap, Cap]]:
    """The caps that the file says otherwise than it did last: each with what is in force, and the lower of both."""
    ledger = state.ledger
    in_file = {fact.scope: fact for fact in configured if isinstance(fact, e.CapSet) and fact.from_file}
    for scope in dict.fromkeys((*ledger.file_caps, *in_file)):
        fact = in_file.get(scope) or e.CapSet(0, scope, None, None, from_file=True)  # no longer in the file
        if ledger.file_caps.get(scope) != _cap(fact):
            in_force = (ledger.caps.get(scope), ledger.rate_caps.get(scope))
            yield fact, in_force, (lower_of(in_force[0], fact.per_period), lower_of(in_force[1], fact.per_hour))


def _cap_news(state: State, configured: Sequence[Fact], accept_raised: bool) -> Iterator[Fact]:
    """A cap set by a person stands until the file changes, and the file raises none unless a person accepts it."""
    for fact, in_force, lowest in _changed_caps(state, configured):
        if accept_raised or lowest == _cap(fact):
            yield replace(fact, asked_by="")  # nobody needs to be asked
        elif lowest != in_force:  # one of its two caps is lowered: that part holds at once
            yield e.CapSet(0, fact.scope, *lowest, source=fact.source)


@value
class RaisedCap:
    """A cap that a file raises and nobody has accepted yet."""

    fact: e.CapSet  # as the file says it
    in_force: Cap
    says: str


def raised_caps(state: State, configured: Sequence[Fact]) -> dict[str, RaisedCap]:
    """By scope."""
    currency = state.policy.currency
    return {
        fact.scope: RaisedCap(fact, in_force, _raised(fact, in_force, currency))
        for fact, in_force, lowest in _changed_caps(state, configured)
        if lowest != _cap(fact)
    }


@lru_cache(1_000)  # asked for with every view
def _raised(fact: e.CapSet, in_force: Cap, currency: str) -> str:
    now = in_words(in_force, currency)
    return (
        f"{fact.source or 'The file'} says {in_words(_cap(fact), currency)} for {fact.scope}. "
        f"{now[:1].upper()}{now[1:]} {'stay' if None not in in_force else 'stays'} in force until "
        f"{'another' if fact.asked_by else 'a'} person approves it: `penstock approvals approve {fact.scope}`, "
        "or until a start with --accept-raised-caps. To stop asking, write the cap in force into the file."
    )


def _cap(fact: e.CapSet) -> Cap:
    return fact.per_period, fact.per_hour


def lower_of(one: Money | None, other: Money | None) -> Money | None:
    """None: no cap."""
    return min((amount for amount in (one, other) if amount is not None), default=None)


def raises(in_force: Cap, wanted: Cap) -> bool:
    """Per month or per hour."""
    return any(lower_of(now, then) != then for now, then in zip(in_force, wanted, strict=True))


def in_words(cap: Cap, currency: str) -> str:
    per_month, per_hour = cap
    parts = [
        f"{money(amount, currency)} {per}"
        for amount, per in ((per_month, "a month"), (per_hour, "an hour"))
        if amount is not None
    ]
    return " and ".join(parts) or "no cap"


def known(state: State, fact: Fact) -> bool:
    match fact:
        case e.PolicySet(policy=policy):
            return state.revision > 0 and state.policy == policy
        case e.CapSet(scope=scope, per_period=per_period, per_hour=per_hour):
            ledger = state.ledger
            return ledger.caps.get(scope) == per_period and ledger.rate_caps.get(scope) == per_hour
        case e.SiteJoined(site=site):
            return state.sites.get(site.id) == site
        case e.DataSetRegistered(data_set=data_set):
            return state.data.get(data_set.id) == data_set
        case _:
            return False


def _unreachable(state: State, configured: Sequence[Fact], sites: set[str]) -> Iterator[Fact]:
    joining = [fact.site.id for fact in configured if isinstance(fact, e.SiteJoined)]
    for site in dict.fromkeys((*state.sites, *joining)):
        if site in state.leaving and site not in joining and not count_at(state, site):
            yield e.SiteRemoved(0, site, reason="it was left")
        elif site not in sites and site not in state.lost_sites:
            yield e.SiteLost(0, site)
