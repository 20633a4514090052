"""Rents whole clusters as Clusters of Cluster API, each made from a ClusterClass. A transient site's driver has one.

A cluster keeps the contract of a rented node: it is named by what it is for, carries installation, id and deadline, is
adopted only after its marks were compared, and is gone only when its object is. Cluster API has no deadline of its own:
the watchman in the management cluster deletes it then. It is ready when Cluster API calls it available and `join` has
used the kubeconfig that Cluster API wrote.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, Final

from penstock.capacity.cluster_nodes import (
    NEVER_READY_MS,
    ClusterNodes,
    RentedMachine,
    RentingSite,
    deadline_of,
    node_of,
)
from penstock.capacity.contract import Capacity
from penstock.capacity.machine_deployment import MOST_WORDS, deadline_marks
from penstock.capacity.watchman_proof import GuardedOffer, WatchmanProofs
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode
from penstock.core.model.types import Guarantee, Offer
from penstock.core.units import Instant, Millis
from penstock.formatting import duration
from penstock.kube import annotations, errors
from penstock.kube.client import CLUSTER_CLASSES, CLUSTERS, SECRETS, Cluster, Obj
from penstock.kube.informer import Informer
from penstock.kube.node_selection import ClusterClassWay, NodeSelection
from penstock.site_answers import NeverReady, Refused, Say, Unreachable

#: What a Cluster says of its own start, the first trouble first.
CONDITIONS: Final = ("TopologyReconciled", "InfrastructureReady", "ControlPlaneInitialized", "Available")
MOST_NAMES: Final = 10

#: Use a cluster that is up, by its id and kubeconfig. Raises `Unreachable` while it does not answer.
Join = Callable[[str, str], Awaitable[None]]
#: A cluster is told to go, or is gone.
Leave = Callable[[str], Awaitable[None]]


class ClusterClasses(ClusterNodes):
    lacks = "has no Cluster API v1beta2 in its management cluster"

    def __init__(self, site: RentingSite, way: ClusterClassWay, join: Join, leave: Leave) -> None:
        """`site.cluster` is the management cluster."""
        super().__init__(site)
        self.way, self.join, self.leave = way, join, leave
        self.joined = ""  #: the cluster that is used
        self.joining = asyncio.Lock()
        self.trouble = ""  #: why the one that is available cannot be used
        self.proofs = WatchmanProofs(self._guarded, self._prove)

    # --- coming and going --------------------------------------------------------------------------------------------

    async def open(self, say: Say) -> None:
        await Capacity.open(self, say)
        if not self.tasks:
            self.opened_at = asyncio.get_running_loop().time()
            self.objects = Informer(
                self.cluster_now(), CLUSTERS, self._changed, namespace=self.way.namespace, labels=self.labels
            )
            self.tasks = [asyncio.create_task(self.objects.run()), asyncio.create_task(self.proofs.run())]

    @property
    def labels(self) -> str:
        """Several sites may have clusters in one namespace."""
        return f"{self.ours},{annotations.CLUSTER_SITE}={annotations.label_value(self.site)}"

    def tell_all(self) -> None:
        self.proofs.tell_all()

    def _prove(self, offer: str, guarantee: Guarantee, words: str) -> None:
        self.say(e.GuaranteeChanged(self.clock(), offer, guarantee, words))

    def _guarded(self) -> list[GuardedOffer]:
        offers = [offer for offer, _ in self.offers_now().values() if offer.guarantee == "watchman"]
        return [GuardedOffer(offer.id, self.cluster_now(), self.way.watchman, CLUSTERS) for offer in offers]

    @asynccontextmanager
    async def errors(self) -> AsyncIterator[None]:
        async with super().errors():
            try:
                yield
            except errors.Invalid as error:
                raise Refused(
                    f"Cluster API does not take it; correct 'cluster' of site {self.site}: {error}"
                ) from error

    def _offer(self, name: str) -> tuple[Offer, NodeSelection]:
        if name not in self.offers_now():
            raise Refused(f"site {self.site} has no transient cluster")
        return self.offers_now()[name]

    # --- one cluster -------------------------------------------------------------------------------------------------

    async def create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:  # noqa: ARG002
        client, way = self.cluster_now(), self.way
        await self._check_class(client)

        def cluster() -> Obj:
            return self._manifest(ask, deadline_marks(ask.deadline_at, self.sent_at(ask), client.time_there))

        try:
            made = await client.create_when_sent(CLUSTERS, cluster, way.namespace)
        except errors.AlreadyExists:
            return await self._adopt(ask.node)
        return self._machine(made)

    def _manifest(self, ask: LaunchNode, deadline: dict[str, str]) -> Obj:
        way, name = self.way, self.name_of(ask.node)
        marks = {
            annotations.INSTALLATION: annotations.label_value(self.installation),
            annotations.CLUSTER_SITE: annotations.label_value(self.site),
        }
        notes = {annotations.NODE_ID: ask.node, annotations.OFFER: ask.offer, **deadline}
        topology: dict[str, Any] = {"classRef": {"name": way.cluster_class}, "version": way.version}
        if way.variables:
            topology["variables"] = [{"name": name, "value": json.loads(text)} for name, text in way.variables]
        if way.workers:
            workers = [{"class": kind, "name": kind, "replicas": count} for kind, count in way.workers]
            topology["workers"] = {"machineDeployments": workers}
        return {"metadata": {"name": name, "labels": marks, "annotations": notes}, "spec": {"topology": topology}}

    async def _check_class(self, client: Cluster) -> None:
        """Cluster API takes a Cluster whose class is not there, and waits for ever."""
        way = self.way
        try:
            cluster_class = await client.get(CLUSTER_CLASSES, way.cluster_class, way.namespace)
        except errors.NotFound:
            listed, _ = await client.list(CLUSTER_CLASSES, way.namespace)
            where = f"namespace {way.namespace} of its management cluster"
            raise self._wrong("ClusterClass", way.cluster_class, [_name(obj) for obj in listed], where) from None
        spec = cluster_class.get("spec") or {}
        where = f"ClusterClass {way.cluster_class}"
        known = [str(variable.get("name")) for variable in spec.get("variables") or ()]
        for name, _ in way.variables:
            if name not in known:
                raise self._wrong("variable", name, known, where)
        classes = [str(row.get("class")) for row in (spec.get("workers") or {}).get("machineDeployments") or ()]
        for name, _ in way.workers:
            if name not in classes:
                raise self._wrong("worker class", name, classes, where)

    def _wrong(self, what: str, name: str, known: list[str], where: str) -> Refused:
        has = f"it has {', '.join(sorted(known)[:MOST_NAMES])}" if known else "it has none"
        return Refused(f"there is no {what} {name} in {where}, {has}; correct 'cluster' of site {self.site}")

    async def _adopt(self, node: str) -> RentedMachine:
        obj = await self._object(node)
        if obj is None:
            words = f"Cluster {self.name_of(node)} is not of this installation, and has the name of {node}; look at it"
            raise Refused(words)
        return self._machine(obj)

    async def _object(self, node: str) -> Obj | None:
        """The Cluster of this id, if its marks are ours."""
        with suppress(errors.NotFound):
            obj = await self.cluster_now().get(CLUSTERS, self.name_of(node), self.way.namespace)
            owner = (obj["metadata"].get("labels") or {}).get(annotations.INSTALLATION)
            if owner == annotations.label_value(self.installation) and node_of(obj) == node:
                return obj
        return None

    def _machine(self, obj: Obj) -> RentedMachine:
        meta = obj["metadata"]
        made = datetime.fromisoformat(str(meta["creationTimestamp"]))
        return RentedMachine(
            node=node_of(obj),
            name=str(meta["name"]),
            uid=str(meta["uid"]),
            age_seconds=max(0.0, (self.cluster_now().time_there - made).total_seconds()),
            deadline_at=deadline_of(obj),
            ending="deletionTimestamp" in meta,
            launched=True,  # a control plane is billed from the request on
            status=describe(obj),
        )

    # --- what is there -----------------------------------------------------------------------------------------------

    async def find(self, machine: RentedMachine) -> RentedMachine | None:
        obj = self._cached(machine)
        if obj is None:
            obj = await self._object(machine.node)
        if obj is None or str(obj["metadata"]["uid"]) != machine.uid:
            return None
        await self._join_if_available(obj)
        return self._machine(obj)

    def shows(self, machine: RentedMachine) -> bool | None:
        return self._cached(machine) is not None if self.objects.in_step.is_set() else None

    def _cached(self, machine: RentedMachine) -> Obj | None:
        obj = self.objects.get(machine.name, self.way.namespace)
        return obj if obj is not None and str(obj["metadata"]["uid"]) == machine.uid else None

    async def fetch(self, node: str) -> RentedMachine | None:
        obj = await self._object(node)
        return None if obj is None else self._machine(obj)

    async def fetch_all(self) -> Sequence[RentedMachine]:
        listed, _ = await self.cluster_now().list(CLUSTERS, self.way.namespace, labels=self.labels)
        return [self._machine(obj) for obj in listed]

    async def rejoin(self) -> None:
        """After a restart: use the cluster that is up. Raises `Unreachable` if there is one that does not answer."""
        if self.joined:
            return
        try:
            async with self.errors():
                listed, _ = await self.cluster_now().list(CLUSTERS, self.way.namespace, labels=self.labels)
                for obj in listed:
                    if "deletionTimestamp" not in obj["metadata"] and not self.joined:
                        await self._join_if_available(obj)
        except Refused as error:  # whatever it is, it does not mean that there is none
            raise Unreachable(str(error)) from error

    async def _join_if_available(self, obj: Obj) -> None:
        """Once, whoever asks: a start and a look may both find it."""
        if not is_available(obj):
            return
        async with self.joining:
            node = node_of(obj)
            if self.joined or node in self.released:
                return
            with suppress(errors.NotFound):  # the Secret comes a moment later
                secret = await self.cluster_now().get(SECRETS, f"{_name(obj)}-kubeconfig", self.way.namespace)
                text = base64.b64decode((secret.get("data") or {}).get("value") or "").decode()
                await self._join(node, text)

    async def _join(self, node: str, kubeconfig: str) -> None:
        try:
            await self.join(node, kubeconfig)
            self.joined, self.trouble = node, ""
        except Unreachable as error:  # available, and not for us yet: asked again soon
            self.trouble = str(error)

    async def nodes_there(self, labels: str) -> Sequence[Obj]:  # noqa: ARG002 - a cluster's Nodes go with it
        return ()

    def nodes_of(self, name: str) -> tuple[Obj, ...]:  # noqa: ARG002
        return ()

    def is_up(self, name: str, resource: str, gpus: int) -> bool:  # noqa: ARG002 - it has none of its own
        return bool(self.joined) and self.name_of(self.joined) == name

    def longest_start_ms(self, offer: Offer) -> Millis:  # noqa: ARG002 - its site says it
        return self.way.up_within_ms

    async def _give_up(self, ask: LaunchNode, machine: RentedMachine, place: NodeSelection, most_ms: Millis) -> None:  # noqa: ARG002
        await self._delete(ask.node)
        status = self.trouble or machine.status or "Cluster API does not say why"
        words = f"a cluster of {self.site} was given back: it was not available within {duration(most_ms)} ({status})"
        raise NeverReady(words, NEVER_READY_MS)

    # --- its end -----------------------------------------------------------------------------------------------------

    async def release(self, node: str) -> None:
        await self._leave(node)
        await super().release(node)

    async def _leave(self, node: str) -> None:
        if self.joined == node:
            self.joined = ""
            await self.leave(node)

    async def end(self, machine: RentedMachine) -> None:
        with suppress(errors.NotFound, errors.Conflict):
            await self.cluster_now().delete(CLUSTERS, machine.name, self.way.namespace, uid=machine.uid)

    async def extend(self, node: str, deadline_at: Instant) -> Instant:
        """Move what the watchman goes by."""
        async with self.errors():
            obj = await self._object(node)
            if obj is None:
                raise Unreachable(f"{node} is not here, or not yet")
            if "deletionTimestamp" in obj["metadata"]:
                return deadline_of(obj)
            client = self.cluster_now()
            marks = deadline_marks(deadline_at, self.clock(), client.time_there)
            change = {"metadata": {"annotations": marks}}
            return deadline_of(await client.patch(CLUSTERS, _name(obj), change, self.way.namespace))

    def _changed(self, before: Obj | None, now: Obj | None) -> None:
        obj = now or before
        assert obj is not None
        node = node_of(obj)
        if now is None:
            self.noticed.pop(node, None)
            if self.tells(node):
                at = self.clock()
                self.say(e.NodeGone(at, node) if at >= deadline_of(obj) else e.NodeLost(at, node))
                self._soon(self._leave(node))
        elif "deletionTimestamp" in now["metadata"]:
            self.say_notice(node, "its Cluster was deleted")
        self.wake(_name(obj))

    def _soon(self, what: Any) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self.beside.add(task)
        task.add_done_callback(self.beside.discard)


def is_available(obj: Obj) -> bool:
    """Cluster API reaches its control plane, and all that its class names is there."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Available" and c.get("status") == "True" for c in conditions)


def describe(obj: Obj) -> str:
    """Why it is not available yet, in Cluster API's words; empty: nothing says it."""
    conditions = {c.get("type"): c for c in (obj.get("status") or {}).get("conditions") or ()}
    for kind in CONDITIONS:
        condition = conditions.get(kind) or {}
        if condition.get("status") not in (None, "True") and condition.get("message"):
            return f"{kind}: {condition.get('reason', '')}: {condition['message']}"[:MOST_WORDS]
    return ""


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])
