"""Builds one offer of a site from its row, or reports why it makes no sense. `sites` calls it."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final, NoReturn, TypeAlias

from penstock.config.clusters import place_of
from penstock.config.document import Document
from penstock.config.pools import pool_of
from penstock.config.renting import rules_of
from penstock.config.scalars import Amount, Count
from penstock.config.sections import ExtrasSection, MapsSection, OfferSection, PriceSection, ShapeSection, SiteSection
from penstock.core.model.types import STANDING, Extras, Guarantee, NodeShape, Offer, Quoted, SoldBy
from penstock.core.units import HOUR, MICRO, MINUTE, MOST_GPUS, MOST_PER_GB, MOST_PER_HOUR, Millis, Money, ceil_div
from penstock.formatting import duration
from penstock.kube.gpu_models import TPU_TOPOLOGY
from penstock.kube.job_needs import offer_has

#: What a rented offer is taken to be until somebody has said otherwise: rather too dear and too slow to stop than the
#: other way round, because money is held by these.
GPUS_PER_NODE: Final = 8  #: so a job of one GPU is priced as the node that may be made for it
BILLING_STEP_MS: Final = HOUR
KILL_MS: Final = 10 * MINUTE
GUARANTEE: Final = "none"  #: a cap is soft there


class Exchange:
    """From the currency of a site's prices to ours."""

    def __init__(self, quoted: Quoted | None) -> None:
        self.quoted = quoted
        rate, margin = (quoted.rate_ppm, quoted.margin_ppm) if quoted else (MICRO, 0)
        self.micros = Fraction(rate * (MICRO + margin), MICRO)  #: of ours for one unit of theirs

    def ours(self, amount: Fraction) -> Money:
        return math.ceil(amount * self.micros)


def check_price(price: Money | None, page: Document, place: str, per: str = "node and hour") -> None:
    """Bounded in our currency, so that all that is made of it can be stored."""
    most = MOST_PER_GB if per == "GB" else MOST_PER_HOUR
    if price is not None and price > most:
        page.report(place, f"this is {ceil_div(price, MICRO):,} of our currency per {per}; at most {most // MICRO:,}")


#: (GPU model, MIG profile, GPUs per node) -> what such a node costs on demand at this site
OnDemand: TypeAlias = dict[tuple[str, str, int], Money]


def on_demand_prices(row: SiteSection, exchange: Exchange) -> OnDemand:
    """The dearest where there are several: it bounds what a provider may charge for spot."""
    prices: OnDemand = {}
    for offer in row.offers:
        for shape in _shape_rows(offer) if offer.term == "on_demand" else ():
            price = shape.price or offer.price
            key = (str(offer.gpu), str(offer.mig or ""), int(shape.gpus_per_node))
            amounts = [a for a in (price.list_price, price.contract) if a is not None] if price else []
            for amount in amounts:
                prices[key] = max(prices.get(key, 0), exchange.ours(amount * _per(price, shape)))
    return prices


def standing_nodes(row: OfferSection) -> int:
    """How many nodes are owned or reserved; 0 where they are rented, or a cluster says it."""
    shapes = _shape_rows(row) if row.term in STANDING else ()
    return int(shapes[0].nodes or 0) if shapes else 0


def _shape_rows(row: OfferSection) -> tuple[ShapeSection, ...]:
    """An offer with one size of node may write its keys without a list."""
    if row.shapes is not None:
        return row.shapes
    gpus = row.gpus_per_node
    if gpus is None:
        gpus = None if row.term in STANDING else Count(GPUS_PER_NODE)
    return () if gpus is None else (ShapeSection(gpus, row.nodes, row.node_type, row.price),)


def _per(price: PriceSection | None, shape: ShapeSection) -> int:
    return int(shape.gpus_per_node) if price and price.per == "gpu_hour" else 1


#: Keys that say how rented things are billed or ended. A standing node is paid for whether used or not.
RENTED_ONLY: Final = (
    "limit_gpus",
    "sold_by",
    "billing_step",
    "billing_minimum",
    "kill",
    "guarantee",
    "extras",
    "rent",
    "warm",
)


def offer_of(
    row: OfferSection, page: Document, place: str, site: SiteSection, exchange: Exchange, on_demand: OnDemand, zone: str
) -> Offer:
    """`zone`: the organisation's time zone."""
    offer = _OfferMaker(row, page, place, site, exchange, on_demand).offer()
    return replace(offer, warm=page.attempt(pool_of, row, offer, page, place, zone)) if row.warm is not None else offer


class _OfferMaker:
    """One offer and all that it is judged by. Each check is an attempt of its own, so that all are made."""

    def __init__(
        self, row: OfferSection, page: Document, place: str, site: SiteSection, exchange: Exchange, on_demand: OnDemand
    ) -> None:
        self.row, self.site, self.exchange, self.on_demand = row, site, exchange, on_demand
        self.page, self.place = page, place

    @property
    def standing(self) -> bool:
        return self.row.term in STANDING

    def offer(self) -> Offer:
        row, attempt = self.row, self.page.attempt
        for check in (
            self._check_rented_keys,
            self._check_cluster,
            self._check_rent,
            self._check_guarantee,
            self._check_sizes,
            self._check_losses,
        ):
            attempt(check)
        shapes = attempt(self._shapes)
        attempt(self._check_limit, shapes)
        attempt(self._check_number, shapes)
        kill_ms, guarantee = self._end()
        return Offer(
            id=f"{self.site.name}/{row.name}",
            site=str(self.site.name),
            term=row.term,
            shapes=shapes,
            gpu_model=str(row.gpu),
            mig_profile=str(row.mig or ""),
            sold_by=self._sold_by(),
            start_ms=int(row.start),
            loss_ppm_per_hour=ceil_div(MICRO * HOUR, row.lost_every) if row.lost_every else 0,
            limit_gpus=None if row.limit_gpus is None else int(row.limit_gpus),
            extras=self._extras(),
            billing_step_ms=1 if self.standing else int(row.billing_step or BILLING_STEP_MS),
            billing_minimum_ms=int(row.billing_minimum or 0),
            kill_ms=kill_ms,
            guarantee=guarantee,
            quoted=self.exchange.quoted,
            has=attempt(self._has),
            family=self._family(),
            closed=self.page.source(f"{self.place}.closed") if row.closed else "",
            renewable=self._is_renewable(),
        )

    def _is_renewable(self) -> bool:
        """Whether the deadline of what is rented can be moved. Kueue fixes it when it admits a Workload."""
        if self.site.reached_by == "kueue":
            return self.standing
        return self.row.rent is None or rules_of(self.row.rent).renewable

    def _family(self) -> str:
        """As the row says it, or what its node types have before their first point: `p5` of `p5.48xlarge`."""
        if self.row.family is not None:
            return str(self.row.family)
        types = [self.row.node_type] if self.row.shapes is None else [shape.node_type for shape in self.row.shapes]
        families = {str(node_type or "").partition(".")[0] for node_type in types}
        return families.pop() if len(families) == 1 else ""

    def _has(self) -> tuple[str, ...]:
        """What its nodes have, for the engine's rule. Only clusters run Jobs that need any."""
        if self.site.reached_by != "kubernetes":
            return ()
        place, gpus = place_of(self.row), (self.site.maps or MapsSection()).gpus
        slices = self.row.rent.topology if self.row.rent is not None else None
        selector = place.selector if slices is None else (*place.selector, (TPU_TOPOLOGY, str(slices)))
        return offer_has(str(self.row.gpu), place.resource, selector, [(key, str(to)) for key, to in gpus.items()])

    def _report(self, key: str, problem: str) -> None:
        self.page.report(self.place + key, problem)

    def _refuse(self, key: str, problem: str) -> NoReturn:
        self.page.refuse(self.place + key, problem)

    def _check_rented_keys(self) -> None:
        for key in RENTED_ONLY if self.standing else ():
            if getattr(self.row, key) is not None:
                self._report(f".{key}", f"'{key}' is for rented offers; what is {self.row.term} is paid for anyway")

    def _check_cluster(self) -> None:
        if self.row.kubernetes is not None and self.site.reached_by != "kubernetes":
            self._report(".kubernetes", "this is for sites with 'driver: kubernetes'")
        if self.site.reached_by == "kueue" and self.row.sold_by == "node":
            self._report(".sold_by", "Kueue starts whole jobs, and rents no nodes; write 'attempt', or leave it out")
        if self.site.reached_by == "kubernetes" and self.row.sold_by == "node" and self.row.rent is None:
            self._report(".sold_by", "a cluster's nodes are not rented one by one; write 'attempt', or 'rent'")

    def _check_rent(self) -> None:
        """Nodes that are rented one by one, each with its own end."""
        row, rent = self.row, self.row.rent
        if rent is None:
            return
        if self.site.reached_by not in ("kubernetes", "rehearsal"):
            self._report(".rent", "this is for sites with 'driver: kubernetes'")
        if row.sold_by == "attempt":
            self._report(".sold_by", "with 'rent' nodes are billed one by one; write 'node', or leave it out")
        rules = rules_of(rent)
        if row.guarantee not in (None, *rules.guarantees):
            ends = " or ".join(f"'{way}'" for way in rules.guarantees)
            self._report(".guarantee", f"what is rented by '{rent.way}' ends by itself in another way: write {ends}")
        if row.kill is not None and row.kill < rules.least_kill_ms:
            least = duration(rules.least_kill_ms)
            self._report(".kill", f"what is rented by '{rent.way}' may take longer to go; write at least {least}")
        shapes = _shape_rows(row)
        if rent.instance_types and len(shapes) > 1:
            self._report(".rent.instance_types", "with several 'shapes' each has a 'node_type' of its own instead")
        if rules.by_type and not rent.instance_types and any(shape.node_type is None for shape in shapes):
            self._report(".rent", "the key 'instance_types' is missing, or a 'node_type' for each size of node")

    def _check_guarantee(self) -> None:
        """What only some sites can keep."""
        if self.row.guarantee == "watchman" and self.row.rent is None:
            self._report(".guarantee", "a watchman ends what is rented by 'rent: {way: cluster_api, ...}'")
        in_cluster = self.site.reached_by in ("kubernetes", "rehearsal") and self.row.rent is None
        if self.row.guarantee == "job" and not in_cluster:
            self._report(".guarantee", "'job' is the deadline of an attempt's own Job, in a cluster without 'rent'")

    def _check_sizes(self) -> None:
        for key in ("gpus_per_node", "nodes", "node_type") if self.row.shapes is not None else ():
            if getattr(self.row, key) is not None:
                self._report(f".{key}", f"with 'shapes', '{key}' belongs to each of them")

    def _check_losses(self) -> None:
        if self.row.lost_every is not None and self.row.lost_every < MINUTE:
            self._report(".lost_every", "a node that is lost within a minute runs nothing; write 1m or more")

    def _check_limit(self, shapes: tuple[NodeShape, ...]) -> None:
        if self.row.limit_gpus is not None and self.row.limit_gpus < shapes[0].gpus:
            least = f"the smallest node has {shapes[0].gpus} GPUs"
            self._report(".limit_gpus", f"{least}, so a limit of {self.row.limit_gpus} leaves none")

    def _check_number(self, shapes: tuple[NodeShape, ...]) -> None:
        gpus = sum(shape.gpus * (shape.count or 1) for shape in shapes)
        if gpus > MOST_GPUS:
            self._report("", f"its nodes have {gpus:,} GPUs; an offer has at most {MOST_GPUS:,}")

    def _sold_by(self) -> SoldBy:
        """By the attempt in a cluster, which makes nodes as pods ask for them."""
        if self.row.sold_by is not None:
            return self.row.sold_by
        in_cluster = self.site.reached_by in ("kubernetes", "kueue")
        by_attempt = in_cluster and not self.standing and self.row.rent is None
        return "attempt" if by_attempt else "node"

    def _end(self) -> tuple[Millis, Guarantee]:
        """How a rented thing ends without us. Where nobody has said, a cap there is soft, and said to be."""
        if self.standing:
            return 0, "max_run_time"
        unsaid: Guarantee = GUARANTEE if self.row.rent is None else rules_of(self.row.rent).guarantees[0]
        if self.site.reached_by == "kueue":
            unsaid = "max_run_time"  # Kueue itself ends a Workload
        return int(KILL_MS if self.row.kill is None else self.row.kill), self.row.guarantee or unsaid

    def _extras(self) -> Extras:
        row, ours = self.row.extras or ExtrasSection(), self.exchange.ours
        extras = Extras(
            disk_per_hour=ours(row.disk_per_hour),
            address_per_hour=ours(row.address_per_hour),
            cluster_per_hour=ours(row.cluster_per_hour),
            nat_per_gb=ours(row.nat_per_gb),
            launch_fee=ours(row.launch_fee),
        )
        for key in ("disk_per_hour", "address_per_hour", "cluster_per_hour", "nat_per_gb", "launch_fee"):
            per = {"nat_per_gb": "GB", "launch_fee": "node"}.get(key, "node and hour")
            check_price(getattr(extras, key), self.page, f"{self.place}.extras.{key}", per)
        return extras

    def _shapes(self) -> tuple[NodeShape, ...]:
        rows = _shape_rows(self.row)
        if not rows:
            self._refuse("", "the key 'gpus_per_node' is missing, or 'shapes' with one for each size of node")
        if self.standing and len(rows) > 1:
            self._report(
                ".shapes", f"an offer that is {self.row.term} has one size of node; make a further offer of each other"
            )
        shared = self.row.price if any(row.price is None for row in rows) else None
        if shared is not None and shared.per == "node_hour" and len(rows) > 1:
            self._report(".price", "nodes of several sizes cannot share a price per node_hour; give each its own")
        sizes: set[int] = set()
        made = [self.page.attempt(self._shape, row, self._at(k), sizes) for k, row in enumerate(rows)]
        return tuple(sorted(made, key=lambda shape: shape.gpus))

    def _at(self, k: int) -> str:
        return f".shapes[{k}]" if self.row.shapes else ""

    def _shape(self, row: ShapeSection, at: str, sizes: set[int]) -> NodeShape:
        self.page.attempt(self._check_size, row, at, sizes)
        if self.standing and row.nodes is None and self.site.reached_by != "kubernetes":
            self._report(at, f"the key 'nodes' is missing; what is {self.row.term} has a number of nodes")
        price, at = self._price(row, at)
        ours = self._ours(price, row)
        list_per_hour = ours(price.list_price) or 0
        contract_per_hour = ours(price.contract)
        paid = list_per_hour if contract_per_hour is None else contract_per_hour
        if not self.standing and not paid:
            self._report(at, "a rented node costs something; its price is zero")
        shape = NodeShape(
            gpus=int(row.gpus_per_node),
            count=None if row.nodes is None else int(row.nodes),
            list_per_hour=list_per_hour,
            contract_per_hour=contract_per_hour,
            most_per_hour=self._most(price, row, paid, f"{at}.most"),
            marginal_per_hour=ours(price.marginal) or 0,
            name=str(row.node_type or ""),
        )
        for amount in (shape.list_per_hour, contract_per_hour, shape.most_per_hour, shape.marginal_per_hour):
            check_price(amount, self.page, f"{self.place}{at}")
        return shape

    def _check_size(self, row: ShapeSection, at: str, sizes: set[int]) -> None:
        if row.gpus_per_node in sizes:
            self._report(at, f"a shape of {row.gpus_per_node} GPUs is here already; make an offer of this one")
        sizes.add(int(row.gpus_per_node))

    def _price(self, row: ShapeSection, at: str) -> tuple[PriceSection, str]:
        """The shape's own price, or the offer's, and where it stands."""
        price, at = (row.price, f"{at}.price") if row.price is not None else (self.row.price, ".price")
        if price is None:
            if self.standing:
                return PriceSection("node_hour"), at
            self._refuse("", f"the key 'price' is missing; an offer that is {self.row.term} has one")
        for key, wrong in (("most", self.standing), ("marginal", not self.standing)):
            if wrong and getattr(price, key) is not None:
                whose = "rented" if self.standing else "owned and reserved"
                self._report(f"{at}.{key}", f"'{key}' is for {whose} offers, and this one is {self.row.term}")
        if not self.standing and price.list_price is None:
            self._refuse(at, "the key 'list' is missing; it is what the provider asks of everyone")
        return price, at

    def _ours(self, price: PriceSection, row: ShapeSection) -> Callable[[Amount | None], Money | None]:
        return lambda amount: None if amount is None else self.exchange.ours(amount * _per(price, row))

    def _most(self, price: PriceSection, row: ShapeSection, paid: Money, at: str) -> Money | None:
        if price.most is None:
            return None
        most = self._ours(price, row)(price.most.amount)
        if most is None:
            most = self.on_demand.get((str(self.row.gpu), str(self.row.mig or ""), int(row.gpus_per_node)))
        if most is None:
            node = f"{row.gpus_per_node} x {self.row.gpu}"
            self._refuse(at, f"'{self.site.name}' has no on_demand offer of {node} to take it from; write an amount")
        if most < paid:
            self._report(at, "the most that can be charged is less than the price")
        return most
