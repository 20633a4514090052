"""Proves that a watchman lives, by its Lease: an offer that it guards has hard caps while it does, and soft ones
otherwise. What rents nodes with a watchman (`cluster_api`) runs one.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.capacity.watchman import LEASE_SECONDS, instant_of
from penstock.core.model.types import Guarantee
from penstock.core.values import value
from penstock.kube import annotations, errors
from penstock.kube.client import LEASES, Cluster, Kind, Obj

LOOK_SECONDS: Final = 10.0  #: with `LEASE_SECONDS`: a dead watchman is known within a minute
ANSWER_SECONDS: Final = 10.0
HOW: Final = "apply what `penstock manifests watchman` prints there"

Say: TypeAlias = Callable[[str, Guarantee, str], None]  #: an offer, how its nodes end without us, and why


@value
class GuardedOffer:
    """An offer that a watchman guards, and where its Lease is."""

    offer: str
    cluster: Cluster
    namespace: str
    kind: Kind  # of the objects that its nodes are rented by


class WatchmanProofs:
    def __init__(self, watched: Callable[[], Sequence[GuardedOffer]], say: Say) -> None:
        self.watched, self.say = watched, say
        self.told: dict[str, Guarantee] = {}  #: by offer
        self.proved: dict[str, float] = {}  #: by offer: when its Lease was last seen fresh, by the loop's time
        self.asked = asyncio.Event()

    def tell_all(self) -> None:
        """Say all of it again."""
        self.told.clear()
        self.asked.set()

    async def run(self) -> None:
        while True:
            self.asked.clear()
            for offer in self.watched():
                await self._look(offer)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.asked.wait()

    async def _look(self, watched: GuardedOffer) -> None:
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                lease = await watched.cluster.get(LEASES, annotations.WATCHMAN, watched.namespace)
            wrong = doubt(lease, watched)
        except errors.NotFound:
            wrong = f"There is no watchman in namespace {watched.namespace}: {HOW}."
        except (errors.KubeError, TimeoutError) as error:
            fresh = now - self.proved.get(watched.offer, -LEASE_SECONDS) < LEASE_SECONDS
            if fresh:
                return  # it lived a moment ago
            wrong = f"Nobody knows whether the watchman lives: its Lease cannot be read ({error})."
        if not wrong:
            self.proved[watched.offer] = now
        self._tell(watched.offer, "none" if wrong else "watchman", wrong)

    def _tell(self, offer: str, guarantee: Guarantee, words: str) -> None:
        if self.told.get(offer) != guarantee:
            self.told[offer] = guarantee
            self.say(offer, guarantee, words)


def doubt(lease: Obj, watched: GuardedOffer) -> str:
    """Why this Lease proves nothing, in a sentence; empty: it does."""
    notes = lease["metadata"].get("annotations") or {}
    renewed = instant_of(str((lease.get("spec") or {}).get("renewTime", "")))
    if renewed is None:
        return "The watchman has never renewed its Lease."
    age = (watched.cluster.time_there - renewed).total_seconds()
    if age > LEASE_SECONDS:
        return f"The watchman has not renewed its Lease for {age:.0f} s."
    if watched.kind.resource not in str(notes.get(annotations.WATCHES, "")).split():
        return f"The watchman may not delete {watched.kind.resource}: {HOW}."
    if stuck := str(notes.get(annotations.STUCK, ""))[:300]:
        return f"What the watchman deletes does not go: {stuck}."
    return ""
