"""Workloads as Kueue shows them, for tests of what reads them."""

from typing import Any

from penstock.kube import annotations
from penstock.kube.kueue_api import MAX_SECONDS, MULTIKUEUE

Json = dict[str, Any]
OWNER = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u1", "controller": True}
CONTROLLERS = {"penstock": "penstock.dev/budget", "multikueue": MULTIKUEUE}


def pods(name: str = "worker", count: object = 1, gpus: int = 8, **pod: Any) -> Json:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    spec = {"containers": [{"name": "a", "resources": {"limits": limits}}], **pod}
    return {"name": name, "count": count, "template": {"spec": spec}}


def workload(*sets: Json, **more: Any) -> Json:
    """With quota, waiting for our check. `conditions`: true ones, with their reasons; `checks`: states by name;
    `marks`: our annotations; `most` and `used`: seconds; `active`, `owner`, `annotations`.
    """
    spec: Json = {"podSets": list(sets or (pods(),)), "active": more.get("active", True)}
    if (most := more.get("most")) is not None:
        spec["maximumExecutionTimeSeconds"] = most
    conditions = more.get("conditions", {"QuotaReserved": "QuotaReserved"})
    checks = more.get("checks", {"penstock": "Pending"})
    status: Json = {
        "conditions": [
            {"type": kind, "status": "True", "reason": why, "message": why} for kind, why in conditions.items()
        ],
        "admissionChecks": [
            {"name": name, "state": state, "message": "", "lastTransitionTime": "2026-11-18T09:00:00Z"}
            for name, state in checks.items()
        ],
    }
    if used := more.get("used"):
        status["accumulatedPastExecutionTimeSeconds"] = used
    marks = {f"penstock.dev/{key}": text for key, text in more.get("marks", {}).items()}
    return {
        "metadata": {
            "name": "pytorchjob-train-12345",
            "namespace": "vision",
            "uid": "w1",
            "resourceVersion": "7",
            "ownerReferences": [more.get("owner", OWNER)],
            "annotations": marks | more.get("annotations", {}),
        },
        "spec": spec,
        "status": status,
    }


def owner(seconds: int = 0, team: str = "", **job_annotations: str) -> Json:
    """The PyTorchJob. `said`: our annotations, with `_` for `-`."""
    labels = ({MAX_SECONDS: str(seconds)} if seconds else {}) | ({annotations.QUEUE: team} if team else {})
    marks = {f"penstock.dev/{key.replace('_', '-')}": text for key, text in job_annotations.items()}
    return {"metadata": {"name": "train", "namespace": "vision", "uid": "u1", "labels": labels, "annotations": marks}}
