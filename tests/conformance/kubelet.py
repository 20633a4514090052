"""Plays the kubelet on kwok's nodes: ends or restarts the containers of a pod, as a step says."""

from datetime import UTC, datetime
from typing import Any

from penstock.kube.client import PODS, Cluster

Json = dict[str, Any]


async def end(cluster: Cluster, pod: Json, code: int, reason: str = "") -> None:
    """All containers of the pod end with this code."""
    await _write(cluster, pod, ended(pod, code, reason or ("Completed" if code == 0 else "Error")))


async def restart(cluster: Cluster, pod: Json, code: int) -> None:
    """They end with this code and start again in place, as `restartPolicy: OnFailure` has it."""
    await _write(cluster, pod, restarted(pod, code))


def ended(pod: Json, code: int, reason: str) -> Json:
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": now(), "finishedAt": now()}}
    conditions = [
        {**condition, "status": "False", "reason": "PodCompleted"}
        if condition["type"] in ("Ready", "ContainersReady")
        else condition
        for condition in pod["status"].get("conditions", ())
    ]
    statuses = [
        {**status, "ready": False, "started": False, "state": state} for status in pod["status"]["containerStatuses"]
    ]
    return {"phase": "Failed" if code else "Succeeded", "conditions": conditions, "containerStatuses": statuses}


def restarted(pod: Json, code: int) -> Json:
    last = {"terminated": {"exitCode": code, "reason": "Error", "startedAt": now(), "finishedAt": now()}}
    return {
        "containerStatuses": [
            {**status, "restartCount": status.get("restartCount", 0) + 1, "lastState": last}
            for status in pod["status"]["containerStatuses"]
        ]
    }


async def _write(cluster: Cluster, pod: Json, status: Json) -> None:
    metadata = pod["metadata"]
    await cluster.patch_status(PODS, metadata["name"], status, metadata["namespace"])


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
