"""`penstock up` on bad clusters, with at most one mistake in it. `bench.kill_kube` and tests start it.

    python -m bench.kube_mistakes up --home ... --stand-by

    PENSTOCK_BENCH_POINTS=17           cut at the 17th point of the protocol: around appends and writes of Jobs
    PENSTOCK_BENCH_AT="before create jobs"    count those of this name only
    PENSTOCK_BENCH_SIGNAL=STOP         how: KILL, or STOP until somebody sends CONT
    PENSTOCK_BENCH_WORLD=7             the seed of the clusters' luck: late, or the question or the answer lost
    PENSTOCK_BENCH_MISTAKE=NAME        one of MISTAKES, each a protocol bug that somebody could make

Leases are short, so that a standby does not let anybody wait. The clusters are as bad without a mistake: what is found
then is a bug of ours.
"""

import asyncio
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from bench import mistakes
from bench.mistakes import Points, around, named
from penstock.core.model import events as e
from penstock.core.model.actions import StartAttempt
from penstock.drivers.kubernetes import execution_job, ownership, pods, reconcile, terminate
from penstock.drivers.kubernetes import start as starting
from penstock.drivers.kubernetes.connection import Connection
from penstock.drivers.kubernetes.driver import KubernetesDriver
from penstock.front import binding_driver, status
from penstock.journal.writer import JournalWriter
from penstock.kube import annotations
from penstock.kube.client import JOBS, Cluster, Kind, Obj
from penstock.kube.errors import KubeError, Unavailable
from penstock.kube.informer import Informer
from penstock.live import plane, recover, site_probe

LEASE_MS: Final = 3_000
BEAT_MS: Final = 500
LOOK_MS: Final = 2_000
MISSING_MS: Final = 6_000  #: instead of minutes: what a mistake lets vanish is missed within a run
VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
SLOW_S: Final = 0.8  #: the longest that a request is late


def main() -> int:
    from penstock.cli.main import main as penstock

    setting = os.environ.get
    by = signal.Signals[f"SIG{setting('PENSTOCK_BENCH_SIGNAL', 'KILL')}"]
    points = Points(int(setting("PENSTOCK_BENCH_POINTS", "0")), setting("PENSTOCK_BENCH_AT", ""), by)
    hurry()
    put_points(points)
    if seed := setting("PENSTOCK_BENCH_WORLD"):
        worsen_the_clusters(random.Random(int(seed)))
    if name := setting("PENSTOCK_BENCH_MISTAKE"):
        MISTAKES[name](points)
    return penstock(sys.argv[1:])


def hurry() -> None:
    right = plane.Plane.__init__

    def init(self: Any, journal: Any, drivers: Any, setup: Any, *more: Any) -> None:
        right(self, journal, drivers, replace(setup, lease_ms=LEASE_MS, beat_ms=BEAT_MS, look_ms=LOOK_MS), *more)

    _put(plane.Plane, __init__=init)
    _put(recover, MISSING_MS=MISSING_MS)
    _put(site_probe, AGAIN_MS=BEAT_MS, MOST_MS=LOOK_MS)


def put_points(points: Points) -> None:
    """`before append`, `before writing` (in its transaction); `before bind`; `before create jobs`, `after patch jobs`,
    and so on."""
    around(JournalWriter, "append", points)
    around(JournalWriter, "_append", points, "writing")
    right = Cluster._ask

    async def ask(self: Any, method: str, kind: Kind, *args: Any, **more: Any) -> Obj:
        verb = VERBS.get(method) if kind is JOBS else None
        if verb:
            points("before bind" if _binds(args) else f"before {verb} jobs")
        answer = await right(self, method, kind, *args, **more)
        if verb:
            points(f"after {verb} jobs")
        return answer

    _put(Cluster, _ask=ask)


def _binds(args: tuple[Any, ...]) -> bool:
    """A path and what is to be changed there."""
    body = args[1] if len(args) > 1 else {}
    return annotations.BINDING in ((body.get("metadata") or {}).get("annotations") or {})


def worsen_the_clusters(luck: random.Random) -> None:
    """One request about Jobs in twenty never arrives, one in twenty is done and its answer lost, one in five is late.
    Late ones are on their way: nobody can call them back."""
    right_ask, right_send = Cluster._ask, Cluster._in_a_lane

    async def ask(self: Any, method: str, kind: Kind, *args: Any, **more: Any) -> Obj:
        fate = luck.random() if kind is JOBS else 0.5
        if fate < 0.05:
            raise Unavailable("the bench lost the question")
        answer = await right_ask(self, method, kind, *args, **more)
        if fate > 0.95:
            raise Unavailable("the bench lost the answer")
        return answer

    async def send(self: Any, request: Any, *more: Any) -> Any:
        if request.method != "GET" and luck.random() < 0.2:
            await asyncio.sleep(SLOW_S * luck.random())
        return await right_send(self, request, *more)

    _put(Cluster, _ask=ask, _in_a_lane=send)


def _put(owner: object, **parts: object) -> None:
    """In the place of what is there, in the running program only."""
    for name, part in parts.items():
        setattr(owner, name, part)


# --- mistakes --------------------------------------------------------------------------------------------------------


def bind_after_create(points: Points) -> None:
    """The execution Job is made first, and the home Job is told afterwards."""

    async def wrong(self: Any, action: Any, work: Any = None) -> Any:
        if not isinstance(action, StartAttempt):
            return await right(self, action, work)
        starting = asyncio.ensure_future(self.driver.do(action, work))
        await asyncio.wait([starting], timeout=0.3)
        points("before bind")
        try:
            return await right(self, action, work)
        finally:
            starting.cancel()

    right = binding_driver.BindingDriver.do
    _put(binding_driver.BindingDriver, do=wrong)


def bind_without_looking(_: Points) -> None:
    """Whoever binds last is right: nobody asks which attempt is the newer, or what the Job was when it was seen."""

    async def wrong(home: Cluster, metadata: dict[str, Any], ask: Any, _seen: Obj | None = None) -> Obj:
        marks = {annotations.JOB: ask.job, annotations.BINDING: status.binding(ask.attempt, ask.offer)}
        return await home.patch(JOBS, metadata["name"], {"metadata": {"annotations": marks}}, metadata["namespace"])

    _put(binding_driver, bind=wrong)


def time_to_live_too_early(_: Points) -> None:
    """A finished Job goes by itself after a second, on record or not."""
    right = execution_job.execution_job

    def wrong(order: Any, manifest: Obj, now: int) -> Obj:
        job = right(order, manifest, now)
        del job["metadata"]["finalizers"]
        job["spec"]["ttlSecondsAfterFinished"] = 1
        return job

    _put(starting, execution_job=wrong)


def late_create(_: Points) -> None:
    """A stop of what has not begun leaves no tombstone, so a create that is late is carried out after it."""
    right = KubernetesDriver.stop

    async def wrong(self: Any, attempt: str, grace_ms: int) -> None:
        async with self.here.asking():
            there = await self.here.find(attempt)
        if there is None:
            self.here.say(e.AttemptStopped(self.here.clock(), attempt, 0))
        else:
            await right(self, attempt, grace_ms)

    _put(KubernetesDriver, stop=wrong)


def a_failed_list_is_empty(_: Points) -> None:
    """What cannot be read is taken to be gone."""
    right = Cluster.list

    async def wrong(self: Any, kind: Kind, namespace: str = "", **more: Any) -> Any:
        try:
            return await right(self, kind, namespace, **more)
        except KubeError:
            return [], self.__dict__.setdefault("newest", "0")

    async def run(self: Any) -> None:
        while True:  # and everything is read again each second, as some do
            self.version = ""
            try:
                async with asyncio.timeout(1):
                    await right_run(self)
            except TimeoutError:
                continue

    right_run = Informer.run
    _put(Cluster, list=wrong)
    _put(Informer, run=run)


def adopt_without_comparing(_: Points) -> None:
    """What stands under an attempt's name is taken to be its own."""
    _put(ownership, check_own=lambda *_: None)
    _put(Connection, is_own=lambda *_: True)


def a_new_name_each_time(_: Points) -> None:
    """An execution Job's name is drawn when it is made, so a second try makes a second Job."""
    right = execution_job.execution_job

    def wrong(order: Any, manifest: Obj, now: int) -> Obj:
        job = right(order, manifest, now)
        job["metadata"]["name"] += f"-{secrets.token_hex(2)}"
        return job

    async def start(self: Any, ask: Any, work: Any) -> None:
        self.here.executions.by_name.pop(self.here.name(ask.attempt), None)
        await right_start(self, ask, work)

    right_start = KubernetesDriver.start
    _put(starting, execution_job=wrong)
    _put(KubernetesDriver, start=start)


def over_before_its_pods_are(_: Points) -> None:
    """Told to stop is taken for stopped."""
    right = pods.end_of

    def wrong(job: Obj, its_pods: Any, there: Any, finished: bool = False) -> Any:
        if pods.annotation_of(job, annotations.ENDING) == "stopped":
            return pods.End("stopped", pods.annotation_of(job, annotations.WORDS))
        return right(job, its_pods, there, finished)

    _put(reconcile, end_of=wrong)


def replaced_behind_our_back(_: Points) -> None:
    """A pod whose node is taken away is made anew by its cluster, without a decision."""
    execution_job.LOST["action"] = "Ignore"


def forgotten_when_seen(points: Points) -> None:
    """The cluster may take a Job away as soon as its end is seen, which is before it is on record."""
    right = reconcile.Reconciler.say_end

    def wrong(self: Any, execution: Any) -> None:
        self.here.tasks.see_to(f"forget {execution.name}", forget, self, execution)

    async def forget(self: Any, execution: Any) -> None:
        await terminate.forget(self.here, execution)
        points("before say")
        right(self, execution)

    _put(reconcile.Reconciler, say_end=wrong)
    forgotten = terminate._forgotten
    _put(terminate, _forgotten=lambda job, _: forgotten(job, 1_000))  # which it does after a second


MISTAKES: Final[dict[str, Callable[[Points], None]]] = named(
    (
        bind_after_create,
        bind_without_looking,
        time_to_live_too_early,
        forgotten_when_seen,
        late_create,
        a_failed_list_is_empty,
        adopt_without_comparing,
        a_new_name_each_time,
        over_before_its_pods_are,
        replaced_behind_our_back,
        mistakes.release_on_unknown,
        mistakes.act_before_append,
        mistakes.forget_an_outstanding_action,
    )
)


if __name__ == "__main__":
    sys.exit(main())
