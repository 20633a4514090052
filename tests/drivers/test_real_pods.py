"""The Kubernetes driver on real pods: what programs print, how they are told to stop, how a gang meets."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from penstock.core.model import events as e
from penstock.core.model.types import PodCounts
from penstock.devcluster import ClusterGroup
from penstock.devcluster.images import BUSYBOX, PYTHON
from penstock.drivers.driver import Refused, Unstartable, Work
from penstock.drivers.kubernetes.pods import condition
from penstock.drivers.running_pods import CountsPods, RunningPods
from penstock.kube import annotations
from tests.awaiting import story
from tests.contract.kit import KubernetesGround, Watch, home_job, opened, start

pytestmark = pytest.mark.slow

TRAINS = """
import os, signal, sys, time
def told(*_):
    print("penstock: checkpoint step 9")
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
print("begins as", os.environ["PENSTOCK_ATTEMPT"])
print("penstock: step 5 of 10")
time.sleep(2)
print("12:00 INFO penstock: checkpoint step 5")
while True:
    time.sleep(0.1)
"""
MEETS = """
import os, socket, time
rank, where = int(os.environ["PENSTOCK_RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", where[1])) as server:
        print("met", server.accept()[0].recv(10).decode(), "of", os.environ["PENSTOCK_WORLD_SIZE"])
else:
    for _ in range(300):
        try:
            socket.create_connection(where).sendall(b"rank %d" % rank)
            print("there")
            break
        except OSError:
            time.sleep(0.1)
"""


def python(program: str) -> Work:
    return Work(("python3", "-u", "-c", program), image=PYTHON)


@pytest.fixture
def ground(real_bed: ClusterGroup, tmp_path: Path) -> KubernetesGround:
    east = real_bed.cluster("east")
    return KubernetesGround(east.kubeconfig, east.new_namespace(), tmp_path, image_ms=2_000, typo_ms=2_000)


async def prints(site: Watch, attempt: str, text: bytes) -> bytes:
    while True:
        log, more = await site.driver.log(attempt, 0, 1 << 20)
        if text in log:
            return log
        assert more, log
        await asyncio.sleep(0.05)


@story
async def test_a_log_is_read_for_checkpoints_followed_over_restarts_and_kept_when_the_pod_is_gone(
    ground: KubernetesGround,
) -> None:
    async with opened(ground) as site:
        await site.driver.start(start("train", resume_ms=1000), python(TRAINS))
        first = await site.hears(e.AttemptCheckpointed, "train.1")
        assert first.kept_ms >= 2000
        assert (await site.hears(e.AttemptProgressed, "train.1")).done_permille == 500
    async with opened(ground) as site:
        await prints(site, "train.1", b"INFO penstock: checkpoint step 5\n")
        await site.driver.stop("train.1", 20_000)
        assert (await site.hears(e.AttemptStopped, "train.1")).kept_ms > first.kept_ms
        steps = b"penstock: step 5 of 10\n12:00 INFO penstock: checkpoint step 5\npenstock: checkpoint step 9\n"
        whole = b"begins as train.1\n" + steps
        assert await site.driver.log("train.1", 0, 1000) == (whole, False)
        await site.driver.forget("train.1")
        assert await site.driver.log("train.1", 10, 7) == (b"train.1", True)
    async with opened(ground) as site:
        assert await site.driver.log("train.1", 0, 1000) == (whole, False)


@story
async def test_a_program_that_saves_and_exits_well_when_its_place_is_taken_is_lost_and_not_done(
    ground: KubernetesGround, real_bed: ClusterGroup
) -> None:
    """Its cluster calls that Job complete: an exit code of 0 is all it asks for."""
    east, namespace = real_bed.cluster("east"), ground.settings.namespace
    async with opened(ground) as site:
        await site.driver.start(start("train"), python(TRAINS))
        first = await site.hears(e.AttemptCheckpointed, "train.1")
        (pod,) = east.get("-n", namespace, "pods")["items"]
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        east.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        assert (await site.hears(e.AttemptLost, "train.1")).kept_ms > first.kept_ms
        assert (await site.driver.log("train.1", 0, 1000))[0].endswith(b"penstock: checkpoint step 9\n")
    (job,) = east.get("-n", namespace, "jobs")["items"]
    assert condition(job, "Complete")


@story
async def test_two_pods_on_two_nodes_meet_and_the_logs_of_both_are_kept(ground: KubernetesGround) -> None:
    async with opened(ground) as site:
        gang = start("gang", slots=((0, 4), (1, 4)), width=8)
        await site.driver.start(gang, python(MEETS))
        assert (await site.hears(e.AttemptEnded, "gang.1")).outcome == "done"
        lines = (await site.driver.log("gang.1", 0, 1000))[0].splitlines()
        assert sorted(lines) == [b"[0] met rank 1 of 2", b"[1] there"]
        await site.driver.forget("gang.1")
        assert await site.driver.log("gang.1", 0, 1000, rank=1) == (b"there\n", False)
    async with opened(ground) as site:
        assert await site.driver.log("gang.1", 0, 1000, rank=0) == (b"met rank 1 of 2\n", False)
        with pytest.raises(Refused, match="no rank 2; 0 to 1"):
            await site.driver.log("gang.1", 0, 1000, rank=2)


@story
async def test_programs_that_cannot_start_or_fail_are_told_from_places_that_cannot_fetch_an_image(
    ground: KubernetesGround,
) -> None:
    async with opened(ground) as site:
        for job, work, words in (
            ("fails", python("raise SystemExit(3)"), "exit code 3"),
            ("typo", Work(("no-such-program",), image=PYTHON), "could not be started"),
        ):
            starting: Any = asyncio.create_task(site.driver.start(start(job), work))
            ended = await site.hears(e.AttemptEnded, f"{job}.1")
            assert ended.outcome == "failed"
            assert words in ended.detail
            await asyncio.wait([starting])
        with pytest.raises(Unstartable, match="image cannot be fetched"):
            await site.driver.start(start("away"), Work(("x",), image="registry.invalid/x:1"))


#: The first try of each pod fails; the second one finds that it was there.
SECOND_TRY = "test -e /kept/tried || { touch /kept/tried; exit 3; }"
#: Until it is told to end, but for the first of a batch.
WAITS = 'trap "exit 143" TERM; test "$JOB_COMPLETION_INDEX" = 0 && exit 0; sleep 600 & wait'


def manifest(name: str, does: str, restarts: str = "Never", **spec: Any) -> Work:
    made = home_job(name, **spec)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", does]}
    container["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    pod |= {"restartPolicy": restarts, "volumes": [{"name": "kept", "emptyDir": {}}]}
    return Work((), manifest=json.dumps(made))


@story
async def test_a_users_own_limits_retries_and_batches_end_as_in_plain_kubernetes(
    ground: KubernetesGround, real_bed: ClusterGroup
) -> None:
    """One story, because each pod takes seconds to start: `OnFailure`, `activeDeadlineSeconds`, evictions, a batch."""
    east, namespace = real_bed.cluster("east"), ground.settings.namespace

    def pods(job: str) -> dict[str, Any]:
        name = annotations.execution_name(ground.installation, f"{job}.1")
        listed = east.get("-n", namespace, "pods", "-l", f"{annotations.EXECUTION}={name}")["items"]
        active = [pod for pod in listed if pod["status"]["phase"] == "Running" and is_untold(pod)]
        index = "batch.kubernetes.io/job-completion-index"
        return {(pod["metadata"].get("annotations") or {}).get(index, ""): pod["metadata"]["name"] for pod in active}

    def evict(name: str) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        east.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    works = {
        "retried": manifest("retried", SECOND_TRY, "OnFailure", backoffLimit=2),
        "short": manifest("short", WAITS, activeDeadlineSeconds=3),
        "evicted": manifest("evicted", WAITS, "OnFailure", backoffLimit=2),
        "batch": manifest("batch", WAITS, completions=3, parallelism=2, completionMode="Indexed"),
    }
    async with opened(ground) as site:
        starts = [asyncio.create_task(site.driver.start(start(job), work)) for job, work in works.items()]
        await asyncio.wait(starts)
        ended = await site.hears(e.AttemptEnded, "retried.1")
        assert (ended.outcome, ended.pods) == ("done", PodCounts(1, reason="CompletionsReached", message=ANY))
        ended = await site.hears(e.AttemptEnded, "short.1")
        assert (ended.outcome, ended.pods and ended.pods.reason) == ("failed", "DeadlineExceeded")

        evict(*pods("evicted").values())
        assert (await site.hears(e.AttemptLost, "evicted.1")).pods == PodCounts(failed=1)

        while set(pods("batch")) != {"1", "2"}:  # the first is done
            await asyncio.sleep(0.1)
        first = pods("batch")
        evict(first["2"])
        while set(after := pods("batch")) != {"1", "2"} or after["2"] == first["2"]:
            await asyncio.sleep(0.1)
        assert after["1"] == first["1"]
        assert isinstance(site.driver, CountsPods)
        while site.driver.running_pods("batch.1") != RunningPods(2, 2, 0, 1, 0, "0"):
            await asyncio.sleep(0.1)
        await site.driver.stop("batch.1", 1000)
        stopped = await site.hears(e.AttemptStopped, "batch.1")
        assert stopped.pods == PodCounts(succeeded=1, completed_indexes="0")


def is_untold(pod: Any) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


@story
async def test_what_is_missing_is_told_in_kubelets_words_and_the_pod_starts_once_it_is_there(
    ground: KubernetesGround, real_bed: ClusterGroup
) -> None:
    """A ConfigMap that is mounted is missed only in Events; one that is a variable, in the pod's status."""
    east, namespace = real_bed.cluster("east"), ground.settings.namespace
    ground.settings = replace(ground.settings, image_ms=120_000)
    mounted = {
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
        "containers": [_container(volumeMounts=[{"name": "settings", "mountPath": "/settings"}])],
    }
    named = {"containers": [_container(envFrom=[{"configMapRef": {"name": "settings"}}])]}
    async with opened(ground) as site:
        starts = []
        for name, pod in (("mounted", mounted), ("named", named)):
            job = home_job(name)
            job["spec"]["template"]["spec"] = {"restartPolicy": "Never", **pod}
            work = Work((), manifest=json.dumps(job))
            starts.append(asyncio.create_task(site.driver.start(start(name), work)))
        for name in ("mounted", "named"):
            assert 'configmap "settings" not found' in (await site.hears(e.AttemptStuck, f"{name}.1")).words
        await asyncio.to_thread(east.kubectl, "-n", namespace, "create", "configmap", "settings", "--from-literal=lr=1")
        await asyncio.gather(*starts)
        for name in ("mounted", "named"):
            await site.driver.stop(f"{name}.1", 1000)
            await site.hears(e.AttemptStopped, f"{name}.1")


def _container(**more: Any) -> dict[str, Any]:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    command = ["python3", "-c", "import time; time.sleep(600)"]
    return {"name": "main", "image": PYTHON, "command": command, "resources": limits, **more}
