"""Caches that are behind, as when an API server answers late: stories of several ways to rent stop them for a while."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.capacity.cluster_nodes import ClusterNodes
from penstock.kube.informer import Informer


@contextmanager
def behind(nodes: ClusterNodes, opened: Sequence[Informer], *caches: Informer) -> Iterator[None]:
    """Meanwhile these caches show what they showed last, and call it current. Afterwards they catch up. `opened`: the
    way's own informers, as it opened them.
    """
    places = [[*opened, nodes.nodes].index(cache) for cache in caches]
    for place in places:
        nodes.tasks[place].cancel()
    try:
        yield
    finally:
        for place, cache in zip(places, caches, strict=True):
            nodes.tasks[place] = asyncio.create_task(cache.run())
