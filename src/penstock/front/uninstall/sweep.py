"""Sweeps one cluster, home or not, until a list shows nothing of ours. The manager has one for each cluster;
`restore_jobs` knows what is ours.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.front.uninstall import restore_jobs
from penstock.kube.client import Cluster
from penstock.kube.errors import KubeError

AGAIN_SECONDS: Final = 1.0  #: time for the garbage collector
LATER_SECONDS: Final = 3.0  #: after an error of the cluster


class ClusterSweep:
    def __init__(self, site: str, cluster: Cluster, namespaces: tuple[str, ...], installation: str) -> None:
        self.site, self.cluster, self.namespaces, self.installation = site, cluster, namespaces or ("",), installation
        self.remains: list[str] = []  #: what of ours the last list showed, or why we cannot list
        self.left = asyncio.Event()  #: set when nothing of ours remains

    async def part(self) -> None:
        """Delete all that only we need, the Lease last. Returns when a list shows no mark of ours."""
        await self._until_nothing_remains(restore_jobs.anybodys, last=True)
        self.left.set()

    async def take(self, mine: Callable[[str], bool]) -> None:
        """Delete only what was made for some jobs; the others continue."""
        await self._until_nothing_remains(mine, last=False)

    async def _until_nothing_remains(self, mine: Callable[[str], bool], last: bool) -> None:
        while True:
            try:
                self.remains = await self._sweep(mine, last)
            except KubeError as error:
                self.remains = [f"it cannot be asked: {error}"]
                await asyncio.sleep(LATER_SECONDS)
            if not self.remains:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    async def _sweep(self, mine: Callable[[str], bool], last: bool) -> list[str]:
        """One pass; returns what is still there."""
        ours = self.cluster, self.installation
        needed = [word for space in self.namespaces for word in await restore_jobs.sweep(*ours, space, mine)]
        if needed or not last:
            return needed
        if nodes := await restore_jobs.rented(*ours):
            return nodes
        for namespace in self.namespaces:
            await restore_jobs.release(*ours, namespace)
        return [word for space in self.namespaces for word in await restore_jobs.remains(*ours, space)]
