"""A home Job shows what Kubernetes would have shown: its own limits, counts, conditions. Two clusters, kwok's pods."""

import asyncio
import json
from typing import Any

import pytest

from penstock.kube import annotations
from tests.front.kit import Clustered, condition, failed, running
from tests.front.test_clusters import Made, lasting, penstock

pytestmark = pytest.mark.slow
__all__ = ["penstock"]
Json = dict[str, Any]


def pods(here: Clustered, site: str = "lab") -> list[Json]:
    found = here.clusters[site].get("-n", here.namespace, "pods")["items"]
    return [
        one for one in found if one["status"]["phase"] == "Running" and not one["metadata"].get("deletionTimestamp")
    ]


def evict(here: Clustered, pod: Json, site: str = "lab") -> None:
    name = pod["metadata"]["name"]
    about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": here.namespace}}
    path = f"/api/v1/namespaces/{here.namespace}/pods/{name}/eviction"
    here.clusters[site].kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(about))


def test_the_users_own_deadline_counts_over_attempts_and_fails_the_job(penstock: Made) -> None:
    """It was once read as our own stop: a 5-second deadline was an endless loop."""

    async def tell() -> None:
        async with penstock() as here:
            here.apply(lasting("a", spec={"activeDeadlineSeconds": 6}))
            await here.shows("a", running)
            await asyncio.sleep(1.1)  # so that a second of it is used
            (pod,) = pods(here)
            evict(here, pod)
            job = await here.shows("a", failed)
            ended = condition(job, "Failed")
            assert (ended["reason"], ended["message"]) == (
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            )
            assert condition(job, "FailureTarget")["reason"] == "DeadlineExceeded"
            first, second = (
                int(one["metadata"]["annotations"][annotations.OWN_DEADLINE])
                for one in sorted(here.executions("lab"), key=lambda one: str(one["metadata"]["creationTimestamp"]))
            )
            assert (first, second < 6) == (6, True)
            ours = job["metadata"]["annotations"][annotations.JOB]
            assert [one.outcome for one in here.reader.attempts(ours)] == ["lost", "failed"]
            assert any("DeadlineExceeded" in line for line in here.why(ours))

    asyncio.run(tell())
