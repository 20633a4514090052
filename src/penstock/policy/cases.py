"""Cases that a policy must fulfil, in a file beside it: a job, offers, and the expected verdict. `penstock policy test`
runs them.

    sites: sites.yaml                      # or a list of sites, as in a sites file
    cases:
      - name: tests use older cards
        job: {class: experiment, gpus: 1}  # keys of a job file
        at: [nebius-finland/h100]
        expect: denied
        rule: old-cards-for-tests
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from os.path import basename, dirname, join, splitext
from typing import Any, Final, Literal, TypeAlias

from penstock.config import SitesFile, read_sites
from penstock.config.convert import Section, converted
from penstock.config.document import UNREAD, Document, plain, read_bytes, unknown
from penstock.config.jobs import spec_of
from penstock.config.scalars import Text
from penstock.config.sites import sites_of
from penstock.core.model.types import JobSpec, Policy
from penstock.core.values import value
from penstock.policy.judge import OfferVerdicts, in_words, judged

NEEDS: Final = "'cases' (docs/policy.md shows how)"
Expected: TypeAlias = Literal["allowed", "denied"]


class CaseSection(Section, frozen=True):
    name: Text
    expect: Expected
    at: tuple[Text, ...] = ()
    rule: Text | None = None
    user: Text | None = None


@value
class PolicyCase:
    name: str
    spec: JobSpec
    expect: Expected
    at: tuple[str, ...]  # offers; empty: all
    rule: str = ""  # a part of what one of the verdicts says; empty: any
    line: int = 0


@value
class CaseResult:
    case: PolicyCase
    faults: tuple[str, ...] = ()  # a sentence each; empty: as expected


@value
class CaseFile:
    sites: SitesFile
    cases: tuple[PolicyCase, ...]


def beside(policy: str) -> str:
    """`policy.yaml` has its cases in `policy_test.yaml`."""
    stem, ending = splitext(basename(policy))
    return join(dirname(policy), f"{stem}_test{ending}")


def read_cases(path: str, sites: str = "") -> CaseFile:
    """Raises `BadFile`. `sites` stands for the sites that the file names."""
    page, raw = Document(path), read_bytes(path)
    return page.whole(lambda: _case_file(plain(raw, page, "file of policy cases", NEEDS), page, sites))


def run_cases(file: CaseFile, policy: Policy) -> Iterator[CaseResult]:
    for case in file.cases:
        by_offer = judged(case.spec, file.sites.sites, file.sites.data, policy)
        faults = [_fault(case, verdicts) for verdicts in by_offer if not case.at or verdicts.offer in case.at]
        yield CaseResult(case, tuple(fault for fault in faults if fault))


def _fault(case: PolicyCase, verdicts: OfferVerdicts) -> str:
    if verdicts.allowed and case.expect == "denied":
        return f"{verdicts.offer} is allowed, and was expected to be denied."
    if not verdicts.allowed and case.expect == "allowed":
        return f"{verdicts.offer} is denied, and was expected to be allowed: {in_words(verdicts.against[0])}."
    if not verdicts.allowed and case.rule and not any(case.rule in verdict.rule for verdict in verdicts.against):
        reasons = "; ".join(in_words(verdict) for verdict in verdicts.against)
        return f"{verdicts.offer} is denied, but not by {case.rule}: {reasons}."
    return ""


def _case_file(document: object, page: Document, sites: str) -> CaseFile:
    if not isinstance(document, dict):
        page.refuse("", "this must be a group of keys with 'cases'")
    for key in document:
        if key not in ("cases", "sites", "currency", "data", "rates"):
            page.report("", unknown("unknown key", str(key), ["cases", "sites", "currency", "data", "rates"]), key=key)
    rows = document.get("cases")
    if not isinstance(rows, list) or not rows:
        page.refuse("cases", "the key 'cases' is missing or empty; it is a list of cases")
    known = page.attempt(_sites, document, page, sites)
    cases = tuple(page.attempt(_case, row, page, f"cases[{k}]", lambda: known) for k, row in enumerate(rows))
    return CaseFile(known, cases)


def _sites(document: dict[str, Any], page: Document, sites: str) -> SitesFile:
    sites_key = document.get("sites")
    if sites:
        return read_sites(sites)
    if isinstance(sites_key, str):
        return read_sites(join(dirname(page.name), sites_key))
    if sites_key is None:
        page.refuse("", "the key 'sites' is missing: a sites file, or a list of sites; or say --sites FILE")
    return sites_of({key: part for key, part in document.items() if key != "cases"}, page)


def _case(row: object, page: Document, place: str, sites: Callable[[], SitesFile]) -> PolicyCase:
    if not isinstance(row, dict):
        page.refuse(place, "a case is a group of keys: name, job, at, expect, rule")
    spec = page.attempt(spec_of, row.get("job", {}), page, f"{place}.job")
    case = converted({key: part for key, part in row.items() if key != "job"}, CaseSection, page, place)
    offers = [offer.id for site in sites().sites for offer in site.offers]
    for k, name in enumerate(case.at):
        if name not in offers:
            page.report(f"{place}.at[{k}]", unknown("there is no offer", name, offers))
    if case.rule is not None and case.expect == "allowed":
        page.report(f"{place}.rule", "what is allowed has no rule against it; leave 'rule' out")
    return PolicyCase(
        name=str(case.name),
        spec=spec if spec is UNREAD else replace(spec, user=str(case.user or "")),
        expect=case.expect,
        at=tuple(str(name) for name in case.at),
        rule=str(case.rule or ""),
        line=page.line(place) or 0,
    )
