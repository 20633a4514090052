"""What follows when something of an attempt's Job changed in the cluster: what it needs of us while it lives, and how
it ended. `Executions` calls `Reconciler.look_at` with each change; `KubernetesDriver` when it opens, and with its tick.
"""

import asyncio
from dataclasses import replace
from typing import Final

from penstock.core.model import events as e
from penstock.core.units import NEVER, SECOND
from penstock.drivers import attempt_facts
from penstock.drivers.kubernetes import deadlines, terminate
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.capacity import CapacityReporter
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.deadlines import deadline_of
from penstock.drivers.kubernetes.execution_job import is_gang, rendezvous
from penstock.drivers.kubernetes.logs import Logs
from penstock.drivers.kubernetes.pods import Trouble, end_of, has_begun, is_active, node_of, said, trouble_of
from penstock.kube import annotations, errors
from penstock.kube.client import CONFIG_MAPS, NODES, PODS, Obj

HELD_SECONDS: Final = 2.0
HELD: Final = "its queue there holds it back until there is quota for it"
BREATH_SECONDS: Final = 0.05  #: from the answer to a start until its end is said, if it ended meanwhile
LOG_SECONDS: Final = 5.0  #: how long an end waits for the last lines of its log


class Reconciler:
    def __init__(self, here: Connection, room: CapacityReporter, logs: Logs) -> None:
        self.here, self.room, self.logs = here, room, logs

    def look_at(self, one: Execution) -> None:
        """Something of it changed."""
        pods = list(one.pods.values())
        one.begun = one.begun or has_begun(one.job, pods)
        if self.here.opened and one.end is None:
            self.logs.follow(one)
            self._mind(one, pods)
            one.end = end_of(one.job, pods, self.here.executions.node_names())
            if one.end is not None:
                self.here.chores.see_to(f"end of {one.name}", self._conclude, one)
        one.news.set()

    # --- while it is not over ----------------------------------------------------------------------------------------

    def _mind(self, one: Execution, pods: list[Obj]) -> None:
        """What it needs of us while it is not over."""
        here, see_to = self.here, self.here.chores.see_to
        job, told_to_end = one.job, said(one.job, annotations.ENDING)
        self._note_trouble(one, pods)
        if not told_to_end and not one.begun and _is_held(one):
            see_to(f"held {one.name}", self._say_held, one)
        if not told_to_end and job["metadata"].get("deletionTimestamp"):
            see_to(f"deleted {one.name}", terminate.take_down, here, one)
        if told_to_end and job["spec"].get("suspend") and job["spec"].get("parallelism", 1):
            see_to(f"still {one.name}", terminate.end, here, one, told_to_end, said(job, annotations.WORDS))
        if not told_to_end and any(self._is_orphan(pod) for pod in pods):
            see_to(f"orphan {one.name}", self._check_nodes, one)
        if not told_to_end and one.ordered_at is not None and (job["status"] or {}).get("startTime"):
            late, one.ordered_at = here.clock() - one.ordered_at > SECOND, None
            if late and deadline_of(job) < NEVER:  # its time counts from its start, and that was long after we said so
                see_to(f"late {one.name}", deadlines.move, here, one, deadline_of(job))
        if is_gang(job["spec"]) and one.leader is not None:
            address = str(one.leader["status"].get("podIP", ""))
            if address and address != one.address:
                one.address = address
                see_to(f"gang {one.name}", self._tell_address, one, address)

    async def _say_held(self, one: Execution) -> None:
        """Kueue suspends every Job for a moment; one that it leaves so waits for its turn. Told once."""
        await asyncio.sleep(HELD_SECONDS)
        if _is_held(one) and not one.held_told and one.end is None and not said(one.job, annotations.ENDING):
            one.held_told = True
            self.here.say(e.AttemptQueued(self.here.clock(), one.attempt, HELD))

    def _note_trouble(self, one: Execution, pods: list[Obj]) -> None:
        job = one.job
        found = trouble_of(job, pods)
        if not pods and not job["spec"].get("suspend"):
            found = Trouble("pods", "the cluster makes no pod for it; a quota or a rule may be in the way")
        if one.begun or (found is not None and rendezvous(one.name) in found.words):
            found = None  # the pods of a gang wait for us to say where they meet
        if found is None or one.trouble is None or found.kind != one.trouble.kind:
            one.trouble_at = self.here.clock()
        one.trouble = found

    def _is_orphan(self, pod: Obj) -> bool:
        return is_active(pod) and bool(node_of(pod)) and self.here.executions.nodes.get(node_of(pod)) is None

    async def _check_nodes(self, one: Execution) -> None:
        """A pod's node is not in our list. The list may be behind, and so may what we know of the pod, which may have
        ended well before: only the cluster's own word ends the attempt."""
        cluster = self.here.cluster
        for node in {node_of(pod) for pod in one.pods.values() if self._is_orphan(pod)}:
            try:
                await cluster.get(NODES, node)
            except errors.NotFound:
                pods, _ = await cluster.list(PODS, one.namespace, labels=f"{annotations.EXECUTION}={one.name}")
                if any(is_active(pod) and node_of(pod) == node for pod in pods):
                    await terminate.end(self.here, one, "lost", f"node {node} is gone")
                    return

    async def _tell_address(self, one: Execution, address: str) -> None:
        meta, cluster = one.job["metadata"], self.here.cluster
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        where = {"metadata": {"name": rendezvous(one.name), "ownerReferences": [owner]}, "data": {"address": address}}
        try:
            await cluster.create(CONFIG_MAPS, where, one.namespace)
        except errors.AlreadyExists:
            await cluster.patch(CONFIG_MAPS, rendezvous(one.name), {"data": where["data"]}, one.namespace)

    # --- its end -----------------------------------------------------------------------------------------------------

    async def _conclude(self, one: Execution) -> None:
        """Its last checkpoint may stand in the last lines of its log: these first, then how it ended."""
        self.logs.follow(one)
        if one.log.task is not None and not one.log.task.done():
            if not one.log.heard and not one.log.failed:
                await asyncio.wait([one.log.task], timeout=BREATH_SECONDS * 10)
            if one.log.heard:
                await asyncio.wait([one.log.task], timeout=LOG_SECONDS)
        if rest := [log.task for log in one.others.values() if log.heard and log.task and not log.task.done()]:
            await asyncio.wait(rest, timeout=LOG_SECONDS)
        pods = list(one.pods.values())
        one.end = end_of(one.job, pods, self.here.executions.node_names(), one.log.finished) or one.end
        assert one.end is not None
        words = one.end.words + (self.room.fault(one.end.node) if one.end.node else "")
        one.end = replace(one.end, began=one.begun, words=words)
        one.concluded = True
        one.news.set()
        if not one.starters:
            self.say_end(one)

    def say_end(self, one: Execution) -> None:
        end = one.end
        if end is None or said(one.job, annotations.ENDING) == "refused":
            return  # that it never ran is the answer to its start
        self.here.say(attempt_facts.ended(self.here.clock(), one.attempt, end.phase, one.kept_ms, end.words))

    def say_end_soon(self, one: Execution) -> None:
        """After the answer to its start, if that is what its end waited for."""
        if one.concluded and not one.starters:
            asyncio.get_running_loop().call_later(BREATH_SECONDS, self.say_end, one)


def _is_held(one: Execution) -> bool:
    """By somebody else than us: what we suspend has nothing to run."""
    return bool(one.job["spec"].get("suspend")) and one.job["spec"].get("parallelism", 1) > 0
