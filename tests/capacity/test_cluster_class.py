"""Whole clusters by the real core of Cluster API, from a ClusterClass: up, used by a Job, extended, gone; and what is
refused in one sentence.
"""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capacity.cluster_class import ClusterClasses
from penstock.capacity.watchman import Watchman
from penstock.core.model import events as e
from penstock.core.model.actions import LaunchNode, StartAttempt
from penstock.core.model.types import NodeShape, Offer, Site, TransientCluster
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.data.checkpoints import NoStore
from penstock.devcluster import DevCluster, cluster_api
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import NeverReady, Refused, Unreachable, Work
from penstock.drivers.kubernetes.connection import KubernetesSettings
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.drivers.kubernetes.ownership import LEASE_LABELS
from penstock.drivers.kubernetes.transient import TransientDriver
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import CLUSTERS
from penstock.kube.node_selection import ClusterClassWay, NodeSelection
from tests.awaiting import story
from tests.contract.kit import Watch, home_job

pytestmark = pytest.mark.slow
TOY = "toy"
#: Kwok's pods do not run: how long they say they do is written on them.
QUICK = home_job("quick", {"pod-complete.stage.kwok.x-k8s.io/delay": "200ms"})
QUICK["metadata"]["annotations"] = {annotations.HOME: "burst"}
WORK = Work((), manifest=json.dumps(QUICK))


class TransientGround:
    """A site "burst" whose clusters come from the ClusterClass "toy", and are the dev cluster "east"."""

    def __init__(self, managing: DevCluster, namespace: str, east: ExternalCluster, folder: Path) -> None:
        self.managing, self.namespace, self.east, self.folder = managing, namespace, east, folder
        shape = NodeShape(0, 1, 100_000)
        cluster = Offer("burst/cluster", "burst", "on_demand", (shape,), start_ms=MINUTE, guarantee="watchman")
        gpus = Offer("burst/a100", "burst", "on_demand", (NodeShape(8, 2, 8_000_000),), sold_by="attempt")
        self.site = Site("burst", (gpus,), cluster=TransientCluster(cluster, ("org",), MINUTE, HOUR))
        self.way = ClusterClassWay(
            TOY, cluster_api.VERSION, namespace, Access(kubeconfig=str(managing.kubeconfig)), namespace
        )
        self.now, self.shared = 1_000_000, True  # other tests use "east", too

    def clock(self) -> int:
        return self.now + int(asyncio.get_running_loop().time() * 1000)

    def driver(self, **way: object) -> TransientDriver:
        settings = KubernetesSettings(self.namespace, shared=self.shared, places=(("burst/a100", NodeSelection()),))

        def made(access: Access) -> KubernetesDriver:
            folder = self.folder / "driver"
            clock, dial = self.clock, lambda: connect(access)
            return KubernetesDriver(self.site, folder, self.namespace, NoStore(), clock, dial, settings)

        chosen = replace(self.way, **way)  # type: ignore[arg-type]
        driver = TransientDriver(self.site, self.folder, self.namespace, self.clock, chosen, made, (self.namespace,))
        driver.capacity.late_seconds = 0.5
        return driver

    def clusters(self) -> list[str]:
        items = self.managing.api.ask("GET", CLUSTERS.path(self.namespace)).body["items"]
        return [obj["metadata"]["name"] for obj in items if (obj["spec"].get("topology") or {}).get("classRef")]


@pytest.fixture
def ground(
    managing: DevCluster, managed_namespace: str, clusters: dict[str, ExternalCluster], tmp_path: Path
) -> TransientGround:
    east = clusters["east"]
    managing.apply(*cluster_api.cluster_class(TOY, managed_namespace, kubeconfig=str(east.kubeconfig)))
    managing.apply(*cluster_api.cluster_class("never", managed_namespace, refused="no quota for control planes"))
    return TransientGround(managing, managed_namespace, east, tmp_path)


def ask(ground: TransientGround, node: str = "burst/c1") -> LaunchNode:
    return LaunchNode(node, "burst/cluster", 0, "", ground.clock() + HOUR)


@story
async def test_a_cluster_comes_runs_a_job_to_its_end_and_is_gone(ground: TransientGround) -> None:
    driver = ground.driver()
    watch = Watch(driver, lambda _: WORK)
    await driver.open(watch.hear)
    try:
        assert (await driver.look()).nodes == ()
        with pytest.raises(Unreachable, match="site burst has no cluster now"):
            await driver.start(start(ground), WORK)
        await driver.capacity.ask(ask(ground))
        assert (await driver.look()).nodes == ("burst/c1",)
        assert oct(driver.kubeconfig.stat().st_mode & 0o777) == "0o600"
        await driver.start(start(ground), WORK)
        ended = await watch.hears(e.AttemptEnded, "j1.1")
        assert ended.outcome == "done"
        later = ground.clock() + 2 * HOUR
        assert await driver.capacity.extend("burst/c1", later) == later
        await driver.capacity.release("burst/c1")
        assert (ground.clusters(), driver.kubeconfig.exists(), driver.inner) == ([], False, None)
        assert (await driver.look()).nodes == ()
    finally:
        await driver.close()


def start(ground: TransientGround) -> StartAttempt:
    return StartAttempt("j1.1", "j1", "burst/a100", 1, 1000, 0, (), (), ground.clock() + HOUR)


@story
async def test_asked_twice_and_after_a_restart_there_is_one_and_the_new_process_uses_it(
    ground: TransientGround,
) -> None:
    first, second = ground.driver(), ground.driver()
    await first.open(lambda _: None)
    try:
        await asyncio.gather(first.capacity.ask(ask(ground)), first.capacity.ask(ask(ground)))
    finally:
        await first.close()
    await second.open(lambda _: None)
    try:
        assert len(ground.clusters()) == 1
        assert (await second.look()).nodes == ("burst/c1",)
        assert second.inner is not None
        await second.capacity.ask(ask(ground))
        await second.capacity.release("burst/c1")
        with pytest.raises(Unreachable):
            await second.capacity.extend("burst/c1", ground.clock())
    finally:
        await second.close()


@story
async def test_a_class_variable_or_worker_that_is_not_there_is_a_sentence_and_nothing_is_made(
    ground: TransientGround,
) -> None:
    where = (
        f"namespace {ground.namespace} of its management cluster, it has never, toy; correct 'cluster' of site burst"
    )
    wrong: dict[str, dict[str, object]] = {
        f"there is no ClusterClass tyo in {where}": {"cluster_class": "tyo"},
        "there is no variable sise in ClusterClass toy, it has size; correct 'cluster' of site burst": {
            "variables": (("sise", '"s"'),)
        },
        "there is no worker class gpu in ClusterClass toy, it has none; correct 'cluster' of site burst": {
            "workers": (("gpu", 1),)
        },
    }
    for words, way in wrong.items():
        driver = ground.driver(**way)
        await driver.open(lambda _: None)
        with pytest.raises(Refused) as refused:
            await driver.capacity.ask(ask(ground))
        assert str(refused.value) == words
        await driver.close()
    driver = ground.driver(variables=(("size", '"xl"'),))
    await driver.open(lambda _: None)
    with pytest.raises(Refused, match=r"(?s)does not take it; correct 'cluster' of site burst: .*size"):
        await driver.capacity.ask(ask(ground))
    await driver.close()
    assert ground.clusters() == []


@story
async def test_a_cluster_that_is_not_available_in_time_is_given_back_and_the_reason_told(
    ground: TransientGround,
) -> None:
    driver = ground.driver(cluster_class="never", up_within_ms=8 * SECOND)
    await driver.open(lambda _: None)
    try:
        with pytest.raises(NeverReady) as never:
            await driver.capacity.ask(ask(ground))
        assert "a cluster of burst was given back: it was not available within 8 s" in str(never.value)
        assert ground.clusters() == []
    finally:
        await driver.close()


@story
async def test_a_cluster_that_is_up_and_belongs_to_another_installation_is_given_back_with_that_reason(
    ground: TransientGround,
) -> None:
    other = f"{ground.namespace}-theirs"
    ground.east.new_namespace(other)
    meta = {"name": annotations.LEASE, "namespace": other, "labels": LEASE_LABELS}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
    ground.east.apply({**lease, "spec": {"holderIdentity": "theirs"}})
    ground.shared = False
    driver = ground.driver(up_within_ms=10 * SECOND)
    await driver.open(lambda _: None)
    try:
        with pytest.raises(
            NeverReady, match=r"cluster burst/c1 of burst is up, and cannot be used: .* belongs to inst"
        ):
            await driver.capacity.ask(ask(ground))
        assert ground.clusters() == []
    finally:
        await driver.close()
        ground.east.drop_namespace(other)


@story
async def test_the_watchman_ends_it_at_its_deadline_without_us(ground: TransientGround) -> None:
    driver = ground.driver()
    watch = Watch(driver, lambda _: WORK)
    await driver.open(watch.hear)
    client = connect(ground.way.management)
    try:
        await driver.capacity.ask(ask(ground))
        await Watchman(client, ground.namespace, "w").round()
        assert len(ground.clusters()) == 1  # not before
        await driver.capacity.extend("burst/c1", ground.clock() - MINUTE)
        await Watchman(client, ground.namespace, "w").round()
        await watch.hears(e.NodeGone, "burst/c1")
        assert ground.clusters() == []
    finally:
        await driver.close()
        await client.close()


@story
async def test_a_cluster_that_others_delete_is_noticed_and_lost(ground: TransientGround) -> None:
    driver = ground.driver()
    watch = Watch(driver, lambda _: WORK)
    await driver.open(watch.hear)
    try:
        await driver.capacity.ask(ask(ground))
        (name,) = ground.clusters()
        ground.managing.api.ask("DELETE", CLUSTERS.path(ground.namespace, name))
        await watch.hears(e.NodeLost, "burst/c1")
        while driver.inner is not None:
            await asyncio.sleep(0.05)
        assert (await driver.look()).nodes == ()
    finally:
        await driver.close()


@story
async def test_a_cluster_of_that_name_that_is_not_ours_is_left_alone(ground: TransientGround) -> None:
    driver = ground.driver()
    await driver.open(lambda _: None)
    capacity = driver.capacity
    assert isinstance(capacity, ClusterClasses)
    theirs = capacity._manifest(ask(ground), {})
    theirs["metadata"]["labels"] = {"whose": "theirs"}
    ground.managing.apply(
        {
            "apiVersion": cluster_api.API,
            "kind": "Cluster",
            **theirs,
            "metadata": {**theirs["metadata"], "namespace": ground.namespace},
        }
    )
    try:
        with pytest.raises(Refused, match="is not of this installation"):
            await capacity.ask(ask(ground))
        assert len(ground.clusters()) == 1
    finally:
        await driver.close()
