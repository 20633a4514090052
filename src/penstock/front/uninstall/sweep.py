"""One cluster that we leave, home or not: swept again and again until a list shows nothing of ours. The hall has one
for each cluster; `restore_jobs` says what is ours there.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.front.uninstall import restore_jobs
from penstock.kube.client import Cluster
from penstock.kube.errors import KubeError

AGAIN_SECONDS: Final = 1.0  #: garbage collectors take a moment
LATER_SECONDS: Final = 3.0  #: after a cluster that could not be asked


class ClusterSweep:
    def __init__(self, site: str, cluster: Cluster, namespaces: tuple[str, ...], installation: str) -> None:
        self.site, self.cluster, self.namespaces, self.installation = site, cluster, namespaces or ("",), installation
        self.remains: list[str] = []  #: what of ours was there when it was last looked at, or why we cannot look
        self.left = asyncio.Event()  #: nothing

    async def part(self) -> None:
        """Take away all that only we needed, the Lease at last. Returns when a list of what is there has no mark."""
        await self._until_nothing_remains(restore_jobs.anybodys, last=True)
        self.left.set()

    async def take(self, mine: Callable[[str], bool]) -> None:
        """Only what was made for some of our jobs; the others go on."""
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
        """What is still there afterwards."""
        ours = self.cluster, self.installation
        needed = [word for space in self.namespaces for word in await restore_jobs.sweep(*ours, space, mine)]
        if needed or not last:
            return needed
        for namespace in self.namespaces:
            await restore_jobs.release(*ours, namespace)
        return [word for space in self.namespaces for word in await restore_jobs.remains(*ours, space)]
