"""`python -m bench.kill_clouds`: kill and stop two control planes of one journal, again and again, while they rent
nodes, and see whether any node is rented twice, left, or there without money.

    python -m bench.kill_clouds --kills 25 [--seed 1]
    PENSTOCK_BENCH_LATE=180 python -m bench.kill_clouds       lists that are 2 to 180 s old, instead of 2 to 5 s
    python -m bench.kill_clouds --mutate [--kills 12] [--only NAME ...]

Two real `penstock up --stand-by` on one PostgreSQL journal, in front of a cluster without nodes and a real Karpenter
(docs/dev-cluster.md), where they rent NodeClaims for home Jobs. The leader, the standby or both are ended by SIGKILL,
or stopped for a while and sent on. Between them and the cluster is a proxy (`bench.cloud_proxy`): requests about claims
are late, kept for a while, or lost, or their answer is, and lists are old. Now and then the cloud has no nodes left, a
node never shows its GPUs, one is taken away, or a claim appears that has our marks and is not in the journal.
A `CloudWitness` asks all the time whether anything is alive without an open hold. In the end both die for good while
nodes are busy with pods that may not be evicted: all must be gone by deadline and `kill`. With `--mutate` each seeded
mistake takes a run of its own, which must find it.
"""

import asyncio
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from bench import kill_command, kill_kube
from bench.auditor import COUNTED, Auditor
from bench.cloud_mistakes import MISTAKES
from bench.cloud_proxy import CloudProxy
from bench.cloud_witness import CloudWitness, rented
from bench.kill import where_of
from bench.kube_load import Load
from bench.pair import LABEL, Brain, home_job
from penstock.capacity.contract import object_name
from penstock.devcluster import ClusterGroup, ClusterPlan, DevCluster, karpenter
from penstock.devcluster.plan import GPU
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, LEASES, NODE_CLAIMS, NODES, Cluster
from penstock.kube.errors import AlreadyExists, KubeError, NotFound

PLANS: Final = (ClusterPlan("cloud", karpenter=True),)
LIVE: Final = 3  #: home Jobs at once
LEASE: Final = "30s"  #: of a node, for its whole life: a claim's end cannot be moved
KILL_MS: Final = 20_000
ASK_S: Final = 0.5
DEAD_TOLERANCE_S: Final = 10.0  #: Karpenter looks at ends every few seconds, on a machine that is busy
POINTS: Final = (
    "before create nodeclaims", "after create nodeclaims", "before delete nodeclaims", "after delete nodeclaims",
    "before append", "before writing",
)  # fmt: skip
#: `blind` is the cheapest, so that it is tried; its nodes never show a GPU.
SITES: Final = """
currency: USD
policy: {{value_of_waiting: 1000000, stay: 1s, least_left: 1s, least_lease: 6s}}
caps:
  - {{scope: org, per_month: 100000}}
  - {{scope: "team:poor", per_month: 30}}
teams:
  - {{name: rich, namespaces: [{people}]}}
  - {{name: poor, namespaces: [{people}]}}
sites:
  - name: cloud
    driver: kubernetes
    front_door: true
    kubernetes: {{kubeconfig: {kubeconfig}, namespace: {ours}, namespaces: [{people}], room: 20s, grace: 1s}}
    offers:
{offers}
"""
OFFER: Final = """\
      - {{name: {name}, term: on_demand, gpu: A100, gpus_per_node: 8, nodes: {nodes}, start: 2s, billing_step: 1s,
         kill: 20s, price: {{per: gpu_hour, list: {price}}}, rent: {{way: karpenter, instance_types: [{kind}],
         node_class: {{group: {group}, kind: KWOKNodeClass, name: {name}}}}}}}
"""
OFFERS: Final = (("blind", "a100-blind", 1, 30), ("a100", "a100-8x", 2, 36), ("spare", "h100-8x", 2, 90))
Json = dict[str, Any]


def main() -> int:
    return kill_command.main(str(__doc__), run, MISTAKES, kills=25, with_mistake=12)


def run(kills: int, seed: int, mistake: str = "", *, to_the_end: bool = True) -> "CloudRun":
    """With a mistake it ends as soon as something is found. `to_the_end`: in the end both die for good."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kill-clouds-")))
        bed = stack.enter_context(ClusterGroup(folder / "bed", PLANS))
        where = where_of("postgres", folder, stack)
        told = CloudRun(
            CloudGround(bed.cluster("cloud"), folder), where, folder, random.Random(f"{seed}/{mistake}"), mistake
        )
        stack.callback(told.end)
        asyncio.run(told.tell(kills, to_the_end))
        return told


class CloudGround:
    """One cluster: home Jobs are applied there, and its nodes are all rented."""

    people, ours = "research", "penstock"

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.cluster, self.sites = cluster, folder / "sites.yaml"
        for name in (self.ours, self.people):
            cluster.new_namespace(name)
        offers = "".join(
            OFFER.format(name=name, kind=kind, nodes=nodes, price=price, group=karpenter.GROUP)
            for name, kind, nodes, price in OFFERS
        )
        proxied = folder / "proxied.kubeconfig"
        self.sites.write_text(SITES.format(people=self.people, ours=self.ours, kubeconfig=proxied, offers=offers))
        cluster.apply(*(karpenter.node_class(name) for name, *_ in OFFERS))

    def stock(self, words: str) -> None:
        """What the cloud says when it is asked for a node of the usual kind; empty: it gives one."""
        self.cluster.apply(karpenter.node_class("a100", stock_out=words))


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

    async def crowd(self) -> None:
        async with asyncio.TaskGroup() as people:
            while True:
                if self.coming and len(self.sent) - self.ended() < LIVE:
                    people.create_task(self._apply(f"job-{len(self.sent)}"))
                await asyncio.sleep(self.chance.uniform(0.2, 1))

    async def _apply(self, name: str) -> None:
        """One in five is deleted, at any time."""
        gpus, runs = self.chance.choice([4, 8, 8]), self.chance.choice(["500ms", "2s", "4s"])
        team = self.chance.choice(["rich", "rich", "poor"])
        if team == "poor":
            self.poor.add(name)
        job = home_job(name, gpus, runs, team, LEASE)
        job["metadata"]["namespace"] = self.ground.people
        self.sent.append(name)
        await self.lab.create(JOBS, job)
        if self.chance.random() < 0.2:
            await asyncio.sleep(self.chance.uniform(0, 6))
            await self._delete(name)

    async def weather(self) -> None:
        await self._plant(2)
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
        """As a spot node is reclaimed: the claim is deleted, and Karpenter ends its node."""
        there = [one for one in await rented(self.cloud) if one.kind == "claim"]
        if there:
            self.reclaimed += 1
            with suppress(NotFound):
                await self.cloud.delete(NODE_CLAIMS, self.chance.choice(there).name)

    async def drain_all(self) -> None:
        await self._take_one()

    async def _make_orphan(self) -> None:
        """A claim with our marks that the journal never had, as one that forgot something would leave it."""
        with suppress(NotFound):
            lease = await self.cloud.get(LEASES, annotations.LEASE, self.ground.ours)
            installation, node = str(lease["spec"]["holderIdentity"]), f"orphan{len(self.witness.planted)}.1/n0"
            claim = self._claim(annotations.node_name(object_name(installation, node)), "300s")
            claim["metadata"]["labels"] = {
                annotations.INSTALLATION: annotations.label_value(installation),
                annotations.NODE: claim["metadata"]["name"],
            }
            claim["metadata"]["annotations"] = {annotations.NODE_ID: node}
            self.witness.planted[claim["metadata"]["name"]] = 0.0
            await self.cloud.create(NODE_CLAIMS, claim)

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
            await self.cloud.create(NODE_CLAIMS, self._claim(name, "1h"))
            self.planted.add(node)

    def _claim(self, name: str, lasts: str) -> Json:
        asked = {"node.kubernetes.io/instance-type": "cpu-8", "karpenter.sh/capacity-type": "on-demand"}
        return {
            "metadata": {"name": name},
            "spec": {
                "nodeClassRef": {"group": karpenter.GROUP, "kind": "KWOKNodeClass", "name": "spare"},
                "requirements": [{"key": key, "operator": "In", "values": [text]} for key, text in asked.items()],
                "expireAfter": lasts,
            },
        }


class CloudRun(kill_kube.Run):
    """As on clusters, with nodes that are rented and a witness who asks for them all the time."""

    load: CloudLoad
    witness: CloudWitness

    def __init__(self, ground: CloudGround, where: str, folder: Path, chance: random.Random, mistake: str) -> None:
        self.ground, self.where, self.chance, self.mistake = ground, where, chance, mistake  # type: ignore[assignment]
        self.brains = [Brain(folder / name, where, ground.sites, "bench.cloud_mistakes") for name in ("a", "b")]
        self.auditor, self.witness = Auditor(where, folder), CloudWitness()
        self.kills = self.stops = self.fenced = 0
        self.may_start, self.calm = asyncio.Event(), asyncio.Event()
        self.late_s = float(os.environ.get("PENSTOCK_BENCH_LATE", "5"))
        self.proxy = CloudProxy(ground.cluster, folder, random.Random(chance.random()), self.late_s)
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

    def _fate(self) -> dict[str, object]:
        told: dict[str, object] = {"late": self.late_s, "mistake": self.mistake}
        if self.load.coming and self.chance.random() < 0.7:
            told |= {"points": self.chance.randrange(1, 6), "at": self.chance.choice(POINTS)}
            told |= {"signal": self.chance.choice(["KILL", "KILL", "STOP"])}
        return told

    # --- what must not be --------------------------------------------------------------------------------------------

    async def _ask_all_the_time(self) -> None:
        while True:
            with suppress(KubeError):
                for what, words in await self.witness.ask(self.cloud, self.auditor, time.monotonic()):
                    self.auditor.finds(what, words)
                await self._ask_ready()
            await asyncio.sleep(ASK_S)

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
        await super()._until_all_ended()

    async def _ask_in_the_end(self) -> None:
        await super()._ask_in_the_end()
        for one in await self._left(60):
            self.auditor.finds("lost", f"{one} is left")

    async def _left(self, wait_s: float) -> list[str]:
        """Names of all that is still rented after so long, at most."""
        until = time.monotonic() + wait_s
        while there := [f"{one.kind} {one.name} of {one.node}" for one in await rented(self.cloud)]:
            if time.monotonic() > until:
                return there
            await asyncio.sleep(0.5)
        return []

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
        self.may_start.clear()
        for brain in self.brains:
            await self._kill(brain)
        self.auditor.follow()
        ends_at = max(lease.deadline_at for lease in self.auditor.engine.state.ledger.leases.values())
        most_s = (ends_at + KILL_MS) / 1000 - time.time() + DEAD_TOLERANCE_S
        for one in await self._left(most_s):
            self.auditor.finds("over_cap", f"nobody is there, and {one} is left after its deadline and `kill`")
        self.dead_s = time.time() - ends_at / 1000

    async def _until_runs(self, *names: str) -> None:
        until = time.monotonic() + kill_kube.PATIENCE_S
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
            "orphans": len(self.witness.planted), "lost_questions": self.proxy.lost_questions,
            "lost_answers": self.proxy.lost_answers, "kept": self.proxy.kept, "old_lists": self.proxy.old_lists,
            "asked": self.witness.asked, "gone_after_deadline_s": round(self.dead_s, 1),
            "steps": audit.engine.state.steps,
            **{name: len(audit.found[name]) for name in COUNTED if name != "log_lines_lost"},
        }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
