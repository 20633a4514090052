"""Every Job is given back, and nothing of ours stays."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.devcluster.given import GivenCluster
from penstock.front import leaving
from penstock.kube import names
from penstock.kube.access import Access, connect
from penstock.kube.errors import Forbidden
from tests.front.kit import LIMIT_S, SITES, Penstock, complete, home_job, running

pytestmark = pytest.mark.slow
DELAY = "pod-complete.stage.kwok.x-k8s.io/delay"
Json = dict[str, Any]


@pytest.fixture
def penstock(lab: GivenCluster, namespace: str, tmp_path: Path) -> Callable[..., Penstock]:
    return lambda **more: Penstock(lab, namespace, tmp_path, sites=SITES[:1], **more)


def lasting(name: str) -> Json:
    """On kwok's nodes, once it is an ordinary Job."""
    job = home_job(name, gpus=1, annotations={"deadline": "8h"})
    job["spec"]["template"]["metadata"] = {"annotations": {DELAY: "200ms"}, "labels": {"app": "train"}}
    return job


def waiting(job: Json) -> bool:
    return bool((job.get("status") or {}).get("conditions")) and not running(job)


def test_what_waits_becomes_an_ordinary_job_and_what_runs_is_shown_to_its_end(
    penstock: Callable[..., Penstock],
) -> None:
    async def tell() -> None:
        async with penstock(runs={"j0": 6}) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(lasting("b"))
            first = await here.shows("b", waiting)
            here.hall.leave("lab")
            job = await here.shows(
                "b", lambda one: complete(one) and one["metadata"]["uid"] != first["metadata"]["uid"]
            )
            assert "managedBy" not in job["spec"] or job["spec"]["managedBy"] == "kubernetes.io/job-controller"
            await here.shows("a", lambda one: complete(one) and names.QUEUE not in one["metadata"].get("labels", {}))
            async with asyncio.timeout(LIMIT_S):
                await here.hall.doors["lab"].left.wait()
            there = here.given.get("-n", here.namespace, "jobs,configmaps,leases", "--show-managed-fields=false")[
                "items"
            ]
            assert names.DOMAIN not in json.dumps([(one["metadata"], one.get("status")) for one in there])
            assert {one["metadata"]["name"] for one in there} == {"a", "b", "kube-root-ca.crt"}
            assert here.phase("j0") == "done"

    asyncio.run(tell())


def test_one_that_comes_while_we_leave_is_an_ordinary_job_too(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.hall.leave("lab")
            here.apply(lasting("late"))
            job = await here.shows("late", complete)
            assert names.QUEUE not in (job["metadata"].get("labels") or {})
            assert here.phase("j1") == ""

    asyncio.run(tell())


def test_one_that_dies_between_two_lives_of_a_job_loses_nothing(
    lab: GivenCluster, namespace: str, penstock: Callable[..., Penstock]
) -> None:
    """Ours may delete Jobs and make none: it fails in the middle. Whoever comes next goes on from what was kept."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "patch", "delete"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "delete"]},
    ]
    limited = lab.token_for(f"half-{namespace}", rules)

    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(lasting("b"))
            waits = await here.shows("b", waiting)
            await here.goes_down()
            half = connect(Access(kubeconfig=str(limited)))
            with pytest.raises(Forbidden):
                await leaving.give_back(half, waits)
            await half.close()
            await here.is_gone("b")
            here.kept.write_text("lab\n")
            await here.comes_up()
            await here.shows("b", complete)

    asyncio.run(tell())


def test_an_ordinary_job_is_what_it_was_without_us() -> None:
    applied = home_job("a", annotations={"deadline": "8h"})
    applied["metadata"] |= {"uid": "u", "namespace": "n", "finalizers": [names.CANCEL], "resourceVersion": "7"}
    applied["metadata"]["labels"]["app"] = "train"
    applied["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    applied["spec"]["template"]["metadata"] = {"labels": {"app": "train", "job-name": "a", "controller-uid": "u"}}
    made = leaving.ordinary(applied)
    assert made["metadata"] == {"name": "a", "namespace": "n", "labels": {"app": "train"}, "annotations": {}}
    assert set(made["spec"]) == {"template"}
    assert made["spec"]["template"]["metadata"] == {"labels": {"app": "train"}}
