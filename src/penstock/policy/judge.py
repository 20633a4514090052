"""Every offer under a policy: allowed for a job, or what stands against it. `penstock policy` explains it."""

from collections.abc import Iterable
from typing import Any, Final

from penstock.core.decide.rules import Candidate, Verdict
from penstock.core.model.types import DataSet, JobSpec, Offer, Policy, Site
from penstock.core.values import value
from penstock.policy.rules import PolicyRules

BUILT_IN: Final = "built in"


@value
class OfferVerdicts:
    """One offer, and all verdicts against it, the one on record first."""

    offer: str
    against: tuple[Verdict, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.against


def judged(spec: JobSpec, sites: Iterable[Site], data: Iterable[DataSet], policy: Policy) -> tuple[OfferVerdicts, ...]:
    """All offers, in the sites' order."""
    rules = PolicyRules()
    own = tuple(data_set for data_set in data if data_set.id in spec.data)
    return tuple(
        OfferVerdicts(offer.id, rules.all_verdicts(Candidate(spec, site, offer, own, policy)))
        for site, offer in offers_of(sites)
    )


def verdicts_record(job: str, spec: JobSpec, by_offer: Iterable[OfferVerdicts]) -> dict[str, Any]:
    """What `penstock policy explain` and the API answer."""
    offers = [
        {
            "offer": verdicts.offer,
            "allowed": verdicts.allowed,
            "against": [{"rule": verdict.rule, "where": verdict.where} for verdict in verdicts.against],
        }
        for verdicts in by_offer
    ]
    return {"job": job, "class": spec.job_class, "team": spec.team, "gpus": spec.gpus, "offers": offers}


def offers_of(sites: Iterable[Site]) -> list[tuple[Site, Offer]]:
    return [(site, offer) for site in sites for offer in site.offers]


def in_words(verdict: Verdict) -> str:
    return f"{verdict.rule} ({verdict.where})"
