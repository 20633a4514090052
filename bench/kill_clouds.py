"""`python -m bench.kill_clouds`: kill and stop two control planes of one journal, again and again, while they rent
nodes, and see whether any node is rented twice, left, or there without money.

    python -m bench.kill_clouds --kills 25 [--seed 1]
    PENSTOCK_BENCH_LATE=180 python -m bench.kill_clouds       lists that are 2 to 180 s old, instead of 2 to 5 s
    PENSTOCK_BENCH_WAY=cluster_api python -m bench.kill_clouds    machines of Cluster API, instead of Karpenter's
    python -m bench.kill_clouds --mutate [--kills 12] [--only NAME ...]

Two real `penstock up --stand-by` on one PostgreSQL journal, in front of a cluster without nodes and a real Karpenter
(docs/dev-cluster.md), where they rent NodeClaims for home Jobs; or of Cluster API's core and a watchman. The leader,
the standby or both are ended by SIGKILL, or stopped for a while and sent on. Between them and the cluster is a proxy
(`bench.cloud_proxy`): requests about claims are late, kept for a while, or lost, or their answer is, and lists are old.
Now and then the cloud has no nodes left, a node never shows its GPUs, one is taken away, or a claim appears that has
our marks and is not in the journal. One node is kept warm, and must be there and be paid for until the end. A
`CloudWitness` asks all the time whether anything is alive without an open hold, whether the warm node stays, and
whether pods are on the nodes that were promised.
In the end both die for good while nodes are busy with pods that may not be evicted: all must be gone by deadline and
`kill`, and cost no more than is held. With `--mutate` each seeded mistake takes a run of its own, which must find it.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from bench import kill_command, kill_kube
from bench.auditor import COUNTED, Auditor
from bench.cloud_grounds import GROUNDS, CloudGround, way
from bench.cloud_mistakes import WARM_LEASES, mistakes_of
from bench.cloud_proxy import CloudProxy
from bench.cloud_witness import CloudWitness, Rented, rented
from bench.kill import where_of
from bench.kube_load import Load
from bench.pair import LABEL, Brain, home_job, leader
from penstock.capacity.contract import object_name
from penstock.core.decide import ahead
from penstock.core.ids import is_ahead
from penstock.core.units import Instant, cost_of, step_up
from penstock.devcluster import ClusterGroup
from penstock.devcluster.plan import GPU
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, LEASES, NODES, PODS, Cluster
from penstock.kube.errors import AlreadyExists, KubeError, NotFound

LIVE: Final = 3  #: home Jobs at once
PLANTED: Final = (2, 3)  #: of the first of them: somebody else's claim has the name that their first node will want
ORPHAN_S: Final = 3_600  #: what nobody ends is there for longer than any run
LEASE: Final = "30s"  #: of a node, for its whole life: a claim's end cannot be moved
ASK_S: Final = 0.5
DEAD_TOLERANCE_S: Final = 10.0  #: Karpenter looks at ends every few seconds, on a machine that is busy
POINTS: Final = ("before create {}", "after create {}", "before delete {}", "after delete {}")
Json = dict[str, Any]


def main() -> int:
    return kill_command.main(str(__doc__), run, mistakes_of(way()), kills=25, with_mistake=12)


def run(kills: int, seed: int, mistake: str = "", *, to_the_end: bool = True) -> "CloudRun":
    """With a mistake it ends as soon as something is found. `to_the_end`: in the end both die for good."""
    with ExitStack() as stack:
        for name, lasts_ms in WARM_LEASES.items():  # decisions are decided again here
            stack.enter_context(patch.object(ahead, name, lasts_ms))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kill-clouds-")))
        kind = GROUNDS[way()]
        bed = stack.enter_context(ClusterGroup(folder / "bed", [kind.plan]))
        where, ground = where_of("postgres", folder, stack), kind(bed.cluster("cloud"), folder)
        stack.callback(ground.end)
        told = CloudRun(ground, where, folder, random.Random(f"{seed}/{mistake}"), mistake)
        stack.callback(told.end)
        asyncio.run(told.tell(kills, to_the_end))
        return told


class CloudLoad(Load):
    """Home Jobs for rented nodes, and a cloud that runs out, takes nodes away, and has a name that is taken."""

    witness: CloudWitness

    def __init__(self, ground: CloudGround, witness: CloudWitness, cluster: Cluster, chance: random.Random) -> None:
        self.ground, self.stock, self.cloud = ground, ground.stock, cluster  # type: ignore[assignment]  # another ground
        self.witness, self.chance, self.lab = witness, chance, cluster
        self.sent, self.deleted, self.planted = [], set(), set()
        self.poor: set[str] = set()  #: Jobs of the team whose cap binds
        self.reclaimed = self.stock_outs = 0
        self.coming = True
        self.prepared = asyncio.Event()  #: what the first Jobs meet is there

    async def crowd(self) -> None:
        await self.prepared.wait()
        async with asyncio.TaskGroup() as people:
            while True:
                if self.coming and len(self.sent) - self.ended() < LIVE:
                    people.create_task(self._apply(f"job-{len(self.sent)}"))
                await asyncio.sleep(self.chance.uniform(0.2, 1))

    async def _apply(self, name: str) -> None:
        """One in five is deleted, at any time; none of the first, which take a node each."""
        is_first = len(self.sent) < LIVE
        gpus, runs = self.chance.choice([4, 8, 8]), self.chance.choice(["500ms", "2s", "4s"])
        team = self.chance.choice(["rich", "rich", "poor"])
        if is_first:
            gpus, team = 8, "rich"
        if team == "poor":
            self.poor.add(name)
        job = home_job(name, gpus, runs, team, LEASE)
        job["metadata"]["namespace"] = self.ground.people
        self.sent.append(name)
        await self.lab.create(JOBS, job)
        if self.chance.random() < 0.2 and not is_first:
            await asyncio.sleep(self.chance.uniform(0, 6))
            await self._delete(name)

    async def weather(self) -> None:
        for number in PLANTED:
            await self._plant(number)
        await self._make_orphan()
        self.prepared.set()
        while True:
            await asyncio.sleep(self.chance.uniform(5, 12))
            if self.coming:
                await self.chance.choice([self._take_one, self._run_out, self._make_orphan])()

    async def _run_out(self) -> None:
        self.stock_outs += 1
        await asyncio.to_thread(self.stock, "InsufficientInstanceCapacity: no a100-8x in zone-a")
        await asyncio.sleep(self.chance.uniform(3, 6))
        await asyncio.to_thread(self.stock, "")

    async def _take_one(self) -> None:
        """Never an orphan: whether that goes is for those who sweep to show."""
        ground: CloudGround = self.ground  # type: ignore[assignment]  # another ground
        there = [one for one in await rented(self.cloud, ground) if one.kind == "claim"]
        there = [one for one in there if one.name not in self.witness.planted]
        if there:
            self.reclaimed += 1
            unlucky = self.chance.choice(there)
            self.witness.taken.add(unlucky.node)
            await ground.take(self.cloud, unlucky.name)

    async def drain_all(self) -> None:
        await self._take_one()

    async def _make_orphan(self) -> None:
        """A claim with our marks that the journal never had, as one that forgot something would leave it. Within a run
        it does not end by itself.
        """
        with suppress(NotFound):
            lease = await self.cloud.get(LEASES, annotations.LEASE, self.ground.ours)
            installation, node = str(lease["spec"]["holderIdentity"]), f"orphan{len(self.witness.planted)}.1/n0"
            claim = self._strange(annotations.node_name(object_name(installation, node)))
            claim["metadata"]["labels"] = {
                annotations.INSTALLATION: annotations.label_value(installation),
                annotations.NODE: claim["metadata"]["name"],
            }
            claim["metadata"]["annotations"] = {annotations.NODE_ID: node}
            self.witness.planted[claim["metadata"]["name"]] = 0.0
            await self._make(claim)

    def _strange(self, name: str) -> Json:
        ground: CloudGround = self.ground  # type: ignore[assignment]  # another ground
        return ground.strange(name, ORPHAN_S)

    async def _make(self, obj: Json) -> None:
        ground: CloudGround = self.ground  # type: ignore[assignment]  # another ground
        await self.cloud.create(ground.kind, obj, ground.namespace)

    async def _plant(self, number: int) -> None:
        """Once the installation has a name: a claim that is nobody's, under the name that a node will want."""
        installation = ""
        while not installation:
            await asyncio.sleep(0.2)
            with suppress(NotFound):
                lease = await self.cloud.get(LEASES, annotations.LEASE, self.ground.ours)
                installation = str(lease["spec"]["holderIdentity"])
        node = f"j{number}.1/n0"
        name = annotations.node_name(object_name(installation, node))
        with suppress(AlreadyExists):  # the node was first
            await self._make(self._strange(name))
            self.planted.add(node)
            self.witness.strangers.add(name)


class CloudRun(kill_kube.Run):
    """As on clusters, with nodes that are rented and a witness who asks for them all the time."""

    load: CloudLoad
    witness: CloudWitness

    def __init__(self, ground: CloudGround, where: str, folder: Path, chance: random.Random, mistake: str) -> None:
        self.ground, self.where, self.chance, self.mistake = ground, where, chance, mistake  # type: ignore[assignment]
        self.brains = [Brain(folder / name, where, ground.sites, "bench.cloud_mistakes") for name in ("a", "b")]
        self.late_s = float(os.environ.get("PENSTOCK_BENCH_LATE", "5"))
        self.auditor, self.witness = Auditor(where, folder), CloudWitness(self.late_s)
        self.kills = self.stops = self.fenced = 0
        self.patience_s += self.late_s
        self.may_start, self.calm = asyncio.Event(), asyncio.Event()
        luck = random.Random(chance.random())
        self.proxy = CloudProxy(ground.cluster, folder, luck, self.late_s, ground.kind.plural)
        self.rents = ground
        self.bill = self.exposure = 0
        self.led_s = 0.0  #: how long somebody led, and was not stopped
        self.there: set[str] = set()  #: rented nodes, at the last look
        self.there_until: dict[str, Instant] = {}  #: when each was seen last, or missed first
        self.dead_s = 0.0  #: how long after their deadline the last of the dead brains' nodes went

    async def tell(self, kills: int, to_the_end: bool = True) -> None:
        self.cloud = connect(Access(str(self.ground.cluster.kubeconfig)))  # type: ignore[attr-defined]
        self.load = CloudLoad(self.ground, self.witness, self.cloud, self.chance)  # type: ignore[arg-type]
        await self.proxy.start()
        self.may_start.set()
        self.calm.set()
        tasks = [asyncio.create_task(self.witness.watch({"lab": self.cloud}))]
        tasks += [asyncio.create_task(self._keep_alive(brain)) for brain in self.brains]
        tasks += [asyncio.create_task(self.load.crowd()), asyncio.create_task(self.load.weather())]
        tasks += [asyncio.create_task(self._tell_progress(kills)), asyncio.create_task(self._ask_all_the_time())]
        try:
            await self._live(kills, tasks)
            if to_the_end and not (self.mistake and not self.auditor.clean):
                await self._die_for_good()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.cloud.close()
            await self.proxy.close()

    async def _live(self, kills: int, tasks: "list[asyncio.Task[None]]") -> None:
        """Nobody is hurt before there is something to lose."""
        await self.load.prepared.wait()
        await super()._live(kills, tasks)

    def _fate(self) -> dict[str, object]:
        told: dict[str, object] = {"late": self.late_s, "mistake": self.mistake}
        if self.load.coming and self.chance.random() < 0.7:
            cuts = [point.format(self.rents.kind.plural) for point in POINTS]
            told |= {"points": self.chance.randrange(1, 6)}
            told |= {"at": self.chance.choice([*cuts, "before append", "before writing"])}
            told |= {"signal": self.chance.choice(["KILL", "KILL", "STOP"])}
        return told

    # --- what must not be --------------------------------------------------------------------------------------------

    async def _ask_all_the_time(self) -> None:
        asked_at = time.monotonic()
        while True:
            with suppress(KubeError):
                for what, words in await self.witness.ask(self.cloud, self.rents, self.auditor, self.led_s):
                    self.auditor.finds(what, words)
                for what, words in await self.witness.ask_strangers(self.cloud, self.rents):
                    self.auditor.finds(what, words)
                await self._ask_ready()
            await asyncio.sleep(ASK_S)
            led = await asyncio.to_thread(leader, self.where, self.brains)
            since, asked_at = time.monotonic() - asked_at, time.monotonic()
            if led is not None and led.process is not None and led.code is None and not led.stands_still:
                self.led_s += since

    async def _ask_ready(self) -> None:
        """What the journal takes for ready shows its GPUs."""
        nodes, _ = await self.cloud.list(NODES, labels=annotations.NODE)
        for node in nodes:
            name = (node["metadata"].get("annotations") or {}).get(annotations.NODE_ID, "")
            known = self.auditor.engine.state.nodes.get(name)
            gpus = int((node["status"].get("allocatable") or {}).get(GPU, "0"))
            if known is not None and known.phase in ("idle", "busy") and gpus < known.gpus:
                self.auditor.finds("lost", f"{name} is taken for ready, and shows {gpus} GPUs")

    async def _ask_money(self) -> None:
        """The witness asks all the time."""

    async def _until_all_ended(self) -> None:
        """All but those that wait for money: nothing here is free of charge, so they would wait for ever."""
        for name in self.load.poor:
            if not self.load.has_ended(name):
                await self.load._delete(name)
        with suppress(TimeoutError):  # of a pool there is always news
            async with asyncio.timeout(3 * self.patience_s):
                await super()._until_all_ended()

    def _held(self) -> list[str]:
        """But what a pool keeps, or gives back, until it should be gone."""
        leases, now = self.auditor.engine.state.ledger.leases, time.time() * 1000
        late = self.rents.kill_ms + self.patience_s * 1000
        return [name for name, lease in leases.items() if not is_ahead(name) or now > lease.deadline_at + late]

    async def _ask_in_the_end(self) -> None:
        """Orphans have as long as while Jobs came, and the witness says so."""
        await super()._ask_in_the_end()
        for one in await self._left(60, lambda one: self._is_paid_warm(one) or one.name in self.witness.planted):
            self.auditor.finds("lost", f"{one} is left")
        for one in await self._left(self.witness.limit_s, self._is_paid_warm):
            self.auditor.finds("lost", f"{one} is left, and was not swept")
        await self._ask_warm()

    def _is_paid_warm(self, one: Rented) -> bool:
        return is_ahead(one.node) and one.node in self.auditor.engine.state.ledger.leases

    async def _ask_warm(self) -> None:
        """The pool has its node: ready, there and paid for."""
        until = time.monotonic() + self.patience_s + self.witness.limit_s
        while True:
            self.auditor.follow()
            state = self.auditor.engine.state
            ready = {name for name in state.warm.nodes if state.nodes[name].phase == "idle"} & set(state.ledger.leases)
            if ready & {one.node for one in await rented(self.cloud, self.rents) if one.kind == "claim"}:
                return
            if time.monotonic() > until:
                self.auditor.finds("lost", f"no node is kept warm: the pool has {list(state.warm.nodes)}")
                return
            await asyncio.sleep(0.5)

    async def _left(self, wait_s: float, may: Callable[[Rented], bool] = lambda _: False) -> list[str]:
        """Names of all that is still rented after so long, at most. `may`: these may be."""
        until = time.monotonic() + wait_s
        while True:
            there, now = await rented(self.cloud, self.rents), int(time.time() * 1000)
            for node in {one.node for one in there} | self.there:
                self.there_until[node] = now
            self.there = {one.node for one in there}
            left = [one for one in there if not may(one)]
            if not left or time.monotonic() > until:
                return [f"{one.kind} {one.name} of {one.node}" for one in left]
            await asyncio.sleep(0.5)

    async def _die_for_good(self) -> None:
        """While nodes are busy with pods that may not be evicted."""
        budget = {"selector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}, "minAvailable": "100%"}
        self.ground.cluster.apply({  # type: ignore[attr-defined]
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": budget,
            "metadata": {"name": "all", "namespace": self.ground.people},
        })  # fmt: skip
        for number in range(2):
            job = home_job(f"last-{number}", 8, "1h", "rich", LEASE)
            job["spec"]["template"]["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "true"
            job["metadata"]["namespace"] = self.ground.people
            await self.cloud.create(JOBS, job)
        await self._until_runs("last-0", "last-1")
        if not await self._stay_everywhere():
            self.auditor.finds("lost", "both die for good, and no node is there: nothing is shown")
        self.may_start.clear()
        for brain in self.brains:
            await self._kill(brain)
        self.auditor.follow()
        ends_at = max(lease.deadline_at for lease in self.auditor.engine.state.ledger.leases.values())
        most_s = (ends_at + self.rents.kill_ms) / 1000 - time.time() + DEAD_TOLERANCE_S
        for one in await self._left(most_s):
            self.auditor.finds("over_cap", f"nobody is there, and {one} is left after its deadline and `kill`")
        self.dead_s = time.time() - ends_at / 1000
        self._compare_bill()

    async def _stay_everywhere(self) -> int:
        """A pod on each node that no Job's deadline ends: only the provider's own bound on a drain does. It tolerates
        no taint: a pod that tolerates the provider's own is not waited for, and says nothing about that bound.
        """
        nodes, _ = await self.cloud.list(NODES, labels=annotations.NODE)
        for number, node in enumerate(nodes):
            meta = {"name": f"stays-{number}", "namespace": self.rents.people, "labels": {LABEL: "stays"}}
            meta["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            spec = {
                "nodeName": node["metadata"]["name"],
                "containers": [{"name": "main", "image": "stays"}],
                "terminationGracePeriodSeconds": 5,
            }
            await self.cloud.create(PODS, {"metadata": meta, "spec": spec})
        return len(nodes)

    def _compare_bill(self) -> None:
        """What their provider would bill until each is gone, with what is held: `penstock exposure`."""
        for name, lease in self.auditor.engine.state.ledger.leases.items():
            terms, gone_at = lease.hold.terms, self.there_until.get(name, lease.opened_at)
            bill = terms.fees + cost_of(terms.price_per_hour, step_up(gone_at - lease.opened_at, terms.step_ms))
            held = lease.charged + lease.held
            self.bill, self.exposure = self.bill + bill, self.exposure + held
            if bill > held:
                self.auditor.finds("over_cap", f"{name} is billed {bill}, and {held} is held for it")

    async def _until_runs(self, *names: str) -> None:
        until = time.monotonic() + self.patience_s
        while not all(self.load._runs(name) for name in names) and time.monotonic() < until:
            await asyncio.sleep(0.1)

    # --- words -------------------------------------------------------------------------------------------------------

    @property
    def summary(self) -> Json:
        audit, seen = self.auditor, self.witness.seen.values()
        return {
            "kills": self.kills, "stops": self.stops, "fenced": self.fenced, "jobs": len(self.load.sent),
            "claims": sum(one.kind == "claim" for one in seen), "nodes": sum(one.kind == "Node" for one in seen),
            "at_once": self.witness.most, "taken_away": self.load.reclaimed, "stock_outs": self.load.stock_outs,
            "orphans": len(self.witness.planted), "orphans_there_s": _spread(self.witness.there_s.values()),
            "lost_questions": self.proxy.lost_questions, "lost_answers": self.proxy.lost_answers,
            "kept": self.proxy.kept, "old_lists": self.proxy.old_lists, "oldest_list_s": round(self.proxy.oldest_s, 1),
            "warm_nodes": len({one.node for one in seen if is_ahead(one.node)}),
            "starts_on_warm": sum(any(map(is_ahead, nodes)) for nodes in audit.nodes.values()),
            "asked": self.witness.asked, "led_s": round(self.led_s), "gone_after_deadline_s": round(self.dead_s, 1),
            "bill_of_exposure": round(self.bill / self.exposure, 3) if self.exposure else None,
            "steps": audit.engine.state.steps,
            **{name: len(audit.found[name]) for name in COUNTED if name != "log_lines_lost"},
        }  # fmt: skip


def _spread(seconds: Iterable[float]) -> list[float]:
    """The shortest, the middle and the longest."""
    ordered = sorted(round(one, 1) for one in seconds)
    return [ordered[0], ordered[len(ordered) // 2], ordered[-1]] if ordered else []


if __name__ == "__main__":
    sys.exit(main())
