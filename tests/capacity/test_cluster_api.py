"""Nodes rented as MachineDeployments, by the real core of Cluster API: what the contract's suite does not tell."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capacity import watchman_proof
from penstock.capacity.cluster_api import ClusterApiNodes
from penstock.capacity.contract import SeenNode, object_name
from penstock.capacity.machine_deployment import describe, node_name_of
from penstock.capacity.watchman import Watchman
from penstock.core.model import events as e
from penstock.core.units import HOUR, MINUTE, SECOND
from penstock.devcluster import DevCluster, cluster_api
from penstock.drivers.driver import NeverReady, NoCapacity, Refused
from penstock.kube import annotations, manifests
from penstock.kube.access import Access, connect
from penstock.kube.client import MACHINE_DEPLOYMENTS, MACHINES, Obj
from penstock.kube.informer import Informer
from tests.awaiting import story
from tests.capacity.behind import behind
from tests.contract.kit import ClusterApiGround, Watch, launch, no_evictions, opened

pytestmark = pytest.mark.slow

WARM = "lab/nodes/w1"  #: a node that a pool asks for, ahead of any job


@pytest.fixture
def ground(managing: DevCluster, managed_namespace: str, tmp_path: Path) -> ClusterApiGround:
    return ClusterApiGround(managing.kubeconfig, managed_namespace, tmp_path)


def nodes_of(lab: Watch) -> ClusterApiNodes:
    assert isinstance(lab.driver.capacity, ClusterApiNodes)
    return lab.driver.capacity


def own_caches(nodes: ClusterApiNodes) -> list[Informer]:
    return [*nodes.deployments.values(), *nodes.machines.values()]


def machines_of(nodes: ClusterApiNodes) -> list[Obj]:
    return [machine for informer in nodes.machines.values() for machine in informer]


def name_of(ground: ClusterApiGround, node: str) -> str:
    return annotations.node_name(object_name(ground.installation, node))


def deployment(cluster: DevCluster, ground: ClusterApiGround, node: str) -> dict[str, Any]:
    return cluster.api.ask("GET", MACHINE_DEPLOYMENTS.path(ground.settings.namespace, name_of(ground, node))).body


@contextmanager
def watchman(cluster: DevCluster, namespace: str) -> Iterator[subprocess.Popen[bytes]]:
    """`penstock watchman` as a process, with the rights that `penstock manifests watchman` prints and no others."""
    cluster.apply(*[obj for obj in manifests.watchman("unused", namespace) if obj["kind"] != "Deployment"])
    token = cluster.kubectl("create", "token", annotations.WATCHMAN, "-n", namespace, "--duration", "1h").strip()
    kubeconfig = cluster._with_token(f"watchman-{namespace}", token)
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "watchman",
        f"--namespace={namespace}",
        f"--kubeconfig={kubeconfig}",
    ]
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def until_guarantee(lab: Watch, guarantee: str) -> e.GuaranteeChanged:
    while True:
        lab.news.clear()
        said = [fact for fact in lab.said if isinstance(fact, e.GuaranteeChanged) and fact.offer == "lab/nodes"]
        if said and said[-1].guarantee == guarantee:
            return said[-1]
        await lab.news.wait()


@story
async def test_a_node_has_our_marks_and_bounds_on_how_long_it_may_take_to_go(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + HOUR))
        asked = nodes_of(lab).cluster_now().requests["get machinedeployments.cluster.x-k8s.io"]
        assert asked == 1  # of the one that it is to be like: the answer to its own creation says the rest
        spec = deployment(managing, ground, "a.1/n0")["spec"]["template"]["spec"]
        assert spec["deletion"]["nodeDrainTimeoutSeconds"] == 5
        (node,) = managing.get("nodes", "-l", f"{annotations.INSTALLATION}={ground.installation}")["items"]
        assert [taint["key"] for taint in node["spec"]["taints"]] == [annotations.RENTED]
        assert node["metadata"]["annotations"][annotations.NODE_ID] == "a.1/n0"
        await lab.driver.capacity.release("a.1/n0")


@story
async def test_the_rights_that_manifests_print_are_enough(
    managing: DevCluster, managed_namespace: str, tmp_path: Path
) -> None:
    rights = [*manifests.EVERYWHERE, *manifests.RENTING, *manifests.ACTING]
    kubeconfig = managing.token_for(f"rents-{managed_namespace}", rights)
    ground = ClusterApiGround(kubeconfig, managed_namespace, tmp_path)
    async with opened(ground) as lab:
        later = ground.clock() + HOUR
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=later))
        assert await lab.driver.capacity.extend("a.1/n0", later + HOUR) == later + HOUR
        assert "There is no watchman" in (await until_guarantee(lab, "none")).words
        await lab.driver.capacity.release("a.1/n0")
        assert await lab.driver.capacity.list() == ()


@pytest.mark.parametrize(
    ("words", "shortage", "retry_ms"),
    [("No valid host was found", "stock_out", 5 * MINUTE), ("Quota exceeded for cores", "quota", 4 * HOUR)],
)
@story
async def test_a_provider_that_asks_for_ever_is_given_up_with_its_words(
    ground: ClusterApiGround, managing: DevCluster, words: str, shortage: str, retry_ms: int
) -> None:
    cluster_api.set_machine(managing.api, "a100", ground.settings.namespace, refused=words)
    async with opened(ground) as lab:
        nodes = nodes_of(lab)
        nodes.refused_seconds = 1.0
        with pytest.raises(NoCapacity, match=words) as refused:
            await nodes.ask(launch("a.1/n0"))
        assert (refused.value.shortage, refused.value.retry_ms) == (shortage, retry_ms)
        assert await nodes.list() == ()


@pytest.mark.parametrize(
    ("machine", "what"),
    [({"gpus": 0}, r"its Node shows fewer than 2 nvidia\.com/gpu"), ({"joins": False}, "it never joined the cluster")],
)
@story
async def test_a_node_that_is_no_use_is_given_back_at_our_own_deadline(
    ground: ClusterApiGround, managing: DevCluster, machine: dict[str, Any], what: str
) -> None:
    cluster_api.set_machine(managing.api, "a100", ground.settings.namespace, **machine)
    ground.site = replace(ground.site, offers=tuple(replace(offer, start_ms=SECOND) for offer in ground.site.offers))
    async with opened(ground) as lab:
        nodes = nodes_of(lab)
        nodes.least_ms = 8 * SECOND
        with pytest.raises(NeverReady, match=f"given back after 8 s: {what}"):
            await nodes.ask(launch("a.1/n0"))
        assert await nodes.list() == ()


async def give_back_behind_us(cluster: DevCluster, ground: ClusterApiGround, node: str) -> None:
    """As the watchman does."""
    path = MACHINE_DEPLOYMENTS.path(ground.settings.namespace, name_of(ground, node))
    cluster.api.ask("DELETE", path)
    while deployment(cluster, ground, node).get("code") != 404:
        await asyncio.sleep(0.1)


async def node_of_machine(cluster: DevCluster, namespace: str) -> str:
    """The Node of the only Machine there, once core knows it."""
    while True:
        machines = cluster.api.ask("GET", MACHINES.path(namespace)).body["items"]
        if len(machines) == 1 and node_name_of(machines[0]):
            return node_name_of(machines[0])
        await asyncio.sleep(0.1)


@story
async def test_a_node_that_was_just_asked_for_is_not_judged_by_an_earlier_machine_that_a_late_cache_shows(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    """The deployment was deleted again at once: the cache still showed why the first of that name had no machine."""
    namespace, later = ground.settings.namespace, ground.clock() + HOUR
    cluster_api.set_machine(managing.api, "a100", namespace, refused="No valid host was found")
    async with opened(ground) as lab:
        nodes = nodes_of(lab)
        asked = asyncio.create_task(nodes.ask(launch(WARM, deadline_at=later)))
        while not any(describe(machine)[0] for machine in machines_of(nodes)):
            await asyncio.sleep(0.1)
        asked.cancel()
        with behind(nodes, own_caches(nodes), *nodes.machines.values()):
            await give_back_behind_us(managing, ground, WARM)
            cluster_api.set_machine(managing.api, "a100", namespace, refused=None)
            nodes.refused_seconds = 0.0
            asked = asyncio.create_task(nodes.ask(launch(WARM, deadline_at=later)))
            made = asyncio.create_task(node_of_machine(managing, namespace))
            await asyncio.wait([asked, made], return_when=asyncio.FIRST_COMPLETED)
            assert not asked.done(), asked
        await asked
        assert [node["metadata"]["name"] for node in nodes.nodes_of(name_of(ground, WARM))] == [await made]
        await nodes.release(WARM)


@story
async def test_a_node_is_not_ready_because_a_late_cache_shows_that_of_an_earlier_deployment(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    later = ground.clock() + HOUR
    async with opened(ground) as lab:
        nodes = nodes_of(lab)
        await nodes.ask(launch(WARM, deadline_at=later))
        with behind(nodes, own_caches(nodes), nodes.nodes):
            await give_back_behind_us(managing, ground, WARM)
            asked = asyncio.create_task(nodes.ask(launch(WARM, deadline_at=later)))
            await node_of_machine(managing, ground.settings.namespace)
            assert not asked.done()
        await asked
        await nodes.release(WARM)


@story
async def test_a_prepared_deployment_that_is_not_there_is_a_sentence_and_rents_nothing(
    ground: ClusterApiGround,
) -> None:
    ground.settings = replace(ground.settings, places=(("lab/nodes", ground.place("h100")),))
    async with opened(ground) as lab:
        with pytest.raises(Refused, match=r"no MachineDeployment h100 in namespace .* 'replicas: 0'"):
            await lab.driver.capacity.ask(launch("a.1/n0"))
        assert await lab.driver.capacity.list() == ()


@story
async def test_while_core_is_dead_a_node_is_not_given_back_and_the_call_waits(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0"))
        managing.cluster_api.kill()
        try:
            release = asyncio.create_task(lab.driver.capacity.release("a.1/n0"))
            done, _ = await asyncio.wait([release], timeout=3)
            assert not done
            assert [seen.node for seen in await lab.driver.capacity.list()] == ["a.1/n0"]
        finally:
            managing.start_cluster_api()
        await release
        assert await lab.driver.capacity.list() == ()


@story
async def test_a_machine_that_others_delete_is_a_notice_and_is_not_replaced(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    async with opened(ground) as lab:
        await lab.driver.capacity.ask(launch("a.1/n0", deadline_at=ground.clock() + HOUR))
        managing.kubectl("-n", ground.settings.namespace, "delete", "machines", "--all", "--wait=false")
        await lab.hears(e.NodeNotice, "a.1/n0")
        while deployment(managing, ground, "a.1/n0")["spec"]["replicas"] != 0:
            await asyncio.sleep(0.1)
        await lab.driver.capacity.release("a.1/n0")
        assert await lab.driver.capacity.list() == ()


@story
async def test_a_second_machine_that_core_ends_again_says_nothing_about_the_node(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    """Of 100 nodes asked for at once core made two Machines for some. When it ended one, the node was given back."""
    namespace = ground.settings.namespace
    path = MACHINE_DEPLOYMENTS.path(namespace, name_of(ground, WARM))
    machines = MACHINES.path(namespace)
    async with opened(ground) as lab:
        nodes = nodes_of(lab)
        await nodes.ask(launch(WARM, deadline_at=ground.clock() + HOUR))
        managing.api.ask("PATCH", path, {"spec": {"replicas": 2}})
        while len(machines_of(nodes)) != 2:
            await asyncio.sleep(0.1)
        (second,) = [m for m in machines_of(nodes) if node_name_of(m) != nodes.marked[name_of(ground, WARM)]]
        marks = {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}
        managing.api.ask("PATCH", f"{machines}/{second['metadata']['name']}", {"metadata": marks})
        managing.api.ask("PATCH", path, {"spec": {"replicas": 1}})
        while len(machines_of(nodes)) != 1:
            await asyncio.sleep(0.1)
        assert [fact for fact in lab.said if isinstance(fact, e.NodeNotice)] == []
        assert deployment(managing, ground, WARM)["spec"]["replicas"] == 1
        await nodes.release(WARM)


@story
async def test_the_watchman_ends_a_node_at_its_deadline_with_us_dead_and_with_pods_that_may_not_be_evicted(
    ground: ClusterApiGround, managing: DevCluster
) -> None:
    """Deadline, plus at most a round of the watchman, plus `kill`."""
    namespace = ground.settings.namespace
    managing.apply(no_evictions(namespace))
    with watchman(managing, namespace):
        async with opened(ground) as lab:
            ends_at = ground.clock() + 12 * SECOND
            await lab.driver.capacity.ask(launch("long.1/n0", gpus=8, deadline_at=ends_at))
            await lab.start("long", offer="lab/nodes", nodes=("long.1/n0",), deadline_at=ends_at + HOUR)
            later = ends_at + 5 * SECOND
            assert await lab.driver.capacity.extend("long.1/n0", later) == later
            assert await lab.driver.capacity.list() == (SeenNode("long.1/n0", later),)
        while deployment(managing, ground, "long.1/n0").get("code") != 404:  # nobody of us is alive
            await asyncio.sleep(0.2)
        gone_at = ground.clock()
    assert gone_at >= later - SECOND
    async with opened(ground) as lab:
        assert await lab.driver.capacity.list() == ()


@story
async def test_an_offer_is_hard_only_while_its_watchman_proves_that_it_lives(
    ground: ClusterApiGround, managing: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchman_proof, "LOOK_SECONDS", 0.5)
    monkeypatch.setattr(watchman_proof, "LEASE_SECONDS", 12)
    async with opened(ground) as lab:
        assert "There is no watchman" in (await until_guarantee(lab, "none")).words
        with watchman(managing, ground.settings.namespace):
            await until_guarantee(lab, "watchman")
        assert "has not renewed its Lease" in (await until_guarantee(lab, "none")).words
        with watchman(managing, ground.settings.namespace):
            await until_guarantee(lab, "watchman")


@story
async def test_a_watchman_that_may_not_delete_proves_nothing(
    ground: ClusterApiGround, managing: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs and renews its Lease, and yet it would end nothing."""
    monkeypatch.setattr(watchman_proof, "LOOK_SECONDS", 0.5)
    rules = [
        {"apiGroups": ["cluster.x-k8s.io"], "resources": ["machinedeployments"], "verbs": ["list"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
    ]
    kubeconfig = managing.token_for(f"lame-{ground.settings.namespace}", rules)
    cluster = connect(Access(str(kubeconfig)))
    await Watchman(cluster, ground.settings.namespace, "lame").round()
    await cluster.close()
    async with opened(ground) as lab:
        words = (await until_guarantee(lab, "none")).words
        assert words.startswith("The watchman may not delete machinedeployments.cluster.x-k8s.io")
