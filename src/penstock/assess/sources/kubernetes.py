"""Reads a cluster: Jobs, pods, nodes, and Kueue's Workloads. It lists, page by page, and asks nothing else. `penstock
assess --kubeconfig` calls `read_cluster`, `--shadow` calls `read_seen`.

A Job's own start is when its controller first saw it, not when its pods ran: only pods and Kueue tell true waits. GPU
pods without a Job, of a Deployment or another controller, are one job for each controller.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.assess.history import Evidence, JobRecord, Outcome, OwnedGpus, SourceReading
from penstock.assess.sources.reading import NO_GPU, coverage_of, from_text, numbered, recurring_key
from penstock.core.errors import BadInput
from penstock.core.units import DAY, SECOND, Instant
from penstock.kube import annotations, gpu_models, gpu_requests
from penstock.kube.client import JOBS, NODES, PAGE, PODS, Kind
from penstock.kube.errors import Forbidden, NotFound
from penstock.kube.kueue import is_kueues
from penstock.kube.references import Json, part, parts, pod_of
from penstock.sim.traces.kube_jobs import TEAM_LABEL, end_of, items_of
from penstock.sim.traces.rows import UNPRINTABLE, Unreadable
from penstock.sim.traces.trace import text_of

if TYPE_CHECKING:
    from penstock.kube.client import Cluster

WORKLOADS: Final = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
JOB_UID: Final = "batch.kubernetes.io/controller-uid"
KUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
SLICES: Final = "slices of GPUs"
UNREADABLE: Final = "not readable as a Job"
DELETED: Final = (
    "Jobs and pods that the cluster has deleted since (ttlSecondsAfterFinished, history limits) are not seen."
)
NOT_USED: Final = "The API server tells nothing of how GPUs were used."


async def read_cluster(cluster: "Cluster", namespace: str = "", days: int = 30, page: int = PAGE) -> SourceReading:
    """What may not be listed is said, and the rest is read. `days`: how far back; pods of a service may be years old.
    `page`: how many objects at a time.
    """
    missing: list[str] = []

    async def listed(kind: Kind, within: str = namespace) -> list[Json]:
        try:
            return (await cluster.list(kind, within, page=page))[0]
        except Forbidden as error:
            missing.append(f"{kind.resource} cannot be listed: {str(error).rstrip('.')}.")
            return []

    jobs, pods, nodes = await listed(JOBS), await listed(PODS), await listed(NODES, "")
    kueue = await _workloads(cluster)
    workloads = await listed(kueue) if kueue else []
    now = int(cluster.time_there.timestamp() * SECOND)
    source = f"cluster {cluster.context}"
    return reading_of(jobs, pods, nodes, workloads, now=now, from_at=now - days * DAY, source=source, missing=missing)


async def _workloads(cluster: "Cluster") -> Kind | None:
    for api in WORKLOADS:
        try:
            kind = await cluster.kind(api, "Workload")
        except (NotFound, Forbidden):
            continue
        if kind is not None:
            return kind
    return None


def read_seen(path: str) -> SourceReading:
    """What `penstock shadow --keep` wrote, or `kubectl get jobs -A -o json`."""
    try:
        items = items_of(text_of(path))
    except Unreadable as bad:
        raise BadInput(f"{path}: {bad.problem}.") from None
    jobs = [item for item in items if isinstance(item, dict)]
    times = [at for job in jobs for at in _times_of(job)]
    missing = ["The file has no nodes, so it does not say how many GPUs are owned."]
    return reading_of(jobs, [], [], [], now=max(times, default=0), source=f"shadow {path}", missing=missing)


def _times_of(job: Json) -> Iterable[Instant]:
    for text in (part(job, "metadata").get("creationTimestamp"), end_of(job)[0], job.get("began")):
        if (at := _instant(text)) is not None:
            yield at


# --- objects as records -----------------------------------------------------------------------------------------------


def reading_of(
    jobs: Iterable[Json],
    pods: Iterable[Json],
    nodes: Sequence[Json],
    workloads: Iterable[Json],
    *,
    now: Instant,
    source: str,
    from_at: Instant = 0,
    missing: Iterable[str] = (),
) -> SourceReading:
    models = {str(part(node, "metadata").get("name")): _model_of_node(node) for node in nodes}
    view = _View(source, now, models, _by_job(pods), _admitted(workloads))
    left_out: Counter[str] = Counter()
    manifests: dict[str, Any] = {}
    records = [
        job for job in _records(view, jobs, left_out, manifests) if job.ended_at is None or job.ended_at > from_at
    ]
    first = min((job.submitted_at for job in records if job.submitted_at is not None), default=0)
    owned = _owned(nodes, now)
    coverage = coverage_of(
        source,
        records,
        from_at=max(first, from_at) or None,
        to_at=now or None,
        left_out=left_out,
        missing=[*missing, NOT_USED, DELETED],
    )
    by = "the cluster's nodes today" if owned else ""
    return SourceReading(coverage, tuple(numbered(records)), owned, by, manifests=tuple(manifests.items()))


def _records(
    view: "_View", jobs: Iterable[Json], left_out: Counter[str], manifests: dict[str, Any]
) -> Iterable[JobRecord]:
    """Of Jobs, then of GPU pods that belong to none of them. Notes what is left out, and a manifest of each key."""
    known: dict[str, None] = {}
    for job in jobs:
        known |= {str(uid): None for uid in [part(job, "metadata").get("uid")] if uid}
        if annotations.EXECUTION in part(part(job, "metadata"), "labels"):
            continue
        record = _read_or_leave(view.job, job)
        if isinstance(record, str):
            left_out[record] += 1
            continue
        yield record
        manifests[record.key or record.id] = {key: job[key] for key in ("metadata", "spec") if key in job}
    for owner, pods in view.others(known).items():
        record = _read_or_leave(lambda several, owner=owner: view.controller(owner, several), pods)
        if isinstance(record, JobRecord):
            yield record


def _read_or_leave(read: Any, obj: Any) -> JobRecord | str:
    """Objects of a cluster can be of any shape; one that is none of ours is counted and left."""
    try:
        record: JobRecord | str = read(obj)
    except (Unreadable, ValueError, TypeError, KeyError, AttributeError):
        return UNREADABLE
    return record


class _View:
    def __init__(
        self,
        source: str,
        now: Instant,
        models: Mapping[str, str],
        pods: Mapping[str, list[Json]],
        admitted: Mapping[str, Instant],
    ) -> None:
        self.source, self.now, self.models, self.pods, self.admitted = source, now, models, pods, admitted

    def job(self, job: Json) -> JobRecord | str:
        metadata, spec = part(job, "metadata"), part(job, "spec")
        gpus = _whole(gpu_requests.of_job(spec))
        if isinstance(gpus, str):
            return gpus
        uid, name = str(metadata.get("uid") or ""), str(metadata["name"])
        pods = self.pods.get(uid, [])
        started_at, started_by = self._started(job, pods)
        ended_at = _instant(end_of(job)[0])
        return self._record(
            metadata,
            gpus,
            pods,
            f"{_namespace(metadata)}/{name}",
            name,
            started=(started_at, started_by),
            ended=(ended_at, "job"),
            outcome=_outcome(job, started_at),
            pod_spec=pod_of(job),
            recurring=_owner(metadata, "CronJob") or str(metadata.get("generateName") or "").rstrip("-") or name,
        )

    def controller(self, owner: str, pods: list[Json]) -> JobRecord | str:
        """GPU pods that no Job owns, as one job."""
        running = [_whole(dict(gpu_requests.of_pod(part(pod, "spec")))) for pod in pods]
        gpus = sum(count for count in running if isinstance(count, int))
        if gpus == 0:
            return NO_GPU
        first = min(pods, key=lambda pod: str(part(pod, "metadata").get("creationTimestamp")))
        ends = [_ended_pod(pod) for pod in pods]
        started_at = min((at for pod in pods if (at := _began(pod)) is not None), default=None)
        over = max((at for at in ends if at is not None), default=None) if all(ends) else None
        outcome: Outcome = "queued" if started_at is None else "running" if over is None else "unknown"
        metadata, name = part(first, "metadata"), owner.rpartition("/")[2]
        return self._record(
            {**metadata, "uid": ""},
            gpus,
            pods,
            owner,
            name,
            started=(started_at, "containers"),
            ended=(over, "containers"),
            outcome=outcome,
            pod_spec=part(first, "spec"),
            recurring=name,
        )

    def _record(
        self,
        metadata: Json,
        gpus: int,
        pods: list[Json],
        job_id: str,
        name: str,
        *,
        started: tuple[Instant | None, Evidence],
        ended: tuple[Instant | None, Evidence],
        outcome: Outcome,
        pod_spec: Json,
        recurring: str,
    ) -> JobRecord:
        team = str(part(metadata, "labels").get(TEAM_LABEL) or _namespace(metadata))
        if UNPRINTABLE.search(job_id + team):
            raise Unreadable("its name cannot be printed")
        goes_on = started[0] is not None and ended[0] is None
        return JobRecord(
            id=job_id,
            source=self.source,
            gpus=gpus,
            name=name,
            team=team,
            gpu_model=next((self.models[node] for node in map(_node_of, pods) if self.models.get(node)), ""),
            key=recurring_key(team, recurring),
            submitted_at=_instant(metadata.get("creationTimestamp")),
            started_at=started[0],
            ended_at=max(self.now, started[0] or 0) if goes_on else ended[0] and max(ended[0], started[0] or 0),
            submitted_by="job",
            started_by=started[1] if started[0] is not None else "",
            ended_by="samples" if goes_on else ended[1] if ended[0] is not None else "",
            outcome=outcome,
            cut="end" if goes_on else "",
            uid=str(metadata.get("uid") or ""),
            checkpoints=True if _mentions_checkpoints(pod_spec) else None,
            volumes=tuple(_claims(pod_spec)),
            priority=str(pod_spec.get("priorityClassName") or part(metadata, "labels").get(KUEUE_PRIORITY) or ""),
        )

    def _started(self, job: Json, pods: list[Json]) -> tuple[Instant | None, Evidence]:
        uid, status = str(part(job, "metadata").get("uid") or ""), part(job, "status")
        began = [at for pod in pods if (at := _began(pod)) is not None]
        if (kept := _instant(job.get("began"))) is not None:  # as shadow mode saw it
            began.append(kept)
        if began:
            return min(began), "containers"
        if uid in self.admitted:
            return self.admitted[uid], "kueue"
        at = _instant(status.get("startTime"))
        ran = at is not None and bool(status.get("ready") or status.get("succeeded") or status.get("failed"))
        if not ran:
            return None, ""
        return at, "kueue" if is_kueues(part(job, "metadata")) else "job"  # Kueue resumes a Job when it is admitted

    def others(self, jobs: Mapping[str, None]) -> dict[str, list[Json]]:
        """Pods of no listed Job, by `NAMESPACE/CONTROLLER`."""
        by_owner: dict[str, list[Json]] = defaultdict(list)
        for uid, pods in self.pods.items():
            if uid in jobs:
                continue
            for pod in pods:
                metadata = part(pod, "metadata")
                if annotations.EXECUTION not in part(metadata, "labels"):
                    owner = _owner(metadata) or str(metadata.get("name"))
                    by_owner[f"{_namespace(metadata)}/{owner}"].append(pod)
        return by_owner


# --- parts of objects -------------------------------------------------------------------------------------------------


def _by_job(pods: Iterable[Json]) -> dict[str, list[Json]]:
    """By the uid of the Job that controls them; the rest under an empty one."""
    by_uid: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        by_uid[str(part(part(pod, "metadata"), "labels").get(JOB_UID) or "")].append(pod)
    return by_uid


def _admitted(workloads: Iterable[Json]) -> dict[str, Instant]:
    """By the uid of the Job: when Kueue admitted it, or else when its quota was reserved and no more is checked."""
    admitted: dict[str, Instant] = {}
    for workload in workloads:
        owners = [str(owner.get("uid")) for owner in parts(part(workload, "metadata"), "ownerReferences")]
        times = {
            str(condition.get("type")): _instant(condition.get("lastTransitionTime"))
            for condition in parts(part(workload, "status"), "conditions")
            if condition.get("status") == "True"
        }
        checked = bool(part(workload, "status").get("admissionChecks"))
        at = times.get("Admitted") or (None if checked else times.get("QuotaReserved"))
        if at is not None:
            admitted |= dict.fromkeys(owners, at)
    return admitted


def _owned(nodes: Iterable[Json], now: Instant) -> tuple[OwnedGpus, ...]:
    counts: Counter[str] = Counter()
    for node in nodes:
        allocatable = part(part(node, "status"), "allocatable")
        gpus = sum(int(allocatable.get(kind) or 0) for kind in gpu_models.WHOLE)
        if gpus:
            counts[_model_of_node(node)] += gpus
    return tuple(OwnedGpus(now, gpus, model) for model, gpus in sorted(counts.items()))


def _model_of_node(node: Json) -> str:
    labels = part(part(node, "metadata"), "labels")
    models = (gpu_models.model_of(str(key), str(text)) for key, text in sorted(labels.items()))
    return next((model for model in models if model), "")


def _whole(asked: Mapping[str, int]) -> int | str:
    """Whole GPUs; or why it is left out."""
    whole = sum(count for kind, count in asked.items() if kind == "" or kind in gpu_models.WHOLE)
    if whole:
        return whole
    return SLICES if any(asked.values()) else NO_GPU


def _outcome(job: Json, started_at: Instant | None) -> Outcome:
    for condition in parts(part(job, "status"), "conditions"):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return "succeeded" if condition["type"] == "Complete" else "failed"
    return "queued" if started_at is None else "running"


def _began(pod: Json) -> Instant | None:
    states = [part(container, "state") for container in parts(part(pod, "status"), "containerStatuses")]
    begun = [_instant((part(state, "running") or part(state, "terminated")).get("startedAt")) for state in states]
    return min((at for at in begun if at is not None), default=None)


def _ended_pod(pod: Json) -> Instant | None:
    if part(pod, "status").get("phase") not in ("Succeeded", "Failed"):
        return None
    states = [part(container, "state") for container in parts(part(pod, "status"), "containerStatuses")]
    ends = [_instant(part(state, "terminated").get("finishedAt")) for state in states]
    return max((at for at in ends if at is not None), default=None)


def _instant(text: object) -> Instant | None:
    try:
        return from_text(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def _namespace(metadata: Json) -> str:
    return str(metadata.get("namespace") or "default")


def _owner(metadata: Json, kind: str = "") -> str:
    owners = [owner for owner in parts(metadata, "ownerReferences") if not kind or owner.get("kind") == kind]
    return str(owners[0].get("name") or "") if owners else ""


def _node_of(pod: Json) -> str:
    return str(part(pod, "spec").get("nodeName") or "")


def _claims(pod_spec: Json) -> Iterable[str]:
    for volume in parts(pod_spec, "volumes"):
        if name := part(volume, "persistentVolumeClaim").get("claimName"):
            yield str(name)


def _mentions_checkpoints(pod_spec: Json) -> bool:
    """By what its containers are told: their commands and variables."""
    texts = [
        json.dumps([container.get("command"), container.get("args"), container.get("env")])
        for container in parts(pod_spec, "containers")
    ]
    return any("checkpoint" in text.lower() or "resume" in text.lower() for text in texts)
