"""A ProvisioningRequest as this driver writes and reads it: all nodes of an attempt at once, or none. Pure;
`provisioning` asks the cluster.

Its execution Job is created suspended, and says on its pods which request they use. Request and PodTemplate have the
Job's name and are owned by it: asked for twice they are one, and the cluster never keeps them longer than the Job.
"""

from typing import Final

from penstock.core.units import NEVER, Instant
from penstock.core.values import value
from penstock.drivers.kubernetes.deadlines import deadline_of
from penstock.drivers.kubernetes.execution_job import lesser, seconds_left
from penstock.drivers.kubernetes.pods import ScalingKind, annotation_of, own_deadline
from penstock.drivers.kubernetes.scaling import QUOTA, SENTENCES
from penstock.kube import annotations, kueue
from penstock.kube.client import PROVISIONING_REQUESTS, Obj

CONSUMED: Final = "autoscaling.x-k8s.io/consume-provisioning-request"  #: on a pod: the request that it uses
OF_CLASS: Final = "autoscaling.x-k8s.io/provisioning-class-name"
#: Reasons of Failed that are about the pods, and not about what the cloud has.
OF_PODS: Final = ("FailedToCreatePods",)


@value
class Answer:
    """What the autoscaler says of a request that is not provisioned."""

    kind: ScalingKind
    words: str
    final: bool = False


def asked_first(job: Obj, provisioning_class: str) -> Obj:
    """The execution Job, so that it waits for its nodes. Where Kueue keeps quota, Kueue suspends and starts it."""
    if not provisioning_class or kueue.QUEUE in job["metadata"]["labels"] or job["spec"].get("suspend"):
        return job
    template = job["spec"]["template"]
    name = job["metadata"]["name"]
    used = {**template["metadata"]["annotations"], CONSUMED: name, OF_CLASS: provisioning_class}
    template = {**template, "metadata": {**template["metadata"], "annotations": used}}
    marks = {annotations.PROVISIONING: provisioning_class, annotations.AWAITS_NODES: "true"}
    return {
        **job,
        "metadata": {**job["metadata"], "annotations": {**job["metadata"]["annotations"], **marks}},
        "spec": {**job["spec"], "suspend": True, "template": template},
    }


def awaits_nodes(job: Obj) -> bool:
    """Its pods are not made yet, and it has not been told to end."""
    waits = job["spec"].get("suspend") and annotation_of(job, annotations.AWAITS_NODES)
    return bool(waits) and not annotation_of(job, annotations.ENDING)


def pod_template(job: Obj) -> Obj:
    """Its pods, as the request names them. `job`: as the API server has it."""
    return {"metadata": _named(job), "template": job["spec"]["template"]}


def request(job: Obj) -> Obj:
    pods = {"podTemplateRef": {"name": job["metadata"]["name"]}, "count": int(job["spec"].get("parallelism", 1))}
    provisioning_class = annotation_of(job, annotations.PROVISIONING)
    return {"metadata": _named(job), "spec": {"provisioningClassName": provisioning_class, "podSets": [pods]}}


def _named(job: Obj) -> Obj:
    meta = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
    labels = {key: meta["labels"][key] for key in (annotations.INSTALLATION, annotations.EXECUTION)}
    notes = {annotations.ATTEMPT: annotation_of(job, annotations.ATTEMPT)}
    own: Obj = {"name": meta["name"], "namespace": meta["namespace"], "labels": labels, "annotations": notes}
    return own | {"ownerReferences": [owner]}


def released(job: Obj, now: Instant) -> Obj | None:
    """The patch that lets it run, for what is left of its time; None if it does already, or has been told to end."""
    if not awaits_nodes(job):
        return None
    deadline_at = deadline_of(job)
    limit = lesser(own_deadline(job), None if deadline_at >= NEVER else seconds_left(deadline_at, now))
    bound = {} if limit is None else {"activeDeadlineSeconds": limit}
    return {"metadata": {"annotations": {annotations.AWAITS_NODES: None}}, "spec": {"suspend": False, **bound}}


def answer(request: Obj) -> Answer | None:
    """None: the nodes are there, or on their way for sure. What is not final, the autoscaler still tries."""
    rows = {row["type"]: row for row in (request.get("status") or {}).get("conditions") or ()}
    true = {kind for kind, row in rows.items() if row.get("status") == "True"}
    name = request["spec"]["provisioningClassName"]
    if "Failed" in true:
        return _answer(_why_not(rows["Failed"]), rows["Failed"], final=True)
    if "CapacityRevoked" in true:
        return _answer("stock_out", rows["CapacityRevoked"], final=True)
    if "BookingExpired" in true:  # kept for us for some minutes, and nobody of us was there
        return _answer("limit", rows["BookingExpired"], final=True)
    if "Provisioned" in true:
        return None
    if "Provisioned" in rows:
        return _answer(_why_not(rows["Provisioned"]), rows["Provisioned"])
    if "Accepted" in true:
        return _answer("coming", rows["Accepted"])
    return Answer("settings", f"no autoscaler takes up ProvisioningRequests of the class {name}")


def unserved() -> Answer:
    return Answer("settings", f"the cluster serves no ProvisioningRequests ({PROVISIONING_REQUESTS.api})", final=True)


def _why_not(row: Obj) -> ScalingKind:
    words = f"{row.get('reason', '')}: {row.get('message', '')}"
    if row.get("reason") in OF_PODS:
        return "impossible"
    return "quota" if QUOTA.search(words) else "stock_out"


def _answer(kind: ScalingKind, row: Obj, *, final: bool = False) -> Answer:
    words = f"{SENTENCES[kind]} (ProvisioningRequest: {row.get('reason', '')}: {row.get('message', '')})"
    return Answer(kind, words, final)
