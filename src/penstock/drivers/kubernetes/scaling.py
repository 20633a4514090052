"""Tells apart why pods have no node where an autoscaler adds nodes: one is coming, the cloud has none left, a quota is
used up, the settings are wrong, the autoscaler is at its limit, or no node that it could add would do.

Autoscalers say so in Events alone: Karpenter on the pod and on its NodeClaim, cluster-autoscaler and GKE on the pod.
`trouble` asks for a start whose pods have no node at an offer that is rented; `start` decides what follows.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.core.units import HOUR, MINUTE, Millis
from penstock.drivers.kubernetes.cluster_events import ClusterEvent
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.pods import Scaling, ScalingKind
from penstock.kube.client import Obj

#: The worst first: a gang starts whole or not at all.
WORST: Final[tuple[ScalingKind, ...]] = ("impossible", "settings", "quota", "stock_out", "limit", "coming")
#: How long the offer is closed: stock comes back by itself, a quota and settings want a person.
CLOSED_MS: Final[dict[str, Millis]] = {"stock_out": 5 * MINUTE, "quota": 4 * HOUR, "settings": HOUR}
SENTENCES: Final[dict[ScalingKind, str]] = {
    "coming": "a node is being added for it",
    "stock_out": "the cloud has no such node now",
    "quota": "a quota at the cloud is used up",
    "settings": "the autoscaler's settings must be repaired",
    "limit": "the autoscaler has reached its limit",
    "impossible": "no node that the autoscaler could add would do",
}
ASKED_PODS: Final = 2  #: of a gang: the others hear the same

#: The clouds' own words for a quota: AWS, Azure, Google.
QUOTA: Final = re.compile(
    "quota|VcpuLimitExceeded|vCPU limit|InstanceLimitExceeded|MaxSpotInstanceCountExceeded|InstanceCountExceeded",
    re.IGNORECASE,
)
#: Karpenter, of types that would do and that it takes for sold out for some minutes.
SOLD_OUT: Final = re.compile("no instance type (?:has the|which met .* had enough resources, had a) required offering")
#: Karpenter; then cluster-autoscaler 1.20 to 1.37, of a node group, of the whole cluster, and of a gang.
LIMIT: Final = re.compile(
    "exceed limits|limits have been exhausted"
    "|max node group size reached"
    '|max total nodes in cluster reached|max cluster .+ limit reached|exceeded quota: "'
    "|atomic scale-up exceeds cluster node count limit|not all pods would fit and scale-up is using all-or-nothing"
    "|expansion options filtered out",
    re.IGNORECASE,
)
#: A node group that cluster-autoscaler leaves alone for some minutes, because the cloud gave it no node, or a sick one.
BACKOFF: Final = re.compile(
    "backoff|not ready for scale-up|scale-up execution failed|out of resources|stockout", re.IGNORECASE
)
#: Karpenter on a pod; the scheduler's own Events have the same reason.
BY_KARPENTER: Final = "Failed to schedule pod, "
POOL: Final = re.compile(r"\(NodePool=([^\s,)]+)")
POOL_LABEL: Final = "karpenter.sh/nodepool"  #: of every node that a pool has made
CLAIM: Final = re.compile(r"nodeclaim/([^\s,]+)")


def look(here: Connection, pods: Iterable[Obj], pool: str = "") -> Scaling | None:
    """What the autoscaler says of pods without a node; None: nothing, or nothing that we may read. `pool`: the NodePool
    that they must come from; empty: any.
    """
    verdicts = [verdict for pod in list(pods)[:ASKED_PODS] if (verdict := _look_at(here, pod, pool)) is not None]
    return min(verdicts, key=lambda verdict: WORST.index(verdict.kind), default=None)


def _look_at(here: Connection, pod: Obj, pool: str) -> Scaling | None:
    """Karpenter says on the pod which claim is for it, and on the claim that the cloud refused it."""
    events = here.events.about(pod["metadata"])
    on_pod = newest(events, pool)
    claim = _claim_in(events)
    if on_pod is None or on_pod.kind != "coming" or not claim:
        return on_pod
    on_claim = newest(here.events.of_claim(claim))
    return on_claim or on_pod


def newest(events: Sequence[ClusterEvent], pool: str = "") -> Scaling | None:
    """The newest Event that an autoscaler wrote, as what it means."""
    return next((verdict for event in reversed(events) if (verdict := meaning(event, pool)) is not None), None)


def meaning(event: ClusterEvent, pool: str = "") -> Scaling | None:
    """None: not an autoscaler's."""
    kind = _kind(event.reason, event.message, pool)
    return None if kind is None else Scaling(kind, f"{SENTENCES[kind]} ({event.reason}: {event.message})")


def _kind(reason: str, words: str, pool: str) -> ScalingKind | None:
    match reason:
        case "Nominated" | "TriggeredScaleUp":
            return "coming"
        case "InsufficientCapacityError":
            return "quota" if QUOTA.search(words) else "stock_out"
        case "NodeClassNotReady":
            return "settings"
        case "FailedScheduling" if words.startswith(BY_KARPENTER):
            return _unsuited("; ".join(part for part in words.split("; ") if not _of_another_pool(part, pool)))
        case "NotTriggerScaleUp":
            return _unsuited(words)
        case "FailedScaleUp":
            return "quota" if QUOTA.search(words) else "stock_out"
    return None


def _unsuited(words: str) -> ScalingKind:
    """It adds no node for the pod. The words name every pool: what counts is one that would do if it could."""
    if SOLD_OUT.search(words) or BACKOFF.search(words):
        return "stock_out"
    return "limit" if LIMIT.search(words) else "impossible"


def _of_another_pool(words: str, pool: str) -> bool:
    """Karpenter names all pools that are at their limit, also those whose nodes would not do."""
    named = POOL.search(words)
    return bool(pool) and named is not None and named.group(1) != pool


def _claim_in(events: Sequence[ClusterEvent]) -> str:
    """The claim that a pod was nominated to last."""
    matches = [CLAIM.search(event.message) for event in events if event.reason == "Nominated"]
    return matches[-1].group(1) if matches and matches[-1] else ""
