"""Notes what keeps an execution from starting, and reports it in the cluster's own words within seconds. `reconcile`
calls `note` with each change; `start` decides when to give up.

Scheduler and kubelet write most of it on the pod. What they only say in Events (a volume that cannot be mounted, pods
that a quota refuses, why an autoscaler adds no node) is read from there, for starts that hang.
"""

import asyncio
import re
from dataclasses import replace
from typing import Final

from penstock.core.model import events as e
from penstock.core.model.types import STANDING
from penstock.core.units import SECOND, Millis
from penstock.drivers.kubernetes import scaling
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.cluster_events import ClusterEvent
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.execution_job import rendezvous
from penstock.drivers.kubernetes.pods import (
    Trouble,
    annotation_of,
    is_active,
    is_being_created,
    is_unnoticed,
    node_of,
    trouble_of,
)
from penstock.kube import annotations
from penstock.kube.client import Obj

STABLE_SECONDS: Final = 2.0  #: trouble that passes sooner is not worth a word
FIRST_LOOK_SECONDS: Final = 4.0  #: at the Events; then again with each look at the trouble
#: Warnings that come with pods which start all the same.
HARMLESS: Final = ("MissingClusterDNS", "DNSConfigForming", "FailedToRetrieveImagePullSecret")
MOST_TOLD: Final = 20  #: reports of one attempt
NO_PODS: Final = Trouble("pods", "the cluster makes no pod for it; a quota or a rule may be in the way")
UNNOTICED: Final = Trouble(
    "missing", "no scheduler has looked at its pods; is there one of the name that they ask for?"
)
UNNOTICED_SECONDS: Final = 20.0
#: Kubelet's words for a volume whose object is not there.
NOT_THERE: Final = re.compile("not found|non-existent|not registered|couldn't find key", re.IGNORECASE)


class TroubleReporter:
    def __init__(self, here: Connection) -> None:
        self.here = here

    def note(self, execution: Execution, pods: list[Obj]) -> None:
        """Update what keeps it from starting, and see that it is told if it lasts."""
        job = execution.job
        creating = any(map(is_being_created, pods))
        if pods and not creating:
            execution.event = None
        trouble = trouble_of(job, pods) or (execution.event if creating else None)
        if trouble is None and not job["spec"].get("suspend") and any(map(is_unnoticed, pods)):
            trouble = UNNOTICED
        if not pods and not job["spec"].get("suspend"):
            trouble = execution.event or NO_PODS
        if execution.begun or (trouble is not None and rendezvous(execution.name) in trouble.words):
            trouble = None  # a gang's pods wait for the rendezvous ConfigMap: not their fault
        trouble = self._with_scaling(execution, trouble)
        if trouble is None or execution.trouble is None or trouble.kind != execution.trouble.kind:
            execution.trouble_at = self.here.clock()
        execution.trouble = trouble
        if not execution.begun and (trouble is not None or creating) and not annotation_of(job, annotations.ENDING):
            self.here.tasks.see_to(f"trouble of {execution.name}", self._follow, execution)

    def _with_scaling(self, execution: Execution, trouble: Trouble | None) -> Trouble | None:
        """No room where an autoscaler adds nodes: with what it said of that."""
        if trouble is None or trouble.kind != "room":
            execution.scaling = None
        if trouble is None or execution.scaling is None:
            return trouble
        return replace(trouble, words=f"{execution.scaling.words}; {trouble.words}", scaling=execution.scaling.kind)

    async def _follow(self, execution: Execution) -> None:
        """Until it starts or ends: look at Events where only they know, and tell what lasts."""
        self.here.events.follow(execution.namespace)
        reports, hangs_s = 0, 0.0
        while self._hangs(execution) and reports < MOST_TOLD:
            await asyncio.sleep(STABLE_SECONDS)
            hangs_s += STABLE_SECONDS
            if hangs_s >= FIRST_LOOK_SECONDS:
                self._look_at_events(execution)
            reports += self._tell(execution)

    def _hangs(self, execution: Execution) -> bool:
        over = execution.begun or execution.end is not None or bool(annotation_of(execution.job, annotations.ENDING))
        known = self.here.executions.by_name.get(execution.name) is execution
        creating = any(map(is_being_created, execution.pods.values()))
        return known and not over and (execution.trouble is not None or creating)

    def _look_at_events(self, execution: Execution) -> None:
        """Look for what neither the Job nor its pods say: the newest Event, if it is a warning."""
        pods = list(execution.pods.values())
        if self._waits_for_nodes(execution):
            self._look_at_autoscaler(execution, pods)
        stuck = next((pod for pod in pods if is_being_created(pod)), None)
        if stuck is None and pods:
            return
        about = self.here.events.about((stuck or execution.job)["metadata"])
        events = [event for event in about if event.reason not in HARMLESS]
        newest = events[-1] if events and events[-1].is_warning else None
        before, execution.event = execution.event, None if newest is None else _trouble_in(newest, stuck)
        if execution.event != before or execution.trouble is None or execution.trouble.kind == "pods":
            self.note(execution, list(execution.pods.values()))
            execution.news.set()

    def _waits_for_nodes(self, execution: Execution) -> bool:
        """True if it has no node at an offer that is rented."""
        offer, trouble = self.here.offers.get(annotation_of(execution.job, annotations.OFFER)), execution.trouble
        return trouble is not None and trouble.kind == "room" and offer is not None and offer.term not in STANDING

    def _look_at_autoscaler(self, execution: Execution, pods: list[Obj]) -> None:
        """Its newest word counts; where it says nothing more, what it said before."""
        waiting = [pod for pod in pods if is_active(pod) and not node_of(pod)]
        place = self.here.places[annotation_of(execution.job, annotations.OFFER)]
        verdict = scaling.look(self.here, waiting, dict(place.selector).get(scaling.POOL_LABEL, ""))
        if verdict is None or not self._waits_for_nodes(execution):
            return
        if execution.scaling is None or execution.scaling.kind != verdict.kind:
            execution.scaling_at = self.here.clock()
        execution.scaling = verdict
        self.note(execution, list(execution.pods.values()))
        execution.news.set()

    def _tell(self, execution: Execution) -> bool:
        trouble, now = execution.trouble, self.here.clock()
        if trouble is None or not self._hangs(execution) or now - execution.trouble_at < self._due_ms(execution):
            return False
        if _meaning(trouble) == execution.reported_trouble:
            return False
        execution.reported_trouble = _meaning(trouble)
        self.here.say(e.AttemptStuck(now, execution.attempt, trouble.words))
        return True

    def _due_ms(self, execution: Execution) -> int:
        """When it is worth a word. Rented nodes may be on their way, and Events say more than that there is no pod."""
        offer, trouble = self.here.offers.get(annotation_of(execution.job, annotations.OFFER)), execution.trouble
        if offer is not None and trouble is not None and self._waits_for_nodes(execution):
            if trouble.scaling not in ("", "coming"):
                return int(STABLE_SECONDS / 2 * SECOND)
            return offer.start_ms + int(STABLE_SECONDS * SECOND)
        if unnoticed_ms := scheduler_ms(trouble):
            return unnoticed_ms
        return int((FIRST_LOOK_SECONDS if trouble is NO_PODS else STABLE_SECONDS / 2) * SECOND)


def scheduler_ms(trouble: Trouble | None) -> Millis:
    """How long a scheduler may be busy before pods that it has not looked at are trouble; 0 of any other trouble."""
    return int(UNNOTICED_SECONDS * SECOND) if trouble is UNNOTICED else 0


def _meaning(trouble: Trouble) -> str:
    """The words without their numbers: "0/3 nodes" and "0/4 nodes" are no news of each other."""
    return trouble.kind + re.sub("[0-9]+", "", trouble.words)


def _trouble_in(event: ClusterEvent, pod: Obj | None) -> Trouble:
    words = f"{event.reason}: {event.message}"
    if pod is None:
        return Trouble("pods", words)
    return Trouble("missing" if NOT_THERE.search(event.message) else "place", words, node_of(pod))
