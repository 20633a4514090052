"""Kueue beside us: it gives each Job of a namespace the LocalQueue `default` if there is one, and reserves quota.

A home Job runs nothing, so it must reserve nothing: it names a LocalQueue that does not exist, and Kueue leaves it
suspended. The queue that its user meant is kept beside, and its execution Jobs go through that one, counted once.
"""

from typing import Any, Final

QUEUE: Final = "kueue.x-k8s.io/queue-name"
NOWHERE: Final = "penstock-home"  #: no LocalQueue is called so
MEANT: Final = "penstock.dev/kueue-queue"  #: annotation: the LocalQueue for what runs; empty: the namespace's own


def parked(metadata: dict[str, Any]) -> dict[str, Any]:
    """A home Job's metadata, so that Kueue reserves nothing for it."""
    labels, meant = metadata.get("labels") or {}, queue_of(metadata)
    annotations = {**(metadata.get("annotations") or {}), **({MEANT: meant} if meant else {})}
    return {**metadata, "labels": {**labels, QUEUE: NOWHERE}, "annotations": annotations}


def park(metadata: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that does the same to one that is there; empty if nothing is to be done."""
    label = (metadata.get("labels") or {}).get(QUEUE)
    if not label or label == NOWHERE:
        return {}
    return {"metadata": {"labels": {QUEUE: NOWHERE}, "annotations": {MEANT: label}}}


def queue_of(metadata: dict[str, Any]) -> str:
    """The LocalQueue for what runs; empty: none was named."""
    label = str((metadata.get("labels") or {}).get(QUEUE) or "")
    return label if label != NOWHERE and label else str((metadata.get("annotations") or {}).get(MEANT) or "")


def is_kueues(metadata: dict[str, Any]) -> bool:
    """Kueue suspends and resumes it as it thinks right: others who try only quarrel with it."""
    return bool((metadata.get("labels") or {}).get(QUEUE))
