"""A home Job's life, told on a real API server."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.config.teams import Team
from penstock.core.model.events import Paused
from penstock.core.model.types import Offer
from penstock.devcluster import ClusterGroup
from penstock.devcluster.external import ExternalCluster
from penstock.front.applying import Applier
from penstock.front.job_controller import JobController
from penstock.front.status import SCHEDULED, JobSnapshot
from penstock.kube import annotations, kueue
from penstock.kube.access import Access, connect
from penstock.live import admission
from tests.front.kit import LIMIT_S, SITES, Penstock, binding, complete, condition, failed, home_job, ours, running

pytestmark = pytest.mark.slow


@pytest.fixture
def penstock(lab: ExternalCluster, namespace: str, tmp_path: Path) -> Callable[..., Penstock]:
    return lambda **more: Penstock(lab, namespace, tmp_path, **more)


def test_a_labelled_job_runs_and_completes_and_its_home_job_shows_all_of_it(
    penstock: Callable[..., Penstock],
) -> None:
    async def tell() -> None:
        async with penstock(runs={"j0": 1.5}) as here:
            here.apply(home_job("a", annotations={"run-time": "1h"}))
            job = await here.shows("a", running)
            assert job["spec"]["suspend"] is False
            assert binding(job) == {"attempt": "j0.1", "offer": "lab/a100", "site": "lab"}
            assert annotations.CANCEL in job["metadata"]["finalizers"]
            assert job["status"]["active"] == 1
            started = job["status"]["startTime"]
            job = await here.shows("a", complete)
            assert condition(job, "SuccessCriteriaMet")
            assert (job["status"]["succeeded"], job["status"].get("active", 0)) == (1, 0)
            assert job["status"]["startTime"] == started <= job["status"]["completionTime"]
            assert annotations.CANCEL not in (await here.shows("a", lambda one: not ours_final(one)))["metadata"].get(
                "finalizers", []
            )
            await here.says("a", "Succeeded")
            log = f" Its log: kubectl penstock logs -f a -n {here.namespace}"
            assert here.text("a").replace(log, "") == " ".join(here.why("j0"))

    asyncio.run(tell())


def accepted(job: dict[str, Any]) -> bool:
    return annotations.JOB in (job["metadata"].get("annotations") or {})


def ours_final(job: dict[str, Any]) -> list[str]:
    return [
        finalizer for finalizer in job["metadata"].get("finalizers", []) if finalizer.startswith(annotations.DOMAIN)
    ]


def test_one_that_waits_says_why_in_an_event_and_a_condition_as_why_does(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock(sites=SITES[:1]) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b"))
            event = await here.says("b", "OnlyOwned")
            assert event["message"] == " ".join(here.why("j1"))
            job = await here.shows("b", lambda shown: shown.get("status", {}).get("conditions"))
            (scheduled,) = [one for one in job["status"]["conditions"] if one["type"] == SCHEDULED]
            assert (scheduled["status"], scheduled["reason"], scheduled["message"]) == (
                "False",
                "OnlyOwned",
                here.why("j1")[-1],
            )
            assert job["spec"]["suspend"] is True
            assert not job["status"].get("active")

    asyncio.run(tell())


def test_the_third_job_bursts_is_lost_and_goes_on_and_its_job_shows_the_same_story(
    penstock: Callable[..., Penstock],
) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b"))
            job = await here.shows("b", running)
            assert binding(job)["site"] == "cloud"
            started = job["status"]["startTime"]
            here.loses("j1.1/n0")
            job = await here.shows("b", lambda shown: binding(shown).get("attempt") == "j1.2" and running(shown))
            assert job["status"]["failed"] == 1
            assert job["status"]["startTime"] == started
            log = f" Its log: kubectl penstock logs -f b -n {here.namespace}"
            assert " ".join(here.why("j1")).startswith(here.text("b").replace(log, ""))

    asyncio.run(tell())


def test_what_was_read_before_a_newer_attempt_was_bound_does_not_bind_the_older_again(
    penstock: Callable[..., Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the control plane stood still for a while between the two."""
    looked: list[JobSnapshot] = []
    right = JobController._show

    async def show(self: JobController, job: dict[str, Any], snapshot: JobSnapshot) -> None:
        await right(self, job, snapshot)
        looked.append(snapshot)

    async def tell() -> None:
        async with penstock() as here:
            snapshots = here.manager.follower.snapshots
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.apply(home_job("b"))
            await here.shows("b", running)
            first = snapshots["j1"]
            here.loses("j1.1/n0")
            await here.shows("b", lambda job: binding(job).get("attempt") == "j1.2" and running(job))
            assert [attempt.id for attempt in first.attempts] == ["j1.1"]
            snapshots["j1"] = first
            monkeypatch.setattr(JobController, "_show", show)
            here.given.kubectl("-n", here.namespace, "annotate", "job", "b", "note=touched")
            async with asyncio.timeout(LIMIT_S):
                while first not in looked:
                    await asyncio.sleep(0.1)
            there = here.given.get("job", "b", "-n", here.namespace)
            assert binding(there)["attempt"] == "j1.2"

    asyncio.run(tell())


def test_deleting_the_home_job_cancels_what_runs_for_it_and_then_it_is_gone(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.delete("a")
            await here.is_gone("a")
            assert here.phase("j0") == "cancelled"

    asyncio.run(tell())


def test_a_label_without_managed_by_is_explained_and_runs_nowhere(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a", spec={"managedBy": None, "suspend": False}))
            event = await here.says("a", "NotManaged")
            assert "kubectl penstock apply" in event["message"]
            job = await here.shows("a", lambda shown: shown["spec"].get("suspend"))
            assert ours(job) == []
            assert here.reader.counts() == []

    asyncio.run(tell())


@pytest.mark.parametrize(
    ("job", "reason", "words"),
    [
        (home_job("a", gpus=0), "NoGPUs", "asks for no GPUs"),
        (home_job("a", annotations={"deadline": "soon"}), "NotUnderstood", "'soon' and not an instant"),
        (home_job("a", annotations={"class": "very urgent"}), "NotUnderstood", "penstock.dev/class"),
        (home_job("a", annotations={"run-time": "-1h"}), "NotUnderstood", "penstock.dev/run-time"),
    ],
)
def test_a_job_that_cannot_be_read_is_explained_and_runs_nowhere(
    penstock: Callable[..., Penstock], job: dict[str, Any], reason: str, words: str
) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(job)
            assert words in (await here.says("a", reason))["message"]
            assert here.reader.counts() == []

    asyncio.run(tell())


@pytest.mark.parametrize(
    ("team", "job_annotations", "reason", "words"),
    [
        ("speech", {}, "TeamNotAllowed", "are booked to team vision; write that as the label"),
        ("vision", {"class": "critical"}, "ClassNotAllowed", "may not submit jobs of class critical"),
        ("vision", {"priority": "6"}, "PriorityNotAllowed", "may ask for a priority of 5 at most"),
        ("vision", {"project": "speech-to-text"}, "ProjectNotAllowed", "may not spend the budget of project"),
        ("vision", {"data": "voices"}, "NoSuchData", "no data set voices that team vision may use"),
    ],
)
def test_a_jobs_own_label_and_annotations_cannot_take_what_is_another_teams(
    penstock: Callable[..., Penstock], team: str, job_annotations: dict[str, str], reason: str, words: str
) -> None:
    async def tell() -> None:
        async with penstock() as here:
            vision = Team("vision", (here.namespace,), classes=("training",), highest_priority=5)
            here.teams = (vision, Team("speech", projects=("speech-to-text",)))
            await here.goes_down()
            await here.comes_up()
            here.apply(home_job("a", team=team, annotations=job_annotations))
            assert words in (await here.says("a", reason))["message"]
            assert here.reader.counts() == []

    asyncio.run(tell())


def test_a_full_queue_takes_the_job_once_there_is_room(
    penstock: Callable[..., Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "FULL_SECONDS", 0.5)

    async def tell() -> None:
        async with penstock() as here:
            here.teams = (Team("vision", (here.namespace,), queued_jobs=1),)
            await here.goes_down()
            await here.comes_up()
            await here.plane.tell(Paused(0))
            here.apply(home_job("a"))
            await here.shows("a", accepted)
            here.apply(home_job("b"))
            assert "may have 1; wait" in (await here.says("b", "QueueFull"))["message"]
            here.plane.admission.teams["vision"] = Team("vision", (here.namespace,))  # as if the first had begun
            await here.shows("b", accepted)

    asyncio.run(tell())


def test_a_job_that_no_site_could_ever_hold_fails_with_the_reason(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock(sites=SITES[:1]) as here:
            here.apply(home_job("wide", gpus=64))
            job = await here.shows("wide", failed)
            assert condition(job, "FailureTarget")
            assert condition(job, "Failed")["message"] == here.why("j0")[-1]
            assert "it needs 64 GPUs at once" in condition(job, "Failed")["message"]

    asyncio.run(tell())


def test_objects_without_the_label_are_never_touched(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock(runs={"j0": 0.5}) as here:
            bare = home_job("theirs")
            del bare["metadata"]["labels"]
            here.apply(bare)
            before = (await here.shows("theirs", bool))["metadata"]["resourceVersion"]
            here.apply(home_job("ours"))
            await here.shows("ours", complete)
            assert here.given.get("-n", here.namespace, "job", "theirs")["metadata"]["resourceVersion"] == before
            assert here.told("theirs") == []

    asyncio.run(tell())


def test_after_a_restart_every_job_is_shown_again_and_none_runs_twice(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock(runs={"j0": 600}) as here:
            here.apply(home_job("a"), home_job("b"))
            await here.shows("a", running)
            await here.shows("b", running)
            await here.goes_down()
            change = f'{{"metadata":{{"annotations":{{"{annotations.BINDING}":null,"{annotations.JOB}":"j77"}}}}}}'
            here.given.kubectl("-n", here.namespace, "patch", "job", "a", "--type=merge", "-p", change)
            here.delete("b")
            await here.comes_up()
            await here.shows("a", lambda job: binding(job).get("attempt", "").endswith(".1"))
            await here.is_gone("b")
            assert sum(count.jobs for count in here.reader.counts()) == 2

    asyncio.run(tell())


def test_one_that_ended_while_nobody_watched_is_shown_and_never_run_again(penstock: Callable[..., Penstock]) -> None:
    """Not even if all that we wrote on it is gone, and so is the idempotency key: the journal knows whose it is."""

    async def tell() -> None:
        async with penstock(runs={"j0": 2}) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.open.cancel()
            await here.ends("j0", "done")
            plane = here.plane
            await plane._think(here.journal.forget_answers, plane.sequencer.epoch, here.clock.now() + 1)
            await here.goes_down()
            marks = {"annotations": {annotations.BINDING: None, annotations.JOB: None}, "finalizers": None}
            patch = ("patch", "job", "a", "--type=merge", "-p", json.dumps({"metadata": marks}))
            here.given.kubectl("-n", here.namespace, *patch)
            await here.comes_up()
            await here.shows("a", complete)
            assert [(count.state, count.jobs) for count in here.reader.counts()] == [("succeeded", 1)]

    asyncio.run(tell())


def test_a_job_deleted_by_force_while_nobody_watched_is_cancelled(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            await here.goes_down()
            here.given.kubectl(
                "-n", here.namespace, "patch", "job", "a", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
            )
            here.delete("a")
            await here.is_gone("a")
            await here.comes_up()
            await here.ends("j0", "cancelled")

    asyncio.run(tell())


def test_two_jobs_of_one_name_in_two_namespaces_and_two_home_clusters_are_four_jobs(
    lab: ExternalCluster, east: ExternalCluster, namespace: str, tmp_path: Path
) -> None:
    """Two front doors, two namespaces each: nobody is taken for another."""
    other = lab.new_namespace()
    east.new_namespace(other)

    async def tell() -> None:
        sites = [replace(SITES[0], id=name, offers=(offer(name),)) for name in ("lab", "east")]
        async with Penstock(lab, namespace, tmp_path, sites=tuple(sites), others={"east": east}, also=(other,)) as here:
            for cluster in (lab, east):
                for place in (namespace, other):
                    job = home_job("a", gpus=4)
                    job["metadata"]["namespace"] = place
                    cluster.apply(job)
            await here.counts({"running": 4})
            for cluster in (lab, east):
                for place in (namespace, other):
                    shown = ("-n", place, "wait", "job/a", "--for=jsonpath={.status.ready}=1", "--timeout=55s")
                    await asyncio.to_thread(cluster.kubectl, *shown)

    try:
        asyncio.run(tell())
    finally:
        for cluster in (lab, east):
            cluster.drop_namespace(other)


def offer(site: str) -> Offer:
    return replace(SITES[0].offers[0], id=f"{site}/a100", site=site)


def test_an_api_server_that_is_killed_and_comes_back_is_caught_up_with(bed: ClusterGroup, tmp_path: Path) -> None:
    own = bed.cluster("lab")
    namespace = own.new_namespace()

    async def tell() -> None:
        async with Penstock(own, namespace, tmp_path, runs={"j0": 1.5}) as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            own.kill_api()
            await here.ends("j0", "done")  # while nobody could be told
            assert here.plane.alarms.now()
            own.start_api()
            await here.shows("a", complete)

    asyncio.run(tell())


def test_the_owner_and_the_finalizers_that_others_gave_a_job_stay_theirs(penstock: Callable[..., Penstock]) -> None:
    """As a workflow engine makes Jobs. Ours comes and goes beside them, and a delete waits for both."""

    async def tell() -> None:
        async with penstock() as here:
            config_map = here.given.get("-n", here.namespace, "configmap", "kube-root-ca.crt")["metadata"]
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": config_map["name"], "uid": config_map["uid"]}
            job = home_job("a")
            job["metadata"] |= {"finalizers": ["example.com/keep"], "ownerReferences": [owner]}
            here.apply(job)
            shown = await here.shows("a", running)
            assert shown["metadata"]["finalizers"] == ["example.com/keep", annotations.CANCEL]
            assert [owner["uid"] for owner in shown["metadata"]["ownerReferences"]] == [config_map["uid"]]
            here.delete("a")
            await here.ends("j0", "cancelled")
            shown = await here.shows("a", lambda one: not ours_final(one))
            assert shown["metadata"]["finalizers"] == ["example.com/keep"]
            patch = ("--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            here.given.kubectl("-n", here.namespace, "patch", "job", "a", *patch)
            await here.is_gone("a")

    asyncio.run(tell())


def test_a_label_that_is_taken_away_takes_the_job_back(penstock: Callable[..., Penstock]) -> None:
    async def tell() -> None:
        async with penstock() as here:
            here.apply(home_job("a"))
            await here.shows("a", running)
            here.given.kubectl("-n", here.namespace, "label", "job", "a", f"{annotations.QUEUE}-")
            await here.ends("j0", "cancelled")
            await here.shows("a", lambda job: ours(job) == [])

    asyncio.run(tell())


def test_its_user_suspends_and_resumes_it_however_it_was_applied(penstock: Callable[..., Penstock]) -> None:
    """Each Job of `kubectl penstock apply`, and of the admission policy, had Kueue's label, though there was no Kueue:
    it stayed `suspend: true` while it ran, and neither a patch nor a changed manifest stopped it.
    """

    def plain(name: str, **spec: Any) -> dict[str, Any]:
        made = home_job(name, annotations={"checkpoint-every": "1s"})
        made["spec"] = {"template": made["spec"]["template"], **spec}
        return made

    async def tell() -> None:
        async with penstock(sites=SITES[:1]) as here:
            cluster = connect(Access(kubeconfig=str(here.given.kubeconfig)))
            applier = Applier(cluster, "vision", here.namespace)

            def patch(name: str, *, suspend: bool) -> None:
                here.given.kubectl(
                    "-n", here.namespace, "patch", "job", name, "-p", json.dumps({"spec": {"suspend": suspend}})
                )

            async def stops(name: str) -> None:
                job = await here.shows(
                    name, lambda shown: condition(shown, "Suspended") and not shown["status"].get("active")
                )
                assert job["spec"]["suspend"] is True

            async def goes_on(name: str) -> None:
                await here.shows(name, lambda shown: shown["spec"]["suspend"] is False and running(shown))

            await applier.apply(plain("applied"))
            by_policy = home_job("completed", labels={kueue.QUEUE: kueue.NOWHERE})  # as the policy leaves it
            await goes_on("applied")
            patch("applied", suspend=True)
            await stops("applied")
            here.apply(by_policy)
            await goes_on("completed")
            patch("completed", suspend=True)
            await stops("completed")
            patch("applied", suspend=False)
            await goes_on("applied")
            suspended = await applier.apply(plain("applied", suspend=True))
            assert suspended.outcome == "configured"
            await stops("applied")
            assert (await applier.apply(plain("applied"))).outcome == "configured"
            await goes_on("applied")
            await cluster.close()

    asyncio.run(tell())


def test_its_user_suspends_and_resumes_it_and_hears_that_its_size_stays(penstock: Callable[..., Penstock]) -> None:
    """A `suspend: true` was once taken back without a word."""

    async def tell() -> None:
        def patch(**spec: Any) -> None:
            here.given.kubectl("-n", here.namespace, "patch", "job", "a", "-p", json.dumps({"spec": spec}))

        async with penstock(sites=SITES[:1]) as here:
            first = home_job("a", annotations={"checkpoint-every": "1s"}, spec={"completions": 2, "parallelism": 1})
            here.apply(first)
            await here.shows("a", running)
            here.apply(first)  # again, and it says `suspend: true`: that is the queue's
            await here.shows("a", lambda shown: shown["spec"]["suspend"] is False and running(shown))
            here.apply(home_job("b"))
            waits = await here.shows("b", lambda shown: condition(shown, "Suspended"))
            assert condition(waits, "Suspended")["reason"] == "JobSuspended"

            patch(suspend=True)
            job = await here.shows(
                "a", lambda shown: condition(shown, "Suspended") and not shown["status"].get("active")
            )
            assert job["spec"]["suspend"] is True
            assert (await here.says("a", "Suspended"))["type"] == "Normal"
            await here.shows("b", running)  # on the GPUs that came free
            await here.goes_down()
            await here.comes_up()
            here.delete("b")
            await here.is_gone("b")
            patch(suspend=False)
            job = await here.shows("a", running)
            resumed = next(one for one in job["status"]["conditions"] if one["type"] == "Suspended")
            assert (resumed["status"], resumed["reason"], binding(job)["attempt"]) == ("False", "JobResumed", "j0.2")
            assert [attempt.outcome for attempt in here.reader.attempts("j0")] == ["stopped", ""]

            patch(parallelism=2)
            event = await here.says("a", "SizeNotChanged")
            assert "runs with the 8 GPUs that it asked for" in event["message"]

    asyncio.run(tell())
