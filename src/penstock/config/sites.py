"""Parses the sites file: builds the core's sites from rows, and checks what must hold between them. `wiring` and
commands call `read_sites`.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, Final, Literal, ParamSpec, TypeAlias, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.config.clusters import A_NAMESPACE, cluster_of
from penstock.config.convert import Section, converted
from penstock.config.document import UNREAD, Document, plain, read_bytes, shown, unknown
from penstock.config.kueue import managers_of, queue_of, queues_of
from penstock.config.maps import maps_of, site_has
from penstock.config.offers import Exchange, check_price, offer_of, on_demand_prices, standing_nodes
from penstock.config.scalars import SCALARS, Name
from penstock.config.sections import (
    CapSection,
    DataRuleSection,
    DataSection,
    FaultSection,
    FileSection,
    LocalSection,
    PolicySection,
    RateSection,
    SiteSection,
    TierSection,
)
from penstock.config.teams import Team, teams_of
from penstock.config.transient import by_attempt, transient_of
from penstock.core.model.governance import NONE, Governance
from penstock.core.model.types import STANDING, DataRule, DataSet, EgressTier, Offer, Quoted, Site
from penstock.core.units import GB, HOUR, MICRO, MINUTE, SECOND, Instant, Millis, Money
from penstock.core.values import value
from penstock.kube.kueue_manager import KueueManager, KueueSite
from penstock.kube.maps import Maps
from penstock.kube.node_selection import ClusterSite

P = ParamSpec("P")
R = TypeVar("R", bound=Section)
T = TypeVar("T")
Rates: TypeAlias = dict[str, Exchange]
A_CONFIG_MAP: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: Keys that say what may be done, and not what exists: they belong into a policy file.
MOVED: Final = ("policy", "caps", "teams", "data_rules")


@value
class LocalSite:
    """How a site on this machine behaves; the offers say what it has."""

    notice_ms: Millis = 2_000  # from the warning until a spot node is taken away
    grace_ms: Millis = 10_000  # to write a last checkpoint at the deadline
    losses_ms: tuple[Millis, ...] = ()  # how long the first rented spot things live
    folder: str = ""  # where jobs with users of their own have their folders; empty: the usual place
    pass_env: tuple[str, ...] = ()  # variables of Penstock's own environment that jobs see besides the usual ones
    log_bytes: int = 256 << 20  # of one attempt
    memory: int = 0  # bytes of one attempt, where there are cgroups; 0: no limit
    processes: int = 16_384  # of one job with a user of its own, threads included


@value
class PolicyOptions:
    """What the file says about the policy of a running Penstock; commands that simulate have options for it."""

    cost_of_delay: Money = 20 * MICRO  # of one job's hour
    longest_wait_ms: Millis = 23 * HOUR
    come_home: bool = True
    share_nodes: bool = True
    stay_ms: Millis = 30 * MINUTE
    least_left_ms: Millis = 30 * MINUTE
    least_lease_ms: Millis = 10 * MINUTE
    preempt: bool = False
    displace: bool = False
    when_exhausted: Literal["checkpoint_stop", "move_home"] = "checkpoint_stop"
    hard_caps: bool = False
    hard_caps_source: str = ""  # file and line


@value
class ConfigMapKey:
    """The key of a ConfigMap in a home cluster that has the policy file."""

    site: str
    namespace: str
    name: str
    key: str = "policy.yaml"

    @property
    def title(self) -> str:
        """As sentences and rules name it."""
        return f"ConfigMap {self.namespace}/{self.name}"


@value
class SitesFile:
    currency: str
    sites: tuple[Site, ...]
    data: tuple[DataSet, ...] = ()
    data_rules: tuple[DataRule, ...] = ()
    caps: tuple[tuple[str, Money | None, Money | None], ...] = ()  # scope, per month, per hour
    cap_sources: tuple[tuple[str, str], ...] = ()  # scope; file and line
    faults: tuple[tuple[Instant, str, Millis], ...] = ()  # at, what, lasts: for simulations
    notes: tuple[str, ...] = ()  # what is allowed but probably not meant, a sentence each
    local: tuple[tuple[str, LocalSite], ...] = ()  # sites on this machine
    rehearsed: tuple[str, ...] = ()  # sites whose world is simulated
    data_folders: tuple[tuple[str, str], ...] = ()  # data sets and where they lie on this machine
    policy: PolicyOptions = PolicyOptions()
    time_zone: str = "UTC"  # of the budget periods
    maps: tuple[Maps, ...] = ()  # of the sites that run Kubernetes Jobs
    kubernetes: tuple[tuple[str, ClusterSite], ...] = ()  # sites that are clusters
    kueue: tuple[KueueManager, ...] = ()  # whose Workloads are governed
    queues: tuple[tuple[str, KueueSite], ...] = ()  # sites that they are started at
    teams: tuple[Team, ...] = ()  # what each team may use
    data_teams: tuple[tuple[str, tuple[str, ...]], ...] = ()  # data sets that only these teams may use
    policy_config_map: ConfigMapKey | None = None  # where the policy file comes from, instead of a file
    governance: Governance = NONE  # what a policy file says; see `policy.file.governed`
    moved: tuple[
        tuple[str, int, int], ...
    ] = ()  # what it has that belongs into a policy file: key, first and last line


def read_sites(path: str) -> SitesFile:
    """What the file says. All that is wrong with it is one `BadFile`; keys by their old names are told to stderr."""
    page, raw = Document(path), read_bytes(path)
    made = _parsed(raw, page)
    for notice in (*page.notices, *_moved_notice(made, path)):
        sys.stderr.write(f"Notice: {notice}\n")
    return made


def _moved_notice(made: SitesFile, path: str) -> Iterator[str]:
    if made.moved:
        keys = " and ".join(f"'{key}' (line {first})" for key, first, _ in made.moved)
        move = "moves" if len(made.moved) == 1 else "move"
        yield f"{path}: {keys} {move} to a policy file, which --policy names; the old place works for a release."


def parse_sites(raw: bytes, name: str) -> SitesFile:
    """As `read_sites`, of what was read already; `name` stands for the file in errors."""
    return _parsed(raw, Document(name))


def _parsed(raw: bytes, page: Document) -> SitesFile:
    return page.whole(lambda: _sites_file(converted(plain(raw, page), FileSection, page), page))


def sites_of(keys: object, page: Document) -> SitesFile:
    """Sites that stand in another file, under the same keys."""
    return _sites_file(converted(keys, FileSection, page), page)


def _sites_file(file: FileSection, page: Document) -> SitesFile:
    """Each part is attempted by itself, so that all of them are checked."""
    attempt = page.attempt
    rates = attempt(_rates, file, page)
    maps = attempt(lambda: _each(page, "sites", file.sites, maps_of))
    sites = attempt(_sites, file, rates, maps, page)
    data, data_rules = attempt(_data, file, page), attempt(_data_rules, file, page)
    return SitesFile(
        currency=attempt(lambda: str(file.currency)),
        sites=sites,
        data=data,
        data_rules=data_rules,
        caps=attempt(_caps, file, page),
        cap_sources=attempt(_cap_sources, file, page),
        faults=attempt(_faults, file, page),
        notes=attempt(notes_of, sites, data, data_rules),
        local=attempt(_local, file, page),
        rehearsed=attempt(lambda: tuple(str(row.name) for row in file.sites if row.driver == "rehearsal")),
        data_folders=attempt(_data_folders, file),
        policy=attempt(options_of, file.policy, page, "policy"),
        policy_config_map=attempt(_config_map, file, page),
        time_zone=attempt(_time_zone, file, page),
        maps=attempt(_maps, file, maps),
        kubernetes=attempt(_clusters, file, maps, page),
        kueue=attempt(managers_of, file, page),
        queues=attempt(queues_of, file, page),
        teams=attempt(_teams, file, page),
        data_teams=attempt(lambda: tuple((str(row.name), _strings(row.teams)) for row in file.data if row.teams)),
        moved=tuple((key, *page.span(key)) for key in MOVED if key in page.lines),
    )


def _each(
    page: Document,
    place: str,
    rows: Sequence[R],
    make: Callable[Concatenate[R, Document, str, P], T],
    *args: P.args,
    **more: P.kwargs,
) -> tuple[T, ...]:
    """What `make` makes of each row; one that makes no sense does not keep the others from being checked."""
    return tuple(page.attempt(make, row, page, f"{place}[{k}]", *args, **more) for k, row in enumerate(rows))


def _rates(file: FileSection, page: Document) -> Rates:
    own = page.attempt(lambda: str(file.currency))
    rates: Rates = {"" if own is UNREAD else own: Exchange(None)}
    page.attempt(lambda: _each(page, "rates", file.rates, _add_rate, rates))
    return rates


def _add_rate(row: RateSection, page: Document, place: str, rates: Rates) -> None:
    if row.currency in rates:
        page.refuse(f"{place}.currency", f"there is a rate for {row.currency} already, or it is the file's own")
    rates[str(row.currency)] = Exchange(None)  # stands in, so that a site's prices are checked if its rate is unread
    rates[str(row.currency)] = Exchange(Quoted(str(row.currency), int(row.rate), int(row.margin), str(row.dated)))


def _sites(file: FileSection, rates: Rates, maps: Sequence[Maps], page: Document) -> tuple[Site, ...]:
    if not file.sites:
        page.refuse("sites", "this list is empty; at least one site is needed")
    _unique(page, "sites", file.sites)
    page.attempt(_check_queues, file, page)
    return tuple(
        page.attempt(_site, row, rates, mapped, page, f"sites[{k}]", str(file.time_zone or "UTC"))
        for k, (row, mapped) in enumerate(zip(file.sites, maps, strict=True))
    )


def _site(row: SiteSection, rates: Rates, maps: Maps, page: Document, place: str, zone: str) -> Site:
    exchange = page.attempt(_exchange, row, rates, page, place)
    exchange = Exchange(None) if exchange is UNREAD else exchange
    egress = page.attempt(_egress, row.egress, exchange, page, f"{place}.egress")
    cluster = page.attempt(transient_of, row, exchange, page, place)
    page.attempt(lambda: check_price(exchange.ours(row.ingress_per_gb), page, f"{place}.ingress_per_gb", per="GB"))
    return Site(
        offers=by_attempt(_offers(row, exchange, page, place, zone), cluster),
        id=str(row.name),
        location=str(row.location or ""),
        operator=str(row.operator or ""),
        law=str(row.law or ""),
        grid_g_per_kwh=int(row.carbon_g_per_kwh),
        egress=egress,
        ingress_per_gb=exchange.ours(row.ingress_per_gb),
        front_door=bool(row.front_door),
        has=site_has(row, maps),
        cloud=str(row.cloud or ""),
        region=str(row.region or ""),
        only=queue_of(row.kueue).need if row.reached_by == "kueue" and row.kueue is not None else "",
        cluster=cluster,
    )


def _offers(row: SiteSection, exchange: Exchange, page: Document, place: str, zone: str) -> tuple[Offer, ...]:
    if not row.offers:
        page.refuse(f"{place}.offers", "this list is empty; a site needs at least one offer")
    _unique(page, f"{place}.offers", row.offers)
    on_demand = page.attempt(on_demand_prices, row, exchange)
    return _each(page, f"{place}.offers", row.offers, offer_of, row, exchange, on_demand, zone)


def _exchange(row: SiteSection, rates: Rates, page: Document, place: str) -> Exchange:
    if row.currency is None:
        return next(iter(rates.values()))
    if row.currency not in rates:
        page.report(f"{place}.currency", f"there is no rate for {row.currency}; add one to 'rates', with its date")
    return rates.get(row.currency, Exchange(None))


def _egress(rows: tuple[TierSection, ...], exchange: Exchange, page: Document, place: str) -> tuple[EgressTier, ...]:
    below = 0
    for k, row in enumerate(rows):
        last = k == len(rows) - 1
        if last and row.up_to is not None:
            page.report(f"{place}[{k}]", "the last tier must have no 'up_to', or all beyond it would be free")
        if not last and row.up_to is None:
            page.report(f"{place}[{k}]", "only the last tier may be without 'up_to'")
        if row.up_to is not None and not last:
            if row.up_to <= below or row.up_to % GB:
                page.report(f"{place}[{k}].up_to", "tiers rise, each by whole GB; the smallest comes first")
            below = row.up_to
        check_price(exchange.ours(row.per_gb), page, f"{place}[{k}].per_gb", per="GB")
    return tuple(EgressTier(None if row.up_to is None else row.up_to // GB, exchange.ours(row.per_gb)) for row in rows)


def _data(file: FileSection, page: Document) -> tuple[DataSet, ...]:
    _unique(page, "data", file.data)
    return _each(page, "data", file.data, _data_set, file)


def _data_set(row: DataSection, page: Document, place: str, file: FileSection) -> DataSet:
    _known_site(row.site, (), file, page, f"{place}.site")
    return DataSet(str(row.name), int(row.size), str(row.site), str(row.data_class or ""))


def _data_folders(file: FileSection) -> tuple[tuple[str, str], ...]:
    return tuple((str(row.name), str(row.folder)) for row in file.data if row.folder is not None)


def _data_rules(file: FileSection, page: Document) -> tuple[DataRule, ...]:
    _unique(page, "data_rules", file.data_rules, "class", "data_class")
    return _each(page, "data_rules", file.data_rules, _data_rule, file)


def _data_rule(row: DataRuleSection, page: Document, place: str, file: FileSection) -> DataRule:
    for i, name in enumerate(row.sites):
        page.attempt(_known_site, name, ("*",), file, page, f"{place}.sites[{i}]")
    return DataRule(str(row.data_class), _strings(row.sites), _strings(row.locations), _strings(row.laws))


def _cap_sources(file: FileSection, page: Document) -> tuple[tuple[str, str], ...]:
    return tuple([(str(row.scope), page.source(f"caps[{k}]")) for k, row in enumerate(file.caps)])


def _caps(file: FileSection, page: Document) -> tuple[tuple[str, Money | None, Money | None], ...]:
    _unique(page, "caps", file.caps, "scope", "scope")
    return _each(page, "caps", file.caps, _cap)


def _cap(row: CapSection, page: Document, place: str) -> tuple[str, Money | None, Money | None]:
    if row.per_month is None and row.per_hour is None:
        page.refuse(place, "the key 'per_month' is missing, or 'per_hour'; a cap needs an amount")
    ours = Exchange(None).ours
    per_month = None if row.per_month is None else ours(row.per_month)
    return str(row.scope), per_month, None if row.per_hour is None else ours(row.per_hour)


def _teams(file: FileSection, page: Document) -> tuple[Team, ...]:
    _unique(page, "teams", file.teams)
    doors = [*(str(site.name) for site in file.sites if site.front_door), *(str(row.name) for row in file.kueue)]
    return teams_of(file.teams, doors, page)


def _faults(file: FileSection, page: Document) -> tuple[tuple[Instant, str, Millis], ...]:
    return _each(page, "faults", file.faults, _fault, file)


def _fault(row: FaultSection, page: Document, place: str, file: FileSection) -> tuple[Instant, str, Millis]:
    if not _can_break(row.what, file):
        page.refuse(
            f"{place}.what",
            f"{shown(row.what)} is neither a site nor a standing node; "
            "write SITE, or SITE/OFFER/NUMBER with numbers from 0",
        )
    return int(row.at), str(row.what), int(row.lasts)


def _can_break(name: str, file: FileSection) -> bool:
    """By the rows, and not by what was made of them: what cannot be read may be the very thing that is meant."""
    if any(site.name == name for site in file.sites):
        return True
    if not re.fullmatch(".+/.+/(0|[1-9][0-9]{0,6})", name):
        return False
    offer_id, _, number = name.rpartition("/")
    offers = [offer for site in file.sites for offer in site.offers if f"{site.name}/{offer.name}" == offer_id]
    return any(int(number) < standing_nodes(offer) for offer in offers)


def _local(file: FileSection, page: Document) -> tuple[tuple[str, LocalSite], ...]:
    made = _each(page, "sites", file.sites, _local_site)
    return tuple(site for site in made if site is not None)


def _local_site(row: SiteSection, page: Document, place: str) -> tuple[str, LocalSite] | None:
    if row.local is not None and row.reached_by != "local":
        page.refuse(f"{place}.local", "this is for sites with 'driver: local'")
    if row.reached_by != "local":
        return None
    section = row.local or LocalSection()
    losses = tuple(int(seconds) for seconds in section.lost_after)
    if section.folder is not None and not section.folder.startswith("/"):
        page.report(f"{place}.local.folder", f"{shown(section.folder)} must begin with /")
    return str(row.name), LocalSite(
        notice_ms=int(section.notice),
        grace_ms=int(section.grace),
        losses_ms=losses,
        folder=str(section.folder or ""),
        pass_env=tuple(str(name) for name in section.pass_env),
        log_bytes=int(section.log_limit),
        memory=int(section.memory or 0),
        processes=int(section.processes),
    )


def _clusters(file: FileSection, maps: Sequence[Maps], page: Document) -> tuple[tuple[str, ClusterSite], ...]:
    rows = enumerate(zip(file.sites, maps, strict=True))
    made = [page.attempt(cluster_of, row, mapped, page, f"sites[{k}]") for k, (row, mapped) in rows]
    return tuple(site for site in made if site is not None)


def _maps(file: FileSection, maps: Sequence[Maps]) -> tuple[Maps, ...]:
    return tuple(site_maps for row, site_maps in zip(file.sites, maps, strict=True) if row.reached_by == "kubernetes")


def options_of(row: PolicySection, page: Document, place: str) -> PolicyOptions:
    """Also of a policy file, which has the same keys."""
    if row.least_lease < SECOND:
        page.report(
            f"{place}.least_lease".lstrip("."),
            "leases this short leave no time for anything but renewing; write 1s or more",
        )
    return PolicyOptions(
        cost_of_delay=Exchange(None).ours(row.cost_of_delay),
        longest_wait_ms=int(row.longest_wait),
        come_home=bool(row.come_home),
        share_nodes=bool(row.share_nodes),
        stay_ms=int(row.stay),
        least_left_ms=int(row.least_left),
        least_lease_ms=int(row.least_lease),
        preempt=bool(row.preempt),
        displace=bool(row.displace),
        when_exhausted=row.when_exhausted,
        hard_caps=bool(row.hard_caps),
        hard_caps_source=page.source(f"{place}.hard_caps".lstrip(".")) if row.hard_caps else "",
    )


def _time_zone(file: FileSection, page: Document) -> str:
    name = str(file.time_zone or "UTC")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        page.refuse("time_zone", f"there is no time zone {shown(name)}; write it like Europe/Berlin")
    return name


def notes_of(sites: Iterable[Site], data: Iterable[DataSet], rules: Sequence[DataRule]) -> tuple[str, ...]:
    """What is allowed but probably not meant, a sentence each."""
    return (*_offer_notes(sites), *data_notes(list(sites), data, rules))


def _offer_notes(sites: Iterable[Site]) -> Iterator[str]:
    for offer in (offer for site in sites for offer in site.offers if offer.term not in STANDING):
        if offer.term == "spot" and any(shape.most_per_hour is None for shape in offer.shapes):
            yield f"{offer.id} is not eligible: a spot price without 'most' has no bound, and no cap could hold."
        elif offer.guarantee == "none":
            yield f"{offer.id} has no guarantee: a cap holds there only while Penstock runs."


def data_notes(sites: Sequence[Site], data: Iterable[DataSet], rules: Sequence[DataRule]) -> Iterator[str]:
    ruled = {rule.data_class for rule in rules}
    for data_class in dict.fromkeys(item.data_class for item in data if item.data_class):
        if data_class not in ruled:
            yield f"Data class '{data_class}' has no rule: its data stays where it lives."
    for rule in rules:
        for key, names, known in (
            ("location", rule.locations, {site.location for site in sites}),
            ("law", rule.laws, {site.law for site in sites}),
        ):
            for name in names:
                if name not in known:
                    yield f"The rule for data class '{rule.data_class}' names {key} {shown(name)}, and no site has it."


def unmatched_caps(file: SitesFile) -> Iterator[str]:
    """Caps that bind nobody in a running Penstock, a sentence each. A trace's teams may have any name."""
    for scope, _, _ in file.caps:
        kind, _, name = scope.partition(":")
        form, reader = SCALARS[Name]
        if name and reader(name) is None:
            yield f"The cap of {shown(scope)} binds nobody: no {kind} can have this name, only {form}."


def _unique(page: Document, place: str, rows: Sequence[Section], key: str = "name", field: str = "name") -> None:
    first: dict[str, int] = {}
    for k, row in enumerate(rows):
        page.attempt(_take_name, page, place, k, row, key, field, first)


def _take_name(page: Document, place: str, k: int, row: Section, key: str, field: str, first: dict[str, int]) -> None:
    name = str(getattr(row, field))
    if first.setdefault(name, k) < k:
        page.report(f"{place}[{k}].{key}", f"{shown(name)} is taken by {place}[{first[name]}] already")


def _check_queues(file: FileSection, page: Document) -> None:
    """A message of a queue goes to whoever reads it first: two sites would take each other's notices away."""
    first: dict[str, str] = {}
    for k, site in enumerate(file.sites):
        for n, offer in enumerate(site.offers):
            queue = offer.rent.notices if offer.rent is not None else None
            if queue is not None and (other := first.setdefault(str(queue), str(site.name))) != site.name:
                where = f"sites[{k}].offers[{n}].rent.notices"
                page.report(where, f"site '{other}' reads this queue already; make a queue for each site")


def _known_site(name: str, also: tuple[str, ...], file: FileSection, page: Document, place: str) -> None:
    """Of sites whose own name cannot be read, one may be meant: then nothing is said."""
    known = [*also, *(site.name for site in file.sites)]
    if name not in known:
        page.report(place, unknown("there is no site", name, known))


def _config_map(file: FileSection, page: Document) -> ConfigMapKey | None:
    row, place = file.policy_config_map, "policy_config_map"
    if row is None:
        return None
    homes = [site for site in file.sites if site.front_door and site.reached_by == "kubernetes"]
    home = next((site for site in homes if site.name == row.site), None)
    if home is None:
        known = [str(site.name) for site in homes]
        page.refuse(f"{place}.site", unknown("there is no cluster with 'front_door: true' named", row.site, known))
    own = str(home.kubernetes.namespace) if home.kubernetes is not None else "penstock"
    for key, name, form in (("namespace", row.namespace or own, A_NAMESPACE), ("name", row.name, A_CONFIG_MAP)):
        if name is not UNREAD and not form.fullmatch(name):
            page.report(f"{place}.{key}", f"{shown(name)} is not a {'ConfigMap' if key == 'name' else key}'s name")
    return ConfigMapKey(str(row.site), str(row.namespace or own), str(row.name), str(row.key))


def _strings(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(text) for text in texts)
