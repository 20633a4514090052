"""Play one manifest in one mode, and record what its user sees at each instant.

A plain Job is recorded when its controller has settled. A home Job has time to come to look the same; what differs when
nothing changes any more is a difference.
"""

import asyncio
import copy
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.errors import BadInput
from penstock.devcluster.images import BUSYBOX
from penstock.front.applying import Applier
from penstock.front.defaulting import why_not_ours
from penstock.kube import annotations
from penstock.kube.client import JOBS, Kind
from penstock.kube.errors import AlreadyExists, KubeError, NotFound
from penstock.kube.informer import is_newer
from tests.conformance import kubelet
from tests.conformance.cases import Case
from tests.conformance.comparing import Allowed, Difference, differences, unexplained
from tests.conformance.ground import Ground, View, index_of
from tests.conformance.observing import Fields, Names, event_fields, job_fields, pod_fields

Json = dict[str, Any]
TRACKING: Final = "batch.kubernetes.io/job-tracking"
#: A failed pod is replaced after ten seconds, the next one after twenty.
STILL_S: Final = 24.0
#: A real pod that does not heed SIGTERM ends after its grace of thirty, and all of them share one machine.
STILL_REAL_S: Final = 50.0
LIMIT_REAL_S: Final = 150.0
QUIET_S: Final = 1.0
LIMIT_S: Final = 60.0
EVICTIONS: Final = "eviction"
BOUND: Final = "pv.kubernetes.io/bind-completed"
STEP: Final = re.compile(r"(?:index (?P<index>\d+) |(?P<all>all ))?(?P<verb>exit|restart) (?P<code>\d+)")


@dataclass
class Trace:
    """What was seen, by instant. `lost`: why it could not be played to its end."""

    seen: dict[str, Fields] = field(default_factory=dict)
    found: list[Difference] = field(default_factory=list)
    lost: str = ""
    stays: bool = False


class Play:
    """One manifest in one mode. `plain`: the trace to compare with; none: this is the plain one."""

    def __init__(
        self,
        ground: Ground,
        case: Case,
        mode: str,
        allowed: list[Allowed],
        plain: Trace | None = None,
        may_move: asyncio.Event | None = None,
    ) -> None:
        self.ground, self.case, self.mode, self.allowed, self.plain = ground, case, mode, allowed, plain
        self.may_move = may_move
        self.lab = ground.views["lab"]
        self.namespace = ground.namespaces[mode]
        self.trace = Trace()
        self.arrived = asyncio.Event()  #: where it is moved, or as far as it came
        self.uid = self.name = ""
        self.last: Json | None = None  #: the Job as it was last seen
        self.played: list[tuple[View, Json, int]] = []  #: the pods that the last step ended, each with its exit code

    async def tell(self) -> Trace:
        try:
            await self._tell()
        except Lost as lost:
            self.trace.lost = str(lost)
        except KubeError as error:
            self.trace.lost = f"refused: {error}"
        self.arrived.set()
        return self.trace

    async def _tell(self) -> None:
        made = await self._apply()
        self._record("created", {"job": "there", **job_fields(made, Names(self.name, self.namespace))})
        if self.case.stays and self.mode in ("burst", "moved"):
            await self._stays_home()
        elif self.ground.real:
            await self._instant(self.case.real)
        else:
            await self._tell_steps()
        if self.case.stays and self.plain is None:
            await self._record_queued()

    async def _tell_steps(self) -> None:
        await self._instant("running" if self.case.begins == "running" else self.case.begins)
        await self._move_if_due(0)
        for number, step in enumerate(self.case.steps, start=1):
            await self._do(step)
            await self._instant(f"{number}: {step}")
            await self._move_if_due(number)

    # --- what the user does ------------------------------------------------------------------------------------------

    async def _apply(self) -> Json:
        """Apply every document; returns the Job."""
        made: Json = {}
        for document in self.case.documents():
            document = on_this_machine(document) if self.ground.real else document
            document["metadata"]["namespace"] = self.namespace
            if document["kind"] == "CronJob":
                await self._create(document)
                document = _instance(document)
            if document["kind"] != "Job":
                await self._create(_bound(document))
                continue
            made = await (self._create(document) if self.plain is None else self._create_home(document))
        self.uid, self.name = made["metadata"]["uid"], made["metadata"]["name"]
        await self.ground.until(lambda: self.lab.job(self.uid), LIMIT_S)
        return made

    async def _create_home(self, document: Json) -> Json:
        """In one of the three ways that docs/kubernetes.md has, another one in each mode."""
        way = WAYS[self.mode]
        with suppress(BadInput):  # what `apply` refuses, or leaves to the cluster, can still be written by hand
            if way == "applied" and not why_not_ours(document):
                return (await Applier(self.lab.cluster, "vision", self.namespace).apply(document)).manifest
        return await self._create(labelled(document) if way == "label alone" else as_home_job(document))

    async def _create(self, document: Json) -> Json:
        kind = Kind(
            document["kind"], _plural(document["kind"]), document["apiVersion"], document["kind"] not in CLUSTER_WIDE
        )
        try:
            return await self.lab.cluster.create(kind, document)
        except AlreadyExists:
            return document

    async def _do(self, step: str) -> None:
        if played := STEP.fullmatch(step):
            await self._play(played)
            return
        match step.split():
            case ["out", "of", "memory"]:
                view, pod = await self._pod()
                await kubelet.end(view.cluster, pod, 137, "OOMKilled")
            case ["suspend" | "resume" as verb]:
                await self._patch({"suspend": verb == "suspend"})
            case ["parallelism", number]:
                await self._patch({"parallelism": int(number)})
            case ["delete"]:
                await self.lab.cluster.delete(JOBS, self.name, self.namespace)
            case ["wait"]:
                pass
            case _:
                raise ValueError(f"{self.case.name}: there is no step {step!r}")

    async def _play(self, played: re.Match[str]) -> None:
        code = int(played["code"])
        if played["all"]:
            ours = await self._pods(1)
        else:
            ours = [await self._pod(played["index"])]
        self.played = [] if played["verb"] == "restart" else [(view, pod, code) for view, pod in ours]
        for view, pod in ours:
            with suppress(NotFound):  # the end of another one ended the Job
                await (kubelet.restart if played["verb"] == "restart" else kubelet.end)(view.cluster, pod, code)
            seen = pod["metadata"]["resourceVersion"]
            await self.ground.until(lambda pod=pod, view=view, seen=seen: _moved_on(view, pod, seen))  # type: ignore[misc]

    async def _patch(self, spec: Json) -> None:
        await self.lab.cluster.patch(JOBS, self.name, {"spec": spec}, self.namespace)

    # --- its pods ----------------------------------------------------------------------------------------------------

    def _runners(self) -> list[tuple[View, Json]]:
        """The Jobs that run it: itself, or its execution Jobs in any cluster."""
        if self.plain is None:
            return [(self.lab, job) for job in [self.lab.job(self.uid)] if job]
        return [(view, job) for view in self.ground.views.values() for job in view.executions(self.uid)]

    def _live(self) -> list[tuple[View, Json]]:
        """Its pods that run."""
        return [
            (view, pod)
            for view, job in self._runners()
            for pod in view.pods_of(job["metadata"]["uid"])
            if pod.get("status", {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]

    async def _pods(self, least: int) -> list[tuple[View, Json]]:
        pods = await self.ground.until(lambda: (live := self._live()) and len(live) >= least and live, LIMIT_S)
        if not pods:
            raise Lost("no pod of it runs")
        return pods

    async def _pod(self, index: str | None = None) -> tuple[View, Json]:
        def look() -> tuple[View, Json] | None:
            fitting = [(view, pod) for view, pod in self._live() if index is None or index_of(pod) == index]
            return fitting[0] if fitting else None

        seen = await self.ground.until(look, LIMIT_S)
        if seen is None:
            raise Lost(f"no pod of index {index} runs" if index else "no pod of it runs")
        return seen

    # --- what is seen ------------------------------------------------------------------------------------------------

    async def _instant(self, name: str) -> None:
        if self.plain is None:
            await self._until_settled(name)
            self._record(name, self._fields())
            return
        wanted = self.plain.seen.get(name)
        if wanted is None:
            raise Lost(f"the plain Job never came to {name!r}")
        await self._until_like(wanted, name)
        if await self._end_again():
            await self._until_like(wanted, name)
        self._record(name, self._fields())

    async def _end_again(self) -> bool:
        """kwok repeats a write that took too long, and so may bring a pod back to life. True if it did."""
        alive = {pod["metadata"]["uid"] for _, pod in self._live()}
        revived = [(view, pod, code) for view, pod, code in self.played if pod["metadata"]["uid"] in alive]
        for view, pod, code in revived:
            with suppress(NotFound):
                await kubelet.end(view.cluster, pod, code)
        self.played = []
        return bool(revived)

    async def _until_settled(self, name: str) -> None:
        """Its controller has done what there is to do, and tells no more Events."""
        before: Fields = {}
        since = time.monotonic()

        def look() -> bool:
            nonlocal before, since
            settled, now = self._settled(), self._fields()
            if now != before or not settled:
                before, since = now, time.monotonic()
            return time.monotonic() - since > QUIET_S

        if not await self.ground.until(look, self._limit_s):
            raise Lost(f"the plain Job never settled at {name!r}: {(self.last or {}).get('status')}")

    async def _until_like(
        self, wanted: Fields, name: str, of: Callable[[Fields], Fields] = lambda fields: fields
    ) -> None:
        """Wait until nothing differs that should not, or nothing has changed for a while."""
        before: Fields = {}
        since = time.monotonic()

        def look() -> bool:
            nonlocal before, since
            now = of(self._fields())
            if now != before:
                before, since = now, time.monotonic()
            return not self._unexplained(wanted, now, name) or time.monotonic() - since > self._still_s(wanted, now)

        await self.ground.until(look, self._limit_s)

    def _still_s(self, wanted: Fields, now: Fields) -> float:
        """How long nothing may change before that is how it stays. An end that is missing is waited for as long as a
        play may take: on a busy machine it may come late.
        """
        ends = [f"status.conditions.{kind}.status" for kind in ("Complete", "Failed")]
        if any(end in wanted and end not in now for end in ends):
            return self._limit_s
        return STILL_REAL_S if self.ground.real else STILL_S

    @property
    def _limit_s(self) -> float:
        return LIMIT_REAL_S if self.ground.real else LIMIT_S

    def _unexplained(self, wanted: Fields, now: Fields, name: str) -> list[Difference]:
        return unexplained(differences(wanted, now, self.case.name, self.mode, name), self.allowed)

    def _record(self, name: str, seen: Fields) -> None:
        self.trace.seen[name] = seen
        if self.plain is not None:
            wanted = self.plain.seen.get(name, {})
            self.trace.found += differences(wanted, seen, self.case.name, self.mode, name)

    def _fields(self) -> Fields:
        job = self.lab.job(self.uid)
        if job is None:
            return {"job": "gone"}
        self.last = job
        names = Names(self.name, self.namespace, [run["metadata"]["name"] for _, run in self._runners()])
        live = self._live()
        fields = {"job": "there", **job_fields(job, names), **event_fields(self.lab.events_of(self.uid))}
        fields["pods"] = len(live)
        if live and not self.trace.seen.keys() - {"created"}:  # pods are alike, so they are compared once
            fields |= pod_fields(live[0][1], names)
        return fields

    def _settled(self) -> bool:
        """The cluster's own controller has done all that there is to do now."""
        job = self.lab.job(self.uid)
        if job is None:
            return True
        self.last = job
        pods, status, spec = self.lab.pods_of(self.uid), job.get("status") or {}, job["spec"]
        uncounted = [pod for pod in pods if _is_over(pod) and TRACKING in (pod["metadata"].get("finalizers") or ())]
        if uncounted or any((status.get("uncountedTerminatedPods") or {}).values()):
            return False
        if not (spec.get("suspend") or status.get("startTime")):  # it has not looked at it yet
            return False
        if self.ground.real and (self.case.real == "ended") != has_ended(job):
            return False
        if status.get("terminating"):
            return False
        if has_ended(job):
            return not status.get("active") and not _expires(job)
        live = [pod for pod in pods if not _is_over(pod)]
        if self._is_due_to_end() or len(live) != status.get("active", 0):
            return False
        ready = [pod for pod in live if pod["status"]["phase"] == "Running"]
        if len(ready) != (status.get("ready") or 0) or len(ready) != self._ready_of(len(live)):
            return False
        return len(live) == wanted_pods(spec, status, len(live)) and bool(spec.get("suspend")) == is_suspended(job)

    def _ready_of(self, live: int) -> int:
        """How many of its pods should run."""
        return 0 if self.case.begins == "pending" or (self.ground.real and self.case.real == "pending") else live

    def _is_due_to_end(self) -> bool:
        """The last step of every case ends the Job."""
        return bool(self.case.steps) and len(self.trace.seen) - 1 == len(self.case.steps)

    # --- burst and moved ---------------------------------------------------------------------------------------------

    async def _stays_home(self) -> None:
        """It has to wait, whatever else is idle elsewhere; and nothing of it is elsewhere."""
        events = await self.ground.until(lambda: self.lab.events_of(self.uid), LIMIT_S)
        assert self.plain is not None
        await self._until_like(self.plain.seen.get("queued", {}), "queued", queued_fields)
        self._record("queued", queued_fields(self._fields()))
        away = self.ground.views["east"].executions(self.uid)
        self.trace.stays = bool(events) and not away
        if not self.trace.stays:
            raise Lost("it should stay home: " + ("it runs at east" if away else "no Event says so"))

    async def _record_queued(self) -> None:
        """What a home Job should look like while it waits: the same Job, suspended."""
        (document,) = [item for item in self.case.documents() if item["kind"] == "Job"]
        document["metadata"] |= {"name": f"{self.name}-queued", "namespace": self.namespace}
        document["spec"]["suspend"] = True
        made = await self._create(document)
        self.uid, self.name = made["metadata"]["uid"], made["metadata"]["name"]
        if not await self.ground.until(lambda: is_suspended(self.lab.job(self.uid) or {}), LIMIT_S):
            raise Lost("a plain Job that is suspended does not say so")
        self._record("queued", queued_fields(self._fields()))

    async def _move_if_due(self, number: int) -> None:
        if self.mode != "moved" or self.case.moves != number or self.may_move is None:
            return
        self.arrived.set()
        await self.may_move.wait()
        if self.case.begins == "idle":  # nothing compared so far has waited for its first pod
            await self._pods(1)
        before = {run["metadata"]["uid"] for _, run in self._runners()}
        for view, pod in self._live():
            await _evict(view, pod)
        if not await self.ground.until(lambda: self._runs_elsewhere(before), 15):
            for view, run in self._runners():
                await view.cluster.delete(JOBS, run["metadata"]["name"], run["metadata"]["namespace"])
        if not await self.ground.until(lambda: self._runs_elsewhere(before), LIMIT_S):
            raise Lost("its pods were evicted, and nothing of it runs again")
        name = [*self.trace.seen][-1]
        assert self.plain is not None
        wanted = {field: value for field, value in self.plain.seen[name].items() if not field.startswith("pod.")}
        await self._until_like(wanted, f"moved after {name}")
        self.trace.seen["moved"] = seen = self._fields()
        self.trace.found += differences(wanted, seen, self.case.name, self.mode, f"moved after {name}")

    def _runs_elsewhere(self, before: set[str]) -> bool:
        new = {run["metadata"]["uid"] for _, run in self._runners()} - before
        return bool(new) and any(
            owner["uid"] in new for _, pod in self._live() for owner in pod["metadata"].get("ownerReferences", ())
        )


class Lost(Exception):
    """A run that cannot go on, and why."""


CLUSTER_WIDE: Final = ("PersistentVolume", "PriorityClass")


#: By `kubectl penstock apply`; with the label alone, which the cluster's admission policy completes; by hand.
WAYS: Final = {"home": "applied", "burst": "label alone", "moved": "by hand"}


def labelled(job: Json) -> Json:
    job = copy.deepcopy(job)
    job["metadata"]["labels"] = {**(job["metadata"].get("labels") or {}), annotations.QUEUE: "vision"}
    return job


def as_home_job(job: Json) -> Json:
    """As docs/kubernetes.md has users write it by hand."""
    job = labelled(job)
    job["spec"] = {**job["spec"], "suspend": True, "managedBy": annotations.MANAGER}
    return job


def on_this_machine(document: Json) -> Json:
    """With the one image that real nodes have, unless the point is that there is none."""
    pod = document.get("spec", {}).get("template", {}).get("spec", {})
    for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
        if not container["image"].startswith("no-such-image"):
            container |= {"image": BUSYBOX, "imagePullPolicy": "Never"}
    return document


def _instance(cron: Json) -> Json:
    """A Job of the CronJob's template, as `kubectl create job --from` makes one."""
    template = copy.deepcopy(cron["spec"]["jobTemplate"])
    metadata = template.setdefault("metadata", {})
    metadata |= {"name": f"{cron['metadata']['name']}-now", "namespace": cron["metadata"]["namespace"]}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), "cronjob.kubernetes.io/instantiate": "manual"}
    return {"apiVersion": "batch/v1", "kind": "Job", **template}


def _bound(document: Json) -> Json:
    """The test bed has no controller that binds claims to volumes, and a volume is bound only once."""
    own = f"-{document['metadata']['namespace']}"
    if document["kind"] == "PersistentVolume":
        document["metadata"]["name"] += own
    if document["kind"] == "PersistentVolumeClaim":
        document["metadata"].setdefault("annotations", {})[BOUND] = "yes"
        document["spec"]["volumeName"] += own
    return document


def _plural(kind: str) -> str:
    return f"{kind.lower()}es" if kind.endswith("s") else f"{kind.lower()}s"


def _moved_on(view: View, pod: Json, seen: str) -> bool:
    now = view.pods.get(pod["metadata"]["name"], pod["metadata"]["namespace"])
    return now is None or is_newer(now, {"metadata": {"resourceVersion": seen}})


async def _evict(view: View, pod: Json) -> None:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/{EVICTIONS}"
    try:
        await asyncio.to_thread(view.given.api.ask, "POST", path, body)
    except NotFound:
        return


def _is_over(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def has_ended(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] in ("Complete", "Failed") and condition["status"] == "True" for condition in conditions
    )


def is_suspended(job: Json) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Suspended" and condition["status"] == "True" for condition in conditions)


def queued_fields(fields: Fields) -> Fields:
    """What is compared while a Job waits: nothing has happened to it yet but that."""
    return {field: value for field, value in fields.items() if field.startswith("status.") or field == "spec.suspend"}


def _expires(job: Json) -> bool:
    """It is about to be deleted, which is the instant to look at."""
    return bool(job["spec"].get("ttlSecondsAfterFinished") == 0)


def wanted_pods(spec: Json, status: Json, live: int) -> int:
    """How many pods the controller wants to run now."""
    if spec.get("suspend"):
        return 0
    if spec.get("completions") is None:  # a work queue: once a pod has succeeded, no new one starts
        return live if status.get("succeeded") else int(spec["parallelism"])
    done = int(status.get("succeeded") or 0) + len(indexes(str(status.get("failedIndexes") or "")))
    return min(int(spec["parallelism"]), int(spec["completions"]) - done)


def indexes(text: str) -> list[int]:
    """`0,2-4` as numbers."""
    numbers: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
