"""`python -m bench.kill_kube`: kill and stop two control planes of one journal, again and again, while Jobs run in
clusters, and see whether any is lost or runs twice.

    python -m bench.kill_kube --kills 100 [--seed 1]
    python -m bench.kill_kube --mutate [--kills 30] [--only NAME ...]

Two real `penstock up --stand-by` on one PostgreSQL journal, in front of the test bed's clusters (docs/dev-cluster.md):
real API servers, controllers and schedulers, and kwok's pods, which end by themselves. Home Jobs are created all the
time; some are deleted, nodes are taken away, a cap binds, and now and then a Job of somebody else has the name that an
attempt will want. The leader, the standby or both are ended by SIGKILL, or stopped for a while and sent on, at random
instants and at points of the protocol; API servers answer late, or lose the question or the answer
(`bench.kube_mistakes`). In the end all home Jobs must be complete, each once, by what a `Witness` saw in the clusters.
With `--mutate` each seeded mistake takes a run of its own, which must find it.
"""

import asyncio
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bench import kill_command
from bench.auditor import COUNTED, Auditor
from bench.kill import where_of
from bench.kube_load import Load
from bench.kube_mistakes import LEASE_MS, MISTAKES
from bench.kube_witness import Witness, brief, has_ended
from bench.pair import PLANS, Brain, Ground, leader
from penstock.devcluster import ClusterGroup
from penstock.kube import annotations
from penstock.kube.access import Access, connect
from penstock.kube.client import JOBS, Cluster

ROWS: Final = 3  #: of the journal, between two blows
PROGRESS_S: Final = 20
MOST_LIFE_S: Final = 15.0
PATIENCE_S: Final = 75.0  #: a retry comes after a minute at most
LATE: Final = "before bind"
POINTS: Final = (
    "before create jobs",
    "after create jobs",
    LATE,
    "before patch jobs",
    "before append",
    "before writing",
)
#: A cluster counts a Job's deadline from when it starts it, in whole seconds. Half of the offer's `kill` is the grace
#: of its pods, so that the other half, which is held as well, is there for a Job that starts late.
TOLERANCE_MS: Final = 1_000 + 2_000
FENCED: Final = 2  #: how a leader ends that slept through its lease
Json = dict[str, Any]


def main() -> int:
    return kill_command.main(str(__doc__), run, MISTAKES, kills=100, with_mistake=30)


def run(kills: int, seed: int, mistake: str = "") -> "Run":
    """With a mistake it ends as soon as something is found."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-kill-kube-")))
        bed = stack.enter_context(ClusterGroup(folder / "bed", PLANS))
        where = where_of("postgres", folder, stack)
        series = Run(Ground(bed, folder), where, folder, random.Random(f"{seed}/{mistake}"), mistake)
        stack.callback(series.end)
        asyncio.run(series.tell(kills))
        return series


class Run:
    """One installation with two control planes, their lives and deaths, and whoever creates Jobs."""

    load: Load
    east: Cluster
    patience_s = PATIENCE_S

    def __init__(self, ground: Ground, where: str, folder: Path, chance: random.Random, mistake: str) -> None:
        self.ground, self.where, self.chance, self.mistake = ground, where, chance, mistake
        self.brains = [Brain(folder / name, where, ground.sites) for name in ("a", "b")]
        self.auditor, self.witness = Auditor(where, folder), Witness()
        self.kills = self.stops = self.fenced = 0
        self.may_start = asyncio.Event()  #: cleared while both shall be dead
        self.calm = asyncio.Event()  #: cleared while nobody is to be hurt

    async def tell(self, kills: int) -> None:
        async with self._connected() as clusters:
            self.load = Load(self.ground, self.witness, clusters, self.chance)
            self.east = clusters["east"]
            tasks = [asyncio.create_task(self.witness.watch(clusters))]
            self.may_start.set()
            self.calm.set()
            tasks += [asyncio.create_task(self._keep_alive(brain)) for brain in self.brains]
            tasks += [asyncio.create_task(self.load.crowd()), asyncio.create_task(self.load.weather())]
            tasks.append(asyncio.create_task(self._tell_progress(kills)))
            try:
                await self._live(kills, tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell_progress(self, kills: int) -> None:
        """For whoever waits."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            ended, sent = self.load.ended(), len(self.load.sent)
            print(
                f"{time.strftime('%H:%M:%S')} {self.kills} kills and {self.stops} stops of {kills}, "
                f"{ended} of {sent} Jobs ended, {self.auditor.losses} losses, {len(self.words)} findings "
                f"{' '.join(self.words[-1:])[:300]}",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[dict[str, Cluster]]:
        ways = {
            cluster.name: connect(Access(str(cluster.kubeconfig))) for cluster in (self.ground.lab, self.ground.east)
        }
        try:
            yield ways
        finally:
            for way in ways.values():
                await way.close()

    async def _live(self, kills: int, tasks: "list[asyncio.Task[None]]") -> None:
        while self.kills + self.stops < kills:
            await self._until_it_moves()
            await asyncio.sleep(self.chance.uniform(0, 4))
            await self.calm.wait()
            await self._hurt()
            self._ask_all()
            for task in tasks:
                if task.done():
                    task.result()
            if self.mistake and not self.auditor.clean:
                return
        self.load.coming = False
        for brain in self.brains:  # whoever is armed goes; from here on they live
            await self._kill(brain)
        await self._until_all_ended()
        await self._ask_in_the_end()

    async def _until_it_moves(self) -> None:
        """Somebody leads and has written rows since the last blow: who is killed while it starts learns nothing."""
        before, until = self.auditor.engine.state.steps, time.monotonic() + MOST_LIFE_S
        while self.auditor.engine.state.steps < before + ROWS and time.monotonic() < until:
            await asyncio.sleep(0.1)
            self.auditor.follow()

    def end(self) -> None:
        for brain in self.brains:
            brain.end()

    # --- lives and deaths --------------------------------------------------------------------------------------------

    async def _keep_alive(self, brain: Brain) -> None:
        """Start it whenever it is dead; send it on when it was stopped for a while."""
        while True:
            await self.may_start.wait()
            fate = self._fate()
            brain.start(**fate)
            while brain.code is None:
                await asyncio.sleep(0.1)
                if brain.stands_still:
                    self.stops += 1
                    await (self._overtake() if fate.get("at") == LATE else self._rest())
                    brain.signal(signal.SIGCONT)
            self._bury(brain)
            await asyncio.sleep(self.chance.uniform(0, 1.5) if self.load.coming else 0)

    def _fate(self) -> dict[str, object]:
        """Most of its lives end at a point of the protocol, or stand still there for a while."""
        fate: dict[str, object] = {"world": self.chance.randrange(1_000), "mistake": self.mistake}
        luck = self.chance.random() if self.load.coming else 1.0
        if luck < 0.2:
            return fate | {"points": self.chance.randrange(1, 4), "at": LATE, "signal": "STOP"}
        if luck < 0.7:
            fate |= {"points": self.chance.randrange(1, 60), "signal": self.chance.choice(["KILL", "STOP"])}
            if self.chance.random() < 0.6:
                fate |= {"points": self.chance.randrange(1, 6), "at": self.chance.choice(POINTS)}
        return fate

    async def _rest(self) -> None:
        """For a moment, or until its standby has taken over."""
        longer = self.chance.random() < 0.7
        if longer and self.load.coming:
            await asyncio.sleep(LEASE_MS / 1000)
            await self.chance.choice([self.load.delete_some, self.load.drain_all])()
        await asyncio.sleep(self.chance.uniform(1, 2) * LEASE_MS / 1000 if longer else self.chance.random())

    async def _overtake(self) -> None:
        """Whoever takes over makes the Jobs that the sleeper was about to bind, and loses them: when it wakes, newer
        attempts are bound than it knows of. Nobody is hurt meanwhile."""
        self.calm.clear()
        await self._grows(lambda: len(self.witness.made))
        await asyncio.sleep(1)
        await self.load.drain_all()
        await self._grows(lambda: sum(len(life.bound) for life in self.witness.homes.values()))
        await asyncio.sleep(1)
        self.calm.set()

    async def _grows(self, count: Callable[[], int]) -> None:
        """Or not, in twice the time that a successor needs: it may have been killed as well."""
        before, until = count(), time.monotonic() + 4 * LEASE_MS / 1000
        while count() == before and time.monotonic() < until:
            await asyncio.sleep(0.1)

    def _bury(self, brain: Brain) -> None:
        code = brain.code
        if code == -signal.SIGKILL:
            self.kills += 1
        elif code == FENCED and ("must stop" in brain.words or self._is_replaced(brain)):
            self.fenced += 1
        elif code == FENCED and "cannot be written now" in brain.words:
            pass  # the other was stopped in the middle of a row, and this one could not even begin; the next can
        else:
            self.auditor.finds("lost", f"a control plane ended with {code}: {brain.words}")

    def _is_replaced(self, brain: Brain) -> bool:
        """It was stopped before it had taken its site, and finds the claim of whoever leads by now."""
        others = [other for other in self.brains if other is not brain]
        return "was claimed by its control plane since" in brain.words and leader(self.where, self.brains) in others

    async def _hurt(self) -> None:
        leads = leader(self.where, self.brains)
        other = next((brain for brain in self.brains if brain is not leads), self.brains[0])
        match self.chance.choice(["leader", "leader", "standby", "both", "stop", "stop"]):
            case "leader" if leads is not None:
                await self._kill(leads)
            case "standby":
                await self._kill(other)
            case "both":
                await self._kill_both()
            case "stop" if leads is not None:
                leads.signal(signal.SIGSTOP)

    async def _kill(self, brain: Brain) -> None:
        brain.signal(signal.SIGKILL)

    async def _kill_both(self) -> None:
        """And while nobody is there, see whether all that runs is paid for."""
        self.may_start.clear()
        for brain in self.brains:
            await self._kill(brain)
        while any(brain.process is not None and brain.code is None for brain in self.brains):
            await asyncio.sleep(0.05)
        await self._ask_money()
        await asyncio.sleep(self.chance.uniform(0, 4))
        self.may_start.set()

    # --- what must not be --------------------------------------------------------------------------------------------

    def _ask_all(self) -> None:
        """At any time."""
        self.auditor.follow()
        for words in self.witness.doubled():
            self.auditor.finds("doubled", words)
        for home in self.witness.homes:
            self.auditor.hear_witness(home, self.witness.homes[home].job, self.witness.said_of(home))

    async def _ask_money(self) -> None:
        """Both are dead: what runs where it costs something has a hold, and ends by itself before that does."""
        self.auditor.follow()
        leases = self.auditor.engine.state.ledger.leases
        jobs, _ = await self.east.list(JOBS, labels=annotations.EXECUTION)
        for job in jobs:
            marks = job["metadata"].get("annotations") or {}
            if has_ended(job, "Failed") or has_ended(job, "Complete") or job["spec"].get("suspend"):
                continue
            lease = leases.get(marks.get(annotations.ATTEMPT, ""))
            ends = "deletionTimestamp" in job["metadata"] or annotations.ENDING in marks
            if ends and not self.witness.has_pods(marks.get(annotations.ATTEMPT, "")):
                continue  # nothing runs there, and nothing will: what was left of it went with its node
            if lease is None:
                self.auditor.finds(
                    "over_cap", f"{marks.get(annotations.ATTEMPT)} is rented, and nothing is held for it"
                )
            elif (ends_at := _ends_at(job)) is not None and ends_at > lease.deadline_at + TOLERANCE_MS:
                late = ends_at - lease.deadline_at
                self.auditor.finds(
                    "over_cap", f"{marks[annotations.ATTEMPT]} ends {late} ms after what is held for it covers"
                )

    async def _until_all_ended(self) -> None:
        """Or until nothing at all has happened for a while: a busy machine is no fault of anybody here."""
        steps, until = -1, 0.0
        while steps < self.auditor.engine.state.steps or time.monotonic() < until:
            if steps < self.auditor.engine.state.steps:
                steps, until = self.auditor.engine.state.steps, time.monotonic() + self.patience_s
            await asyncio.sleep(0.5)
            self.auditor.follow()
            if self.mistake and not self.auditor.clean:
                return
            kept = [
                execution
                for execution in self.witness.executions.values()
                if annotations.RESULT in _finalizers(execution)
            ]
            if self.load.ended() == len(self.load.sent) and not self._held() and not kept:
                return

    async def _ask_in_the_end(self) -> None:
        self._ask_all()
        for name in self.load.sent:
            self._ask_home(name)
        for job in self.witness.executions.values():
            if annotations.RESULT in _finalizers(job):
                self.auditor.finds("lost", f"an execution Job is kept for ever: {brief(job)}")
        for hold in self._held():
            self.auditor.finds("lost", f"money is held for {hold} though all Jobs should have ended")
        for pod in self.witness.pods.values():
            if pod.over is None:
                self.auditor.finds("doubled", f"a pod of {pod.attempt} of {pod.home} runs on")
        self.auditor.decide_again()

    def _held(self) -> list[str]:
        """What money is held for, and should not be once all Jobs have ended."""
        return list(self.auditor.engine.state.ledger.leases)

    def _ask_home(self, name: str) -> None:
        life = self.witness.homes.get(name)
        succeeded = self.witness.succeeded(name)
        if succeeded > 1:
            self.auditor.finds("doubled", f"{name} succeeded {succeeded} times")
        if life is None or not self.load.has_ended(name):
            self.auditor.finds("lost", f"{name} never ended: {brief(life.now) if life and life.now else ''}")
        elif life.now is None:
            if name not in self.load.deleted:
                self.auditor.finds("lost", f"{name} is gone, and nobody deleted it")
        elif annotations.CANCEL in _finalizers(life.now):
            self.auditor.finds("lost", f"{name} has ended and keeps our finalizer")
        elif f"{life.job}.1" in self.load.planted:  # it fails, unless that attempt was stopped before it began
            if has_ended(life.now, "Complete") and not self.witness.succeeded(name, ghosts=True):
                self.auditor.finds("doubled", f"{name} took somebody else's Job for its own: {brief(life.now)}")
        elif not has_ended(life.now, "Complete") and name not in self.load.deleted:
            self.auditor.finds("lost", f"{name} did not complete: {brief(life.now)}")
        elif has_ended(life.now, "Complete") and not self.witness.succeeded(name, ghosts=True):
            self.auditor.finds("lost", f"{name} is said to be complete, and no pod of it succeeded")

    # --- words -------------------------------------------------------------------------------------------------------

    @property
    def summary(self) -> Json:
        audit = self.auditor
        return {
            "kills": self.kills, "stops": self.stops, "fenced": self.fenced, "reclaimed": self.load.reclaimed,
            "jobs": len(self.load.sent), "deleted": len(self.load.deleted), "attempts": len(audit.promised_at),
            "pods": sum(pod.ran is not None for pod in self.witness.pods.values()), "losses": audit.losses,
            "rented": len(audit.holds), "renewals": audit.renewals, "steps": audit.engine.state.steps,
            **{name: len(audit.found[name]) for name in COUNTED if name != "log_lines_lost"},
        }  # fmt: skip

    @property
    def words(self) -> list[str]:
        return [f"{name}: {words}" for name in COUNTED for words in self.auditor.found[name]]

    @property
    def stories(self) -> Iterator[str]:
        """Of the home Jobs that something was found of: all that was seen of them in the clusters."""
        named = set(re.findall(r"[\w.-]+", " ".join(self.words)))
        meant = {made.home for made in self.witness.made.values() if {made.home, made.attempt} & named}
        for name in sorted(meant | named & set(self.load.sent)):
            yield "\n  ".join((f"what was seen of {name}", *self.witness.story_of(name)))


def _finalizers(job: Json) -> list[str]:
    return list(job["metadata"].get("finalizers") or ())


def _ends_at(job: Json) -> int | None:
    """By the cluster's own deadline; None: it has not started, or has none, or is being ended."""
    start, most = (job.get("status") or {}).get("startTime"), job["spec"].get("activeDeadlineSeconds")
    if not start or not most or most == 1:
        return None
    return int(datetime.fromisoformat(start).timestamp() + most) * 1000


if __name__ == "__main__":
    sys.exit(main())
