"""What people are used to do with Jobs: read their log, list them, and delete them all. On two clusters, with kwok's
pods.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster import ClusterGroup
from penstock.kube import annotations
from tests.clusters import emptied_namespace
from tests.front.kit import Clustered, binding, home_job, running

pytestmark = pytest.mark.slow
Made = Callable[..., Clustered]
Json = dict[str, Any]


@pytest.fixture
def penstock(own_bed: ClusterGroup, tmp_path: Path) -> Iterator[Made]:
    lab, east = own_bed.cluster("lab"), own_bed.cluster("east")
    with emptied_namespace(lab, east) as namespace:
        yield lambda **more: Clustered(lab, east, namespace, tmp_path, **more)


def test_deleting_all_jobs_cancels_the_home_jobs_and_leaves_nothing_behind(penstock: Made) -> None:
    async def tell() -> None:
        async with penstock() as here:
            lab, namespace = here.clusters["lab"], here.namespace
            here.apply(home_job("a"))
            job = await here.shows("a", running)
            here.apply(home_job("b"))
            await here.shows("b", running)
            (made,) = here.executions("lab")
            assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
            assert "ownerReferences" not in here.executions("east")[0]["metadata"]
            listed = lab.kubectl("-n", namespace, "get", "jobs", "-l", f"!{annotations.EXECUTION}", "-o", "name")
            assert sorted(listed.split()) == ["job.batch/a", "job.batch/b"]
            pods = lab.kubectl("-n", namespace, "get", "pods", "-l", "job-name=a", "-o", "name").split()
            assert len(pods) == 1
            await asyncio.to_thread(lab.kubectl, "-n", namespace, "delete", "jobs", "--all", "--timeout=55s")
            async with asyncio.timeout(20):  # an ended execution goes with its home Job
                while lab.get("-n", namespace, "jobs")["items"]:
                    await asyncio.sleep(0.2)
            for number in ("j0", "j1"):
                await here.ends(number, "cancelled")
                assert len(here.reader.attempts(number)) == 1
            async with asyncio.timeout(50):
                while any(cluster.get("-n", namespace, "pods")["items"] for cluster in here.clusters.values()):
                    await asyncio.sleep(0.2)

    asyncio.run(tell())


def test_an_event_names_the_command_for_the_log_within_a_second_of_the_start(penstock: Made) -> None:
    """`kubectl logs job/x` finds no pod elsewhere, and says nothing that would help."""

    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b"))
            job = await here.shows("b", running)
            assert binding(job)["site"] == "east"
            command = f"kubectl penstock logs -f b -n {here.namespace}"
            events = await here._until(lambda: [event for event in here.told("b") if command in event["message"]])
            (attempt,) = here.reader.attempts("j1")
            posted = datetime.fromisoformat(events[0]["metadata"]["creationTimestamp"]).timestamp()
            assert posted <= (attempt.started_at or 0) / 1000 + 1
            assert f"{annotations.LOGS}: {command}" in here.given.kubectl("-n", here.namespace, "describe", "job", "b")

    asyncio.run(tell())
