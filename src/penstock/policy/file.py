"""Reads the policy file: human units in, the core's values out, all errors in one answer. Commands call it.

    sites = read_sites("sites.yaml")
    sites = governed(sites, read_policy("policy.yaml", sites))

From there on the sites file says what the policy file says, and who uses it need not know that there are two files.
docs/policy.md explains every key.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.config import PolicyOptions, SitesFile
from penstock.config.convert import converted, keys_of
from penstock.config.document import Document, plain, read_bytes, shown, unknown
from penstock.config.sections import PolicySection
from penstock.config.sites import notes_of, options_of
from penstock.config.teams import NO_DOOR, Team
from penstock.core.model.governance import Governance
from penstock.core.model.types import STANDING, DataRule
from penstock.core.units import Money
from penstock.core.values import value
from penstock.formatting import count
from penstock.policy.compile import amount, governance_of, words
from penstock.policy.sections import VERSION, DataClassSection, LimitsSection, PolicyFileSection, TeamRulesSection

NEEDS: Final = "'version: 1' (examples/policy.yaml shows how)"
MOST_NODES: Final = 50_000  #: words, lists and groups of keys
OPTIONS: Final = tuple(keys_of(PolicySection))
MOST_PARTS: Final = 1_000  #: teams, classes, rules and whatever else a key has
CONDITIONS: Final = ("deny", "approval", "when")  #: keys of rules and approvals that are text in CEL
MOST_CONDITIONS: Final = 500
MOST_CONDITION_TEXT: Final = 50_000  #: characters of all of them


@value
class PolicyFile:
    name: str  # as it was given
    governance: Governance
    options: PolicyOptions = PolicyOptions()
    caps: tuple[tuple[str, Money | None, Money | None], ...] = ()  # scope, per month, per hour
    cap_sources: tuple[tuple[str, str], ...] = ()  # scope; file and line
    data_rules: tuple[DataRule, ...] = ()
    teams: tuple[Team, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()  # of everything in it, by place like `teams.vision.per_month`
    text: str = ""  # as it was read
    currency: str = ""  # of its amounts; empty: the sites file's

    def says(self, *keys: str) -> bool:
        """True if it has one of these keys."""
        return any(place in keys for place, _ in self.lines)

    def line(self, place: str) -> int | None:
        return dict(self.lines).get(place)


def read_policy(path: str, sites: SitesFile | None = None) -> PolicyFile:
    """What the file says. All that is wrong with it is one `BadFile`; with sites, also what does not fit to them."""
    return parse_policy(read_bytes(path), path, sites)


def parse_policy(raw: bytes, name: str, sites: SitesFile | None = None) -> PolicyFile:
    """As `read_policy`, of what was read already; `name` stands for the file in errors."""
    page = Document(name)
    return page.whole(_policy_file, raw, page, sites)


def governed(sites: SitesFile, policy: PolicyFile) -> SitesFile:
    """The sites file with the policy file's caps, teams, data rules and options in place of its own."""
    rules = policy.data_rules if policy.says("data") else sites.data_rules
    return replace(
        sites,
        policy=policy.options if policy.says(*OPTIONS) else sites.policy,
        caps=policy.caps or sites.caps,
        cap_sources=policy.cap_sources if policy.caps else sites.cap_sources,
        data_rules=rules,
        teams=policy.teams if policy.says("teams") else sites.teams,
        governance=policy.governance,
        notes=notes_of(sites.sites, sites.data, rules),
    )


def _policy_file(raw: bytes, page: Document, sites: SitesFile | None) -> PolicyFile:
    document = plain(raw, page, "policy file", NEEDS, MOST_NODES)
    _check_version(document, page)
    row = converted(document, PolicyFileSection, page)
    _bound_parts(document, page)
    _bound_conditions(document, page)
    attempt = page.attempt
    if sites is not None:
        for check in (_check_sites, _check_doors, _check_currency, _check_said_once):
            attempt(check, row, page, sites)
    return PolicyFile(
        name=page.name,
        governance=governance_of(row, page, hashlib.sha256(raw).hexdigest()),
        options=attempt(lambda: options_of(_options(row), page, "")),
        caps=attempt(lambda: tuple(_caps(row, page))),
        cap_sources=tuple(_cap_sources(row, page)),
        data_rules=attempt(lambda: tuple(_data_rules(row, page))),
        teams=attempt(lambda: tuple(attempt(_team, str(name), team) for name, team in row.teams.items())),
        lines=tuple((place, line) for place, line in page.lines.items() if place),
        text=raw.decode("utf-8-sig"),
        currency=str(row.currency or ""),
    )


def _check_version(document: object, page: Document) -> None:
    """First of all: a newer file may have keys that would only be reported as misspelt."""
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, str) and version.isdecimal() and int(version[:9]) > VERSION:
        page.refuse(
            "version",
            f"this file is of version {version[:9]}, and this Penstock reads version {VERSION}; install a newer one",
        )


def _bound_parts(document: object, page: Document) -> None:
    """Each decision looks at many of them: ten thousand would hold up everybody's jobs."""
    for key, inside in document.items() if isinstance(document, dict) else ():
        if isinstance(inside, dict | list) and len(inside) > MOST_PARTS:
            page.refuse(str(key), f"{len(inside):,} entries are too many; at most {MOST_PARTS:,}")


def _bound_conditions(document: object, page: Document) -> None:
    """Before any is compiled, which takes milliseconds for a long one; each is asked for every shape and offer."""
    rows = [row for key in ("rules", "approvals") for row in _listed(document, key) if isinstance(row, dict)]
    texts = [text for row in rows for key in CONDITIONS if isinstance(text := row.get(key), str)]
    if len(texts) > MOST_CONDITIONS or sum(map(len, texts)) > MOST_CONDITION_TEXT:
        page.refuse(
            "rules",
            f"{count(len(texts), 'condition')} in CEL with {sum(map(len, texts)):,} characters; a file has at most "
            f"{MOST_CONDITIONS} with {MOST_CONDITION_TEXT:,}",
        )


def _listed(document: object, key: str) -> list[object]:
    inside = document.get(key) if isinstance(document, dict) else None
    return inside if isinstance(inside, list) else []


def _options(row: PolicyFileSection) -> PolicySection:
    return PolicySection(**{keys_of(PolicySection)[key].field: getattr(row, key) for key in OPTIONS})


def _caps(row: PolicyFileSection, page: Document) -> Iterator[tuple[str, Money | None, Money | None]]:
    if row.organisation is not None:
        yield from _cap("org", row.organisation, page, "organisation")
    for name, project in row.projects.items():
        yield from page.attempt(lambda: tuple(_cap(f"project:{name}", project, page, f"projects.{name}")))  # noqa: B023
    for name, team in row.teams.items():
        if team.per_month is not None or team.per_hour is not None:
            yield f"team:{name}", amount(team.per_month), amount(team.per_hour)


def _cap_sources(row: PolicyFileSection, page: Document) -> Iterator[tuple[str, str]]:
    if row.organisation is not None:
        yield "org", page.source("organisation")
    yield from [(f"project:{name}", page.source(f"projects.{name}")) for name in row.projects]
    yield from [(f"team:{name}", page.source(f"teams.{name}")) for name in row.teams]


def _cap(
    scope: str, row: LimitsSection, page: Document, place: str
) -> Iterator[tuple[str, Money | None, Money | None]]:
    if row.per_month is None and row.per_hour is None:
        page.refuse(place, "the key 'per_month' is missing, or 'per_hour'; a cap needs an amount")
    yield scope, amount(row.per_month), amount(row.per_hour)


def _data_rules(row: PolicyFileSection, page: Document) -> Iterator[DataRule]:
    for name, rule in row.data.items():
        where = page.source(f"data.{name}")
        yield DataRule(str(name), words(rule.sites), words(rule.locations), words(rule.laws), where)


def _team(name: str, row: TeamRulesSection) -> Team:
    return Team(
        name=name,
        namespaces=words(row.namespaces),
        projects=words(row.projects),
        classes=None if row.classes is None else words(row.classes),
        highest_priority=int(row.highest_priority),
        queued_jobs=int(row.queued_jobs),
        journal_bytes=int(row.journal_per_day),
    )


# --- what must fit to the sites --------------------------------------------------------------------------------------


def _check_sites(row: PolicyFileSection, page: Document, sites: SitesFile) -> None:
    known = [site.id for site in sites.sites]
    for name, rule in row.data.items():
        page.attempt(_check_data_sites, f"data.{name}.sites", rule, ["*", *known], page)
    for k, kept in enumerate(row.headroom):
        page.attempt(_check_headroom, f"headroom[{k}]", str(kept.site), int(kept.gpus), page, sites)


def _check_data_sites(place: str, rule: DataClassSection, known: Sequence[str], page: Document) -> None:
    for k, site in enumerate(rule.sites):
        if site not in known:
            page.report(f"{place}[{k}]", unknown("there is no site", site, known))


def _check_headroom(place: str, name: str, gpus: int, page: Document, sites: SitesFile) -> None:
    known = [site.id for site in sites.sites]
    if name not in known:
        page.refuse(f"{place}.site", unknown("there is no site", name, known))
    standing = [offer for site in sites.sites if site.id == name for offer in site.offers if offer.term in STANDING]
    if not standing:
        page.refuse(f"{place}.site", f"site {shown(name)} has no owned or reserved GPUs that could be kept free")
    counts = [shape.gpus * shape.count for offer in standing for shape in offer.shapes if shape.count is not None]
    uncounted = any(shape.count is None for offer in standing for shape in offer.shapes)
    if standing and not uncounted and gpus > sum(counts):
        page.report(
            f"{place}.gpus", f"site {shown(name)} has {sum(counts):,} owned and reserved GPUs, fewer than {gpus:,}"
        )


def _check_doors(row: PolicyFileSection, page: Document, sites: SitesFile) -> None:
    doors = [*(site.id for site in sites.sites if site.front_door), *(manager.name for manager in sites.kueue)]
    for name, team in row.teams.items():
        for k, path in enumerate(team.namespaces):
            site = path.rpartition("/")[0]
            if site and site not in doors:
                place = f"teams.{name}.namespaces[{k}]"
                page.report(place, unknown(NO_DOOR, site, doors))


def _check_currency(row: PolicyFileSection, page: Document, sites: SitesFile) -> None:
    if row.currency is not None and row.currency != sites.currency:
        page.report("currency", f"the sites file counts in {sites.currency}; write the amounts in that currency")


def _check_said_once(row: PolicyFileSection, page: Document, sites: SitesFile) -> None:
    """What both files say is refused: nobody could tell which of the two holds."""
    capped = [f"teams.{name}.{key}" for name in row.teams for key in ("per_month", "per_hour")]
    same = {
        "policy": OPTIONS,
        "caps": ("organisation", "projects", *capped),
        "teams": ("teams",),
        "data_rules": ("data",),
    }
    for key, first, last in sites.moved:
        place = next((place for place in same[key] if place in page.lines), None)
        if place is not None:
            lines = f"line {first}" if first == last else f"lines {first} to {last}"
            page.report(place, f"the sites file says this, too, under '{key}'; delete {lines} there, or this here")
