"""Reads a trace from `kubectl get jobs --all-namespaces --output=json`. `trace.read` calls it, and shadow mode uses
`row_of`.

Nothing in the file is trusted: a missing value or a wrong type is reported with its path.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from penstock.core.model.types import JobSpec
from penstock.core.units import Instant, Millis
from penstock.kube.gpu_requests import NotWhole, of_job
from penstock.sim.traces.rows import (
    MIXED,
    MOST_GPUS,
    NEVER_STARTED,
    NO_GPU,
    NO_RUN_TIME,
    NOT_A_JOB,
    NOT_ENDED,
    Errors,
    Row,
    TraceClock,
    TraceRow,
    Unreadable,
    read_rows,
    shown,
)

TEAM_LABEL: Final = "penstock.dev/team"


def kubernetes_rows(items: Iterable[object], clock: TraceClock, errors: Errors) -> Iterator[Row]:
    """One row for each item of the list; those that are not Jobs are left out and counted."""
    errors.word = "item"
    return read_rows(enumerate(items, start=1), _Reader(clock), errors)


def row_of(job: object) -> Row:
    """One Job by itself; what is wrong with it is an `Unreadable`."""
    return _Reader(TraceClock())(job)


def items_of(text: str) -> list[object]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"this is not JSON ({error.msg}, column {error.colno})", error.lineno) from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise Unreadable("this JSON is nothing kubectl would print") from None
    items = [document] if _at(document, "kind") == "Job" else _at(document, "items")
    if not isinstance(items, list):
        raise Unreadable("this JSON is not a list of Jobs; print one with kubectl get jobs -A -o json")
    return items


class _Reader:
    def __init__(self, clock: TraceClock) -> None:
        self.clock = clock

    def __call__(self, job: object, /) -> Row:
        if _at(job, "kind") != "Job":
            return NOT_A_JOB
        namespace, name = _names(job)
        asked = _gpus(job)
        if isinstance(asked, str):
            return asked
        run_ms = self._run_time(job)
        if isinstance(run_ms, str):
            return run_ms
        gpus, mig_profile = asked
        spec = JobSpec(gpus, _team(job) or namespace, name=_kind(job) or name, mig_profile=mig_profile)
        return TraceRow(f"{namespace}/{name}", self._submitted(job), run_ms, spec)

    def parts(self, job: object, /) -> Iterable[Callable[[], object]]:
        try:
            who = "/".join(_names(job))
        except Unreadable:
            return [partial(_names, job)]
        readers = [_gpus, self._run_time, _team, _kind, self._submitted]
        return [partial(_of, who, reader, job) for reader in readers]

    def _run_time(self, job: object) -> Millis | str:
        """How long it ran, or why it is left out."""
        end, end_path = end_of(job)
        if not end:
            return NOT_ENDED
        start = _text(job, "status", "startTime")
        if not start:
            return NEVER_STARTED
        run_ms = self.clock.instant(end, end_path) - self.clock.instant(start, "status.startTime")
        if run_ms < 0:
            raise Unreadable(f"{end_path} {shown(end)} is before status.startTime {shown(start)}")
        return run_ms or NO_RUN_TIME

    def _submitted(self, job: object) -> Instant:
        return self.clock.submitted(_text(job, "metadata", "creationTimestamp"), "metadata.creationTimestamp")


def _of(who: str, read: Callable[[object], object], job: object) -> object:
    """Puts the Job's name before the error."""
    try:
        return read(job)
    except Unreadable as bad:
        raise Unreadable(f"{who}: {bad.problem}") from None


def _names(job: object) -> tuple[str, str]:
    namespace, name = _text(job, "metadata", "namespace") or "default", _text(job, "metadata", "name")
    if not name:
        raise Unreadable("metadata.name is missing")
    return namespace, name


def _team(job: object) -> str:
    return _text(job, "metadata", "labels", TEAM_LABEL)


def _kind(job: object) -> str:
    """Jobs made from one template share the front of their names: that is what run times are learned by."""
    return _text(job, "metadata", "generateName").rstrip("-")


def end_of(job: object) -> tuple[str, str]:
    """When it ended, and the path of that time in the Job; an empty time if it has not ended."""
    done = _text(job, "status", "completionTime")
    if done:
        return done, "status.completionTime"
    conditions = _at(job, "status", "conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if _at(condition, "type") == "Failed" and _at(condition, "status") == "True":
            return _text(condition, "lastTransitionTime"), "status.conditions Failed lastTransitionTime"
    return "", ""


def _gpus(job: object) -> tuple[int, str] | str:
    """Width over all pods that run at once, and the MIG profile; or why the job is left out."""
    spec = _at(job, "spec")
    try:
        kinds = {kind: gpus for kind, gpus in of_job(spec if isinstance(spec, dict) else {}).items() if gpus}
    except NotWhole as bad:
        raise Unreadable(f"{bad.field} {shown(bad.text)} is not a whole number") from None
    if len(kinds) > 1:
        return MIXED
    for profile, gpus in kinds.items():
        if gpus > MOST_GPUS:
            raise Unreadable(f"{gpus} GPUs are more than {MOST_GPUS:,}")
        return gpus, profile
    return NO_GPU


def _text(item: object, *path: str) -> str:
    text = _at(item, *path)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Unreadable(f"{'.'.join(path)} {shown(str(text))} is not a text")
    return text


def _at(item: object, *path: str) -> object:
    for key in path:
        if not isinstance(item, dict):
            return None
        item = item.get(key)
    return item
