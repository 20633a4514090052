"""Sweeps one cluster, home or not, until a list shows nothing of ours. The manager has one for each cluster;
`restore_jobs` knows what is ours.

A cluster that does not answer is asked again for as long as we run, and nobody waits for it: after `LOST_SECONDS` it is
named as out of reach, and all others are left without it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.front.uninstall import restore_jobs
from penstock.kube.client import Cluster
from penstock.kube.errors import KubeError

AGAIN_SECONDS: Final = 1.0  #: time for the garbage collector
LATER_SECONDS: Final = 3.0  #: after an error of the cluster
LOST_SECONDS: Final = 60.0  #: for so long it is waited for


class ClusterSweep:
    def __init__(self, site: str, cluster: Cluster, namespaces: tuple[str, ...], installation: str) -> None:
        self.site, self.cluster, self.namespaces, self.installation = site, cluster, namespaces or ("",), installation
        self.remains: list[str] = []  #: what of ours the last list showed, or why we cannot list
        self.left = asyncio.Event()  #: set when nothing of ours remains
        self.lost = asyncio.Event()  #: set while it has not answered for `LOST_SECONDS`
        self.failing_since: float | None = None

    async def settled(self, sweeping: "asyncio.Task[None]") -> None:
        """Returns when that sweep has ended, or the cluster is out of reach and it goes on by itself."""
        lost = asyncio.create_task(self.lost.wait())
        await asyncio.wait([sweeping, lost], return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        with suppress(asyncio.CancelledError):
            await lost

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
                self._answered()
            except KubeError as error:
                self._failed(error)
                await asyncio.sleep(LATER_SECONDS)
            if not self.remains:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    @property
    def unreached(self) -> str:
        """Why the cluster does not answer now; empty if it does."""
        return self.remains[0] if self.failing_since is not None else ""

    def _answered(self) -> None:
        self.failing_since = None
        self.lost.clear()

    def _failed(self, error: KubeError) -> None:
        now = asyncio.get_running_loop().time()
        self.remains = [f"it cannot be asked: {error}"]
        self.failing_since = now if self.failing_since is None else self.failing_since
        if now - self.failing_since >= LOST_SECONDS:
            self.lost.set()

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
