"""Rents nodes as MachineDeployments of Cluster API, one for each node. A cluster's driver has one where an offer says
`rent: {way: cluster_api}`.

The objects are in the management cluster, which may be the site's own. Cluster API has no deadline of its own: each
object carries one, and the watchman deletes it then (`watchman`); `extend` moves it. While core is dead a delete does
nothing, so `release` does not return, and the money stays held.

Few labels of a Machine reach its Node. When the Machine names its Node, we mark the Node ourselves: label, node and
taint. A MachineDeployment replaces a Machine that others delete; ours is then told to have none.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from penstock.capacity.cluster_nodes import (
    RETRY_MS,
    ClusterNodes,
    RentedMachine,
    RentingSite,
    asked_at_of,
    deadline_of,
    index,
    label_of,
    node_of,
)
from penstock.capacity.machine_deployment import (
    deadline_marks,
    describe,
    is_provisioned,
    machine_deployment,
    marked,
    node_name_of,
    shortage_of,
)
from penstock.capacity.watchman_proof import GuardedOffer, WatchmanProofs
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode
from penstock.core.model.types import Guarantee, Offer
from penstock.core.units import Instant
from penstock.core.values import value
from penstock.kube import annotations, errors
from penstock.kube.access import Access, connect
from penstock.kube.client import MACHINE_DEPLOYMENTS, MACHINES, NODES, Cluster, Obj
from penstock.kube.informer import Informer
from penstock.kube.node_selection import ClusterApiWay, NodeSelection
from penstock.site_answers import NoCapacity, Refused, Say, Unreachable

#: A provider asks its cloud again for ever. What it says for so long is believed, and the job goes elsewhere.
REFUSED_SECONDS: Final = 60.0


@value
class ManagementNamespace:
    """A namespace of a management cluster. Offers of one site may name several."""

    access: Access | None
    namespace: str


class ClusterApiNodes(ClusterNodes):
    lacks = "has no Cluster API v1beta2 where its offers say"
    #: How long a provider's refusal must last.
    refused_seconds: float = REFUSED_SECONDS

    def __init__(self, site: RentingSite) -> None:
        super().__init__(site)
        self.clients: dict[Access, Cluster] = {}
        self.marked: dict[str, str] = {}  #: by its deployment's name: the Node that we have marked
        self.noticed: dict[str, None] = {}  #: Machines and deployments whose end was said in advance; by uid
        self.machines_named: dict[str, dict[str, Obj]] = {}  #: by their deployment's name, and uid
        self.deployments: dict[ManagementNamespace, Informer] = {}
        self.machines: dict[ManagementNamespace, Informer] = {}
        self.proofs = WatchmanProofs(self._guarded, self._prove)

    # --- coming and going --------------------------------------------------------------------------------------------

    def places(self) -> list[ManagementNamespace]:
        """Where our objects may be, by what the offers say now."""
        ways = [place.rent.way for _, place in self.offers_now().values() if place.rent is not None]
        return list(dict.fromkeys([_managed(way) for way in ways if isinstance(way, ClusterApiWay)]))

    def client(self, place: ManagementNamespace) -> Cluster:
        if place.access is None:
            return self.cluster_now()
        if place.access not in self.clients:
            self.clients[place.access] = connect(place.access)
        return self.clients[place.access]

    def informers(self) -> list[Informer]:
        for place in self.places():
            here, ns = self.client(place), place.namespace
            self.deployments[place] = Informer(
                here, MACHINE_DEPLOYMENTS, self._deployment_changed, namespace=ns, labels=self.ours
            )
            self.machines[place] = Informer(here, MACHINES, self._machine_changed, namespace=ns, labels=self.ours)
        return [*self.deployments.values(), *self.machines.values()]

    async def open(self, say: Say) -> None:
        first = not self.tasks
        await super().open(say)
        if first:
            self.tasks.append(asyncio.create_task(self.proofs.run()))

    def tell_all(self) -> None:
        self.proofs.tell_all()

    def _prove(self, offer: str, guarantee: Guarantee, words: str) -> None:
        self.say(e.GuaranteeChanged(self.clock(), offer, guarantee, words))

    def _guarded(self) -> list[GuardedOffer]:
        """The offers that a watchman guards, each with where its Lease is."""
        return [
            GuardedOffer(offer.id, self.client(_managed(way)), way.watchman, MACHINE_DEPLOYMENTS)
            for offer, place in self.offers_now().values()
            if place.rent is not None
            and isinstance(way := place.rent.way, ClusterApiWay)
            and offer.guarantee == "watchman"
        ]

    async def close(self) -> None:
        await super().close()
        for client in self.clients.values():
            await client.close()
        self.clients.clear()

    # --- one deployment ----------------------------------------------------------------------------------------------

    async def create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:
        assert place.rent is not None
        way = place.rent.way
        assert isinstance(way, ClusterApiWay)
        here = _managed(way)
        client = self.client(here)
        like = await self._prepared(client, way)

        def deployment() -> Obj:
            now = self.sent_at(ask)
            marks = deadline_marks(ask.deadline_at, now, client.time_there)
            return machine_deployment(like, ask, offer, place, self.installation, now, marks)

        try:
            made = await client.create_when_sent(MACHINE_DEPLOYMENTS, deployment, here.namespace)
        except errors.AlreadyExists:
            return await self._adopt(ask.node, here)
        return self._machine(made, here)

    async def _prepared(self, client: Cluster, way: ClusterApiWay) -> Obj:
        try:
            return await client.get(MACHINE_DEPLOYMENTS, way.deployment, way.namespace)
        except errors.NotFound as error:
            words = (
                f"{self.site}: there is no MachineDeployment {way.deployment} in namespace {way.namespace} to be like; "
                f"correct the offer's 'rent' or make one with 'replicas: 0' ({error})"
            )
            raise Refused(words) from None

    async def _adopt(self, node: str, here: ManagementNamespace) -> RentedMachine:
        """A deployment of this name is there: it is ours if its marks say so."""
        name = self.name_of(node)
        try:
            obj = await self.client(here).get(MACHINE_DEPLOYMENTS, name, here.namespace)
        except errors.NotFound:
            raise Unreachable(f"the MachineDeployment of {node} was deleted just now") from None
        if not self._is_own(obj, node):
            words = f"MachineDeployment {name} is not of this installation, and has the name of {node}; look at it"
            raise Refused(words)
        return self._machine(obj, here)

    def _is_own(self, obj: Obj, node: str) -> bool:
        owner = (obj["metadata"].get("labels") or {}).get(annotations.INSTALLATION)
        return owner == annotations.label_value(self.installation) and node_of(obj) == node

    def _machine(self, obj: Obj, here: ManagementNamespace) -> RentedMachine:
        """The deployment, with what its Machine says."""
        meta, machine = obj["metadata"], self._machine_of(obj)
        words, _ = describe(machine) if machine is not None else ("", "")
        return RentedMachine(
            node=node_of(obj),
            name=str(meta["name"]),
            uid=str(meta["uid"]),
            asked_at=asked_at_of(obj),
            age_seconds=self._age_seconds(obj, here),
            deadline_at=deadline_of(obj),
            ending="deletionTimestamp" in meta,
            launched=machine is not None and is_provisioned(machine),
            status=words,
            shortage=shortage_of(words),
        )

    def _age_seconds(self, obj: Obj, here: ManagementNamespace) -> float:
        made = datetime.fromisoformat(str(obj["metadata"]["creationTimestamp"]))
        return max(0.0, (self.client(here).time_there - made).total_seconds())

    def _machine_of(self, deployment: Obj) -> Obj | None:
        """Of several, one is being replaced: that which stays. One of an earlier deployment of this name is none."""
        named = self.machines_named.get(str(deployment["metadata"]["name"]), {}).values()
        of_it = [machine for machine in named if asked_at_of(machine) == asked_at_of(deployment)]
        return min(of_it, key=lambda machine: "deletionTimestamp" in machine["metadata"], default=None)

    # --- what is there -----------------------------------------------------------------------------------------------

    async def find(self, machine: RentedMachine) -> RentedMachine | None:
        """By the informers where they are in step; else nobody knows, and it counts as there. Its Node is marked."""
        if (cached := self._cached(machine)) is not None:
            await self._mark_node(cached[0])
            await self._check_refused(*cached)
            return self._machine(*cached)
        if not all(informer.in_step.is_set() for informer in self.deployments.values()):
            return machine
        now = await self.fetch(machine.node)
        return now if now is not None and now.uid == machine.uid else None

    def shows(self, machine: RentedMachine) -> bool | None:
        if not all(informer.in_step.is_set() for informer in self.deployments.values()):
            return None
        return self._cached(machine) is not None

    def _cached(self, machine: RentedMachine) -> tuple[Obj, ManagementNamespace] | None:
        for here, informer in self.deployments.items():
            obj = informer.get(machine.name, here.namespace)
            if obj is not None and str(obj["metadata"]["uid"]) == machine.uid:
                return obj, here
        return None

    async def _mark_node(self, deployment: Obj) -> None:
        """So that Jobs find it, and nobody else's pods land on it."""
        name, machine = str(deployment["metadata"]["name"]), self._machine_of(deployment)
        if machine is None or not node_name_of(machine) or self.marked.get(name) == node_name_of(machine):
            return
        cluster, installation = self.cluster_now(), self.installation
        with suppress(errors.NotFound, errors.Conflict):  # it is asked again soon
            node = await cluster.get(NODES, node_name_of(machine))
            notes = machine["metadata"].get("annotations") or {}
            change = marked(
                node,
                {annotations.INSTALLATION: annotations.label_value(installation), annotations.NODE: name},
                {
                    key: notes[key]
                    for key in (annotations.NODE_ID, annotations.OFFER, annotations.ASKED_AT)
                    if key in notes
                },
                [annotations.rented_taint(installation), *self._taints(str(notes.get(annotations.OFFER, "")))],
            )
            if change is not None:
                seen = str(node["metadata"]["resourceVersion"])
                node = await cluster.patch(NODES, node_name_of(machine), change, seen=seen)
            if label_of(node) == name:
                self.marked[name] = node_name_of(machine)

    def _taints(self, offer: str) -> list[dict[str, str]]:
        _, place = self.offers_now().get(offer, (None, None))
        return [taint.as_dict() for taint in place.rent.taints] if place is not None and place.rent is not None else []

    async def _check_refused(self, deployment: Obj, here: ManagementNamespace) -> None:
        """Raises `NoCapacity` if the cloud has had no machine for a while. Providers never give up by themselves."""
        machine = self._machine_of(deployment)
        if machine is None or is_provisioned(machine):
            return
        words, since = describe(machine)
        shortage = shortage_of(words)
        if not shortage or not since:
            return
        lasts = (self.client(here).time_there - datetime.fromisoformat(since)).total_seconds()
        if lasts >= self.refused_seconds:
            await self._delete(node_of(deployment))
            raise NoCapacity(words, RETRY_MS[shortage], shortage)

    async def fetch(self, node: str) -> RentedMachine | None:
        located = await self._object(node)
        return None if located is None else self._machine(*located)

    async def _object(self, node: str) -> tuple[Obj, ManagementNamespace] | None:
        for here in self.places():
            with suppress(errors.NotFound):
                obj = await self.client(here).get(MACHINE_DEPLOYMENTS, self.name_of(node), here.namespace)
                if self._is_own(obj, node):
                    return obj, here
        return None

    async def fetch_all(self) -> Sequence[RentedMachine]:
        """Of all places: if one cannot be asked, nobody knows what is there."""
        machines = []
        for here in self.places():
            listed, _ = await self.client(here).list(MACHINE_DEPLOYMENTS, here.namespace, labels=self.ours)
            machines += [self._machine(obj, here) for obj in listed]
        return machines

    async def end(self, machine: RentedMachine) -> None:
        """Core ends the machine before it lets go of the deployment."""
        located = await self._object(machine.node)
        if located is not None and str(located[0]["metadata"]["uid"]) == machine.uid:
            await self._end(*located)

    async def _end(self, obj: Obj, here: ManagementNamespace) -> None:
        meta = obj["metadata"]
        with suppress(errors.NotFound, errors.Conflict):
            await self.client(here).delete(MACHINE_DEPLOYMENTS, meta["name"], here.namespace, uid=str(meta["uid"]))

    async def extend(self, node: str, deadline_at: Instant) -> Instant:
        """Move what the watchman goes by."""
        async with self.errors():
            located = await self._object(node)
            if located is None:
                raise Unreachable(f"{node} is not here, or not yet")
            obj, here = located
            if "deletionTimestamp" in obj["metadata"]:
                return deadline_of(obj)
            client = self.client(here)
            marks = deadline_marks(deadline_at, self.clock(), client.time_there)
            change = {"metadata": {"annotations": marks}}
            return deadline_of(await client.patch(MACHINE_DEPLOYMENTS, obj["metadata"]["name"], change, here.namespace))

    def has(self, name: str) -> bool:
        return any(informer.get(name, here.namespace) is not None for here, informer in self.deployments.items())

    # --- news --------------------------------------------------------------------------------------------------------

    def _deployment_changed(self, before: Obj | None, now: Obj | None) -> None:
        obj = now or before
        assert obj is not None
        node = node_of(obj)
        if now is None:
            self.noticed.pop(str(obj["metadata"]["uid"]), None)
            self.marked.pop(str(obj["metadata"]["name"]), None)
            self.say_gone(obj)
        elif "deletionTimestamp" in now["metadata"]:
            self._notice(node, obj, "its MachineDeployment was deleted")
        self.wake(str(obj["metadata"]["name"]))

    def _machine_changed(self, before: Obj | None, now: Obj | None) -> None:
        """One that others delete would be replaced, and paid for: its deployment is told to have none. One beside that
        which has become our Node is core's own affair: when it is in a hurry it makes two, and ends one.
        """
        obj = now or before
        assert obj is not None
        is_ours = self.marked.get(label_of(obj), node_name_of(obj)) == node_name_of(obj)
        if now is None:
            self.noticed.pop(str(obj["metadata"]["uid"]), None)
        elif "deletionTimestamp" in now["metadata"] and is_ours:
            self._notice(node_of(obj), obj, "its Machine was deleted")
        index(self.machines_named, before, now)
        self.wake(label_of(obj))

    def node_changed(self, before: Obj | None, now: Obj | None) -> None:
        if now is None and before is not None:
            self._notice(node_of(before), before, "its Node is gone")
        super().node_changed(before, now)

    def _notice(self, node: str, obj: Obj, words: str) -> None:
        uid = str(obj["metadata"]["uid"])
        if not self.tells(node) or uid in self.noticed or self.is_earlier(obj):
            return
        self.noticed[uid] = None
        self.say(e.NodeNotice(self.clock(), node, words))
        task = asyncio.get_running_loop().create_task(self._replace_nothing(node))
        self.beside.add(task)
        task.add_done_callback(self.beside.discard)

    async def _replace_nothing(self, node: str) -> None:
        with suppress(errors.KubeError):  # it is given back soon anyway
            located = await self._object(node)
            if located is not None and "deletionTimestamp" not in located[0]["metadata"]:
                obj, here = located
                change = {"spec": {"replicas": 0}}
                await self.client(here).patch(MACHINE_DEPLOYMENTS, obj["metadata"]["name"], change, here.namespace)


def _managed(way: ClusterApiWay) -> ManagementNamespace:
    return ManagementNamespace(way.management, way.namespace)
