"""The sites file: rows to the core's values, and what must make sense between them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.config.clusters import cluster_of
from penstock.config.maps import maps_of, site_has
from penstock.config.offers import Exchange, OfferMaker, on_demand_prices
from penstock.config.page import Page, plain, read_bytes, shown, unknown
from penstock.config.rows import FileRow, LocalRow, SiteRow, TierRow, rows
from penstock.core.ids import standing_node
from penstock.core.model import STANDING, DataRule, DataSet, EgressTier, Quoted, Site
from penstock.core.units import GB, HOUR, MINUTE, Instant, Millis, Money
from penstock.core.values import value
from penstock.kube.maps import Maps
from penstock.kube.places import ClusterSite

Rates: TypeAlias = dict[str, Exchange]


@value
class LocalSite:
    """How a site on this machine behaves; the offers say what it has."""

    notice_ms: Millis = 2_000  # from the warning until a spot node is taken away
    grace_ms: Millis = 10_000  # to write a last checkpoint at the deadline
    losses_ms: tuple[Millis, ...] = ()  # how long the first rented spot things live


@value
class Wishes:
    """What the file says about the policy of a running Penstock; commands that simulate have options for it."""

    value_of_waiting: Money | None = None  # of one job's hour; None: the usual
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


@value
class SitesFile:
    currency: str
    sites: tuple[Site, ...]
    data: tuple[DataSet, ...] = ()
    data_rules: tuple[DataRule, ...] = ()
    caps: tuple[tuple[str, Money | None, Money | None], ...] = ()  # scope, per month, per hour
    faults: tuple[tuple[Instant, str, Millis], ...] = ()  # at, what, lasts: for simulations
    notes: tuple[str, ...] = ()  # what is allowed but probably not meant, a sentence each
    local: tuple[tuple[str, LocalSite], ...] = ()  # sites on this machine
    rehearsed: tuple[str, ...] = ()  # sites whose world is simulated
    data_folders: tuple[tuple[str, str], ...] = ()  # data sets and where they lie on this machine
    policy: Wishes = Wishes()
    time_zone: str = "UTC"  # of the books' months
    maps: tuple[Maps, ...] = ()  # of the sites that run Kubernetes Jobs
    kubernetes: tuple[tuple[str, ClusterSite], ...] = ()  # sites that are clusters


def read_sites(path: str) -> SitesFile:
    """What the file says. Whatever is wrong with it is a `BadInput` of one sentence."""
    return parse_sites(read_bytes(path), path)


def parse_sites(raw: bytes, name: str) -> SitesFile:
    """As `read_sites`, of what was read already; `name` stands for the file in errors."""
    page = Page(name)
    file = rows(plain(raw, page), page)
    rates = _rates(file, page)
    _unique(page, "sites", [row.name for row in file.sites])
    sites = tuple(_site(row, rates, page, f"sites[{k}]") for k, row in enumerate(file.sites))
    return SitesFile(
        currency=str(file.currency),
        sites=sites,
        data=_data(file, page),
        data_rules=_data_rules(file, page),
        caps=_caps(file, page),
        faults=_faults(file, sites, page),
        notes=tuple(_notes(file, sites)),
        local=_local(file, page),
        rehearsed=tuple(str(row.name) for row in file.sites if row.driver == "rehearsal"),
        data_folders=tuple((str(row.name), str(row.folder)) for row in file.data if row.folder is not None),
        policy=_wishes(file),
        time_zone=_time_zone(file, page),
        maps=_maps(file, page),
        kubernetes=_clusters(file, page),
    )


def _rates(file: FileRow, page: Page) -> Rates:
    rates: Rates = {str(file.currency): Exchange(None)}
    for k, row in enumerate(file.rates):
        if row.currency in rates:
            page.refuse(f"rates[{k}].currency", f"there is a rate for {row.currency} already, or it is the file's own")
        quoted = Quoted(str(row.currency), int(row.rate), int(row.margin), str(row.dated))
        rates[str(row.currency)] = Exchange(quoted)
    return rates


def _site(row: SiteRow, rates: Rates, page: Page, place: str) -> Site:
    if not row.offers:
        page.refuse(f"{place}.offers", "this list is empty; a site needs at least one offer")
    _unique(page, f"{place}.offers", [offer.name for offer in row.offers])
    exchange = _exchange(row, rates, page, place)
    on_demand = on_demand_prices(row, exchange)
    return Site(
        id=str(row.name),
        offers=tuple(
            OfferMaker(row, offer, exchange, on_demand, page, f"{place}.offers[{k}]").offer()
            for k, offer in enumerate(row.offers)
        ),
        location=str(row.location or ""),
        operator=str(row.operator or ""),
        law=str(row.law or ""),
        grid_g_per_kwh=int(row.carbon_g_per_kwh),
        egress=_egress(row.egress, exchange, page, f"{place}.egress"),
        ingress_per_gb=exchange.ours(row.ingress_per_gb),
        front_door=bool(row.front_door),
        has=site_has(row, maps_of(row, page, place)),
    )


def _exchange(row: SiteRow, rates: Rates, page: Page, place: str) -> Exchange:
    if row.currency is None:
        return next(iter(rates.values()))
    if row.currency not in rates:
        page.refuse(f"{place}.currency", f"there is no rate for {row.currency}; add one to 'rates', with its date")
    return rates[row.currency]


def _egress(rows: tuple[TierRow, ...], exchange: Exchange, page: Page, place: str) -> tuple[EgressTier, ...]:
    below = 0
    for k, row in enumerate(rows):
        last = k == len(rows) - 1
        if last and row.up_to is not None:
            page.refuse(f"{place}[{k}]", "the last tier must have no 'up_to', or all beyond it would be free")
        if not last and row.up_to is None:
            page.refuse(f"{place}[{k}]", "only the last tier may be without 'up_to'")
        if row.up_to is not None:
            if row.up_to <= below or row.up_to % GB:
                page.refuse(f"{place}[{k}].up_to", "tiers rise, each by whole GB; the smallest comes first")
            below = row.up_to
    return tuple(EgressTier(None if row.up_to is None else row.up_to // GB, exchange.ours(row.per_gb)) for row in rows)


def _data(file: FileRow, page: Page) -> tuple[DataSet, ...]:
    _unique(page, "data", [row.name for row in file.data])
    for k, row in enumerate(file.data):
        _known(page, f"data[{k}].site", "there is no site", row.site, [site.name for site in file.sites])
    return tuple(DataSet(str(row.name), int(row.size), str(row.site), str(row.data_class or "")) for row in file.data)


def _data_rules(file: FileRow, page: Page) -> tuple[DataRule, ...]:
    _unique(page, "data_rules", [row.data_class for row in file.data_rules], "class")
    for k, row in enumerate(file.data_rules):
        for i, name in enumerate(row.sites):
            place = f"data_rules[{k}].sites[{i}]"
            _known(page, place, "there is no site", name, ["*", *(site.name for site in file.sites)])
    return tuple(
        DataRule(str(row.data_class), _strings(row.sites), _strings(row.locations), _strings(row.laws))
        for row in file.data_rules
    )


def _caps(file: FileRow, page: Page) -> tuple[tuple[str, Money | None, Money | None], ...]:
    _unique(page, "caps", [row.scope for row in file.caps], "scope")
    ours = Exchange(None).ours
    for k, row in enumerate(file.caps):
        if row.per_month is None and row.per_hour is None:
            page.refuse(f"caps[{k}]", "the key 'per_month' is missing, or 'per_hour'; a cap needs an amount")
    return tuple(
        (
            str(row.scope),
            None if row.per_month is None else ours(row.per_month),
            None if row.per_hour is None else ours(row.per_hour),
        )
        for row in file.caps
    )


def _faults(file: FileRow, sites: tuple[Site, ...], page: Page) -> tuple[tuple[Instant, str, Millis], ...]:
    for k, row in enumerate(file.faults):
        if not _can_break(row.what, sites):
            page.refuse(
                f"faults[{k}].what",
                f"{shown(row.what)} is neither a site nor a standing node; "
                "write SITE, or SITE/OFFER/NUMBER with numbers from 0",
            )
    return tuple((int(row.at), str(row.what), int(row.lasts)) for row in file.faults)


def _local(file: FileRow, page: Page) -> tuple[tuple[str, LocalSite], ...]:
    for k, row in enumerate(file.sites):
        if row.local is not None and row.driver != "local":
            page.refuse(f"sites[{k}].local", "this is for sites with 'driver: local'")
    said = [(str(row.name), row.local or LocalRow()) for row in file.sites if row.driver == "local"]
    return tuple(
        (name, LocalSite(int(row.notice), int(row.grace), tuple(int(one) for one in row.lost_after)))
        for name, row in said
    )


def _clusters(file: FileRow, page: Page) -> tuple[tuple[str, ClusterSite], ...]:
    for k, row in enumerate(file.sites):
        if row.kubernetes is not None and row.driver not in ("kubernetes", "rehearsal"):
            page.refuse(f"sites[{k}].kubernetes", "this is for sites with 'driver: kubernetes'")
    return tuple(
        (str(row.name), cluster_of(row, page, f"sites[{k}]"))
        for k, row in enumerate(file.sites)
        if row.driver == "kubernetes"
    )


def _maps(file: FileRow, page: Page) -> tuple[Maps, ...]:
    for k, row in enumerate(file.sites):
        if row.maps is not None and row.driver not in ("kubernetes", "rehearsal"):
            page.refuse(f"sites[{k}].maps", "this is for sites with 'driver: kubernetes'")
    return tuple(maps_of(row, page, f"sites[{k}]") for k, row in enumerate(file.sites) if row.driver == "kubernetes")


def _wishes(file: FileRow) -> Wishes:
    row = file.policy
    return Wishes(
        value_of_waiting=None if row.value_of_waiting is None else Exchange(None).ours(row.value_of_waiting),
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
    )


def _time_zone(file: FileRow, page: Page) -> str:
    name = str(file.time_zone or "UTC")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        page.refuse("time_zone", f"there is no time zone {shown(name)}; write it like Europe/Berlin")
    return name


def _can_break(what: str, sites: tuple[Site, ...]) -> bool:
    offer_id, number = standing_node(what)
    counts = {offer.id: offer.shapes[0].count or 0 for site in sites for offer in site.offers if offer.term in STANDING}
    is_node = number is not None and number < counts.get(offer_id, 0)
    return is_node or any(site.id == what for site in sites)


def _notes(file: FileRow, sites: tuple[Site, ...]) -> Iterator[str]:
    for offer in (offer for site in sites for offer in site.offers if offer.term not in STANDING):
        if offer.term == "spot" and any(shape.most_per_hour is None for shape in offer.shapes):
            yield f"{offer.id} is not eligible: a spot price without 'most' has no bound, and no cap could hold."
        elif offer.guarantee == "none":
            yield f"{offer.id} has no guarantee: a cap holds there only while Penstock runs."
    ruled = {row.data_class for row in file.data_rules}
    for data_class in dict.fromkeys(row.data_class for row in file.data if row.data_class):
        if data_class not in ruled:
            yield f"Data class '{data_class}' has no rule: its data stays where it lives."
    for rule in file.data_rules:
        for key, names, there in (
            ("location", rule.locations, {site.location for site in sites}),
            ("law", rule.laws, {site.law for site in sites}),
        ):
            for name in names:
                if name not in there:
                    yield f"The rule for data class '{rule.data_class}' names {key} {shown(name)}, and no site has it."


def _unique(page: Page, place: str, names: Sequence[str], key: str = "name") -> None:
    first: dict[str, int] = {}
    for k, name in enumerate(names):
        if first.setdefault(name, k) < k:
            page.refuse(f"{place}[{k}].{key}", f"{shown(name)} is taken by {place}[{first[name]}] already")


def _known(page: Page, place: str, what: str, word: str, known: Iterable[str]) -> None:
    known = list(known)
    if word not in known:
        page.refuse(place, unknown(what, word, known))


def _strings(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(one) for one in found)
