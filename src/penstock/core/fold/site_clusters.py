"""Transient clusters of sites: which sites have one, what is up, who uses it and who wants it. Part of the state.

The cluster itself is a `Node` without GPUs in `State.nodes`, with a hold of its own; here is what a node does not have.
"""

from collections.abc import Iterator

from penstock.core.model.reasons import Denial
from penstock.core.model.types import TransientCluster
from penstock.core.units import Instant


class SiteClusters:
    __slots__ = ("kept", "leaving", "live", "numbered", "short", "terms", "unused_at", "used_by")

    def __init__(self) -> None:
        self.terms: dict[str, TransientCluster] = {}  #: by site, as its site says now
        self.live: dict[str, str] = {}  #: by site: its cluster's node, from its promise until it is gone
        self.used_by: dict[str, dict[str, None]] = {}  #: by site: attempts that are promised or run there
        self.unused_at: dict[str, Instant] = {}  #: by site: since when no attempt uses the cluster that it has
        self.kept: dict[str, Instant] = {}  #: by site: until when a person wants its cluster
        self.leaving: dict[str, None] = {}  #: sites whose cluster a person sent away
        #: By site: there is no money for what a person wants; when it is asked again, and why.
        self.short: dict[str, tuple[Instant, Denial]] = {}
        self.numbered = 0  #: clusters that were asked for so far

    def canonical(self) -> Iterator[object]:
        """For digests: the same is known in the same order. Nothing where no site ever had one."""
        if self.terms or self.numbered:
            yield (self.numbered, list(self.terms.items()), list(self.live.items()), list(self.unused_at.items()))
            yield [(site, list(attempts)) for site, attempts in self.used_by.items()]
            yield (list(self.kept.items()), list(self.leaving), list(self.short.items()))
