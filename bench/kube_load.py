"""Whoever creates Jobs while `bench.kill_kube` kills, and what befalls them that is no fault of a control plane.

Home Jobs come all the time, for a rich team and for one whose cap binds. Money is held for a few seconds ahead, so that
what runs longer needs its lease renewed. Some are deleted; nodes are taken back as spot nodes are, by a taint or with
the node itself; and now and then a Job of somebody else has the name that an attempt will want.
"""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from bench.kube_witness import Witness, has_ended
from bench.pair import PLANS, Ground, home_job
from penstock.kube import annotations
from penstock.kube.client import JOBS, LEASES, NODES, Cluster
from penstock.kube.errors import AlreadyExists, NotFound

LIVE: Final = 8  #: home Jobs at once
FOR_EVER: Final = "1h"
RUNS: Final = ("500ms", "2s", "4s", "7s")
LEASE: Final = "6s"  #: renewed when a quarter of it is left, so that the longest, and those that run for ever, need it
TAINT: Final = {"key": "reclaimed", "value": "soon", "effect": "NoExecute"}
TAINTED_S: Final = 1.0
PLANTED: Final = 3
Json = dict[str, Any]


class Load:
    def __init__(
        self,
        ground: Ground,
        witness: Witness,
        clusters: Mapping[str, Cluster],
        chance: random.Random,
    ) -> None:
        self.ground, self.witness, self.chance = ground, witness, chance
        self.lab, self.east = clusters["lab"], clusters["east"]
        self.sent: list[str] = []
        self.deleted: set[str] = set()
        self.planted: set[str] = set()  #: attempts whose name somebody else has
        self.nodes = [name for name, _ in PLANS[1].numbered()]  #: of the rented cluster
        self.reclaimed = 0
        self.coming = True  #: Jobs, and bad weather

    # --- Jobs --------------------------------------------------------------------------------------------------------

    async def crowd(self) -> None:
        async with asyncio.TaskGroup() as people:
            while True:
                if self.coming and len(self.sent) - self.ended() < LIVE:
                    people.create_task(self._apply(f"job-{len(self.sent)}"))
                await asyncio.sleep(self.chance.uniform(0.05, 0.4))

    async def _apply(self, name: str) -> None:
        """One in four is deleted, at any time; half of these run for ever, and somebody waits until they do."""
        patient, hasty = self.chance.random() < 0.15, self.chance.random() < 0.15
        runs = FOR_EVER if patient else self.chance.choice(RUNS)
        job = home_job(name, 1, runs, self.chance.choice(["rich", "poor"]), LEASE)
        job["metadata"]["namespace"] = self.ground.people
        self.sent.append(name)
        await self.lab.create(JOBS, job)
        while patient and not self._runs(name) and self.coming:
            await asyncio.sleep(0.1)
        if patient or hasty:
            await asyncio.sleep(self.chance.uniform(0, 3))
            await self._delete(name)

    def _runs(self, name: str) -> bool:
        return any(pod.home == name and pod.ran and not pod.over for pod in self.witness.pods.values())

    async def delete_some(self) -> None:
        """Of those that came last."""
        for name in [name for name in self.sent[-4:] if not self.has_ended(name)][:2]:
            await self._delete(name)

    async def _delete(self, name: str) -> None:
        self.deleted.add(name)
        with suppress(NotFound):
            await self.lab.delete(JOBS, name, self.ground.people)

    def ended(self) -> int:
        return sum(self.has_ended(name) for name in self.sent)

    def has_ended(self, name: str) -> bool:
        life = self.witness.homes.get(name)
        if life is None:
            return False
        return life.now is None or has_ended(life.now, "Complete") or has_ended(life.now, "Failed")

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def weather(self) -> None:
        for number in self.chance.sample(range(3, 16), PLANTED):
            await self._plant(number)
        while True:
            await asyncio.sleep(self.chance.uniform(3, 9))
            if self.coming:
                await self.chance.choice([self._drain_one, self._take_one])()

    async def _drain_one(self) -> None:
        self.reclaimed += 1
        await self._drain(self.east, self._busiest())

    def _busiest(self) -> str:
        """Where something can be lost."""
        run = [pod.node for pod in self.witness.pods.values() if pod.ran is not None and pod.over is None]
        return max(self.nodes, key=run.count)

    async def drain_all(self) -> None:
        """At home, too: whatever runs is lost, and goes on in another attempt."""
        self.reclaimed += 1 + len(self.nodes)
        at_home = [self._drain(self.lab, name) for name, _ in PLANS[0].numbered()]
        await asyncio.gather(*at_home, *(self._drain(self.east, name) for name in self.nodes))

    async def _drain(self, cluster: Cluster, node: str) -> None:
        """It is said that the node will be gone: its pods are told to end, and it takes no others for a while."""
        with suppress(NotFound):  # taken back meanwhile
            await cluster.patch(NODES, node, {"spec": {"taints": [TAINT]}})
            await asyncio.sleep(TAINTED_S)
            await cluster.patch(NODES, node, {"spec": {"taints": None}})

    async def _take_one(self) -> None:
        """Without a word: the node is gone, with all that ran on it. Another one comes."""
        self.reclaimed += 1
        gone = self._busiest()
        self.nodes.remove(gone)
        await self.east.delete(NODES, gone)
        number, (_, plan) = self.reclaimed, PLANS[1].numbered()[0]
        await asyncio.to_thread(self.ground.east.add_node, f"east-spot-{number}", plan)
        self.nodes.append(f"east-spot-{number}")

    async def _plant(self, number: int) -> None:
        """Once the installation has a name: a Job that is nobody's, where the attempt may be made."""
        lease: Json | None = None
        while lease is None:
            await asyncio.sleep(0.2)
            try:
                lease = await self.lab.get(LEASES, annotations.LEASE, self.ground.ours)
            except NotFound:
                continue
        attempt = f"j{number}.1"
        name = annotations.execution_name(lease["spec"]["holderIdentity"], attempt)
        pod = {"restartPolicy": "Never", "containers": [{"name": "theirs", "image": "busybox"}]}
        quick = {"annotations": {"pod-complete.stage.kwok.x-k8s.io/delay": "1s"}}
        job = {"metadata": {"name": name}, "spec": {"template": {"metadata": quick, "spec": pod}}}
        with suppress(AlreadyExists):  # the attempt was first
            await self.lab.create(JOBS, job, self.ground.people)
            await self.east.create(JOBS, job, self.ground.ours)
            self.planted.add(attempt)
