"""Parse a home Job into the core's `JobSpec`: labels, annotations, GPU requests. Pure. The intake calls it, and so do
`plan`, `portability` and shadow mode.

A Job that cannot be accepted raises `Unfit`: a reason for the Event, and a sentence that says what to change.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from penstock.config.scalars import SCALARS, Amount, Flag, Interval, Name, Priority, Text
from penstock.core.model.types import GpuChoice, JobSpec, Origin
from penstock.core.units import MICRO, MOST_GPUS_ASKED, SECOND, Instant
from penstock.core.values import value
from penstock.drivers.driver import Work
from penstock.front.three_way import LAST
from penstock.kube import annotations, gpu_requests, kueue, unplaced_gpus
from penstock.kube.gpu_requests import NotWhole
from penstock.kube.job_needs import JobNeeds, job_needs
from penstock.kube.portability import packed
from penstock.kube.references import Json, part

MOST_PARTS: Final = 10_000  #: fields and items of a Job; what a cluster takes could hold a hundred thousand
#: Fields that the cluster writes. They do not affect what runs, and would make equal Jobs differ.
NOTES: Final = ("managedFields", "resourceVersion", "generation", "selfLink", "ownerReferences", "finalizers")
#: Annotations that do not either: a person's name, and the whole Job over again.
UNSENT: Final = (annotations.USER, LAST)
BESIDE: Final = "the Jobs without GPUs of its JobSet"  #: a need that only its own cluster meets
#: Reasons of Jobs that ask for GPUs in a way that we do not place: without our label they are the cluster's own.
CLAIMED: Final = "ClaimedGPUs"
SHARED: Final = "PartOfGPU"

T = TypeVar("T")


class Unfit(Exception):
    """`reason` is the Event's reason; the message is for the Job's author."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


@value
class JobRequest:
    spec: JobSpec
    work: Work


def read(
    job: Json,
    site: str,
    now: Instant,
    known: Iterable[str] = (),
    carried: Iterable[Json] = (),
    unread: Iterable[str] = (),
    user: str = "",
) -> JobRequest:
    """Parse the Job. Raises `Unfit`.

    `known`: GPUs that any site offers, as `known_gpus` lists them. `carried`: objects that travel with the Job;
    `unread`: those we could not read. `user`: an opaque id of the person who applied it; empty: unknown, and the job
    belongs to its team alone.
    """
    refuse_unmanaged(job)
    refuse_counted(job)
    refuse_large(job)
    spec = spec_of(job, site, now, known, user)
    missing = tuple(f"the missing {name}" for name in unread)
    return JobRequest(replace(spec, needs=spec.needs + missing), work_of(job, site, list(carried)))


def refuse_unmanaged(job: Json) -> None:
    """Refuse a Job without `managedBy`: the cluster's own controller would run it as well."""
    manager = part(job, "spec").get("managedBy")
    if manager != annotations.MANAGER:
        other = f"is managed by {manager}" if manager else "has no spec.managedBy"
        raise Unfit(
            "NotManaged",
            f"It has the label {annotations.QUEUE} but {other}, so Penstock does not run it. The field cannot be added "
            "later: delete the Job and create it with 'kubectl penstock apply',"
            f" or with managedBy: {annotations.MANAGER}.",
        )


def refuse_counted(job: Json) -> None:
    """Refuse a Job that Kueue has admitted: it holds quota that only a delete returns."""
    metadata = part(job, "metadata")
    label = part(metadata, "labels").get(kueue.QUEUE)
    if label and label != kueue.NOWHERE and part(job, "spec").get("suspend") is not True:
        raise Unfit(
            "CountedByKueue",
            f"Kueue took it for a Job of its queue {label} and reserves quota for it, beside what Penstock would run; "
            "so it runs nowhere. Delete it and create it with 'kubectl penstock apply', or with the label "
            f"{kueue.QUEUE}: {kueue.NOWHERE}.",
        )


def refuse_large(job: Json) -> None:
    """Refuse a Job of very many parts: everybody's requests wait while it is read."""
    level, parts = [job.get("spec"), job.get("metadata")], 0
    while level:
        parts += sum(len(item) for item in level if isinstance(item, dict | list))
        if parts > MOST_PARTS:
            raise Unfit("TooLarge", f"It has more than {MOST_PARTS:,} fields and items; leave out what it needs not.")
        insides = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [part for inside in insides for part in inside]


def spec_of(job: Json, site: str, now: Instant, known: Iterable[str] = (), user: str = "", team: str = "") -> JobSpec:
    """`team`: of a Job that need not have our label, because it is only judged."""
    notes = Annotations(part(part(job, "metadata"), "annotations"))
    needs = needs_of(job, known, notes.texts(annotations.GPU))
    gpus, mig = gpus_of(needs)
    team = team or team_of(job)
    usual = JobSpec(1)
    return JobSpec(
        gpus=gpus,
        team=team,
        expected_run_ms=notes.read(annotations.RUN_TIME, Interval, int, None),
        checkpoint_every_ms=notes.read(annotations.CHECKPOINT_EVERY, Interval, int, None),
        name=kind_of(job),
        user=user or team,
        project=notes.read(annotations.PROJECT, Name, str, ""),
        job_class=notes.read(annotations.CLASS, Name, str, usual.job_class),
        priority=notes.read(annotations.PRIORITY, Priority, int, 0),
        gpu_models=tuple(GpuChoice(model) for model in needs.models),
        mig_profile=mig,
        interruptible=notes.read(annotations.INTERRUPTIBLE, Flag, bool, True),
        deadline_at=_deadline(notes.text(annotations.DEADLINE), now),
        data=notes.names(annotations.DATA),
        data_class=notes.read(annotations.DATA_CLASS, Name, str, ""),
        cap=notes.read(annotations.CAP, Amount, lambda amount: int(amount * MICRO), None),
        lease_max_ms=notes.read(annotations.LEASE_MAX, Interval, int, usual.lease_max_ms),
        home=site,
        needs=needs.needs + ((BESIDE,) if notes.text(annotations.BESIDE) == "true" else ()),
        origin=origin(site, job),
    )


def work_of(job: Json, site: str, config_maps: list[Json]) -> Work:
    """The Job as it was applied, without the fields that the cluster wrote."""
    metadata = {key: content for key, content in part(job, "metadata").items() if key not in NOTES}
    notes = {key: text for key, text in part(metadata, "annotations").items() if key not in UNSENT}
    metadata["annotations"] = {**notes, annotations.HOME: site}
    bare = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job.get("spec")}
    return Work((), manifest=json.dumps(packed(bare, config_maps), sort_keys=True))


def origin(site: str, job: Json) -> Origin | None:
    """The Job's identity in the journal, by which a restart finds it and nothing submits it twice. None for a Job that
    is only planned and exists in no cluster.
    """
    uid = part(job, "metadata").get("uid")
    return Origin(site, str(uid)) if uid else None


def team_of(job: Json) -> str:
    team = part(part(job, "metadata"), "labels").get(annotations.QUEUE)
    if not team:
        raise Unfit("NoTeam", f"The label {annotations.QUEUE} is empty; write the team whose budget and share it uses.")
    return str(team)


def kind_of(job: Json) -> str:
    """Jobs of one template share the start of their names; run times are learned by that."""
    metadata = part(job, "metadata")
    name = str(metadata.get("generateName") or "").rstrip("-") or str(metadata.get("name", ""))
    return f"{metadata.get('namespace') or 'default'}/{name}"


# --- GPUs -------------------------------------------------------------------------------------------------------------


def needs_of(job: Json, known: Iterable[str] = (), named: tuple[str, ...] = ()) -> JobNeeds:
    """As `job_needs`. Raises `Unfit`."""
    pods_at_once(job)
    try:
        needs = job_needs(job, known, named)
    except NotWhole as error:
        raise Unfit("NotUnderstood", str(error)) from None
    _refuse_unplaced(part(part(job, "spec"), "template"), has_gpus=bool(needs.gpus))
    return needs


def _refuse_unplaced(template: Json, *, has_gpus: bool) -> None:
    """Refuse what asks for GPUs in a way that we cannot count. A claim beside whole GPUs is a need like any other: it
    may be for a network card.
    """
    if parts_of_gpus := unplaced_gpus.shares(template):
        raise Unfit(
            SHARED,
            f"It asks for a part of a GPU ({_few(parts_of_gpus)}); Penstock places whole GPUs and MIG slices only. "
            "Take the label away, and the cluster itself runs it.",
        )
    if not has_gpus and (claims := unplaced_gpus.claims(template)):
        raise Unfit(
            CLAIMED,
            f"It asks for GPUs by a claim ({_few(claims)}); Penstock does not place these yet. Write them under "
            "resources.limits, or take the label away, and the cluster itself runs it.",
        )


def _few(names: Sequence[str]) -> str:
    """Their author wrote them: as many as a sentence bears."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name[:60] for name in names[:3]) + more


def gpus_of(needs: JobNeeds) -> tuple[int, str]:
    """GPUs over all pods that run at once, and the MIG profile. Raises `Unfit`."""
    if not needs.gpus:
        raise Unfit("NoGPUs", "It asks for no GPUs; write them under resources.limits, or take the label away.")
    kinds = sorted([profile or "whole GPUs" for profile, _ in needs.gpus])
    if len(kinds) > 1:
        raise Unfit("MixedGPUs", f"It asks for GPUs of several kinds ({', '.join(kinds)}); use one kind.")
    ((profile, total),) = needs.gpus
    if total > MOST_GPUS_ASKED:
        raise Unfit("TooManyGPUs", f"It asks for {total:,} GPUs; a Job may ask for at most {MOST_GPUS_ASKED:,}.")
    return total, profile


def has_other_size(job: Json, gpus: int) -> bool:
    """True if it asks for another number of GPUs than this: somebody changed its parallelism."""
    try:
        return sum(gpu_requests.of_job(part(job, "spec")).values()) != gpus
    except NotWhole:
        return True


def pods_at_once(job: Json) -> int:
    """The size of the gang: all of these pods run, or none. Raises `Unfit`."""
    try:
        pods = gpu_requests.pods_at_once(part(job, "spec"))
    except NotWhole as error:
        raise Unfit("NotUnderstood", str(error)) from None
    if pods == 0:
        subject = "parallelism is" if part(job, "spec").get("parallelism") == 0 else "completions are"
        raise Unfit("NoPods", f"Its {subject} 0, so there is nothing to run; write how many pods it has.")
    return pods


# --- annotations ------------------------------------------------------------------------------------------------------


class Annotations:
    """The annotations that people write, parsed by the same rules as sites files and job files."""

    def __init__(self, written: Json) -> None:
        self.written = written

    def text(self, key: str) -> str:
        return str(self.written.get(key, "")).strip()

    def read(self, key: str, kind: type, make: Callable[[Any], T], missing: T | None) -> Any:
        text = self.text(key)
        return make(_scalar(text, key, kind)) if text else missing

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(str(_scalar(word.strip(), key, Text)) for word in self.text(key).split(",") if word.strip())

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(str(_scalar(word.strip(), key, Name)) for word in self.text(key).split(",") if word.strip())


def _scalar(text: str, key: str, kind: type) -> Any:
    form, reader = SCALARS[kind]
    scalar = reader(text)
    if scalar is None:
        raise Unfit("NotUnderstood", f"The annotation {key} is {text[:60]!r} and not {form}.")
    return scalar


def _deadline(text: str, now: Instant) -> Instant | None:
    """An instant with a time zone, or a duration from now."""
    if not text:
        return None
    span = SCALARS[Interval][1](text)
    if isinstance(span, int):
        return now + span
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        form = "an instant like 2026-11-20T18:00:00Z or a duration like 8h"
        raise Unfit("NotUnderstood", f"The annotation {annotations.DEADLINE} is {text[:60]!r} and not {form}.")
    if not 1970 < at.year < 2200:  # as a trace's times; later ones cannot be shown
        subject = f"The annotation {annotations.DEADLINE} is {text[:60]!r}"
        raise Unfit("NotUnderstood", f"{subject} and not between 1971 and 2199.")
    return int(at.timestamp() * SECOND)
