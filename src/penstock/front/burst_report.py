"""Which Jobs could burst where, and what keeps the others at home. Pure. `penstock portability` prints it.

The engine's own rules decide, on what `job_spec` reads: a Job could burst to a site exactly if `plan` would allow one
of the site's offers. The verdicts on its references only say what to write.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.decide.rules import NODE_SELECTOR, Candidate, Verdict, choice_of
from penstock.core.model.types import DataSet, JobSpec, Offer, Policy, Site
from penstock.front import job_spec
from penstock.front.job_spec import Unfit
from penstock.kube.job_needs import known_gpus
from penstock.kube.maps import Maps
from penstock.kube.portability import STAYS, verdicts
from penstock.kube.references import Json, part
from penstock.policy.rules import PolicyRules

POLICY: Final = Policy("portability")
ANYBODY: Final = "anybody"  #: the team of a Job without our label; no rule asks for it


@dataclass(slots=True)
class There:
    """One Job at one other site."""

    site: str
    goes: bool
    never: bool
    says: list[str]
    lines: list[str]


@dataclass(slots=True)
class Judged:
    job: str
    gpus: int
    sites: list[There]

    @property
    def verdict(self) -> str:
        if any(site.goes for site in self.sites):
            return "could burst to " + ", ".join(site.site for site in self.sites if site.goes)
        return "never" if all(site.never for site in self.sites) else "needs a map"


class BurstReport:
    """For Jobs whose home is `home`; `others` are the sites that they may burst to."""

    def __init__(
        self,
        sites: Sequence[Site],
        maps: Iterable[Maps],
        home: str,
        data: Sequence[DataSet] = (),
        policy: Policy = POLICY,
    ) -> None:
        self.home, self.policy = home, policy
        self.data = {data_set.id: data_set for data_set in data}
        mapped = {table.site: table for table in maps}
        self.others = [(site, mapped[site.id]) for site in sites if site.id in mapped and site.id != home]
        self.known = known_gpus(offer for site in sites for offer in site.offers)

    def judge(self, job: Json) -> Judged:
        metadata = part(job, "metadata")
        name = f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or metadata.get('generateName') or '?'}"
        try:
            job_spec.refuse_large(job)
            spec = job_spec.spec_of(job, self.home, 0, self.known, team=ANYBODY)
        except Unfit as unfit:
            return Judged(name, 0, [There(site.id, False, True, [str(unfit)], []) for site, _ in self.others])
        return Judged(name, spec.gpus, [self._there(job, spec, site, maps) for site, maps in self.others])

    def _there(self, job: Json, spec: JobSpec, site: Site, maps: Maps) -> There:
        data = tuple(self.data[name] for name in spec.data if name in self.data)
        rules = PolicyRules()
        judged = [rules.verdict(Candidate(spec, site, offer, data, self.policy)) for offer in site.offers]
        if any(verdict.allowed for verdict in judged):
            return There(site.id, True, False, [], [])
        stays = min(
            ([v for v in verdicts(job, maps, labels_of(o)) if v.outcome in STAYS] for o in site.offers), key=len
        )
        says, lines = [verdict.says for verdict in stays], [verdict.line for verdict in stays if verdict.line]
        if spec.gpu_models and all(choice_of(spec, offer) is None for offer in site.offers):
            lines.append(_gpu_line(spec, site))
            says.append(f"GPU {spec.gpu_models[0].model} is not one that {site.id} has; write {lines[-1]}.")
        never = any(verdict.outcome == "never travels" for verdict in stays)
        return There(site.id, False, never, says or _rules_said(judged), lines)


def labels_of(offer: Offer) -> dict[str, str]:
    """The labels of the offer's nodes."""
    labels = [name[len(NODE_SELECTOR) :].partition("=") for name in offer.has if name.startswith(NODE_SELECTOR)]
    return {key: text for key, _, text in labels}


def _gpu_line(spec: JobSpec, site: Site) -> str:
    return f"maps: {{gpus: {{{spec.gpu_models[0].model}: {site.offers[0].gpu_model or 'GPU-THERE'}}}}}"


def _rules_said(judged: list[Verdict]) -> list[str]:
    return [f"{rule[0].upper()}{rule[1:]}." for rule in dict.fromkeys(verdict.rule for verdict in judged)]
