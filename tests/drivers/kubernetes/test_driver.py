"""A cluster as a site, on kwok: what `tests/contract` cannot ask of every driver."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.devcluster import ClusterGroup
from penstock.devcluster.external import ExternalCluster
from penstock.drivers.driver import NoCapacity, Refused, Unreachable, Unstartable, Work
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.drivers.kubernetes.execution_job import rendezvous
from penstock.kube import annotations
from penstock.kube.access import Access
from penstock.kube.node_selection import NodeSelection
from tests.awaiting import story
from tests.contract.kit import KubernetesGround, home_job, opened, start
from tests.drivers.kubernetes.room import Room

TRAIN = Work(("python", "train.py"), image="train:1")
JOBS = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch", "create", "patch"]}]
LOOKS = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "create"]},
]


@pytest.fixture
def ground(lab: ExternalCluster, namespace: str, tmp_path: Path) -> KubernetesGround:
    return KubernetesGround(lab.kubeconfig, namespace, tmp_path)


@pytest.fixture
def room(lab: ExternalCluster, namespace: str) -> Iterator[Room]:
    made = Room(lab, namespace)
    yield made
    made.close()


def job_of(ground: KubernetesGround, cluster: ExternalCluster, attempt: str) -> dict[str, Any]:
    name = annotations.execution_name(ground.installation, attempt)
    return cluster.get("job", name, "-n", ground.settings.namespace)


async def until(true: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(true):
        await asyncio.sleep(0.05)


# --- whose it is -----------------------------------------------------------------------------------------------------


@story
async def test_row_28_a_second_installation_is_refused_in_the_same_namespace_and_in_the_same_cluster(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    async with opened(ground):
        pass
    ground.installation = "elsewhere"
    other = ground.driver()
    with pytest.raises(Refused, match="belongs to installation home"):
        await other.open(lambda _: None)
    await other.close()
    beside = KubernetesGround(lab.kubeconfig, lab.new_namespace(), ground.folder, shared=False)
    beside.installation = "elsewhere"
    third = beside.driver()
    with pytest.raises(Refused, match="belongs to installation"):
        await third.open(lambda _: None)
    await third.close()
    lab.drop_namespace(beside.settings.namespace)


@story
async def test_a_job_of_our_name_that_was_made_from_another_is_neither_adopted_nor_touched(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    """After an old backup was restored an attempt's number is given again: its Job is there, and is somebody else's."""
    async with opened(ground) as first:
        await first.driver.start(start("long"), Work((), manifest=json.dumps(home_job("one"))))
        before = job_of(ground, lab, "long.1")
        with pytest.raises(Refused, match=r"uid-of-one.*delete it if it is nobody's"):
            await first.driver.start(start("long"), Work((), manifest=json.dumps(home_job("two"))))
    async with opened(ground) as later:
        with pytest.raises(Refused, match="uid-of-one"):
            await later.driver.start(start("long"), Work((), manifest=json.dumps(home_job("two"))))
    after = job_of(ground, lab, "long.1")["metadata"]
    assert after["generation"] == before["metadata"]["generation"]
    assert after["annotations"] == before["metadata"]["annotations"]


@story
async def test_a_strangers_job_under_an_attempts_name_is_not_touched_and_the_attempt_can_be_stopped(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    """The bench's finding: it was told to stop before it could be made, its stop was refused for ever, and its lease
    renewed on the stranger's Job."""
    name, namespace = annotations.execution_name(ground.installation, "long.1"), ground.settings.namespace
    theirs = home_job("theirs")
    theirs["metadata"] = {"name": name, "namespace": namespace}
    lab.apply(theirs)
    before = lab.get("job", name, "-n", namespace)
    async with opened(ground) as site:
        with pytest.raises(Refused, match="belongs to nobody"):
            await site.start("long")
        with pytest.raises(Unreachable, match="not here"):
            await site.driver.set_deadline("long.1", ground.clock() + 5_000)
        await site.driver.stop("long.1", 1000)
        await site.hears(e.AttemptStopped, "long.1")
        await site.driver.forget("long.1")
        assert (await site.driver.look()).attempts == ()
    after = lab.get("job", name, "-n", namespace)
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


@story
async def test_two_control_planes_that_start_the_same_attempt_make_one_job(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    async with opened(ground) as first, opened(ground) as second:
        await asyncio.gather(first.start("long"), second.start("long"))
        jobs = lab.get("jobs", "-n", ground.settings.namespace)["items"]
        assert len(jobs) == 1
        await first.driver.stop("long.1", 1000)
        await second.hears(e.AttemptStopped, "long.1")


@story
async def test_a_namespace_that_is_not_there_is_named(lab: ExternalCluster, tmp_path: Path) -> None:
    driver = KubernetesGround(lab.kubeconfig, "nowhere-at-all", tmp_path).driver()
    with pytest.raises(Refused, match="no namespace nowhere-at-all; create it"):
        await driver.open(lambda _: None)
    await driver.close()


# --- the life of an execution Job ------------------------------------------------------------------------------------


@story
async def test_row_27_a_result_is_kept_until_it_is_on_record_and_only_then_may_the_cluster_forget_it(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    async with opened(ground) as site:
        await site.start("quick")
        await site.hears(e.AttemptEnded, "quick.1")
        job = job_of(ground, lab, "quick.1")
        assert job["metadata"]["finalizers"] == [annotations.RESULT]
        assert "ttlSecondsAfterFinished" not in job["spec"]
        lab.kubectl("delete", "job", job["metadata"]["name"], "-n", ground.settings.namespace, "--wait=false")
        assert (await site.sees("quick.1")) is not None
    async with opened(ground) as site:
        assert (await site.hears(e.AttemptEnded, "quick.1")).outcome == "done"
        await site.start("again")
        await site.driver.stop("again.1", 1000)
        await site.hears(e.AttemptStopped, "again.1")
        await site.driver.forget("again.1")
        job = job_of(ground, lab, "again.1")
        assert "finalizers" not in job["metadata"]
        assert job["spec"]["ttlSecondsAfterFinished"] == 24 * 3600


@story
async def test_a_program_that_fails_is_the_users_own(ground: KubernetesGround) -> None:
    job_annotations = {"pod-complete.stage.kwok.x-k8s.io/delay": "10ms", "penstock.dev/exit-code": "3"}
    async with opened(ground) as site:
        work = Work((), manifest=json.dumps(home_job("bad", job_annotations)))
        await site.driver.start(start("bad"), work)
        ended = await site.hears(e.AttemptEnded, "bad.1")
        assert (ended.outcome, ended.detail) == ("failed", "exit code 3")


@story
async def test_what_kueue_holds_back_waits_at_the_site_and_can_be_stopped_there(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    async with opened(ground) as site:
        await site.start("long")
        where = (annotations.execution_name("home", "long.1"), "-n", ground.settings.namespace)
        lab.kubectl("patch", "job", *where, "--type=merge", "-p", '{"spec":{"suspend":true}}')
        await until(lambda: not lab.get("pods", "-n", ground.settings.namespace)["items"])
        assert not site.said
        seen = await site.sees("long.1")
        assert seen is not None
        assert seen.phase == "running"
        await site.driver.stop("long.1", 1000)
        await site.hears(e.AttemptStopped, "long.1")
        lab.kubectl("patch", "job", *where, "--type=merge", "-p", '{"spec":{"suspend":false}}')  # its turn, too late
        await until(lambda: bool(_condition(job_of(ground, lab, "long.1"), "Failed")))
        assert lab.get("pods", "-n", ground.settings.namespace)["items"] == []


def _condition(job: dict[str, Any], kind: str) -> list[Any]:
    return [condition for condition in job["status"].get("conditions") or () if condition["type"] == kind]


@story
async def test_a_job_that_somebody_deletes_is_lost_and_its_pods_do_not_run_on(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    async with opened(ground) as site:
        await site.start("long")
        name = annotations.execution_name("home", "long.1")
        lab.kubectl("delete", "job", name, "-n", ground.settings.namespace, "--wait=false", "--cascade=background")
        await site.hears(e.AttemptLost, "long.1")
        pods = lab.get("pods", "-n", ground.settings.namespace)["items"]  # objects of ended ones may still be there
        assert [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")] == []
        await site.start("long")  # its name is still taken
        seen = await site.sees("long.1")
        assert seen is not None
        assert seen.phase == "lost"
        await site.driver.forget("long.1")
        await site.start("long")  # and stays so
        assert await site.sees("long.1") is None
        assert lab.get("pods", "-n", ground.settings.namespace)["items"] == []


# --- places ----------------------------------------------------------------------------------------------------------


@story
async def test_a_cluster_says_which_gpus_are_ours_and_what_changes(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings())
    first, second = room.names
    async with opened(ground) as site:

        async def hears(**gpus: int) -> None:
            wanted = tuple(zip(room.names, (gpus["a"], gpus["b"]), strict=True))
            while not any(fact.nodes == wanted for fact in site.rooms):
                site.news.clear()
                await site.news.wait()
            site.rooms.clear()

        await hears(a=2, b=2)  # of eight: the offer's nodes are said to have two
        lab.kubectl("cordon", second)
        await hears(a=2, b=0)
        lab.kubectl("uncordon", second)
        await hears(a=2, b=2)
        theirs = home_job("theirs")
        theirs["metadata"] = {"name": "theirs"}
        theirs["spec"]["template"]["spec"] |= {"nodeSelector": {"kubernetes.io/hostname": first}}
        theirs["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "7"}}
        lab.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(theirs))
        await hears(a=1, b=2)
        lab.kubectl("delete", "job", "theirs", "-n", namespace, "--wait=false")
        await hears(a=2, b=2)
        await site.driver.start(_at(second), TRAIN)  # what is ours is the engine's to count
        pod = lab.get("pods", "-n", namespace)["items"][0]
        assert pod["spec"]["nodeName"] == second
        lab.kubectl("delete", "node", second, "--wait=false")
        while not any([name for name, _ in fact.nodes] == [first] for fact in site.rooms):
            site.news.clear()
            await site.news.wait()


def _at(node: str) -> StartAttempt:
    return replace(start("long"), places=(node,))


@story
async def test_a_node_that_is_deleted_loses_what_ran_on_it_before_the_cluster_notices(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings())
    async with opened(ground) as site:
        await site.driver.start(_at(room.names[0]), TRAIN)
        lab.kubectl("delete", "node", room.names[0], "--wait=false")
        await site.hears(e.AttemptLost, "long.1")
        seen = await site.sees("long.1")
        assert seen is not None
        assert (seen.phase, seen.detail) == ("lost", f"node {room.names[0]} is gone")
    async with opened(ground) as site:  # and it stays so, whatever the Job itself says later
        await site.hears(e.AttemptLost, "long.1")


@story
async def test_a_node_deleted_while_nobody_watched_is_noticed_by_whoever_comes_next(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings())
    async with opened(ground) as site:
        await site.driver.start(_at(room.names[0]), TRAIN)
    lab.kubectl("delete", "node", room.names[0], "--wait=false")
    async with opened(ground) as site:
        await site.hears(e.AttemptLost, "long.1")


@story
async def test_a_spot_node_that_is_tainted_loses_what_ran_on_it(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings())
    async with opened(ground) as site:
        await site.driver.start(_at(room.names[0]), TRAIN)
        lab.kubectl("taint", "node", room.names[0], "reclaimed=soon:NoExecute")
        await site.hears(e.AttemptLost, "long.1")
        seen = await site.sees("long.1")
        assert seen is not None
        assert "DeletionByTaintManager" in seen.detail or "DisruptionTarget" in seen.detail


@story
async def test_a_node_that_will_be_taken_away_is_a_notice_about_what_runs_there_said_once(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    taint = "cloud.google.com/impending-node-termination"
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings())
    async with opened(ground) as site:
        await site.driver.start(_at(room.names[0]), TRAIN)
        lab.kubectl("taint", "node", room.names[0], f"{taint}=:NoSchedule")
        notice = await site.hears(e.NodeNotice, "long.1")
        assert notice.words == f"the cloud takes its node back ({taint})"
        lab.kubectl("taint", "node", room.names[0], "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
        await site.driver.stop("long.1", 0)
        await site.hears(e.AttemptStopped, "long.1")
        assert [type(fact) for fact in site.said] == [e.NodeNotice, e.AttemptStopped]


@story
async def test_what_finds_no_room_is_refused_never_runs_and_stays_refused(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings(room_ms=2000))
    async with opened(ground) as site:
        lab.kubectl("cordon", *room.names)
        with pytest.raises(NoCapacity, match="no node for it"):
            await site.driver.start(start("long"), TRAIN)
        assert {type(fact) for fact in site.said} <= {e.AttemptStuck}
        lab.kubectl("uncordon", *room.names)
        with pytest.raises(NoCapacity):
            await site.driver.start(start("long"), TRAIN)
        assert lab.get("pods", "-n", namespace)["items"] == []
    async with opened(ground) as site:
        with pytest.raises(NoCapacity):
            await site.driver.start(start("long"), TRAIN)
        await site.driver.start(start("long", 2), TRAIN)


@story
async def test_who_slept_while_its_pods_got_a_node_does_not_end_what_has_begun(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    """A leader that woke up stale found its patience at an end, and stopped what its successor had seen running."""
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings(room_ms=600_000))
    async with opened(ground) as site:
        lab.kubectl("cordon", *room.names)
        starting = asyncio.create_task(site.driver.start(start("long"), TRAIN))
        assert isinstance(site.driver, KubernetesDriver)
        here = site.driver.here
        await until(lambda: (known := here.known("long.1")) is not None and "room" in repr(known.trouble))
        execution = here.known("long.1")
        assert execution is not None
        for watching in here.executions.tasks:
            watching.cancel()
        lab.kubectl("uncordon", *room.names)
        await until(lambda: job_of(ground, lab, "long.1")["status"].get("ready") == 1)
        execution.trouble_at -= 3_600_000  # an hour later
        execution.news.set()
        await starting
        assert annotations.ENDING not in job_of(ground, lab, "long.1")["metadata"]["annotations"]


@story
async def test_an_image_that_is_not_there_or_cannot_be_fetched_is_this_jobs_trouble_until_a_node_fails_two_jobs(
    lab: ExternalCluster, room: Room, namespace: str, tmp_path: Path
) -> None:
    """Kwok fetches nothing: what kubelet would say is said for it, of pods that it does not look at any more."""
    ground = KubernetesGround(lab.kubeconfig, namespace, tmp_path, **room.settings(typo_ms=1, image_ms=1))
    async with opened(ground) as site:
        for job, message in (("typo", "not found"), ("away", "i/o timeout"), ("again", "i/o timeout")):
            slow = {"pod-ready.stage.kwok.x-k8s.io/delay": "10m"}
            work = Work((), manifest=json.dumps(home_job(job, slow)))
            ask = replace(start(job), places=room.names[:1])
            starting = asyncio.create_task(site.driver.start(ask, work))
            await until(lambda job=job: bool(_pods_of(lab, namespace, job)))  # type: ignore[misc]
            waits = {"waiting": {"reason": "ErrImagePull", "message": message}}
            status = {
                "containerStatuses": [
                    {"name": "main", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": waits}
                ]
            }
            pod = _pods_of(lab, namespace, job)[0]["metadata"]["name"]
            lab.kubectl(
                "patch", "pod", pod, "-n", namespace, "--subresource=status", "-p", json.dumps({"status": status})
            )
            if job == "typo":  # a home Job stays pending, as in plain Kubernetes: somebody may push the image
                with pytest.raises(Unstartable, match="not found") as error:
                    await starting
                assert error.value.obstacle == "missing"
            elif job == "again":
                with pytest.raises(Unstartable, match="failed 2 jobs and is avoided"):
                    await starting
                while not any((room.names[0], 0) in fact.nodes for fact in site.rooms):
                    site.news.clear()
                    await site.news.wait()
            else:
                with pytest.raises(Unstartable, match="i/o timeout") as error:
                    await starting
                assert error.value.obstacle == "unfit"


def _pods_of(lab: ExternalCluster, namespace: str, job: str) -> list[Any]:
    name = annotations.execution_name("home", f"{job}.1")
    pods = lab.get("pods", "-n", namespace, "-l", f"{annotations.EXECUTION}={name}")["items"]
    return [pod for pod in pods if pod["spec"].get("nodeName")]


@story
async def test_a_gang_is_told_where_its_first_pod_is(ground: KubernetesGround, lab: ExternalCluster) -> None:
    async with opened(ground) as site:
        gang = start("long", slots=((0, 2), (1, 2)), width=4)
        await site.driver.start(gang, TRAIN)
        name, where = annotations.execution_name("home", "long.1"), ground.settings.namespace
        await until(lambda: rendezvous(name) in lab.kubectl("get", "configmaps", "-n", where, "-o", "name"))
        address = lab.get("configmap", rendezvous(name), "-n", where)
        index = "batch.kubernetes.io/job-completion-index"
        pods = {pod["metadata"]["annotations"][index]: pod for pod in lab.get("pods", "-n", where)["items"]}
        assert address["data"]["address"] == pods["0"]["status"]["podIP"]
        assert address["metadata"]["ownerReferences"][0]["name"] == name
        assert len(pods) == 2


# --- what may go wrong with the cluster ------------------------------------------------------------------------------


@story
async def test_a_right_that_is_missing_is_named_and_nothing_is_doubled(
    ground: KubernetesGround, lab: ExternalCluster
) -> None:
    where = ground.settings.namespace
    may_look = [{**JOBS[0], "verbs": ["get", "list", "watch"]}, *LOOKS]
    ground.access = Access(str(lab.token_for(where, may_look)))
    async with opened(ground) as site:
        with pytest.raises(Unreachable, match=r"may not create jobs\.batch; grant it"):
            await site.start("long")
        await asyncio.to_thread(lab.token_for, where, [*JOBS, *LOOKS])
        await site.start("long")
        assert len(lab.get("jobs", "-n", where)["items"]) == 1


@story
async def test_a_list_that_we_may_not_read_is_no_empty_site(ground: KubernetesGround, lab: ExternalCluster) -> None:
    """Seen as "all gone", everything that runs there would be started again elsewhere."""
    async with opened(ground) as site:
        await site.start("long")
    ground.access = Access(str(lab.token_for(ground.settings.namespace, [*JOBS, LOOKS[1]])))
    blind = ground.driver()
    with pytest.raises(Unreachable, match="pods cannot be read"):
        await blind.open(lambda _: None)
    with pytest.raises(Unreachable):
        await blind.look()
    await blind.close()


@pytest.mark.slow
@story
async def test_an_api_server_that_is_restarted_and_stopped_for_a_while_loses_and_doubles_nothing(
    bed: ClusterGroup, tmp_path: Path
) -> None:
    lab = bed.cluster("lab")
    ground = KubernetesGround(lab.kubeconfig, lab.new_namespace(), tmp_path / "site")
    async with opened(ground) as site:
        await site.start("long")
        lab.kill_api()
        await _refuses(site.driver)
        with pytest.raises(Unreachable):
            await site.start("other")
        await asyncio.to_thread(lab.start_api)
        await _answers(site.driver)
        assert (await site.sees("long.1")) is not None
        assert not site.said
        lab.pause_api()  # connections stay and lead nowhere
        starting = asyncio.create_task(site.start("other"))
        await _refuses(site.driver)
        lab.resume_api()
        await asyncio.wait([starting])
        await _answers(site.driver)
        await site.start("other")
        await site.driver.stop("long.1", 1000)
        await site.hears(e.AttemptStopped, "long.1")
        await site.driver.stop("other.1", 1000)
        await site.hears(e.AttemptStopped, "other.1")
        assert len(lab.get("jobs", "-n", ground.settings.namespace)["items"]) == 2


async def _refuses(driver: KubernetesDriver | Any) -> None:
    while True:
        try:
            await driver.look()
        except Unreachable:
            return
        await asyncio.sleep(0.05)


async def _answers(driver: KubernetesDriver | Any) -> None:
    while True:
        try:
            await driver.look()
        except Unreachable:
            await asyncio.sleep(0.1)
        else:
            return


@story
async def test_an_offer_that_is_added_later_has_its_nodes_told_and_takes_a_start(ground: KubernetesGround) -> None:
    async with opened(ground) as watch:
        driver = watch.driver
        assert isinstance(driver, KubernetesDriver)
        new = replace(ground.site.offers[0], id="lab/new")
        with pytest.raises(Refused, match="has no offer lab/new"):
            await driver.start(start("long", offer="lab/new"), ground.work("long"))
        driver.use(replace(ground.site, offers=(*ground.site.offers, new)), {"lab/new": NodeSelection()})
        driver.tell_all()
        await until(lambda: any(seen.offer == "lab/new" and seen.nodes for seen in watch.rooms))
        await driver.start(start("long", offer="lab/new"), ground.work("long"))
        await driver.stop("long.1", 0)
