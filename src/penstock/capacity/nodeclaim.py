"""A Karpenter NodeClaim for one rented node, and what such a claim says. Pure; `karpenter` calls it."""

import re
from collections.abc import Sequence
from typing import Any, Final

from penstock.capacity.contract import object_name
from penstock.core.model.actions import LaunchNode
from penstock.core.model.reasons import Shortage
from penstock.core.model.types import Offer
from penstock.core.units import DAY, SECOND, Instant, Millis
from penstock.kube import annotations
from penstock.kube.client import Obj
from penstock.kube.gpu_models import mig_config
from penstock.kube.node_selection import KarpenterWay, NodeSelection, RentedNodes
from penstock.site_answers import Refused

#: A claim always has an end of its own, whatever it was asked for.
LONGEST_MS: Final[Millis] = 30 * DAY
#: The clouds' own words for a quota: AWS, Azure, Google.
QUOTA: Final = re.compile("quota|LimitExceeded|vCPU limit|CountExceeded", re.IGNORECASE)
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
#: Events with which Karpenter says why it deleted a claim.
REASONS: Final[dict[str, Shortage]] = {"InsufficientCapacityError": "stock_out", "NodeClassNotReady": "settings"}


def node_claim(ask: LaunchNode, offer: Offer, place: NodeSelection, installation: str, now: Instant) -> Obj:
    """Everything that must survive us is on it: whose it is, for which node, until when."""
    rent = place.rent
    assert rent is not None
    assert isinstance(rent.way, KarpenterWay)
    left_ms = min(max(SECOND, ask.deadline_at - now), LONGEST_MS)
    name = annotations.node_name(object_name(installation, ask.node))
    labels = {annotations.INSTALLATION: annotations.label_value(installation), annotations.NODE: name}
    notes = {
        annotations.NODE_ID: ask.node,
        annotations.OFFER: ask.offer,
        annotations.ASKED_AT: str(now),
        annotations.NODE_DEADLINE: str(min(ask.deadline_at, now + left_ms)),
    }
    return {
        "metadata": {
            "name": name,
            "labels": {**mig_config(offer.mig_profile), **dict(rent.labels), **labels},
            "annotations": notes,
        },
        "spec": {
            "nodeClassRef": {"group": rent.way.group, "kind": rent.way.kind, "name": rent.way.name},
            "requirements": _requirements(ask, offer, rent),
            # No instance type has slices: they are cut once the node is there.
            **({} if offer.mig_profile else {"resources": {"requests": {place.resource: str(ask.gpus)}}}),
            "taints": [annotations.rented_taint(installation), *(taint.as_dict() for taint in rent.taints)],
            "expireAfter": f"{left_ms // SECOND}s",
            # The other half of `kill` is the cloud's, to end the machine.
            "terminationGracePeriod": f"{max(1, offer.kill_ms // 2 // SECOND)}s",
        },
    }


def _requirements(ask: LaunchNode, offer: Offer, rent: RentedNodes) -> list[Obj]:
    types = rent.types_for(offer, ask.gpus)
    if not types:
        raise Refused(f"{offer.id} has no node type with {ask.gpus} GPUs; give it one")
    wanted = {
        INSTANCE_TYPE: types,
        CAPACITY_TYPE: ("spot" if offer.term == "spot" else "on-demand",),
        ZONE: rent.zones,
    }
    return [{"key": key, "operator": "In", "values": list(values)} for key, values in wanted.items() if values]


def lasts_seconds(claim: Obj) -> float | None:
    """Its `expireAfter`, as we write it; None: it has none."""
    expire_after = str((claim.get("spec") or {}).get("expireAfter", ""))
    units = {"h": 3600, "m": 60, "s": 1}
    parts = re.findall(r"([0-9.]+)([hms])", expire_after)
    return sum(float(number) * units[unit] for number, unit in parts) if parts else None


def describe(events: Sequence[dict[str, Any]]) -> str:
    """Why Karpenter gave a claim up, by its Events; empty: they do not say."""
    why = [event for event in events if event.get("reason") in REASONS]
    return f"{why[-1]['reason']}: {why[-1].get('message', '')}"[:500] if why else ""


def shortage_of(words: str) -> Shortage:
    if QUOTA.search(words):
        return "quota"
    return next((shortage for reason, shortage in REASONS.items() if words.startswith(reason)), "stock_out")
