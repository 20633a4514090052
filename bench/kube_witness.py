"""What really happened in the clusters, as somebody sees it who only watches. `bench.kill_kube` asks it in the end.

Both clusters of a test bed keep their objects in one etcd, so every change in either has a number in one order. What
overlaps by these numbers did overlap: no clock is compared, and nothing depends on who heard of it first.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from bench.pair import LABEL
from penstock.front.status import bound_attempt
from penstock.kube import annotations
from penstock.kube.client import JOBS, NODES, PODS, Cluster, Kind
from penstock.kube.errors import KubeError

OVER: Final = ("Succeeded", "Failed")
Json = dict[str, Any]


@dataclass
class PodLife:
    """One pod: for whom, and from when to when it ran."""

    home: str  #: the home Job's name
    attempt: str
    index: str = ""
    ran: int | None = None  #: the change that showed it running
    over: int | None = None  #: the change that showed it ended, or gone
    phase: str = ""
    node: str = ""
    ghost: bool = False  #: its node is gone, and it with it, whatever is said of it later
    told: bool = False  #: to end, before it had
    began_at: int | None = None  #: by its node's clock, in milliseconds, whole seconds
    ended_at: int | None = None
    story: list[str] = field(default_factory=list)  #: what was seen of it, change by change


@dataclass
class HomeLife:
    """One home Job: what it was bound to, change by change, and how it looks now."""

    bound: list[tuple[int, str]] = field(default_factory=list)
    now: Json | None = None
    job: str = ""  #: as the journal calls it


@dataclass
class Made:
    """An execution Job that may run something: not a tombstone."""

    home: str
    attempt: str
    at: int  #: the change that made it
    story: list[str] = field(default_factory=list)


class Witness:
    def __init__(self) -> None:
        self.pods: dict[str, PodLife] = {}  #: by uid
        self.homes: dict[str, HomeLife] = {}  #: by name
        self.made: dict[str, Made] = {}  #: execution Jobs by uid
        self.gone: dict[str, int] = {}  #: nodes, with the change that took them away
        self.executions: dict[str, Json] = {}  #: that are there now, by uid
        self.changed = asyncio.Event()

    async def watch(self, clusters: Mapping[str, Cluster]) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for cluster in clusters.values():
                tasks.create_task(self._follow(cluster, JOBS, annotations.EXECUTION))
                tasks.create_task(self._follow(cluster, PODS, annotations.EXECUTION))
                tasks.create_task(self._follow(cluster, NODES, ""))
            tasks.create_task(self._follow(clusters["lab"], JOBS, annotations.QUEUE))

    async def _follow(self, cluster: Cluster, kind: Kind, labels: str) -> None:
        """Every change, none twice: on from where it was, if the watch ends."""
        objects, version = await cluster.list(kind, labels=labels)
        for obj in objects:
            self.hear(kind, "ADDED", obj)
        while True:
            with suppress(KubeError):
                async for what, obj in cluster.watch(kind, labels=labels, since=version):
                    version = obj["metadata"]["resourceVersion"] if obj else version
                    if what in ("ADDED", "MODIFIED", "DELETED"):
                        self.hear(kind, what, obj)

    def hear(self, kind: Kind, what: str, obj: Json) -> None:
        meta = obj["metadata"]
        revision, gone = int(meta["resourceVersion"]), what == "DELETED"
        if kind is NODES and gone:
            self._node_gone(meta["name"], revision)
        if LABEL not in (meta.get("labels") or {}):
            return  # a tombstone, or none of ours
        if kind is PODS:
            self._pod(obj, revision, gone=gone)
        elif annotations.EXECUTION in meta["labels"]:
            self._execution(obj, revision, gone=gone)
        else:
            self._home(obj, revision, gone=gone)
        self.changed.set()

    def _pod(self, pod: Json, revision: int, *, gone: bool) -> None:
        meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase", "")
        life = self.pods.setdefault(meta["uid"], PodLife(meta["labels"][LABEL], _attempt(pod), _index(meta)))
        life.told = life.told or ("deletionTimestamp" in meta and life.phase not in OVER)
        life.began_at, life.ended_at = _times(pod, life)
        life.phase, life.node = phase, pod["spec"].get("nodeName", "")
        life.story.append(f"{revision} {_looks(pod)}{' gone' if gone else ''}")
        ghost = revision > self.gone.get(life.node, revision)
        if phase in ("Running", *OVER) and life.began_at is not None and life.ran is None and not ghost:
            life.ran = revision
        if (gone or phase in OVER) and life.over is None and not ghost:
            life.over = revision
        self._lay(life)

    def _node_gone(self, name: str, revision: int) -> None:
        self.gone[name] = revision
        for life in self.pods.values():
            self._lay(life)

    def _lay(self, life: PodLife) -> None:
        """A pod is over with its node. Kubernetes shows it as it was for a minute, and kwok may let it end well yet."""
        if life.over is None and life.node in self.gone:
            life.over, life.ghost = self.gone[life.node], True

    def _execution(self, job: Json, revision: int, *, gone: bool) -> None:
        meta = job["metadata"]
        attempt = (meta.get("annotations") or {}).get(annotations.ATTEMPT, "")
        made = self.made.setdefault(meta["uid"], Made(meta["labels"][LABEL], attempt, revision))
        made.story.append(f"{revision} {_looks(job)}{' gone' if gone else ''}")
        if gone:
            self.executions.pop(meta["uid"], None)
        else:
            self.executions[meta["uid"]] = job

    def _home(self, job: Json, revision: int, *, gone: bool) -> None:
        meta = job["metadata"]
        life = self.homes.setdefault(meta["name"], HomeLife())
        life.now = None if gone else job
        life.job = life.job or (meta.get("annotations") or {}).get(annotations.JOB, "")
        if (bound := bound_attempt(job)) and (not life.bound or life.bound[-1][1] != bound):
            life.bound.append((revision, bound))

    # --- what must not be --------------------------------------------------------------------------------------------

    def doubled(self) -> Iterator[str]:
        by_home: dict[str, list[PodLife]] = {}
        for pod in self.pods.values():
            if pod.ran is not None:
                by_home.setdefault(pod.home, []).append(pod)
        for ran in by_home.values():
            yield from _doubled(sorted(ran, key=lambda pod: pod.ran or 0))
        yield from self._unbound()

    def _unbound(self) -> Iterator[str]:
        """Bound first, then made; and never bound back to an older attempt."""
        for made in self.made.values():
            bound = self.homes[made.home].bound if made.home in self.homes else []
            if not any(revision < made.at and attempt == made.attempt for revision, attempt in bound):
                yield f"the Job of {made.attempt} was made before {made.home} was bound to it"
        for name, life in self.homes.items():
            numbers = [_number(attempt) for _, attempt in life.bound]
            if numbers != sorted(numbers):
                yield f"{name} was bound to {', then to '.join(attempt for _, attempt in life.bound)}"

    def said_of(self, home: str) -> list[Json]:
        """As a job of `bench.kill` bears witness: when each of its pods began and ended."""
        ran = [pod for pod in self.pods.values() if pod.home == home and pod.began_at is not None]
        job = self.homes[home].job
        began = [
            {"what": "began", "at": pod.began_at, "attempt": pod.attempt, "alone": True, "job": job} for pod in ran
        ]
        ended = [
            {"what": "ended", "at": pod.ended_at, "attempt": pod.attempt}
            for pod in ran
            if pod.ended_at and not pod.ghost
        ]
        return sorted((*began, *ended), key=lambda entry: entry["at"])

    def story_of(self, home: str) -> list[str]:
        """All that was seen of its attempts, in the order in which it happened."""
        pods = [
            f"{line}  pod of {pod.attempt} on {pod.node}"
            for pod in self.pods.values()
            if pod.home == home
            for line in pod.story
        ]
        jobs = [
            f"{line}  Job of {made.attempt}" for made in self.made.values() if made.home == home for line in made.story
        ]
        nodes = {pod.node for pod in self.pods.values() if pod.home == home} & set(self.gone)
        gone = [f"{self.gone[node]} node {node} is gone" for node in nodes]
        return sorted((*pods, *jobs, *gone), key=lambda line: int(line.split()[0]))

    def has_pods(self, attempt: str) -> bool:
        return any(pod.attempt == attempt and pod.over is None for pod in self.pods.values())

    def succeeded(self, home: str, *, ghosts: bool = False) -> int:
        """By themselves. `ghosts`: those included that were said to succeed when their node was gone, or once they were
        told to end: such a one has kept its work, and is not done.
        """
        ended = [pod for pod in self.pods.values() if pod.home == home and pod.phase == "Succeeded"]
        return sum(ghosts or not (pod.ghost or pod.told) for pod in ended)


def _doubled(ran: Iterable[PodLife]) -> Iterator[str]:
    """Of one home Job's pods, in the order in which they began to run."""
    before: list[PodLife] = []
    for pod in ran:
        for other in before:
            both = f"{other.attempt} and {pod.attempt} of {pod.home}"
            if other.over is None or other.over > (pod.ran or 0):
                yield f"{both} ran at once"
            elif other.phase == "Succeeded" and not (other.ghost or other.told):
                yield f"{both}: it ran again though it had succeeded"
            elif other.attempt == pod.attempt and other.index == pod.index:
                yield f"{pod.attempt} of {pod.home} ran twice"
        before.append(pod)


def _looks(obj: Json) -> str:
    """What matters of an execution Job or its pod, in a line."""
    status, marks = obj.get("status") or {}, obj["metadata"].get("annotations") or {}
    conditions = (
        f"{condition['type']}:{condition.get('reason', '')}"
        for condition in status.get("conditions") or ()
        if condition["status"] == "True"
    )
    words = (
        status.get("phase", ""),
        "deleted" if "deletionTimestamp" in obj["metadata"] else "",
        " ".join(text for text in conditions if not text.startswith(("Pod", "Ready", "Init", "Containers"))),
        f"told {marks[annotations.ENDING]} ({marks.get(annotations.WORDS)})" if annotations.ENDING in marks else "",
    )
    return " ".join(word for word in words if word)


def _attempt(pod: Json) -> str:
    variables = pod["spec"]["containers"][0].get("env") or ()
    return next((str(variable.get("value")) for variable in variables if variable["name"] == "PENSTOCK_ATTEMPT"), "")


def _index(meta: Json) -> str:
    return str((meta.get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", ""))


def _times(pod: Json, life: PodLife) -> tuple[int | None, int | None]:
    began, ended = life.began_at, life.ended_at
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        for state in (container.get("state") or {}).values():
            began = began or _millis(state.get("startedAt"))
            ended = ended or _millis(state.get("finishedAt"))
    return began, ended


def _millis(text: str | None) -> int | None:
    return int(datetime.fromisoformat(text).timestamp() * 1000) if text else None


def _number(attempt: str) -> int:
    return int(attempt.rpartition(".")[2])


def has_ended(job: Json, kind: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def brief(job: Json) -> str:
    """For a finding."""
    meta = job["metadata"]
    fields = {key: meta.get(key) for key in ("name", "finalizers", "deletionTimestamp") if meta.get(key)}
    return json.dumps({**fields, "annotations": meta.get("annotations"), "status": job.get("status")})[:600]
