"""Compares the configuration with the journal's state and returns the differences as facts. The plane records them at
every start.
"""

from collections.abc import Iterable, Iterator, Sequence

from penstock.core.fold.state import State
from penstock.core.model import events as e
from penstock.core.model.events import Fact


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
