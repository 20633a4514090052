"""A driver's connection to its cluster: settings, client, cache of executions, and guarded changes. `KubernetesDriver`
makes one and all of its parts use it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final

from penstock.core.model.events import Fact
from penstock.core.model.types import Site
from penstock.core.units import DAY, MINUTE, SECOND, Instant, Millis
from penstock.core.values import value
from penstock.drivers.driver import Refused, Say, Unreachable, Unstartable
from penstock.drivers.kubernetes.cache import Execution, ExecutionCache
from penstock.drivers.kubernetes.cluster_events import ClusterEvents
from penstock.drivers.kubernetes.pod_logs import PodLog
from penstock.drivers.kubernetes.tasks import TaskSet
from penstock.kube import annotations, errors
from penstock.kube.client import JOBS, Cluster, Obj
from penstock.kube.maps import Maps
from penstock.kube.node_selection import NodeSelection
from penstock.kube.request_priority import NOW, Rank

CONFLICTS: Final = 8  #: retries after conflicts with other writers
CATCH_UP_SECONDS: Final = 1.0  #: how long we wait for the watch to catch up
FULL: Final = ("exceeded quota", "forbidden: maximum")
KNOWN_LOGINS: Final = "print it again with 'penstock manifests admission --as LOGIN' and apply it"


@value
class KubernetesSettings:
    """How we use a cluster. The sites file defines its offers."""

    namespace: str = "penstock"
    namespaces: tuple[str, ...] = ()  # further namespaces: of home Jobs, or mapped to from them
    places: tuple[tuple[str, NodeSelection], ...] = ()  # node selection of each offer, by its id
    shared: bool = False  # other installations use this cluster, too, in their own namespaces
    secret: str = ""  # a Secret whose keys become environment variables: access to the checkpoints
    maps: Maps | None = None
    grace_ms: Millis = 30 * SECOND  # to write a last checkpoint at the deadline; rented: at most half of `kill`
    room_ms: Millis = MINUTE  # how long a pod may stay unschedulable at a standing offer
    scale_ms: Millis = 15 * MINUTE  # the same where an autoscaler adds nodes
    no_node_ms: Millis = MINUTE  # how long an autoscaler may say that no node comes: it may try another kind
    image_ms: Millis = 2 * MINUTE  # how long an image pull or a container start may fail
    typo_ms: Millis = 10 * SECOND  # the same for an image that does not exist
    retry_ms: Millis = 30 * SECOND  # when to retry after no capacity
    keep_ms: Millis = DAY  # how long a Job stays after its end is in the journal
    log_bytes: int = 64 << 20  # of each attempt
    hour: Callable[[], int] = lambda: datetime.now().astimezone().hour  # of the day, for headroom


class Connection:
    cluster: Cluster  #: from `connect` on
    executions: ExecutionCache  #: the cache, from `connect` on
    events: ClusterEvents  #: what the cluster says of starts that hang, from `connect` on

    def __init__(
        self,
        site: Site,
        installation: str,
        clock: Callable[[], Instant],
        dial: Callable[[], Cluster],
        settings: KubernetesSettings,
    ) -> None:
        self.site, self.installation, self.clock, self.dial, self.settings = site, installation, clock, dial, settings
        self.offers = {offer.id: offer for offer in site.offers}
        self.places: Mapping[str, NodeSelection] = {offer: NodeSelection() for offer in self.offers} | dict(
            settings.places
        )
        self.namespaces = tuple(dict.fromkeys((settings.namespace, *settings.namespaces)))
        self.say: Say = to_nobody
        self.pods_changed: Callable[[str], None] = lambda _: None  #: called with an attempt whose pods' counts changed
        #: Uids of all home Jobs that exist, at every front door; None: not known now.
        self.home_jobs: Callable[[], AbstractSet[str] | None] = lambda: None
        self.gone_at: dict[str, Instant] = {}  #: uids of home Jobs of executions here, and when each was missed first
        self.is_past: Callable[[str], Awaitable[bool]] = _not_known  #: no start of this attempt can be bound any more
        self.past_at: dict[str, Instant] = {}  #: attempts with a tombstone here, and when each was first seen to be so
        #: What we may create to give pods their host names: a namespace, and a resource there.
        self.names_hosts: set[tuple[str, str]] = set()
        self.ending: set[str] = set()  #: namespaces that are being deleted, or were, as our Jobs in them showed
        self.tasks = TaskSet()
        self.opened = False  #: the cache is complete, and each change is reported

    def use(self, site: Site, places: Mapping[str, NodeSelection]) -> None:
        """What the cluster offers from now on. Offers that are gone are still known: pods may run there."""
        self.site, self.offers = site, self.offers | {offer.id: offer for offer in site.offers}
        self.places = {**self.places, **places}
        if self.connected:
            self.executions.places = {name: (offer, self.places[name]) for name, offer in self.offers.items()}

    # --- coming and going --------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return hasattr(self, "cluster")

    def connect(
        self,
        make_log: Callable[[str, int], PodLog],
        changed: Callable[[Execution], None],
        room_changed: Callable[[], None],
        sync_changed: Callable[[str], None],
    ) -> None:
        """Make client and cache once: an `open` that failed half way may be called again."""
        if self.connected:
            return
        self.cluster = self.dial()
        self.events = ClusterEvents(self.cluster, ours=annotations.EXECUTIONS)
        places = {offer.id: (offer, self.places[offer.id]) for offer in self.site.offers}
        self.executions = ExecutionCache(
            self.cluster,
            self.installation,
            self.namespaces,
            places=places,
            make_log=make_log,
            changed=changed,
            room_changed=room_changed,
            sync_changed=sync_changed,
        )
        self.executions.ending = self.ending

    async def close(self) -> None:
        await self.tasks.close()
        if self.connected:
            await self.events.close()
            await self.executions.close()
            await self.cluster.close()

    # --- an attempt's Job --------------------------------------------------------------------------------------------

    def name(self, attempt: str) -> str:
        return annotations.execution_name(self.installation, attempt)

    def known(self, attempt: str) -> Execution | None:
        execution = self.executions.by_name.get(self.name(attempt))
        return execution if execution is not None and self.is_own(execution.job, attempt) else None

    def is_own(self, job: Obj, attempt: str) -> bool:
        """A Job's name proves nothing: a Job without our installation and attempt on it is not read or changed."""
        labels, notes = (job["metadata"].get(kind) or {} for kind in ("labels", "annotations"))
        owner = job.get("owner") or labels.get(annotations.INSTALLATION, "")
        return owner == annotations.label_value(self.installation) and notes.get(annotations.ATTEMPT) == attempt

    async def find(self, attempt: str) -> Execution | None:
        """From the cache, or else from the API server: the watch may be behind."""
        if (execution := self.known(attempt)) is not None:
            return execution
        for namespace in self.namespaces:
            with suppress(errors.NotFound):
                job = await self.cluster.get(JOBS, self.name(attempt), namespace)
                if self.is_own(job, attempt):
                    return self.executions.note(job)
        return None

    async def change(
        self, execution: Execution, change: Callable[[Obj], Obj | None], rank: Rank = NOW, tries: int = CONFLICTS
    ) -> None:
        """Apply `change` to the Job's newest version; after a conflict, compute it again from the version that won."""
        for _ in range(tries):
            wanted = change(execution.job)
            if wanted is None:
                return
            seen = execution.job["metadata"]["resourceVersion"]
            try:
                job = await self.cluster.patch_outlived(JOBS, execution.job, wanted, seen=seen, rank=rank)
                self.executions.note(job)
                return
            except errors.Conflict:
                await self._catch_up(execution, seen)
        raise Unreachable(f"somebody else keeps changing Job {execution.name}")

    async def _catch_up(self, execution: Execution, seen: str) -> None:
        """Wait for the watch to bring the newer version; if it does not, read it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while execution.job["metadata"]["resourceVersion"] == seen:
                    await execution.newer.wait()
                return
        self.executions.note(await self.cluster.get(JOBS, execution.name, execution.namespace))

    # --- asking ------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Turn the cluster's errors into a driver's."""
        try:
            yield
        except errors.KubeError as error:
            raise self._as_drivers(error) from error

    def _as_drivers(self, error: errors.KubeError) -> Exception:
        if policy := errors.own_policy(error):
            words = f"Penstock's own policy {policy} does not know the login that Penstock has there; {KNOWN_LOGINS}"
            return Unstartable(f"{words} ({error})", self.settings.retry_ms, "denied")
        if gone := errors.gone_namespace(error, self.ending):
            words = f"namespace {gone} at {self.site.id} is gone or being deleted; make it again, with our rights there"
            return Unstartable(f"{words} ({error})", self.settings.retry_ms, "missing")
        match error:
            case errors.Invalid():
                return Refused(f"{self.site.id} does not take its Job: {error}")
            case errors.Forbidden() if error.by_account:
                words = f"our account there may not {error.verb} {error.resource}; grant it that (docs/kubernetes.md)"
                return Unreachable(words)
            case errors.Forbidden() if any(word in str(error) for word in FULL):  # its namespace's own limit
                return Unstartable(str(error), self.settings.retry_ms, "unfit")
            case errors.Forbidden():
                return Refused(f"{self.site.id} does not admit it: {error}")
            case _:
                return Unreachable(str(error))


async def _not_known(_attempt: str) -> bool:
    """`is_past` where there are no home Jobs."""
    return False


def to_nobody(_: Fact) -> None:
    """`say` before `open` and after `close`."""
