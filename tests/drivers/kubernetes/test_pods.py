"""How an attempt ended, by what its Job and pods say: the user's own doing, lost capacity, a place that failed it."""

from typing import Any

import pytest

from penstock.drivers.kubernetes.pods import (
    End,
    Trouble,
    end_of,
    has_begun,
    is_short_of,
    is_stalled,
    trouble_of,
    unreplaced,
)
from penstock.kube import annotations

BEGAN = "2026-11-16T07:00:00Z"


def job(condition: str = "", reason: str = "", message: str = "", ending: str = "", **spec: Any) -> dict[str, Any]:
    job_annotations = {annotations.ENDING: ending, annotations.WORDS: "words"} if ending else {}
    conditions = [{"type": condition, "status": "True", "reason": reason, "message": message}] if condition else []
    return {
        "metadata": {"annotations": job_annotations},
        "spec": {"parallelism": 1, "completions": 1, **spec},
        "status": {"conditions": conditions},
    }


def pod(phase: str, *, node: str = "n1", **status: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": BEGAN, **more}}
    return pod("Failed" if code else "Succeeded", containerStatuses=[{"state": state}])


def terminating(resource: dict[str, Any]) -> dict[str, Any]:
    """To end, by whoever deleted it."""
    return {**resource, "metadata": {**resource["metadata"], "deletionTimestamp": BEGAN}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return pod("Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}}])


def disrupted(reason: str) -> dict[str, Any]:
    return pod(
        "Failed", conditions=[{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why"}]
    )


FAILED = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
TAKEN = ("Failed", "PodFailurePolicy", "Pod x has condition DisruptionTarget matching FailJob rule at index 0")


@pytest.mark.parametrize(
    ("kube_job", "pods", "phase", "words"),
    [
        (job("Complete"), [ended(0)], "done", "exit code 0"),
        (job(*FAILED), [ended(3)], "failed", "exit code 3"),
        (job(*FAILED), [ended(137, "OOMKilled")], "failed", "out of memory"),
        (job(*FAILED), [ended(128, "StartError", message="no such file")], "failed", "could not be started: no such"),
        (job(*FAILED), [], "failed", "backoff limit"),
        (job("Failed", "PodFailurePolicy", "exit code 42 matching FailJob rule at index 1"), [], "failed", "index 1"),
        (job(*TAKEN), [], "lost", "DisruptionTarget"),
        (job(*TAKEN), [disrupted("EvictionByEvictionAPI")], "lost", "EvictionByEvictionAPI: why"),
        (job(*TAKEN), [disrupted("DeletionByTaintManager")], "lost", "DeletionByTaintManager"),
        (job(*TAKEN), [disrupted("DeletionByPodGC")], "lost", "DeletionByPodGC"),
        (job(*TAKEN), [disrupted("PreemptionByScheduler")], "lost", "PreemptionByScheduler"),
        (job(*FAILED), [pod("Failed", reason="NodeShutdown", message="off")], "lost", "NodeShutdown: off"),
        (job(*FAILED), [pod("Failed", reason="UnexpectedAdmissionError")], "lost", "UnexpectedAdmissionError"),
        (job(*FAILED), [pod("Failed", reason="OutOfnvidia.com/gpu")], "lost", "OutOfnvidia.com/gpu"),
        (job("Failed", "DeadlineExceeded"), [], "stopped", "deadline passed"),
        (job("Failed", "DeadlineExceeded", ending="stopped"), [], "stopped", "words"),
        (job("Failed", "DeadlineExceeded", ending="lost"), [], "lost", "words"),
        (job("Failed", "DeadlineExceeded", ending="failed"), [], "failed", "words"),
        (job("Complete", ending="stopped"), [ended(0)], "done", "exit code 0"),
    ],
)
def test_each_kind_of_end_is_told_from_the_others(
    kube_job: dict[str, Any], pods: list[dict[str, Any]], phase: str, words: str
) -> None:
    end = end_of(kube_job, pods, ["n1"])
    assert end is not None
    assert end.phase == phase
    assert words in end.words


def test_the_users_own_deadline_fails_the_job_and_the_leases_end_only_stops_the_attempt() -> None:
    """Both are `activeDeadlineSeconds`: the lesser was written. A 5-second deadline was once an endless loop."""

    def passed(own: str, written: int) -> str:
        kube_job = job("Failed", "DeadlineExceeded", activeDeadlineSeconds=written)
        kube_job["metadata"]["annotations"][annotations.OWN_DEADLINE] = own
        end = end_of(kube_job, [], None)
        assert end is not None
        return end.phase

    assert passed("5", 5) == "failed"
    assert passed("60", 5) == "stopped"


def test_a_job_whose_containers_restart_is_lost_with_a_pod_unless_the_cluster_has_replaced_it() -> None:
    kube_job, evicted = job(restarts=True), disrupted("EvictionByEvictionAPI")
    assert unreplaced(kube_job, [evicted]) == "EvictionByEvictionAPI: why"
    assert unreplaced(kube_job, [evicted, pod("Running")]) == ""  # while no Penstock ran
    assert unreplaced(job(), [evicted]) == ""  # its pod failure policy says so itself
    first, second = (
        {**ended_pod, "metadata": {"creationTimestamp": at}} for ended_pod, at in ((evicted, "1"), (ended(3), "2"))
    )
    end = end_of(job(*FAILED, restarts=True), [second, first], None)
    assert end is not None
    assert (end.phase, end.words) == ("failed", "exit code 3")
    end = end_of(job(*FAILED, restarts=True), [first], None)
    assert end is not None
    assert end.phase == "lost"


def test_only_a_node_that_would_not_take_a_pod_is_held_against_it() -> None:
    refused = end_of(job(*FAILED), [pod("Failed", reason="OutOfnvidia.com/gpu")], None)
    assert refused is not None
    assert refused.node == "n1"
    evicted = end_of(job(*TAKEN), [disrupted("EvictionByEvictionAPI")], None)
    assert evicted is not None
    assert evicted.node == ""


@pytest.mark.parametrize(
    ("kube_job", "pods"),
    [
        (job(), []),
        (job(), [pod("Running")]),
        (job("FailureTarget", "DeadlineExceeded"), [pod("Running")]),  # told, and not gone: nobody else may start
        (job(ending="stopped"), [pod("Running")]),
        (job(ending="lost"), [pod("Running")]),
        (job(suspend=True), []),  # Kueue's turn
        (job("Suspended", suspend=True), []),
        (job(ending="stopped", suspend=True), []),  # Kueue may still let it go
    ],
)
def test_what_may_still_run_is_not_over(kube_job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    assert end_of(kube_job, pods, ["n1"]) is None


def test_a_tombstone_and_a_job_left_with_nothing_to_run_are_over() -> None:
    still = job(ending="stopped", suspend=True, parallelism=0)
    assert end_of(still, [], ["n1"]) == End("stopped", "words", began=False)
    assert end_of(still, [pod("Running")], ["n1"]) is None


def test_what_ran_on_a_node_that_is_gone_is_gone_with_it_but_not_its_gang_elsewhere() -> None:
    kube_job = job(ending="lost")
    assert end_of(kube_job, [pod("Running", node="gone")], ["n1"]) == End("lost", "words")
    assert end_of(kube_job, [pod("Running", node="gone"), pod("Running")], ["n1"]) is None
    assert end_of(kube_job, [pod("Running", node="gone")], None) is None  # nobody knows which nodes there are


def test_a_job_that_said_its_last_step_is_done_though_it_was_told_to_stop() -> None:
    kube_job = job("Failed", "DeadlineExceeded", ending="stopped")
    assert end_of(kube_job, [terminating(ended(0))], None, finished=True) == End("done", "exit code 0")
    stopped = end_of(kube_job, [terminating(ended(0))], None, finished=False)
    assert stopped is not None
    assert stopped.phase == "stopped"
    failed = end_of(kube_job, [terminating(ended(1))], None, finished=True)
    assert failed is not None
    assert failed.phase == "stopped"


@pytest.mark.parametrize("ending", ["", "stopped", "lost"])
def test_a_program_that_ended_well_before_anybody_told_it_to_end_is_done_whatever_its_cluster_saw_first(
    ending: str,
) -> None:
    late = job("Failed", "DeadlineExceeded", ending=ending)
    assert end_of(late, [ended(0)], ["another"]) == End("done", "exit code 0")
    gang = job("Failed", "DeadlineExceeded", ending=ending, parallelism=2, completions=2)
    assert end_of(gang, [ended(1), ended(0), ended(0)], None) == End("done", "exit code 0")
    half = end_of(gang, [ended(0), terminating(ended(0))], None)
    assert half is not None
    assert half.phase == (ending or "stopped")
    assert end_of(job(), [ended(0)], None) is None  # the cluster is about to say so itself


def taken_at(taken: dict[str, Any], second: int) -> dict[str, Any]:
    """Its node was, and so it was told to end."""
    at = f"2026-11-16T07:00:{second:02}Z"
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "taint"}
    return terminating(
        {**taken, "status": {**taken["status"], "conditions": [{**condition, "lastTransitionTime": at}]}}
    )


def test_what_ends_well_because_its_node_is_taken_has_kept_its_work_and_is_not_done() -> None:
    """A trainer that saves and exits 0 when told to end: its cluster calls that complete."""
    saved = taken_at(ended(0, finishedAt="2026-11-16T07:00:09Z"), 7)
    assert end_of(job("Complete"), [saved], None) == End("lost", "DeletionByTaintManager: taint")
    assert end_of(job("Complete"), [saved], None, finished=True) == End("done", "exit code 0")
    assert end_of(job("Complete", ending="stopped"), [terminating(ended(0))], None) == End("stopped", "words")
    deleted = end_of(job("Complete"), [terminating(ended(0))], None)
    assert deleted == End("lost", "it was told to end before it was done")
    assert end_of(job("Complete"), [], None) == End("done", "exit code 0")  # nobody knows better than its cluster


@pytest.mark.parametrize("late", [job("Complete"), job("Failed", "DeadlineExceeded"), job(ending="lost")])
def test_what_ended_well_before_its_node_was_taken_is_done(late: dict[str, Any]) -> None:
    first = ended(0, finishedAt="2026-11-16T07:00:09Z")
    assert end_of(late, [taken_at(first, 10)], None) == End("done", "exit code 0")
    same = end_of(late, [taken_at(first, 9)], None)  # within one second nobody can say
    assert same is None or same.phase != "done"


def test_a_success_of_which_only_the_count_is_left_is_done_unless_we_told_it_to_end() -> None:
    """Its deadline passed, its node was taken, and nobody was there."""
    late, stopped = job("Failed", "DeadlineExceeded"), job("Failed", "DeadlineExceeded", ending="stopped")
    late["status"]["succeeded"] = stopped["status"]["succeeded"] = 1
    assert end_of(late, [], None) == End("done", "exit code 0")
    assert end_of(stopped, [], None) == End("stopped", "words", began=False)
    gang = job("Failed", "DeadlineExceeded", completions=2, parallelism=2)
    gang["status"]["succeeded"] = 1
    assert end_of(gang, [], None) == End("stopped", "its deadline passed", began=False)


def test_a_gang_has_begun_when_all_of_it_runs() -> None:
    gang = job(parallelism=2, completions=2)
    assert not has_begun(gang, [pod("Running"), pod("Pending")])
    assert has_begun(gang, [pod("Running"), pod("Running")])
    assert has_begun(gang, [pod("Pending"), ended(1)])  # a part of it ran and is over


@pytest.mark.parametrize(
    ("stuck", "kind", "words"),
    [
        (waiting("ErrImagePull", "dial tcp: i/o timeout"), "image", "i/o timeout"),
        (waiting("ImagePullBackOff", 'Back-off pulling image "x": not found'), "user", "not found"),
        (waiting("ErrImagePull", "pull access denied"), "user", "denied"),
        (waiting("InvalidImageName", "couldn't parse"), "user", "cannot be used"),
        (waiting("CreateContainerError", "device busy"), "place", "device busy"),
        (
            pod(
                "Pending",
                node="",
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
                ],
            ),
            "room",
            "0/2 nodes",
        ),
        (pod("Failed", reason="OutOfcpu"), "place", "OutOfcpu"),
    ],
)
def test_what_keeps_it_from_running_is_the_users_the_places_or_want_of_room(
    stuck: dict[str, Any], kind: str, words: str
) -> None:
    trouble = trouble_of(job(), [pod("Running"), stuck])
    assert trouble is not None
    assert trouble.kind == kind
    assert words in trouble.words


@pytest.mark.parametrize(
    ("kube_job", "pods"),
    [
        (job(), [waiting("ContainerCreating")]),
        (job(), [pod("Running")]),
        (job(suspend=True), [pod("Pending", conditions=[{"type": "PodScheduled", "status": "False"}])]),
    ],
)
def test_what_is_only_on_its_way_is_no_trouble(kube_job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
    trouble: Trouble | None = trouble_of(kube_job, pods)
    assert trouble is None


def test_a_batch_that_lost_a_pod_is_not_lost_with_it() -> None:
    def batch(*shown: str) -> dict[str, Any]:
        kube_job = job(*shown, completions=4, parallelism=2)
        kube_job["metadata"]["annotations"][annotations.REPLACES_PODS] = "true"
        return kube_job

    evicted = disrupted("EvictionByEvictionAPI")
    end = end_of(batch(*FAILED), [evicted, ended(3)], None)
    assert end is not None
    assert (end.phase, end.words) == ("failed", "exit code 3")
    end = end_of(batch("Complete"), [terminating(ended(0)), ended(0)], None)
    assert end is not None
    assert end.phase == "done"
    waits = pod("Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
    assert is_stalled([evicted, waits])
    assert not is_stalled([evicted, waits, pod("Running")])
    assert not is_stalled([evicted])  # none was made yet


@pytest.mark.parametrize(
    ("words", "short"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", True),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes", True),
        ("0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 Insufficient cpu.", True),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpumem-percentage.", False),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.shared.", False),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu-memory.", False),
    ],
)
def test_the_schedulers_word_for_gpus_is_matched_whole(words: str, short: bool) -> None:
    """A Job that shares GPUs closed the owned offer for everybody, with 400 GPUs free."""
    assert is_short_of(words, "nvidia.com/gpu") == short
