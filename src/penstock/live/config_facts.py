"""Turns the configuration into facts and returns those that the journal does not have yet. The plane records them at
every start.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.events import Fact
from penstock.core.model.types import Policy
from penstock.core.units import MICRO
from penstock.policy.presets import DEFAULT_VALUE, ours

if TYPE_CHECKING:  # reading a file is not free, and who has read it has imported this
    from penstock.config import SitesFile


def configured(file: "SitesFile") -> tuple[Fact, ...]:
    """All that the sites file says. `news` leaves out what the journal knows already."""
    facts: list[Fact] = [e.CapSet(0, *cap) for cap in file.caps]
    facts += [e.SiteJoined(0, site) for site in file.sites]
    facts += [e.DataSetRegistered(0, item) for item in file.data]
    return (*facts, e.PolicySet(0, 0, policy_of(file)))


def policy_of(file: "SitesFile") -> Policy:
    """The production policy, with what the sites file says otherwise."""
    said = file.policy
    base = ours("penstock" if said.come_home else "penstock-no-moves", DEFAULT_VALUE)
    return replace(
        base,
        knob=str(said.cost_of_delay // MICRO),
        currency=file.currency,
        data_rules=file.data_rules,
        waiting=replace(base.waiting, value_per_hour=said.cost_of_delay, most_ms=said.longest_wait_ms),
        share_nodes=said.share_nodes,
        preempt=said.preempt,
        displace=said.displace,
        exhausted=said.when_exhausted,
        require_hard_caps=said.hard_caps,
        least_lease_ms=said.least_lease_ms,
        settle_ms=said.stay_ms,
        least_left_ms=said.least_left_ms,
    )


def news(state: State, configured: Sequence[Fact], sites: Iterable[str]) -> list[Fact]:
    """The facts that are new. A recorded site without a driver is unreachable."""
    found = [fact for fact in configured if not known(state, fact)]
    return [*found, *_unreachable(state, configured, set(sites))]


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
        if site not in sites and site not in state.lost_sites:
            yield e.SiteLost(0, site)
