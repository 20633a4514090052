"""The driver of a site whose cluster comes and goes: what rents the cluster is always there, what runs workloads only
while a cluster is up. `site_drivers` makes one for each such site.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.capacity.cluster_class import ClusterClasses
from penstock.capacity.cluster_nodes import RentingSite
from penstock.core.errors import BadInput
from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import Offer, Site
from penstock.core.units import Instant, Millis
from penstock.drivers.driver import BaseDriver, Command, Refused, Say, SiteInventory, Unreachable, Work
from penstock.drivers.kubernetes.connection import to_nobody
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.kube import errors
from penstock.kube.access import Access, connect
from penstock.kube.client import NAMESPACES, Cluster
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.node_selection import ClusterClassWay, NodeSelection

JOIN_SECONDS: Final = 20.0  #: how long a new cluster may take to answer; then it is asked again


class TransientDriver(BaseDriver):
    capacity: ClusterClasses

    def __init__(
        self,
        site: Site,
        folder: Path,
        installation: str,
        clock: Callable[[], Instant],
        way: ClusterClassWay,
        make: Callable[[Access], KubernetesDriver],
        namespaces: tuple[str, ...],
    ) -> None:
        """`make` makes the driver of a cluster that is up, by its kubeconfig."""
        self.site, self.way, self.make, self.clock, self.namespaces = site, way, make, clock, namespaces
        self.kubeconfig = folder.absolute() / "cluster.kubeconfig"
        self.inner: KubernetesDriver | None = None  #: while a cluster is up
        self.say: Say = to_nobody
        self.places: Mapping[str, NodeSelection] = {}
        self._management: Cluster | None = None
        renting = RentingSite(site.id, installation, clock, self.management, self._offers)
        self.capacity = ClusterClasses(renting, way, self._join, self._leave)

    def management(self) -> Cluster:
        if self._management is None:
            self._management = connect(self.way.management)
        return self._management

    def _offers(self) -> dict[str, tuple[Offer, NodeSelection]]:
        cluster = self.site.cluster
        return {} if cluster is None else {cluster.offer.id: (cluster.offer, NodeSelection())}

    def use(self, site: Site, places: Mapping[str, NodeSelection]) -> None:
        self.site, self.places = site, places
        if self.inner is not None:
            self.inner.use(site, places)

    def tell_all(self) -> None:
        self.capacity.tell_all()
        if self.inner is not None:
            self.inner.tell_all()

    # --- coming and going --------------------------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        self.say = say
        self.management()
        await self.capacity.open(say)

    async def close(self) -> None:
        self.say = to_nobody
        await self.capacity.close()
        if self.inner is not None:
            await self.inner.close()
        if self._management is not None:
            await self._management.close()

    async def _join(self, node: str, kubeconfig: str) -> None:
        """As if the sites file had it: its namespaces are made, and it is claimed for this installation."""
        self._keep(kubeconfig)
        driver = self.make(Access(kubeconfig=str(self.kubeconfig)))
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                await self._make_namespaces()
                if self.places:
                    driver.use(self.site, self.places)
                await driver.open(self.say)
        except (errors.KubeError, TimeoutError, Unreachable, Refused, BadInput) as error:
            await driver.close()
            raise Unreachable(f"cluster {node} of {self.site.id} is up, and cannot be used: {error}") from error
        self.inner = driver

    def _keep(self, kubeconfig: str) -> None:
        """For us alone. It is overwritten by the next cluster's, and removed with this one."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        with open(
            os.open(self.kubeconfig, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(kubeconfig)

    async def _make_namespaces(self) -> None:
        cluster = connect(Access(kubeconfig=str(self.kubeconfig)))
        try:
            for name in self.namespaces:
                with suppress(errors.AlreadyExists):
                    await cluster.create(NAMESPACES, {"metadata": {"name": name}})
        finally:
            await cluster.close()

    async def _leave(self, _node: str) -> None:
        driver, self.inner = self.inner, None
        self.kubeconfig.unlink(missing_ok=True)
        if driver is not None:
            await driver.close()

    # --- workloads ---------------------------------------------------------------------------------------------------

    def _there(self) -> KubernetesDriver:
        if self.inner is None:
            raise Unreachable(f"site {self.site.id} has no cluster now")
        return self.inner

    async def start(self, ask: StartAttempt, work: Work) -> None:
        await self._there().start(ask, work)

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        if self.inner is None and not await self.capacity.list():  # it went with its cluster
            self.say(e.AttemptStopped(self.clock(), attempt, 0))
            return
        await self._there().stop(attempt, grace_ms)

    async def set_deadline(self, attempt: str, deadline_at: Instant) -> Instant:
        return await self._there().set_deadline(attempt, deadline_at)

    async def forget(self, attempt: str) -> None:
        if self.inner is not None:
            await self.inner.forget(attempt)

    async def look(self) -> SiteInventory:
        """Nothing runs where there is no cluster. One that is up and does not answer is no answer."""
        await self.capacity.rejoin()
        nodes = tuple([seen.node for seen in await self.capacity.list()])
        if self.inner is None:
            return SiteInventory((), nodes)
        return SiteInventory((await self.inner.look()).attempts, nodes)

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        return await self._there().log(attempt, after, most, rank)

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        return await self._there().exec(attempt, command, typed, printed)

    def progress(self, attempt: str) -> tuple[int, int] | None:
        return None if self.inner is None else self.inner.progress(attempt)
