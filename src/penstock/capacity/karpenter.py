"""Rents nodes as Karpenter NodeClaims of our own. A cluster's driver has one where an offer says `rent: {way:
karpenter}`.

A claim has no NodePool, so Karpenter never consolidates it away from under a job. It says itself when it ends:
`expireAfter` with `terminationGracePeriod`, without which a pod that may not be evicted keeps a node for ever. The spec
of a claim cannot be changed, so its deadline stands for its whole life (`Offer.renewable` is False).

The claim's labels reach its Node, and by them we find both. A node that nobody but us may use carries a taint of ours.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from penstock.capacity.cluster_nodes import ClusterNodes, RentedMachine, asked_at_of, deadline_of, node_of
from penstock.capacity.nodeclaim import describe, lasts_seconds, node_claim, shortage_of
from penstock.core.model.actions import LaunchNode
from penstock.core.model.reasons import Shortage
from penstock.core.model.types import Offer
from penstock.core.units import SECOND, Instant
from penstock.kube import annotations, errors
from penstock.kube.client import CLUSTER_WIDE, EVENTS, NODE_CLAIMS, Obj
from penstock.kube.informer import Informer
from penstock.kube.node_selection import NodeSelection
from penstock.site_answers import Refused, Unreachable

EVENT_SECONDS: Final = 2.0  #: Karpenter writes why it deleted a claim about when it deletes it


class KarpenterNodes(ClusterNodes):
    lacks = "knows no NodeClaims: Karpenter v1 is not installed there"

    def informers(self) -> list[Informer]:
        self.claims = Informer(self.cluster_now(), NODE_CLAIMS, self._claim_changed, labels=self.ours)
        return [self.claims]

    # --- one claim ---------------------------------------------------------------------------------------------------

    async def create(self, ask: LaunchNode, offer: Offer, place: NodeSelection) -> RentedMachine:
        """Its `expireAfter` counts from when the cluster has it, so it is made when it is sent."""

        def claim() -> Obj:
            return node_claim(ask, offer, place, self.installation, self.sent_at(ask))

        node_claim(ask, offer, place, self.installation, self.clock())  # raises what is wrong with the offer
        try:
            return self._machine(await self.cluster_now().create_when_sent(NODE_CLAIMS, claim))
        except errors.AlreadyExists:
            return await self._adopt(ask.node)

    async def _adopt(self, node: str) -> RentedMachine:
        """A claim of this name is there: it is ours if its marks say so."""
        name = self.name_of(node)
        try:
            claim = await self.cluster_now().get(NODE_CLAIMS, name)
        except errors.NotFound:
            raise Unreachable(f"the claim of {node} was deleted just now") from None
        if not self._is_own(claim, node):
            raise Refused(f"NodeClaim {name} is not of this installation, and has the name of {node}; look at it")
        return self._machine(claim)

    def _is_own(self, claim: Obj, node: str) -> bool:
        owner = (claim["metadata"].get("labels") or {}).get(annotations.INSTALLATION)
        return owner == annotations.label_value(self.installation) and node_of(claim) == node

    def _machine(self, claim: Obj) -> RentedMachine:
        meta, status = claim["metadata"], describe_conditions(claim)
        return RentedMachine(
            node=node_of(claim),
            name=str(meta["name"]),
            uid=str(meta["uid"]),
            asked_at=asked_at_of(claim),
            age_seconds=self.age_seconds(claim),
            deadline_at=self._stands(claim),
            ending="deletionTimestamp" in meta,
            launched=is_launched(claim),
            status=status,
            shortage="settings" if "Launched" in status else "",
        )

    def _stands(self, claim: Obj) -> Instant:
        """What is written on it; or, if the create was late, what Karpenter makes of it, which counts from then."""
        written, lasts = deadline_of(claim), lasts_seconds(claim)
        if lasts is None:
            return written
        ends_at = self.clock() + int((lasts - self.age_seconds(claim)) * SECOND)
        return written if ends_at <= written + 2 * SECOND else ends_at

    # --- what is there -----------------------------------------------------------------------------------------------

    async def find(self, machine: RentedMachine) -> RentedMachine | None:
        """By the informer where it is in step; else nobody knows, and it counts as there. A cache that is behind may
        show an earlier claim of this name, which says nothing about this one.
        """
        claim = self._cached(machine)
        if claim is not None:
            return self._machine(claim)
        if not self.claims.in_step.is_set():
            return machine
        now = await self.fetch(machine.node)
        return now if now is not None and now.uid == machine.uid else None

    def shows(self, machine: RentedMachine) -> bool | None:
        return self._cached(machine) is not None if self.claims.in_step.is_set() else None

    def _cached(self, machine: RentedMachine) -> Obj | None:
        claim = self.claims.get(machine.name)
        return claim if claim is not None and str(claim["metadata"]["uid"]) == machine.uid else None

    async def fetch(self, node: str) -> RentedMachine | None:
        try:
            claim = await self.cluster_now().get(NODE_CLAIMS, self.name_of(node))
        except errors.NotFound:
            return None
        return self._machine(claim) if self._is_own(claim, node) else None

    async def fetch_all(self) -> Sequence[RentedMachine]:
        claims, _ = await self.cluster_now().list(NODE_CLAIMS, labels=self.ours)
        return [self._machine(claim) for claim in claims]

    async def end(self, machine: RentedMachine) -> None:
        """Karpenter ends the machine before it lets go of the claim."""
        with suppress(errors.NotFound, errors.Conflict):
            await self.cluster_now().delete(NODE_CLAIMS, machine.name, uid=machine.uid)

    async def why_gone(self, machine: RentedMachine) -> tuple[str, Shortage]:
        """Karpenter deletes a claim that it cannot get a machine for, and says why in an Event. Those of an earlier
        claim of its name are there for an hour.
        """
        fields = f"involvedObject.kind=NodeClaim,involvedObject.uid={machine.uid}"
        until = asyncio.get_running_loop().time() + EVENT_SECONDS
        while True:
            with suppress(errors.KubeError):
                events, _ = await self.cluster_now().list(EVENTS, CLUSTER_WIDE, fields=fields)
                if words := describe(events):
                    return words, shortage_of(words)
            if asyncio.get_running_loop().time() > until:
                return "", "stock_out"
            await asyncio.sleep(0.2)

    # --- news --------------------------------------------------------------------------------------------------------

    def _claim_changed(self, before: Obj | None, now: Obj | None) -> None:
        claim = now or before
        assert claim is not None
        if now is None:
            self.say_gone(claim)
        elif "deletionTimestamp" in now["metadata"] and not self.is_earlier(now):
            self.say_notice(node_of(claim), "Karpenter ends its node")
        self.wake(str(claim["metadata"]["name"]))

    def notice_on(self, name: str) -> str:
        claim = self.claims.get(name)
        ends = claim is not None and "deletionTimestamp" in claim["metadata"] and not self.is_earlier(claim)
        return "Karpenter ends its node" if ends else super().notice_on(name)

    def has(self, name: str) -> bool:
        return self.claims.get(name) is not None


def is_launched(claim: Obj) -> bool:
    """The cloud has made a machine for it."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Launched" and c.get("status") == "True" for c in conditions)


def describe_conditions(claim: Obj) -> str:
    """What Karpenter says of a claim that is not there yet."""
    conditions = (claim.get("status") or {}).get("conditions") or ()
    wrong = [c for c in conditions if c.get("status") != "True" and c.get("message") and c.get("type") != "Ready"]
    return f"{wrong[0]['type']}: {wrong[0]['message']}"[:300] if wrong else ""
