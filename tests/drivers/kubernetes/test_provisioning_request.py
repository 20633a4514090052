"""What a ProvisioningRequest asks for, and what its conditions mean."""

from typing import Any

import pytest

from penstock.core.units import SECOND
from penstock.drivers.kubernetes import provisioning_request as written
from penstock.drivers.kubernetes.pods import ScalingKind
from penstock.drivers.kubernetes.provisioning_request import Answer
from penstock.kube import annotations, kueue

Json = dict[str, Any]
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
ONE = "ps-a-1"


def job(labels: Json | None = None, notes: Json | None = None, **spec: Any) -> Json:
    own = {annotations.INSTALLATION: "home", annotations.EXECUTION: ONE}
    template = {"metadata": {"labels": own, "annotations": {"a": "b"}}, "spec": {"containers": []}}
    job_annotations = {annotations.ATTEMPT: "a.1", annotations.EXECUTION_DEADLINE: str(90 * SECOND)}
    meta: Json = {"name": ONE, "namespace": "vision", "uid": "u1"}
    meta |= {"labels": own | (labels or {}), "annotations": job_annotations | (notes or {})}
    return {"metadata": meta, "spec": {"parallelism": 4, "template": template, **spec}}


def test_a_job_waits_suspended_and_its_pods_say_which_request_they_use() -> None:
    waiting = written.asked_first(job(), CLASS)
    assert waiting["spec"]["suspend"]
    assert written.awaits_nodes(waiting)
    used = waiting["spec"]["template"]["metadata"]["annotations"]
    assert used == {"a": "b", written.CONSUMED: ONE, written.OF_CLASS: CLASS}
    assert written.asked_first(job(), "") == job()


def test_where_kueue_keeps_quota_or_a_batch_is_being_seeded_the_job_is_as_it_was() -> None:
    for other in (job({kueue.QUEUE: "default"}), job(suspend=True)):
        assert written.asked_first(other, CLASS) == other
        assert not written.awaits_nodes(other)


def test_the_request_is_for_all_pods_and_is_owned_by_the_job() -> None:
    made = written.request(written.asked_first(job(), CLASS))
    pods = {"podTemplateRef": {"name": ONE}, "count": 4}
    assert made["spec"] == {"provisioningClassName": CLASS, "podSets": [pods]}
    template = written.pod_template(job())
    assert template["template"] == job()["spec"]["template"]
    for each in (made["metadata"], template["metadata"]):
        assert each["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": ONE, "uid": "u1"}]
        assert (each["name"], each["namespace"]) == (ONE, "vision")
        assert each["labels"][annotations.INSTALLATION] == "home"


def test_it_is_let_run_for_what_is_left_of_its_time_and_never_once_it_was_told_to_end() -> None:
    waiting = written.asked_first(job(), CLASS)
    patch = written.released(waiting, 60 * SECOND)
    assert patch is not None
    assert patch["spec"] == {"suspend": False, "activeDeadlineSeconds": 30}
    assert written.released(written.asked_first(job(notes={annotations.ENDING: "stopped"}), CLASS), 0) is None
    assert written.released(job(), 0) is None


def request(*conditions: tuple[str, str, str, str]) -> Json:
    keys = ("type", "status", "reason", "message")
    rows = [dict(zip(keys, row, strict=True)) for row in conditions]
    return {"spec": {"provisioningClassName": CLASS}, "status": {"conditions": rows}}


ACCEPTED = ("Accepted", "True", "Accepted", "ProvisioningRequest is accepted by ClusterAutoscaler")
THERE = ("Provisioned", "True", "CapacityIsProvisioned", "Capacity is found in the cluster")
NOT_FOUND = ("Provisioned", "False", "CapacityIsNotFound", "Capacity is not found, CA will try to find it later.")


@pytest.mark.parametrize(
    ("conditions", "kind", "final"),
    [
        ([], "settings", False),
        ([ACCEPTED], "coming", False),
        ([ACCEPTED, NOT_FOUND], "stock_out", False),
        ([ACCEPTED, ("Failed", "True", "Expired", "ProvisioningRequest is expired")], "stock_out", True),
        ([ACCEPTED, ("Failed", "True", "OutOfResources", "Quota 'NVIDIA_A100_GPUS' exceeded")], "quota", True),
        ([ACCEPTED, ("Failed", "True", "FailedToCreatePods", "no such template")], "impossible", True),
        ([ACCEPTED, THERE, ("CapacityRevoked", "True", "Reclaimed", "spot")], "stock_out", True),
        ([ACCEPTED, THERE, ("BookingExpired", "True", "CapacityReservationTimeExpired", "10 min")], "limit", True),
    ],
)
def test_why_nodes_do_not_come_is_told_apart(
    conditions: list[tuple[str, str, str, str]], kind: ScalingKind, final: bool
) -> None:
    answer = written.answer(request(*conditions))
    assert isinstance(answer, Answer)
    assert (answer.kind, answer.final) == (kind, final)
    assert all(row[3] in answer.words for row in conditions[-1:])


def test_provisioned_is_provisioned() -> None:
    assert written.answer(request(ACCEPTED, THERE)) is None
    assert written.answer(request(ACCEPTED, THERE, ("Failed", "False", "x", ""))) is None
