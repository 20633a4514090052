"""Where Kueue keeps quota at home: the home Job reserves none, what runs for it is counted once, and what Kueue holds
back is said to wait at the site."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model.types import NodeShape, Offer, Site
from penstock.data.checkpoints import NoStore
from penstock.devcluster import DevCluster, kueue, programs
from penstock.drivers.driver import Driver
from penstock.drivers.kubernetes.connection import KubernetesSettings
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.front import defaulting, job_spec
from penstock.front.status import is_suspended_by_user
from penstock.front.uninstall import restore_jobs
from penstock.kube import annotations
from penstock.kube import kueue as beside
from penstock.kube.access import Access, connect
from penstock.kube.maps import Maps, has
from penstock.web.routes.jobs import detail_of
from penstock.web.tokens import Token
from tests.conftest import Part
from tests.front.kit import Penstock, complete, home_job, running

Json = dict[str, Any]


class AtHome(Penstock):
    """One cluster, home and site."""

    def __init__(self, lab: DevCluster, namespace: str, folder: Path) -> None:
        owned = Offer("lab/a100", "lab", "owned", (NodeShape(8, None),), gpu_model="A100")
        super().__init__(lab, namespace, folder, sites=(Site("lab", (owned,), front_door=True, has=has(Maps("lab"))),))

    def drivers(self) -> dict[str, Driver]:
        settings = KubernetesSettings(namespace=self.namespace, maps=Maps("lab"), shared=True)
        access = Access(kubeconfig=str(self.given.kubeconfig))
        made = (self.sites[0], self.folder / "lab", self.journal.installation, NoStore(), self.clock.now)
        return {"lab": KubernetesDriver(*made, lambda: connect(access), settings)}


def reserved(cluster: DevCluster, queue: str) -> tuple[int, str]:
    """Workloads with quota, and their GPUs."""
    status = cluster.get(f"clusterqueue/{queue}")["status"]
    counted = {resource["name"]: resource["total"] for resource in status["flavorsReservation"][0]["resources"]}
    return status["reservingWorkloads"], counted["nvidia.com/gpu"]


async def until_reserved(cluster: DevCluster, queue: str, wanted: tuple[int, str]) -> None:
    """Kueue counts a moment after it lets somebody in."""
    async with asyncio.timeout(60):
        while reserved(cluster, queue) != wanted:
            await asyncio.sleep(0.1)


def runs(name: str, delay: str) -> Json:
    job = home_job(name)
    job["spec"]["template"]["metadata"] = {"annotations": {"pod-complete.stage.kwok.x-k8s.io/delay": delay}}
    return job


@pytest.mark.slow
@pytest.mark.skipif(not programs.are_available(), reason=Part.KUBERNETES)
@pytest.mark.skipif(not kueue.is_available(), reason=Part.KUEUE)
def test_a_home_job_reserves_no_quota_what_runs_is_counted_once_and_what_is_held_back_waits_at_the_site(
    kueue_cluster: DevCluster, with_quota: Callable[[int], str], tmp_path: Path
) -> None:
    cluster, namespace = kueue_cluster, with_quota(8)

    async def tell() -> None:
        async with AtHome(cluster, namespace, tmp_path) as here:
            here.apply(defaulting.as_home_job(runs("a", "12s"), kueue_takes_it=True))
            await here.shows("a", running)
            await until_reserved(cluster, namespace, (1, "8"))  # by what runs, and not by the home Job
            here.apply(runs("b", "1s"))  # as it is: Kueue gives it the queue `default`, and holds it back
            await here.says("b", "QueuedAtSite")
            waits = "Queued at site lab: its queue there holds it back until there is quota for it."
            assert waits in here.why("j1")
            shown = detail_of(here.plane, here.reader, Token("", "", "admin"), "j1")
            assert shown.waits.startswith("queued at site lab: ")
            assert reserved(cluster, namespace) == (1, "8")
            await here.shows("a", complete)
            job = await here.shows("b", complete)
            assert job["metadata"]["annotations"][beside.MEANT] == "default"
            assert [attempt.outcome for attempt in here.reader.attempts("j1")] == ["done"]

    asyncio.run(tell())


def test_one_that_kueue_has_admitted_already_is_explained_and_runs_nowhere() -> None:
    admitted = home_job("a", labels={beside.QUEUE: "default"}, spec={"suspend": False})
    with pytest.raises(job_spec.Unfit, match="Delete it and create it with 'kubectl penstock apply'") as refused:
        job_spec.read(admitted, "lab", 0)
    assert refused.value.reason == "CountedByKueue"
    job_spec.read(home_job("a", labels={beside.QUEUE: beside.NOWHERE}, spec={"suspend": False}), "lab", 0)


def test_the_queue_that_was_meant_is_kept_for_what_runs_and_given_back_when_we_leave() -> None:
    plain = home_job("a", labels={beside.QUEUE: "research"})
    plain["metadata"]["uid"] = "u"
    home = defaulting.as_home_job(plain, kueue_takes_it=True)
    assert home["metadata"]["labels"][beside.QUEUE] == beside.NOWHERE
    assert beside.queue_of(home["metadata"]) == "research"
    assert defaulting.as_home_job(home, kueue_takes_it=True) == home
    assert restore_jobs.ordinary(home)["metadata"]["labels"] == {beside.QUEUE: "research"}
    assert restore_jobs.ordinary(defaulting.as_home_job(home_job("b"), kueue_takes_it=True))["metadata"]["labels"] == {}


def test_where_no_kueue_would_take_it_a_job_keeps_no_queue_label_and_its_suspend_is_its_users() -> None:
    """Each Job of `kubectl penstock apply` had Kueue's label, Kueue or not: its user's suspend changed nothing."""
    plain = home_job("a", labels={beside.QUEUE: "research"})
    home = defaulting.as_home_job(plain)
    assert beside.QUEUE not in home["metadata"]["labels"]
    assert beside.queue_of(home["metadata"]) == "research"  # where it runs elsewhere, there may be one
    begun = {"metadata": {**home["metadata"], "annotations": {annotations.UNSUSPENDED: "j1.1"}}, "spec": home["spec"]}
    assert is_suspended_by_user(begun)
    assert beside.unpark({"labels": {beside.QUEUE: beside.NOWHERE}}) == {"metadata": {"labels": {beside.QUEUE: None}}}
    assert beside.unpark({"labels": {}}) == {}


def test_where_kueue_keeps_a_job_suspended_an_annotation_says_what_its_user_wants() -> None:
    parked = defaulting.as_home_job(home_job("a"), kueue_takes_it=True)
    parked["metadata"]["annotations"][annotations.UNSUSPENDED] = "j1.1"
    assert not is_suspended_by_user(parked)
    for text, suspended in (("true", True), ("false", False)):
        parked["metadata"]["annotations"][annotations.SUSPEND] = text
        assert is_suspended_by_user(parked) == suspended
