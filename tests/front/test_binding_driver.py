"""Bound before it is started, and only by whoever is newest: on a real API server."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import NodeShape, Offer, Site
from penstock.core.units import NEVER
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import Unreachable
from penstock.front.binding_driver import BindingDriver, bind
from penstock.front.home_cluster import HomeCluster
from penstock.front.home_jobs import HomeJobs
from penstock.front.job_spec import read
from penstock.front.status import bound_attempt
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, Cluster
from penstock.kube.errors import Conflict
from penstock.live.clock import Clock
from penstock.sim.engine.rehearsal import Rehearsal, Stage
from penstock.sim.engine.world import World
from tests.front.kit import Runs, home_job

pytestmark = pytest.mark.slow
LAB = Site("lab", (Offer("lab/a100", "lab", "owned", (NodeShape(8, 1),)),), front_door=True)
Json = dict[str, Any]


def start(number: int) -> StartAttempt:
    return StartAttempt(f"j7.{number}", "j7", "lab/a100", 8, 1000, 0, ((0, 8),), (), NEVER)


def on(cluster: ExternalCluster, tell: Callable[[Cluster], Any]) -> None:
    async def run() -> None:
        home = connect(Access(kubeconfig=str(cluster.kubeconfig)))
        try:
            await tell(home)
        finally:
            await home.close()

    asyncio.run(run())


@pytest.fixture
def job(lab: ExternalCluster, namespace: str) -> Json:
    made = home_job("a")
    made["metadata"]["namespace"] = namespace
    lab.apply(made)
    return lab.get("-n", namespace, "job", "a")


def test_a_newer_attempt_is_bound_and_an_older_one_never_again(lab: ExternalCluster, job: Json) -> None:
    async def tell(home: Cluster) -> None:
        metadata = job["metadata"]
        await bind(home, metadata, start(1))
        await bind(home, metadata, start(2))
        with pytest.raises(Conflict, match="newer than"):
            await bind(home, metadata, start(1))
        there = await home.get(JOBS, "a", metadata["namespace"])
        assert bound_attempt(there) == "j7.2"
        await bind(home, metadata, start(2))
        again = await home.get(JOBS, "a", metadata["namespace"])
        assert again["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]

    on(lab, tell)


def test_ten_who_bind_at_once_leave_the_newest_bound(lab: ExternalCluster, job: Json) -> None:
    async def tell(home: Cluster) -> None:
        binds = [bind(home, job["metadata"], start(number)) for number in range(1, 6)]
        await asyncio.gather(*binds, return_exceptions=True)
        assert bound_attempt(await home.get(JOBS, "a", job["metadata"]["namespace"])) == "j7.5"

    on(lab, tell)


def test_a_job_that_a_watch_shows_is_bound_held_and_unsuspended_in_one_request(lab: ExternalCluster, job: Json) -> None:
    async def tell(home: Cluster) -> None:
        bound = await bind(home, job["metadata"], start(1), seen=job)
        assert home.requests == {"patch jobs.batch": 1}
        assert (bound["spec"]["suspend"], bound["metadata"]["finalizers"]) == (False, [annotations.CANCEL])
        assert bound_attempt(bound) == "j7.1"

    on(lab, tell)


def test_a_watch_that_is_behind_costs_two_requests_more_and_binds_nothing_wrong(
    lab: ExternalCluster, job: Json
) -> None:
    async def tell(home: Cluster) -> None:
        await bind(home, job["metadata"], start(3), seen=job)
        with pytest.raises(Conflict, match="newer than"):
            await bind(home, job["metadata"], start(2), seen=job)
        await bind(home, job["metadata"], start(4), seen=job)
        assert home.requests == {"patch jobs.batch": 4, "get jobs.batch": 2}
        assert bound_attempt(await home.get(JOBS, "a", job["metadata"]["namespace"])) == "j7.4"

    on(lab, tell)


def test_nothing_is_started_for_a_job_that_cannot_be_bound(lab: ExternalCluster, job: Json) -> None:
    async def tell(home: Cluster) -> None:
        clock = Clock()
        stage = Stage(World((LAB,), Runs({})), clock.now)
        gate = BindingDriver(Rehearsal("lab", stage), {"lab": HomeJobs(HomeCluster("lab", home))})
        await gate.open(lambda _: None)
        other = {**job, "metadata": {**job["metadata"], "uid": "of-one-that-was-here-before"}}
        with pytest.raises(Unreachable, match="another Job has its name now"):
            await gate.do(start(1), read(other, "lab", clock.now()).work)
        assert stage.begun == {}
        await gate.do(start(1), read(job, "lab", clock.now()).work)
        assert list(stage.begun) == ["j7.1"]
        await stage.halt()

    on(lab, tell)
