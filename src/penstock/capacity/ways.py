"""What rents the nodes of a cluster: one `Capacity` for each way that its offers name, behind one contract. A cluster's
driver asks `capacity_of`; a new way is a row of `_ways`.
"""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

from penstock.capacity.cluster_api import ClusterApiNodes
from penstock.capacity.cluster_nodes import RentingSite
from penstock.capacity.contract import Capacity, NoNodes, SeenNode
from penstock.capacity.karpenter import KarpenterNodes
from penstock.core.errors import BadInput
from penstock.core.model.actions import LaunchNode
from penstock.core.units import Instant
from penstock.extras import install
from penstock.kube.node_selection import AksWay, ClusterApiWay, EksWay, GkeWay, KarpenterWay, OvhWay, RentWay
from penstock.site_answers import Refused, Say, Unreachable


def _ways() -> dict[type[RentWay], Callable[[RentingSite], Capacity]]:
    return {
        KarpenterWay: KarpenterNodes,
        ClusterApiWay: ClusterApiNodes,
        EksWay: _eks,
        AksWay: _aks,
        GkeWay: _gke,
        OvhWay: _ovh,
    }


def _eks(site: RentingSite) -> Capacity:
    from penstock.capacity import eks, pools

    _check_extra(site, "eks", "boto3")
    connect = lambda way: pools.PoolsInThreads(lambda: eks.connect(way))  # noqa: E731 - as for the others
    return pools.NodePools(site, EksWay, connect, queue_of=eks.queue_of)


def _aks(site: RentingSite) -> Capacity:
    from penstock.capacity import aks, pools

    _check_extra(site, "aks", "azure.mgmt.containerservice", "azure.identity")
    longest = aks.LONGEST_NAME
    return pools.NodePools(site, AksWay, lambda way: pools.PoolsInThreads(lambda: aks.connect(way)), longest)


def _gke(site: RentingSite) -> Capacity:
    from penstock.capacity import gke, pools

    _check_extra(site, "gke", "google.auth", "requests")
    return pools.NodePools(site, GkeWay, lambda way: pools.PoolsInThreads(lambda: gke.connect(way)))


def _ovh(site: RentingSite) -> Capacity:
    from penstock.capacity import ovh, pools

    return pools.NodePools(site, OvhWay, lambda _: ovh.OvhPools(site.cluster))


def _check_extra(site: RentingSite, extra: str, *modules: str) -> None:
    """An SDK is imported when it is first needed, off the event loop; whether it is there is known before."""
    for module in modules:
        try:
            there = find_spec(module) is not None
        except ModuleNotFoundError:  # a package that it would be in
            there = False
        if not there:
            words = f"Site {site.name} rents nodes with 'way: {extra}', which needs packages"
            raise BadInput(f"{words}: {install(extra)}")


def capacity_of(site: RentingSite) -> Capacity:
    """By what the site's offers say now. Another way later needs a restart (`site_drivers`)."""
    kinds = dict.fromkeys([type(place.rent.way) for _, place in site.offers().values() if place.rent is not None])
    ways = {kind: _ways()[kind](site) for kind in kinds}
    if len(ways) > 1:
        return SeveralWays(site, ways)
    return next(iter(ways.values()), NoNodes())


class SeveralWays(Capacity):
    """A site whose offers are rented in different ways."""

    def __init__(self, site: RentingSite, ways: dict[type[RentWay], Capacity]) -> None:
        super().__init__()
        self.site, self.ways = site, ways

    async def open(self, say: Say) -> None:
        await super().open(say)
        for capacity in self.ways.values():
            await capacity.open(say)

    async def close(self) -> None:
        await super().close()
        await asyncio.gather(*[capacity.close() for capacity in self.ways.values()])

    async def ask(self, ask: LaunchNode) -> None:
        offers = self.site.offers()
        rent = offers[ask.offer][1].rent if ask.offer in offers else None
        if rent is None or type(rent.way) not in self.ways:
            raise Refused(f"{ask.offer}: nodes are not rented one by one there; write 'sold_by: attempt', or 'rent'")
        await self.ways[type(rent.way)].ask(ask)

    async def list(self) -> tuple[SeenNode, ...]:
        """Of all ways: if one cannot be asked, nobody knows what is there."""
        listed = await asyncio.gather(*[capacity.list() for capacity in self.ways.values()])
        return tuple([node for nodes in listed for node in nodes])

    async def release(self, node: str) -> None:
        """By every way: a node's id does not say which one has it, and each must refuse it from now on."""
        await asyncio.gather(*[capacity.release(node) for capacity in self.ways.values()])

    def warns(self) -> str:
        return next(filter(None, [capacity.warns() for capacity in self.ways.values()]), "")

    def tell_all(self) -> None:
        for capacity in self.ways.values():
            capacity.tell_all()

    async def extend(self, node: str, deadline_at: Instant) -> Instant:
        for capacity in self.ways.values():
            if any(seen.node == node for seen in await capacity.list()):
                return await capacity.extend(node, deadline_at)
        raise Unreachable(f"{node} is not here, or not yet")
