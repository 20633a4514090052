"""Computes the status, labels and finalizer that a home Job should have, from its snapshot. Pure. The controller
compares the result with the Job and writes the difference.

The API server validates the status of managed Jobs, so the order is fixed: unsuspend first; `startTime` is set once;
counts never fall; `Complete` needs `SuccessCriteriaMet` and no active pods; `Failed` needs `FailureTarget`.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from penstock.core.ids import attempt_number, site_of
from penstock.core.model.lifecycle import ENDED
from penstock.core.units import SECOND, Instant
from penstock.core.values import value
from penstock.drivers.earlier import Earlier
from penstock.front.job_spec import Unfit, pods_at_once
from penstock.journal.rows import AttemptRow, JobRow
from penstock.kube import annotations, kueue
from penstock.kube.references import Json, part, parts

SCHEDULED: Final = "penstock.dev/Scheduled"  #: our condition: whether the job has GPUs, and why
#: With its former name, which we remove from Jobs that still have it.
OURS: Final = (SCHEDULED, "penstock.dev/Placed")
LIVE: Final = ("starting", "running", "stopping")
GONE: Final = ("failed", "lost", "refused")


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
    if part(job, "spec").get("suspend") is True and _has_begun(row, attempts) and not kueue.is_kueues(metadata):
        patch["spec"] = {"suspend": False}
    return patch


def finalizers_of(metadata: Json, keep: bool) -> list[str]:
    others = [finalizer for finalizer in metadata.get("finalizers") or [] if finalizer != annotations.CANCEL]
    gone = bool(metadata.get("deletionTimestamp")) and annotations.CANCEL not in (metadata.get("finalizers") or [])
    return [*others, annotations.CANCEL] if keep and not gone else others


def released(job: Json) -> Json:
    """A merge patch that removes every mark of ours; empty if there is none."""
    metadata = part(job, "metadata")
    ours = {key: None for key in part(metadata, "annotations") if key in (annotations.JOB, annotations.BINDING)}
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
        said = json.loads(part(part(job, "metadata"), "annotations").get(annotations.BINDING) or "{}")
    except (TypeError, ValueError):
        return ""
    return str(said.get("attempt", "")) if isinstance(said, dict) else ""


def _has_begun(row: JobRow, attempts: Sequence[AttemptRow]) -> bool:
    return row.started_at is not None or any(attempt.phase in LIVE for attempt in attempts)


# --- status -----------------------------------------------------------------------------------------------------------


def shown(job: Json, snapshot: JobSnapshot) -> Json:
    """The whole status as it should be. The caller writes it unless the Job shows it already."""
    row, attempts = snapshot.job, snapshot.attempts
    now, pods = part(job, "status"), _pods(job)
    living = [attempt for attempt in attempts if attempt.phase in LIVE]
    active = pods if living and row.phase not in ENDED else 0
    running = any(attempt.started_at is not None for attempt in living)
    done = row.phase == "done"
    status: Json = {
        "active": active,
        "ready": active if running else 0,
        "terminating": 0,
        "failed": max(int(now.get("failed") or 0), sum(attempt.outcome in GONE for attempt in attempts)),
        "succeeded": max(int(now.get("succeeded") or 0), _wanted(job, pods) if done else 0),
        "conditions": _conditions(now, snapshot),
    }
    started_at = _started_at(row, attempts)
    if now.get("startTime") or started_at is not None:
        status["startTime"] = now.get("startTime") or when(started_at or 0)
    if done:
        status["completionTime"] = now.get("completionTime") or _not_before(row.ended_at, status["startTime"])
        if part(job, "spec").get("completionMode") == "Indexed":
            status["completedIndexes"] = "0" if _wanted(job, pods) == 1 else f"0-{_wanted(job, pods) - 1}"
    return status


def _started_at(row: JobRow, attempts: Sequence[AttemptRow]) -> Instant | None:
    """The first start. An ended Job must have a start time, so one that never started gets its end."""
    begun = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    return min(begun, default=row.ended_at)


def is_shown(job: Json, wanted: Json) -> bool:
    """Compare statuses. Some API servers drop zeros: a missing count equals 0."""
    now = part(job, "status")
    return all((now.get(key) or 0) == (to or 0) for key, to in wanted.items())


def _conditions(now: Json, snapshot: JobSnapshot) -> list[Json]:
    row, why = snapshot.job, snapshot.why
    wanted = [_scheduled(row, why)] if why is not None else []
    if row.phase in ENDED:
        wanted += [_condition(kind, True, *_ending(snapshot), row.ended_at or 0) for kind in _terminal(row)]
    kept = {condition.get("type"): condition for condition in parts(now, "conditions")}
    mine = {wish["type"]: _kept_time(kept.get(wish["type"]), wish) for wish in wanted}
    others = [condition for kind, condition in kept.items() if kind not in (*mine, *OURS, "Suspended")]
    return [*others, *mine.values()]


def _terminal(row: JobRow) -> tuple[str, str]:
    return ("SuccessCriteriaMet", "Complete") if row.phase == "done" else ("FailureTarget", "Failed")


def _ending(snapshot: JobSnapshot) -> tuple[str, str]:
    """Kubernetes' own reason and message where its Job ended; otherwise ours."""
    row, why, last = snapshot.job, snapshot.why, snapshot.earlier.last
    if last is not None and last.reason and row.phase in ("done", "failed"):
        return last.reason, last.message
    reason = {"done": "CompletionsReached", "failed": "Failed", "refused": "Refused", "cancelled": "Cancelled"}
    return reason[row.phase], why.says if why is not None else ""


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
