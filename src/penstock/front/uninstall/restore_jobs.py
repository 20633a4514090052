"""`penstock leave`: restores a cluster's Jobs as ordinary Jobs and deletes everything of ours. The controller calls it
for each Job while it leaves.

`managedBy` is immutable, so a queued Job is deleted and created again under its name. A ConfigMap holds the manifest in
between, and a restart after a crash continues from it. A running Job shows its status to the end and then loses our
marks. Last we delete what only we need: execution Jobs, tombstones, copies, the Lease. What remains is read from the
cluster, never remembered.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from penstock.core.units import NEVER, SECOND
from penstock.front.status import MARKS, OURS, finalizers_of, is_suspended_by_user
from penstock.kube import annotations, kueue
from penstock.kube.client import (
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    NODE_CLAIMS,
    NODES,
    PODS,
    SERVICES,
    Cluster,
    Kind,
)
from penstock.kube.errors import AlreadyExists, Forbidden, NotFound
from penstock.kube.references import Json, part, parts

GIVING_BACK: Final = "penstock.dev/giving-back"  #: label of the ConfigMap that holds a Job between delete and create
#: Metadata that the cluster writes; the new Job gets its own.
WRITTEN: Final = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "selfLink", "finalizers",
)  # fmt: skip
CONTROLLERS: Final = ("batch.kubernetes.io/", "controller-uid", "job-name")
#: Annotations that only we write. People write the others of our domain, also on Jobs that were never ours.
WRITTEN_BY_US: Final = (*MARKS, annotations.ATTEMPT, annotations.ORIGIN)
#: What rented nodes are, in any cluster: the objects by which they were asked for, and the Nodes themselves.
RENTED: Final = (NODE_CLAIMS, NODES)
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"  #: repeats our marks; kubectl writes a new one


def ordinary(job: Json) -> Json:
    """The Job's manifest without anything that we or the cluster added."""
    metadata = {key: content for key, content in part(job, "metadata").items() if key not in WRITTEN}
    queue = kueue.queue_of(metadata)
    metadata["labels"] = _theirs(part(metadata, "labels")) | ({kueue.QUEUE: queue} if queue else {})
    metadata["annotations"] = _theirs(part(metadata, "annotations"))
    metadata.pop("generateName", None)
    spec = {
        key: content for key, content in part(job, "spec").items() if key not in ("managedBy", "suspend", "selector")
    }
    if is_suspended_by_user(job):
        spec["suspend"] = True
    template = dict(part(spec, "template"))
    template["metadata"] = {**part(template, "metadata"), "labels": _theirs(part(part(template, "metadata"), "labels"))}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, "template": template}}


def _theirs(words: Json) -> Json:
    ours = (annotations.DOMAIN, *CONTROLLERS, APPLIED)
    theirs = {key: text for key, text in words.items() if not key.startswith(ours)}
    return {key: text for key, text in theirs.items() if (key, text) != (kueue.QUEUE, kueue.NOWHERE)}


def stripped(job: Json) -> Json:
    """A merge patch that removes every mark of ours from an ended Job."""
    metadata = part(job, "metadata")
    change: Json = {}
    for kind in ("labels", "annotations"):
        if ours := {key: None for key in part(metadata, kind) if key.startswith(annotations.DOMAIN) or key == APPLIED}:
            change[kind] = ours
    if annotations.CANCEL in (metadata.get("finalizers") or []):
        change["finalizers"] = finalizers_of(metadata, keep=False)
    return {"metadata": change} if change else {}


def plain_conditions(job: Json) -> list[Json] | None:
    """The conditions without ours; None if none is ours."""
    now = parts(part(job, "status"), "conditions")
    others = [condition for condition in now if condition.get("type") not in OURS]
    return others if len(others) < len(now) else None


# --- what waits -------------------------------------------------------------------------------------------------------


async def give_back(cluster: Cluster, job: Json) -> None:
    """Save the manifest, delete the Job, create it anew. A crash after any step leaves enough to continue."""
    metadata = part(job, "metadata")
    namespace, uid = str(metadata["namespace"]), str(metadata["uid"])
    kept = {
        "metadata": {"name": f"penstock-giving-back-{uid}", "namespace": namespace, "labels": {GIVING_BACK: "job"}},
        "data": {"job": json.dumps(ordinary(job)), "uid": uid},
    }
    with suppress(AlreadyExists):
        await cluster.create(CONFIG_MAPS, kept)
    await _make_anew(cluster, kept)


async def finish(cluster: Cluster, namespace: str) -> None:
    """Complete what a crash interrupted."""
    for kept in (await cluster.list(CONFIG_MAPS, namespace, labels=GIVING_BACK))[0]:
        await _make_anew(cluster, kept)


async def _make_anew(cluster: Cluster, kept: Json) -> None:
    job, uid = json.loads(kept["data"]["job"]), str(kept["data"]["uid"])
    name, namespace = str(job["metadata"]["name"]), str(kept["metadata"]["namespace"])
    await _remove(cluster, name, namespace, uid)
    try:
        await cluster.create(JOBS, job, namespace)
    except AlreadyExists:
        existing = await cluster.get(JOBS, name, namespace)
        if part(existing, "metadata").get("uid") == uid:  # the old Job is still being deleted: the caller tries again
            raise
    await _drop(cluster, CONFIG_MAPS, kept)


async def _remove(cluster: Cluster, name: str, namespace: str, uid: str) -> None:
    try:
        existing = await cluster.get(JOBS, name, namespace)
        if part(existing, "metadata").get("uid") != uid:
            return
        others = finalizers_of(part(existing, "metadata"), keep=False)
        await cluster.patch(JOBS, name, {"metadata": {"finalizers": others}}, namespace)
        await cluster.delete(JOBS, name, namespace, uid=uid)
    except NotFound:
        return


# --- what only we needed ----------------------------------------------------------------------------------------------


def anybodys(_job: str) -> bool:
    """Matches every job."""
    return True


async def sweep(cluster: Cluster, installation: str, namespace: str, mine: Callable[[str], bool]) -> list[str]:
    """Delete our execution Jobs for these jobs, and at last our copies. Returns what must stay for now."""
    needed = []
    for job in (await cluster.list(JOBS, namespace, labels=_made_by(installation)))[0]:
        metadata = part(job, "metadata")
        if not mine(str(part(metadata, "annotations").get(annotations.JOB, ""))):
            continue
        if annotations.RESULT in (metadata.get("finalizers") or []):
            needed.append(f"{_word(JOBS, job)}, whose end is not on record yet")
        else:
            await _drop(cluster, JOBS, job)
    if not needed and mine is anybodys:
        others = _uids_of_others(
            (await cluster.list(JOBS, namespace, labels=annotations.INSTALLATION))[0], installation
        )
        for kind in (CONFIG_MAPS, SERVICES):
            for copied in await _listed(cluster, kind, namespace, labels=annotations.COPY):
                if not _is_used_by(copied, others):
                    await _drop(cluster, kind, copied)
    return needed


def _uids_of_others(jobs: list[Json], installation: str) -> set[str]:
    """Execution Jobs of other installations in the same namespace."""
    ours = annotations.label_value(installation)
    made_by = {str(part(job, "metadata").get("uid")): _installation_of(job) for job in jobs}
    return {uid for uid, made in made_by.items() if made not in ("", ours)}


def _installation_of(obj: Json) -> str:
    return str(part(part(obj, "metadata"), "labels").get(annotations.INSTALLATION, ""))


def _is_used_by(obj: Json, jobs: set[str]) -> bool:
    return any(str(owner.get("uid")) in jobs for owner in part(obj, "metadata").get("ownerReferences") or [])


async def _listed(cluster: Cluster, kind: Kind, namespace: str, labels: str = "") -> list[Json]:
    """An account that may not even list Services and EndpointSlices has made none."""
    try:
        return (await cluster.list(kind, namespace, labels=labels))[0]
    except Forbidden:
        if kind in (SERVICES, ENDPOINT_SLICES):
            return []
        raise


async def remains(cluster: Cluster, installation: str, namespace: str) -> list[str]:
    """Everything that still bears a mark of ours, as "kind namespace/name"."""
    remaining, others = [], set[str]()
    leases = await _listed(cluster, LEASES, namespace)
    theirs = {_namespace_of(lease) for lease in leases if _is_others_front_door(lease, installation)}
    for kind in (JOBS, CONFIG_MAPS, LEASES, SERVICES, ENDPOINT_SLICES):
        listed = leases if kind is LEASES else await _listed(cluster, kind, namespace)
        others |= _uids_of_others(listed, installation) if kind is JOBS else set()
        ours = [obj for obj in listed if _bears_our_mark(obj, installation) and not _is_used_by(obj, others)]
        if kind in (JOBS, CONFIG_MAPS):  # home Jobs there are another installation's; execution Jobs say whose they are
            ours = [obj for obj in ours if _namespace_of(obj) not in theirs or _installation_of(obj)]
        remaining += [_word(kind, obj) for obj in ours]
    pods = (await cluster.list(PODS, namespace, labels=_made_by(installation)))[0]
    return remaining + [_word(PODS, pod) for pod in pods]


def _is_others_front_door(lease: Json, installation: str) -> bool:
    named = part(lease, "metadata").get("name") == annotations.FRONT_DOOR
    return named and part(lease, "spec").get("holderIdentity") != installation


def _namespace_of(obj: Json) -> str:
    return str(part(obj, "metadata").get("namespace", ""))


def _made_by(installation: str) -> str:
    return f"{annotations.INSTALLATION}={annotations.label_value(installation)}"


def _bears_our_mark(obj: Json, installation: str) -> bool:
    metadata = part(obj, "metadata")
    labels = part(metadata, "labels")
    if labels.get(annotations.INSTALLATION, annotations.label_value(installation)) != annotations.label_value(
        installation
    ):
        return False  # belongs to another installation
    owners = [str(owner.get("name", "")) for owner in metadata.get("ownerReferences") or []]
    written = [key for key in part(metadata, "annotations") if key in WRITTEN_BY_US]
    words = [*labels, *written, *(metadata.get("finalizers") or [])]
    words += [str(condition.get("type")) for condition in parts(part(obj, "status"), "conditions")]
    meets = any(metadata.get("name") == f"{owner}-at" for owner in owners if owner.startswith("ps-"))
    held = part(obj, "spec").get("holderIdentity") == installation
    return held or meets or any(word.startswith(annotations.DOMAIN) for word in words)


def _word(kind: Kind, obj: Json) -> str:
    metadata = part(obj, "metadata")
    return f"{kind.name} {metadata.get('namespace', '')}/{metadata.get('name', '')}"


async def rented(cluster: Cluster, installation: str) -> list[str]:
    """Nodes that we rented and that are still there, as "kind name, until when". They are given back by whoever runs
    their jobs; while one is there the cluster keeps its owner. A cluster without such a kind, or whose account may not
    look at it, has rented none by it.
    """
    remaining = []
    for kind in RENTED:
        with suppress(NotFound, Forbidden):
            listed = (await cluster.list(kind, labels=_made_by(installation)))[0]
            remaining += [f"{kind.name} {obj['metadata']['name']}, rented{_until(obj)}" for obj in listed]
    return remaining


def _until(obj: Json) -> str:
    """When it ends by itself, by our own mark on it."""
    written = str(part(part(obj, "metadata"), "annotations").get(annotations.NODE_DEADLINE, ""))
    if not written.isdigit() or int(written) >= NEVER:
        return ""
    return f" until {datetime.fromtimestamp(int(written) / SECOND, UTC):%Y-%m-%d %H:%M} UTC at the latest"


async def release(cluster: Cluster, installation: str, namespace: str) -> None:
    """Delete our Lease: the cluster has no owner any more."""
    for lease in (await cluster.list(LEASES, namespace))[0]:
        if part(lease, "spec").get("holderIdentity") == installation:
            await _drop(cluster, LEASES, lease)


async def _drop(cluster: Cluster, kind: Kind, obj: Json) -> None:
    metadata = part(obj, "metadata")
    try:
        await cluster.delete(kind, str(metadata["name"]), str(metadata["namespace"]), uid=str(metadata.get("uid", "")))
    except NotFound:
        return
