"""Why a start hangs, in the cluster's own words, on kwok: one job's trouble, or a full offer."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import NoCapacity, Unstartable, Work
from penstock.drivers.kubernetes import trouble
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.drivers.kubernetes.pods import Trouble, is_being_created, trouble_of
from penstock.kube import annotations
from tests.awaiting import story
from tests.contract.kit import KubernetesGround, Watch, home_job, opened, start
from tests.drivers.kubernetes.room import Room

NEVER_READY = {"pod-ready.stage.kwok.x-k8s.io/delay": "10m"}


@pytest.fixture
def room(lab: ExternalCluster, namespace: str) -> Iterator[Room]:
    made = Room(lab, namespace)
    yield made
    made.close()


def wanting(name: str, gpus: int = 1, cpu: str = "", more: dict[str, str] | None = None, **pod: Any) -> Work:
    """A home Job whose pod asks for this, too."""
    job = home_job(name, NEVER_READY)
    spec = job["spec"]["template"]["spec"]
    limits = {"nvidia.com/gpu": str(gpus), **({"cpu": cpu} if cpu else {}), **(more or {})}
    spec["containers"][0]["resources"]["limits"] = limits
    job["spec"]["template"]["spec"] = {**spec, **pod}
    return Work((), manifest=json.dumps(job))


CLAIM: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]}
HINDERED = {
    "selector": (wanting("selector", nodeSelector={"disk": "nvme"}), "unfit", "node affinity/selector"),
    "cpu": (wanting("cpu", cpu="9999"), "unfit", "Insufficient cpu"),
    "claim": (wanting("claim", **CLAIM), "missing", 'persistentvolumeclaim "nowhere" not found'),
    "gated": (wanting("gated", schedulingGates=[{"name": "lab.example/budget"}]), "missing", "scheduling gates"),
    "wide": (wanting("wide", gpus=9), "unfit", "Insufficient nvidia.com/gpu"),
    "shared": (wanting("shared", more={"nvidia.com/gpumem": "4"}), "unfit", "Insufficient nvidia.com/gpumem"),
}


@pytest.mark.slow
@story
async def test_what_no_node_can_take_is_told_in_the_schedulers_words_and_apart_from_a_full_offer(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    """All of it closed the offer, after a minute in which nobody was told why. So did later a job that is larger than
    the offer, and one that asked for a resource whose name begins like the GPUs'.
    """
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings(room_ms=6000, image_ms=6000))
    async with opened(ground) as site:
        starts = {
            name: asyncio.create_task(site.driver.start(start(name), work)) for name, (work, _, _) in HINDERED.items()
        }
        for name, (_, obstacle, words) in HINDERED.items():
            stuck = await site.hears(e.AttemptStuck, f"{name}.1")  # said only of a start that goes on
            assert words in stuck.words
            with pytest.raises((NoCapacity, Unstartable)) as error:
                await starts[name]
            assert getattr(error.value, "obstacle", "") == obstacle, name
            assert words in str(error.value)
        again = ground.driver()  # the answer survives the control plane
        await again.open(lambda _: None)
        with pytest.raises(Unstartable) as error:
            await again.start(start("selector"), HINDERED["selector"][0])
        assert error.value.obstacle == "unfit"
        await again.close()
        assert isinstance(site.driver, KubernetesDriver)
        assert site.driver.reporter.avoided() == ()


@pytest.mark.slow
@story
async def test_a_pod_that_no_scheduler_looks_at_is_told_and_given_up(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status says nothing at all, and the start waited for ever, with the offer's GPUs counted as taken."""
    monkeypatch.setattr(trouble, "UNNOTICED_SECONDS", 1.0)
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings(image_ms=6000))
    async with opened(ground) as site:
        starting = asyncio.create_task(site.driver.start(start("a"), wanting("a", schedulerName="nobody")))
        await _tells(site, "a", starting, "no scheduler has looked at its pods", "missing")


@pytest.mark.slow
@story
async def test_what_kubelet_and_the_job_controller_say_is_told_and_blames_no_node(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    """Kwok mounts and fetches nothing: what kubelet would say is said for it. The quota is the API server's own."""
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings(room_ms=7000, image_ms=7000))
    async with opened(ground) as site:
        config, mount = (asyncio.create_task(site.driver.start(start(name), wanting(name))) for name in ("cm", "vol"))
        await _says_waiting(lab, namespace, "cm", 'configmap "settings" not found')
        pod = await _pod_of(lab, namespace, "vol")
        message = 'MountVolume.SetUp failed for volume "cfg" : configmap "settings" not found'
        lab.apply(_warning(pod, "FailedMount", message))
        await _tells(site, "cm", config, 'configmap "settings" not found', "missing")
        await _tells(site, "vol", mount, f"FailedMount: {message}", "missing")
        await asyncio.to_thread(_allow_no_gpus, lab, namespace)
        pods = asyncio.create_task(site.driver.start(start("quota"), wanting("quota")))
        await _tells(site, "quota", pods, "exceeded quota", "unfit")
        assert isinstance(site.driver, KubernetesDriver)
        assert site.driver.reporter.faults == {}


def _allow_no_gpus(lab: ExternalCluster, namespace: str) -> None:
    """The test bed runs no quota controller: its status is written for it."""
    hard = {"requests.nvidia.com/gpu": "0"}
    lab.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none", "namespace": namespace},
            "spec": {"hard": hard},
        }
    )
    status = json.dumps({"status": {"hard": hard, "used": hard}})
    lab.kubectl("patch", "quota", "none", "-n", namespace, "--subresource=status", "--type=merge", "-p", status)


async def _tells(site: Watch, job: str, starting: "asyncio.Task[None]", words: str, obstacle: str) -> None:
    assert words in (await site.hears(e.AttemptStuck, f"{job}.1")).words
    with pytest.raises(Unstartable) as error:
        await starting
    assert error.value.obstacle == obstacle


async def _pod_of(lab: ExternalCluster, namespace: str, job: str) -> dict[str, Any]:
    name = annotations.execution_name("home", f"{job}.1")
    while True:
        listed = await asyncio.to_thread(lab.get, "pods", "-n", namespace, "-l", f"{annotations.EXECUTION}={name}")
        for pod in listed["items"]:
            if pod["spec"].get("nodeName"):
                return dict(pod)
        await asyncio.sleep(0.05)


async def _says_waiting(lab: ExternalCluster, namespace: str, job: str, message: str) -> None:
    pod = await _pod_of(lab, namespace, job)
    waits = {"waiting": {"reason": "CreateContainerConfigError", "message": message}}
    container = {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": waits}
    change = json.dumps({"status": {"containerStatuses": [container]}})
    lab.kubectl("patch", "pod", pod["metadata"]["name"], "-n", namespace, "--subresource=status", "-p", change)


def _warning(pod: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    meta = pod["metadata"]
    about = {key: meta[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{reason.lower()}", "namespace": meta["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": "2999-01-01T00:00:00Z",
    }


# --- the words, one by one -------------------------------------------------------------------------------------------


def pod(*, conditions: Any = (), node: str = "", **status: Any) -> dict[str, Any]:
    status = {"phase": "Pending", "conditions": list(conditions), **status}
    return {"metadata": {}, "spec": {"nodeName": node}, "status": status}


def unscheduled(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}])


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


@pytest.mark.parametrize(
    ("kube_pod", "expected"),
    [
        (unscheduled("0/3 nodes"), Trouble("room", "no node for it: 0/3 nodes")),
        (
            unscheduled('0/3 nodes are available: persistentvolumeclaim "x" not found.'),
            Trouble("missing", 'no node for it: 0/3 nodes are available: persistentvolumeclaim "x" not found.'),
        ),
        (
            unscheduled("pod has unbound immediate PersistentVolumeClaims"),
            Trouble("missing", "no node for it: pod has unbound immediate PersistentVolumeClaims"),
        ),
        (
            unscheduled('waiting for ResourceClaim "gpu" to be created', "SchedulerError"),
            Trouble("missing", 'no node for it: waiting for ResourceClaim "gpu" to be created'),
        ),
        (
            pod(node="n1", containerStatuses=[waiting("CreateContainerConfigError", 'secret "s" not found')]),
            Trouble("missing", 'secret "s" not found'),
        ),
        (
            pod(
                node="n1",
                initContainerStatuses=[waiting("ErrImagePull", "i/o timeout")],
                containerStatuses=[waiting("PodInitializing")],
            ),
            Trouble("image", "the image cannot be fetched: i/o timeout", "n1"),
        ),
        (pod(node="n1", containerStatuses=[waiting("ContainerCreating")]), None),
    ],
)
def test_a_pods_trouble_by_its_own_status(kube_pod: dict[str, Any], expected: Trouble | None) -> None:
    assert trouble_of({"metadata": {}, "spec": {}}, [kube_pod]) == expected


def test_a_pod_is_being_created_until_a_container_says_more() -> None:
    assert is_being_created(pod(node="n1"))
    assert is_being_created(pod(node="n1", containerStatuses=[waiting("ContainerCreating")]))
    assert is_being_created(pod())  # no scheduler has looked at it
    assert not is_being_created(pod(conditions=[{"type": "PodScheduled", "status": "False"}]))
    assert not is_being_created(pod(node="n1", containerStatuses=[waiting("ErrImagePull")]))
    assert not is_being_created(pod(node="n1", initContainerStatuses=[{"state": {"running": {}}}]))
