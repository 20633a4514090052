"""Reconciles an execution with each change of its Job or pods: what it needs while it runs, and how it ended. The cache
calls `Reconciler.look_at` with each change, `KubernetesDriver` when it opens and with each tick.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.core.model import events as e
from penstock.core.model.types import STANDING, PodCounts
from penstock.core.units import NEVER, SECOND
from penstock.drivers import attempt_facts
from penstock.drivers.kubernetes import deadlines, host_names, provisioning, terminate
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.capacity import CapacityReporter
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.counts import counts_at_end, counts_now
from penstock.drivers.kubernetes.deadlines import deadline_of
from penstock.drivers.kubernetes.execution_job import is_gang, places_of, rendezvous
from penstock.drivers.kubernetes.logs import Logs
from penstock.drivers.kubernetes.pods import (
    End,
    annotation_of,
    end_of,
    has_begun,
    is_active,
    is_batch,
    is_stalled,
    node_of,
    unreplaced,
)
from penstock.drivers.kubernetes.provisioning_request import awaits_nodes
from penstock.drivers.kubernetes.trouble import TroubleReporter
from penstock.kube import annotations, errors
from penstock.kube.client import CONFIG_MAPS, NODES, PODS, Obj
from penstock.kube.node_notices import notice_of

STALLED: Final = "none of its pods runs any more, and the cluster has no node for their replacements"
HELD_SECONDS: Final = 2.0
HELD: Final = "its queue there holds it back until there is quota for it"
BREATH_SECONDS: Final = 0.05  #: from a start's answer until its end is reported, if it ended meanwhile
LOG_SECONDS: Final = 5.0  #: how long we wait for the last lines of an ended pod's log


class Reconciler:
    def __init__(self, here: Connection, capacity: CapacityReporter, logs: Logs) -> None:
        self.here, self.capacity, self.logs = here, capacity, logs
        self.troubles = TroubleReporter(here)

    def look_at(self, execution: Execution) -> None:
        """Called with each change of the Job or a pod."""
        pods = list(execution.pods.values())
        execution.begun = execution.begun or has_begun(execution.job, pods)
        if self.here.opened and execution.end is None:
            self.logs.follow(execution)
            self._mind(execution, pods)
            execution.end = end_of(execution.job, pods, self.here.executions.node_names()) or _end_out_of_hand(
                execution
            )
            if execution.end is not None:
                self.here.tasks.see_to(f"end of {execution.name}", self._conclude, execution)
            if execution.end is None:
                self._tell_counts(execution, pods)
                self._tell_places(execution, pods)
        execution.news.set()

    def _tell_counts(self, execution: Execution, pods: list[Obj]) -> None:
        counts = counts_now(execution.job, pods)
        if counts != execution.shown:
            execution.shown = counts
            self.here.pods_changed(execution.attempt)

    def _tell_places(self, execution: Execution, pods: list[Obj]) -> None:
        """Report the nodes of its pods once all have one, if these are others than the engine counts."""
        asked = annotation_of(execution.job, annotations.PLACES)
        place = self.here.places.get(annotation_of(execution.job, annotations.OFFER))
        on_nodes = [pod for pod in pods if is_active(pod) and node_of(pod)]
        if not asked or place is None or len(on_nodes) < execution.size:
            return
        placed: Counter[str] = Counter()
        for pod in on_nodes:
            placed[node_of(pod)] += int(pod["gpus"].get(place.resource, 0))
        if placed != (places_of(asked) if execution.placed is None else execution.placed):
            execution.placed = dict(placed)
            self.here.say(e.AttemptPlaced(self.here.clock(), execution.attempt, tuple(sorted(placed.items()))))

    # --- while it is not over ----------------------------------------------------------------------------------------

    def _mind(self, execution: Execution, pods: list[Obj]) -> None:
        """Start what the execution needs while it has not ended."""
        here, see_to = self.here, self.here.tasks.see_to
        job, told_to_end = execution.job, annotation_of(execution.job, annotations.ENDING)
        self.troubles.note(execution, pods)
        if not told_to_end and not execution.begun and _is_held(execution):
            see_to(f"held {execution.name}", self._say_held, execution)
        if not told_to_end and job["metadata"].get("deletionTimestamp"):
            see_to(f"deleted {execution.name}", self._take_down, execution)
        if told_to_end and job["spec"].get("suspend") and job["spec"].get("parallelism", 1):
            see_to(
                f"still {execution.name}",
                terminate.end,
                here,
                execution,
                told_to_end,
                annotation_of(job, annotations.WORDS),
            )
        if not told_to_end and (taken := unreplaced(job, pods)):
            see_to(f"disrupted {execution.name}", terminate.end, here, execution, "lost", taken)
        self._note_stall(execution, pods)
        if not told_to_end and self._is_stalled_too_long(execution):
            see_to(f"stalled {execution.name}", terminate.end, here, execution, "lost", STALLED)
        if not told_to_end:
            self._tell_notice(execution, pods)
        if not told_to_end and self._has_lost_nodes(job, pods):
            see_to(f"orphan {execution.name}", self._check_nodes, execution)
        if not told_to_end and execution.ordered_at is not None and (job["status"] or {}).get("startTime"):
            late, execution.ordered_at = here.clock() - execution.ordered_at > SECOND, None
            if late and deadline_of(job) < NEVER:  # activeDeadlineSeconds counts from the Job's start, which came late
                see_to(f"late {execution.name}", deadlines.move, here, execution, deadline_of(job))
        if host_names.wanted(execution) != execution.endpoints:
            see_to(f"names {execution.name}", host_names.publish, here, execution)
        if is_gang(job["spec"]) and execution.leader is not None:
            address = str(execution.leader["status"].get("podIP", ""))
            if address and address != execution.address:
                execution.address = address
                see_to(f"gang {execution.name}", self._tell_address, execution, address)

    async def _take_down(self, execution: Execution) -> None:
        await terminate.take_down(self.here, execution)
        if execution.out_of_hand:  # no change of ours will come to be looked at
            self.look_at(execution)

    async def _say_held(self, execution: Execution) -> None:
        """Report once that the cluster's own queue holds it. Kueue suspends every Job for a moment; this runs for those
        that stay suspended.
        """
        await asyncio.sleep(HELD_SECONDS)
        if (
            _is_held(execution)
            and not execution.held_told
            and execution.end is None
            and not annotation_of(execution.job, annotations.ENDING)
        ):
            execution.held_told = True
            self.here.say(e.AttemptQueued(self.here.clock(), execution.attempt, HELD))

    def _note_stall(self, execution: Execution, pods: list[Obj]) -> None:
        if not (execution.begun and is_stalled(pods)):
            execution.stalled_at = None
        elif execution.stalled_at is None:
            execution.stalled_at = self.here.clock()

    def _is_stalled_too_long(self, execution: Execution) -> bool:
        """True if its replacement pods found no node for as long as a start may wait for one."""
        offer = self.here.offers.get(annotation_of(execution.job, annotations.OFFER))
        settings = self.here.settings
        most_ms = settings.room_ms if offer is None or offer.term in STANDING else settings.scale_ms
        return execution.stalled_at is not None and self.here.clock() - execution.stalled_at >= most_ms

    def _tell_notice(self, execution: Execution, pods: list[Obj]) -> None:
        """Report once that a node of it will be taken away: the engine stops it in time. What is said of nodes that we
        rent, whoever rents them says; of a batch, only the pods of that node are lost.
        """
        if execution.noticed or is_batch(execution.job):
            return
        on = {node_of(pod) for pod in pods if is_active(pod) and node_of(pod)}
        nodes = [node for node in map(self.here.executions.nodes.get, on) if node is not None and not _is_rented(node)]
        if words := next(filter(None, map(notice_of, nodes)), ""):
            execution.noticed = True
            self.here.say(e.NodeNotice(self.here.clock(), execution.attempt, words))

    def _has_lost_nodes(self, job: Obj, pods: list[Obj]) -> bool:
        """True if a pod's node is gone; of a batch, only if none of its pods has a node any more."""
        alive = any(is_active(pod) and node_of(pod) and not self._is_orphan(pod) for pod in pods)
        return any(map(self._is_orphan, pods)) and not (is_batch(job) and alive)

    def _is_orphan(self, pod: Obj) -> bool:
        return is_active(pod) and bool(node_of(pod)) and self.here.executions.nodes.get(node_of(pod)) is None

    async def _check_nodes(self, execution: Execution) -> None:
        """A pod's node is missing from our cache. Cache and pod may both be stale, and the pod may have succeeded: read
        both from the API server before ending the attempt as lost.
        """
        cluster = self.here.cluster
        for node in {node_of(pod) for pod in execution.pods.values() if self._is_orphan(pod)}:
            try:
                await cluster.get(NODES, node)
            except errors.NotFound:
                pods, _ = await cluster.list(
                    PODS, execution.namespace, labels=f"{annotations.EXECUTION}={execution.name}"
                )
                if any(is_active(pod) and node_of(pod) == node for pod in pods):
                    await terminate.end(self.here, execution, "lost", f"node {node} is gone")
                    return

    async def _tell_address(self, execution: Execution, address: str) -> None:
        meta, cluster = execution.job["metadata"], self.here.cluster
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        where = {
            "metadata": {"name": rendezvous(execution.name), "ownerReferences": [owner]},
            "data": {"address": address},
        }
        try:
            await cluster.create(CONFIG_MAPS, where, execution.namespace)
        except errors.AlreadyExists:
            await cluster.patch(CONFIG_MAPS, rendezvous(execution.name), {"data": where["data"]}, execution.namespace)

    # --- its end -----------------------------------------------------------------------------------------------------

    async def _conclude(self, execution: Execution) -> None:
        """Read the last lines of the log first, since they may announce a checkpoint; then report the end."""
        with suppress(errors.KubeError):  # `terminate.forget` tries again
            await host_names.withdraw(self.here, execution)
        await provisioning.remove(self.here, execution)
        self.logs.follow(execution)
        if execution.log.task is not None and not execution.log.task.done():
            if not execution.log.heard and not execution.log.failed:
                await asyncio.wait([execution.log.task], timeout=BREATH_SECONDS * 10)
            if execution.log.heard:
                await asyncio.wait([execution.log.task], timeout=LOG_SECONDS)
        if rest := [log.task for log in execution.others.values() if log.heard and log.task and not log.task.done()]:
            await asyncio.wait(rest, timeout=LOG_SECONDS)
        pods = list(execution.pods.values())
        execution.end = (
            end_of(execution.job, pods, self.here.executions.node_names(), execution.log.finished) or execution.end
        )
        assert execution.end is not None
        node, job = execution.end.node, annotation_of(execution.job, annotations.JOB)
        words = execution.end.words + (self.capacity.fault(node, job) if node else "")
        execution.end = replace(execution.end, began=execution.begun, words=words)
        execution.concluded = True
        execution.news.set()
        if not execution.starters:
            self.say_end(execution)

    def say_end(self, execution: Execution) -> None:
        end = execution.end
        if end is None or annotation_of(execution.job, annotations.ENDING) == "refused":
            return  # the `start` call answers that it never ran
        self.here.say(
            attempt_facts.ended(
                self.here.clock(), execution.attempt, end.phase, execution.kept_ms, end.words, counted(execution, end)
            )
        )

    def say_end_soon(self, execution: Execution) -> None:
        """Report the end after the `start` call's answer, if the end waited for it."""
        if execution.concluded and not execution.starters:
            asyncio.get_running_loop().call_later(BREATH_SECONDS, self.say_end, execution)


def _end_out_of_hand(execution: Execution) -> End | None:
    """The end of what is deleted with its namespace, where we may not even note that: when its pods are gone."""
    if not execution.out_of_hand or any(map(is_active, execution.pods.values())):
        return None
    return End("lost", terminate.NAMESPACE_GOES, began=execution.begun)


def counted(execution: Execution, end: End) -> PodCounts:
    return counts_at_end(execution.job, list(execution.pods.values()), end.phase)


def _is_held(execution: Execution) -> bool:
    """True if somebody else suspended it: what we suspend has parallelism 0, or waits for its nodes."""
    suspended = bool(execution.job["spec"].get("suspend")) and execution.job["spec"].get("parallelism", 1) > 0
    return suspended and not awaits_nodes(execution.job)


def _is_rented(node: Obj) -> bool:
    return annotations.NODE in (node["metadata"].get("labels") or {})
