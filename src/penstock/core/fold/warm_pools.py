"""Warm pools of offers: which there are, what nodes they have ready, and which lack money. Part of the state.

A warm node is a `Node` in `State.nodes`, as any that is rented; here is which of them no job has taken.
"""

from collections.abc import Iterator

from penstock.core.model.events import DemandForecast
from penstock.core.model.reasons import Denial, NothingAllowed
from penstock.core.model.types import Offer
from penstock.core.units import Instant


class WarmPools:
    __slots__ = ("forecast", "nodes", "numbered", "offers", "short")

    def __init__(self) -> None:
        self.offers: dict[str, Offer] = {}  #: with a pool, by id
        #: Nodes that were rented ahead, or kept, and that no job has taken: asked for, or idle. Each is its pool's.
        self.nodes: dict[str, None] = {}
        #: Offers whose pool has no money, or that a rule forbids: when it asks again, and why.
        self.short: dict[str, tuple[Instant, Denial | NothingAllowed]] = {}
        self.numbered = 0  #: nodes that were rented ahead so far
        self.forecast: DemandForecast | None = None  #: the latest

    def canonical(self) -> Iterator[object]:
        """For digests: the same is known in the same order. Nothing where no offer ever had a pool."""
        if self.offers or self.numbered:
            yield (list(self.nodes), list(self.offers), list(self.short.items()), self.numbered)
