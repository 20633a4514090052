"""`penstock up` at a bad cloud, with at most one mistake in it. `bench.kill_clouds` and tests start it.

    python -m bench.cloud_mistakes up --home ... --stand-by

It takes what `bench.kube_mistakes` takes, but PENSTOCK_BENCH_WORLD, and cuts around creates and deletes of NodeClaims,
too. What is bad about the cloud is in front of it: `bench.cloud_proxy`.

    PENSTOCK_BENCH_LATE=5     how old a list may be, in seconds: what is missing for longer is lost
    PENSTOCK_BENCH_WAY=cluster_api    what rents nodes, instead of Karpenter (`bench.cloud_grounds`)

Deadlines for nodes that never show their GPUs are short, so that a run sees some.
"""

import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from bench import mistakes
from bench.cloud_grounds import way
from bench.cloud_proxy import KEPT_S
from bench.kube_mistakes import MISSING_MS, VERBS, _put, hurry
from bench.mistakes import Points, around, named
from penstock.capacity import cluster_api, cluster_nodes, contract, karpenter, machine_deployment, nodeclaim
from penstock.config import offers
from penstock.core.decide import ahead
from penstock.drivers import driver
from penstock.journal.writer import JournalWriter
from penstock.kube import annotations, errors
from penstock.kube.client import JOBS, MACHINE_DEPLOYMENTS, NODE_CLAIMS, Cluster, Kind, Obj
from penstock.kube.connect.gpu_survey import NODE_POOLS
from penstock.live import recover, site_probe
from penstock.site_answers import Unreachable

SPARE_MS: Final = 3_000  #: between the oldest list and what is taken to be lost
SLOW_DISK_S: Final = 1.0
NEVER_READY_MS: Final = {"karpenter": 8_000, "cluster_api": 25_000}  #: instead of minutes
PROBE_MS: Final = 10_000  #: as usual: behind this proxy a site is slow, and that is not what is tried here
REFUSED_S: Final = 5.0  #: instead of a minute
TAKEN_MS: Final = 8_000  #: instead of an hour: how long an offer is closed where a name is taken
WARM_MS: Final = 60_000  #: instead of hours: how long a warm node lives, or its lease is
RENTED: Final = (NODE_CLAIMS, MACHINE_DEPLOYMENTS)
CUT: Final = (JOBS, *RENTED)
#: Of `ahead`, also where its decisions are decided again.
WARM_LEASES: Final = {"LIFE_MS": WARM_MS, "LEASE_MS": WARM_MS}
#: What a mistake is put into.
RENTS: Final[dict[str, type[cluster_nodes.ClusterNodes]]] = {
    "karpenter": karpenter.KarpenterNodes,
    "cluster_api": cluster_api.ClusterApiNodes,
}


def main() -> int:
    from penstock.cli.main import main as penstock

    said = os.environ.get
    by = signal.Signals[f"SIG{said('PENSTOCK_BENCH_SIGNAL', 'KILL')}"]
    points = Points(int(said("PENSTOCK_BENCH_POINTS", "0")), said("PENSTOCK_BENCH_AT", ""), by)
    hurry()
    _put(cluster_nodes, MOST_MS=NEVER_READY_MS[way()], NEVER_READY_MS=NEVER_READY_MS[way()])
    _put(cluster_api.ClusterApiNodes, refused_seconds=REFUSED_S)
    _put(site_probe, MOST_MS=PROBE_MS)
    _put(driver, REFUSED_MS=TAKEN_MS)
    _put(ahead, **WARM_LEASES)
    _put(cluster_nodes.ClusterNodes, late_seconds=KEPT_S + 1)
    _put(recover, MISSING_MS=max(MISSING_MS, int(float(said("PENSTOCK_BENCH_LATE", "5")) * 1000) + SPARE_MS))
    put_points(points)
    if name := said("PENSTOCK_BENCH_MISTAKE"):
        MISTAKES[name](points)
    return penstock(sys.argv[1:])


def put_points(points: Points) -> None:
    """`before append`, `before writing`; `before create nodeclaims`, `after delete nodeclaims`, and so on."""
    around(JournalWriter, "append", points)
    around(JournalWriter, "_append", points, "writing")
    right = Cluster._ask

    async def ask(self: Any, method: str, kind: Kind, *args: Any, **more: Any) -> Obj:
        verb = VERBS.get(method) if kind in CUT else None
        if verb:
            points(f"before {verb} {kind.plural}")
        answer = await right(self, method, kind, *args, **more)
        if verb:
            points(f"after {verb} {kind.plural}")
        return answer

    _put(Cluster, _ask=ask)


# --- mistakes --------------------------------------------------------------------------------------------------------


def _change_claims(change: Callable[[Obj], None]) -> None:
    """A claim is whatever object rents a node."""

    def changing(right: Callable[..., Obj]) -> Callable[..., Obj]:
        def wrong(*args: Any) -> Obj:
            claim = right(*args)
            change(claim)
            return claim

        return wrong

    _put(karpenter, node_claim=changing(nodeclaim.node_claim))
    _put(cluster_api, machine_deployment=changing(machine_deployment.machine_deployment))


def a_random_name(_: Points) -> None:
    """A claim's name is drawn when it is asked for, so a second try rents a second node. All else is as it should be:
    a claim is found by the label that says which node it is, as if that were its name.
    """
    create, get, delete, patch = Cluster.create_when_sent, Cluster.get, Cluster.delete, Cluster.patch
    find, watch = Cluster.list, Cluster.watch

    def known(kind: Kind, obj: Obj) -> Obj:
        name = (obj.get("metadata", {}).get("labels") or {}).get(annotations.NODE) if kind in RENTED else None
        return {**obj, "metadata": {**obj["metadata"], "name": name}} if name else obj

    async def drawn(self: Any, kind: Kind, name: str, namespace: str, uid: str = "") -> str:
        """What one of them is really called."""
        if kind not in RENTED or not name.startswith(annotations.node_name("")):
            return name
        claims, _ = await find(self, kind, namespace, labels=f"{annotations.NODE}={name}")
        return next((str(c["metadata"]["name"]) for c in claims if uid in ("", c["metadata"]["uid"])), name)

    async def wrong_create(self: Any, kind: Kind, make: Callable[[], Obj], namespace: str = "") -> Obj:
        def named() -> Obj:
            claim = make()
            claim["metadata"]["name"] += f"-{secrets.token_hex(2)}"
            return claim

        return known(kind, await create(self, kind, named, namespace))

    async def wrong_get(self: Any, kind: Kind, name: str, namespace: str = "") -> Obj:
        return known(kind, await get(self, kind, await drawn(self, kind, name, namespace), namespace))

    async def wrong_delete(self: Any, kind: Kind, name: str, namespace: str = "", **more: Any) -> None:
        await delete(self, kind, await drawn(self, kind, name, namespace, more.get("uid", "")), namespace, **more)

    async def wrong_patch(self: Any, kind: Kind, name: str, change: Obj, namespace: str = "", **more: Any) -> Obj:
        return known(kind, await patch(self, kind, await drawn(self, kind, name, namespace), change, namespace, **more))

    async def wrong_list(self: Any, kind: Kind, *args: Any, **more: Any) -> tuple[list[Obj], str]:
        claims, version = await find(self, kind, *args, **more)
        return [known(kind, claim) for claim in claims], version

    async def wrong_watch(self: Any, kind: Kind, *args: Any, **more: Any) -> AsyncIterator[tuple[str, Obj]]:
        async for what, claim in watch(self, kind, *args, **more):
            yield what, known(kind, claim)

    _put(Cluster, create_when_sent=wrong_create, get=wrong_get, delete=wrong_delete, patch=wrong_patch)
    _put(Cluster, list=wrong_list, watch=wrong_watch)


def act_before_append(points: Points) -> None:
    """What was decided is done, and then written; the disk is slow."""
    mistakes.act_before_append(points)
    right = JournalWriter.append

    def slow(self: Any, *args: Any, **more: Any) -> Any:
        time.sleep(SLOW_DISK_S)
        return right(self, *args, **more)

    _put(JournalWriter, append=slow)


def closed_before_gone(_: Points) -> None:
    """Told to end is taken for ended, and the hold is closed."""

    async def wrong(self: Any, node: str) -> None:
        async with self.errors():
            if (machine := await self.fetch(node)) is not None:
                await self.end(machine)

    _put(RENTS[way()], _delete=wrong)


def a_failed_list_is_empty(_: Points) -> None:
    """What cannot be read is taken to be gone: released, and its hold closed."""
    rents = RENTS[way()]
    right_list, right_fetch = rents.list, rents.fetch

    async def wrong(self: Any) -> tuple[contract.SeenNode, ...]:
        try:
            return await right_list(self)
        except Unreachable:
            return ()

    async def fetch(self: Any, node: str) -> cluster_nodes.RentedMachine | None:
        try:
            return await right_fetch(self, node)
        except errors.KubeError:
            return None

    async def delete(self: Any, node: str) -> None:
        while (machine := await self.fetch(node)) is not None:
            with suppress(errors.KubeError):
                await self.end(machine)
            await asyncio.sleep(0.5)

    _put(rents, list=wrong, fetch=fetch, _delete=delete)


def no_termination_grace_period(_: Points) -> None:
    """A pod that may not be evicted keeps the node beyond its own end."""

    def change(claim: Obj) -> None:
        claim["spec"].pop("terminationGracePeriod", None)
        claim["spec"].get("template", {}).get("spec", {}).pop("deletion", None)

    _change_claims(change)


def renewing_what_is_immutable(_: Points) -> None:
    """A claim's end is taken to be moved, because it was asked for."""
    right = vars(offers)["Offer"]

    async def wrong(self: Any, node: str, deadline_at: int) -> int:  # noqa: ARG001 - as the right one
        return deadline_at

    _put(karpenter.KarpenterNodes, extend=wrong)
    _put(offers, Offer=lambda **said: replace(right(**said), renewable=True))


def in_a_node_pool(_: Points) -> None:
    """Claims of our own carry a NodePool's label, so Karpenter consolidates them as it likes."""

    def change(claim: Obj) -> None:
        claim["metadata"]["labels"]["karpenter.sh/nodepool"] = "bench"

    _change_claims(change)


def one_claim_of_a_static_pool(_: Points) -> None:
    """Nodes are rented as static NodePools, and a release deletes the claim: the pool replaces it at once."""

    async def create(self: Any, ask: Any, offer: Any, place: Any) -> cluster_nodes.RentedMachine:
        claim = nodeclaim.node_claim(ask, offer, place, self.installation, self.clock())
        pool = {"metadata": {"name": claim["metadata"]["name"]}, "spec": {"replicas": 1, "template": _template(claim)}}
        with suppress(errors.AlreadyExists):
            await self.cluster_now().create(NODE_POOLS, pool)
        while (machine := await fetch(self, ask.node)) is None:
            await asyncio.sleep(0.2)
        return machine

    async def fetch(self: Any, node: str) -> cluster_nodes.RentedMachine | None:
        claims, _ = await self.cluster_now().list(NODE_CLAIMS, labels=f"{annotations.NODE}={self.name_of(node)}")
        machine: cluster_nodes.RentedMachine | None = self._machine(claims[0]) if claims else None
        return machine

    async def find(self: Any, machine: cluster_nodes.RentedMachine) -> cluster_nodes.RentedMachine | None:
        return await fetch(self, machine.node)

    _put(karpenter.KarpenterNodes, create=create, fetch=fetch, find=find)


def _template(claim: Obj) -> Obj:
    kept = ("nodeClassRef", "requirements", "taints", "expireAfter", "terminationGracePeriod")
    meta = {key: claim["metadata"][key] for key in ("labels", "annotations")}
    return {"metadata": meta, "spec": {key: claim["spec"][key] for key in kept}}


def ready_without_gpus(_: Points) -> None:
    """A Node that is ready is taken to have its GPUs."""
    right = cluster_nodes.is_ready
    _put(cluster_nodes, is_ready=lambda node, resource, _: right(node, resource, 0))


def no_orphan_sweep(_: Points) -> None:
    """What is there and not in the journal is left there."""
    right = recover.Belief.differences
    _put(recover.Belief, differences=lambda *args: replace(right(*args), nodes=()))


def adopt_without_comparing(_: Points) -> None:
    """What stands under a node's name is taken to be it."""
    _put(RENTS[way()], _is_own=lambda *_: True)


MISTAKES: Final[dict[str, Callable[[Points], None]]] = named(
    (
        a_random_name,
        act_before_append,
        closed_before_gone,
        a_failed_list_is_empty,
        no_termination_grace_period,
        renewing_what_is_immutable,
        in_a_node_pool,
        one_claim_of_a_static_pool,
        ready_without_gpus,
        no_orphan_sweep,
        adopt_without_comparing,
    )
)


OF_KARPENTER: Final = ("renewing_what_is_immutable", "in_a_node_pool", "one_claim_of_a_static_pool")


def mistakes_of(way: str) -> list[str]:
    """Those that can be made there."""
    return [name for name in MISTAKES if way == "karpenter" or name not in OF_KARPENTER]


if __name__ == "__main__":
    sys.exit(main())
