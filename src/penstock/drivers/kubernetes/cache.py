"""Cache of a cluster's execution Jobs, pods and nodes, filled by informers. The Kubernetes driver reads it instead of
asking the API server, and is called with each change.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from penstock.core.model.types import Offer
from penstock.core.units import PERMILLE, Instant, Millis
from penstock.core.values import value
from penstock.drivers import progress
from penstock.drivers.attempt_facts import Reported
from penstock.drivers.driver import Unreachable
from penstock.drivers.kubernetes.devices import Devices
from penstock.drivers.kubernetes.inventory import held, hostname, name_of, requested, sizes, usable
from penstock.drivers.kubernetes.pod_logs import PodLog
from penstock.drivers.kubernetes.pods import End, Scaling, Trouble, annotation_of, has_succeeded, is_active, node_of
from penstock.drivers.kubernetes.tasks import cancel_all
from penstock.drivers.running_pods import RunningPods
from penstock.kube import annotations
from penstock.kube.client import JOBS, NODES, PODS, Cluster, Obj
from penstock.kube.errors import KubeError
from penstock.kube.gpu_requests import pods_at_once
from penstock.kube.informer import Informer, is_newer
from penstock.kube.node_notices import notice_of
from penstock.kube.node_selection import NodeSelection

#: The fields of Jobs and pods that we keep: a cache may have ten thousand of them.
JOB_SPEC: Final = ("parallelism", "completions", "completionMode", "suspend", "activeDeadlineSeconds")
POD_STATUS: Final = (
    "phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses", "podIP",
)  # fmt: skip
META: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "finalizers")
OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"


@value
class PodAddress:
    """A pod that has a host name."""

    index: int
    address: str
    pod: str
    ready: bool


class Execution:
    """One attempt: its execution Job, its pods, and what the driver knows about it."""

    def __init__(self, job: Obj, log: PodLog) -> None:
        self.job, self.log = job, log  #: `log`: of the first pod, which reports for the gang
        self.others: dict[int, PodLog] = {}  #: logs of the gang's other pods, by rank
        self.pods: dict[str, Obj] = {}  #: by name; a pod that succeeded is frozen at that state
        self.begun = False  #: all of it ran at some time
        self.end: End | None = None
        self.out_of_hand = False  #: it is being deleted, and our account may not change it any more
        self.concluded = False  #: its end is final, with the last lines of its log, and may be reported
        self.starters = 0  #: `start` calls in flight; the end is reported after their answer
        self.trouble: Trouble | None = None
        self.trouble_at: Instant = 0
        self.stalled_at: Instant | None = None  #: since when none of its pods runs, and one finds no node
        self.event: Trouble | None = None  #: what the cluster's Events say is in the way of its start
        self.scaling: Scaling | None = None  #: what an autoscaler says of its pods without a node
        self.scaling_at: Instant = 0  #: since when it says so
        self.reported_trouble = ""  #: the last one
        self.ordered_at: Instant | None = None  #: when this process created the Job
        self.held_told = False  #: AttemptQueued was reported
        self.noticed = False  #: NodeNotice was reported
        self.reported = Reported()  #: progress and checkpoints reported so far
        self.shown: RunningPods | None = None  #: its pods' counts, as last reported
        self.placed: dict[str, int] | None = None  #: GPUs by node, as last reported; None: where it was asked for
        self.address = ""  #: the rendezvous address that its pods were told
        self.endpoints: tuple[PodAddress, ...] = ()  #: the host names of its pods, as last written
        self.news = asyncio.Event()
        self.newer = asyncio.Event()  #: set, and replaced, when a newer version of the Job is seen

    def see(self, pod: Obj) -> None:
        """Update a pod. A pod that succeeded stays so: a reclaimed node also deletes pods that are done."""
        name = pod["metadata"]["name"]
        if name not in self.pods or not has_succeeded(self.pods[name]):
            self.pods[name] = pod

    def miss(self, pod: Obj) -> None:
        name = pod["metadata"]["name"]
        if name in self.pods and not has_succeeded(self.pods[name]):
            del self.pods[name]

    @property
    def is_held_for_ever(self) -> bool:
        """True if it is over and being deleted, and our finalizer stays because our account may not take it away."""
        finalizers = self.job["metadata"].get("finalizers") or ()
        return self.out_of_hand and self.concluded and annotations.RESULT in finalizers

    @property
    def name(self) -> str:
        return str(self.job["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"]["namespace"])

    @property
    def attempt(self) -> str:
        return annotation_of(self.job, annotations.ATTEMPT)

    @property
    def forgotten(self) -> bool:
        return bool(annotation_of(self.job, annotations.FORGOTTEN))

    @property
    def kept_ms(self) -> Millis:
        began_with = int(annotation_of(self.job, annotations.RESUME) or 0)
        speed = int(annotation_of(self.job, annotations.SPEED) or PERMILLE)
        return progress.kept_ms(self.log.marks, began_with, speed)

    @property
    def leader(self) -> Obj | None:
        """The first pod of a gang, which reports for all."""
        return self.ranks().get(0)

    def ranks(self) -> dict[int, Obj]:
        """Pods by rank; the newest of each rank, after a retry in place. Pods without an index are numbered as they
        come.
        """
        by_age = sorted(self.pods.values(), key=_age)
        if any(pod["index"] for pod in by_age) or self.size == 1:
            return {int(pod["index"] or 0): pod for pod in by_age}
        return dict(enumerate(by_age))

    @property
    def size(self) -> int:
        """Pods that run at once."""
        return max(1, pods_at_once(self.job["spec"]))

    @property
    def logs(self) -> list[PodLog]:
        return [self.log, *self.others.values()]


class ExecutionCache:
    def __init__(
        self,
        cluster: Cluster,
        installation: str,
        namespaces: tuple[str, ...],
        places: Mapping[str, tuple[Offer, NodeSelection]],
        make_log: Callable[[str, int], PodLog],
        changed: Callable[[Execution], None],
        room_changed: Callable[[], None],
        sync_changed: Callable[[str], None],
    ) -> None:
        self.places, self.make_log = places, make_log
        self.pods_moved: Callable[[list[str]], None] = lambda _: None  #: called with nodes that pods came to or left
        self.changed, self.room_changed = changed, room_changed
        self.by_name: dict[str, Execution] = {}
        self.waiting_pods: dict[str, dict[str, Obj]] = {}  #: by execution: pods whose Job was not seen yet
        self.taken: dict[str, Counter[str]] = {place.resource: Counter() for _, place in places.values()}
        ours = f"{annotations.INSTALLATION}={annotations.label_value(installation)}"
        others = f"{annotations.INSTALLATION}!={annotations.label_value(installation)}"
        self.jobs = [
            Informer(
                cluster, JOBS, self._job, namespace=namespace, labels=ours, keep=keep_job, sync_changed=sync_changed
            )
            for namespace in namespaces
        ]
        self.pods = [
            Informer(cluster, PODS, self._pod, namespace=namespace, labels=ours, keep=keep_pod)
            for namespace in namespaces
        ]
        self.ending: set[str] = set()  #: namespaces that are being deleted, as `Connection.ending`
        self.nodes = Informer(cluster, NODES, self._node, keep=keep_node)
        self.others = Informer(cluster, PODS, self._other, labels=others, fields=OVER, keep=self._keep_other)
        self.devices = Devices(cluster, room_changed)
        self.tasks: list[asyncio.Task[None]] = []

    # --- coming and going --------------------------------------------------------------------------------------------

    @property
    def informers(self) -> list[Informer]:
        return [*self.jobs, *self.pods, self.nodes, self.others]

    async def follow(self) -> None:
        """Start the informers; returns when all are in sync. May be cancelled and called again."""
        try:
            await self.devices.follow()
        except KubeError as error:
            raise Unreachable(f"its API cannot be read: {error}") from error
        if not self.tasks:
            self.tasks = [
                asyncio.create_task(informer.run(), name=f"informer {informer.kind.plural}")
                for informer in self.informers
            ]
        for informer in (*self.informers, *self.devices.informers):
            await self._in_step(informer)

    async def _in_step(self, informer: Informer) -> None:
        waits = asyncio.ensure_future(informer.in_step.wait())
        try:
            await asyncio.wait([waits], timeout=8)
        finally:
            waits.cancel()
        if not informer.in_step.is_set():
            raise Unreachable(f"its {informer.kind.plural} cannot be read: {informer.why}")

    def check(self) -> None:
        """Raise `Unreachable` unless the informers of Jobs and pods are in sync: an inventory must be current. Of a
        namespace that was deleted with our Role nothing can be read, and nothing need be once nothing runs there.
        """
        alive = {execution.namespace for execution in self if execution.end is None}
        for informer in (*self.jobs, *self.pods):
            if not informer.in_step.is_set() and informer.namespace not in self.ending - alive:
                raise Unreachable(f"its {informer.kind.plural} cannot be read: {informer.why}")

    async def close(self) -> None:
        logs = [log.task for execution in self.by_name.values() for log in execution.logs if log.task is not None]
        await cancel_all([*self.tasks, *logs])
        await self.devices.close()

    # --- what is there -----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Execution]:
        return iter(list(self.by_name.values()))

    def note(self, job: Obj) -> Execution:
        """Cache the API server's answer before the watch brings it."""
        self._job(None, keep_job(job))
        return self.by_name[job["metadata"]["name"]]

    def node_names(self) -> Iterator[str] | None:
        """An iterator, because most callers stop early: every change of every Job asks for it."""
        return map(name_of, self.nodes) if self.nodes.in_step.is_set() else None

    def hostnames(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        by_name = {name: self.nodes.get(name) for name in nodes}
        return tuple(name if node is None else hostname(node) for name, node in by_name.items())

    def usable(self, offer: str, avoided: tuple[str, ...], keep_free: int) -> tuple[tuple[str, int], ...]:
        offered, place = self.places[offer]
        taken = self.devices.taken(place.resource, self.taken[place.resource])
        return usable(place, self.with_devices(), taken, avoided, offered.shapes[-1].gpus, keep_free)

    def sizes(self, offer: str) -> list[int]:
        """GPUs of each node of the offer, whoever has them."""
        _, place = self.places[offer]
        return sizes(place, self.with_devices())

    def with_devices(self) -> Iterator[Obj]:
        """All nodes, with the GPUs that are devices there, and no number in a node's status."""
        return map(self.devices.supply.of, self.nodes)

    # --- news --------------------------------------------------------------------------------------------------------

    def _job(self, before: Obj | None, job: Obj | None) -> None:
        if job is None:
            gone = self.by_name.pop(before["metadata"]["name"], None) if before else None
            if gone is not None:
                gone.news.set()
                for log in gone.logs:
                    log.cancel()
            return
        name = job["metadata"]["name"]
        execution = self.by_name.get(name)
        if execution is None:
            execution = self.by_name[name] = Execution(
                job, self.make_log(annotation_of(job, annotations.ATTEMPT), pods_at_once(job["spec"]))
            )
            execution.pods = self.waiting_pods.pop(name, {})
        elif job["metadata"]["uid"] != execution.job["metadata"]["uid"] or is_newer(job, execution.job):
            execution.job = job
            execution.newer.set()
            execution.newer = asyncio.Event()
        else:
            return
        self.changed(execution)

    def _pod(self, before: Obj | None, pod: Obj | None) -> None:
        seen = pod or before
        assert seen is not None
        execution = self.by_name.get(seen["execution"])
        if execution is None:
            self._early_pod(seen, gone=pod is None)
            return
        was_on, is_on = _node_in_use(before), _node_in_use(pod)
        (execution.see if pod else execution.miss)(seen)
        self.changed(execution)
        never_ran = annotation_of(execution.job, annotations.ENDING) == "refused"
        if was_on and was_on != is_on and not never_ran:  # otherwise what a start gave up would be worth another one
            self.pods_moved([was_on])

    def _early_pod(self, pod: Obj, *, gone: bool) -> None:
        """Keep a pod whose Job was not seen yet."""
        pods = self.waiting_pods.setdefault(pod["execution"], {})
        pods[pod["metadata"]["name"]] = pod
        if gone:
            del pods[pod["metadata"]["name"]]
        if not pods:
            del self.waiting_pods[pod["execution"]]

    def _node(self, before: Obj | None, node: Obj | None) -> None:
        seen = node or before
        assert seen is not None
        if node is None or notice_of(node):
            for execution in self:
                if any(
                    is_active(pod) and pod["spec"].get("nodeName") == name_of(seen) for pod in execution.pods.values()
                ):
                    self.changed(execution)
        self.room_changed()

    def _other(self, before: Obj | None, pod: Obj | None) -> None:
        for shown, sign in ((before, -1), (pod, 1)):
            if shown is not None and shown["node"]:
                for resource, gpus in shown["gpus"].items():
                    self.taken[resource][shown["node"]] += sign * gpus
        if (before and before["gpus"]) or (pod and pod["gpus"]):
            self.room_changed()
        was_on, is_on = (shown["node"] if shown else "" for shown in (before, pod))
        if was_on != is_on:
            self.pods_moved([node for node in (was_on, is_on) if node])

    def _keep_other(self, pod: Obj) -> Obj:
        asked = {resource: requested(pod, resource) for resource in self.taken}
        gpus = {resource: count for resource, count in asked.items() if count}
        return {"metadata": _meta(pod), "node": pod["spec"].get("nodeName", ""), "gpus": gpus}


def _node_in_use(pod: Obj | None) -> str:
    return node_of(pod) if pod is not None and is_active(pod) else ""


def _age(pod: Obj) -> tuple[str, str]:
    return str(pod["metadata"].get("creationTimestamp", "")), str(pod["metadata"]["name"])


def keep_job(job: Obj) -> Obj:
    spec = {key: job["spec"][key] for key in JOB_SPEC if key in job["spec"]}
    pod = job["spec"]["template"]["spec"]
    spec["grace"] = int(pod.get("terminationGracePeriodSeconds") or 30)
    spec["restarts"] = pod.get("restartPolicy") == "OnFailure"
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    if any(rule.get("action") == "Ignore" and "onExitCodes" in rule for rule in rules):
        spec["ignores"] = True
    ours = {
        key: text
        for key, text in (job["metadata"].get("annotations") or {}).items()
        if key.startswith(annotations.DOMAIN)
    }
    return {
        "metadata": {**_meta(job), "annotations": ours, "ownerReferences": job["metadata"].get("ownerReferences")},
        "owner": (job["metadata"].get("labels") or {}).get(annotations.INSTALLATION, ""),
        "spec": spec,
        "status": job.get("status") or {},
    }


def keep_pod(pod: Obj) -> Obj:
    meta, status = pod["metadata"], pod.get("status") or {}
    return {
        "metadata": _meta(pod),
        "execution": (meta.get("labels") or {}).get(annotations.EXECUTION, ""),
        "index": (meta.get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", ""),
        "container": pod["spec"]["containers"][0]["name"],
        "gpus": held(pod),
        "spec": {"nodeName": pod["spec"].get("nodeName", "")},
        "status": {key: status[key] for key in POD_STATUS if key in status},
    }


def keep_node(node: Obj) -> Obj:
    status = node.get("status") or {}
    labels = node["metadata"].get("labels") or {}
    spec = {key: node["spec"][key] for key in ("unschedulable", "taints") if key in node.get("spec", {})}
    kept = {key: status[key] for key in ("capacity", "allocatable", "conditions") if key in status}
    return {"metadata": {**_meta(node), "labels": labels}, "spec": spec, "status": kept}


def _meta(obj: Obj) -> Obj:
    return {key: obj["metadata"][key] for key in META if key in obj["metadata"]}
