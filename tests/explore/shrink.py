"""Makes a month that breaks a rule smaller, as long as it still breaks the same rule: fewer jobs, fewer facts, fewer
sites, plainer policies and jobs.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from penstock.core.model import events as e
from penstock.core.model.governance import NONE
from penstock.core.model.types import JobSpec, Policy
from tests.explore.months import Month

#: Runs of the month: a case that is not small by then is kept as it is.
MOST_TRIES = 500


def shrunk(month: Month, breaks: Callable[[Month], str], tries: int = MOST_TRIES) -> Month:
    """`breaks` names the rule that a month breaks; empty: none."""
    name, left = breaks(month), [tries]

    def still(smaller: Month) -> bool:
        left[0] -= 1
        return left[0] >= 0 and bool(smaller.script) and breaks(smaller) == name

    while True:
        before = month
        for step in (_fewer_facts, _without_faults, _plainer_world, _plainer_facts):
            month = step(month, still)
        if month == before or left[0] <= 0:
            return month


def _fewer_facts(month: Month, still: Callable[[Month], bool]) -> Month:
    """Halves, quarters, ... and single facts are left out. Months stay open, as live ones do."""
    opened = len([fact for fact in month.script if isinstance(fact, e.PeriodOpened)])
    size = len(month.script) // 2
    while size:
        at = opened
        while at < len(month.script):
            smaller = replace(month, script=(*month.script[:at], *month.script[at + size :]))
            if still(smaller):
                month = smaller
            else:
                at += size
        size //= 2
    names = [fact.job for fact in month.jobs]
    return replace(month, runs={name: month.runs[name] for name in names})


def _without_faults(month: Month, still: Callable[[Month], bool]) -> Month:
    for fault in month.faults:
        smaller = replace(month, faults=tuple(other for other in month.faults if other != fault))
        month = smaller if still(smaller) else month
    for zone in month.zones:
        smaller = replace(month, zones={name: changes for name, changes in month.zones.items() if name != zone})
        month = smaller if still(smaller) else month
    return month


def _plainer_world(month: Month, still: Callable[[Month], bool]) -> Month:
    quiet: dict[str, Any] = {
        "refuses_permille": 0, "fails_permille": 0, "slow_stops": False, "restarts_permille": 0, "wakes_permille": 0,
        "strays_permille": 0, "cramped_permille": 0,
    }  # fmt: skip
    for name, value in quiet.items():
        smaller = replace(month, **{name: value})
        month = smaller if smaller != month and still(smaller) else month
    return month


def _plainer_facts(month: Month, still: Callable[[Month], bool]) -> Month:
    """Each fact's parts as they are where nobody says anything, one at a time."""
    for k in range(len(month.script)):
        again = True
        while again:
            again = False
            for plainer in _plainer(month.script[k]):
                smaller = replace(month, script=(*month.script[:k], plainer, *month.script[k + 1 :]))
                if still(smaller):
                    month, again = smaller, True
                    break
    return month


def _plainer(fact: e.Fact) -> Iterator[e.Fact]:
    match fact:
        case e.PolicySet():
            for policy in _defaults(fact.policy, Policy("plain"), ("name", "waiting", "governance", "data_rules")):
                yield replace(fact, policy=policy)
            for governance in _defaults(fact.policy.governance, NONE, ("windows", "shaped_by")):
                yield replace(fact, policy=replace(fact.policy, governance=governance))
        case e.JobSubmitted():
            for spec in _defaults(fact.spec, JobSpec(1), ("count",)):
                yield replace(fact, spec=spec)
        case e.SiteJoined():
            offers = fact.site.offers
            for k in range(len(offers) if len(offers) > 1 else 0):
                yield replace(fact, site=replace(fact.site, offers=(*offers[:k], *offers[k + 1 :])))
            for k, offer in enumerate(offers):
                if offer.warm is not None:
                    kept = (*offers[:k], replace(offer, warm=None), *offers[k + 1 :])
                    yield replace(fact, site=replace(fact.site, offers=kept))
        case _:
            return


def _defaults(value: Any, usual: Any, keep: tuple[str, ...]) -> Iterator[Any]:
    for part in fields(value):
        plain = getattr(usual, part.name)
        if part.name not in keep and getattr(value, part.name) != plain:
            yield replace(value, **{part.name: plain})
