"""What is allowed in a policy file but probably not meant: a sentence each, with line and hint. `penstock policy check`
prints them beside the errors of `file`.

Conditions are judged by trying them (`samples`); each warning says on how many jobs and offers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from penstock.config import SitesFile
from penstock.config.sites import data_notes
from penstock.core.errors import FileError
from penstock.core.model import ranks
from penstock.core.model.governance import Allow, ClassRule, Governance
from penstock.core.model.types import STANDING, JobSpec, Policy
from penstock.core.units import PERMILLE, Money
from penstock.formatting import money
from penstock.policy.expressions import Expression, compiled
from penstock.policy.fields import OF_APPROVALS, OF_RULES
from penstock.policy.file import PolicyFile
from penstock.policy.judge import BUILT_IN, in_words, judged
from penstock.policy.samples import OTHER_TEAM, Sample, Samples

MOST_PAIRED: Final = 40  #: rules that are compared with each other
MOST_TRIED: Final = 2_000  #: combinations on which two rules are compared


def warnings(
    file: PolicyFile,
    policy: Policy,
    sites: SitesFile | None = None,
    spent: Mapping[str, Money] | None = None,
    teams: Iterable[str] = (),
) -> list[FileError]:
    """By line. `policy` is what a running Penstock makes of the file. From a journal: what each scope has `spent` this
    month, and the `teams` that submitted jobs.
    """
    noticed = [
        *_conditions(file, sites),
        *_pairs(file, sites),
        *_plain_keys(file),
        *(_about_sites(file, policy, sites) if sites is not None else ()),
        *_caps(file, policy.currency, spent or {}),
        *_teams(file, sites, teams),
    ]
    return sorted(dict.fromkeys(noticed), key=lambda warning: warning.line or 0)


class _At:
    """Makes warnings of one file, at a place in it."""

    def __init__(self, file: PolicyFile) -> None:
        self.file, self.lines = file, dict(file.lines)

    def __call__(self, place: str, message: str) -> FileError:
        return FileError(self.file.name, self.lines.get(place), place, message)

    def of(self, source: str, message: str, key: str = "") -> FileError:
        """At a part's own line."""
        return FileError(self.file.name, int(source.rpartition(":")[2]), key, message)


# --- conditions ------------------------------------------------------------------------------------------------------


def _conditions(file: PolicyFile, sites: SitesFile | None) -> Iterator[FileError]:
    """Rules that never or always hold, or that fail."""
    at, samples = _At(file), Samples(file.governance, sites)
    for rule in file.governance.rules:
        yield from _tried(rule.name, rule.deny, compiled(rule.deny, OF_RULES), rule.source, samples, at, "denies")
    for ask in file.governance.approvals:
        made = compiled(ask.when, OF_APPROVALS)
        yield from _tried(ask.name, ask.when, made, ask.source, samples, at, "asks for approval of")


def _tried(
    name: str, text: str, condition: Expression, source: str, samples: Samples, at: _At, does: str
) -> Iterator[FileError]:
    answers = [condition.holds(sample) for sample in samples.of((text, condition))]
    tried = f"tried on {len(answers):,} {'case' if len(answers) == 1 else 'cases'}"
    if samples.sites is not None:
        tried += f" with the sites' {sum(len(site.offers) for site in samples.sites.sites)} offers"
    failed = next((answer for answer in answers if isinstance(answer, str)), None)
    if failed is not None:
        yield at.of(source, f"{name} can fail ({failed}), and then denies; {tried}. Ask for the exception first.", name)
    elif not any(answers):
        yield at.of(source, f"{name} never matches, {tried}. Is a name misspelt?", name)
    elif all(answers):
        yield at.of(source, f"{name} {does} everything, {tried}. Is it meant to be narrower?", name)


def _pairs(file: PolicyFile, sites: SitesFile | None) -> Iterator[FileError]:
    """Two rules that leave nothing together, and one that says nothing beside the other."""
    at, samples = _At(file), Samples(file.governance, sites)
    rules = [(rule, compiled(rule.deny, OF_RULES)) for rule in file.governance.rules[:MOST_PAIRED]]
    for (rule, first), (other, second) in combinations(rules, 2):
        tried = list(_bounded(samples.of((rule.deny, first), (other.deny, second))))
        ours = [first.holds(sample) is not False for sample in tried]
        theirs = [second.holds(sample) is not False for sample in tried]
        if not (any(ours) and any(theirs)) or all(ours) or all(theirs):
            continue  # told already
        both = f"{other.name} and {rule.name} (line {rule.source.rpartition(':')[2]})"
        cases = f"tried on {len(tried):,} cases"
        if all(a or b for a, b in zip(ours, theirs, strict=True)):
            yield at.of(other.source, f"{both} contradict: together they deny everything, {cases}.", other.name)
        elif ours == theirs:
            yield at.of(other.source, f"{both} deny the same, {cases}. One of them is enough.", other.name)
        elif all(a or not b for a, b in zip(ours, theirs, strict=True)):
            yield at.of(
                other.source,
                f"{other.name} denies nothing that {rule.name} does not deny already, {cases}.",
                other.name,
            )
        elif all(b or not a for a, b in zip(ours, theirs, strict=True)):
            beside = f"{rule.name} denies nothing that {other.name} does not deny already, {cases}."
            yield at.of(rule.source, beside, rule.name)


def _bounded(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Evenly over all of them, since neighbours are alike."""
    every = list(samples)
    step = -(-len(every) // MOST_TRIED) or 1
    yield from every[::step]


# --- plain keys ------------------------------------------------------------------------------------------------------


def _plain_keys(file: PolicyFile) -> Iterator[FileError]:
    at, governance = _At(file), file.governance
    classes = {rule.name: rule for rule in governance.classes}
    shares = sum(team.share_permille or 0 for team in governance.teams)
    if shares > PERMILLE:
        yield at("teams", f"The teams' shares sum up to {shares / 10:g} % of the owned GPUs.")
    if governance.burst_when and classes and all(rule.where != "owned_first" for rule in classes.values()):
        yield at("burst_when", "No class is 'owned_first', so these conditions are never asked.")
    for k, kept in enumerate(governance.headroom):
        rule = classes.get(kept.job_class)
        if rule is not None and rule.where == "rented":
            yield at(f"headroom[{k}]", f"Jobs of class {rule.name} never run on owned GPUs: nobody uses these.")
    yield from _preempting(governance, classes, at)


def _preempting(governance: Governance, classes: Mapping[str, ClassRule], at: _At) -> Iterator[FileError]:
    stops = ranks.stoppable(governance.classes)
    for rule in classes.values():
        for k, other in enumerate(rule.preempts):
            place = f"classes.{rule.name}.preempts[{k}]"
            if other in classes and classes[other].where == "rented":
                yield at(place, f"Jobs of class {other} never run on owned GPUs: there is nothing to preempt.")
            if other not in stops.get(rule.name, ()):
                yield at(
                    place,
                    f"Class {other} preempts {_way_back(classes, other, rule.name)}: neither stops the other's jobs.",
                )
        if rule.where == "rented" and rule.preempts:
            yield at(f"classes.{rule.name}.preempts", f"Jobs of class {rule.name} never run on owned GPUs.")


def _way_back(classes: Mapping[str, ClassRule], name: str, back: str) -> str:
    """From a class to one that it may stop, also by way of others: the shortest."""
    ways, seen = [(name, "")], {name}
    for last, via in ways:
        for other in classes[last].preempts if last in classes else ():
            if other == back:
                return f"{via}{back}" if via else f"{back}, too"
            if other not in seen:
                seen.add(other)
                ways.append((other, f"{via}{other}, which preempts "))
    return back


def _caps(file: PolicyFile, currency: str, spent: Mapping[str, Money]) -> Iterator[FileError]:
    at = _At(file)
    org = next((cap for cap in file.caps if cap[0] == "org"), ("org", None, None))
    for scope, *limits in file.caps:
        place = scope.replace("team:", "teams.").replace("project:", "projects.")
        for key, limit, most, per in zip(
            ("per_month", "per_hour"), limits, org[1:], ("a month", "an hour"), strict=True
        ):
            if scope != "org" and limit is not None and most is not None and limit > most:
                yield at(
                    f"{place}.{key}",
                    f"{money(limit, currency)} {per} is more than the organisation's {money(most, currency)}, which "
                    f"binds {scope} first.",
                )
    for scope, per_month, _ in file.caps:
        if per_month is not None and spent.get(scope, 0) > per_month:
            kind, _, name = scope.partition(":")
            place = {"org": "organisation", "team": f"teams.{name}", "project": f"projects.{name}"}[kind]
            yield at(
                f"{place}.per_month",
                f"{money(per_month, currency)} a month is below the {money(spent[scope], currency)} that "
                f"{scope} has spent this month: nothing more is rented before the next.",
            )


def _teams(file: PolicyFile, sites: SitesFile | None, teams: Iterable[str]) -> Iterator[FileError]:
    at = _At(file)
    known = [rule.team for rule in file.governance.teams]
    for name in dict.fromkeys(teams):
        if known and name not in known:
            yield at("teams", f"Team {name} has submitted jobs, and is not here: only the organisation's cap binds it.")
    for data_set, allowed in sites.data_teams if sites is not None else ():
        for name in allowed:
            if known and name not in known:
                yield at("teams", f"Data set {data_set} is for team {name}, which is not here.")


# --- with the sites --------------------------------------------------------------------------------------------------


def _about_sites(file: PolicyFile, policy: Policy, sites: SitesFile) -> Iterator[FileError]:
    at = _At(file)
    yield from _unmatched(file.governance.allow, "allow", sites, at)
    for team in file.governance.teams:
        yield from _unmatched(team.allow, f"teams.{team.team}.allow", sites, at)
    for note in data_notes(sites.sites, sites.data, policy.data_rules):
        yield at("data", note)
    yield from _nowhere(file.governance, policy, sites, at)


def _unmatched(allow: Allow | None, place: str, sites: SitesFile, at: _At) -> Iterator[FileError]:
    """Names on a list that no site or rented offer has."""
    if allow is None:
        return
    rented = [offer for site in sites.sites for offer in site.offers if offer.term not in STANDING]
    values = {
        "clouds": [site.cloud for site in sites.sites],
        "regions": [site.region for site in sites.sites],
        "families": [offer.family for offer in rented],
        "gpus": [offer.gpu_model for offer in rented],
    }
    for key, have in values.items():
        for k, name in enumerate(getattr(allow, key)):
            begins = name[:-1] if name.endswith("*") else None
            if not any(other == name or (begins is not None and other.startswith(begins)) for other in have if other):
                known = ", ".join(dict.fromkeys(other for other in have if other)) or "none"
                yield at(f"{place}.{key}[{k}]", f"No site has '{name}'; the sites file has {known}.")


def _nowhere(governance: Governance, policy: Policy, sites: SitesFile, at: _At) -> Iterator[FileError]:
    """Classes for which the policy leaves no offer: parts of it contradict each other."""
    teams = [*(rule.team for rule in governance.teams), OTHER_TEAM]
    for rule in governance.classes:
        stuck = [team for team in teams if _leaves_nothing(JobSpec(1, team=team, job_class=rule.name), policy, sites)]
        if not stuck:
            continue
        spec = JobSpec(1, team=stuck[0], job_class=rule.name)
        against = _reasons(spec, policy, sites)
        whose = "" if len(stuck) == len(teams) else f" of {' and '.join(stuck)}"
        yield at.of(
            rule.source,
            f"No offer is left for jobs{whose} of class {rule.name}, tried with one GPU and no data: "
            f"{'; '.join(against)}.",
            f"classes.{rule.name}",
        )


def _leaves_nothing(spec: JobSpec, policy: Policy, sites: SitesFile) -> bool:
    """By what people wrote; what never fits is no matter of the policy."""
    return all(
        any(verdict.where != BUILT_IN for verdict in verdicts.against)
        for verdicts in judged(spec, sites.sites, (), policy)
    )


def _reasons(spec: JobSpec, policy: Policy, sites: SitesFile) -> Sequence[str]:
    first = [
        next(in_words(verdict) for verdict in verdicts.against if verdict.where != BUILT_IN)
        for verdicts in judged(spec, sites.sites, (), policy)
    ]
    return list(dict.fromkeys(first))
