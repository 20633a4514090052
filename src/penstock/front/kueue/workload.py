"""Reads a Workload of Kueue: what it waits for, how it ended, how long it may run. Pure. All of `front/kueue` uses
it.
"""

from typing import Final, Literal, TypeAlias

from penstock.kube import annotations
from penstock.kube.kueue_api import MULTIKUEUE
from penstock.kube.references import Json, part, parts

#: `reason` of Evicted where Kueue ended a Workload at its own bound.
TIME_IS_UP: Final = "DeactivatedDueToMaximumExecutionTimeExceeded"
OWNER_GONE: Final = "OwnerNotFound"  #: `reason` of Finished
TIME_OUT: Final = "MaximumExecutionTimeExceeded"  #: `reason` of DeactivationTarget then
#: Conditions by which Kueue deactivates a Workload, and keeps it out of its queue.
DEACTIVATION: Final = ("DeactivationTarget", "Requeued")
READY: Final = "Ready"
PENDING: Final = "Pending"
RETRY: Final = "Retry"
REJECTED: Final = "Rejected"
End: TypeAlias = Literal["done", "failed"]


def condition(workload: Json, kind: str) -> Json:
    """The condition if it is true; otherwise empty."""
    conditions = parts(part(workload, "status"), "conditions")
    met = [row for row in conditions if row.get("type") == kind and row.get("status") == "True"]
    return met[0] if met else {}


def is_finished(workload: Json) -> bool:
    return bool(condition(workload, "Finished"))


def owner_is_gone(workload: Json) -> bool:
    """Kueue finishes the Workload of an object that was deleted: its job is cancelled, and has not failed."""
    return bool(condition(workload, "Finished").get("reason") == OWNER_GONE)


def end_of(workload: Json) -> tuple[End, str]:
    """Of one that is finished: how, and in Kueue's own words."""
    finished = condition(workload, "Finished")
    outcome: End = "done" if finished.get("reason") == "Succeeded" else "failed"
    return outcome, f"{finished.get('reason', '')}: {finished.get('message', '')}"[:1000]


def is_active(workload: Json) -> bool:
    return part(workload, "spec").get("active") is not False


def is_evicted(workload: Json) -> bool:
    return bool(condition(workload, "Evicted"))


def has_quota(workload: Json) -> bool:
    """It has its quota, and is not about to lose it."""
    return bool(condition(workload, "QuotaReserved")) and not is_evicted(workload) and is_active(workload)


def is_admitted(workload: Json) -> bool:
    return has_quota(workload) and bool(condition(workload, "Admitted"))


def time_is_up(workload: Json) -> bool:
    """Kueue ended it at its bound, and it stays off until somebody activates it. Where its worker was a second ahead of
    the manager, it was evicted for that first, and its bound is the reason why it is off.
    """
    ended = condition(workload, "Evicted")
    off_for = condition(workload, "DeactivationTarget").get("reason")
    return not is_active(workload) and (ended.get("reason") == TIME_IS_UP or (bool(ended) and off_for == TIME_OUT))


def is_off(workload: Json) -> bool:
    """Its eviction is over: nothing of it runs, and its quota is returned."""
    return not condition(workload, "QuotaReserved") and not condition(workload, "Admitted")


def lease_is_up(workload: Json) -> bool:
    """The bound was its hold's, and not its author's: with another hold it may go on."""
    return time_is_up(workload) and str(most_seconds(workload)) != annotation_of(workload, annotations.OWN_DEADLINE)


# --- checks -----------------------------------------------------------------------------------------------------------


def check_state(workload: Json, check: str) -> str:
    """Of this AdmissionCheck; empty if its queue does not have it."""
    return str(_check(workload, check).get("state", ""))


def check_message(workload: Json, check: str) -> str:
    return str(_check(workload, check).get("message", ""))


def _check(workload: Json, check: str) -> Json:
    checks = parts(part(workload, "status"), "admissionChecks")
    return next((row for row in checks if row.get("name") == check), {})


def checks_with(workload: Json, check: str, state: str, message: str, at: str) -> list[Json]:
    """All its checks, with this one in another state. `at`: the instant, if the state is new."""
    rows = parts(part(workload, "status"), "admissionChecks")
    return [_changed(row, state, message, at) if row.get("name") == check else row for row in rows]


def _changed(row: Json, state: str, message: str, at: str) -> Json:
    kept = {key: row[key] for key in ("retryCount",) if key in row}
    since = row.get("lastTransitionTime", at) if row.get("state") == state else at
    return {**kept, "name": row["name"], "state": state, "message": message, "lastTransitionTime": since}


def dispatched_by(workload: Json, controllers: dict[str, str]) -> str:
    """MultiKueue's check of its queue; empty: it runs in this cluster. `controllers`: by the check's name."""
    names = [str(row.get("name")) for row in parts(part(workload, "status"), "admissionChecks")]
    return next((name for name in names if controllers.get(name) == MULTIKUEUE), "")


# --- time -------------------------------------------------------------------------------------------------------------


def most_seconds(workload: Json) -> int | None:
    """`maximumExecutionTimeSeconds`; None: nothing bounds it."""
    seconds = part(workload, "spec").get("maximumExecutionTimeSeconds")
    return seconds if isinstance(seconds, int) else None


def used_seconds(workload: Json) -> int:
    """What earlier runs of this same Workload took of its bound."""
    seconds = part(workload, "status").get("accumulatedPastExecutionTimeSeconds")
    return seconds if isinstance(seconds, int) else 0


# --- whose it is ------------------------------------------------------------------------------------------------------


def owner_of(workload: Json) -> Json:
    """The reference to the object that it was made for: of several, the controller."""
    owners = parts(part(workload, "metadata"), "ownerReferences")
    return next((owner for owner in owners if owner.get("controller")), owners[0] if len(owners) == 1 else {})


def origin_uid(workload: Json) -> str:
    """Its owner's uid: Kueue may delete a Workload and make it anew, and it is the same job."""
    return str(owner_of(workload).get("uid") or part(workload, "metadata").get("uid", ""))


def annotation_of(workload: Json, key: str) -> str:
    """One of our annotations."""
    return str(part(part(workload, "metadata"), "annotations").get(key, ""))


def attempt_of(workload: Json) -> str:
    return annotation_of(workload, annotations.ATTEMPT)
