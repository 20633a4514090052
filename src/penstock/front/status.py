"""Computes the status, labels and finalizer that a home Job should have, from its snapshot. Pure. The controller
compares the result with the Job and writes the difference.

The API server validates the status of managed Jobs, so the order is fixed: unsuspend first; `startTime` is set once;
counts never fall; `Complete` needs `SuccessCriteriaMet` and no active pods; `Failed` needs `FailureTarget`.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.ids import attempt_number, site_of
from penstock.core.model.lifecycle import ENDED
from penstock.core.units import SECOND, Instant
from penstock.core.values import value
from penstock.drivers.earlier import Earlier
from penstock.drivers.running_pods import RunningPods
from penstock.front.job_spec import Unfit, pods_at_once
from penstock.journal.rows import AttemptRow, JobRow
from penstock.kube import annotations, indexes, kueue
from penstock.kube.references import Json, part, parts

SCHEDULED: Final = "penstock.dev/Scheduled"  #: our condition: whether the job has GPUs, and why
#: With its former name, which we remove from Jobs that still have it.
OURS: Final = (SCHEDULED, "penstock.dev/Placed")
#: Annotations that we write on home Jobs.
MARKS: Final = (annotations.JOB, annotations.BINDING, annotations.UNSUSPENDED, annotations.LOGS)
RULE: Final = re.compile(r"rule at index (\d+)")  #: in the Job controller's words for a pod failure policy
FIELDS: Final = "managedFields"
LIVE: Final = ("starting", "running", "stopping")


@value
class Why:
    """The last decision about a job: the reason's name, and the sentence of `penstock why`."""

    reason: str
    says: str
    at: Instant


@value
class JobSnapshot:
    """A job, its attempts, and the last thing decided about it, as they stood at one row of the journal."""

    number: int  # the journal row
    job: JobRow
    attempts: tuple[AttemptRow, ...]
    why: Why | None
    earlier: Earlier = Earlier()  # of its attempts that ended
    suspended: bool = False  # a person suspended it, by the journal
    pods: RunningPods | None = None  # of its live attempt, as its site counts them now; None: not known

    def with_pods(self, running_pods: Callable[[str], RunningPods | None]) -> "JobSnapshot":
        live = [attempt.id for attempt in self.attempts if attempt.phase in LIVE]
        return replace(self, pods=running_pods(live[-1])) if live else self

    def is_older_than(self, home_job: Json) -> bool:
        """True if the home Job is bound to an attempt that this snapshot does not have, or has only as promised: an
        attempt is bound when it starts. Then the Job shows more than this snapshot knows and stays as it is: the row
        with that start brings the next snapshot. If another control plane bound it, ours is fenced, and no snapshot
        comes.
        """
        bound = bound_attempt(home_job)
        begun = (attempt_number(attempt.id) for attempt in self.attempts if attempt.phase != "promised")
        newest = max(begun, default=0)
        return bound.startswith(f"{self.job.id}.") and attempt_number(bound) > newest


def metadata_change(job: Json, snapshot: JobSnapshot) -> Json:
    """A merge patch of annotations, finalizer and `suspend`; empty if nothing differs."""
    row, attempts = snapshot.job, snapshot.attempts
    metadata = part(job, "metadata")
    now = part(metadata, "annotations")
    wanted = {annotations.JOB: row.id, annotations.BINDING: binding_of(row, attempts)}
    if row.phase in ENDED and bound_attempt(job):  # keep the binding: the last attempt may have ended before it started
        del wanted[annotations.BINDING]
    differing = {key: text for key, text in wanted.items() if now.get(key) != text}
    change: Json = {"annotations": differing} if differing else {}
    finalizers = finalizers_of(metadata, keep=row.phase not in ENDED)
    if finalizers != (metadata.get("finalizers") or []):
        change["finalizers"] = finalizers
    patch: Json = {"metadata": change} if change else {}
    if (
        part(job, "spec").get("suspend") is True
        and _has_begun(row, attempts)
        and not (kueue.is_kueues(metadata) or is_suspended_by_user(job))
    ):
        patch["spec"] = {"suspend": False}
    return patch


def is_suspended_by_user(job: Json) -> bool:
    """True if somebody suspended it after Penstock had unsuspended it. A manifest that is applied again says
    `suspend: true` as it did at first, and means the queue. Kueue keeps its home Jobs suspended, so nobody can tell:
    there an annotation says it.
    """
    metadata = part(job, "metadata")
    if kueue.is_kueues(metadata):
        return bool(part(metadata, "annotations").get(annotations.SUSPEND) == "true")
    ours = annotations.UNSUSPENDED not in part(metadata, "annotations")
    return part(job, "spec").get("suspend") is True and not ours and not any(map(_applies, parts(metadata, FIELDS)))


def _applies(writer: Json) -> bool:
    """True if this writer of the Job's fields applied a manifest with `suspend` in it."""
    applies = writer.get("operation") == "Apply" or writer.get("manager") == "kubectl-client-side-apply"
    return applies and "f:suspend" in part(part(writer, "fieldsV1"), "f:spec")


def finalizers_of(metadata: Json, keep: bool) -> list[str]:
    others = [finalizer for finalizer in metadata.get("finalizers") or [] if finalizer != annotations.CANCEL]
    gone = bool(metadata.get("deletionTimestamp")) and annotations.CANCEL not in (metadata.get("finalizers") or [])
    return [*others, annotations.CANCEL] if keep and not gone else others


def released(job: Json) -> Json:
    """A merge patch that removes every mark of ours; empty if there is none."""
    metadata = part(job, "metadata")
    ours = {key: None for key in part(metadata, "annotations") if key in MARKS}
    change: Json = {"annotations": ours} if ours else {}
    if annotations.CANCEL in (metadata.get("finalizers") or []):
        change["finalizers"] = finalizers_of(metadata, keep=False)
    return {"metadata": change} if change else {}


def binding_of(row: JobRow, attempts: Sequence[AttemptRow]) -> str | None:
    """The binding's text; an ended Job keeps its last. None if no attempt is live."""
    bound = [
        attempt
        for attempt in attempts
        if attempt.phase in LIVE or (row.phase in ENDED and attempt.started_at is not None)
    ]
    return binding(bound[-1].id, bound[-1].offer) if bound else None


def binding(attempt: str, offer: str) -> str:
    return json.dumps({"attempt": attempt, "offer": offer, "site": site_of(offer)}, sort_keys=True)


def bound_attempt(job: Json) -> str:
    """The attempt in the binding annotation; empty if there is none, or none that we wrote."""
    try:
        record = json.loads(part(part(job, "metadata"), "annotations").get(annotations.BINDING) or "{}")
    except (TypeError, ValueError):
        return ""
    return str(record.get("attempt", "")) if isinstance(record, dict) else ""


def log_command(job: Json) -> str:
    """`kubectl logs` finds pods in the Job's own cluster only."""
    metadata = part(job, "metadata")
    return f"kubectl penstock logs -f {metadata.get('name')} -n {metadata.get('namespace') or 'default'}"


def _has_begun(row: JobRow, attempts: Sequence[AttemptRow]) -> bool:
    return row.started_at is not None or any(attempt.phase in LIVE for attempt in attempts)


# --- status -----------------------------------------------------------------------------------------------------------


def shown(job: Json, snapshot: JobSnapshot) -> Json:
    """The whole status as it should be. The caller writes it unless the Job shows it already."""
    row, attempts = snapshot.job, snapshot.attempts
    now = part(job, "status")
    living = [attempt for attempt in attempts if attempt.phase in LIVE and row.phase not in ENDED]
    pods, done = (_running(job, snapshot, living) if living else RunningPods()), row.phase == "done"
    status: Json = {
        "active": pods.active,
        "ready": pods.ready,
        "terminating": pods.terminating,
        "failed": max(int(now.get("failed") or 0), snapshot.earlier.failed + pods.failed),
        "succeeded": max(int(now.get("succeeded") or 0), _succeeded(job, snapshot, pods)),
        "conditions": _conditions(job, snapshot),
        **_indexes(job, snapshot, pods),
    }
    started_at = _started_at(row, attempts)
    if started_at is None and pods.active:
        started_at = living[-1].promised_at  # its pods exist and wait for a node; a Job's time begins with them
    if now.get("startTime") or started_at is not None:
        status["startTime"] = now.get("startTime") or when(started_at or 0)
    if done:
        status["completionTime"] = now.get("completionTime") or _not_before(row.ended_at, status["startTime"])
    return status


def _running(job: Json, snapshot: JobSnapshot, living: Sequence[AttemptRow]) -> RunningPods:
    """Pods of its live attempt. A site that does not count them has as many as the Job asks for, once it has started:
    while a site does not answer, or admits nothing, there are none.
    """
    if snapshot.pods is not None:
        return snapshot.pods
    pods = _pods(job) if any(attempt.started_at is not None for attempt in living) else 0
    return RunningPods(active=pods, ready=pods)


def _succeeded(job: Json, snapshot: JobSnapshot, pods: RunningPods) -> int:
    """Over all attempts. Until the journal says that the job is done, one pod is missing: a pod that saved its work and
    exited well when it was told to end is not done, and the count must never fall.
    """
    wanted, earlier = _wanted(job, _pods(job)), snapshot.earlier
    if snapshot.job.phase == "done":
        return min(earlier.succeeded, wanted) if earlier.last is not None else wanted
    if earlier.completed_indexes or pods.completed_indexes:
        return min(len(indexes.read(_completed(job, snapshot, pods))), wanted - 1)
    return min(earlier.succeeded + pods.succeeded, wanted - 1)


def _indexes(job: Json, snapshot: JobSnapshot, pods: RunningPods) -> Json:
    """Of an Indexed Job. The API server takes failed ones only from a Job that limits failures by index."""
    spec = part(job, "spec")
    if spec.get("completionMode") != "Indexed":
        return {}
    completed = _completed(job, snapshot, pods)
    shown_indexes: Json = {"completedIndexes": completed} if completed else {}
    if spec.get("backoffLimitPerIndex") is not None:
        failed = indexes.read(indexes.together(snapshot.earlier.failed_indexes, pods.failed_indexes))
        shown_indexes["failedIndexes"] = indexes.write(failed - indexes.read(completed))
    return shown_indexes


def _completed(job: Json, snapshot: JobSnapshot, pods: RunningPods) -> str:
    before = str(part(job, "status").get("completedIndexes") or "")
    if snapshot.job.phase == "done" and snapshot.earlier.last is None:
        return indexes.write(range(_wanted(job, _pods(job))))
    wanted, row = _wanted(job, _pods(job)), snapshot.job
    completed = indexes.together(before, snapshot.earlier.completed_indexes, pods.completed_indexes)
    if row.phase != "done" and len(done := indexes.read(completed)) >= wanted:  # not done yet: see `_succeeded`
        return before or indexes.write(sorted(done)[: wanted - 1])
    return completed


def _started_at(row: JobRow, attempts: Sequence[AttemptRow]) -> Instant | None:
    """The first start. An ended Job must have a start time, so one that never started gets its end."""
    begun = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    return min(begun, default=row.ended_at)


def is_shown(job: Json, wanted: Json) -> bool:
    """Compare statuses. Some API servers drop zeros: a missing count equals 0."""
    now = part(job, "status")
    return all((now.get(key) or 0) == (to or 0) for key, to in wanted.items())


def _conditions(job: Json, snapshot: JobSnapshot) -> list[Json]:
    now, row, why = part(job, "status"), snapshot.job, snapshot.why
    kept = {condition.get("type"): condition for condition in parts(now, "conditions")}
    wanted = [_scheduled(row, why)] if why is not None else []
    wanted += _suspended(snapshot, "Suspended" in kept)
    if row.phase in ENDED:
        wanted += [_condition(kind, True, *_ending(job, snapshot), row.ended_at or 0) for kind in _terminal(row)]
    mine = {wish["type"]: _kept_time(kept.get(wish["type"]), wish) for wish in wanted}
    others = [condition for kind, condition in kept.items() if kind not in (*mine, *OURS)]
    return [*others, *mine.values()]


def _suspended(snapshot: JobSnapshot, is_told: bool) -> list[Json]:
    """As the Job controller says it: a Job that waits for GPUs is suspended, and then resumed."""
    row, at = snapshot.job, snapshot.why.at if snapshot.why is not None else 0
    waits = row.phase in ("waiting", "paused") or snapshot.suspended
    if row.phase in ENDED or not (waits or is_told):
        return []
    reason, message = ("JobSuspended", "Job suspended") if waits else ("JobResumed", "Job resumed")
    return [_condition("Suspended", waits, reason, message, at)]


def _terminal(row: JobRow) -> tuple[str, str]:
    return ("SuccessCriteriaMet", "Complete") if row.phase == "done" else ("FailureTarget", "Failed")


def _ending(job: Json, snapshot: JobSnapshot) -> tuple[str, str]:
    """Kubernetes' own reason and message where its Job ended; otherwise ours."""
    row, why, last = snapshot.job, snapshot.why, snapshot.earlier.last
    if last is not None and last.reason and row.phase in ("done", "failed"):
        return last.reason, RULE.sub(lambda match: f"rule at index {_own_rule(job, int(match[1]))}", last.message)
    reason = {"done": "CompletionsReached", "failed": "Failed", "refused": "Refused", "cancelled": "Cancelled"}
    return reason[row.phase], why.says if why is not None else ""


def _own_rule(job: Json, index: int) -> int:
    """The index in the user's own pod failure policy: the execution Job has a rule of ours before it, for lost nodes,
    and none of the user's about them.
    """
    rules = parts(part(part(job, "spec"), "podFailurePolicy"), "rules")
    kept = [number for number, rule in enumerate(rules) if "DisruptionTarget" not in str(rule.get("onPodConditions"))]
    return kept[index - 1] if 0 < index <= len(kept) else index


def _scheduled(row: JobRow, why: Why) -> Json:
    return _condition(SCHEDULED, row.phase in ("placed", "leaving", "done"), why.reason, why.says, why.at)


def _condition(kind: str, so: bool, reason: str, message: str, at: Instant) -> Json:
    return {
        "type": kind,
        "status": "True" if so else "False",
        "reason": reason,
        "message": message[:1024],
        "lastTransitionTime": when(at),
        "lastProbeTime": when(at),
    }


def _kept_time(before: Json | None, condition: Json) -> Json:
    """Keep the times of an unchanged condition; otherwise every reconcile would write."""
    if before is None or any(before.get(key) != condition[key] for key in ("status", "reason", "message")):
        return condition
    return before


def _pods(job: Json) -> int:
    try:
        return pods_at_once(job)
    except Unfit:
        return 1


def _wanted(job: Json, pods: int) -> int:
    wanted: Any = part(job, "spec").get("completions")
    return int(wanted) if isinstance(wanted, int) else pods


def when(at: Instant) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    return f"{datetime.fromtimestamp(at // SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _not_before(at: Instant | None, start: str) -> str:
    return max(when(at or 0), start)
