"""A home Job shows what Kubernetes would have shown: its own limits, counts, conditions. Two clusters, kwok's pods."""

import asyncio
import json
from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.kube import annotations
from tests.front.kit import DELAY, LIMIT_S, Clustered, binding, complete, condition, failed, running
from tests.front.test_clusters import Made, lasting, penstock

pytestmark = pytest.mark.slow
__all__ = ["penstock"]
Json = dict[str, Any]


def pods(here: Clustered, site: str = "lab") -> list[Json]:
    listed = here.clusters[site].get("-n", here.namespace, "pods")["items"]
    return [
        pod for pod in listed if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
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
                int(execution["metadata"]["annotations"][annotations.OWN_DEADLINE])
                for execution in sorted(
                    here.executions("lab"), key=lambda execution: str(execution["metadata"]["creationTimestamp"])
                )
            )
            assert (first, second < 6) == (6, True)
            ours = job["metadata"]["annotations"][annotations.JOB]
            assert [attempt.outcome for attempt in here.reader.attempts(ours)] == ["lost", "failed"]
            assert any("DeadlineExceeded" in line for line in here.why(ours))

    asyncio.run(tell())


def batch(name: str, **spec: Any) -> Json:
    spec = {"parallelism": 2, "completions": 4, "completionMode": "Indexed", **spec}
    return lasting(name, gpus=1, spec=spec, annotations={"checkpoint-every": "1s", "run-time": "4h"})


def finish(here: Clustered, pod: Json, site: str = "lab") -> None:
    """This one ends well, now."""
    name = pod["metadata"]["name"]
    here.clusters[site].kubectl("-n", here.namespace, "annotate", "pod", name, "--overwrite", f"{DELAY}=0s")


def index(pod: Json) -> int:
    return int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


async def indexes_run(here: Clustered, *wanted: int, site: str = "lab") -> dict[int, Json]:
    """Wait until pods of these indexes run, and no others."""
    async with asyncio.timeout(LIMIT_S):
        while tuple(sorted(by_index := {index(pod): pod for pod in pods(here, site)})) != wanted:
            await asyncio.sleep(0.1)
    return by_index


def test_a_batch_shows_its_progress_loses_one_pod_alone_and_keeps_what_is_done_when_it_moves(penstock: Made) -> None:
    """It was once a gang: each lost pod cost all the others, and a move began from nothing."""

    async def tell() -> None:
        async with penstock() as here:
            here.apply(batch("a"))
            await here.shows("a", lambda shown: (shown["status"].get("active"), shown["status"].get("ready")) == (2, 2))
            finish(here, (await indexes_run(here, 0, 1))[0])
            job = await here.shows("a", lambda shown: shown["status"].get("completedIndexes") == "0")
            assert (job["status"]["succeeded"], job["status"].get("failed", 0)) == (1, 0)
            running_pods = await indexes_run(here, 1, 2)
            evict(here, running_pods[2])
            after = await indexes_run(here, 1, 2)
            assert after[1]["metadata"]["uid"] == running_pods[1]["metadata"]["uid"]
            (there,) = here.executions("lab")
            assert there["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"

            ours = job["metadata"]["annotations"][annotations.JOB]
            await here.plane.tell(e.MoveRequested(0, ours, "east/a100", by="t"))
            await here.starts(ours, "east")
            assert set(await indexes_run(here, 1, 2, site="east")) == {1, 2}
            job = await here.shows(
                "a", lambda shown: binding(shown)["site"] == "east" and shown["status"].get("ready") == 2
            )
            assert (job["status"]["completedIndexes"], job["status"]["succeeded"]) == ("0", 1)
            async with asyncio.timeout(LIMIT_S):
                while not complete(job := await here.shows("a", bool)):
                    here.finish("east")
                    await asyncio.sleep(0.2)
            assert (job["status"]["completedIndexes"], job["status"]["succeeded"]) == ("0-3", 4)
            assert condition(job, "Complete")["reason"] == "CompletionsReached"
            await here.goes_down()
            await here.comes_up()
            assert (await here.shows("a", complete))["status"] == job["status"]

    asyncio.run(tell())
