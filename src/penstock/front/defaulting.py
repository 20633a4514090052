"""Default a plain Job into a home Job: add our label, `suspend` and `managedBy`, and keep Kueue from reserving quota
for it. Nothing else changes.

`kubectl penstock apply` and `penstock submit` call it with the user's own credentials. Clusters that serve
MutatingAdmissionPolicy default Jobs themselves (`penstock manifests admission`).
"""

import copy
from typing import Final

from penstock.core.errors import BadInput
from penstock.front.job_spec import Unfit, spec_of
from penstock.kube import annotations, kueue
from penstock.kube.client import JOBS, SELF_REVIEWS, Cluster
from penstock.kube.errors import AlreadyExists, KubeError
from penstock.kube.references import Json, part

FIXED: Final = "spec.managedBy cannot be added to a Job that is there; delete it first, then apply it again"


def as_home_job(job: Json, team: str = "", namespace: str = "") -> Json:
    """A defaulted copy of the Job. Raises `BadInput` if Penstock can never accept it."""
    job = copy.deepcopy(job)
    if job.get("apiVersion") != "batch/v1" or job.get("kind") != "Job":
        raise BadInput("Only Jobs of batch/v1 can be submitted as they are.")
    metadata, spec = job.setdefault("metadata", {}), job.setdefault("spec", {})
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or not (metadata.get("name") or _generated(job)):
        raise BadInput("The Job has no metadata.name.")
    labels = metadata.setdefault("labels", {}) or {}
    metadata["labels"] = {**labels, annotations.QUEUE: team or labels.get(annotations.QUEUE, "")}
    if not metadata["labels"][annotations.QUEUE]:
        raise BadInput(f"Whose job is it? Say --team, or write the label {annotations.QUEUE}.")
    if namespace:
        metadata["namespace"] = namespace
    job["metadata"] = kueue.parked(metadata)
    job["spec"] = {**spec, "suspend": True, "managedBy": annotations.MANAGER}
    _refuse_unfit(job)
    return job


async def apply(cluster: Cluster, job: Json) -> Json:
    """Create the Job with its creator's name on it. An existing home Job of this name is returned unchanged."""
    namespace = str(part(job, "metadata").get("namespace") or cluster.namespace or "default")
    try:
        return await cluster.create(JOBS, await _signed(cluster, job), namespace)
    except AlreadyExists:
        there = await cluster.get(JOBS, str(part(job, "metadata")["name"]), namespace)
        if part(there, "spec").get("managedBy") != annotations.MANAGER:
            raise BadInput(f"{namespace}/{part(job, 'metadata')['name']}: {FIXED}.") from None
        return there


async def _signed(cluster: Cluster, job: Json) -> Json:
    """The Job with the user name that the cluster reports for our credentials. The policy `penstock-users` refuses any
    other name; where that policy is missing, `RecordedUsers` ignores the annotation.
    """
    try:
        review = await cluster.create(SELF_REVIEWS, {"metadata": {}})
    except KubeError:
        return job
    name = str(part(part(review, "status"), "userInfo").get("username") or "")
    metadata = part(job, "metadata")
    written = {**part(metadata, "annotations"), **({annotations.USER: name} if name else {})}
    return {**job, "metadata": {**metadata, "annotations": written}}


def _refuse_unfit(job: Json) -> None:
    try:
        spec_of(job, "", 0)
    except Unfit as unfit:
        raise BadInput(str(unfit)) from None


def _generated(job: Json) -> str:
    return str(part(job, "metadata").get("generateName") or "")
