"""From an attempt to its Job: what the cluster is told, and what of a person's Job is copied."""

from typing import Any

import pytest

from penstock.core.model.types import NodeShape, Offer
from penstock.core.units import HOUR, NEVER, SECOND
from penstock.drivers.driver import Refused, Work
from penstock.drivers.earlier import Earlier, written
from penstock.drivers.kubernetes.execution_job import (
    ExecutionRequest,
    execution_job,
    is_gang,
    rendezvous,
    seconds_left,
    tombstone,
)
from penstock.kube import annotations
from penstock.kube.gpu_requests import pods_at_once
from penstock.kube.node_selection import NodeSelection, Toleration
from tests.contract.kit import home_job, start

OWNED = Offer("lab/owned", "lab", "owned", (NodeShape(8, 4),))
RENTED = Offer("lab/pods", "lab", "on_demand", (NodeShape(2, None), NodeShape(8, None)), sold_by="attempt")
WORK = Work(("python", "train.py"), (("LR", "0.1"),), image="train:1")


def job(work: Work = WORK, manifest: dict[str, Any] | None = None, offer: Offer = OWNED, **more: Any) -> dict[str, Any]:
    asked = {key: more.pop(key) for key in ("slots", "width", "deadline_at", "resume_ms") if key in more}
    order = ExecutionRequest(
        start("a", 2, offer.id, **asked), work, offer, more.pop("place", NodeSelection()), "home", "team", **more
    )
    return execution_job(order, manifest or {}, 1000)


def pod(made: dict[str, Any]) -> dict[str, Any]:
    pod_spec: dict[str, Any] = made["spec"]["template"]["spec"]
    return pod_spec


def env(made: dict[str, Any]) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom"))
        for variable in pod(made)["containers"][0]["env"]
    }


def test_a_job_of_image_and_command_says_all_that_the_protocol_wants() -> None:
    made = job(deadline_at=1000 + HOUR, resume_ms=5, env=(("PENSTOCK_RESUME", "1"),), secret="s3", grace_ms=20 * SECOND)
    name = annotations.execution_name("home", "a.2")
    assert made["metadata"] == {
        "name": name,
        "namespace": "team",
        "labels": {annotations.INSTALLATION: "home", annotations.EXECUTION: name},
        "annotations": {
            annotations.ATTEMPT: "a.2",
            annotations.JOB: "a",
            annotations.ORIGIN: "a",
            annotations.OFFER: "lab/owned",
            annotations.RESUME: "5",
            annotations.SPEED: "1000",
            annotations.EXECUTION_DEADLINE: str(1000 + HOUR),
        },
        "finalizers": [annotations.RESULT],
    }
    spec = {key: value for key, value in made["spec"].items() if key != "template"}
    lost = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert spec == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "activeDeadlineSeconds": 3600,
        "podFailurePolicy": {"rules": [lost]},
    }
    assert pod(made)["restartPolicy"] == "Never"
    assert pod(made)["terminationGracePeriodSeconds"] == 20
    container = pod(made)["containers"][0]
    assert container["command"] == ["python", "train.py"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert container["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert env(made) == {"LR": "0.1", "PENSTOCK_RESUME": "1", "PENSTOCK_ATTEMPT": "a.2", "PENSTOCK_JOB": "a"}


def test_ttl_is_never_said_before_the_result_is_on_record() -> None:
    given = home_job("h", ttlSecondsAfterFinished=0)
    assert "ttlSecondsAfterFinished" not in job(manifest=given)["spec"]


def test_a_job_without_an_image_is_refused_by_a_cluster() -> None:
    with pytest.raises(Refused, match="add 'image:'"):
        job(Work(("x",)))


def test_what_is_the_controllers_or_ours_is_not_copied_from_a_home_job() -> None:
    given = home_job(
        "h", managedBy=annotations.MANAGER, suspend=True, selector={"matchLabels": {"x": "y"}}, completions=1
    )
    given["metadata"] |= {"labels": {"app": "t", annotations.QUEUE: "vision", "batch.kubernetes.io/job-name": "h"}}
    given["metadata"]["annotations"] |= {"note": "n", annotations.BINDING: "b"}
    given["spec"]["template"]["metadata"]["labels"] = {"app": "t", "controller-uid": "u", "job-name": "h"}
    made = job(manifest=given)
    assert set(made["metadata"]["labels"]) == {"app", annotations.INSTALLATION, annotations.EXECUTION}
    assert made["metadata"]["annotations"]["note"] == "n"
    assert made["metadata"]["annotations"][annotations.ORIGIN] == "uid-of-h"
    assert annotations.BINDING not in made["metadata"]["annotations"]
    assert {"managedBy", "suspend"}.isdisjoint(made["spec"])


def test_pods_have_the_labels_of_the_home_jobs_and_the_execution_finds_them_by_its_own() -> None:
    """Services select pods by `job-name`; with the execution's name there, a headless Service had no addresses."""
    given = home_job("h")
    given["spec"]["template"]["metadata"]["labels"] = {"app": "t", "controller-uid": "u", "job-name": "h"}
    made = job(manifest=given)
    name = made["metadata"]["name"]
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels == {
        **given["spec"]["template"]["metadata"]["labels"],
        annotations.INSTALLATION: made["metadata"]["labels"][annotations.INSTALLATION],
        annotations.EXECUTION: name,
    }
    assert (made["spec"]["manualSelector"], made["spec"]["selector"]) == (
        True,
        {"matchLabels": {annotations.EXECUTION: name}},
    )


def test_its_owner_is_the_home_job_only_in_the_same_cluster_and_namespace() -> None:
    given = home_job("h")
    given["metadata"]["annotations"][annotations.HOME] = OWNED.site
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "h", "uid": "uid-of-h"}
    for where, owners in (("team", [owner]), ("elsewhere", None)):
        given["metadata"]["namespace"] = where
        assert job(manifest=given)["metadata"].get("ownerReferences") == owners
    given["metadata"]["namespace"] = "team"
    given["metadata"]["annotations"][annotations.HOME] = "another"
    assert "ownerReferences" not in job(manifest=given)["metadata"]


def test_host_names_are_those_of_the_home_job_where_it_is_indexed_and_has_a_subdomain() -> None:
    given = home_job("h", completionMode="Indexed", completions=2, parallelism=2)
    assert annotations.HOST_NAMES not in job(manifest=given)["metadata"]["annotations"]
    given["spec"]["template"]["spec"] |= {"subdomain": "rendezvous", "setHostnameAsFQDN": True}
    made = job(manifest=given)
    assert made["metadata"]["annotations"][annotations.HOST_NAMES] == "h.rendezvous"
    assert (pod(made)["subdomain"], "setHostnameAsFQDN" in pod(made)) == ("rendezvous", False)
    given["spec"]["completionMode"] = "NonIndexed"
    assert annotations.HOST_NAMES not in job(manifest=given)["metadata"]["annotations"]


def test_pods_that_keep_apart_are_not_held_to_fewer_nodes_than_they_need() -> None:
    """The engine counts GPUs by node and knows nothing of pods; two that keep apart were held to one node for ever."""
    given = home_job("h", completionMode="Indexed", completions=2, parallelism=2)
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": "h"}}}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    given["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": rules}
    assert "nodeAffinity" not in pod(job(manifest=given, hosts=("n1",), pinned=True))["affinity"]
    assert "nodeAffinity" in pod(job(manifest=given, hosts=("n1", "n2"), pinned=True))["affinity"]


def test_what_earlier_attempts_completed_or_failed_for_good_is_told_to_the_cluster() -> None:
    given = home_job("h", completionMode="Indexed", completions=3, parallelism=3, backoffLimitPerIndex=0)
    given["metadata"]["annotations"][annotations.EARLIER] = written(Earlier(failed=1, failed_indexes="0"))
    made = job(manifest=given)
    assert (made["spec"]["suspend"], made["metadata"]["annotations"][annotations.FAILED]) == (True, "0")


def test_containers_that_kubelet_restarts_are_restarted_and_their_pods_replaced_only_after_their_end() -> None:
    """A pod failure policy requires `Never`. It was once written over the user's choice, and a Job failed whose second
    try would have succeeded."""
    given = home_job("h", backoffLimit=2)
    assert (pod(job(manifest=given))["restartPolicy"], "podFailurePolicy" in job(manifest=given)["spec"]) == (
        "Never",
        True,
    )
    given["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    made = job(manifest=given)
    assert pod(made)["restartPolicy"] == "OnFailure"
    spec = {key: value for key, value in made["spec"].items() if key not in ("template", "manualSelector", "selector")}
    assert spec == {"backoffLimit": 2, "podReplacementPolicy": "Failed"}


def test_the_users_own_retries_are_carried_over_attempts() -> None:
    given = home_job("h", backoffLimit=3)
    assert job(manifest=given)["spec"]["backoffLimit"] == 3
    given["metadata"]["annotations"][annotations.EARLIER] = written(Earlier(failed=3, own_failures=2))
    assert job(manifest=given)["spec"]["backoffLimit"] == 1
    del given["spec"]["backoffLimit"]
    assert job(manifest=given)["spec"]["backoffLimit"] == 4  # six is what Kubernetes takes


def test_the_users_own_rules_come_after_ours_and_never_ignore_a_loss() -> None:
    ignore = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    fail = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    rules = job(manifest=home_job("h", podFailurePolicy={"rules": [ignore, fail]}))["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["FailJob", "FailJob"]
    assert rules[1] == fail


def test_a_job_gets_the_lesser_of_the_lease_and_what_is_left_of_the_users_own_deadline() -> None:
    def seconds(given: dict[str, Any], **more: Any) -> tuple[int, str]:
        made = job(manifest=given, **more)
        return made["spec"]["activeDeadlineSeconds"], made["metadata"]["annotations"][annotations.OWN_DEADLINE]

    given = home_job("h", activeDeadlineSeconds=60)
    assert seconds(given) == (60, "60")
    assert seconds(given, deadline_at=1000 + 5 * SECOND) == (5, "60")
    given["metadata"]["annotations"][annotations.EARLIER] = written(Earlier(ran_ms=50_400))
    assert seconds(given) == (10, "10")
    assert seconds(given, deadline_at=1000 + HOUR) == (10, "10")
    given["metadata"]["annotations"][annotations.EARLIER] = written(Earlier(ran_ms=HOUR))
    assert seconds(given) == (1, "1")
    assert "activeDeadlineSeconds" not in job()["spec"]
    assert annotations.OWN_DEADLINE not in job()["metadata"]["annotations"]


@pytest.mark.parametrize(("left_ms", "seconds"), [(-5, 1), (0, 1), (999, 1), (1999, 1), (60_000, 60), (60_999, 60)])
def test_a_deadline_is_whole_seconds_and_never_too_many(left_ms: int, seconds: int) -> None:
    assert seconds_left(1000 + left_ms, 1000) == seconds
    assert seconds_left(NEVER, 1000) is None


def test_an_offer_is_spelt_in_selectors_tolerations_and_queue() -> None:
    place = NodeSelection("nvidia.com/mig-1g.10gb", (("gpu", "a100"),), (Toleration("spot"),), queue="q")
    made = job(place=place)
    assert pod(made)["nodeSelector"] == {"gpu": "a100"}
    assert pod(made)["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert pod(made)["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}


def test_a_start_prefers_the_nodes_where_its_gpus_are_counted_and_is_kept_off_others_alone() -> None:
    """It was held to them by name, and so never ran where anything else than their GPUs kept it off."""
    soft = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
    given = home_job("h")
    given["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [soft]}
    }
    affinity = pod(job(manifest=given, hosts=("n2", "n1", "n2"), avoid=("n9",)))["affinity"]["nodeAffinity"]
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}
    assert affinity == {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            soft,
            {"weight": 100, "preference": {"matchExpressions": [hosts]}},
        ],
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{**hosts, "operator": "NotIn", "values": ["n9"]}]}]
        },
    }


def test_a_backfill_is_pinned_to_its_nodes_in_every_alternative_of_its_own() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, {"matchExpressions": []}]
    given = home_job("h")
    given["spec"]["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    made = job(manifest=given, hosts=("n2", "n1", "n2"), avoid=("n9",), pinned=True)
    affinity = pod(made)["affinity"]["nodeAffinity"]
    both = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    ours = [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]},
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n9"]},
    ]
    assert [term["matchExpressions"][-2:] for term in both] == [ours, ours]
    assert both[0]["matchExpressions"][0]["key"] == "zone"


@pytest.mark.parametrize(
    ("offer", "slots", "width", "gpus", "pods"),
    [
        (OWNED, ((0, 8), (1, 8)), 16, 8, 2),
        (OWNED, ((0, 8), (1, 4)), 12, 4, 3),
        (OWNED, ((0, 3),), 3, 3, 1),
        (RENTED, (), 1, 1, 1),
        (RENTED, (), 16, 8, 2),
        (RENTED, (), 10, 2, 5),
    ],
)
def test_the_pods_of_a_gang_are_alike_and_have_all_its_gpus(
    offer: Offer, slots: tuple[tuple[int, int], ...], width: int, gpus: int, pods: int
) -> None:
    made = job(offer=offer, slots=slots, width=width)
    limits = pod(made)["containers"][0]["resources"]["limits"]
    assert (limits, pods_at_once(made["spec"])) == ({"nvidia.com/gpu": str(gpus)}, pods)


def test_a_gang_knows_its_numbers_and_where_to_meet() -> None:
    made = job(slots=((0, 8), (1, 8)), width=16)
    assert is_gang(made["spec"])
    assert env(made)["PENSTOCK_WORLD_SIZE"] == "2"
    assert env(made)["MASTER_ADDR"] == {
        "configMapKeyRef": {"name": rendezvous(made["metadata"]["name"]), "key": "address"}
    }
    assert "PENSTOCK_RANK" in env(made)
    assert "MASTER_ADDR" not in env(job())
    counted = home_job("h", parallelism=3, completions=9)  # a queue of work: its pods do not know each other
    assert "MASTER_ADDR" not in env(job(manifest=counted))


def test_nobody_but_us_says_which_attempt_this_is() -> None:
    given = home_job("h")
    given["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "PENSTOCK_ATTEMPT", "value": "forged"},
        {"name": "AWS_REGION", "value": "mine"},
    ]
    variables = env(job(manifest=given, env=(("AWS_REGION", "ours"), ("AWS_KEY", "k"))))
    assert (variables["PENSTOCK_ATTEMPT"], variables["AWS_REGION"], variables["AWS_KEY"]) == ("a.2", "mine", "k")


def test_a_tombstone_has_the_attempts_name_and_runs_nothing() -> None:
    stone = tombstone("home", "a.2", "team")
    assert stone["metadata"]["name"] == job()["metadata"]["name"]
    assert (stone["spec"]["suspend"], stone["spec"]["parallelism"]) == (True, 0)
    assert "kueue.x-k8s.io/queue-name" not in stone["metadata"]["labels"]


def test_names_are_of_attempt_and_installation_and_fit_wherever_kubernetes_puts_them() -> None:
    odd = ["a.1", "a.2", "A.1", "a/../b.1", "neue\nzeile.1", "é" * 200 + ".1", "x" * 500 + ".1", "\ud800.1"]
    names = [annotations.execution_name("home", attempt) for attempt in odd] + [
        annotations.execution_name("other", "a.1")
    ]
    assert len(set(names)) == len(names)
    assert all(len(name) <= annotations.MOST_LETTERS and name == name.strip("-").lower() for name in names)


def test_a_batch_is_no_gang_loses_one_pod_alone_and_asks_for_what_is_left() -> None:
    def made(**spec: Any) -> dict[str, Any]:
        given = home_job("h", **spec)
        given["metadata"]["annotations"][annotations.EARLIER] = written(
            Earlier(succeeded=3, completed_indexes="0-2" if "completionMode" in spec else "")
        )
        return job(manifest=given)

    queue = made(parallelism=2, completions=8)
    assert queue["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert (queue["spec"]["completions"], "suspend" in queue["spec"]) == (5, False)
    batch = made(parallelism=2, completions=8, completionMode="Indexed")
    assert (batch["spec"]["completions"], batch["spec"]["suspend"]) == (8, True)
    assert batch["metadata"]["annotations"][annotations.COMPLETED] == "0-2"
    assert not is_gang(batch["spec"])
    gang = made(parallelism=8, completions=8, completionMode="Indexed")
    assert gang["spec"]["podFailurePolicy"]["rules"][0]["action"] == "FailJob"
    assert (is_gang(gang["spec"]), "suspend" in gang["spec"]) == (True, False)
    assert annotations.REPLACES_PODS not in gang["metadata"]["annotations"]
