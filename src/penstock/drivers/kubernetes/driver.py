"""The Kubernetes driver: each attempt is one execution Job in the cluster. `wiring` makes one for each such site.

Nothing is installed in the cluster. Everything that must survive us is on the Job itself: which attempt it is, its
deadline, why we end it. A control plane that restarts finds all of it there, and the Job keeps its deadline and its
result in between.

This file has the driver's calls. Their parts, in the order of an attempt's life:

- `connection.py`: settings, client, guarded changes; `ownership.py`: whose cluster and whose Job it is; `claim.py`:
  which control plane of that installation;
- `execution_job.py`: the execution Job's manifest; `start.py`: creates it, and waits until it runs or gives up;
  `copies.py`: what is copied for it; `seeding.py`: what of a batch is done already; `provisioning.py`: its nodes, asked
  for at once;
- `cache.py`: informers' cache; `reconcile.py`: reacts to each change, up to the end;
- `pods.py`: what a pod's status means; `counts.py`: how many there are; `logs.py`, `pod_logs.py`: its logs;
- `deadlines.py` and `terminate.py`: deadlines, ends, tombstones;
- `capacity.py`, `inventory.py`: nodes with free GPUs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from penstock.capacity.cluster_nodes import RentingSite
from penstock.capacity.ways import capacity_of
from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.core.model.types import Offer, Site
from penstock.core.units import NEVER, Instant, Millis
from penstock.data.checkpoints import Store
from penstock.drivers.driver import BaseDriver, Command, Refused, Say, SeenAttempt, SiteInventory, Unreachable, Work
from penstock.drivers.kubernetes import deadlines, ownership, provisioning, seeding, terminate
from penstock.drivers.kubernetes.cache import Execution
from penstock.drivers.kubernetes.capacity import CapacityReporter
from penstock.drivers.kubernetes.claim import LeaseClaim
from penstock.drivers.kubernetes.connection import Connection, KubernetesSettings, to_nobody
from penstock.drivers.kubernetes.counts import counts_now
from penstock.drivers.kubernetes.deadlines import deadline_of
from penstock.drivers.kubernetes.execution_job import origin_of
from penstock.drivers.kubernetes.logs import Logs
from penstock.drivers.kubernetes.pods import annotation_of, is_active
from penstock.drivers.kubernetes.reconcile import Reconciler, counted
from penstock.drivers.kubernetes.start import Starter
from penstock.drivers.running_pods import RunningPods
from penstock.kube import annotations, errors, pod_exec
from penstock.kube.client import JOBS, Cluster
from penstock.kube.exec_protocol import Printed, Typed
from penstock.kube.node_selection import NodeSelection

TICK_SECONDS: Final = 60.0  #: retry failed tasks, apply the hour's headroom, prune tombstones


class KubernetesDriver(BaseDriver):
    def __init__(
        self,
        site: Site,
        folder: Path,
        installation: str,
        checkpoints: Store,
        clock: Callable[[], Instant],
        connect: Callable[[], Cluster],
        settings: KubernetesSettings,
    ) -> None:
        self.site = site
        self.here = Connection(site, installation, clock, connect, settings)
        self.reporter = CapacityReporter(self.here)
        self.logs = Logs(self.here, folder.absolute() / "logs")
        self.starter = Starter(self.here, self.reporter, checkpoints)
        self.reconciler = Reconciler(self.here, self.reporter, self.logs)
        self.lease_claim = LeaseClaim(self.here, self._connect)
        self.capacity = capacity_of(RentingSite(site.id, installation, clock, lambda: self.here.cluster, self._rented))

    def _rented(self) -> dict[str, tuple[Offer, NodeSelection]]:
        return {name: (offer, self.here.places[name]) for name, offer in self.here.offers.items()}

    @property
    def claims(self) -> LeaseClaim:
        return self.lease_claim

    # --- coming and going --------------------------------------------------------------------------------------------

    def use(self, site: Site, places: Mapping[str, NodeSelection]) -> None:
        """What the cluster offers from now on, and by which nodes; what runs is not touched."""
        self.site = site
        self.here.use(site, places)

    def tell_all(self) -> None:
        """Report all capacity again: nobody heard it of an offer that was not on record."""
        self.reporter.reported.clear()
        self.reporter.unsuited.clear()
        self.reporter.changed()
        self.capacity.tell_all()

    async def open(self, say: Say) -> None:
        here = self.here
        here.say = say
        self._connect()
        async with here.asking():
            await ownership.claim(here)
        await here.executions.follow()
        await self.capacity.open(say)
        here.opened = True
        for execution in here.executions:
            self.reconciler.look_at(execution)
        self.reporter.tell()
        self.reporter.forget_tried()
        here.tasks.see_to("tick", self._tick)

    def _connect(self) -> None:
        self.here.connect(self.logs.of, self.reconciler.look_at, self.reporter.changed, self.logs.in_step_again)
        self.here.executions.pods_moved = self.reporter.pods_moved

    async def close(self) -> None:
        self.here.say = to_nobody
        await self.capacity.close()
        self.reporter.close()
        await self.here.close()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for execution in self.here.executions:
                if execution.end is None:
                    self.reconciler.look_at(execution)
            self.reporter.tell()
            await terminate.prune(self.here)
            await provisioning.sweep(self.here)

    def consider(self, needs: Iterable[str]) -> None:
        self.reporter.consider(needs)

    def judged(self, needs: Iterable[str]) -> list[e.NodesUnsuited]:
        return self.reporter.judged(needs)

    # --- an attempt --------------------------------------------------------------------------------------------------

    async def start(self, ask: StartAttempt, work: Work) -> None:
        if ask.offer not in self.here.offers:
            raise Refused(f"site {self.site.id} has no offer {ask.offer}")
        try:
            execution = await self._ordered(ask, work)
        except Unreachable as error:
            self.starter.report(ask.attempt, str(error))
            raise
        if execution.end is not None and annotation_of(execution.job, annotations.ENDING) != "refused":
            if execution.concluded:  # otherwise `_conclude` is about to report it
                self.reconciler.say_end(execution)
            return
        execution.starters += 1
        try:
            await self.starter.until_begun(execution, ask, work)
        finally:
            execution.starters -= 1
            self.reconciler.say_end_soon(execution)

    async def _ordered(self, ask: StartAttempt, work: Work) -> Execution:
        """Its Job, created unless it is there."""
        async with self.here.asking():
            given = self.starter.manifest(work, ask.offer)
            execution = self.here.known(ask.attempt)
            if execution is None:
                await self.starter.check_answers()
                execution = await self.starter.order(ask, work, given)
            ownership.check_own(self.here, execution.job, ask.attempt, origin_of(given.manifest, ask))
            await seeding.seed(self.here, execution)
            await provisioning.provide(self.here, execution)
        return execution

    async def stop(self, attempt: str, grace_ms: Millis) -> None:
        async with self.here.asking():
            execution = await self.here.find(attempt) or await terminate.bury(self.here, attempt)
            if execution is None:  # another installation has the name: our Job does not exist and cannot be created
                self.here.say(e.AttemptStopped(self.here.clock(), attempt, 0))
            elif execution.concluded:
                self.reconciler.say_end(execution)
            elif execution.end is None:
                await terminate.end(self.here, execution, "stopped", "told to stop", grace_ms)

    async def set_deadline(self, attempt: str, deadline_at: Instant) -> Instant:
        async with self.here.asking():
            execution = await self.here.find(attempt)
            if execution is None:
                raise Unreachable(f"{attempt} is not here, or not yet")
            self.here.executions.note(await self.here.cluster.get(JOBS, execution.name, execution.namespace))
            stands = deadline_of(execution.job)
            if (
                execution.end is not None
                or annotation_of(execution.job, annotations.ENDING)
                or stands <= self.here.clock()
            ):
                return stands if stands < NEVER else deadline_at
            # No retry after a conflict: a newer control plane may have taken over and decided otherwise.
            await deadlines.move(self.here, execution, deadline_at, tries=1)
            return deadline_at

    async def forget(self, attempt: str) -> None:
        async with self.here.asking():
            execution = await self.here.find(attempt)
            if execution is not None and execution.end is not None:
                await terminate.forget(self.here, execution)

    # --- what is there -----------------------------------------------------------------------------------------------

    async def look(self) -> SiteInventory:
        """The cache's view, if its informers are in sync and the cluster answers now."""
        async with self.here.asking():
            await ownership.check_still_ours(self.here)
        self.here.executions.check()
        seen = [_seen(execution) for execution in self.here.executions if not execution.forgotten]
        nodes = tuple([rented.node for rented in await self.capacity.list()])
        warns = self.capacity.warns() or terminate.warns(self.here) or self.here.events.warns()
        return SiteInventory(tuple(attempt for attempt in seen if attempt is not None), nodes, warns)

    async def log(self, attempt: str, after: int, most: int, rank: int | None = None) -> tuple[bytes, bool]:
        return await self.logs.read(attempt, after, most, rank)

    async def exec(self, attempt: str, command: Command, typed: Typed | None, printed: Printed) -> int:
        async with self.here.asking(), _commands():
            execution = await self.here.find(attempt)
            pod = execution.ranks().get(command.rank) if execution is not None and execution.end is None else None
            if execution is None or pod is None or not is_active(pod):
                raise Refused(f"rank {command.rank} of {attempt} does not run now")
            name, tty = str(pod["metadata"]["name"]), command.tty
            cluster, where = self.here.cluster, (name, execution.namespace, pod["container"])
            return await pod_exec.run(cluster, *where, command.words, typed, printed, tty)

    def running_pods(self, attempt: str) -> RunningPods | None:
        execution = self.here.known(attempt) if self.here.connected else None
        return counts_now(execution.job, list(execution.pods.values())) if execution is not None else None

    def when_pods_change(self, changed: Callable[[str], None]) -> None:
        self.here.pods_changed = changed

    def ask_for_home_jobs(
        self, home_jobs: Callable[[], AbstractSet[str] | None], is_past: Callable[[str], Awaitable[bool]]
    ) -> None:
        self.here.home_jobs, self.here.is_past = home_jobs, is_past

    def progress(self, attempt: str) -> tuple[int, int] | None:
        """The last step that it reported, and of how many; 0 if it did not say."""
        return self.logs.progress(attempt)


@asynccontextmanager
async def _commands() -> AsyncIterator[None]:
    """Turn the cluster's refusal of a command into `Refused`; it says nothing about the attempt."""
    try:
        yield
    except errors.Forbidden as error:
        grant = "its platform engineer lets us by 'penstock manifests rbac --exec'"
        raise Refused(f"our account may not run commands there; {grant} ({error})") from error
    except (errors.Invalid, errors.NotFound) as error:
        raise Refused(f"it could not be run: {error}") from error


def _seen(execution: Execution) -> SeenAttempt | None:
    if execution.end is not None:
        end = execution.end
        counts = counted(execution, end)
        return SeenAttempt(execution.attempt, end.phase, execution.kept_ms, 0, end.words, counts)
    if execution.begun:
        return SeenAttempt(execution.attempt, "running", execution.kept_ms, deadline_of(execution.job))
    return None  # not started: the `start` call still waits, or will be repeated
