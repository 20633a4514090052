"""Keeps Kueue from reserving quota for home Jobs. Kueue gives each Job of a namespace the LocalQueue `default` if there
is one.

A home Job runs no pods, so it must hold no quota: we label it with a LocalQueue that does not exist, and Kueue leaves
it suspended. An annotation keeps the user's own queue; the execution Jobs go through that one and are counted once.

Where Kueue would not take it, it has no such label: then `suspend` is its user's, as in plain Kubernetes.
"""

from typing import Any, Final

QUEUE: Final = "kueue.x-k8s.io/queue-name"
VERSIONS: Final = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")  #: of its API; a cluster with Kueue serves one
LOCAL_QUEUE: Final = "LocalQueue"
DEFAULT: Final = "default"  #: the LocalQueue that Kueue gives to each Job of a namespace that has it
NOWHERE: Final = "penstock-home"  #: a LocalQueue that does not exist
MEANT: Final = (
    "penstock.dev/kueue-queue"  #: annotation: the LocalQueue for execution Jobs; empty: the namespace's default
)


def parked(metadata: dict[str, Any]) -> dict[str, Any]:
    """A home Job's metadata with the queue label that Kueue ignores."""
    labels, meant = metadata.get("labels") or {}, queue_of(metadata)
    annotations = {**(metadata.get("annotations") or {}), **({MEANT: meant} if meant else {})}
    return {**metadata, "labels": {**labels, QUEUE: NOWHERE}, "annotations": annotations}


def park(metadata: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that does the same to an existing Job; empty if nothing differs."""
    label = (metadata.get("labels") or {}).get(QUEUE)
    if not label or label == NOWHERE:
        return {}
    return {"metadata": {"labels": {QUEUE: NOWHERE}, "annotations": {MEANT: label}}}


def unparked(metadata: dict[str, Any]) -> dict[str, Any]:
    """A home Job's metadata without a queue label, for where no Kueue would take it."""
    labels, meant = metadata.get("labels") or {}, queue_of(metadata)
    annotations = {**(metadata.get("annotations") or {}), **({MEANT: meant} if meant else {})}
    others = {key: text for key, text in labels.items() if key != QUEUE}
    return {**metadata, "labels": others, "annotations": annotations}


def unpark(metadata: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that does the same to an existing Job; empty if nothing differs."""
    label = (metadata.get("labels") or {}).get(QUEUE)
    if not label:
        return {}
    meant = {"annotations": {MEANT: label}} if label != NOWHERE else {}
    return {"metadata": {"labels": {QUEUE: None}, **meant}}


def queue_of(metadata: dict[str, Any]) -> str:
    """The LocalQueue for execution Jobs; empty if the user named none."""
    label = str((metadata.get("labels") or {}).get(QUEUE) or "")
    return label if label != NOWHERE and label else str((metadata.get("annotations") or {}).get(MEANT) or "")


def is_kueues(metadata: dict[str, Any]) -> bool:
    """True if Kueue manages `suspend` of this Job; nobody else may change it then."""
    return bool((metadata.get("labels") or {}).get(QUEUE))
